"""Offset, time and transaction index files: lookups as Kafka does them, entries as arrays."""

import os

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport INT64_MAX

from seglog._native.capi cimport *
from seglog._native.capi_index cimport *
from seglog._native.file cimport encoded
from seglog._native.status cimport check
from seglog._native.window cimport WindowSource, failure_of, source_of

OFFSET_ENTRY_DTYPE = np.dtype([("offset", np.int64), ("position", np.int32)])
TIME_ENTRY_DTYPE = np.dtype([("timestamp", np.int64), ("offset", np.int64)])
ABORTED_TXN_DTYPE = np.dtype([
    ("producer_id", np.int64), ("first_offset", np.int64), ("last_offset", np.int64),
    ("last_stable_offset", np.int64), ("version", np.int16),
])
COPY_MAX = SLG_INDEX_COPY_MAX

#: The entries of the files; offsets count from the base offset.
STORED_OFFSET_DTYPE = np.dtype([("offset", ">i4"), ("position", ">i4")])
STORED_TIME_DTYPE = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_STORED_TXN = np.dtype([
    ("version", ">i2"), ("producer_id", ">i8"), ("first_offset", ">i8"), ("last_offset", ">i8"),
    ("last_stable_offset", ">i8"),
])


# How often an index that shrinks while it is read is opened again.
cdef enum:
    ATTEMPTS = 5


@cython.final
cdef class IndexReader:
    """An offset index (or, with `times`, a time index) searched as Kafka does; its answers are
    trusted.

    With `mapped`, how many bytes the file may get at least, lookups find entries in memory: for the
    process that holds the lock of its directory, asks for no entry that was not written, and calls
    `detach` before it takes entries away. Others read entries by pread.

    A missing file is an index without entries. The descriptor lives as long as the object, so a
    thread that searches never loses it. `entries` is the number that the file can hold when it is
    opened; every lookup may pass another number of entries in use.
    """

    def __cinit__(self):
        self.file.fd = -1

    def __init__(self, path, int64_t base_offset, *, bint times=False, int64_t mapped=0):
        cdef slg_error error
        if self.path is not None:
            raise RuntimeError("the index is open already")
        self.open(path, SLG_INDEX_KIND_TIME if times else SLG_INDEX_KIND_OFFSET, base_offset,
                  SLG_INDEX_TRUSTING)
        if mapped > 0:
            # Where it cannot be mapped (too many maps) it is read.
            slg_index_file_map(&self.file, <size_t>max(self.file.file_size, mapped), &error)

    def __dealloc__(self):
        slg_index_file_close(&self.file)

    cdef int open(self, object path, slg_index_kind kind, int64_t base_offset,
                  slg_index_policy policy) except -1:
        cdef bytes name = encoded(path)
        cdef const char *c_name = name
        cdef slg_error error
        cdef slg_status status
        self.path = os.fspath(path)
        with nogil:
            status = slg_index_file_open(&self.file, kind, base_offset, policy, c_name, &error)
        return check(status, &error, path)

    @property
    def base_offset(self):
        """The base offset of the segment."""
        return self.file.base_offset

    @property
    def entries(self):
        """Entries of the file when it was opened."""
        return self.file.entries

    @property
    def mapped_bytes(self):
        """Bytes of the file that lookups find in memory; 0 for one that is read."""
        return 0 if self.file.fd < 0 or self.file.detached else self.file.held

    def detach(self):
        """Lookups read the file from now on, which may be cut then. From any thread."""
        cdef slg_error error
        check(slg_index_file_detach(&self.file, &error), &error, self.path)

    cdef slg_status ask(self, int64_t entries, slg_index_bound bound, int64_t target,
                        slg_index_found *found, slg_error *error) noexcept:
        cdef size_t count = self.file.entries if entries < 0 else <size_t>entries
        if self.file.fd < 0:
            return slg_index_file_search(&self.file, count, bound, target, found, error)
        with nogil:
            return slg_index_file_search(&self.file, count, bound, target, found, error)

    def lookup(self, int64_t target, int64_t entries=-1):
        """The last entry whose key is at most `target`. If there is none, the result for an empty
        index: (base offset, 0), or (-1, base offset) for a time index."""
        return self.search(entries, SLG_INDEX_LOWER, target)

    def upper_bound(self, int64_t position, int64_t entries=-1):
        """The first entry of an offset index with a position of at least `position`, or None."""
        return self.search(entries, SLG_INDEX_UPPER_VALUE, position)

    cdef object search(self, int64_t entries, slg_index_bound bound, int64_t target):
        cdef slg_index_found found
        cdef slg_error error
        check(self.ask(entries, bound, target, &found, &error), &error, self.path)
        return answer(bound, &found)

    cdef slg_status copy(self, bytearray into, slg_error *error) except *:
        cdef uint8_t *address
        PyByteArray_Resize(into, <Py_ssize_t>self.file.size)
        address = <uint8_t *>PyByteArray_AS_STRING(into)
        with nogil:
            return slg_index_file_read(&self.file, address, error)


cdef object answer(slg_index_bound bound, const slg_index_found *found):
    """(key, value) of the entry; None for an upper bound that no entry is."""
    if found.slot < 0 and bound == SLG_INDEX_UPPER_VALUE:
        return None
    return found.entry.key, found.entry.value


cdef IndexReader proving(object path, slg_index_kind kind, int64_t base_offset, object content):
    """An open index of a reader that proves what it answers; of `content`, if that is not None."""
    cdef IndexReader made = IndexReader.__new__(IndexReader)
    cdef Py_buffer view
    cdef slg_error error
    cdef slg_status status
    if content is None:
        made.open(path, kind, base_offset, SLG_INDEX_PROVING)
        return made
    made.path = path
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    status = slg_index_file_copy(&made.file, kind, base_offset, <const uint8_t *>view.buf,
                                 <size_t>view.len, &error)
    PyBuffer_Release(&view)
    check(status, &error, path)
    return made


def search_entries(WindowSource source not None, size_t entries, int64_t base_offset,
                   int64_t target, *, bint times=False, bint by_value=False):
    """(slot, key, value) of the last of so many stored entries of a WindowSource whose key (with
    `by_value`, its value) is at most `target`. Slot -1 and the result for an empty index if there
    is none. Raises what the source raises."""
    cdef slg_index_kind kind = SLG_INDEX_KIND_TIME if times else SLG_INDEX_KIND_OFFSET
    cdef slg_index_file file = slg_index_file_through(kind, base_offset, source_of(source), entries)
    cdef slg_index_found found
    cdef slg_error error
    cdef slg_status status
    with nogil:
        status = slg_index_file_search(
            &file, entries, SLG_INDEX_LOWER_VALUE if by_value else SLG_INDEX_LOWER, target, &found,
            &error)
    failure = failure_of(source)
    if failure is not None:
        raise failure
    check(status, &error, None)
    return found.slot, found.entry.key, found.entry.value


cdef class _IndexView:
    """An index beside a process that may change it: answers are hints, which the caller proves with
    the log. Nothing is opened before the first question, and an index that shrank is opened again.
    """

    cdef readonly object path
    cdef readonly int64_t base_offset
    cdef slg_index_kind _kind
    # A search holds a reference, so close() cannot pull it away from under another thread.
    cdef IndexReader _held
    cdef object _fetch

    def __init__(self, path, int64_t base_offset, *, fetch=None):
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self._fetch = fetch

    cdef IndexReader _opened(self):
        cdef IndexReader held
        with cython.critical_section(self):
            held = self._held
            if held is None or slg_index_file_shrank(&held.file):
                self._held = None
                held = proving(self.path, self._kind, self.base_offset,
                               None if self._fetch is None else self._fetch())
                self._held = held
        return held

    def close(self):
        """Closes the file. A later lookup opens it again."""
        with cython.critical_section(self):
            self._held = None

    cdef object _search(self, slg_index_bound bound, int64_t target):
        cdef slg_index_found found
        cdef slg_error error
        cdef slg_status status = SLG_OK
        cdef int attempt
        for attempt in range(ATTEMPTS):
            status = self._opened().ask(-1, bound, target, &found, &error)
            if status != SLG_FILE_SHRANK:
                break
        check(status, &error, self.path)
        return answer(bound, &found)

    cdef bytearray _copied(self):
        cdef bytearray into = bytearray()
        cdef slg_error error
        cdef slg_status status = SLG_OK
        cdef int attempt
        for attempt in range(ATTEMPTS):
            status = self._opened().copy(into, &error)
            if status != SLG_FILE_SHRANK:
                break
        check(status, &error, self.path)
        return into

    @property
    def is_open(self):
        """Whether memory or a descriptor is held."""
        return self._held is not None

    @property
    def holds_descriptor(self):
        """Whether entries are read where a question needs them: large files only."""
        cdef IndexReader held = self._held
        return held is not None and held.file.fd >= 0

    @property
    def entries(self):
        """Entries in use; 0 for a file that is empty or missing."""
        return self._opened().file.entries

    @property
    def file_size(self):
        """Bytes of the file when it was opened; None for a missing one."""
        cdef int64_t size = self._opened().file.file_size
        return None if size < 0 else size

    def lookup(self, int64_t target):
        """The last entry whose key is <= `target`; where there is none, that of an empty index."""
        return self._search(SLG_INDEX_LOWER, target)

    @property
    def last_entry(self):
        """The last entry in use, or that of an empty index."""
        return self._search(SLG_INDEX_LOWER, INT64_MAX)


cdef class OffsetIndexView(_IndexView):
    """An offset index: (offset, position) pairs. An empty one answers (base offset, 0)."""

    def __cinit__(self):
        self._kind = SLG_INDEX_KIND_OFFSET

    def upper_bound(self, int64_t position):
        """The first entry with a position of at least `position`, or None."""
        return self._search(SLG_INDEX_UPPER_VALUE, position)

    def to_numpy(self):
        """All entries, offsets absolute: OFFSET_ENTRY_DTYPE."""
        stored = np.frombuffer(self._copied(), STORED_OFFSET_DTYPE)
        entries = np.empty(len(stored), OFFSET_ENTRY_DTYPE)
        entries["offset"] = stored["offset"].astype(np.int64) + self.base_offset
        entries["position"] = stored["position"]
        return entries


cdef class TimeIndexView(_IndexView):
    """A time index: (timestamp, offset) pairs. An empty one answers (-1, base offset)."""

    def __cinit__(self):
        self._kind = SLG_INDEX_KIND_TIME

    def to_numpy(self):
        """All entries, offsets absolute: TIME_ENTRY_DTYPE."""
        stored = np.frombuffer(self._copied(), STORED_TIME_DTYPE)
        entries = np.empty(len(stored), TIME_ENTRY_DTYPE)
        entries["timestamp"] = stored["timestamp"]
        entries["offset"] = stored["offset"].astype(np.int64) + self.base_offset
        return entries


def read_aborted(path, content=None):
    """The whole entries of a transaction index (ABORTED_TXN_DTYPE); none for a missing file.

    `content` is that of the file where it was read already.

    As Kafka's reader: a torn entry at the end is left out, and a version whose first byte is
    above 0 raises CorruptIndexError (code txn_version).
    """
    cdef slg_error error
    cdef bytearray copied = bytearray()
    check(proving(path, SLG_INDEX_KIND_TXN, 0, content).copy(copied, &error), &error, path)
    stored = np.frombuffer(copied, _STORED_TXN)
    unknown = np.flatnonzero(stored["version"] >= 256)
    if len(unknown):
        version = int(stored["version"][unknown[0]])
        check(slg_fail(&error, SLG_TXN_VERSION, int(unknown[0]) * SLG_TXN_ENTRY_SIZE, 0, version),
              &error, path)
    aborted = np.empty(len(stored), ABORTED_TXN_DTYPE)
    for name in ABORTED_TXN_DTYPE.names:
        aborted[name] = stored[name]
    return aborted
