"""C of this stem; no other extension uses it."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from seglog._native.capi cimport slg_batch, slg_error, slg_index_kind, slg_status

cdef extern from "seglog/rebuild.h" nogil:
    ctypedef struct slg_rebuild:
        int64_t batch_count
        int64_t record_count
        int64_t last_offset
        int64_t size
        int64_t max_timestamp
        int64_t offset_of_max_timestamp
        int64_t offset_entries
        int64_t time_entries
        slg_index_kind failed

    void slg_rebuild_init(slg_rebuild *rebuild, int64_t base_offset, int64_t start,
                          int64_t interval_bytes, int64_t index_bytes) noexcept
    slg_status slg_rebuild_feed(slg_rebuild *rebuild, const slg_batch *batches, size_t count,
                                uint8_t *offsets, uint8_t *times, size_t *taken,
                                slg_error *error) noexcept
    slg_status slg_rebuild_finish(slg_rebuild *rebuild, uint8_t *time, size_t *written,
                                  slg_error *error) noexcept
    int64_t slg_rebuild_next_offset(const slg_rebuild *rebuild) noexcept
