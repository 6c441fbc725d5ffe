"""Appends to the active segment of a log; callers hold the log's lock."""

import enum
import functools
import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow, PyLong_CheckExact
from libc.stdint cimport INT64_MAX
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec
from posix.types cimport clockid_t
from posix.unistd cimport close as close_fd

from seglog._native.capi cimport *
from seglog._native.batch cimport batches_of
from seglog._native.capi_append cimport *
from seglog._native.log_lock cimport LogLock
from seglog._native.producers cimport ProducerTable
from seglog._native.status cimport check

from seglog.errors import IllegalStateError

cdef extern from *:
    """
    #include <time.h>
    #ifndef CLOCK_REALTIME_COARSE
    #define CLOCK_REALTIME_COARSE CLOCK_REALTIME
    #endif
    """
    const int CLOCK_REALTIME_COARSE  # some ms behind, and several times as fast to read

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()
cdef int _FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
#: The arguments of LogAppendInfo, in their order.
cdef tuple _INFO_FIELDS = (
    "first_offset", "last_offset", "last_leader_epoch", "max_timestamp", "log_append_time",
    "log_start_offset", "source_compression", "valid_bytes", "last_offset_of_first_batch",
    "record_errors")


class IndexRefusal(enum.IntEnum):
    """Why an index refuses an entry (csrc/include/seglog/append.h)."""

    TAKES = SLG_INDEX_TAKES
    OFFSET_FULL = SLG_INDEX_OFFSET_FULL
    OFFSET_BACK = SLG_INDEX_OFFSET_BACK
    OFFSET_FAR = SLG_INDEX_OFFSET_FAR
    TIME_FULL = SLG_INDEX_TIME_FULL
    TIME_OFFSET_BACK = SLG_INDEX_TIME_OFFSET_BACK
    TIME_BACK = SLG_INDEX_TIME_BACK
    TIME_FAR = SLG_INDEX_TIME_FAR


@cython.final
@cython.freelist(16)
cdef class LogAppendInfo:
    """The result of an append. Offsets and times (ms) are -1 if unknown.

    `first_offset` is -1 if the first batch has an old format and assigned offsets.
    `source_compression` is the id of the last codec among the batches, 0 for none.
    `log_append_time` is set for topics with LogAppendTime; for a duplicate it is the timestamp of
    the batch that it repeats. `valid_bytes` is the size of the whole, valid batches at the
    beginning of the records.
    """

    cdef public int64_t first_offset, last_offset, max_timestamp, log_append_time
    cdef public int64_t log_start_offset, valid_bytes, last_offset_of_first_batch
    cdef public int32_t last_leader_epoch, source_compression
    cdef list _errors  # None until somebody asks: an append without errors makes no list

    def __init__(self, int64_t first_offset=-1, int64_t last_offset=-1,
                 int32_t last_leader_epoch=-1, int64_t max_timestamp=-1,
                 int64_t log_append_time=-1, int64_t log_start_offset=-1,
                 int32_t source_compression=0, int64_t valid_bytes=0,
                 int64_t last_offset_of_first_batch=-1, record_errors=()):
        self.first_offset, self.last_offset = first_offset, last_offset
        self.last_leader_epoch, self.max_timestamp = last_leader_epoch, max_timestamp
        self.log_append_time, self.log_start_offset = log_append_time, log_start_offset
        self.source_compression, self.valid_bytes = source_compression, valid_bytes
        self.last_offset_of_first_batch = last_offset_of_first_batch
        self._errors = list(record_errors)

    @property
    def record_errors(self):
        """The errors of single records, a list."""
        with cython.critical_section(self):
            if self._errors is None:
                self._errors = []
            return self._errors

    @record_errors.setter
    def record_errors(self, list errors not None):
        self._errors = errors

    @property
    def first_or_last_offset_of_first_batch(self):
        """The first offset or, if unknown, the last offset of the first batch."""
        return self.first_offset if self.first_offset >= 0 else self.last_offset_of_first_batch

    cdef tuple _fields(self):
        return tuple([getattr(self, name) for name in _INFO_FIELDS])

    def __reduce__(self):
        return LogAppendInfo, self._fields()

    def __eq__(self, other):
        if not isinstance(other, LogAppendInfo):
            return NotImplemented
        return self._fields() == (<LogAppendInfo>other)._fields()

    def __hash__(self):
        raise TypeError("what became of an append can change, and has no hash")

    def __repr__(self):
        return "LogAppendInfo(" + ", ".join(
            [f"{name}={getattr(self, name)!r}" for name in _INFO_FIELDS]) + ")"


@cython.final
cdef class LogEnd:
    """The end of a log: the next record's offset, the last segment's base offset and its size."""

    cdef readonly int64_t offset, base_offset, size

    def __init__(self, int64_t offset, int64_t base_offset, int64_t size):
        self.move(offset, base_offset, size)

    cpdef void move(self, int64_t offset, int64_t base_offset, int64_t size) noexcept:
        """Sets a new end."""
        with cython.critical_section(self):  # without the GIL a reader could see half of it
            self.offset, self.base_offset, self.size = offset, base_offset, size

    @property
    def fields(self):
        """(offset, base_offset, size), of one moment for any thread."""
        with cython.critical_section(self):
            return self.offset, self.base_offset, self.size


@cython.final
cdef class SegmentWriter:
    """Owns the descriptors and counters of the active segment."""

    cdef slg_segment_writer _writer
    cdef slg_leader_rules _rules
    cdef bint _is_configured
    cdef clockid_t _clock
    cdef object _log_path

    def __cinit__(self):
        slg_segment_writer_init(&self._writer)  # before an argument is refused

    def __init__(self, log_path, index_path, time_index_path, *, int64_t base_offset, int64_t size,
                 int64_t index_interval_bytes, int64_t offset_entries, int64_t offset_slots,
                 int64_t last_index_offset, int64_t time_entries, int64_t time_slots, max_timestamp,
                 last_time_entry, int64_t bytes_since_index_entry, first_timestamp=None):
        cdef slg_segment_state *state = &self._writer.state
        if self._log_path is not None:
            raise RuntimeError("the segment is open already")
        if size < 0 or offset_entries < 0 or time_entries < 0:
            raise ValueError("a size or a number of entries is negative")
        self._log_path, self._writer.base_offset = log_path, base_offset
        self._writer.index_interval = index_interval_bytes
        self._writer.offset_slots, self._writer.time_slots = offset_slots, time_slots
        state.size, state.time_entries = size, time_entries
        state.offset_entries, state.last_index_offset = offset_entries, last_index_offset
        state.last_time, state.last_time_offset = last_time_entry
        state.bytes_since_entry = bytes_since_index_entry
        state.max_timestamp, state.max_timestamp_offset = max_timestamp
        self.first_timestamp = first_timestamp
        self._writer.log_fd = os.open(log_path, _FLAGS)
        self._writer.index_fd = os.open(index_path, _FLAGS)
        self._writer.time_index_fd = os.open(time_index_path, _FLAGS)

    def __dealloc__(self):
        for fd in (self._writer.log_fd, self._writer.index_fd, self._writer.time_index_fd):
            close_fd(fd)  # not os.close: at the end of the process `os` may be gone
        slg_segment_writer_free(&self._writer)

    cpdef close(self):
        """Releases the descriptors; a second call does nothing. Raises the first OSError after all
        are released: their numbers may belong to other files then."""
        cdef int fd
        cdef tuple held = (self._writer.log_fd, self._writer.index_fd, self._writer.time_index_fd)
        first = None
        self._writer.log_fd = self._writer.index_fd = self._writer.time_index_fd = -1
        for fd in held:
            if fd >= 0:
                try:
                    os.close(fd)
                except OSError as error:
                    first = first or error
        if first is not None:
            raise first

    @property
    def is_closed(self):
        return self._writer.log_fd < 0

    # ---- state ----------------------------------------------------------------------------------

    @property
    def base_offset(self):
        return self._writer.base_offset

    @property
    def size(self):
        return self._writer.state.size

    @property
    def offset_entries(self):
        return self._writer.state.offset_entries

    @property
    def last_index_offset(self):
        return self._writer.state.last_index_offset

    @property
    def time_entries(self):
        return self._writer.state.time_entries

    @property
    def last_time_entry(self):
        return self._writer.state.last_time, self._writer.state.last_time_offset

    @property
    def bytes_since_index_entry(self):
        return self._writer.state.bytes_since_entry

    @property
    def max_timestamp(self):
        return self._writer.state.max_timestamp, self._writer.state.max_timestamp_offset

    @property
    def first_timestamp(self):
        """The timestamp of the first batch in ms; None if it was not read yet."""
        if not self._writer.state.knows_first_timestamp:
            return None
        return self._writer.state.first_timestamp

    @first_timestamp.setter
    def first_timestamp(self, value):
        self._writer.state.knows_first_timestamp = value is not None
        self._writer.state.first_timestamp = -1 if value is None else value

    # ---- appends --------------------------------------------------------------------------------

    def append(self, data, batches, LogEnd end=None, int64_t first_offset=0, int64_t next_offset=0):
        """Writes whole, valid batches and the index entries that are due, and moves `end` from at
        most `first_offset` to `next_offset`: no signal comes between, after which the next append
        would use these offsets again.

        Returns TAKES and the number of batches; or an index's refusal and its row, when all bytes
        and the entries before that row are written, and the end is where it was.
        KafkaStorageError and IllegalStateError: nothing has changed.
        """
        cdef Py_buffer view
        cdef slg_error error
        cdef slg_status status
        cdef slg_index_refusal refusal = SLG_INDEX_TAKES
        cdef size_t row = 0, count = len(batches)
        cdef const slg_batch *rows
        if self._writer.log_fd < 0:
            raise ValueError("the segment is closed")
        rows = batches_of(batches)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if end is not None:
                _require_end(end, first_offset)
            with nogil:
                status = slg_segment_append(&self._writer, <const uint8_t *>view.buf,
                                            <size_t>view.len, rows, count,
                                            &refusal, &row, &error)
            check(status, &error, self._log_path)
            if end is not None and refusal == SLG_INDEX_TAKES:
                end.move(next_offset, self._writer.base_offset, self._writer.state.size)
        finally:
            PyBuffer_Release(&view)
        return <int>refusal, row

    def configure(self, *, bint needs_key, bint has_create_time,
                  int64_t timestamp_before_max_ms, int64_t timestamp_after_max_ms,
                  int64_t max_message_bytes, int64_t segment_bytes, int64_t max_segment_ms,
                  int64_t created_ms):
        """Sets the rules of `append_as_leader` until the next call."""
        cdef slg_leader_rules *rules = &self._rules
        self._is_configured = True
        rules.records.needs_key, rules.records.has_create_time = needs_key, has_create_time
        rules.records.before_max = timestamp_before_max_ms
        rules.records.after_max = timestamp_after_max_ms
        rules.batch_bytes_max = max_message_bytes
        rules.segment_bytes_max, rules.segment_age_max = segment_bytes, max_segment_ms
        rules.created = created_ms
        rules.kernel = _kernel
        # By an earlier time at most a timestamp in the future is declined, for the reference path.
        self._clock = (CLOCK_REALTIME_COARSE if has_create_time and
                       timestamp_before_max_ms == INT64_MAX else CLOCK_REALTIME)

    def append_as_leader(self, data, ProducerTable producers, int32_t leader_epoch,
                         int64_t next_offset, int64_t now_ms, int64_t log_start_offset=0,
                         bint is_span=False, LogEnd end=None):
        """Appends the plain batches at the beginning of `data` in one call without the GIL, and
        moves `end` (see `append`).

        `valid_bytes` of the result is how much of `data` was appended. None if the first batch is
        not plain; then, and with KafkaStorageError and IllegalStateError, nothing has changed.
        """
        cdef Py_buffer view
        cdef slg_appended done
        cdef slg_error error
        cdef slg_status status
        if producers is None:
            raise TypeError("producers must be a ProducerTable, not None")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self._writer.log_fd < 0 or not self._is_configured:
                return None
            if end is not None:
                _require_end(end, next_offset)
            self._rules.is_span = is_span
            status = self.lead(&view, producers, leader_epoch, next_offset, now_ms, &done, &error)
            check(status, &error, self._log_path)
            if end is not None and done.bytes > 0:
                end.move(done.last_offset + 1, self._writer.base_offset, self._writer.state.size)
        finally:
            PyBuffer_Release(&view)
        return self.result(&done, log_start_offset)

    cdef inline slg_status lead(self, const Py_buffer *data, ProducerTable producers,
                                int32_t leader_epoch, int64_t next_offset, int64_t now_ms,
                                slg_appended *done, slg_error *error) noexcept:
        """The status of `slg_append_as_leader`; the writer is open and configured."""
        cdef slg_leader_rules *rules = &self._rules
        cdef slg_status status
        rules.leader_epoch, rules.next_offset, rules.records.now = leader_epoch, next_offset, now_ms
        with nogil:
            status = slg_append_as_leader(
                &self._writer, &producers._state, &producers._span, rules,
                <const uint8_t *>data.buf, <size_t>data.len, done, error)
        return status

    cdef inline LogAppendInfo result(self, const slg_appended *done, int64_t log_start_offset):
        """What was appended, or None."""
        cdef LogAppendInfo info
        if done.bytes == 0:
            return None
        info = LogAppendInfo.__new__(LogAppendInfo)
        info.first_offset, info.last_offset = done.first_offset, done.last_offset
        info.last_leader_epoch, info.max_timestamp = done.last_leader_epoch, done.max_timestamp
        info.log_append_time = (-1 if self._rules.records.has_create_time
                                else self._rules.records.now)
        info.log_start_offset, info.source_compression = log_start_offset, 0
        info.valid_bytes = <int64_t>done.bytes
        info.last_offset_of_first_batch = done.first_last_offset
        return info


cdef inline int _require_end(LogEnd end, int64_t first_offset) except -1:
    if first_offset < end.offset:  # the log's lock lets the thread that holds it in again
        raise IllegalStateError(
            f"a second append began inside of this one, in the same thread (a finalizer, or a "
            f"signal's handler): the log ends at {end.offset}; not written: from {first_offset} on")


cdef inline int64_t _now_ms(clockid_t clock) noexcept:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef class FastPath:
    """A leader's appends for which only the batch itself must still be checked.

    A log arms it after all other checks, and disarms it when one of their results changes. It
    declines by itself if the writer is closed, the leader epoch differs or the data directory has
    failed.
    """

    cdef LogEnd _end
    cdef SegmentWriter _writer
    cdef ProducerTable _producers
    cdef LogLock _lock
    cdef object _clock, _waiting, _wake, _on_error, _flush_if_due
    cdef set _failed
    cdef int32_t _leader_epoch
    cdef int64_t _log_start_offset, _flush_at
    cdef readonly int64_t messages_in, bytes_in

    def __init__(self, LogEnd end not None, *, LogLock lock not None, set failed not None,
                 waiting, wake, clock, on_error, flush_if_due):
        """`lock` is the log's. `failed` holds the failed data directories.

        Calls `wake()` after an append if `waiting` is not empty, and `on_error(error)` under the
        lock before it raises an OSError. `clock()` returns ms; None is the system's clock.
        `flush_if_due()` flushes if necessary, and returns the offset at which the next flush is
        due."""
        self._end = end
        self._lock = lock
        self._failed, self._waiting, self._wake, self._clock = failed, waiting, wake, clock
        self._on_error, self._flush_if_due = on_error, flush_if_due

    def arm(self, SegmentWriter writer not None, ProducerTable producers not None, *,
            int32_t leader_epoch, int64_t log_start_offset, int64_t flush_at):
        """Sends appends of this leader epoch to `writer` from now on. No flush is due below the
        offset `flush_at`. The caller holds the lock."""
        self._writer, self._producers = writer, producers
        self._leader_epoch, self._log_start_offset = leader_epoch, log_start_offset
        self._flush_at = flush_at

    def disarm(self):
        """Declines appends until it is armed again. The caller holds the lock."""
        self._writer = None

    cpdef LogAppendInfo append(self, records, int32_t leader_epoch):
        """Appends a client's batch. None if it was declined, and nothing has changed."""
        cdef Py_buffer view
        cdef bint is_bytes = PyBytes_CheckExact(records)  # which need no view: 10 ns less
        if self._writer is None:
            return None
        if is_bytes:
            view.buf, view.len = PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records)
        else:  # without the lock: an object may run Python here, and append (PEP 688)
            PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            self._lock.take()
            try:
                return self._append(&view, leader_epoch)
            finally:
                self._lock.release()
        finally:
            if not is_bytes:
                PyBuffer_Release(&view)

    cdef inline LogAppendInfo _append(self, const Py_buffer *records, int32_t leader_epoch):
        # A clock in Python may append, or close the log: all else is read after it.
        cdef int64_t now = 0 if self._clock is None else self._clock()
        cdef SegmentWriter writer = self._writer
        cdef ProducerTable producers = self._producers
        cdef LogEnd end = self._end
        cdef LogAppendInfo info
        cdef slg_appended done
        cdef slg_error error
        cdef int64_t first = end.offset
        cdef slg_status status
        if (writer is None or leader_epoch != self._leader_epoch or self._failed
                or writer._writer.log_fd < 0 or not writer._is_configured):
            return None
        if self._clock is None:
            now = _now_ms(writer._clock)
        writer._rules.is_span = False
        status = writer.lead(records, producers, leader_epoch, first, now, &done, &error)
        if status != SLG_OK:
            self._raise(status, &error, writer._log_path)
        if done.bytes == 0:
            return None
        # Before memory is allocated, at which finalizers run.
        end.move(done.last_offset + 1, writer._writer.base_offset, writer._writer.state.size)
        producers.map_end_offset = end.offset
        self.messages_in += end.offset - first
        self.bytes_in += <int64_t>done.bytes
        info = writer.result(&done, self._log_start_offset)
        if self._waiting:
            self._wake()
        if end.offset >= self._flush_at:
            self._flush_at = self._flush_if_due()
        return info

    cdef int _raise(self, slg_status status, slg_error *error, path) except -1:
        try:
            check(status, error, path)
        except OSError as failure:
            self._on_error(failure)
            raise
        return 0


def fast_path_first(reference):
    """Decorates a log's `append_as_leader`: its `fast_path` gets the appends of the default origin,
    a client, and `reference` does those that it declines, and all others."""
    client = reference.__kwdefaults__["origin"]

    def append(log, records, leader_epoch, *, origin=client, verification_guard=None,
               transaction_version=-1):
        cdef FastPath fast = log.fast_path
        cdef LogAppendInfo info = None
        cdef int overflow = 0
        cdef long epoch
        if origin is client and PyLong_CheckExact(leader_epoch):
            epoch = PyLong_AsLongAndOverflow(leader_epoch, &overflow)
            if overflow == 0 and epoch == <int32_t>epoch:
                info = fast.append(records, <int32_t>epoch)
        if info is not None:
            return info
        return reference(log, records, leader_epoch, origin=origin,
                         verification_guard=verification_guard,
                         transaction_version=transaction_version)

    return functools.wraps(reference)(append)
