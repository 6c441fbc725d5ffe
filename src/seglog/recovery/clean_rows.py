"""Partitions that were closed cleanly, or whose logs lost nothing in a crash, read by C, many per
call: rows of one table.

A row holds the result that Kafka's loader would reach. C decides which partitions it can load
(`seglog/clean_load.h`); the loader itself loads all others.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from seglog._native.clean_load import CLEAN_DTYPE, load_clean
from seglog.config import LogConfig
from seglog.model import TopicPartition
from seglog.recovery.findings import Finding, finding
from seglog.recovery.load_report import PartitionReport
from seglog.storage.paths import (
    CLUSTER_METADATA_TOPIC, DirectoryKind, FileKind, file_name, snapshot_name,
)

__all__ = ["PART_PARTITIONS", "PART_SEGMENTS", "CleanRows", "PartitionReports",
           "is_clean_candidate", "report_of_row"]

#: Partitions of one native call: enough work for a thread, and enough calls for all threads.
PART_PARTITIONS: Final = 256
#: Partitions with more segments go to the loader, where several threads share them.
PART_SEGMENTS: Final = 1024

_NO_HIGH_WATERMARK = np.iinfo(np.int64).min
_Offsets = Mapping[TopicPartition, int]
_reported = itemgetter(*map(list(CLEAN_DTYPE.fields or ()).index, (
    "segments", "size", "log_start_offset", "log_end_offset", "last_size")))


def is_clean_candidate(name: str, key: TopicPartition, kind: DirectoryKind) -> bool:
    """Whether a partition directory may become a row, by its name and kind."""
    return (kind is DirectoryKind.LIVE and name == str(key)
            and key.topic != CLUSTER_METADATA_TOPIC)


@dataclass(frozen=True, slots=True)
class CleanRows:
    """Partitions of one data directory, row by row: their files' content (CLEAN_DTYPE), high
    watermarks, the settings they were loaded with, the checkpointed log start offsets and recovery
    points, and the timestamps of their producers (ms)."""

    keys: Sequence[TopicPartition]
    files: npt.NDArray[np.void]
    high_watermarks: npt.NDArray[np.int64]
    start_offsets: npt.NDArray[np.int64]
    recovery_points: npt.NDArray[np.int64]
    configs: Sequence[LogConfig]
    timestamps: npt.NDArray[np.int64]
    #: The shutdown was unclean: the last segment of each was recovered, and at most its indexes and
    #: the snapshot at the log's end changed.
    after_crash: bool = False
    #: Of a table that `read` made: the indexes and snapshots that its caller writes.
    contents: bytes = b""

    @classmethod
    def read(cls, log_dir: str, keys: Sequence[TopicPartition],
             configs: Sequence[LogConfig] = (), *, start_offsets: _Offsets,
             recovery_points: _Offsets, high_watermarks: _Offsets, segments_max: int = 0,
             will_write: bool = False, check_crcs: bool = False,
             after_crash: bool = False, now_ms: int = 0,
             producer_idle_ms: int | None = None) -> CleanRows:
        """A row for each of `keys`; `is_plain` says which of them count.

        The offsets are those of the checkpoints. A partition of more than `segments_max` segments
        (0: any number) is not plain. With `will_write` its last
        indexes must be writable; with `check_crcs` every batch of its last segment must have a
        good CRC, which Kafka's loader does not check. Without `configs` indexes may have any
        size. `after_crash`, which needs `configs`: the shutdown was unclean, and a partition in
        which its recovery changes more than the last indexes and `new_snapshot` is not plain. A
        recovery forgets producers that were idle for `producer_idle_ms` (None: none) at `now_ms`.
        """
        starts = np.array([start_offsets.get(key, 0) for key in keys], np.int64)
        points = np.array([recovery_points.get(key, 0) for key in keys], np.int64)
        files, timestamps, contents = load_clean(
            log_dir, [str(key) for key in keys], starts, segments_max=segments_max,
            will_write=will_write, check_crcs=check_crcs, now_ms=now_ms,
            producer_idle_ms=producer_idle_ms or 0, after_crash=None if not after_crash
            else (points, [one.index_interval_bytes for one in configs],
                  [one.segment_index_bytes for one in configs]))
        if configs:  # the loader refuses an index that is longer than they allow
            limits = np.array([config.segment_index_bytes for config in configs], np.int64)
            files["plain"] &= ((files["index_size"] <= limits // 8 * 8)
                                  & (files["time_index_size"] <= limits // 12 * 12))
        marks = np.array([high_watermarks.get(key, _NO_HIGH_WATERMARK) for key in keys], np.int64)
        return cls(
            keys, files, np.clip(marks, files["log_start_offset"], files["log_end_offset"]),
            starts, points, configs, timestamps, after_crash, contents)

    def new_snapshot(self, row: int) -> bytes | None:
        """The snapshot that a recovery writes at the log's end; None if it is there already."""
        at, size = (int(self.files[name][row]) for name in ("snapshot_at", "snapshot_size"))
        return None if at < 0 else self.contents[at:at + size]

    @property
    def is_plain(self) -> npt.NDArray[np.bool_]:
        """Which rows are valid: all rows of a table that `where` or `joined` made."""
        found: npt.NDArray[np.bool_] = self.files["plain"].copy()
        return found

    def where(self, mask: npt.NDArray[np.bool_]) -> CleanRows:
        """The rows of `mask`."""
        rows = np.flatnonzero(mask).tolist()
        return CleanRows(
            [self.keys[row] for row in rows], self.files[mask], self.high_watermarks[mask],
            self.start_offsets[mask], self.recovery_points[mask],
            [self.configs[row] for row in rows] if self.configs else (), self.timestamps,
            self.after_crash)

    def topic_id(self, row: int) -> uuid.UUID:
        """The topic id of a row that has one."""
        return uuid.UUID(bytes=self.files["topic_id"][row].tobytes())

    @classmethod
    def joined(cls, parts: Sequence[CleanRows]) -> CleanRows:
        """All rows in one table."""
        files, before = [], 0
        for part in parts:
            files.append(part.files.copy() if before else part.files)
            files[-1]["producers_at"] += before
            before += len(part.timestamps)
        return cls(
            [key for part in parts for key in part.keys], np.concatenate(files),
            np.concatenate([part.high_watermarks for part in parts]),
            np.concatenate([part.start_offsets for part in parts]),
            np.concatenate([part.recovery_points for part in parts]),
            [config for part in parts for config in part.configs],
            np.concatenate([part.timestamps for part in parts]),
            any(part.after_crash for part in parts))


def report_of_row(rows: CleanRows, row: int) -> PartitionReport:
    """The report of the partition of a row."""
    key = rows.keys[row]
    # Much faster than to ask the row of an array for each field.
    segments, size, start, end, last_size = _reported(rows.files[row].item())
    return PartitionReport(
        directory=str(key), topic_partition=key, segments=segments, size=size,
        log_start_offset=start, log_end_offset=end, recovery_point=int(rows.recovery_points[row]),
        recovery_segments=int(rows.after_crash),
        recovery_bytes=last_size if rows.after_crash else 0,
        kafka_error=None, kafka_message=None,
        findings=_findings_of(rows, row))


def _findings_of(rows: CleanRows, row: int) -> tuple[Finding, ...]:
    """The findings of a plain partition: after a crash the recovery of its last segment, and a
    producer snapshot that a start deletes."""
    if not rows.after_crash and rows.files["stray_snapshot"][row] < 0:
        return ()
    files, directory, found = rows.files[row], str(rows.keys[row]), []
    base, stray = int(files["last_base_offset"]), int(files["stray_snapshot"])
    if rows.after_crash:
        found.append(finding(
            "segment-rebuilt", directory=directory, file=file_name(base, FileKind.LOG),
            offset=base, bytes=int(files["last_size"]), records=int(files["last_records"]),
            batches=int(files["last_batches"])))
        # Any other is gone by then, unreported (LoadingProducers.truncate_and_reload).
        if not rows.start_offsets[row] < stray < base:
            stray = -1
    if stray >= 0:
        found.append(finding("snapshot-stray", directory=directory, offset=stray,
                             file=snapshot_name(stray)))
    return tuple(found)


class PartitionReports(Sequence[PartitionReport]):
    """Reports in the order of the directories. Those of rows are created on request."""

    def __init__(self, entries: Sequence[PartitionReport | int], rows: CleanRows | None) -> None:
        self._entries, self._rows = entries, rows

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> PartitionReport: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PartitionReport]: ...

    def __getitem__(self, index: int | slice) -> PartitionReport | Sequence[PartitionReport]:
        if isinstance(index, slice):
            return PartitionReports(self._entries[index], self._rows)
        entry = self._entries[index]
        return report_of_row(self._rows, entry) if isinstance(entry, int) \
            and self._rows is not None else entry  # type: ignore[return-value]

    def __iter__(self) -> Iterator[PartitionReport]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
