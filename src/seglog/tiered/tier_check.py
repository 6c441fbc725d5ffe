"""Checks the segments of a partition in a tier: batches, indexes, and announced metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seglog._native.batch import BATCH_DTYPE
from seglog.errors import SeglogError
from seglog.model import EpochEntry
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import decode_snapshot
from seglog.storage.segment import LogSegment
from seglog.tiered.index_soundness import Batches, SegmentFacts, problem_of
from seglog.tiered.remote_segment import RemoteSegment
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.segment_selection import TierFinding
from seglog.tiered.segment_states import RemoteLogSegmentState
from seglog.tiered.tiered_files import TieredFiles

__all__ = ["PartitionCheck", "check_partition", "find_orphans"]

#: Findings of a listing that are not damage: both copies are sound, or the log does not need the
#: segment.
_HARMLESS = frozenset(("duplicate_segment", "outside_lineage"))
#: Of a batch, what indexes are compared with.
_FIELDS = ["position", "base_offset", "last_offset", "max_timestamp", "partition_leader_epoch",
           "magic"]
_INDEX_NAMES = {IndexType.OFFSET: "offset index", IndexType.TIMESTAMP: "time index",
                IndexType.TRANSACTION: "transaction index",
                IndexType.LEADER_EPOCH: "leader epochs"}


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """The result of checking a partition in its tier."""

    name: str
    segments: int
    batches: int
    size: int
    findings: tuple[TierFinding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged, missing or announced wrongly."""
        return all(one.code in _HARMLESS for one in self.findings)


def check_partition(log: PartitionLog) -> PartitionCheck:
    """Reads everything that the tier has of a log that was opened with it. Checks the CRC of every
    batch, offsets against names, metadata and manifests, the indexes and leader epochs against the
    batches, and the producer snapshot. Changes nothing.
    """
    where = log.where
    assert isinstance(where, TieredFiles)
    findings = list(where.findings)
    batches = size = count = 0
    for piece, segment in where.pieces_of(log.segments):
        count += 1
        size += segment.size
        batches += _check_segment(where, piece, segment, findings)
    return PartitionCheck(str(where.topic_partition), count, batches, size, tuple(findings))


def _check_segment(where: TieredFiles, remote: RemoteSegment, segment: LogSegment,
                   findings: list[TierFinding]) -> int:
    """Adds what is wrong to `findings`. Returns the number of batches."""
    path = segment.files.log
    first, last = remote.start_offset, remote.end_offset
    reached, batches = None, [np.empty(0, BATCH_DTYPE)[_FIELDS]]
    try:
        for found in segment.walk_in_order():
            if len(found.batches):
                if reached is None and int(found.batches["base_offset"][0]) != first:
                    findings.append(TierFinding(
                        "offset_mismatch", f"{path}: the first batch has offset "
                        f"{int(found.batches['base_offset'][0])}, the name says {first} (at byte "
                        "0)", path, first, last))
                reached = int(found.batches["last_offset"][-1])
                batches.append(found.batches[_FIELDS].copy())
            if found.error is not None:
                raise found.error
            if found.position < segment.size and found.status.name != "OK":
                findings.append(TierFinding(
                    found.status.name.lower(), f"{path}: the batches end at byte {found.position} "
                    f"of {segment.size}", path, reached, last))
    except SeglogError as error:
        findings.append(_of(error, path, first, last))
        return sum(map(len, batches))
    if remote.announced is not None and reached is not None and segment.next_base_offset in (
            None, (last or 0) + 1) and reached != last:
        findings.append(TierFinding(
            "offset_mismatch", f"{path}: the last batch ends with offset {reached}, {last} was "
            "announced", path, reached, last))
    end = segment.size if segment.size < (remote.size or 0) else None
    known = np.concatenate(batches)
    findings += _check_indexes(where, remote, path, known, end)
    return len(known)


def _check_indexes(where: TieredFiles, remote: RemoteSegment, path: str, batches: Batches,
                   end: int | None) -> Iterator[TierFinding]:
    """`end` is the byte before which the log has the segment; None: it has all of it."""
    layout, tree = where.bucket.layout, where.bucket.tree
    facts = SegmentFacts(remote.start_offset, max([remote.end_offset or 0, *batches[
        "last_offset"][-1:]]), batches, _epochs_of(batches), (), False)
    for kind in IndexType:
        try:
            content = layout.index(tree, remote, kind) if layout.has_index(remote, kind) else None
            stored = b"" if content is None else bytes(memoryview(content))
            problem = None
            if stored and kind is IndexType.PRODUCER_SNAPSHOT:
                decode_snapshot(stored, file=f"{path}: producer snapshot")
            elif stored and kind is IndexType.OFFSET and (
                    wrong := _no_batch(stored, batches, end)) is not None:
                yield TierFinding("index_not_a_batch", f"{path}: entry {wrong[0]} of the offset "
                                  f"index names byte {wrong[1]}, where no batch begins", path,
                                  remote.start_offset)
            elif stored and end is None and len(batches):
                problem = problem_of(kind, stored, facts)
        except SeglogError as error:
            yield _of(error, path, remote.start_offset, remote.end_offset)
            continue
        if problem is not None:
            yield TierFinding("index_wrong", f"{path}: {_INDEX_NAMES[kind]}: {problem}", path,
                              remote.start_offset, remote.end_offset)


def _no_batch(stored: bytes, batches: Batches, end: int | None) -> tuple[int, int] | None:
    """(row, byte) of the first entry of an offset index that names no batch, before byte `end`."""
    positions = np.frombuffer(stored[:len(stored) // 8 * 8], ">i4")[1::2].astype(np.int64)
    wrong = ~np.isin(positions, batches["position"])
    if end is not None:
        wrong &= positions < end
    row = int(wrong.argmax()) if wrong.any() else None
    return None if row is None else (row, int(positions[row]))


def _epochs_of(batches: Batches) -> list[EpochEntry]:
    """The leader epochs of batches that have one, each with its first offset."""
    known = batches[(batches["magic"] >= 2) & (batches["partition_leader_epoch"] >= 0)]
    epochs = known["partition_leader_epoch"]
    rows = np.flatnonzero(np.diff(epochs, prepend=-1))
    return [EpochEntry(int(epochs[row]), int(known["base_offset"][row])) for row in rows]


def _of(error: SeglogError, path: str, first: int | None, last: int | None) -> TierFinding:
    return TierFinding(getattr(error, "code", "io"), str(error),
                       getattr(error, "file", None) or path, first, last)


def find_orphans(where: TieredFiles) -> list[TierFinding]:
    """Objects that no live announcement names, each with the reason. Only listed, never deleted,
    because a running upload looks the same. Empty without the metadata topic."""
    bucket = where.bucket
    partition = bucket.find(where.topic_partition, where.topic_id)
    announced, _ = bucket.announced(where.topic_partition, where.topic_id)
    if partition is None or announced is None:
        return []
    states = {one.remote_log_segment_id.id: one for one in announced}
    found = []
    for segment in bucket.layout.listed(bucket.tree, partition):
        metadata = states.get(segment.segment_id or b"")
        if metadata is not None and metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            continue
        reason = "was never announced, or its deletion was" if metadata is None else \
            f"is in state {metadata.state.name} since {metadata.event_timestamp_ms} ms"
        found += [TierFinding("orphan", f"{bucket.tree.path(one.key)} ({one.version.size} bytes) "
                              f"{reason}", bucket.tree.path(one.key), segment.start_offset)
                  for _, one in sorted(segment.objects.items())]
    return found

