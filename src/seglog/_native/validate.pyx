"""Checks of batches and records before an append. Bad bytes give a refusal code, no exception."""

import enum

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from seglog._native.batch cimport batches_of
from seglog._native.capi cimport *
from seglog._native.capi_append cimport *
from seglog._native.capi_columns cimport slg_encode_add, slg_encode_record
from seglog._native.encode cimport BatchEncoder
from seglog._native.status cimport check

from seglog._native.batch import BATCH_DTYPE as _BATCH_DTYPE

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()

cdef enum:
    ROOM_FIRST = 16


class Refusal(enum.IntEnum):
    """Why Kafka rejects a batch or a record (see csrc/include/seglog/validate.h)."""

    ACCEPTED = SLG_ACCEPTED
    NO_MORE = SLG_NO_MORE
    LENGTH = SLG_REFUSE_LENGTH
    OVERFLOW = SLG_REFUSE_OVERFLOW
    MAGIC = SLG_REFUSE_MAGIC
    RAFT_EPOCH = SLG_REFUSE_RAFT_EPOCH
    BASE_OFFSET = SLG_REFUSE_BASE_OFFSET
    SHORT = SLG_REFUSE_SHORT
    SIZE = SLG_REFUSE_SIZE
    CRC = SLG_REFUSE_CRC
    CODEC = SLG_REFUSE_CODEC
    ORDER = SLG_REFUSE_ORDER
    RANGE = SLG_REFUSE_RANGE
    COUNT = SLG_REFUSE_COUNT
    COUNT_OF_RANGE = SLG_REFUSE_COUNT_OF_RANGE
    CONTROL = SLG_REFUSE_CONTROL
    SEQUENCE = SLG_REFUSE_SEQUENCE
    RECORD_COUNT = SLG_REFUSE_RECORD_COUNT
    PREMATURE_END = SLG_REFUSE_PREMATURE_END
    VARINT = SLG_REFUSE_VARINT
    BODY = SLG_REFUSE_BODY
    BODY_END = SLG_REFUSE_BODY_END
    BODY_SIZE = SLG_REFUSE_BODY_SIZE
    STRUCTURE = SLG_REFUSE_STRUCTURE
    HEADER_COUNT = SLG_REFUSE_HEADER_COUNT
    HEADERS_LEFT = SLG_REFUSE_HEADERS_LEFT
    HEADER_KEY = SLG_REFUSE_HEADER_KEY
    SKIP = SLG_REFUSE_SKIP
    BYTES_LEFT = SLG_REFUSE_BYTES_LEFT
    NO_KEY = SLG_REFUSE_NO_KEY
    TIMESTAMP = SLG_REFUSE_TIMESTAMP
    TIMESTAMP_TYPE = SLG_REFUSE_TIMESTAMP_TYPE


class RecordSource(enum.IntEnum):
    """How Kafka reads the records of a batch, which determines the errors that it detects."""

    BUFFER = SLG_RECORDS_BUFFER
    STREAM = SLG_RECORDS_STREAM
    SKIP = SLG_RECORDS_SKIP


cdef slg_batch *_row(object batches, Py_ssize_t row) except NULL:
    cdef slg_batch *rows = batches_of(batches)
    if not 0 <= row < len(batches):
        raise IndexError("no such batch")
    return rows + row


@cython.final
cdef class Analysis:
    """The analysis of a span of batches, up to its end or the first refused batch."""

    cdef slg_analysis _analysis
    cdef readonly object batches, skipped
    cdef readonly int refusal, codec
    cdef readonly int32_t last_leader_epoch
    cdef readonly int64_t a, position, first_offset, last_offset, last_offset_of_first_batch
    cdef readonly int64_t max_timestamp, valid_bytes


cdef object _analyze(Analysis found, object data):
    """Validates the batches without the GIL; the array of batches grows as needed."""
    cdef Py_buffer view
    cdef slg_analysis *analysis = &found._analysis
    cdef slg_refusal refusal = SLG_ACCEPTED
    cdef slg_batch *rows
    cdef Py_ssize_t count = 0, kept = 0, room = ROOM_FIRST
    cdef uintptr_t address
    analysis.kernel = _kernel
    slg_analysis_init(analysis)
    batches = np.empty(room, _BATCH_DTYPE)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            address = batches.ctypes.data
            rows = <slg_batch *>address
            with nogil:
                while count < room:
                    refusal = slg_analyze_next(analysis, <const uint8_t *>view.buf,
                                               <size_t>view.len, rows + count)
                    if refusal != SLG_ACCEPTED:
                        break
                    count += 1
                    kept += not analysis.is_skipping
            if count < room:
                break
            room *= 4
            grown = np.empty(room, _BATCH_DTYPE)
            grown[:count] = batches
            batches = grown
    finally:
        PyBuffer_Release(&view)
    found.batches, found.skipped = batches[:kept], batches[kept:count]
    found.refusal, found.a, found.position = <int>refusal, analysis.a, <int64_t>analysis.position
    found.first_offset, found.last_offset = analysis.first_offset, analysis.last_offset
    found.last_offset_of_first_batch = analysis.last_offset_of_first_batch
    found.last_leader_epoch, found.codec = analysis.last_leader_epoch, analysis.codec
    found.max_timestamp, found.valid_bytes = analysis.max_timestamp, analysis.valid_bytes
    return found


def analyze(data, *, int origin, int32_t leader_epoch, int64_t batch_bytes_max,
            bint needs_order):
    """Validates the batches of `data` in Kafka's order."""
    cdef Analysis found = Analysis.__new__(Analysis)
    if origin < 0 or origin > SLG_ORIGIN_RAFT_LEADER:
        raise ValueError("no such origin")
    found._analysis.origin = <slg_origin>origin
    found._analysis.leader_epoch = leader_epoch
    found._analysis.batch_bytes_max = batch_bytes_max
    found._analysis.needs_order = needs_order
    return _analyze(found, data)


def frames(data):
    """The batches of `data`; checks only their framing."""
    cdef Analysis found = Analysis.__new__(Analysis)
    found._analysis.is_plain = True
    return _analyze(found, data)


def check_client_header(batches, Py_ssize_t row):
    """Whether a client may send this batch of magic 2 (a Refusal)."""
    return <int>slg_check_client_header(_row(batches, row))


@cython.final
cdef class RecordWalk:
    """Checks the records of one batch of magic 2 by Kafka's reader and a topic's rules."""

    def __cinit__(self, batches, Py_ssize_t row, records, *, int source, rules=None):
        cdef slg_batch *batch = _row(batches, row)
        if source < 0 or source > SLG_RECORDS_SKIP:
            raise ValueError("no such source")
        if rules is not None:
            (self._rules.needs_key, self._rules.has_create_time, self._rules.now,
             self._rules.before_max, self._rules.after_max) = rules
        PyObject_GetBuffer(records, &self._view, PyBUF_SIMPLE)
        self._has_view = True
        slg_record_walk_init(&self._walk, batch, <const uint8_t *>self._view.buf,
                             <size_t>self._view.len, <slg_record_source>source,
                             NULL if rules is None else &self._rules)

    def __dealloc__(self):
        if self._has_view:
            PyBuffer_Release(&self._view)

    def run(self):
        """Continues to the end (NO_MORE) or to a refusal; may be called again after a record that
        the topic's rules refused."""
        cdef slg_refusal refusal
        with nogil:
            refusal = slg_record_walk_run(&self._walk)
        return <int>refusal

    def next(self):
        """One record: ACCEPTED, NO_MORE after the last, or the refusal."""
        return <int>slg_record_next(&self._walk)

    @property
    def index(self):
        return self._walk.index

    @property
    def max_timestamp(self):
        return self._walk.max_timestamp

    @property
    def is_sequential(self):
        return self._walk.is_sequential

    @property
    def offset(self):
        return self._walk.record.offset

    @property
    def timestamp(self):
        return self._walk.record.timestamp

    @property
    def key_size(self):
        return self._walk.record.key_size

    @property
    def value_size(self):
        return self._walk.record.value_size

    @property
    def a(self):
        return self._walk.a

    @property
    def b(self):
        return self._walk.b


def assign(data, batches, Py_ssize_t row, *, int64_t next_offset, int64_t count,
           int32_t leader_epoch, bint has_append_time, int64_t max_timestamp):
    """Sets offsets, leader epoch and timestamps of a batch of magic 2 in writable bytes."""
    cdef Py_buffer view
    cdef slg_assignment assignment
    cdef slg_batch *batch = _row(batches, row)
    cdef uint8_t *header
    assignment.next_offset = next_offset
    assignment.leader_epoch = leader_epoch
    assignment.has_append_time = has_append_time
    assignment.max_timestamp = max_timestamp
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if (batch.magic < 2 or batch.size < SLG_BATCH_HEADER_SIZE or batch.position < 0
                or batch.position > view.len - batch.size):
            raise ValueError("the batch is not in these bytes")
        header = <uint8_t *>view.buf + batch.position
        with nogil:
            slg_assign(header, header + SLG_BATCH_HEADER_SIZE, &assignment, count, _kernel,
                       batch)
    finally:
        PyBuffer_Release(&view)


cdef class _Scratch:
    """Memory for the headers of one record."""

    cdef uint8_t *data
    cdef size_t size

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, size_t size) except -1:
        cdef uint8_t *grown
        if size > self.size:
            grown = <uint8_t *>realloc(self.data, size)
            if grown == NULL:
                raise MemoryError("no memory for the headers of a record")
            self.data, self.size = grown, size
        return 0


def transfer(RecordWalk walk, BatchEncoder encoder, int64_t next_offset, *,
             const uint8_t[::1] kept=None):
    """Adds the remaining records of a walk to a batch, with offsets from `next_offset` on.

    With `kept`, one byte per record, adds the records whose byte is not 0, at their own offsets.
    NO_MORE if all were accepted, else the refusal. Raises as `encoder.append` does.
    """
    cdef slg_record_walk *records = &walk._walk
    cdef slg_record *record = &records.record
    cdef slg_encode_record wanted
    cdef slg_refusal refusal
    cdef slg_status status = SLG_OK
    cdef _Scratch scratch = _Scratch.__new__(_Scratch)
    cdef uint8_t *headers_at
    cdef size_t bound
    cdef bint selects = kept is not None
    cdef Py_ssize_t count = kept.shape[0] if selects else 0
    with nogil:
        while True:
            refusal = slg_record_next(records)
            if refusal != SLG_ACCEPTED:
                break
            if selects:
                if records.index > count or not kept[records.index - 1]:
                    continue
                next_offset = record.offset
            wanted.offset = next_offset
            wanted.timestamp = record.timestamp
            wanted.key, wanted.key_size = record.key, max(record.key_size, -1)
            wanted.value, wanted.value_size = record.value, max(record.value_size, -1)
            wanted.header_count, wanted.headers_size = record.header_count, 0
            if record.header_count > 0:
                bound = slg_headers_bound(record)
                if bound > scratch.size:
                    with gil:
                        scratch.reserve(2 * bound)
                wanted.headers_size = <int64_t>slg_headers_rewrite(record, scratch.data)
            status = slg_encode_add(&encoder._batch, &wanted, &headers_at, &encoder._error)
            if status == SLG_MORE:
                with gil:
                    encoder._grow(<size_t>encoder._error.expected)
                status = slg_encode_add(&encoder._batch, &wanted, &headers_at,
                                        &encoder._error)
            if status != SLG_OK:
                break
            if wanted.headers_size > 0:
                memcpy(headers_at, scratch.data, <size_t>wanted.headers_size)
            next_offset += 1
    check(status, &encoder._error, None)
    return <int>refusal
