"""Offset, time and transaction index files: lookups as Kafka does them, entries as arrays."""

import os

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize

from seglog._native.capi cimport *
from seglog._native.capi_index cimport *
from seglog._native.status cimport check

OFFSET_ENTRY_DTYPE = np.dtype([("offset", np.int64), ("position", np.int32)])
TIME_ENTRY_DTYPE = np.dtype([("timestamp", np.int64), ("offset", np.int64)])
ABORTED_TXN_DTYPE = np.dtype([
    ("producer_id", np.int64), ("first_offset", np.int64), ("last_offset", np.int64),
    ("last_stable_offset", np.int64), ("version", np.int16),
])
COPY_MAX = SLG_INDEX_COPY_MAX

_STORED_OFFSET = np.dtype([("offset", ">i4"), ("position", ">i4")])
_STORED_TIME = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_STORED_TXN = np.dtype([
    ("version", ">i2"), ("producer_id", ">i8"), ("first_offset", ">i8"), ("last_offset", ">i8"),
    ("last_stable_offset", ">i8"),
])


# How often an index that shrinks while it is read is opened again.
cdef enum:
    ATTEMPTS = 5

cdef enum _Question:
    AT_SLOT, LAST, LOOKUP, UPPER_BOUND


cdef class _IndexBytes:
    """Owns an opened index file. A search holds a reference, so close() cannot pull it
    away from under a search in another thread."""

    cdef slg_index_file file

    def __cinit__(self):
        self.file.data = NULL
        self.file.fd = -1

    def __dealloc__(self):
        slg_index_file_close(&self.file)

    @staticmethod
    cdef _IndexBytes open(object path, slg_index_kind kind):
        cdef _IndexBytes opened = _IndexBytes()
        cdef bytes raw = os.fsencode(path)
        cdef const char *c_path = raw
        cdef slg_error error
        cdef slg_status status
        with nogil:
            status = slg_index_file_open(&opened.file, kind, c_path, &error)
        check(status, &error, path)
        return opened

    @staticmethod
    cdef _IndexBytes of(object content, slg_index_kind kind, object path):
        cdef _IndexBytes opened = _IndexBytes()
        cdef Py_buffer view
        cdef slg_error error
        cdef slg_status status
        PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
        status = slg_index_file_copy(&opened.file, kind, <const uint8_t *>view.buf,
                                     <size_t>view.len, &error)
        PyBuffer_Release(&view)
        check(status, &error, path)
        return opened

    cdef slg_status copy(self, bytearray into, slg_error *error) except *:
        cdef uint8_t *address
        PyByteArray_Resize(into, <Py_ssize_t>self.file.size)
        address = <uint8_t *>PyByteArray_AS_STRING(into)
        with nogil:
            return slg_index_file_read(&self.file, address, error)

    cdef slg_status ask(self, slg_index_kind kind, int64_t base_offset, _Question what,
                        int64_t argument, int64_t *slot, slg_index_entry *entry,
                        slg_error *error) noexcept nogil:
        """The slot that answers, -1 for none, and its entry."""
        cdef slg_status status = SLG_OK
        if what == AT_SLOT:
            slot[0] = argument
        elif what == LAST:
            slot[0] = <int64_t>self.file.entries - 1
        elif what == LOOKUP:
            status = slg_index_file_lookup(&self.file, kind, base_offset, argument, slot, error)
        else:
            status = slg_index_file_upper_bound(&self.file, argument, slot, error)
        if status == SLG_OK and slot[0] >= 0:
            status = slg_index_file_entry(&self.file, kind, <size_t>slot[0], base_offset, entry,
                                          error)
        return status


cdef class _IndexView:
    """What offset and time index share. Nothing is opened before the first question."""

    cdef readonly object path
    cdef readonly int64_t base_offset
    cdef slg_index_kind _kind
    cdef _IndexBytes _bytes
    cdef object _fetch

    def __init__(self, path, int64_t base_offset, *, fetch=None):
        self.path = os.fspath(path)
        self.base_offset = base_offset
        self._fetch = fetch

    cdef _IndexBytes _opened(self):
        cdef _IndexBytes held
        with cython.critical_section(self):
            held = self._bytes
            if held is None or slg_index_file_shrank(&held.file):
                self._bytes = None
                held = (_IndexBytes.open(self.path, self._kind) if self._fetch is None else
                        _IndexBytes.of(self._fetch(), self._kind, self.path))
                self._bytes = held
        return held

    def close(self):
        """Closes the file. A later lookup opens it again."""
        with cython.critical_section(self):
            self._bytes = None

    cdef object _ask(self, _Question what, int64_t argument):
        """(key, value) of the entry that answers; None without one."""
        cdef _IndexBytes held
        cdef slg_index_entry entry
        cdef slg_error error
        cdef slg_status status = SLG_OK
        cdef int64_t slot = -1
        cdef int attempt
        for attempt in range(ATTEMPTS):
            held = self._opened()
            if what == AT_SLOT and not 0 <= argument < <int64_t>held.file.entries:
                raise IndexError(self._no_entry(argument, held.file.entries))
            if held.file.fd < 0:
                status = held.ask(self._kind, self.base_offset, what, argument, &slot, &entry,
                                  &error)
            else:
                with nogil:
                    status = held.ask(self._kind, self.base_offset, what, argument, &slot, &entry,
                                      &error)
            if status != SLG_FILE_SHRANK:
                break
        check(status, &error, self.path)
        return (entry.key, entry.value) if slot >= 0 else None

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
        return self._bytes is not None

    @property
    def holds_descriptor(self):
        """Whether entries are read where a question needs them: large files only."""
        cdef _IndexBytes held = self._bytes
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

    def entry(self, int64_t n):
        """Entry `n`, absolute; IndexError beyond the end, with Kafka's sentence."""
        return self._ask(AT_SLOT, n)

    def lookup(self, int64_t target):
        """The last entry whose key is <= `target`; where there is none, that of an empty index."""
        found = self._ask(LOOKUP, target)
        return self._nothing() if found is None else found

    @property
    def last_entry(self):
        """The last entry in use, or that of an empty index."""
        found = self._ask(LAST, 0)
        return self._nothing() if found is None else found

    cdef object _nothing(self):
        return None

    cdef object _no_entry(self, Py_ssize_t n, size_t entries):
        return None


cdef class OffsetIndexView(_IndexView):
    """An offset index: (offset, position) pairs. An empty one answers (base offset, 0)."""

    def __cinit__(self):
        self._kind = SLG_INDEX_KIND_OFFSET

    cdef object _nothing(self):
        return (self.base_offset, 0)

    cdef object _no_entry(self, Py_ssize_t n, size_t entries):
        return (f"Attempt to fetch the {n}th entry from index {self.path}, "
                f"which has size {entries}")

    def upper_bound(self, int64_t position, int64_t size):
        """The first entry at or behind `position` + `size`, as Kafka's fetchUpperBoundOffset
        finds it, or None."""
        return self._ask(UPPER_BOUND, position + size)

    def to_numpy(self):
        """All entries, offsets absolute: OFFSET_ENTRY_DTYPE."""
        stored = np.frombuffer(self._copied(), _STORED_OFFSET)
        entries = np.empty(len(stored), OFFSET_ENTRY_DTYPE)
        entries["offset"] = stored["offset"].astype(np.int64) + self.base_offset
        entries["position"] = stored["position"]
        return entries


cdef class TimeIndexView(_IndexView):
    """A time index: (timestamp, offset) pairs. An empty one answers (-1, base offset)."""

    def __cinit__(self):
        self._kind = SLG_INDEX_KIND_TIME

    cdef object _nothing(self):
        return (-1, self.base_offset)

    cdef object _no_entry(self, Py_ssize_t n, size_t entries):
        return (f"Attempt to fetch the {n}th entry from time index {self.path} "
                f"which has size {entries}")

    def to_numpy(self):
        """All entries, offsets absolute: TIME_ENTRY_DTYPE."""
        stored = np.frombuffer(self._copied(), _STORED_TIME)
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
    cdef _IndexBytes opened
    if content is None:
        opened = _IndexBytes.open(path, SLG_INDEX_KIND_TXN)
    else:
        opened = _IndexBytes.of(content, SLG_INDEX_KIND_TXN, path)
    check(opened.copy(copied, &error), &error, path)
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
