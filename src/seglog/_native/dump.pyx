"""A log file as Kafka's tools read it: the lines of kafka-dump-log, and their facts."""

import numpy as np

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython cimport critical_section, final
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from seglog._native.capi cimport *
from seglog._native.capi_dump cimport *
from seglog._native.status cimport as_exception, check

from seglog.errors import CorruptDataError

RECORDS = <int>SLG_DUMP_RECORDS
METADATA = <int>SLG_DUMP_METADATA
STRINGS = <int>SLG_DUMP_STRINGS
CALLER = <int>SLG_DUMP_CALLER

cdef enum:
    WINDOW_SIZE = 1 << 20
    BUFFER_SIZE = 1 << 20
    GAPS = 1024
    # An index check reads one header per position.
    HEADER_WINDOW_SIZE = 128


def java_utf8(const uint8_t[::1] data not None):
    """Java's `new String(data, UTF_8)`, re-encoded: malformed sequences become U+FFFD."""
    cdef size_t size = <size_t>data.shape[0]
    cdef bytearray into = bytearray(<Py_ssize_t>slg_utf8_bound(size))
    cdef size_t used = 0
    if size:
        used = slg_utf8_replace(&data[0], size, <uint8_t *>PyByteArray_AS_STRING(into))
    return bytes(into[:<Py_ssize_t>used])


cdef bytes _bytes(const uint8_t *data, int64_t size):
    if data == NULL:
        return None
    return PyBytes_FromStringAndSize(<const char *>data, <Py_ssize_t>size)


cdef class _Walker:
    """A walk, its window, and the payload that the walk reads from. One thread at a time."""

    cdef slg_window _window
    cdef object _file
    cdef object _decompress
    cdef object _payload
    cdef object _reusable
    cdef bint _busy

    def __dealloc__(self):
        slg_window_free(&self._window)

    cdef int _open(self, slg_walk *walk, int fd, int64_t size, object end, size_t window_size,
                   object decompress, object file) except -1:
        cdef int64_t stop = size if end is None else min(<int64_t>end, size)
        if size < 0 or stop < 0:
            raise ValueError("size and end are 0 or more")
        slg_window_free(&self._window)
        slg_window_init(&self._window, slg_source_of(fd), size, window_size)
        slg_walk_init(walk, &self._window, 0, stop)
        self._file = fd if file is None else file
        self._decompress = decompress
        return 0

    cdef int _enter(self) except -1:
        with critical_section(self):
            if self._busy:
                raise RuntimeError("the walk is in use by another thread")
            self._busy = True
        return 0

    cdef int _give_payload(self, slg_walk *walk) except -1:
        """Decompresses the payload of the walk; errors name the file and the batch."""
        cdef slg_error error
        cdef slg_status status
        cdef const uint8_t[::1] view
        cdef const uint8_t *data = NULL
        cdef size_t size
        cdef bytes packed = _bytes(walk.payload, <int64_t>walk.payload_size)
        try:
            payload = self._decompress(walk.batch.attributes & SLG_ATTRIBUTE_CODEC,
                                       walk.batch.magic, packed, self._reusable)
        except CorruptDataError as cause:
            cause.file, cause.position = str(self._file), walk.batch.position
            raise
        view = payload
        size = <size_t>view.shape[0]
        if size:
            data = &view[0]
        # The view stays alive while the walk reads it; the next payload reuses its buffer.
        self._payload = payload
        self._reusable = payload.obj if isinstance(payload.obj, bytearray) else None
        with nogil:
            status = slg_walk_payload(walk, data, size, &error)
        check(status, &error, self._file)
        return 0


@final
cdef class LogDump(_Walker):
    """Prints one log or Raft snapshot as kafka-dump-log does.

    `fd` is open on a file of `size` bytes; the walk stops at `end` (None: the size). `what` is a
    sum of RECORDS, METADATA and one of STRINGS and CALLER. `decompress` is the callable of
    storage.codecs; `file` names the file in errors. `gaps` maps the offset before each offset gap
    to the one after it. `position` is the end of the last batch.
    """

    cdef slg_dump _dump
    cdef slg_dump_gap _gap_room[GAPS]
    cdef size_t _filled  # bytes of text that are not written yet
    cdef readonly dict gaps

    def __init__(self, int fd, int64_t size, *, what, decompress, end=None, file=None):
        self._open(&self._dump.walk, fd, size, end, WINDOW_SIZE, decompress, file)
        slg_dump_init(&self._dump, <unsigned>what, self._gap_room, GAPS)
        self.gaps = {}

    @property
    def position(self):
        return self._dump.walk.position

    cdef int _take_gaps(self) except -1:
        cdef size_t i
        for i in range(self._dump.gap_count):
            self.gaps[self._gap_room[i].previous] = self._gap_room[i].next
        self._dump.gap_count = 0
        return 0

    def run(self, write, contents=None):
        """Prints everything through `write(memoryview)`.

        `contents(offset, key, value, control_type)` returns the text (bytes, without the line end)
        of the records that the caller prints: all data with CALLER (control_type -1), and KRaft's
        control records (2 to 6). An error is raised after the text before it was written.
        """
        self._enter()
        try:
            self._run(write, contents)
        finally:
            self._busy = False

    cdef object _run(self, object write, object contents):
        cdef slg_status status = SLG_OK
        cdef slg_error error
        cdef size_t used
        cdef Py_ssize_t size
        cdef bytes text
        cdef bytearray buffer = PyByteArray_FromStringAndSize(NULL, BUFFER_SIZE)
        cdef size_t capacity = BUFFER_SIZE
        cdef uint8_t *out = <uint8_t *>PyByteArray_AS_STRING(buffer)
        self._filled = 0
        try:
            while True:
                with nogil:
                    status = slg_dump_text(&self._dump, out + self._filled,
                                           capacity - self._filled, &used, &error)
                self._filled += used
                if status == SLG_CODEC:
                    self._give_payload(&self._dump.walk)
                elif status == SLG_OK:
                    text = self._contents(contents)
                    size = len(text)
                    if self._filled + <size_t>size + SLG_DUMP_BUFFER_MIN > capacity:
                        self._flush(write, buffer)
                    if <size_t>size + SLG_DUMP_BUFFER_MIN > capacity:
                        write(memoryview(text))
                        continue
                    memcpy(out + self._filled, PyBytes_AS_STRING(text), <size_t>size)
                    self._filled += <size_t>size
                elif status == SLG_FULL:
                    self._take_gaps()
                    if self._filled == 0 and self._dump.wanted > capacity:
                        capacity = self._dump.wanted
                        buffer = PyByteArray_FromStringAndSize(NULL, <Py_ssize_t>capacity)
                        out = <uint8_t *>PyByteArray_AS_STRING(buffer)
                    self._flush(write, buffer)
                else:
                    break
                if capacity - self._filled < SLG_DUMP_BUFFER_MIN:
                    self._flush(write, buffer)
        except KeyboardInterrupt:
            self._filled = 0  # the reader of the text may stand still
            raise
        finally:
            self._take_gaps()
            self._flush(write, buffer)
        check(status, &error, self._file)

    cdef int _flush(self, object write, bytearray buffer) except -1:
        cdef Py_ssize_t filled = <Py_ssize_t>self._filled
        self._filled = 0  # also if `write` fails: text is never written twice
        if filled:
            with memoryview(buffer) as view, view[:filled] as full:
                write(full)
        return 0

    cdef bytes _contents(self, object contents):
        cdef slg_walk_record *record = &self._dump.record
        return contents(record.offset, _bytes(record.key, record.key_size),
                        _bytes(record.value, record.value_size), self._dump.control) + b"\n"


@final
cdef class LogWalk(_Walker):
    """Returns the facts of the lines: batches and records as dicts.

    `window_size` is the size of a read; make it small to read single batches.
    """

    cdef slg_walk _walk
    cdef bint _has_batch  # in the window

    def __init__(self, int fd, int64_t size, *, decompress, end=None, window_size=WINDOW_SIZE,
                 file=None):
        self._open(&self._walk, fd, size, end, window_size, decompress, file)

    @property
    def position(self):
        return self._walk.position

    def seek(self, int64_t position):
        """Makes `next_batch` read the batch at `position`."""
        if position < 0:
            raise ValueError("position is 0 or more")
        self._enter()
        self._walk.position = position
        self._busy = False

    def next_batch(self):
        """The next batch, read whole; None at the end. Drops the records of the previous one."""
        cdef slg_status status
        cdef slg_error error
        cdef slg_batch *batch = &self._walk.batch
        self._enter()
        try:
            self._has_batch = False
            with nogil:
                status = slg_walk_next(&self._walk, &error)
                if status == SLG_OK and batch.magic >= 0:
                    status = slg_walk_load(&self._walk, &error)
            check(status, &error, self._file)
            if status == SLG_END:
                return None
            self._has_batch = True
            facts = {"base_offset": batch.base_offset, "last_offset": batch.last_offset,
                     "position": batch.position, "size": batch.size, "magic": batch.magic,
                     "attributes": batch.attributes, "base_timestamp": batch.base_timestamp,
                     "max_timestamp": batch.max_timestamp, "crc": batch.crc,
                     "is_valid": bool(self._walk.valid)}
            if batch.magic >= 2:
                facts.update({
                    "count": batch.record_count, "producer_id": batch.producer_id,
                    "producer_epoch": batch.producer_epoch, "base_sequence": batch.base_sequence,
                    "partition_leader_epoch": batch.partition_leader_epoch})
            return facts
        finally:
            self._busy = False

    def enter(self):
        """Begins the records of the batch that `next_batch` returned; ValueError without one."""
        cdef slg_status status
        cdef slg_error error
        self._enter()
        try:
            if not self._has_batch:
                raise ValueError("there is no batch to enter")
            with nogil:
                status = slg_walk_enter(&self._walk, &error)
            if status == SLG_CODEC:
                self._give_payload(&self._walk)
            else:
                check(status, &error, self._file)
        finally:
            self._busy = False

    def next_record(self):
        """The next record of the batch, or None after the last."""
        cdef slg_status status
        cdef slg_error error
        cdef slg_walk_record record
        self._enter()
        try:
            status = slg_walk_record_next(&self._walk, &record, &error)
            check(status, &error, self._file)
            if status == SLG_END:
                return None
            if record.value == NULL and record.value_size >= 0:
                slg_fail(&error, SLG_RECORD_FIELD, self._walk.batch.position,
                         self._walk.batch.size, record.value_size)
                check(SLG_RECORD_FIELD, &error, self._file)
            facts = {"offset": record.offset, "timestamp": record.timestamp,
                     "key": _bytes(record.key, record.key_size),
                     "value": _bytes(record.value, record.value_size)}
            if self._walk.batch.magic >= 2:
                facts["sequence"] = record.sequence
                facts["headers"] = _headers(&record)
            else:
                facts["crc"] = record.crc
                facts["is_valid"] = bool(record.valid)
            return facts
        finally:
            self._busy = False

    def max_record_timestamp(self):
        """The largest timestamp of the batch's records, at least -1. Reads them all."""
        cdef slg_status status = SLG_OK
        cdef slg_error error
        cdef slg_walk_record record
        cdef int64_t largest = -1
        self.enter()
        self._enter()
        try:
            with nogil:
                while status == SLG_OK:
                    status = slg_walk_record_next(&self._walk, &record, &error)
                    if status == SLG_OK and record.timestamp > largest:
                        largest = record.timestamp
            check(status, &error, self._file)
        finally:
            self._busy = False
        return largest


cdef list _headers(slg_walk_record *record):
    cdef slg_cursor cursor = record.headers
    cdef slg_header header
    cdef list found = []
    while slg_header_next(&cursor, &header):
        found.append((_bytes(header.key, header.key_size),
                      _bytes(header.value, header.value_size)))
    return found


def last_offset_at(int fd, int64_t size, int64_t position, int64_t limit, *, file=None):
    """Last offset of the batch at `position`, reading up to `limit` bytes there; or None."""
    cdef slg_window window
    cdef slg_walk walk
    cdef slg_error error
    cdef slg_status status
    slg_window_init(&window, slg_source_of(fd), size, HEADER_WINDOW_SIZE)
    slg_walk_init(&walk, &window, position, min(size, position + limit))
    with nogil:
        status = slg_walk_next(&walk, &error)
        slg_window_free(&window)
    check(status, &error, fd if file is None else file)
    return None if status == SLG_END else walk.batch.last_offset


def batch_chain(int fd, int64_t size, int64_t position, *, file=None):
    """The positions and last offsets of the batches from `position` on.

    Returns `(positions, last_offsets, unreadable)`: two int64 arrays, and whether the header of the
    last batch is incomplete. Raises the error that ends the walk before the end.
    """
    cdef slg_window window
    cdef slg_walk walk
    cdef slg_error error
    cdef slg_status status = SLG_OK
    cdef int64_t *found = NULL
    cdef int64_t *grown
    cdef size_t count = 0
    cdef size_t room = 0
    cdef bint unreadable = False
    slg_window_init(&window, slg_source_of(fd), size, HEADER_WINDOW_SIZE * 64)
    slg_walk_init(&walk, &window, position, size)
    try:
        with nogil:
            while status == SLG_OK:
                status = slg_walk_next(&walk, &error)
                if status == SLG_BATCH_SIZE:
                    unreadable = True
                    status = SLG_OK
                if status != SLG_OK:
                    break
                if count == room:
                    room = 1024 if room == 0 else 2 * room
                    grown = <int64_t *>realloc(found, 2 * room * sizeof(int64_t))
                    if grown == NULL:
                        status = SLG_NO_MEMORY
                        break
                    found = grown
                found[2 * count] = walk.batch.position
                found[2 * count + 1] = walk.batch.last_offset
                count += 1
        check(status, &error, fd if file is None else file)
        pairs = np.empty((<Py_ssize_t>count, 2), dtype=np.int64)
        if count:
            memcpy(<void *><size_t>pairs.ctypes.data, found, 2 * count * sizeof(int64_t))
    finally:
        free(found)
        slg_window_free(&window)
    return pairs[:, 0].copy(), pairs[:, 1].copy(), unreadable
