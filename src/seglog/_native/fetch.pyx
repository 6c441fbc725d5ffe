"""Reads by offset from one segment: index, headers and bytes in one call without the GIL."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_XDECREF
from cython cimport final
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy
from posix.fcntl cimport AT_FDCWD
from posix.unistd cimport close

from seglog._native.capi cimport *
from seglog._native.capi_index cimport *
from seglog._native.capi_fetch cimport *
from seglog._native.file cimport encoded
from seglog._native.index cimport IndexReader
from seglog._native.status cimport check
from seglog.errors import IllegalArgumentError

cdef extern from "Python.h":
    # Without Cython's count of references, because a resize may move the object.
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    char *bytes_data "PyBytes_AS_STRING"(PyObject *data) noexcept
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1


@final
cdef class LogOffsetMetadata:
    """An offset and the position of its batch in the log (Kafka: LogOffsetMetadata).

    Holds `message_offset`, and the base offset of the segment and the position in its log; the
    latter two are -1 if only the offset is known. Immutable.
    """

    cdef readonly int64_t message_offset
    cdef readonly int64_t segment_base_offset
    cdef readonly int64_t relative_position_in_segment

    def __init__(self, int64_t message_offset, int64_t segment_base_offset=-1,
                 int64_t relative_position_in_segment=-1):
        self.message_offset = message_offset
        self.segment_base_offset = segment_base_offset
        self.relative_position_in_segment = relative_position_in_segment

    @staticmethod
    cdef LogOffsetMetadata make(int64_t offset, int64_t base_offset, int64_t position):
        cdef LogOffsetMetadata made = LogOffsetMetadata.__new__(LogOffsetMetadata)
        made.message_offset = offset
        made.segment_base_offset = base_offset
        made.relative_position_in_segment = position
        return made

    @property
    def message_offset_only(self):
        """Whether only the offset is known, not its position."""
        return self.segment_base_offset == -1 and self.relative_position_in_segment == -1

    def on_older_segment(self, LogOffsetMetadata other not None):
        """Whether its segment is before the other's; False if either is unknown."""
        return (not self.message_offset_only and not other.message_offset_only
                and self.segment_base_offset < other.segment_base_offset)

    cdef tuple fields(self):
        return (self.message_offset, self.segment_base_offset, self.relative_position_in_segment)

    def __eq__(self, other):
        if not isinstance(other, LogOffsetMetadata):
            return NotImplemented
        return self.fields() == (<LogOffsetMetadata>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __reduce__(self):
        return LogOffsetMetadata, self.fields()

    def __str__(self):
        return (f"(offset={self.message_offset}, "
                f"segment=[{self.segment_base_offset}:{self.relative_position_in_segment}])")

    def __repr__(self):
        return "LogOffsetMetadata({}, {}, {})".format(*self.fields())


@final
cdef class FetchDataInfo:
    """The result of a read (Kafka: FetchDataInfo).

    `records` begin with the batch that contains the requested offset, or the next one, and end at
    the limit: the last batch may be incomplete. `fetch_offset_metadata` is the base offset and
    position of the first batch. `first_entry_incomplete`: the limit cuts the first batch.
    `aborted_transactions` (None unless committed records were requested) overlap the records.
    """

    cdef readonly LogOffsetMetadata fetch_offset_metadata
    cdef readonly bytes records
    cdef readonly bint first_entry_incomplete
    cdef public object aborted_transactions

    def __init__(self, LogOffsetMetadata fetch_offset_metadata not None, bytes records=b"",
                 bint first_entry_incomplete=False, aborted_transactions=None):
        self.fetch_offset_metadata = fetch_offset_metadata
        self.records = records
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions

    @staticmethod
    cdef FetchDataInfo make(LogOffsetMetadata found, bytes records, bint incomplete):
        cdef FetchDataInfo made = FetchDataInfo.__new__(FetchDataInfo)
        made.fetch_offset_metadata = found
        made.records = records
        made.first_entry_incomplete = incomplete
        return made

    def __repr__(self):
        return (f"FetchDataInfo({self.fetch_offset_metadata!r}, {len(self.records)} bytes, "
                f"first_entry_incomplete={bool(self.first_entry_incomplete)}, "
                f"aborted_transactions={self.aborted_transactions!r})")


@final
cdef class SegmentReader:
    """The log and the offset index of one segment, open for reading.

    The caller passes sizes and numbers of entries at each call, because a writer may extend the
    files. Thread-safe; the descriptors are closed with the last reference.
    """

    cdef readonly object path
    cdef readonly int64_t base_offset
    cdef readonly IndexReader index
    #: Bytes of the log when it was opened.
    cdef readonly int64_t size
    cdef int _fd
    cdef int64_t _last_size  # of the batch that was found last: a guess for the next one

    def __cinit__(self):
        self._fd = -1

    def __init__(self, path, index_path, int64_t base_offset, *, int64_t mapped=0):
        cdef bytes name = encoded(path)
        cdef const char *c_name = name
        cdef int64_t size = 0
        cdef int fd = -1
        cdef slg_error error
        cdef slg_status status
        if self._fd >= 0:
            raise RuntimeError("the segment is open already")
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self.index = IndexReader(index_path, base_offset, mapped=mapped)
        with nogil:
            status = slg_open_read(AT_FDCWD, c_name, False, &fd, &size, &error)
        check(status, &error, path)
        self._fd = fd
        self.size = size

    def __dealloc__(self):
        if self._fd >= 0:
            close(self._fd)

    def fileno(self):
        """The descriptor of the log, valid while this object exists."""
        return self._fd

    cdef bint locate(self, int64_t offset, int64_t size, int64_t entries,
                     slg_fetch_window *window, slg_fetch_batch *found) except -1:
        """Whether there is a batch at or above `offset`."""
        cdef slg_index_file *index = &self.index.file
        cdef size_t in_use = index.entries if entries < 0 else <size_t>entries
        cdef slg_index_found hint
        cdef slg_error error
        cdef slg_status status
        cdef int64_t start
        cdef bint in_index = True
        with nogil:
            status = slg_index_file_search(index, in_use, SLG_INDEX_LOWER, offset, &hint, &error)
            if status == SLG_OK:
                in_index = False
                start = hint.entry.value if hint.entry.value > 0 else 0
                status = slg_fetch_find(self._fd, start, size, offset,
                                        slg_fetch_first_read(offset, start, &hint.entry,
                                                             &hint.next, self._last_size),
                                        window, found, &error)
        if status == SLG_END:
            return False
        check(status, &error, self.index.path if in_index else self.path)
        self._last_size = found.size
        return True

    def find(self, int64_t offset, int64_t size, int64_t entries=-1):
        """(base offset, position, size) of the batch that contains `offset`, or of the first one
        after it; None if there is none in the first `size` bytes."""
        cdef slg_fetch_window window
        cdef slg_fetch_batch found
        if not self.locate(offset, size, entries, &window, &found):
            return None
        return found.base_offset, found.position, found.size

    def fetch(self, int64_t offset, int64_t size, int64_t entries, int64_t max_length,
              int64_t max_position, bint min_one_message):
        """The batch that `find` finds and the bytes after it, up to `max_length` bytes and up to
        `max_position` in the log (-1: unknown, which returns no bytes). `min_one_message` raises
        the limit to the size of that batch. None if `find` returns None; IllegalArgumentError if
        `max_position` is before the batch."""
        cdef slg_fetch_window window
        cdef slg_fetch_batch found
        cdef LogOffsetMetadata place
        cdef bytes data
        cdef int64_t length, skip
        cdef bint incomplete
        if not self.locate(offset, size, entries, &window, &found):
            return None
        place = LogOffsetMetadata.make(found.base_offset, self.base_offset, found.position)
        length = max_length
        if min_one_message and length < found.size:
            length = found.size
        if length == 0 or max_position < 0:
            return FetchDataInfo.make(place, b"", False)
        incomplete = length < found.size
        length = min(length, min(max_position, size) - found.position)
        if length < 0:
            raise IllegalArgumentError(f"Invalid size: {length} in read from {self.path}")
        skip = found.position - window.position
        if skip >= 0 and skip + length <= <int64_t>window.size:
            data = PyBytes_FromStringAndSize(<char *>window.data + skip, <Py_ssize_t>length)
        else:
            data = self.read_from(found.position, length, found.size)
        return FetchDataInfo.make(place, data, incomplete)

    cpdef bytes read(self, int64_t position, int64_t length):
        """Exactly `length` bytes at `position`; KafkaStorageError if the file ends before."""
        return self.read_from(position, length, length)

    cdef bytes read_from(self, int64_t position, int64_t length, int64_t least):
        """As `read`, but at least `least` bytes if those after them cannot be read: the batches
        before a bad page are delivered, and the next read fails."""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>length)
        cdef char *into = PyBytes_AS_STRING(data)
        cdef slg_error error
        cdef slg_status status
        with nogil:
            status = slg_pread_exact(self._fd, into, <size_t>length, position, &error)
        if status == SLG_IO and 0 < least <= error.position - position:
            return data[:error.position - position]
        check(status, &error, self.path)
        return data

    def read_batches(self, int64_t position, int64_t end, int64_t max_bytes,
                     int64_t stop_offset=INT64_MAX):
        """(bytes, base offset, next offset) of whole batches from `position`, where one begins.

        They end at or before `end`, take up to `max_bytes` (or are one larger batch), and only the
        first may begin at or above `stop_offset`. CorruptRecordError for an invalid length.
        """
        cdef int64_t length = min(max(max_bytes, <int64_t>SLG_BATCH_HEADER_SIZE), end - position)
        cdef slg_fetch_span span
        cdef slg_error error, other
        cdef slg_status status, whole
        cdef PyObject *data = NULL
        cdef uint8_t *into
        try:
            while length > 0:
                data = new_bytes(NULL, <Py_ssize_t>length)
                into = <uint8_t *>bytes_data(data)
                with nogil:
                    status = slg_pread_exact(self._fd, into, <size_t>length, position, &error)
                    if status == SLG_OK:
                        status = slg_fetch_whole(into, <size_t>length, position, stop_offset,
                                                 &span, &error)
                    elif status == SLG_IO:  # the batches before a bad page are sound
                        whole = slg_fetch_whole(into, <size_t>(error.position - position), position,
                                                stop_offset, &span, &other)
                        if whole != SLG_OK:
                            status = whole
                            error = other
                        elif span.size:
                            status = SLG_OK
                check(status, &error, self.path)
                if span.size:
                    if <int64_t>span.size < length:
                        _PyBytes_Resize(&data, <Py_ssize_t>span.size)
                    return <bytes>data, span.base_offset, span.next_offset
                Py_CLEAR(data)
                if not length < <int64_t>span.first_size <= end - position:
                    break
                length = <int64_t>span.first_size
            status = slg_fail(&error, SLG_BATCH_SIZE, position, end - position, length)
            check(status, &error, self.path)
        finally:
            Py_XDECREF(data)
