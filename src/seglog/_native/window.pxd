"""The source of bytes of native readers: a descriptor, or a WindowSource."""

cimport cython
from cpython.pythread cimport PyThread_type_lock
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from seglog._native.capi cimport slg_source


# Used without the GIL: the bytes of a block, kept alive by `owner`.
cdef struct block_state:
    const uint8_t *data
    size_t size
    int64_t start
    PyThread_type_lock lock
    void *owner


@cython.final
cdef class WindowSource:
    cdef object _load
    cdef object _failure
    cdef Py_buffer _view
    cdef bint _is_held
    cdef unsigned long _loader  # the thread in which `load` runs; 0: none
    cdef block_state _block

    cdef int _release(self) except -1
    cdef bint _fetch(self, int64_t position, size_t least) noexcept


cdef slg_source source_of(object source) except *
cdef object failure_of(object source)
