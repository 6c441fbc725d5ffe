"""Rebuilds the indexes of a segment from the batches of its log."""

import numpy as np

cimport cython
from libc.stdint cimport uintptr_t

from seglog._native.batch cimport batches_of
from seglog._native.capi cimport *
from seglog._native.capi_append cimport *
from seglog._native.capi_index cimport *


@cython.final
cdef class IndexRebuild:
    """Takes the batches of a segment in order and collects the entries of both indexes."""

    cdef slg_rebuild _state
    cdef slg_rebuild _before  # the last feed
    cdef slg_error _error
    cdef slg_status _status
    cdef list _offsets
    cdef list _times

    def __init__(self, int64_t base_offset, int64_t start=0, *, int64_t interval_bytes,
                 int64_t index_bytes):
        slg_rebuild_init(&self._state, base_offset, start, interval_bytes, index_bytes)
        self._before = self._state
        self._status = SLG_OK
        self._offsets, self._times = [], []

    def feed(self, batches):
        """Takes BATCH_DTYPE rows. Returns how many it took; `status` says why not all."""
        cdef const slg_batch *rows = batches_of(batches)
        cdef uintptr_t offsets_at, times_at
        cdef size_t count, taken = 0
        count = len(batches)
        offsets = np.empty(count * SLG_OFFSET_ENTRY_SIZE, np.uint8)
        times = np.empty(count * SLG_TIME_ENTRY_SIZE, np.uint8)
        offsets_at, times_at = offsets.ctypes.data, times.ctypes.data
        self._before = self._state
        with nogil:
            self._status = slg_rebuild_feed(&self._state, rows, count,
                                            <uint8_t *>offsets_at, <uint8_t *>times_at, &taken,
                                            &self._error)
        self._offsets.append(offsets[:SLG_OFFSET_ENTRY_SIZE * (
            self._state.offset_entries - self._before.offset_entries)].tobytes())
        self._times.append(times[:SLG_TIME_ENTRY_SIZE * (
            self._state.time_entries - self._before.time_entries)].tobytes())
        return taken

    def undo(self):
        """Undoes the last feed; works once."""
        if not self._offsets:
            raise ValueError("nothing was fed")
        self._offsets.pop()
        self._times.pop()
        self._state = self._before
        self._status = SLG_OK

    def finish(self):
        """Adds the final entry of the time index. Returns whether it could."""
        cdef uint8_t entry[SLG_TIME_ENTRY_SIZE]
        cdef size_t written
        self._status = slg_rebuild_finish(&self._state, entry, &written, &self._error)
        if written:
            self._times.append((<const char *>entry)[:SLG_TIME_ENTRY_SIZE])
        return self._status == SLG_OK

    @property
    def status(self):
        return <int>self._status

    @property
    def failed_is_time_index(self):
        return self._state.failed == SLG_INDEX_KIND_TIME

    @property
    def position(self):
        return self._error.position if self._status != SLG_OK else 0

    @property
    def expected(self):
        return self._error.expected if self._status != SLG_OK else 0

    @property
    def found(self):
        return self._error.found if self._status != SLG_OK else 0

    @property
    def offset_index(self):
        return b"".join(self._offsets)

    @property
    def time_index(self):
        return b"".join(self._times)

    @property
    def offset_entries(self):
        return self._state.offset_entries

    @property
    def time_entries(self):
        return self._state.time_entries

    @property
    def batch_count(self):
        return self._state.batch_count

    @property
    def record_count(self):
        return self._state.record_count

    @property
    def last_offset(self):
        return self._state.last_offset if self._state.batch_count else None

    @property
    def size(self):
        return self._state.size

    @property
    def max_timestamp(self):
        return self._state.max_timestamp

    @property
    def offset_of_max_timestamp(self):
        return self._state.offset_of_max_timestamp

    @property
    def next_offset(self):
        return slg_rebuild_next_offset(&self._state)
