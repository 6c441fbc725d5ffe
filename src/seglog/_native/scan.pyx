"""One pass over a partition directory, and the checks of its segments, as numpy arrays."""

import os
from enum import IntEnum

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy
from posix.fcntl cimport AT_FDCWD

from seglog._native.capi cimport *
from seglog._native.capi_index cimport *
from seglog._native.file cimport encoded
from seglog._native.status cimport check

# A million segments in one call: the problems of a slice are taken before the next one is checked.
cdef enum:
    SLICE = 4096

NO_END_OFFSET = INT64_MAX

PROBLEM_DTYPE = np.dtype([
    ("row", np.int64), ("position", np.int64), ("expected", np.int64), ("found", np.int64),
    ("status", np.int32), ("sys_errno", np.int32), ("file", np.int32), ("unused", np.int32),
])
_NUMBERED_DTYPE = np.dtype([("number", np.int64), ("has", np.uint32), ("unused", np.uint32)])


class FileClass(IntEnum):
    """What an entry of a partition directory is (csrc/include/seglog/scan.h)."""

    LOG = SLG_FILE_LOG
    INDEX = SLG_FILE_INDEX
    TIME_INDEX = SLG_FILE_TIME_INDEX
    TXN_INDEX = SLG_FILE_TXN_INDEX
    SNAPSHOT = SLG_FILE_SNAPSHOT
    DELETED = SLG_FILE_DELETED
    CLEANED = SLG_FILE_CLEANED
    SWAP = SLG_FILE_SWAP
    LEADER_EPOCHS = SLG_FILE_LEADER_EPOCHS
    PARTITION_METADATA = SLG_FILE_PARTITION_METADATA
    RAFT_CHECKPOINT = SLG_FILE_RAFT_CHECKPOINT
    QUORUM_STATE = SLG_FILE_QUORUM_STATE
    TEXT_TEMPORARY = SLG_FILE_TEXT_TEMPORARY
    OTHER_NUMBER = SLG_FILE_OTHER_NUMBER
    NOT_A_NUMBER = SLG_FILE_NOT_A_NUMBER
    FOREIGN = SLG_FILE_FOREIGN
    DIRECTORY = SLG_FILE_DIRECTORY
    LINK = SLG_FILE_LINK
    SPECIAL = SLG_FILE_SPECIAL


# The files of a segment, a bit each.
HAS_LOG = SLG_HAS_LOG
HAS_INDEX = SLG_HAS_INDEX
HAS_TIME_INDEX = SLG_HAS_TIME_INDEX
HAS_TXN_INDEX = SLG_HAS_TXN_INDEX
HAS_SNAPSHOT = SLG_HAS_SNAPSHOT


class CheckLevel(IntEnum):
    """How much of each segment `check_segments` looks at."""

    KAFKA = SLG_CHECK_KAFKA
    FULL = SLG_CHECK_FULL


class PartitionListing:
    """A partition directory as one pass saw it; arrays, not an object per file."""

    __slots__ = ("path", "base_offsets", "flags", "snapshots", "orphans", "orphan_flags",
                 "_names", "_classes")

    def __init__(self, path, numbered, names, classes):
        has_log = (numbered["has"] & HAS_LOG) != 0
        has_index = (numbered["has"] & (HAS_INDEX | HAS_TIME_INDEX | HAS_TXN_INDEX)) != 0
        has_snapshot = (numbered["has"] & HAS_SNAPSHOT) != 0
        orphan = has_index & ~has_log
        self.path = path
        self.base_offsets = numbered["number"][has_log]
        self.flags = numbered["has"][has_log].astype(np.uint8)
        self.snapshots = numbered["number"][has_snapshot]
        self.orphans = numbered["number"][orphan]
        self.orphan_flags = numbered["has"][orphan].astype(np.uint8)
        self._names = names
        self._classes = classes

    @property
    def others(self):
        """Every other entry as (name, FileClass), sorted by name."""
        names = self._names.split(b"\0")
        names.pop()  # each name ends with a NUL
        return sorted((os.fsdecode(name), FileClass(kind))
                      for name, kind in zip(names, self._classes, strict=True))

    @property
    def other_count(self):
        """len(others), without making them."""
        return len(self._classes)


class SegmentChecks:
    """What `check_segments` found: a column per fact, a row per segment."""

    __slots__ = ("log_size", "index_size", "time_index_size", "txn_index_size", "mtime_ms",
                 "status", "problems")

    def __init__(self, log_size, index_size, time_index_size, txn_index_size, mtime_ms, status,
                 problems):
        self.log_size, self.index_size = log_size, index_size
        self.time_index_size, self.txn_index_size = time_index_size, txn_index_size
        self.mtime_ms, self.status, self.problems = mtime_ms, status, problems


def classify_name(name):
    """(FileClass, number or None) of a regular file of this name."""
    cdef int64_t number = 0
    cdef bytes raw = os.fsencode(name)
    kind = FileClass(<int>slg_classify_name(raw, &number))
    numbered = (FileClass.CLEANED, FileClass.SWAP, FileClass.OTHER_NUMBER)
    return kind, number if kind <= FileClass.SNAPSHOT or kind in numbered else None


def list_names(path, names):
    """The listing of a place without directories that holds regular files of these names."""
    numbers, others, classes = {}, [], bytearray()
    for name in names:
        kind, number = classify_name(name)
        if kind <= FileClass.SNAPSHOT:
            numbers[number] = numbers.get(number, 0) | 1 << kind
        else:
            others.append(os.fsencode(name) + b"\0")
            classes.append(kind)
    numbered = np.zeros(len(numbers), _NUMBERED_DTYPE)
    numbered["number"] = sorted(numbers)
    numbered["has"] = [numbers[number] for number in sorted(numbers)]
    return PartitionListing(path, numbered, b"".join(others), bytes(classes))


def list_partition(path):
    """One pass over the directory; KafkaStorageError when it cannot be opened or read."""
    cdef slg_listing listing
    cdef slg_error error
    cdef slg_status status
    cdef bytes raw = encoded(path)
    cdef const char *c_path = raw
    cdef char[::1] into
    listing = slg_listing(NULL, 0, 0, NULL, 0, 0, NULL, 0, 0, 0)
    with nogil:
        status = slg_list_partition(AT_FDCWD, c_path, &listing, &error)
    try:
        check(status, &error, path)
        numbered = np.empty(listing.numbered_count, _NUMBERED_DTYPE)
        if listing.numbered_count > 0:
            into = numbered.view(np.int8)
            memcpy(&into[0], listing.numbered, listing.numbered_count * sizeof(slg_numbered))
        names = listing.names[:listing.names_size] if listing.names_size else b""
        classes = (<char *>listing.classes)[:listing.other_count] if listing.other_count else b""
    finally:
        slg_listing_free(&listing)
    return PartitionListing(os.fspath(path), numbered, names, classes)


def check_segments(path, base_offsets, flags, level=CheckLevel.KAFKA, *, end_offset=NO_END_OFFSET):
    """Checks the segments `base_offsets` (ascending) of the directory, without the GIL.

    `flags` are those of the listing, `end_offset` the base of the segment after the last one.
    KafkaStorageError only when the directory itself does not open.
    """
    cdef const int64_t[::1] numbers = np.ascontiguousarray(base_offsets, np.int64)
    cdef const uint8_t[::1] has = np.ascontiguousarray(flags, np.uint8)
    cdef Py_ssize_t count = numbers.shape[0]
    cdef Py_ssize_t start, size
    cdef size_t problem_count = 0
    cdef int64_t limit = end_offset
    cdef slg_check_level c_level = <slg_check_level><int>CheckLevel(level)
    cdef slg_segment_columns out
    cdef slg_error error
    cdef slg_status status
    cdef bytes raw = encoded(path)
    cdef const char *c_path = raw
    cdef char[::1] problems
    cdef int64_t[:, ::1] sizes
    cdef int32_t[::1] statuses
    if has.shape[0] != count:
        raise ValueError(f"{count} base offsets but {has.shape[0]} flags")
    columns = np.empty((5, count), np.int64)
    status_column = np.empty(count, np.int32)
    room = np.empty(min(count, SLICE) * SLG_PROBLEMS_PER_SEGMENT, PROBLEM_DTYPE)
    found = []
    sizes, statuses = columns, status_column
    problems = room.view(np.int8) if count else np.empty(0, np.int8)
    for start in range(0, count, SLICE):
        size = min(<Py_ssize_t>SLICE, count - start)
        out.log_size, out.index_size = &sizes[0, start], &sizes[1, start]
        out.time_index_size, out.txn_index_size = &sizes[2, start], &sizes[3, start]
        out.mtime_ms, out.status = &sizes[4, start], &statuses[start]
        with nogil:
            status = slg_check_segments(
                c_path, &numbers[start], &has[start], <size_t>size,
                numbers[start + size] if start + size < count else limit, c_level, &out,
                <slg_problem *>&problems[0], &problem_count, &error)
        check(status, &error, path)
        if problem_count:
            some = room[:problem_count].copy()
            some["row"] += start
            found.append(some)
    return SegmentChecks(*columns, status_column,
                         np.concatenate(found) if found else np.empty(0, PROBLEM_DTYPE))


def segment_ends(path, base_offsets, flags):
    """(bytes of the log, offset after its last batch) of segments of a directory, as two arrays:
    `LogSegment.read_next_offset` without an object for each. `flags` are those of the listing; -1
    where only the segment itself can say it or why not.
    """
    cdef const int64_t[::1] numbers = np.ascontiguousarray(base_offsets, np.int64)
    cdef const uint8_t[::1] has = np.ascontiguousarray(flags, np.uint8)
    cdef Py_ssize_t count = numbers.shape[0]
    cdef Py_ssize_t start, size
    cdef int64_t[:, ::1] out
    cdef slg_error error
    cdef slg_status status
    cdef bytes raw = encoded(path)
    cdef const char *c_path = raw
    if has.shape[0] != count:
        raise ValueError(f"{count} base offsets but {has.shape[0]} flags")
    columns = np.empty((2, count), np.int64)
    out = columns
    for start in range(0, count, SLICE):
        size = min(<Py_ssize_t>SLICE, count - start)
        with nogil:
            status = slg_segment_ends(c_path, &numbers[start], &has[start], <size_t>size,
                                      &out[0, start], &out[1, start], &error)
        check(status, &error, path)
        PyErr_CheckSignals()
    return columns[0], columns[1]
