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
from seglog._native.capi_fetch cimport *
from seglog._native.status cimport as_exception, check

cdef extern from "Python.h":
    # Without Cython's count of references, because a resize may move the object.
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    char *bytes_data "PyBytes_AS_STRING"(PyObject *data) noexcept
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1


cdef int open_file(object path, int *fd, int64_t *size, bint may_miss) except -1:
    cdef bytes name = os.fsencode(path)
    cdef const char *c_name = name
    cdef slg_error error
    cdef slg_status status
    if b"\0" in name:
        raise ValueError("embedded null byte")
    with nogil:
        status = slg_open_read(AT_FDCWD, c_name, False, fd, size, &error)
    if may_miss and status == SLG_FILE_MISSING:
        fd[0] = -1
        size[0] = 0
        return 0
    return check(status, &error, path)


@final
cdef class IndexReader:
    """An offset index (or, with `times`, a time index) searched as Kafka does, by pread.

    A missing file is an index without entries. The descriptor lives as long as the object, so a
    thread that searches never loses it. `entries` are those that the file has room for when it is
    opened; every question may name another number of entries in use.
    """

    cdef readonly object path
    cdef readonly int64_t base_offset
    cdef readonly int64_t entries
    cdef slg_index_kind _kind
    cdef int _fd

    def __cinit__(self):
        self._fd = -1

    def __init__(self, path, int64_t base_offset, *, bint times=False):
        cdef int64_t size = 0
        cdef int fd = -1
        if self._fd >= 0:
            raise RuntimeError("the index is open already")
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self._kind = SLG_INDEX_KIND_TIME if times else SLG_INDEX_KIND_OFFSET
        open_file(path, &fd, &size, True)
        self._fd = fd
        self.entries = size // <int64_t>slg_index_entry_size(self._kind)

    def __dealloc__(self):
        if self._fd >= 0:
            close(self._fd)

    cdef slg_fetch_index view(self, int64_t entries) noexcept:
        cdef slg_fetch_index index
        index.kind = self._kind
        index.fd = self._fd
        index.base_offset = self.base_offset
        index.entries = <size_t>(self.entries if entries < 0 else entries)
        return index

    cdef slg_index_entry search(self, slg_fetch_bound bound, int64_t target, int64_t entries,
                                int64_t *slot) except *:
        cdef slg_fetch_index index = self.view(entries)
        cdef slg_index_entry entry
        cdef slg_error error
        cdef slg_status status
        with nogil:
            status = slg_fetch_search(&index, bound, target, slot, &entry, &error)
        check(status, &error, self.path)
        return entry

    def lookup(self, int64_t target, int64_t entries=-1):
        """The last entry whose key is at most `target`; where there is none, that of an empty
        index: (base offset, 0), or (-1, base offset) of a time index."""
        cdef int64_t slot = -1
        cdef slg_index_entry entry = self.search(SLG_FETCH_LOWER, target, entries, &slot)
        return entry.key, entry.value

    def upper_bound(self, int64_t position, int64_t entries=-1):
        """Of an offset index: the first entry with a position of at least `position`, or None."""
        cdef int64_t slot = -1
        cdef slg_index_entry entry = self.search(SLG_FETCH_UPPER_POSITION, position, entries,
                                                 &slot)
        return None if slot < 0 else (entry.key, entry.value)


@final
cdef class SegmentReader:
    """The log and the offset index of one segment, open for reading.

    Sizes and numbers of entries are the caller's at each call, because a writer may be adding to
    the files. Safe from any thread; the descriptors are closed with the last reference.
    """

    cdef readonly object path
    cdef readonly int64_t base_offset
    cdef readonly IndexReader index
    #: Bytes of the log when it was opened.
    cdef readonly int64_t size
    cdef int _fd

    def __cinit__(self):
        self._fd = -1

    def __init__(self, path, index_path, int64_t base_offset):
        cdef int64_t size = 0
        cdef int fd = -1
        if self._fd >= 0:
            raise RuntimeError("the segment is open already")
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self.index = IndexReader(index_path, base_offset)
        open_file(path, &fd, &size, False)
        self._fd = fd
        self.size = size

    def __dealloc__(self):
        if self._fd >= 0:
            close(self._fd)

    def fileno(self):
        """The descriptor of the log, good as long as this object is."""
        return self._fd

    cdef bint locate(self, int64_t offset, int64_t size, int64_t entries,
                     slg_fetch_window *window, slg_fetch_batch *found) except -1:
        """Whether there is a batch at or above `offset`."""
        cdef slg_fetch_index index = self.index.view(entries)
        cdef slg_index_entry entry
        cdef slg_error error
        cdef slg_status status
        cdef int64_t slot = -1
        cdef bint in_index = True
        with nogil:
            status = slg_fetch_search(&index, SLG_FETCH_LOWER, offset, &slot, &entry, &error)
            if status == SLG_OK:
                in_index = False
                status = slg_fetch_find(self._fd, entry.value if entry.value > 0 else 0, size,
                                        offset, window, found, &error)
        if status == SLG_END:
            return False
        check(status, &error, self.index.path if in_index else self.path)
        return True

    def find(self, int64_t offset, int64_t size, int64_t entries=-1):
        """(base offset, position, size) of the batch that holds `offset`, or of the first above
        it; None if there is none in the first `size` bytes."""
        cdef slg_fetch_window window
        cdef slg_fetch_batch found
        if not self.locate(offset, size, entries, &window, &found):
            return None
        return found.base_offset, found.position, found.size

    def fetch(self, int64_t offset, int64_t size, int64_t entries, int64_t max_length,
              int64_t max_position, bint min_one_message):
        """(base offset, position, size, bytes) of the batch that `find` finds and of what follows
        it, up to `max_length` bytes and the byte `max_position` of the log (-1: not known, which
        gives no bytes). With `min_one_message` the limit is at least that batch."""
        cdef slg_fetch_window window
        cdef slg_fetch_batch found
        cdef bytes data
        cdef int64_t length, skip
        if not self.locate(offset, size, entries, &window, &found):
            return None
        length = max_length
        if min_one_message and length < found.size:
            length = found.size
        if length == 0 or max_position < 0:
            return found.base_offset, found.position, found.size, b""
        length = min(length, min(max_position, size) - found.position)
        if length < 0:
            return found.base_offset, found.position, found.size, None
        skip = found.position - window.position
        if skip >= 0 and skip + length <= <int64_t>window.size:
            data = PyBytes_FromStringAndSize(<char *>window.data + skip, <Py_ssize_t>length)
        else:
            data = self.read(found.position, length)
        return found.base_offset, found.position, found.size, data

    cpdef bytes read(self, int64_t position, int64_t length):
        """Exactly `length` bytes from `position`; KafkaStorageError where the file ends before."""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>length)
        cdef char *into = PyBytes_AS_STRING(data)
        cdef slg_error error
        cdef slg_status status
        with nogil:
            status = slg_pread_exact(self._fd, into, <size_t>length, position, &error)
        check(status, &error, self.path)
        return data

    def read_batches(self, int64_t position, int64_t end, int64_t max_bytes,
                     int64_t stop_offset=INT64_MAX):
        """(bytes, base offset, next offset) of the whole batches from `position`, where one begins,
        to the byte `end` at most: up to `max_bytes`, or one batch that is larger, and none but the
        first that begins at or above `stop_offset`.

        CorruptRecordError for a length that no batch of these bytes has.
        """
        cdef int64_t length = min(max(max_bytes, <int64_t>SLG_BATCH_HEADER_SIZE), end - position)
        cdef slg_fetch_span span
        cdef slg_error error
        cdef slg_status status
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
