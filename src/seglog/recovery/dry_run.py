"""Kafka's LogLoader as a dry run: pass four and recovery, deletions and all, on paper.

Follows reference 7.4 to 7.8. Every step that would change the directory becomes a finding; a step
that Kafka does not survive becomes a LoaderFailure.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from seglog._native.batch import scan_file
from seglog._native.scan import HAS_INDEX, HAS_TIME_INDEX
from seglog._native.status import Status
from seglog.config import LogConfig
from seglog.model import TopicPartition
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.files import LogFiles
from seglog.recovery.findings import Finding, Severity, finding
from seglog.recovery.recover import Extent, SegmentRecovery, count_records, recover_extent
from seglog.recovery.snapshots import Snapshots
from seglog.recovery.tail import (
    LOG_OVERHEAD, framing_failure, log_next_offset, next_offset_from, open_log,
)
from seglog.recovery.transactions import apply_batches
from seglog.storage.paths import FileKind
from seglog.storage.producers import ProducerState

__all__ = ["DryRun", "LoadInputs", "LoadOutcome"]

_RELATIVE_OFFSET_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_BATCHES_PER_CHUNK = 65536

Report = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class LoadInputs:
    """What the data directory says about a log, and the settings that decide its recovery."""

    topic_partition: TopicPartition
    clean_shutdown: bool
    log_start_offset: int
    recovery_point: int
    config: LogConfig


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Where Kafka's loader arrives."""

    log_start_offset: int
    log_end_offset: int
    segments: int


class DryRun:
    """One log. `to_recover` are the segments that pass four recovers (missing or corrupt index).

    `deep` scans the segments that a recovery would; without it a log that needs one has no
    outcome, and only what a clean start reads is read.
    """

    def __init__(self, files: LogFiles, inputs: LoadInputs, to_recover: Iterable[int],
                 report: Report) -> None:
        self.files, self.inputs, self.report = files, inputs, report
        self.to_recover = sorted(to_recover)
        self.bases: list[int] = files.base_offsets.tolist()
        self.recovered: dict[int, SegmentRecovery] = {}
        self.extents: dict[int, Extent] = {}  # of segments that splits made
        self.snapshots = Snapshots(files.path, files.snapshots.tolist(), report)
        self.directory = os.path.basename(files.path)

    # ---- the steps ----------------------------------------------------------------------------

    def run(self) -> LoadOutcome:
        """Pass four, recoverLog, and what follows it."""
        self._with_splits(self._open_segments)
        if not self.inputs.clean_shutdown:
            self._with_splits(self._recover_log)
        return self.finish()

    def unflushed(self) -> list[int]:
        """The segments that recoverLog would recover."""
        if self.inputs.clean_shutdown or self.inputs.recovery_point == _OFFSET_MAX:
            return []
        row = int(np.searchsorted(self.bases, self.inputs.recovery_point, side="right")) - 1
        return self.bases[max(row, 0):]

    def _with_splits(self, step: Callable[[], None]) -> None:
        while True:
            try:
                return step()
            except _Overflow as overflow:
                self._split(overflow.recovery)

    def _open_segments(self) -> None:
        for base in self.to_recover:
            recovery = self._recover(base)
            if recovery.backwards:
                raise LoaderFailure("InvalidOffsetException", recovery.message,
                                    file=self.files.name_of(base, FileKind.LOG))
            self._report_cut(recovery)

    def _recover_log(self) -> None:
        unflushed = self.unflushed()
        for number, base in enumerate(unflushed):
            recovery = self._recover(base)
            if recovery.backwards:
                self._empty(recovery)
                cut = recovery.extent.size
            else:
                cut = recovery.cut_bytes
                self._report_cut(recovery)
            if cut > 0:
                self._remove_segments(unflushed[number + 1:])
                return

    def finish(self) -> LoadOutcome:
        """From the end offset of the last segment to the producer state."""
        start = self.inputs.log_start_offset
        end = self._next_offset(self.bases[-1]) if self.bases else None
        if end is not None and end < start:
            self.report(finding(
                "log-end-below-start", directory=self.directory, expected=start, found=end,
                offset=self.bases[0], bytes=sum(self.extent(base).size for base in self.bases)))
            self.bases, end = [], None
            self.snapshots.clear()
        if not self.bases:
            self.bases = [start]
            end = start
            self.recovered[start] = SegmentRecovery(
                start, Extent("", 0, 0), 0, start, 0, 0, Status.END, 0, 0)
        assert end is not None
        self._resize_indexes(self.bases[-1])
        first = max(start, self.bases[0])
        self.snapshots.remove_stray(self.bases)
        if self.inputs.clean_shutdown and not self.snapshots.offsets:
            self._report_no_snapshot()
        else:
            self._rebuild(first, end)
        return LoadOutcome(first, end, len(self.bases))

    # ---- one segment --------------------------------------------------------------------------

    def extent(self, base: int) -> Extent:
        """The bytes of a segment before any recovery."""
        if base in self.extents:
            return self.extents[base]
        if base in self.files.created:
            return Extent("", 0, 0)
        path = self.files.path_of(base, FileKind.LOG)
        try:
            return Extent(path, 0, os.stat(path, follow_symlinks=False).st_size)
        except OSError:
            return Extent(path, 0, 0)

    def _recover(self, base: int) -> SegmentRecovery:
        """recoverSegment: producer state up to the segment, then the segment itself."""
        producers = self._rebuild(self.inputs.log_start_offset, base, of_recovery=True)
        recovery = recover_extent(base, self.extent(base), self.inputs.config, producers)
        if recovery.overflow:
            raise _Overflow(recovery)
        if recovery.invalid_record is not None:
            raise recovery.invalid_record
        self.recovered[base] = recovery
        if not recovery.backwards:
            self.snapshots.take(recovery.next_offset, producers)
        return recovery

    def _next_offset(self, base: int) -> int:
        if base in self.recovered:
            return self.recovered[base].next_offset
        extent = self.extent(base)
        if not extent.path:
            return base
        if base in self.extents:
            fd = open_log(extent.path)
            try:
                return next_offset_from(fd, extent.path, extent.start, extent.end, base, base)
            finally:
                os.close(fd)
        index = (self.files.path_of(base, FileKind.INDEX) if self.files.has(base, HAS_INDEX)
                 else None)
        return log_next_offset(extent.path, base, index)

    def _report_cut(self, recovery: SegmentRecovery) -> None:
        if recovery.cut_bytes <= 0:
            return
        records, last_offset = count_behind(recovery)
        known = recovery.next_offset
        cause = recovery.status.code.replace("_", " ")
        self.report(finding(
            "log-truncated", directory=self.directory, position=recovery.valid_end,
            file=self.files.name_of(recovery.base_offset, FileKind.LOG),
            expected=recovery.expected, found=recovery.found, bytes=recovery.cut_bytes,
            records=records, offset=known, severity=None if records else Severity.WARNING,
            message=f"recovery cuts {recovery.cut_bytes} bytes at byte {recovery.valid_end} "
                    f"({cause}) with {records} records, offsets {known} to "
                    f"{max(last_offset, known - 1)}"))

    def _empty(self, recovery: SegmentRecovery) -> None:
        base = recovery.base_offset
        self.recovered[base] = SegmentRecovery(base, recovery.extent, recovery.extent.start, base,
                                               0, 0, recovery.status, 0, 0)
        self.report(finding(
            "segment-emptied", directory=self.directory, position=0, offset=base,
            file=self.files.name_of(base, FileKind.LOG), bytes=recovery.extent.size,
            records=recovery.record_count + count_behind(recovery)[0]))

    def _remove_segments(self, bases: list[int]) -> None:
        if not bases:
            return
        gone = set(bases)
        self.report(finding(
            "segments-removed", directory=self.directory, offset=bases[0], found=len(bases),
            file=self.files.name_of(bases[0], FileKind.LOG),
            bytes=sum(self.extent(base).size for base in bases),
            message=f"{len(bases)} segments behind the cut, from offset {bases[0]} on"))
        self.bases = [base for base in self.bases if base not in gone]
        self.snapshots.remove(gone)

    def _resize_indexes(self, base: int) -> None:
        """The active segment's indexes become writable, which none above the limit survives."""
        if base in self.recovered or base in self.extents:
            return
        for kind, flag, width in ((FileKind.INDEX, HAS_INDEX, 8),
                                  (FileKind.TIME_INDEX, HAS_TIME_INDEX, 12)):
            if not self.files.has(base, flag):
                continue
            try:
                size = os.stat(self.files.path_of(base, kind), follow_symlinks=False).st_size
            except OSError:
                continue
            limit = self.inputs.config.segment_index_bytes // width * width
            if size // width * width > limit:
                raise LoaderFailure(
                    "IllegalArgumentException",
                    f"newPosition > limit: ({size // width * width} > {limit})",
                    file=self.files.name_of(base, kind), expected=limit, found=size)

    # ---- producer state -----------------------------------------------------------------------

    def _rebuild(self, start: int, end: int, of_recovery: bool = False) -> ProducerState:
        """rebuildProducerState: the newest usable snapshot, then headers up to `end`."""
        position, entries = self.snapshots.load(start, end)
        producers = ProducerState(self.inputs.topic_partition, position, entries)
        if end > position:
            first = max(bisect_right(self.bases, position) - 1, 0)
            for base in self.bases[first:bisect_left(self.bases, end)]:
                self._replay(base, max(base, position, start), end, producers)
        if not of_recovery:
            self.snapshots.take(end, producers)
        return producers

    def _replay(self, base: int, start: int, end: int, producers: ProducerState) -> None:
        """Headers of one segment, without CRCs, as Kafka trusts them here."""
        recovery = self.recovered.get(base)
        extent = self.extent(base) if recovery is None else Extent(
            recovery.extent.path, recovery.extent.start, recovery.valid_end)
        if extent.size <= 0:
            return
        fd = open_log(extent.path)
        try:
            position = extent.start
            while True:
                scan = scan_file(fd, position, extent.end, check_crcs=False,
                                 max_batches=_BATCHES_PER_CHUNK)
                batches = scan.batches
                inside = (batches["last_offset"] >= start) & (batches["base_offset"] < end)
                apply_batches(producers, batches[inside], fd, os.path.basename(extent.path))
                position = scan.position
                if scan.status == Status.FULL:
                    continue
                if scan.status == Status.BATCH_SIZE and scan.next_position is not None:
                    position = scan.next_position
                    continue
                if extent.end - position > LOG_OVERHEAD and scan.status in (
                        Status.BATCH_LENGTH, Status.ZERO_TAIL):
                    raise framing_failure(
                        extent.path, position,
                        scan.found if scan.status == Status.BATCH_LENGTH else 0)
                return
        finally:
            os.close(fd)

    def _report_no_snapshot(self) -> None:
        """Whether the last segment begins with a producer's batches; a few headers tell."""
        base = self.bases[-1]
        extent = self.extent(base)
        if extent.size == 0:
            return
        fd = open_log(extent.path)
        try:
            scan = scan_file(fd, extent.start, extent.end, check_crcs=False, max_batches=16)
        finally:
            os.close(fd)
        if np.any(scan.batches["producer_id"] >= 0):
            self.report(finding("snapshot-missing", directory=self.directory, offset=base))

    # ---- splitting ----------------------------------------------------------------------------

    def _split(self, recovery: SegmentRecovery) -> None:
        """splitOverflowedSegment: new segments where the distance to the base gets too large."""
        base, extent = recovery.base_offset, recovery.extent
        pieces: list[tuple[int, int]] = []
        current, position, last_offset = base, extent.start, base
        fd = open_log(extent.path)
        try:
            while True:
                scan = scan_file(fd, position, extent.end, check_crcs=False,
                                 max_batches=_BATCHES_PER_CHUNK)
                for batch in scan.batches[["base_offset", "last_offset", "position"]]:
                    first, last_offset, at = (int(value) for value in batch.tolist())
                    if not pieces or last_offset - current > _RELATIVE_OFFSET_MAX:
                        current = first
                        pieces.append((first, at))
                position = scan.position
                if scan.status != Status.FULL:
                    break
        finally:
            os.close(fd)
        if extent.end - position > LOG_OVERHEAD and scan.status in (Status.BATCH_LENGTH,
                                                                    Status.ZERO_TAIL):
            raise framing_failure(extent.path, position,
                                  scan.found if scan.status == Status.BATCH_LENGTH else 0)
        if last_offset - base <= _RELATIVE_OFFSET_MAX:
            raise LoaderFailure(
                "IllegalArgumentException", "Split operation is only permitted for segments with "
                f"overflow, and the problem path is {extent.path}",
                file=os.path.basename(extent.path), expected=base, found=recovery.found)
        if position < extent.end:
            # Kafka's copy loop runs to the end of the file and asks for a batch that is not there.
            raise LoaderFailure("NoSuchElementException", "null", position=position,
                                file=os.path.basename(extent.path), expected=extent.end)
        self.report(finding(
            "offset-overflow", directory=self.directory, position=recovery.valid_end,
            file=os.path.basename(extent.path), expected=base + _RELATIVE_OFFSET_MAX,
            found=recovery.found))
        ends = [at for _, at in pieces[1:]] + [position]
        for (first, at), end in zip(pieces, ends, strict=True):
            self.extents[first] = Extent(extent.path, at, end)
        kept = {first for first, _ in pieces}
        self.bases = sorted({*self.bases, *kept} - ({base} - kept))
        self.snapshots.remove({base} - kept)
        self.to_recover = [one for one in self.to_recover if one != base]


class _Overflow(Exception):
    """LogSegmentOffsetOverflowException."""

    def __init__(self, recovery: SegmentRecovery) -> None:
        super().__init__(recovery.base_offset)
        self.recovery = recovery


def count_behind(recovery: SegmentRecovery) -> tuple[int, int]:
    """(records, last offset) of what still looks like batches behind the cut; -1 for no offset."""
    records, last_offset = 0, -1
    fd = open_log(recovery.extent.path)
    try:
        position: int | None = recovery.valid_end
        while position is not None:
            scan = scan_file(fd, position, recovery.extent.end, check_crcs=False,
                             max_batches=_BATCHES_PER_CHUNK)
            records += count_records(scan.batches)
            last_offset = max(last_offset, scan.last_offset)
            position = scan.position if scan.status == Status.FULL else scan.next_position
    finally:
        os.close(fd)
    return records, last_offset
