"""Payloads in the usual framing, whose codec is called block by block."""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from seglog._native.capi cimport *


# Codecs look at memory of the decoder through these for the time of one call, and keep no view.
cdef inline object view_of(const uint8_t *data, size_t size):
    return PyMemoryView_FromMemory(<char *>data, <Py_ssize_t>size, PyBUF_READ)


cdef inline object room_of(char *data, Py_ssize_t size):
    return PyMemoryView_FromMemory(data, size, PyBUF_WRITE)


cdef inline Py_ssize_t lz4_blocks(object decode, const uint8_t *payload, size_t payload_size,
                                  char *into, Py_ssize_t into_size) except -2:
    """Bytes in `into`; -1 for any other framing, and for want of room."""
    cdef slg_frame frame
    cdef slg_block block
    cdef size_t at = 0
    cdef Py_ssize_t size = 0
    while True:
        frame = slg_lz4_next(payload, payload_size, &at, &block)
        if frame == SLG_FRAME_END:
            return size
        if frame != SLG_FRAME_BLOCK or size + SLG_LZ4_BLOCK_BYTES > into_size:
            return -1
        if block.is_stored:
            memcpy(into + size, block.data, block.size)
            size += <Py_ssize_t>block.size
        else:
            size += <Py_ssize_t>decode(view_of(block.data, block.size), room_of(
                into + size, SLG_LZ4_BLOCK_BYTES), SLG_LZ4_BLOCK_BYTES)


cdef inline Py_ssize_t snappy_blocks(object decode, const uint8_t *payload, size_t payload_size,
                                     char *into, Py_ssize_t into_size) except -2:
    """The same of a stream of snappy-java; `decode` raises for want of room."""
    cdef slg_frame frame
    cdef slg_block block
    cdef size_t at = 0
    cdef Py_ssize_t size = 0
    while True:
        frame = slg_xerial_next(payload, payload_size, &at, &block)
        if frame != SLG_FRAME_BLOCK:
            return size if frame == SLG_FRAME_END else -1
        size += <Py_ssize_t>decode(view_of(block.data, block.size), room_of(
            into + size, into_size - size))
