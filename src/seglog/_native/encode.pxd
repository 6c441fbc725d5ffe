"""C of this stem, which encode_columns stands on, and the open batch, to which `validate` adds."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from seglog._native.capi cimport slg_crc32c_kernel, slg_error, slg_status

cdef extern from "seglog/encode.h" nogil:
    ctypedef struct slg_encode_record:
        int64_t offset
        int64_t timestamp
        const uint8_t *key
        const uint8_t *value
        int64_t key_size
        int64_t value_size
        int64_t headers_size
        int32_t header_count

    ctypedef struct slg_encode_batch:
        uint8_t *data
        size_t capacity
        size_t size
        int64_t base_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t offset_of_max_timestamp
        int64_t last_offset
        int64_t max_size
        int32_t max_records
        int32_t record_count
        bint has_base_timestamp

    ctypedef struct slg_encode_fields:
        int64_t max_timestamp
        int64_t producer_id
        int32_t partition_leader_epoch
        int32_t base_sequence
        int32_t last_offset_delta
        int16_t attributes
        int16_t producer_epoch

    void slg_encode_open(slg_encode_batch *batch, uint8_t *data, size_t capacity,
                         int64_t base_offset) noexcept
    uint64_t slg_encode_size(const slg_encode_batch *batch,
                             const slg_encode_record *record) noexcept
    slg_status slg_encode_add(slg_encode_batch *batch, const slg_encode_record *record,
                              uint8_t **headers, slg_error *error) noexcept
    void slg_encode_seal(uint8_t *header, const slg_encode_batch *batch,
                         const slg_encode_fields *fields, const uint8_t *payload,
                         size_t payload_size, slg_crc32c_kernel kernel) noexcept
    int32_t slg_encode_sequence(int32_t sequence, int32_t increment) noexcept

cdef class BatchEncoder:
    cdef slg_encode_batch _batch
    cdef slg_error _error

    cdef tuple _record(self, slg_encode_record *record, int64_t offset, int64_t timestamp, key,
                       value, headers)
    cdef int _grow(self, size_t wanted) except -1
    cdef int32_t _last_offset_delta(self, int64_t last_offset) except? -1
