"""Indexes of remote segments, rebuilt from the segments' bytes as a recovery would (KIP-405, Kafka:
LogSegment.recover), compared with what is stored, and replaced where that is wrong."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import numpy as np

from seglog._native.batch import BATCH_DTYPE, BatchScan
from seglog.config import LogConfig
from seglog.errors import ConfigError, KafkaStorageError, SeglogError
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.scans import Extent, SegmentScans
from seglog.recovery.segment_recovery import SegmentRecovery, recover_extent
from seglog.storage.epochs import LeaderEpochs, encode_leader_epochs, read_leader_epochs
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import ProducerState, decode_snapshot
from seglog.storage.txn_entries import encode_entries
from seglog.tiered.index_soundness import SegmentFacts, problem_of
from seglog.tiered.remote_segment import RemoteSegment
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.remote_tree import RemoteTree
from seglog.tiered.tiered_files import TieredFiles

__all__ = ["IndexState", "RebuiltIndex", "RebuiltSegment", "rebuild_indexes"]

#: same: byte for byte what a recovery makes; sound: other entries that are right too; absent, and
#: damaged: readers and brokers are better served by the rebuilt one.
IndexState = Literal["same", "sound", "absent", "damaged"]

_COPY_BYTES: Final = 4 << 20


class IndexWriter(Protocol):
    """A layout whose indexes can be replaced."""

    def replace_indexes(self, tree: RemoteTree, segment: RemoteSegment,
                        contents: dict[IndexType, bytes]) -> None:
        """Replaces these indexes of a segment, and leaves its log and its other indexes."""


@dataclass(frozen=True, slots=True)
class RebuiltIndex:
    """One index of a segment. `is_complete` is False if records before the segment, which are not
    there, had a part in it. `is_written`: it was replaced by `content`."""

    kind: IndexType
    state: IndexState
    message: str
    content: bytes
    is_complete: bool = True
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class RebuiltSegment:
    """The indexes of one segment; of a log that is damaged `error` says how, and there are none."""

    path: str
    start_offset: int
    indexes: tuple[RebuiltIndex, ...]
    error: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether log and indexes are right, now that some may have been written."""
        return self.error is None and all(
            one.state in ("same", "sound") or one.is_written for one in self.indexes)


@dataclass(slots=True)
class _Before:
    """What is known of the log before a segment: its end, producers and leader epochs there."""

    end_offset: int
    producers: ProducerState
    is_complete: bool
    epochs: LeaderEpochs


def rebuild_indexes(log: PartitionLog, config: LogConfig | None = None, *, write: bool = False
                    ) -> Iterator[RebuiltSegment]:
    """The indexes of each segment that the tier has of a log, rebuilt and compared, in order.

    `log` is one of `Bucket.log` or of `PartitionLog.open(path, remote=...)`. Of `config` only
    index.interval.bytes counts, and segment.index.bytes where it is above the default: a broker
    that was restarted may have left more batches in a segment than a new index of the topic's size
    has room for (Kafka: LogSegment.recover fails there). Each log is copied to a temporary file.
    With `write`, absent and damaged indexes are replaced; nothing else ever is.

    Raises ConfigError for `write` to a layout that cannot be written.
    """
    where = log.where
    assert isinstance(where, TieredFiles)
    if write and not hasattr(where.bucket.layout, "replace_indexes"):
        raise ConfigError(f"indexes of the layout {where.bucket.layout.name} cannot be written, "
                          "only those of local and aiven")
    config = config or LogConfig()
    config = replace(config, segment_index_bytes=max(config.segment_index_bytes,
                                                     LogConfig().segment_index_bytes))
    before: _Before | None = None
    for remote, _ in where.pieces_of(log.segments):
        if before is not None and before.end_offset + 1 != remote.start_offset:
            before = None
        rebuild = _Rebuild(where, remote, config, before)
        found, before = rebuild.run()
        yield rebuild.written(found) if write else found


class _Rebuild:
    """One segment."""

    def __init__(self, where: TieredFiles, remote: RemoteSegment, config: LogConfig,
                 before: _Before | None) -> None:
        self._where, self._remote, self._config = where, remote, config
        self._tree, self._layout = where.bucket.tree, where.bucket.layout
        self._path = self._layout.log_path(self._tree, remote)
        start = remote.start_offset
        self._before = before or _Before(start - 1, ProducerState(where.topic_partition, start),
                                         start == 0, LeaderEpochs())

    def run(self) -> tuple[RebuiltSegment, _Before | None]:
        """The segment, and what is known at its end."""
        start, before = self._remote.start_offset, self._before
        try:
            with tempfile.NamedTemporaryFile(prefix="seglog-", suffix=".log") as copy:
                size = self._copy(copy.name)
                extent = Extent(copy.name, 0, size)
                scans = _KeptScans()
                recovery = recover_extent(start, extent, self._config, before.producers,
                                          scans=scans)
            problem = _log_problem(recovery)
        except SeglogError as error:
            problem = str(error)
        except LoaderFailure as failure:
            problem = f"{failure.kafka_error}: {failure.message}"
        if problem is not None:
            return RebuiltSegment(self._path, start, (), problem), None
        assert recovery.last_offset is not None
        facts = SegmentFacts(start, recovery.last_offset, scans.batches, recovery.epochs,
                             before.producers.entries, before.is_complete)
        epochs = before.epochs.copy()
        for entry in recovery.epochs:
            own = start if not len(epochs) and entry is recovery.epochs[0] else entry.start_offset
            epochs.assign(entry.epoch, own)
        contents = {
            IndexType.OFFSET: recovery.offset_index, IndexType.TIMESTAMP: recovery.time_index,
            IndexType.TRANSACTION: encode_entries(recovery.aborted),
            IndexType.PRODUCER_SNAPSHOT: before.producers.to_snapshot(),
            IndexType.LEADER_EPOCH: encode_leader_epochs(epochs)}
        stored = {kind: self._compare(kind, content, facts) for kind, content in contents.items()}
        after = self._after(recovery.last_offset, epochs, stored)
        return RebuiltSegment(self._path, start, tuple(one for one, _ in stored.values())), after

    def _copy(self, target: str) -> int:
        announced = self._remote.announced
        log = self._where.open_log(self._path, None)  # refuses the bytes of another segment
        try:
            if announced is not None and announced.segment_size_in_bytes != log.size:
                raise KafkaStorageError(
                    errno.EIO, f"{log.size} bytes, {announced.segment_size_in_bytes} were "
                    "announced", self._path)
            with open(target, "wb") as out:
                for position in range(0, log.size, _COPY_BYTES):
                    out.write(log.read(min(_COPY_BYTES, log.size - position), position))
            return log.size
        finally:
            log.close()

    def _compare(self, kind: IndexType, content: bytes, facts: SegmentFacts
                 ) -> tuple[RebuiltIndex, bytes | None]:
        """The outcome, and what is stored if it is sound."""
        complete = facts.is_complete or kind in (IndexType.OFFSET, IndexType.TIMESTAMP)
        try:
            found = self._layout.index(self._tree, self._remote, kind) \
                if self._layout.has_index(self._remote, kind) else None
        except SeglogError as error:
            return RebuiltIndex(kind, "damaged", str(error), content, complete), None
        if found is None:
            if kind is IndexType.TRANSACTION and not content:
                return RebuiltIndex(kind, "same", "", content), b""
            return RebuiltIndex(kind, "absent", "not there", content, complete), None
        stored = bytes(memoryview(found))
        if stored == content:
            return RebuiltIndex(kind, "same", "", content), stored
        problem = problem_of(kind, stored, facts) if stored else "it is empty"
        if problem is None:
            return RebuiltIndex(kind, "sound", "other entries, which are right too", content), \
                stored
        return RebuiltIndex(kind, "damaged", problem, content, complete), None

    def _after(self, end_offset: int, epochs: LeaderEpochs,
               stored: dict[IndexType, tuple[RebuiltIndex, bytes | None]]) -> _Before:
        """The state at the segment's end. A sound snapshot or checkpoint knows more than the bytes:
        which producers had expired, and what was before the tier's first segment."""
        producers, complete = self._before.producers, self._before.is_complete
        snapshot = stored[IndexType.PRODUCER_SNAPSHOT][1]
        if snapshot is not None:
            producers.restart(end_offset + 1, decode_snapshot(snapshot))
            complete = True
        checkpoint = stored[IndexType.LEADER_EPOCH][1]
        if checkpoint is not None:
            epochs = read_leader_epochs("leader epochs", checkpoint)
        return _Before(end_offset, producers, complete, epochs)

    def written(self, found: RebuiltSegment) -> RebuiltSegment:
        """Replaces what is absent or damaged."""
        wrong = {one.kind: one.content for one in found.indexes
                 if one.state in ("absent", "damaged")}
        if not wrong:
            return found
        layout: IndexWriter = self._layout  # type: ignore[assignment]
        layout.replace_indexes(self._tree, self._remote, wrong)
        return replace(found, indexes=tuple(
            replace(one, is_written=one.kind in wrong) for one in found.indexes))


class _KeptScans(SegmentScans):
    """Scans in this thread, whose batches are kept."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = [np.empty(0, BATCH_DTYPE)]

    def chunks(self, extent: Extent, fd: int) -> Iterator[BatchScan]:
        """See SegmentScans."""
        for scan in super().chunks(extent, fd):
            self._kept.append(scan.batches.copy())
            yield scan

    @property
    def batches(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Every batch so far."""
        return np.concatenate(self._kept)


def _log_problem(recovery: SegmentRecovery) -> str | None:
    if recovery.invalid_record is not None:
        return recovery.invalid_record.message
    if recovery.overflow or recovery.backwards:
        return recovery.message
    if recovery.cut_bytes:
        return f"the log is damaged at byte {recovery.valid_end}: {recovery.status.name.lower()}"
    return "the log holds no batch" if recovery.last_offset is None else None
