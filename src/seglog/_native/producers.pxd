"""The class by which the append path reaches a partition's producers."""

from libc.stdint cimport int64_t

from seglog._native.capi_append cimport slg_producers, slg_span


cdef class ProducerTable:
    cdef slg_producers _state
    cdef slg_span _span
    cdef readonly int64_t spans  # how many were begun: an answer about an older one is void
    cdef public int64_t map_end_offset  # up to where the table says what the log says

    cdef _judged(self)
