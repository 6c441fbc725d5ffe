"""The log cleaner's offset map, the records of a batch against it, and the batches that stay."""

import enum

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memset

from seglog._native.capi cimport *
from seglog._native.capi_append cimport slg_record_walk, slg_refusal
from seglog._native.capi_clean cimport *
from seglog._native.clean_keys cimport BatchKeys, PlainRecords, check_rows, rows_of
from seglog._native.codec_view cimport view_of
from seglog._native.validate cimport RecordWalk

from seglog.errors import IllegalArgumentError

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()

cdef enum:
    # Two bits for each offset of a round's dirty range: 8 million offsets.
    MARKS_BYTES_MAX = 2097152


@cython.final
cdef class OffsetMap:
    """Keys to offsets in `memory` bytes, 24 for a slot (Kafka: SkimpyOffsetMap).

    The hash is MD5, as in Kafka: a round over a map that is full ends where Kafka's ends, and keys
    made to have the same MD5 are one key, as they are there.
    """

    cdef slg_offset_map _map

    def __cinit__(self, int64_t memory):
        cdef int64_t slots = memory // SLG_OFFSET_SLOT_SIZE
        if not 1 <= slots or memory > INT32_MAX:
            raise IllegalArgumentError(f"an offset map of {memory} bytes: expected "
                                       f"{SLG_OFFSET_SLOT_SIZE} to {INT32_MAX}")
        if not slg_offset_map_renew(&self._map, <int32_t>slots):
            raise MemoryError(f"no memory for an offset map of {memory} bytes")

    def __dealloc__(self):
        slg_offset_map_free(&self._map)

    @property
    def slots(self):
        return self._map.slot_count

    @property
    def latest_offset(self):
        return self._map.latest_offset

    @latest_offset.setter
    def latest_offset(self, int64_t offset):
        self._map.latest_offset = offset

    def __len__(self):
        return self._map.entries

    def clear(self):
        """Forgets all keys."""
        with nogil:
            slg_offset_map_clear(&self._map)

    def mark(self, int64_t start, int64_t end):
        """Remembers of the offsets [start, end) which are their key's latest, as far as 2 MiB go;
        an empty map."""
        cdef int64_t count = min(end - start, MARKS_BYTES_MAX * <int64_t>SLG_OFFSETS_PER_MARK)
        if self._map.entries:
            raise ValueError("the map has keys")
        self._map.marked = 0
        if count > 0:
            slg_offset_map_mark_range(&self._map, start, count)

    @property
    def marked(self):
        return self._map.marked

    def put(self, key, int64_t offset):
        """Sets the offset of a key."""
        cdef Py_buffer view
        cdef slg_offset_key wanted
        cdef bint is_put
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            self._hash(&view, &wanted)
            wanted.offset = offset
            is_put = slg_offset_map_put(&self._map, &wanted)
        finally:
            PyBuffer_Release(&view)
        if not is_put:
            raise IllegalArgumentError(
                "Attempted to add a new entry to a full offset map, entries: "
                f"{self._map.entries}, slots: {self._map.slot_count}")

    def get(self, key):
        """The offset of a key, -1 for one that is not there."""
        cdef Py_buffer view
        cdef slg_offset_key wanted
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            self._hash(&view, &wanted)
            return slg_offset_map_get(&self._map, &wanted)
        finally:
            PyBuffer_Release(&view)

    cdef int _hash(self, Py_buffer *view, slg_offset_key *wanted) except -1:
        if view.len > INT32_MAX:
            raise IllegalArgumentError(f"a key of {view.len} bytes: expected at most {INT32_MAX}")
        wanted.data, wanted.size = <const uint8_t *>view.buf, <uint32_t>view.len
        slg_offset_map_hash(&self._map, wanted, 1)
        return 0

    def add_records(self, RecordWalk walk, int64_t start_offset, int32_t limit):
        """Puts the keys of a walk's records at or above `start_offset`, as long as there are fewer
        than `limit`: (Refusal, records read, whether the map was full)."""
        cdef slg_mapped found
        cdef slg_refusal refusal
        with nogil:
            refusal = slg_map_records(&self._map, &walk._walk, start_offset, limit, &found)
        return <int>refusal, found.read, found.is_full


@cython.final
cdef class Retained:
    """Which records of a batch stay: `kept` has a byte for each, 0 for one that goes."""

    cdef readonly bytearray kept
    cdef readonly int refusal
    cdef readonly int64_t read_count, kept_count, invalid_count, max_offset
    cdef readonly bint has_tombstone


def retain(RecordWalk walk, OffsetMap offset_map, *, bint keeps_all=False, bint keeps_none=False,
           bint keeps_tombstones=True):
    """Which records of a walk stay, up to its end or to the record that is refused."""
    cdef Retained found = Retained.__new__(Retained)
    cdef slg_retention retention
    cdef slg_retained counts
    cdef slg_refusal refusal
    cdef size_t room = slg_records_max(<size_t>walk._view.len)
    cdef slg_kept *kept
    cdef int64_t i
    memset(&retention, 0, sizeof(retention))
    retention.map = &offset_map._map
    retention.keeps_all, retention.keeps_none = keeps_all, keeps_none
    retention.keeps_tombstones = keeps_tombstones
    if walk._walk.count >= 0:
        room = min(room, <size_t>walk._walk.count)
    found.kept, listed = bytearray(room), bytearray(room * sizeof(slg_kept))
    kept = <slg_kept *><void *><char *>listed
    with nogil:
        refusal = slg_retain_records(&retention, &walk._walk, kept, &counts)
    for i in range(counts.kept):
        found.kept[kept[i].number] = 1
    found.refusal, found.read_count, found.kept_count = <int>refusal, counts.read, counts.kept
    found.invalid_count, found.max_offset = counts.invalid, counts.max_offset
    found.has_tombstone = counts.has_tombstone
    return found


class CleanStep(enum.IntEnum):
    """What ended a call of BatchCleaner (csrc/include/seglog/clean.h)."""

    DONE = SLG_CLEAN_DONE
    OTHER = SLG_CLEAN_OTHER
    FULL = SLG_CLEAN_FULL
    REFUSED = SLG_CLEAN_REFUSED


@cython.final
cdef class BatchCleaner:
    """Whole batches, many per call: their keys into the map, and what stays of them.

    `direct` has the decoders of storage.codecs, and `compress(codec, data)` gives the bytes of a
    payload; they run for compressed batches, and `transactions` (CleanedTransactionMetadata) is
    asked about transactional ones. A batch that is unusual in any way ends the call, and is the
    caller's. One thread at a time.
    """

    cdef OffsetMap _map
    cdef slg_clean_rules _rules
    cdef slg_clean_output _output
    cdef slg_clean_work _work
    cdef slg_clean_counts _counts
    cdef slg_map_counts _mapped
    cdef object _producers, _last_offsets   # what the rules point into
    cdef object _transactions, _compress
    cdef size_t _told                       # rows before this are known to the transactions
    cdef PlainRecords _plain
    cdef BatchKeys _keys                    # where no other thread has read them
    cdef object _data                       # what the output points into

    def __cinit__(self, OffsetMap offset_map, *, transactions, tuple direct, compress):
        if offset_map is None:
            raise TypeError("offset_map must be an OffsetMap, not None")
        self._map, self._transactions = offset_map, transactions
        self._keys, self._compress = BatchKeys(direct), compress
        self._plain = self._keys.plain
        self._rules.map = &offset_map._map
        self._rules.kernel = _kernel
        slg_clean_output_begin(&self._output, NULL)
        self._data = b""

    def __dealloc__(self):
        slg_clean_output_free(&self._output)
        slg_clean_work_free(&self._work)

    # ---- the offset map

    @property
    def map_bytes(self):
        return self._mapped.bytes

    @property
    def map_messages(self):
        return self._mapped.messages

    def map(self, data, rows, Py_ssize_t row, int64_t start, int32_t limit, BatchKeys keys=None):
        """Puts the keys of batches into the map, from a row on: (step, the row that ended it).

        `keys` has read these batches, of the same `start`."""
        cdef Py_buffer view
        cdef const slg_batch *batches = rows_of(rows, row)
        cdef size_t at = <size_t>row, count = <size_t>len(rows), end
        cdef slg_clean_step step = SLG_CLEAN_DONE
        cdef BatchKeys ahead = self._keys if keys is None else keys
        if keys is not None and (keys.of is not rows or keys.start != start):
            raise ValueError("the keys are of other batches")
        if keys is None and not slg_batch_keys_begin(&ahead.found, count, SLG_BATCH_KEYS_PART):
            raise MemoryError("no memory for the keys of batches")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            check_rows(batches, at, count, view.len)
            self._told = at
            while step == SLG_CLEAN_DONE and at < count:
                end = count
                if keys is None:
                    slg_batch_keys_next(&ahead.found)
                    end = at
                    ahead.read_part(<const uint8_t *>view.buf, batches, count, &end, start)
                    end = max(end, at + 1)
                step = self._map_part(<const uint8_t *>view.buf, batches, end, &at, start, limit,
                                      &ahead.found)
            self._tell(batches, at)
        finally:
            PyBuffer_Release(&view)
        return _step(step), <Py_ssize_t>at

    cdef slg_clean_step _map_part(self, const uint8_t *data, const slg_batch *batches,
                                  size_t count, size_t *row, int64_t start, int32_t limit,
                                  slg_batch_keys *ahead) except? SLG_CLEAN_OTHER:
        cdef const uint8_t *records
        cdef const slg_batch *batch
        cdef slg_clean_step step
        cdef size_t size
        while True:
            with nogil:
                step = slg_map_batches(&self._map._map, data, batches, count, row, start, limit,
                                       ahead, &self._mapped)
            if step != SLG_CLEAN_CODEC and (
                    step != SLG_CLEAN_TRANSACTION or self._is_aborted(batches, row[0])):
                return step
            batch = &batches[row[0]]
            if ahead.rows[row[0]].is_read:
                step = slg_map_row(&self._map._map, batches, row[0], ahead, start, limit,
                                   &self._mapped)
            elif not self._plain.read(batch, data, &records, &size):
                return SLG_CLEAN_OTHER
            else:
                with nogil:
                    step = slg_map_batch(&self._map._map, batch, records, size, start, limit,
                                         &self._mapped)
            if step != SLG_CLEAN_DONE:
                return step
            row[0] += 1

    cdef int _tell(self, const slg_batch *batches, size_t row) except -1:
        """Tells the transactions of the batches before a row, none of which is part of one."""
        cdef int64_t last = INT64_MIN
        if self._told < row:
            for at in range(self._told, row):
                last = max(last, batches[at].last_offset)
            self._told = row
            self._transactions.pass_over(last)
        return 0

    cdef bint _is_aborted(self, const slg_batch *batches, size_t row) except -1:
        self._tell(batches, row)
        if self._transactions.on_batch(batches[row].producer_id, batches[row].last_offset, True):
            return True
        self._told = row + 1
        return False

    # ---- the batches that stay

    def rule(self, *, int64_t now_ms, int64_t new_horizon, int64_t upper_bound, producers,
             last_offsets):
        """What decides from now on; `producers` are ids in order, of whose last data records
        `last_offsets` tells, -1 without one. `new_horizon` is -1 if there can be none."""
        cdef uintptr_t address
        ids = np.ascontiguousarray(producers, np.int64)
        offsets = np.ascontiguousarray(last_offsets, np.int64)
        if ids.shape != offsets.shape or ids.ndim != 1:
            raise ValueError("producers and last_offsets are one array each, of one length")
        self._producers, self._last_offsets = ids, offsets
        address = ids.ctypes.data
        self._rules.producers = <const int64_t *>address
        address = offsets.ctypes.data
        self._rules.last_offsets = <const int64_t *>address
        self._rules.producer_count = <size_t>len(ids)
        self._rules.now, self._rules.new_horizon = now_ms, new_horizon
        self._rules.upper_bound = upper_bound

    def begin(self, data, *, bint uses_marks):
        """Another span of batches; what `end` gave of the one before is no longer good.

        `uses_marks`: the map has seen these batches."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        slg_clean_output_begin(&self._output, <const uint8_t *>view.buf)
        PyBuffer_Release(&view)
        self._data = data  # which keeps the bytes where they are
        self._rules.uses_marks = uses_marks

    def filter(self, rows, Py_ssize_t row):
        """Adds what stays of batches to the output, from a row on; the row that ended it, or the
        number of rows."""
        cdef const slg_batch *batches = rows_of(rows, row)
        cdef size_t at = <size_t>row, count = <size_t>len(rows), size
        cdef const uint8_t *span = self._output.span
        cdef const uint8_t *records
        cdef slg_clean_step step
        check_rows(batches, at, count, len(self._data))
        self._told = at
        while True:
            with nogil:
                step = slg_clean_batches(&self._rules, span, batches, count, &at, &self._output,
                                         &self._work, &self._counts)
            if step != SLG_CLEAN_CODEC and (
                    step != SLG_CLEAN_TRANSACTION or self._is_aborted(batches, at)):
                break
            if not self._plain.read(&batches[at], span, &records, &size):
                break
            with nogil:
                step = slg_clean_batch(&self._rules, &batches[at], records, size, &self._output,
                                       &self._work, &self._counts)
            if step == SLG_CLEAN_COMPRESS:
                step = self._seal(batches[at].attributes & SLG_ATTRIBUTE_CODEC)
            if step != SLG_CLEAN_DONE:
                break
            at += 1
        self._tell(batches, at)
        _step(step)
        return <Py_ssize_t>at

    cdef slg_clean_step _seal(self, int codec) except? SLG_CLEAN_OTHER:
        cdef Py_buffer view
        cdef bint is_written
        packed = self._compress(codec, view_of(
            self._work.batch.data + SLG_BATCH_HEADER_SIZE,
            self._work.batch.size - SLG_BATCH_HEADER_SIZE))
        PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
        with nogil:
            is_written = slg_clean_seal(&self._rules, <const uint8_t *>view.buf,
                                        <size_t>view.len, &self._output, &self._work)
        PyBuffer_Release(&view)
        return SLG_CLEAN_DONE if is_written else SLG_CLEAN_NO_MEMORY

    def keep(self, int64_t position, int64_t size, int64_t last_offset):
        """Adds a batch of the span as it is."""
        if position < 0 or size < 0 or position + size > len(self._data):
            raise ValueError("the batch is not in the span")
        if not slg_clean_keep(&self._output, <size_t>position, <size_t>size, last_offset):
            raise MemoryError("no memory for cleaned batches")

    def write(self, const uint8_t[::1] data, int64_t max_offset):
        """Adds a batch that was written anew."""
        if not slg_clean_write(&self._output, &data[0], <size_t>data.shape[0], max_offset):
            raise MemoryError("no memory for cleaned batches")

    def end(self):
        """The bytes that stay of the span, until the next `begin`: a part of it, or a copy."""
        cdef size_t size
        cdef const uint8_t *data = slg_clean_output_end(&self._output, &size)
        if data == NULL and size:
            raise MemoryError("no memory for cleaned batches")
        if size and data == self._output.data:
            return view_of(data, size)
        return memoryview(self._data)[self._output.range_from:self._output.range_to]

    @property
    def max_offset(self):
        return self._output.max_offset

    @property
    def counts(self):
        return (self._counts.bytes, self._counts.read, self._counts.invalid, self._counts.kept)


cdef object _step(slg_clean_step step):
    if step == SLG_CLEAN_NO_MEMORY:
        raise MemoryError("no memory for cleaned batches")
    if step in (SLG_CLEAN_CODEC, SLG_CLEAN_TRANSACTION):
        return CleanStep.OTHER
    return CleanStep(<int>step)
