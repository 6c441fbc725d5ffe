"""C of this stem; no other extension uses it."""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t

from seglog._native.capi cimport slg_batch, slg_error, slg_status

cdef extern from "seglog/producers.h" nogil:
    enum:
        SLG_PRODUCER_BATCHES

    ctypedef struct slg_producer:
        int64_t id

    ctypedef struct slg_txn:
        int64_t first_offset
        int64_t producer_id
        int64_t last_offset
        bint is_abort

    ctypedef struct slg_producers:
        slg_producer *all
        size_t count

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
    void slg_producers_defer(slg_producers *producers) noexcept
    slg_status slg_producers_complete(slg_producers *producers, slg_txn *failed,
                                      slg_error *error) noexcept
    slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id,
                                   slg_error *error) noexcept
    bint slg_producers_first_unstable(const slg_producers *producers, int64_t *offset) noexcept
    void slg_producers_replicated(slg_producers *producers, int64_t high_watermark) noexcept
    void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle) noexcept
