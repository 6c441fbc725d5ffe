"""The state of a log's producers and transactions: the fold of its batches, and the checks of
batches that are about to be appended."""

from enum import IntEnum

import numpy as np

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_FromStringAndSize

from seglog._native.batch cimport batches_of
from seglog._native.capi cimport *
from seglog._native.capi_append cimport *
from seglog._native.status cimport check

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


class Verdict(IntEnum):
    """The decision about a batch that is about to be appended (csrc/include/seglog/producers.h)."""

    OK = SLG_APPEND_OK
    DUPLICATE = SLG_APPEND_DUPLICATE
    MARKER = SLG_APPEND_MARKER
    TXN_EPOCH = SLG_APPEND_TXN_EPOCH
    EPOCH = SLG_APPEND_EPOCH
    UNVERIFIED = SLG_APPEND_UNVERIFIED
    TXN_STATE = SLG_APPEND_TXN_STATE
    SEQUENCE_FIRST = SLG_APPEND_SEQUENCE_FIRST
    SEQUENCE_LOWEST = SLG_APPEND_SEQUENCE_LOWEST
    SEQUENCE_EPOCH = SLG_APPEND_SEQUENCE_EPOCH
    SEQUENCE = SLG_APPEND_SEQUENCE
    TXN_VERSION = SLG_APPEND_TXN_VERSION
    COORDINATOR_EPOCH = SLG_APPEND_COORDINATOR_EPOCH


class Origin(IntEnum):
    """Kafka's AppendOrigin, numbered as in C."""

    REPLICATION = SLG_ORIGIN_REPLICATION
    COORDINATOR = SLG_ORIGIN_COORDINATOR
    CLIENT = SLG_ORIGIN_CLIENT
    RAFT_LEADER = SLG_ORIGIN_RAFT_LEADER


# Aborts that one call into C may return, on the stack.
cdef enum:
    MARKERS = 256


@cython.final
cdef class ProducerTable:
    """Producers, open transactions and those not replicated; one thread at a time."""

    def __cinit__(self):
        slg_producers_init(&self._state)
        slg_span_init(&self._span)

    def __dealloc__(self):
        slg_producers_free(&self._state)
        slg_span_free(&self._span)

    def __len__(self):
        return self._state.producers.count

    def load(self, producers):
        """Adds rows of PRODUCER_DTYPE from a snapshot; the last row of an id counts."""
        cdef slg_error error
        cdef uintptr_t rows
        cdef size_t i
        if producers.dtype != PRODUCER_DTYPE or not producers.flags.c_contiguous:
            raise ValueError("producers are rows of PRODUCER_DTYPE, one behind the other")
        rows = producers.ctypes.data
        if np.any(producers["batch_count"] < 0) or np.any(
                producers["batch_count"] > PRODUCER_BATCHES):
            raise ValueError(f"a producer has 0 to {PRODUCER_BATCHES} batches")
        for i in range(<size_t>len(producers)):
            check(slg_producers_load(&self._state, <const slg_producer *>rows + i, &error),
                  &error, None)

    def apply(self, batches, size_t start=0, *, int fd=-1):
        """Applies rows of BATCH_DTYPE from `start` on: (row, status, aborted).

        Markers are read from the log file `fd`. The row is that of a refused batch or of a marker
        in another form, or the end. `aborted` has (producer id, first offset, last offset, last
        stable offset, position of the marker) of every aborted transaction."""
        cdef slg_error error
        cdef slg_status status = SLG_FULL
        cdef slg_marker markers[MARKERS]
        cdef size_t taken, ended, i, row = start, count = len(batches)
        cdef const slg_batch *rows = batches_of(batches)
        if start > count:
            raise ValueError("start is behind the last batch")
        aborted = []
        while status == SLG_FULL:
            with nogil:
                status = slg_producers_apply(&self._state, fd, rows + row,
                                             count - row, &taken, markers, MARKERS, &ended,
                                             &error)
            row += taken
            aborted += [(markers[i].producer_id, markers[i].first_offset, markers[i].offset,
                         markers[i].last_stable_offset, markers[i].position)
                        for i in range(ended)]
        if status == SLG_NO_MEMORY:
            check(status, &error, None)
        return row, <int>status, aborted

    def end_transaction(self, int64_t producer_id, int16_t producer_epoch, int64_t offset,
                        int32_t coordinator_epoch, int64_t timestamp, bint is_abort=False):
        """Applies a marker. Returns None, or (first offset, last stable offset, whether it was
        open) of its transaction. Changes nothing if that was not open."""
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
        """Adds a producer whose marker compaction has emptied."""
        cdef slg_error error
        check(slg_producers_touch(&self._state, producer_id, &error), &error, None)

    def first_unstable_offset(self):
        """First offset of the earliest transaction that is open or not yet replicated, or None."""
        cdef const slg_txn *txn = slg_producers_first_unstable(&self._state)
        return None if txn == NULL else txn.first_offset

    def first_unstable(self):
        """(first offset, base offset of the segment, position) of that transaction, or None. The
        latter two are -1 if unknown."""
        cdef const slg_txn *txn = slg_producers_first_unstable(&self._state)
        return None if txn == NULL else (txn.first_offset, txn.segment_base, txn.position)

    def oldest_txn_timestamp(self):
        """Last timestamp (ms) of the producer of the earliest open transaction, or -1."""
        return slg_producers_oldest_txn_timestamp(&self._state)

    def replicated(self, int64_t high_watermark):
        """Removes ended transactions whose marker is below the high watermark."""
        slg_producers_replicated(&self._state, high_watermark)

    def expire(self, int64_t now_ms, int64_t idle_ms):
        """Removes producers without an open transaction that have been idle this long, and
        verifications of that age."""
        slg_producers_expire(&self._state, now_ms, idle_ms)

    def clear(self):
        """Removes producers and transactions, keeps verifications."""
        slg_producers_clear(&self._state)

    def find(self, int64_t producer_id):
        """A copy of one producer, PRODUCER_DTYPE with one row, or None."""
        cdef const slg_producer *found = slg_producers_find(&self._state, producer_id)
        return None if found == NULL else _copied(found, 1)

    def to_numpy(self):
        """A copy of all producers: PRODUCER_DTYPE, in order of first appearance."""
        return _copied(self._state.producers.all, self._state.producers.count)

    def snapshot(self):
        """The bytes of a snapshot file, in the order of Kafka's map."""
        cdef slg_error error
        cdef bytes data = PyBytes_FromStringAndSize(NULL, slg_snapshot_size(&self._state))
        check(slg_snapshot_write(&self._state, <uint8_t *><char *>data, &error), &error, None)
        return data

    # ---- verification of transactions

    def verification(self, int64_t producer_id):
        """(timestamp, guard, lowest sequence, epoch, supports epoch bump) of a producer's
        verification, or None."""
        cdef const slg_verification *found = slg_producers_verification(&self._state, producer_id)
        return None if found == NULL else _verification(found)

    def verify(self, int64_t producer_id, int64_t now_ms, int64_t guard, int32_t sequence,
               int16_t epoch, bint supports_epoch_bump):
        """The verification, created if missing, with the lowest sequence of the highest epoch."""
        cdef slg_error error
        cdef const slg_verification *found
        cdef slg_verification wanted
        wanted.producer_id, wanted.timestamp, wanted.guard = producer_id, now_ms, guard
        wanted.lowest_sequence, wanted.epoch = sequence, epoch
        wanted.supports_epoch_bump = supports_epoch_bump
        check(slg_producers_verify(&self._state, &wanted, &found, &error), &error, None)
        return _verification(found)

    # ---- appends

    def begin(self):
        """Begins a span of batches to be appended together. `spans` becomes its number."""
        slg_span_begin(&self._span)
        self.spans += 1
        return self.spans

    def next_rows(self):
        """Continues the span with other batches; their first is row 0."""
        slg_span_continue(&self._span)

    def check(self, batches, const uint8_t[::1] data, int origin, int16_t transaction_version,
              int64_t guard=-1, int64_t segment_base=-1, int64_t segment_position=-1, *,
              int log_fd=-1):
        """Validates rows of BATCH_DTYPE from the span's row on: (row, verdict, known, coordinator
        epoch). `data` are their bytes, or None to read markers from the log file `log_fd`;
        `guard` is -1 if transactions are not verified."""
        cdef slg_error error
        cdef slg_append_rules rules = _rules(origin, transaction_version, guard, segment_base,
                                             segment_position)
        cdef const slg_batch *rows = batches_of(batches)
        cdef size_t count = len(batches), size = 0
        cdef const uint8_t *at = NULL
        cdef slg_status status
        if data is not None and data.shape[0]:
            size, at = data.shape[0], &data[0]
        rules.log_fd = log_fd
        with nogil:
            status = slg_span_check(&self._span, &self._state, &rules, rows,
                                    count, at, size, &error)
        check(status, &error, None)
        return self._judged()

    def check_marker(self, batches, int origin, int16_t transaction_version,
                     int32_t coordinator_epoch, int64_t timestamp, bint is_abort,
                     bint is_empty=False):
        """Validates the span's current row as that marker, and advances to the next row."""
        cdef slg_error error
        cdef slg_marker marker
        cdef slg_append_rules rules = _rules(origin, transaction_version, -1, -1, -1)
        cdef const slg_batch *rows = batches_of(batches)
        if self._span.row >= <size_t>len(batches):
            raise ValueError("the span stands behind the last batch")
        marker.coordinator_epoch, marker.timestamp = coordinator_epoch, timestamp
        marker.is_abort = is_abort
        check(slg_span_marker(&self._span, &self._state, &rules,
                              rows + self._span.row,
                              NULL if is_empty else &marker, &error), &error, None)
        return self._judged()

    cdef _judged(self):
        return (self._span.row, <int>self._span.verdict, self._span.known,
                self._span.coordinator_epoch)

    def duplicate(self):
        """(last sequence, last offset, offset delta, timestamp) of the repeated batch."""
        cdef slg_producer_batch *batch = &self._span.duplicate
        return batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp

    def notes(self):
        """[(row, verdict, known, coordinator epoch)] of what Kafka logs but accepts."""
        return [(note.row, <int>note.verdict, note.known, note.coordinator_epoch)
                for note in self._span.notes[:self._span.note_count]]

    def completed(self):
        """[(producer id, first offset, last offset, is an abort)] of the span's markers."""
        return [(txn.producer_id, txn.first_offset, txn.last_offset, txn.is_abort)
                for txn in self._span.completed.all[:self._span.completed.count]]

    def drop_verified(self):
        """Removes the verifications that the span has used."""
        slg_span_drop_verified(&self._span, &self._state)

    def commit(self):
        """Commits the span's changes; `complete_txn` then ends its transactions."""
        if self._span.verdict != SLG_APPEND_OK:
            raise ValueError("the span was refused")
        slg_span_commit(&self._span, &self._state)
        self.begin()

    def last_stable_offset(self, int64_t producer_id, int64_t marker_offset):
        """First offset of the earliest open transaction of another producer, or the marker's + 1.
        """
        return slg_producers_last_stable(&self._state, producer_id, marker_offset)

    def complete_txn(self, int64_t first_offset, int64_t last_offset):
        """Ends a transaction. Returns whether it was open."""
        cdef slg_error error
        cdef slg_status status = slg_producers_complete_txn(&self._state, first_offset,
                                                            last_offset, &error)
        if status == SLG_TXN_NOT_STARTED:
            return False
        check(status, &error, None)
        return True


cdef _verification(const slg_verification *entry):
    return (entry.timestamp, entry.guard, entry.lowest_sequence, entry.epoch,
            entry.supports_epoch_bump)


cdef slg_append_rules _rules(int origin, int16_t transaction_version, int64_t guard,
                             int64_t segment_base, int64_t segment_position) noexcept:
    cdef slg_append_rules rules
    rules.origin, rules.transaction_version = <slg_origin>origin, transaction_version
    rules.is_verified, rules.guard = guard >= 0, guard
    rules.segment_base, rules.segment_position = segment_base, segment_position
    rules.log_fd = -1
    return rules


cdef _copied(const slg_producer *all, size_t count):
    producers = np.empty(count, PRODUCER_DTYPE)
    if count:
        memcpy(<void *><uintptr_t>producers.ctypes.data, all, count * sizeof(slg_producer))
    return producers
