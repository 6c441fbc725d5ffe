"""What a log says of its producers and their transactions, folded from the facts of its batches."""

import numpy as np

cimport cython
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from seglog._native.capi cimport *
from seglog._native.status cimport check

from seglog._native.batch import BATCH_DTYPE as _BATCH_DTYPE

PRODUCER_BATCHES = SLG_PRODUCER_BATCHES
PRODUCER_BATCH_DTYPE = np.dtype([
    ("last_offset", np.int64), ("timestamp", np.int64), ("last_sequence", np.int32),
    ("offset_delta", np.int32),
], align=True)
PRODUCER_DTYPE = np.dtype([
    ("producer_id", np.int64), ("last_timestamp", np.int64), ("txn_first_offset", np.int64),
    ("coordinator_epoch", np.int32), ("producer_epoch", np.int16), ("in_txn", np.int8),
    ("batch_count", np.int8), ("batches", PRODUCER_BATCH_DTYPE, (PRODUCER_BATCHES,)),
], align=True)
assert PRODUCER_DTYPE.itemsize == sizeof(slg_producer)

# Aborts that one call into C may meet, on the stack.
cdef enum:
    MARKERS = 256


@cython.final
cdef class ProducerTable:
    """Producers, open transactions and those not replicated; one thread at a time."""

    cdef slg_producers _state

    def __cinit__(self):
        slg_producers_init(&self._state)

    def __dealloc__(self):
        slg_producers_free(&self._state)

    def __len__(self):
        return self._state.count

    def load(self, producers):
        """Takes rows of PRODUCER_DTYPE, as a snapshot holds them; a later row of an id counts."""
        cdef slg_error error
        cdef uintptr_t rows = _address(producers, PRODUCER_DTYPE)
        cdef size_t i
        if np.any(producers["batch_count"] < 0) or np.any(
                producers["batch_count"] > PRODUCER_BATCHES):
            raise ValueError(f"a producer has 0 to {PRODUCER_BATCHES} batches")
        for i in range(<size_t>len(producers)):
            check(slg_producers_load(&self._state, <const slg_producer *>rows + i, &error),
                  &error, None)

    def apply(self, batches, size_t start=0, *, int fd=-1):
        """Applies rows of BATCH_DTYPE from `start` on: (row, status, aborted).

        Markers are read from the log file `fd`. The row is that of a batch that is refused or of a
        marker that is not of the usual form, or the end; `aborted` are (producer id, first offset,
        last offset, last stable offset, position of the marker) of the transactions that ended
        with an abort."""
        cdef slg_error error
        cdef slg_status status = SLG_FULL
        cdef slg_marker markers[MARKERS]
        cdef size_t taken, ended, i, row = start, count = len(batches)
        cdef uintptr_t rows = _address(batches, _BATCH_DTYPE)
        if start > count:
            raise ValueError("start is behind the last batch")
        aborted = []
        while status == SLG_FULL:
            with nogil:
                status = slg_producers_apply(&self._state, fd, <const slg_batch *>rows + row,
                                             count - row, &taken, markers, MARKERS, &ended,
                                             &error)
            row += taken
            aborted += [(markers[i].producer_id, markers[i].first_offset, markers[i].offset,
                         markers[i].last_stable_offset, markers[i].position)
                        for i in range(ended)]
        if status == SLG_NO_MEMORY:
            check(status, &error, None)
        return row, <int>status, aborted

    def defer(self):
        """From here on markers are noted; `complete` ends their transactions."""
        slg_producers_defer(&self._state)

    def complete(self):
        """Ends what markers ended since `defer`: None, or (producer id, first offset, last offset,
        is an abort) of one that is not open."""
        cdef slg_error error
        cdef slg_txn failed
        cdef slg_status status = slg_producers_complete(&self._state, &failed, &error)
        if status == SLG_TXN_NOT_STARTED:
            return failed.producer_id, failed.first_offset, failed.last_offset, failed.is_abort
        check(status, &error, None)
        return None

    def end_transaction(self, int64_t producer_id, int16_t producer_epoch, int64_t offset,
                        int32_t coordinator_epoch, int64_t timestamp, bint is_abort=False):
        """Applies a marker: None, or (first offset, last stable offset, whether it was open) of
        what it ended. Of one that was not open nothing is applied."""
        cdef slg_marker marker
        cdef slg_error error
        cdef slg_status status
        marker.producer_id, marker.producer_epoch, marker.offset = (
            producer_id, producer_epoch, offset)
        marker.coordinator_epoch, marker.timestamp = coordinator_epoch, timestamp
        marker.is_abort = is_abort
        status = slg_producers_end(&self._state, &marker, &error)
        if status != SLG_TXN_NOT_STARTED:
            check(status, &error, None)
        if not marker.ended:
            return None
        return marker.first_offset, marker.last_stable_offset, status == SLG_OK

    def touch(self, int64_t producer_id):
        """Knows of a producer, of which a compacted marker tells nothing more."""
        cdef slg_error error
        check(slg_producers_touch(&self._state, producer_id, &error), &error, None)

    def first_unstable_offset(self):
        """First offset of the earliest transaction that is open or not replicated, or None."""
        cdef int64_t offset = 0
        return offset if slg_producers_first_unstable(&self._state, &offset) else None

    def replicated(self, int64_t high_watermark):
        """Forgets the ended transactions whose marker is below the high watermark."""
        slg_producers_replicated(&self._state, high_watermark)

    def expire(self, int64_t now_ms, int64_t idle_ms):
        """Drops producers without an open transaction that were idle for that long."""
        slg_producers_expire(&self._state, now_ms, idle_ms)

    def to_numpy(self):
        """A copy of all producers: PRODUCER_DTYPE, in the order in which they were first seen."""
        producers = np.empty(self._state.count, PRODUCER_DTYPE)
        if self._state.count:
            memcpy(<void *><uintptr_t>producers.ctypes.data, self._state.all,
                   self._state.count * sizeof(slg_producer))
        return producers


cdef uintptr_t _address(rows, dtype) except? 0:
    if rows.dtype != dtype or not rows.flags.c_contiguous:
        raise ValueError("rows are of the wrong type, or not one behind the other")
    return rows.ctypes.data
