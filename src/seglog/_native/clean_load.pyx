"""Partitions that were closed cleanly or lost nothing in a crash, many per call, as rows of one
array."""

import os

import numpy as np

cimport cython
from libc.string cimport memcpy, memset

from seglog._native.capi cimport *
from seglog._native.capi_index cimport *
from seglog._native.file cimport encoded
from seglog._native.status cimport check

CLEAN_DTYPE = np.dtype([
    ("log_start_offset", np.int64), ("recovery_point", np.int64),
    ("index_interval_bytes", np.int64), ("index_bytes", np.int64), ("log_end_offset", np.int64),
    ("segments", np.int64), ("filled_segments", np.int64), ("first_base_offset", np.int64),
    ("second_base_offset", np.int64),
    ("last_base_offset", np.int64), ("size", np.int64), ("first_size", np.int64),
    ("last_size", np.int64), ("last_batches", np.int64), ("last_records", np.int64),
    ("index_size", np.int64), ("time_index_size", np.int64), ("producers", np.int64),
    ("producers_at", np.int64), ("stray_snapshot", np.int64), ("snapshot_at", np.int64),
    ("snapshot_size", np.int64), ("indexes_at", np.int64),
    ("leader_epoch", np.int32), ("has_topic_id", np.bool_),
    ("has_snapshot", np.bool_), ("plain", np.bool_), ("has_longer_indexes", np.bool_),
    ("topic_id", np.uint8, SLG_TOPIC_ID_BYTES),
])
assert CLEAN_DTYPE.itemsize == sizeof(slg_clean_partition)


@cython.final
cdef class _Directories:
    """Partition directories `names` of the data directory `root`, as C takes them."""

    cdef bytes _root, _names
    cdef const char *root
    cdef const char *names
    cdef size_t count

    def __init__(self, root, names):
        self._root = os.path.abspath(encoded(root))
        self._names = b"".join([encoded(name) + b"\0" for name in names])
        self.root, self.names, self.count = self._root, self._names, len(names)


def load_clean(root, names, log_start_offsets, *, size_t segments_max=0, bint will_write=True,
               bint check_crcs=False, after_crash=None, int64_t now_ms=0,
               int64_t producer_idle_ms=0):
    """(rows of CLEAN_DTYPE, timestamps of their producers, contents of files) of the partition
    directories `names`.

    `log_start_offsets` are those of the checkpoint, 0 for none. A row that is not `plain` says
    nothing else; one with more than `segments_max` segments never is (0: however many), nor, with
    `will_write`, one whose last indexes are not writable, nor, with `check_crcs`, one whose last
    segment has a bad batch or more than 1 MiB. MemoryError is all that is raised.

    `after_crash` (after an unclean shutdown): the recovery point, index.interval.bytes and
    segment.index.bytes of each partition, three arrays. A partition whose logs a recovery changes
    is not plain; of others `recovery_point` is how far they are flushed, and the index sizes are
    those of the entries. A recovery drops producers that were idle for `producer_idle_ms` at
    `now_ms` (0: none). Bytes `snapshot_at` to `snapshot_at + snapshot_size` of the contents are the
    snapshot that the caller writes at the log's end; -1 where it is there. The indexes of the last
    segment are at `indexes_at`, for `write_indexes`; -1 where they are there.
    """
    cdef _Directories dirs = _Directories(root, names)
    cdef unsigned checks = ((SLG_CLEAN_WRITABLE if will_write else 0)
                            | (SLG_CLEAN_CRCS if check_crcs else 0)
                            | (0 if after_crash is None else SLG_CLEAN_AFTER_CRASH))
    cdef slg_clean_table table
    cdef slg_error error
    cdef slg_status status
    cdef char[::1] into
    cdef int64_t[::1] out
    rows = np.zeros(dirs.count, CLEAN_DTYPE)
    if dirs.count == 0:
        return rows, np.empty(0, np.int64), b""
    rows["log_start_offset"] = log_start_offsets
    if after_crash is not None:
        for column, values in zip(("recovery_point", "index_interval_bytes", "index_bytes"),
                                  after_crash, strict=True):
            rows[column] = values
    into = rows.view(np.int8)
    memset(&table, 0, sizeof(table))
    table.now_ms, table.producer_idle_ms = now_ms, producer_idle_ms
    with nogil:
        status = slg_clean_load(dirs.root, dirs.names, dirs.count, segments_max, checks,
                                <slg_clean_partition *>&into[0], &table, &error)
    try:
        check(status, &error, root)
        timestamps = np.empty(table.timestamp_count, np.int64)
        if table.timestamp_count > 0:
            out = timestamps
            memcpy(&out[0], table.timestamps, table.timestamp_count * sizeof(int64_t))
        contents = (<char *>table.contents)[:table.contents_size] if table.contents_size else b""
    finally:
        slg_clean_table_free(&table)
    return rows, timestamps, contents


def write_indexes(root, names, rows, bytes contents not None):
    """Gives the last segments of plain rows of a load after a crash the indexes that their recovery
    found. A row whose files cannot be written is not plain afterwards; nothing else is raised."""
    cdef _Directories dirs = _Directories(root, names)
    cdef const uint8_t *data = <const uint8_t *><const char *>contents
    cdef char[::1] held
    _require_rows(names, rows)
    given = rows[rows["plain"] & (rows["indexes_at"] >= 0)]
    size = given["index_size"] + given["time_index_size"]
    if ((size < 0) | (given["indexes_at"] > len(contents) - size)).any():
        raise ValueError("the indexes of a row are not in these contents")
    if dirs.count == 0:
        return
    held = rows.view(np.int8)
    with nogil:
        slg_clean_write_indexes(dirs.root, dirs.names, <slg_clean_partition *>&held[0], dirs.count,
                                data)


def _require_rows(names, rows):
    if rows.dtype != CLEAN_DTYPE or len(rows) != len(names):
        raise ValueError(f"{len(names)} names but {len(rows)} rows of {rows.dtype}")


def sync_clean(root, names, rows, *, bint logs=False):
    """Makes durable what plain `rows` of a load after a crash rely on, with `logs` also the log of
    the last segment. KafkaStorageError names the partition, or `root` where Linux syncs its whole
    file system, for more than 64 rows."""
    cdef _Directories dirs = _Directories(root, names)
    cdef size_t failed = 0
    cdef slg_error error
    cdef slg_status status
    cdef const char[::1] held
    _require_rows(names, rows)
    if dirs.count == 0:
        return
    held = np.ascontiguousarray(rows).view(np.int8)
    with nogil:
        status = slg_clean_sync(dirs.root, dirs.names, <const slg_clean_partition *>&held[0],
                                dirs.count, logs, &failed, &error)
    if status != SLG_OK:
        check(status, &error, os.path.join(root, names[failed]) if failed < dirs.count else root)


def largest_timestamps(root, names, base_offsets):
    """The largest timestamp (ms) of one segment of each partition, as retention asks for it; the
    smallest int64 where it cannot be told."""
    cdef _Directories dirs = _Directories(root, names)
    cdef const int64_t[::1] bases = np.ascontiguousarray(base_offsets, np.int64)
    cdef int64_t[::1] out
    if bases.shape[0] != <Py_ssize_t>dirs.count:
        raise ValueError(f"{dirs.count} names but {bases.shape[0]} base offsets")
    found = np.empty(dirs.count, np.int64)
    if dirs.count:
        out = found
        with nogil:
            slg_clean_timestamps(dirs.root, dirs.names, &bases[0], dirs.count, &out[0])
    return found
