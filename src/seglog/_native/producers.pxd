"""The class through which the append path uses a partition's producers."""

from libc.stdint cimport int64_t

from seglog._native.capi_append cimport slg_producers, slg_span


cdef class ProducerTable:
    cdef slg_producers _state
    cdef slg_span _span
    cdef readonly int64_t spans  # number of spans begun: results about an older one are void
    cdef public int64_t map_end_offset  # the table reflects the log up to this offset

    cdef _judged(self)
