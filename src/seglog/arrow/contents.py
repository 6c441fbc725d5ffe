"""The contents of a partition directory besides records, as columns: arrays by name.

Each function takes the path of a partition directory (or its URL, with object store options) and
opens files read-only. It raises KafkaStorageError for a file that it cannot read and
CorruptDataError for one that does not parse. Sizes are in bytes, times in ms since 1970. Missing
values are None (-1 in arrays of numbers where the docstring says so).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seglog._native.batch import (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
)
from seglog._native.index import OffsetIndexView, TimeIndexView
from seglog._native.scan import HAS_INDEX, HAS_TIME_INDEX
from seglog.errors import CorruptSnapshotError
from seglog.objects.store_options import StorageOptions
from seglog.objects.store import ObjectVersion
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.log_store import LOCAL, files_of
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import FileKind, file_name, snapshot_name
from seglog.storage.producer_state import read_snapshot
from seglog.storage.ranges import LogRange
from seglog.storage.stream import read_batch_headers

__all__ = ["Column", "Table", "batches", "index_entries", "leader_epochs", "producers", "segments",
           "transactions"]

Column = Sequence[Any] | NDArray[Any]
Table = Mapping[str, Column]
"""Columns of one length."""

_CHUNK_SEGMENTS = 8192
_OF_BATCHES = ("position", "size", "base_offset", "last_offset", "magic", "producer_id",
               "producer_epoch", "base_sequence", "record_count", "crc")
_CODECS = np.array([*CODEC_NAMES, "unknown"], object)
_FILES = {FileKind.LOG: "size", FileKind.INDEX: "index_size",
          FileKind.TIME_INDEX: "time_index_size", FileKind.TXN_INDEX: "txn_index_size"}


def segments(path: str, storage_options: StorageOptions | None = None) -> Iterator[Table]:
    """One row a segment: `base_offset`, `size`, `index_size`, `time_index_size`, `txn_index_size`
    (-1 for a missing file), `modified_ms` of the log, and `is_active` for the last segment."""
    where = files_of(path, storage_options)
    listing, objects = where.listing(path)
    bases = listing.base_offsets
    look = partial(_file_status, path) if where is LOCAL else partial(_object_status, objects)
    for start in range(0, len(bases), _CHUNK_SEGMENTS):
        some = bases[start:start + _CHUNK_SEGMENTS]
        found = [[look(file_name(base, kind)) for kind in _FILES] for base in some.tolist()]
        yield {"base_offset": some, "is_active": some == bases[-1],
               "modified_ms": np.array([row[0][1] for row in found], np.int64),
               **{name: np.array([row[number][0] for row in found], np.int64)
                  for number, name in enumerate(_FILES.values())}}


def _file_status(path: str, name: str) -> tuple[int, int]:
    """(size, modification time in ms); -1 for a missing file."""
    try:
        found = os.lstat(os.path.join(path, name))
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns // 1_000_000


def _object_status(objects: Mapping[str, ObjectVersion], name: str) -> tuple[int, int]:
    found = objects.get(name)
    if found is None:
        return -1, -1
    return found.size, -1 if found.modified_ms is None else found.modified_ms


def batches(planned: LogRange, storage_options: StorageOptions | None = None
            ) -> Iterator[Table]:
    """One row a batch of one range (of `PartitionLog.ranges`), from the headers only:
    `segment_base_offset`, `position` in its log, `size`, `base_offset`, `last_offset`, `magic`,
    `codec`, `timestamp_type` (0 CreateTime, 1 LogAppendTime, -1 none), `is_transactional`,
    `is_control`, `base_timestamp_ms`, `max_timestamp_ms`, `leader_epoch`, `producer_id`,
    `producer_epoch`, `base_sequence`, `record_count`, `crc`. -1 where a batch has no value (such as
    the base timestamp of a batch with a delete horizon, which replaces it).

    Raises as `seglog.arrow.decode_range`.
    """
    for chunk in read_batch_headers(planned, where=files_of(planned.file, storage_options)):
        rows, attributes = chunk.batches, chunk.batches["attributes"]
        is_new, has_horizon = rows["magic"] >= 2, (attributes & ATTRIBUTE_DELETE_HORIZON) != 0
        stamp = (attributes & ATTRIBUTE_LOG_APPEND_TIME != 0).astype(np.int8)
        yield {"segment_base_offset": np.full(len(rows), planned.base_offset, np.int64),
               "codec": _CODECS[np.minimum(attributes & ATTRIBUTE_CODEC, len(CODEC_NAMES))],
               "timestamp_type": np.where(rows["magic"] == 0, -1, stamp),
               "is_transactional": is_new & ((attributes & ATTRIBUTE_TRANSACTIONAL) != 0),
               "is_control": is_new & ((attributes & ATTRIBUTE_CONTROL) != 0),
               "base_timestamp_ms": np.where(is_new & has_horizon, -1, rows["base_timestamp"]),
               "max_timestamp_ms": rows["max_timestamp"],
               "leader_epoch": rows["partition_leader_epoch"],
               **{name: rows[name] for name in _OF_BATCHES}}


def index_entries(path: str, storage_options: StorageOptions | None = None) -> Iterator[Table]:
    """One row an entry of the offset and time indexes: `base_offset` of the segment, `index`
    ("offset" or "time"), `entry` (its number, from 0), `offset`, and `position` (of an offset
    index) or `timestamp_ms` (of a time index), else -1."""
    where = files_of(path, storage_options)
    listing, _ = where.listing(path)
    for base, flags in zip(listing.base_offsets.tolist(), listing.flags.tolist(), strict=True):
        if flags & HAS_INDEX:
            name = os.path.join(path, file_name(base, FileKind.INDEX))
            yield _entries(base, "offset", where.index(OffsetIndexView, name, base))
        if flags & HAS_TIME_INDEX:
            name = os.path.join(path, file_name(base, FileKind.TIME_INDEX))
            yield _entries(base, "time", where.index(TimeIndexView, name, base))


def _entries(base_offset: int, index: str, view: OffsetIndexView | TimeIndexView) -> Table:
    try:
        entries = view.to_numpy()
    finally:
        view.close()
    count = len(entries)
    missing = np.full(count, -1, np.int64)
    names = entries.dtype.names or ()
    return {"base_offset": np.full(count, base_offset, np.int64), "index": [index] * count,
            "entry": np.arange(count), "offset": entries["offset"],
            "position": entries["position"] if "position" in names else missing,
            "timestamp_ms": entries["timestamp"] if "timestamp" in names else missing}


def producers(path: str, storage_options: StorageOptions | None = None) -> Table:
    """One row a producer id in the newest valid producer snapshot: `snapshot_offset`,
    `producer_id`, `producer_epoch`, `last_sequence`, `last_offset`, `offset_delta`,
    `last_timestamp_ms`, `coordinator_epoch`, `current_txn_first_offset` (None without an open
    transaction)."""
    where = files_of(path, storage_options)
    error: CorruptSnapshotError | None = None
    for offset in reversed(where.listing(path)[0].snapshots.tolist()):
        try:
            entries = read_snapshot(os.path.join(path, snapshot_name(offset)), where)
        except CorruptSnapshotError as unsound:
            error = error or unsound
            continue
        return {"snapshot_offset": [offset] * len(entries),
                "producer_id": [one.producer_id for one in entries],
                "producer_epoch": [one.producer_epoch for one in entries],
                "last_sequence": [one.last_sequence for one in entries],
                "last_offset": [one.last_data_offset for one in entries],
                "offset_delta": [one.last_offset_delta for one in entries],
                "last_timestamp_ms": [one.last_timestamp for one in entries],
                "coordinator_epoch": [one.coordinator_epoch for one in entries],
                "current_txn_first_offset": [one.current_txn_first_offset for one in entries]}
    if error is not None:
        raise error
    return {}


def transactions(path: str, storage_options: StorageOptions | None = None) -> Table:
    """One row for each aborted or open transaction: `state` ("aborted", "ongoing"), `producer_id`,
    `first_offset`, `last_offset` (of the abort marker; None while it is open).

    As for read_committed, they come from the transaction indexes, or from the log where an index
    is missing or invalid.
    """
    with PartitionLog.open(path, storage_options=storage_options) as log:
        aborted = log.aborted_transactions(0, 2**63 - 1)
        ongoing = log.open_transactions
    return {"state": ["aborted"] * len(aborted) + ["ongoing"] * len(ongoing),
            "producer_id": [one.producer_id for one in aborted] + [
                one.producer_id for one in ongoing],
            "first_offset": [one.first_offset for one in aborted] + [
                one.first_offset for one in ongoing],
            "last_offset": [one.last_offset for one in aborted] + [None] * len(ongoing)}


def leader_epochs(path: str, storage_options: StorageOptions | None = None) -> Table:
    """One row a leader epoch within the log: `leader_epoch`, `start_offset`, `end_offset` (the
    start of the next one, or the log end offset)."""
    with PartitionLog.open(path, storage_options=storage_options) as log:
        entries, end = list(log.leader_epochs), log.log_end_offset
    starts = [one.start_offset for one in entries]
    return {"leader_epoch": [one.epoch for one in entries], "start_offset": starts,
            "end_offset": [*starts[1:], end] if starts else []}
