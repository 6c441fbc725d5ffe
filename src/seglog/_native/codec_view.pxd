"""Bytes of C as an argument of a codec."""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t


# Codecs look at memory of the decoder through this for the time of one call, and keep no view.
cdef inline object view_of(const uint8_t *data, size_t size):
    return PyMemoryView_FromMemory(<char *>data, <Py_ssize_t>size, PyBUF_READ)
