"""The segments of one partition in a remote tier: from the metadata topic if there is one, else
from manifests, names and leader-epoch checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from seglog._native.index import OffsetIndexView
from seglog.errors import KafkaStorageError, SeglogError
from seglog.model import EpochEntry
from seglog.objects.requests import Pool, result_of
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs
from seglog.storage.segment import LogSegment
from seglog.tiered.known_facts import KnownFacts
from seglog.tiered.plain_layout import PlainLayout
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, SegmentLeaderEpochs
from seglog.tiered.remote_segment import RemotePartition, RemoteSegment
from seglog.tiered.remote_storage import IndexType
from seglog.tiered.remote_tree import RemoteTree
from seglog.tiered.segment_selection import (
    Piece, TierFinding, end_in_lineage, select_segments,
)
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["Catalog", "PartitionCatalog", "merged_epochs"]

#: Concurrent requests for small objects, whose cost is latency.
_QUESTIONS: Final = Pool(16, "seglog-tier")
_OFFSET_MAX: Final = (1 << 63) - 1

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Opens a reader of a segment's batches, for facts that neither names nor manifests tell.
Reader = Callable[[RemoteSegment], LogSegment]


@dataclass(frozen=True, slots=True)
class Catalog:
    """One moment of a partition: the pieces of its log in the tier, its lineage (empty: unknown)
    and the findings."""

    pieces: tuple[Piece, ...]
    lineage: tuple[EpochEntry, ...]
    findings: tuple[TierFinding, ...]


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A segment, or the rest of one, that cannot be read. `is_lost` is False if it never had the
    records that were announced."""

    start_offset: int
    end_offset: int | None
    reason: str
    epochs: SegmentLeaderEpochs | None = None
    is_lost: bool = True

    def end_in(self, lineage: Sequence[EpochEntry]) -> int:
        """The last offset that the log has of it, -1 for none. The log has those of unknown epochs,
        and of newer ones than its readable segments have."""
        end = self.start_offset if self.end_offset is None else self.end_offset
        if not lineage or not self.epochs or self.epochs[-1][0] > lineage[-1].epoch:
            return end
        inside = end_in_lineage(self.start_offset, end, self.epochs, lineage)
        return -1 if inside is None else inside


class PartitionCatalog:
    """Finds the segments of one partition. For one thread."""

    def __init__(self, tree: RemoteTree, layout: PlainLayout, reader: Reader,
                 known: KnownFacts) -> None:
        """`known` are the facts of earlier listings of the partition."""
        self._tree, self._layout, self._reader, self._known = tree, layout, reader, known
        known.begin()
        self._findings: list[TierFinding] = []
        self._unusable: list[_Unusable] = []
        self._checkpoints: dict[str, list[EpochEntry]] = {}

    def look(self, partition: RemotePartition | None,
             announced: Sequence[RemoteLogSegmentMetadata] | None,
             local_epochs: Sequence[EpochEntry], until: int | None) -> Catalog:
        """The log below offset `until`. `announced` are the segments in the metadata topic, None
        without one; `local_epochs` is the local leader-epoch checkpoint, empty without one. Raises
        KafkaStorageError if the tier cannot be listed."""
        listed = [] if partition is None else self._layout.segments(self._tree, partition)
        if announced is not None:
            segments = self._announced(listed, announced)
        else:
            segments = self._with_ends(self._described(listed))
        segments = [one for one in segments if self._has_next_offset(one)]
        segments = self._with_true_ends(segments, until)
        lineage = list(local_epochs) or self._lineage(segments)
        pieces = select_segments(segments, lineage, until, self._findings)
        return Catalog(tuple(self._explained(pieces, until, lineage)), tuple(lineage),
                       tuple(self._findings))

    def _has_next_offset(self, segment: RemoteSegment) -> bool:
        """Whether there is an offset after the segment's end, which names its producer snapshot and
        is the log's end after the last one."""
        if segment.end_offset != _OFFSET_MAX:
            return True
        self._cannot_use("offset_mismatch", segment.start_offset, None, None,
                         f"{segment} ends with offset {_OFFSET_MAX}, after which there is none",
                         segment.epochs)
        return False

    def _with_true_ends(self, segments: list[RemoteSegment], until: int | None
                        ) -> list[RemoteSegment]:
        """The segments; of one that reaches into another, which may be absent, or into the local
        log, the end is the last offset of its batches if it was said to lie beyond. It would hide
        records and gaps of others."""
        starts = np.sort([*(one.start_offset for one in segments),
                          *(one.start_offset for one in self._unusable)])
        rows = [row for row, one in enumerate(segments)
                if not one.is_end_scanned and (until is None or one.start_offset < until)
                and _reaches_other(one, starts, until)]
        ends = _in_parallel(self._scanned_end, [segments[row] for row in rows])
        found: list[RemoteSegment | None] = list(segments)
        for row, end in zip(rows, ends, strict=True):
            segment = segments[row]
            if end is None or segment.end_offset is None or end >= segment.end_offset:
                continue  # if it cannot be read its reader gets the error
            self._cannot_use(
                "offset_mismatch", max(end + 1, segment.start_offset), segment.end_offset,
                self._layout.log_path(self._tree, segment),
                f"{segment} has no offsets above {end}, it should end with {segment.end_offset}",
                is_lost=False)
            found[row] = None if end < segment.start_offset else replace(segment, end_offset=end)
        return [one for one in found if one is not None]

    def _lineage(self, segments: list[RemoteSegment]) -> list[EpochEntry]:
        """The leader-epoch checkpoint of the segment that was written last. The merged epochs of
        all segments if it is not that segment's, or contradicts others: no CRC covers it."""
        known = [one for one in segments if one.epochs]
        if not known:
            return []
        newest = max(known, key=lambda one: (_last_epoch(one) or 0,
                                             one.end_offset or one.start_offset))
        entries = self._checkpoint(newest)
        if entries and (not _fits(newest, entries) or _contradicts(entries, known)):
            self._not_its_epochs(newest)
            entries = []
        return entries or merged_epochs(known)

    def _not_its_epochs(self, segment: RemoteSegment) -> None:
        self._findings.append(TierFinding(
            "leader_epochs", f"{segment}: the leader epochs that are stored with it are not those "
            "of its offsets", str(segment), segment.start_offset, segment.end_offset))

    def _checkpoint(self, segment: RemoteSegment) -> list[EpochEntry]:
        """The lineage up to a segment's end; empty if it cannot be read, which is a finding. Read
        once."""
        key = str(segment)
        if key not in self._checkpoints:
            self._checkpoints[key] = self._read_checkpoint(segment)
        return self._checkpoints[key]

    def _read_checkpoint(self, segment: RemoteSegment) -> list[EpochEntry]:
        if not self._layout.has_index(segment, IndexType.LEADER_EPOCH):
            return []
        try:
            return self._known.of(segment, "epochs", partial(self._read_epochs, segment))
        except SeglogError as error:
            self._findings.append(_finding(error, segment))
            return []

    def _read_epochs(self, segment: RemoteSegment) -> list[EpochEntry]:
        content = self._layout.index(self._tree, segment, IndexType.LEADER_EPOCH)
        return list(read_leader_epochs(f"{segment}: leader epochs",
                                       bytes(memoryview(content or b""))))

    # ---- from the metadata topic

    def _announced(self, listed: list[RemoteSegment],
                   announced: Sequence[RemoteLogSegmentMetadata]) -> list[RemoteSegment]:
        objects = {(one.start_offset, one.segment_id): one for one in listed}
        unnamed = {one.start_offset: one for one in listed if one.segment_id is None}
        copied = {metadata: objects.get((metadata.start_offset, metadata.remote_log_segment_id.id))
                  or unnamed.get(metadata.start_offset) for metadata in announced
                  if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
        unlisted = [metadata for metadata, segment in copied.items() if segment is None]
        copied.update(zip(unlisted, _in_parallel(self._named, unlisted), strict=True))
        found = []
        for metadata, segment in copied.items():
            if segment is None:
                self._cannot_use("object_missing", metadata.start_offset, metadata.end_offset, None,
                                 f"{metadata.remote_log_segment_id} is announced, and its objects "
                                 "are not there", _possible_epochs(metadata))
                continue
            checked = self._checked(replace(
                segment, end_offset=metadata.end_offset, announced=metadata,
                max_timestamp_ms=metadata.max_timestamp_ms,
                epochs=metadata.segment_leader_epochs))
            if checked is not None:
                found.append(self._with_possible_epochs(checked, metadata))
        return found

    def _with_possible_epochs(self, segment: RemoteSegment, metadata: RemoteLogSegmentMetadata
                              ) -> RemoteSegment:
        """The segment; with the epochs of its checkpoint if no segment can have the announced
        ones."""
        if _possible_epochs(metadata) is not None:
            return segment
        self._findings.append(TierFinding(
            "leader_epochs", f"{segment}: no segment with its offsets has the leader epochs that "
            f"are announced: {dict(metadata.segment_leader_epochs)}", str(segment),
            segment.start_offset, segment.end_offset))
        entries = self._checkpoint(segment)
        return replace(segment, epochs=_epochs_from(entries, segment.start_offset)
                       if entries else None)

    def _named(self, metadata: RemoteLogSegmentMetadata) -> RemoteSegment | None:
        """A segment that the store has and does not list yet."""
        try:
            segment = self._layout.named(self._tree, metadata)
        except KafkaStorageError as error:
            if error.code == "object_read":
                raise
            if error.code != "file_missing":
                self._findings.append(TierFinding(error.code or "object_unreadable", str(error),
                                                  error.file, metadata.start_offset,
                                                  metadata.end_offset))
            return None
        return None if segment is None or segment.size == 0 else segment

    def _checked(self, segment: RemoteSegment) -> RemoteSegment | None:
        """The segment with the end of its batches, if the object is shorter than announced. Of a
        longer one the announced bytes count if they end with the announced offset; else they are
        another segment's, and it is None; so it is if no bytes were announced, because offsets
        were."""
        assert segment.announced is not None and segment.end_offset is not None
        expected = segment.announced.segment_size_in_bytes
        if segment.size is None and expected > 0:
            return replace(segment, size=expected)
        if segment.size == expected:
            return segment
        path = self._layout.log_path(self._tree, segment)
        size = "some" if segment.size is None else segment.size
        text = f"{path} has {size} bytes, {expected} were announced"
        epochs = _possible_epochs(segment.announced)
        self._findings.append(TierFinding("object_size", text, path, segment.start_offset,
                                          segment.end_offset))
        if segment.size is not None and segment.size > expected > 0:
            announced = replace(segment, size=expected)
            end = self._scanned_end(announced, expected)
            if end is None or end == segment.end_offset:
                return segment if end is None else announced  # its reader gets the error
        if segment.size is None or segment.size > expected or not self._is_prefix(segment):
            self._unusable.append(_Unusable(segment.start_offset, segment.end_offset, text, epochs))
            return None
        end = self._scanned_end(segment)
        if end is None or end >= segment.end_offset:
            return segment
        self._unusable.append(_Unusable(end + 1, segment.end_offset, text, epochs))
        return replace(segment, end_offset=end)

    def _is_prefix(self, segment: RemoteSegment) -> bool:
        """Whether batches begin where the offset index says, as far as the log reaches; else it may
        be another segment's. True if there is no index."""
        reader = self._reader(segment)
        path = reader.files.offset_index
        if path is None:
            return True
        try:
            positions = np.concatenate([chunk.batches["position"] for chunk in reader.walk()])
            index = reader.where.index(OffsetIndexView, path, segment.start_offset)
            indexed = index.to_numpy()["position"]
        except SeglogError:
            return True
        last = positions[-1] if len(positions) else -1
        return bool(np.isin(indexed[indexed <= last], positions).all())

    # ---- from the objects alone

    def _described(self, listed: list[RemoteSegment]) -> list[RemoteSegment]:
        found = []
        for segment, described in zip(listed, _in_parallel(self._describe, listed), strict=True):
            if isinstance(described, RemoteSegment):
                found.append(described)
            else:
                self._cannot_use(getattr(described, "code", "object_unreadable"),
                                 segment.start_offset, None,
                                 getattr(described, "file", None), str(described))
        return found

    def _describe(self, segment: RemoteSegment) -> RemoteSegment | SeglogError:
        try:
            segment = self._layout.described(self._tree, segment)
        except SeglogError as error:
            return error
        if segment.epochs is None and (entries := self._checkpoint(segment)):
            segment = replace(segment, epochs=_epochs_from(entries, segment.start_offset))
        return segment

    def _with_ends(self, segments: list[RemoteSegment]) -> list[RemoteSegment]:
        """The segments with their ends. If no manifest has an end, the batches tell it; the next
        segment's start would hide a missing segment."""
        rows = [row for row, segment in enumerate(segments) if segment.end_offset is None]
        found = list(segments)
        for row, (end, epoch) in zip(rows, _in_parallel(
                self._scanned, [segments[row] for row in rows]), strict=True):
            segment = segments[row]
            if end is not None and epoch is not None and segment.epochs and \
                    segment.epochs[-1][0] != epoch:
                self._not_its_epochs(segment)
                segment = replace(segment, epochs=None)
            if end is None:  # its reader gets the error, up to the next segment
                end = next((one.start_offset for one in segments[row + 1:]
                            if one.start_offset > segment.start_offset),
                           segment.start_offset + 1) - 1
            found[row] = replace(segment, end_offset=max(end, segment.start_offset),
                                 is_end_scanned=True)
        return found

    def _scanned_end(self, segment: RemoteSegment, until: int | None = None) -> int | None:
        """The last offset of the batches below byte `until` (None: all); None if they cannot be
        read."""
        return self._scanned(segment, until)[0]

    def _scanned(self, segment: RemoteSegment, until: int | None = None
                 ) -> tuple[int | None, int | None]:
        """The last offset of the batches, None if they cannot be read, and the leader epoch of the
        last batch, None if it has none."""
        try:
            return self._known.of(segment, ("end", segment.size, until),
                                  partial(self._read_end, segment, until))
        except SeglogError as error:
            self._findings.append(_finding(error, segment))
            return None, None

    def _read_end(self, segment: RemoteSegment, until: int | None) -> tuple[int | None, int | None]:
        reader = self._reader(segment)
        found = reader.scan(reader.locate_last(), until, collect=True)
        if not found.batch_count:
            return segment.start_offset - 1, None
        epoch = int(found.batches["partition_leader_epoch"][-1])
        return found.last_offset, epoch if found.batches["magic"][-1] >= 2 and epoch >= 0 else None

    # ---- what is not there

    def _cannot_use(self, code: str, start: int, end: int | None, file: str | None,
                    reason: str, epochs: SegmentLeaderEpochs | None = None, *,
                    is_lost: bool = True) -> None:
        self._unusable.append(_Unusable(start, end, reason, epochs, is_lost))
        self._findings.append(TierFinding(code, reason, file, start, end))

    def _explained(self, pieces: list[Piece], until: int | None, lineage: Sequence[EpochEntry]
                   ) -> Iterable[Piece]:
        """The pieces; gaps get the names of the missing segments. There is one before all others,
        which ends where the local log begins if there are no others, and without a local log one
        after them."""
        first = pieces[0].start_offset if pieces else until
        lost = [one for one in self._unusable if first is not None
                and one.start_offset < first and one.end_in(lineage) >= one.start_offset]
        if lost and first is not None:
            yield self._gap(min(one.start_offset for one in lost), first - 1, lost)
        for piece in pieces:
            reasons = [one.reason for one in self._unusable if piece.segment is None and
                       one.start_offset <= piece.end_offset and (
                           one.end_offset is None or one.end_offset >= piece.start_offset)]
            yield piece if not reasons else replace(
                piece, cause="; ".join([piece.cause, *reasons[:3]]))
        following = pieces[-1].end_offset + 1 if pieces else 0
        lost = [one for one in self._unusable if one.is_lost and one.end_in(lineage) >= following]
        if lost and until is None:
            start = min(one.start_offset for one in lost)
            yield self._gap(max(start, following), max(one.end_in(lineage) for one in lost), lost)

    def _gap(self, start: int, end: int, lost: Sequence[_Unusable]) -> Piece:
        cause = f"offsets {start} to {end} are in no segment: " + "; ".join(
            one.reason for one in lost[:3])
        self._findings.append(TierFinding("remote_gap", cause, None, start, end))
        return Piece(start, end, None, cause)


def _in_parallel(ask: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    if len(items) < 2:
        return [ask(item) for item in items]
    asked = [_QUESTIONS.submit(partial(ask, item)) for item in items]
    try:
        return [result_of(one) for one in asked]
    finally:
        while asked:  # left after an error, or Ctrl-C; an error must not refer to itself from here
            asked.pop().cancel()


def _reaches_other(segment: RemoteSegment, starts: npt.NDArray[np.int64], until: int | None
                   ) -> bool:
    """Whether another of the segments that begin at `starts`, or the local log, begins between a
    segment's start and its end."""
    assert segment.end_offset is not None
    first, last = np.searchsorted(starts, [segment.start_offset, segment.end_offset + 1])
    return bool(last - first > 1) or until is not None and until <= segment.end_offset


def _possible_epochs(metadata: RemoteLogSegmentMetadata) -> SegmentLeaderEpochs | None:
    """The announced epochs; None if they are negative, or do not begin in order and within the
    segment's offsets (Kafka: LeaderEpochFileCache.epochEntriesInRange)."""
    epochs = metadata.segment_leader_epochs
    bounds = [metadata.start_offset, *(start for _, start in epochs), metadata.end_offset + 1]
    return epochs if epochs[0][0] >= 0 and bounds == sorted(bounds) else None


def _fits(segment: RemoteSegment, entries: Sequence[EpochEntry]) -> bool:
    """Whether a checkpoint is that of a segment, by the epochs that its metadata or manifest says;
    it ends with the segment."""
    epochs = LeaderEpochs(entries)
    latest = epochs.latest
    return (latest is None or segment.end_offset is None
            or latest.start_offset <= segment.end_offset + 1) and all(
        epochs.epoch_for_offset(start) == epoch for epoch, start in segment.epochs or ())


def _contradicts(entries: Sequence[EpochEntry], segments: Sequence[RemoteSegment]) -> bool:
    """Whether an epoch begins elsewhere than segments say. Only one leader wrote it, so that it
    begins at one offset, whatever elections followed; only of the earliest the start may move."""
    starts = {entry.epoch: entry.start_offset for entry in entries[1:]}
    return any(starts[epoch] > start or start > segment.start_offset and starts[epoch] != start
               for segment in segments for epoch, start in segment.epochs or ()
               if epoch in starts)


def _epochs_from(entries: Sequence[EpochEntry], start_offset: int) -> SegmentLeaderEpochs | None:
    """The epochs from a segment's start on, in a checkpoint that ends with the segment."""
    found = [(entry.epoch, max(entry.start_offset, start_offset))
             for entry, following in zip(entries, [*entries[1:], None], strict=True)
             if following is None or following.start_offset > start_offset]
    return tuple(found) or None


def _last_epoch(segment: RemoteSegment) -> int | None:
    return segment.epochs[-1][0] if segment.epochs else None


def _finding(error: SeglogError, segment: RemoteSegment) -> TierFinding:
    return TierFinding(getattr(error, "code", "object_unreadable"), str(error),
                       getattr(error, "file", None), segment.start_offset, segment.end_offset)


def merged_epochs(segments: Sequence[RemoteSegment]) -> list[EpochEntry]:
    """The epochs of the segment with the greatest last epoch, and of the segments that lead up to
    it."""
    lineage: dict[int, int] = {}
    for segment in sorted(segments, key=lambda one: (
            _last_epoch(one) or 0, one.end_offset or one.start_offset), reverse=True):
        earliest = min(lineage, default=None)
        for epoch, start in segment.epochs or ():
            if epoch in lineage:
                if epoch == earliest:
                    lineage[epoch] = min(lineage[epoch], start)
            elif earliest is None or (epoch < earliest and start <= lineage[earliest]):
                lineage[epoch] = start
    return [EpochEntry(epoch, start) for epoch, start in sorted(lineage.items())]
