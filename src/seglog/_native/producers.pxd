"""C of this stem, and the class by which the append path reaches a partition's producers."""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from seglog._native.capi cimport slg_batch, slg_error, slg_status

cdef extern from "seglog/producers.h" nogil:
    enum:
        SLG_PRODUCER_BATCHES

    ctypedef struct slg_producer_batch:
        int64_t last_offset
        int64_t timestamp
        int32_t last_sequence
        int32_t offset_delta

    ctypedef struct slg_producer:
        int64_t id

    ctypedef struct slg_txn:
        int64_t first_offset
        int64_t producer_id
        int64_t last_offset
        int64_t segment_base
        int64_t position
        bint is_abort

    ctypedef struct slg_txns:
        slg_txn *all
        size_t count

    ctypedef struct slg_producer_map:
        slg_producer *all
        size_t count

    ctypedef struct slg_producers:
        slg_producer_map producers

    ctypedef struct slg_verification:
        int64_t producer_id
        int64_t timestamp
        int64_t guard
        int32_t lowest_sequence
        int16_t epoch
        bint supports_epoch_bump

    ctypedef struct slg_marker:
        int64_t offset
        int64_t position
        int64_t producer_id
        int64_t timestamp
        int32_t coordinator_epoch
        int16_t producer_epoch
        bint is_abort
        bint ended
        int64_t first_offset
        int64_t last_stable_offset

    void slg_producers_init(slg_producers *producers) noexcept
    void slg_producers_free(slg_producers *producers) noexcept
    slg_status slg_producers_load(slg_producers *producers, const slg_producer *producer,
                                  slg_error *error) noexcept
    slg_status slg_producers_apply(slg_producers *producers, int fd, const slg_batch *batches,
                                   size_t count, size_t *taken, slg_marker *aborted,
                                   size_t room, size_t *aborted_count,
                                   slg_error *error) noexcept
    slg_status slg_producers_end(slg_producers *producers, slg_marker *marker,
                                 slg_error *error) noexcept
    slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id,
                                   slg_error *error) noexcept
    const slg_txn *slg_producers_first_unstable(const slg_producers *producers) noexcept
    int64_t slg_producers_oldest_txn_timestamp(const slg_producers *producers) noexcept
    const slg_producer *slg_producers_find(const slg_producers *producers,
                                           int64_t producer_id) noexcept
    void slg_producers_replicated(slg_producers *producers, int64_t high_watermark) noexcept
    void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle) noexcept
    void slg_producers_clear(slg_producers *producers) noexcept

    const slg_verification *slg_producers_verification(const slg_producers *producers,
                                                       int64_t producer_id) noexcept
    slg_status slg_producers_verify(slg_producers *producers, const slg_verification *wanted,
                                    const slg_verification **found, slg_error *error) noexcept

    ctypedef enum slg_origin:
        SLG_ORIGIN_REPLICATION
        SLG_ORIGIN_COORDINATOR
        SLG_ORIGIN_CLIENT
        SLG_ORIGIN_RAFT_LEADER

    ctypedef struct slg_append_rules:
        slg_origin origin
        int16_t transaction_version
        bint is_verified
        int64_t guard
        int64_t segment_base
        int64_t segment_position
        int log_fd

    ctypedef enum slg_verdict:
        SLG_APPEND_OK
        SLG_APPEND_DUPLICATE
        SLG_APPEND_MARKER
        SLG_APPEND_TXN_EPOCH
        SLG_APPEND_EPOCH
        SLG_APPEND_UNVERIFIED
        SLG_APPEND_TXN_STATE
        SLG_APPEND_SEQUENCE_FIRST
        SLG_APPEND_SEQUENCE_LOWEST
        SLG_APPEND_SEQUENCE_EPOCH
        SLG_APPEND_SEQUENCE
        SLG_APPEND_TXN_VERSION
        SLG_APPEND_COORDINATOR_EPOCH

    ctypedef struct slg_append_note:
        size_t row
        slg_verdict verdict
        int64_t known
        int32_t coordinator_epoch

    ctypedef struct slg_span:
        size_t row
        slg_verdict verdict
        int64_t known
        int32_t coordinator_epoch
        slg_producer_batch duplicate
        slg_txns completed
        slg_append_note *notes
        size_t note_count

    void slg_span_init(slg_span *span) noexcept
    void slg_span_free(slg_span *span) noexcept
    void slg_span_begin(slg_span *span) noexcept
    void slg_span_continue(slg_span *span) noexcept
    slg_status slg_span_check(slg_span *span, slg_producers *producers,
                              const slg_append_rules *rules, const slg_batch *batches,
                              size_t count, const uint8_t *data, size_t size,
                              slg_error *error) noexcept
    slg_status slg_span_marker(slg_span *span, slg_producers *producers,
                               const slg_append_rules *rules, const slg_batch *batch,
                               const slg_marker *marker, slg_error *error) noexcept
    void slg_span_drop_verified(slg_span *span, slg_producers *producers) noexcept
    void slg_span_commit(slg_span *span, slg_producers *producers) noexcept
    int64_t slg_producers_last_stable(const slg_producers *producers, int64_t producer_id,
                                      int64_t marker_offset) noexcept
    slg_status slg_producers_complete_txn(slg_producers *producers, const slg_txn *done,
                                          slg_error *error) noexcept


cdef class ProducerTable:
    cdef slg_producers _state
    cdef slg_span _span
    cdef readonly int64_t spans  # how many were begun: an answer about an older one is void

    cdef _judged(self)
