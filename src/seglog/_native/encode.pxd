"""The open batch, to which `validate` adds records."""

from libc.stdint cimport int32_t, int64_t

from seglog._native.capi cimport slg_error
from seglog._native.capi_columns cimport slg_encode_batch, slg_encode_record


cdef class BatchEncoder:
    cdef slg_encode_batch _batch
    cdef slg_error _error

    cdef tuple _record(self, slg_encode_record *record, int64_t offset, int64_t timestamp, key,
                       value, headers)
    cdef int _grow(self, size_t wanted) except -1
    cdef int32_t _last_offset_delta(self, int64_t last_offset) except? -1
