"""What seglog/columns.h, arrow.h and records.h declare (see capi.pxd)."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from seglog._native.capi cimport (
    slg_batch, slg_crc32c_kernel, slg_error, slg_source, slg_status,
)

cdef extern from "seglog/columns.h" nogil:
    ctypedef enum slg_column:
        SLG_COLUMN_TIMESTAMP, SLG_COLUMN_TIMESTAMP_TYPE
        SLG_COLUMN_KEY, SLG_COLUMN_VALUE, SLG_COLUMN_HEADERS
        SLG_COLUMN_PRODUCER_EPOCH, SLG_COLUMN_SEQUENCE, SLG_COLUMN_LEADER_EPOCH
        SLG_COLUMN_IS_TRANSACTIONAL, SLG_COLUMN_IS_CONTROL
        SLG_COLUMNS, SLG_COLUMN_TOPIC, SLG_COLUMN_PARTITION, SLG_COLUMNS_ALL

    ctypedef struct slg_buffer:
        uint8_t *data

    ctypedef struct slg_binary:
        slg_buffer offsets
        slg_buffer bytes
        slg_buffer validity
        int64_t null_count

    ctypedef struct slg_pool:
        pass

    ctypedef enum slg_layout:
        SLG_LAYOUT_KAFKA, SLG_LAYOUT_SPARK, SLG_LAYOUTS

    ctypedef struct slg_shape:
        uint32_t wanted
        slg_layout layout
        int32_t partition
        const char *topic
        size_t topic_size

    ctypedef struct slg_columns:
        uint32_t wanted
        slg_layout layout
        int64_t rows, first_offset, last_offset, references
        slg_buffer *fixed
        slg_buffer header_lists, partition
        slg_binary key, value, header_key, header_value, topic

    const char *slg_column_name(slg_layout layout, slg_column column) noexcept
    slg_pool *slg_pool_new(size_t keep, int64_t *live) noexcept
    void slg_pool_close(slg_pool *pool) noexcept
    void slg_columns_release(slg_columns *columns) noexcept
    int64_t slg_columns_nbytes(const slg_columns *columns) noexcept
    void slg_columns_retain(slg_columns *columns) noexcept
    bint slg_columns_finish(slg_columns *columns, const slg_shape *shape) noexcept
    void slg_columns_keep_times(slg_columns *columns, int64_t first, int64_t last) noexcept


cdef extern from "seglog/arrow.h" nogil:
    struct ArrowSchema:
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        void (*release)(ArrowArray *) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *out) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *out) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil
        void *private_data

    bint slg_export_schema(slg_layout layout, const slg_column *order, size_t count,
                           ArrowSchema *out) noexcept
    bint slg_export_batch_schema(ArrowSchema *out) noexcept
    bint slg_export_batches(const slg_batch *batches, size_t count, ArrowArray *out) noexcept
    bint slg_export_columns(slg_columns *columns, const slg_column *order, size_t count,
                            ArrowArray *out) noexcept


cdef extern from "seglog/records.h" nogil:
    enum:
        SLG_RECORDS_SLACK, SLG_RECORDS_CRC, SLG_RECORDS_CONTROL, SLG_RECORDS_HEADERS

    ctypedef struct slg_key:
        const uint8_t *data
        size_t size

    ctypedef struct slg_row_filter:
        int64_t first_timestamp
        int64_t last_timestamp
        unsigned timestamp_types
        bint by_key
        bint null_key
        const slg_key *keys
        size_t key_count

    ctypedef struct slg_aborted:
        pass

    ctypedef struct slg_records_options:
        unsigned flags
        slg_crc32c_kernel kernel
        int64_t start_offset
        int64_t end_offset
        int64_t base_offset
        int64_t max_rows
        int64_t max_bytes
        const slg_aborted *aborted
        size_t aborted_count
        const slg_row_filter *filter

    ctypedef struct slg_payload:
        const uint8_t *data
        size_t size
        int codec
        int magic

    ctypedef struct slg_records:
        pass

    slg_records *slg_records_new(slg_source source, int64_t start, int64_t end,
                                 const slg_records_options *options) noexcept
    void slg_records_free(slg_records *records) noexcept
    int64_t slg_records_position(const slg_records *records) noexcept
    void slg_records_restart(slg_records *records, slg_source source, int64_t start,
                             int64_t end, const slg_records_options *options) noexcept

    ctypedef struct slg_record_sets:
        slg_columns *first
        int64_t nbytes
        slg_shape shape

    slg_status slg_records_fill(slg_records *records, slg_pool *pool, int64_t nbytes,
                                slg_record_sets *sets, slg_error *error) noexcept
    slg_status slg_record_sets_end(slg_record_sets *sets, slg_error *error) noexcept
    slg_columns *slg_record_sets_pop(slg_record_sets *sets) noexcept
    void slg_record_sets_clear(slg_record_sets *sets) noexcept
    slg_payload slg_records_payload(const slg_records *records) noexcept
    void slg_records_resume(slg_records *records, const uint8_t *data, size_t size) noexcept
