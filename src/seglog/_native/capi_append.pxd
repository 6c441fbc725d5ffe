"""What appends need of csrc, declared once. `capi` has the rest."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from seglog._native.capi cimport slg_batch, slg_crc32c_kernel, slg_error, slg_status
from seglog._native.producers cimport slg_origin, slg_producers, slg_span

cdef extern from "seglog/format.h" nogil:
    enum:
        SLG_BATCH_HEADER_SIZE

cdef extern from "seglog/validate.h" nogil:
    ctypedef enum slg_refusal:
        SLG_ACCEPTED
        SLG_NO_MORE
        SLG_REFUSE_LENGTH
        SLG_REFUSE_OVERFLOW
        SLG_REFUSE_MAGIC
        SLG_REFUSE_RAFT_EPOCH
        SLG_REFUSE_BASE_OFFSET
        SLG_REFUSE_SHORT
        SLG_REFUSE_SIZE
        SLG_REFUSE_CRC
        SLG_REFUSE_CODEC
        SLG_REFUSE_ORDER
        SLG_REFUSE_RANGE
        SLG_REFUSE_COUNT
        SLG_REFUSE_COUNT_OF_RANGE
        SLG_REFUSE_CONTROL
        SLG_REFUSE_SEQUENCE
        SLG_REFUSE_RECORD_COUNT
        SLG_REFUSE_PREMATURE_END
        SLG_REFUSE_VARINT
        SLG_REFUSE_BODY
        SLG_REFUSE_BODY_END
        SLG_REFUSE_BODY_SIZE
        SLG_REFUSE_STRUCTURE
        SLG_REFUSE_HEADER_COUNT
        SLG_REFUSE_HEADERS_LEFT
        SLG_REFUSE_HEADER_KEY
        SLG_REFUSE_SKIP
        SLG_REFUSE_BYTES_LEFT
        SLG_REFUSE_NO_KEY
        SLG_REFUSE_TIMESTAMP
        SLG_REFUSE_TIMESTAMP_TYPE

    ctypedef struct slg_analysis:
        slg_origin origin
        int32_t leader_epoch
        int64_t batch_bytes_max
        bint needs_order
        bint is_plain
        slg_crc32c_kernel kernel
        size_t position
        int64_t first_offset
        int64_t last_offset
        int64_t last_offset_of_first_batch
        int64_t max_timestamp
        int32_t last_leader_epoch
        int64_t valid_bytes
        int codec
        bint is_skipping
        bint is_ordered
        bint has_batch
        int64_t a

    void slg_analysis_init(slg_analysis *analysis) noexcept
    slg_refusal slg_analyze_next(slg_analysis *analysis, const uint8_t *data, size_t size,
                                 slg_batch *batch) noexcept
    slg_refusal slg_check_client_header(const slg_batch *batch) noexcept

    ctypedef enum slg_record_source:
        SLG_RECORDS_BUFFER
        SLG_RECORDS_STREAM
        SLG_RECORDS_SKIP

    ctypedef struct slg_record:
        int64_t offset
        int64_t timestamp
        int32_t key_size
        int32_t value_size
        int32_t header_count
        const uint8_t *key
        const uint8_t *value

    ctypedef struct slg_record_rules:
        bint needs_key
        bint has_create_time
        int64_t now
        int64_t before_max
        int64_t after_max

    ctypedef struct slg_record_walk:
        int32_t count
        int32_t index
        int64_t max_timestamp
        bint is_sequential
        slg_record record
        int64_t a
        int64_t b

    void slg_record_walk_init(slg_record_walk *walk, const slg_batch *batch,
                              const uint8_t *records, size_t size, slg_record_source source,
                              const slg_record_rules *rules) noexcept
    slg_refusal slg_record_next(slg_record_walk *walk) noexcept
    slg_refusal slg_record_walk_run(slg_record_walk *walk) noexcept

    ctypedef struct slg_assignment:
        int64_t next_offset
        int32_t leader_epoch
        bint has_append_time
        int64_t max_timestamp

    void slg_assign(uint8_t *header, const uint8_t *records, const slg_assignment *assignment,
                    int64_t count, slg_crc32c_kernel kernel, slg_batch *batch) noexcept

    size_t slg_headers_bound(const slg_record *record) noexcept
    size_t slg_headers_rewrite(const slg_record *record, uint8_t *into) noexcept

cdef extern from "seglog/append.h" nogil:
    ctypedef struct slg_segment_state:
        int64_t size
        int64_t offset_entries
        int64_t last_index_offset
        int64_t time_entries
        int64_t last_time
        int64_t last_time_offset
        int64_t bytes_since_entry
        int64_t max_timestamp
        int64_t max_timestamp_offset
        int64_t first_timestamp
        bint knows_first_timestamp

    ctypedef struct slg_segment_writer:
        int log_fd
        int index_fd
        int time_index_fd
        int64_t base_offset
        int64_t index_interval
        int64_t offset_slots
        int64_t time_slots
        slg_segment_state state

    void slg_segment_writer_init(slg_segment_writer *writer) noexcept
    void slg_segment_writer_free(slg_segment_writer *writer) noexcept

    ctypedef enum slg_index_refusal:
        SLG_INDEX_TAKES
        SLG_INDEX_OFFSET_FULL
        SLG_INDEX_OFFSET_BACK
        SLG_INDEX_OFFSET_FAR
        SLG_INDEX_TIME_FULL
        SLG_INDEX_TIME_OFFSET_BACK
        SLG_INDEX_TIME_BACK
        SLG_INDEX_TIME_FAR

    slg_status slg_segment_append(slg_segment_writer *writer, const uint8_t *data, size_t size,
                                  const slg_batch *batches, size_t count,
                                  slg_index_refusal *refusal, size_t *row,
                                  slg_error *error) noexcept

    ctypedef struct slg_leader_rules:
        slg_record_rules records
        int64_t batch_bytes_max
        int64_t segment_bytes_max
        int64_t segment_age_max
        int64_t created
        int64_t next_offset
        int32_t leader_epoch
        bint is_span
        slg_crc32c_kernel kernel

    ctypedef struct slg_appended:
        size_t bytes
        size_t batches
        int64_t first_offset
        int64_t last_offset
        int64_t first_last_offset
        int64_t max_timestamp
        int32_t last_leader_epoch

    slg_status slg_append_as_leader(slg_segment_writer *writer, slg_producers *producers,
                                    slg_span *span, const slg_leader_rules *rules,
                                    const uint8_t *data, size_t size, slg_appended *appended,
                                    slg_error *error) noexcept
