"""csrc/include/seglog/fetch.h, declared once (see capi.pxd)."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from seglog._native.capi cimport slg_error, slg_index_entry, slg_index_kind, slg_status

cdef extern from "seglog/format.h" nogil:
    enum:
        SLG_BATCH_HEADER_SIZE


cdef extern from "seglog/index.h" nogil:
    size_t slg_index_entry_size(slg_index_kind kind) noexcept


cdef extern from "seglog/fetch.h" nogil:
    ctypedef struct slg_fetch_index:
        slg_index_kind kind
        int fd
        int64_t base_offset
        size_t entries
    ctypedef enum slg_fetch_bound:
        SLG_FETCH_LOWER
        SLG_FETCH_UPPER_POSITION
    slg_status slg_fetch_search(const slg_fetch_index *index, slg_fetch_bound bound,
                                int64_t target, int64_t *slot, slg_index_entry *entry,
                                slg_error *error) noexcept
    ctypedef struct slg_fetch_samples:
        uint8_t *data
        size_t count
        size_t stride
        size_t covered
        int64_t last_key
    bint slg_fetch_samples_serve(const slg_fetch_samples *samples, size_t entries) noexcept
    slg_status slg_fetch_sample(const slg_fetch_index *index, const slg_fetch_samples *before,
                                slg_fetch_samples *samples, slg_error *error) noexcept
    void slg_fetch_samples_free(slg_fetch_samples *samples) noexcept
    slg_status slg_fetch_lookup(const slg_fetch_index *index, const slg_fetch_samples *samples,
                                int64_t target, slg_index_entry *entry,
                                slg_index_entry *next, slg_error *error) noexcept
    size_t slg_fetch_first_read(int64_t target, int64_t start, const slg_index_entry *entry,
                                const slg_index_entry *next, int64_t batch_size) noexcept
    ctypedef struct slg_fetch_batch:
        int64_t base_offset
        int64_t position
        int64_t size
    ctypedef struct slg_fetch_window:
        int64_t position
        size_t size
        uint8_t data[8192]
    slg_status slg_fetch_find(int fd, int64_t position, int64_t end, int64_t target,
                              size_t first_read, slg_fetch_window *window, slg_fetch_batch *found,
                              slg_error *error) noexcept
    ctypedef struct slg_fetch_span:
        size_t size
        size_t first_size
        int64_t base_offset
        int64_t next_offset
    slg_status slg_fetch_whole(const uint8_t *data, size_t size, int64_t position,
                               int64_t stop_offset, slg_fetch_span *span,
                               slg_error *error) noexcept
