"""Kafka's LogLoader: from the files of a partition to a log that can be written to.

Follows LogLoader.loadSegmentFiles and recoverLog. It changes the directory only through a Disk, so
the dry run and the real load run this same code. Every step that changes something is also a
finding; a step at which Kafka fails is a LoaderFailure.

Kafka's order of steps can lose data when the process is killed between two of them. In those places
the order here differs, with the same result. Later segments are removed before the bad batch is
truncated, each file is replaced in one step, and the cause of a segment's recovery is repaired
last.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from seglog._native.batch import scan_file
from seglog.recovery.claims import Claims, claims_after, claims_of, counted
from seglog.recovery.disk import Disk
from seglog.recovery.loader_failures import InvalidOffset, IoFailure, LoaderFailure
from seglog.recovery.loading_passes import number_failure
from seglog.recovery.findings import Report, Severity, finding
from seglog.recovery.index_files import check_txn_index
from seglog.recovery.inputs import OFFSET_MAX, LoadInputs, LoadOutcome, Step
from seglog.recovery.loading_producers import LoadingProducers, rebuild_producers
from seglog.recovery.segment_recovery import RecoveryFailure, SegmentRecovery, recover_extent
from seglog.recovery.scans import SegmentScans
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.recovery.snapshot_files import Snapshots
from seglog.recovery.split import split_segment
from seglog.recovery.next_offset import opened_log
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.paths import FileKind, FileState, file_name

__all__ = ["LogLoader"]

_LOG_BYTES_MAX = 2**31 - 1
_LOWEST_OFFSET = -2**63 + 1

_logger = logging.getLogger("seglog.LogLoader")


class LogLoader:
    """The loader of one log, for one thread. `remaining` is called before each segment of a
    recovery with the number left; `scans` may scan ahead."""

    def __init__(self, disk: Disk, inputs: LoadInputs, segments: LoadedSegments,
                 snapshots: Snapshots, epochs: LeaderEpochs, report: Report,
                 remaining: Callable[[int], None] | None = None,
                 scans: SegmentScans | None = None) -> None:
        self.scans = scans
        self.disk, self.inputs, self.segments = disk, inputs, segments
        self.snapshots, self.epochs, self.report = snapshots, epochs, report
        self.remaining = remaining or (lambda count: None)
        self.producers = self._new_producers()
        self.directory = os.path.basename(disk.path)
        self.prefix = (f"[LogLoader partition={inputs.topic_partition}, "
                       f"dir={segments.parent}] ")
        self._epochs_changed = False
        self.removed: list[str] = []  # files of removed segments, under their .deleted names

    def _new_producers(self) -> LoadingProducers:
        return LoadingProducers(self.inputs.topic_partition, self.snapshots,
                                self.inputs.producer_id_expiration_ms, self.inputs.clock)

    def _log(self, level: int, message: str, *values: object) -> None:
        _logger.log(level, "%s" + message, self.prefix, *values)

    # ---- the steps ----------------------------------------------------------------------------

    def run(self, steps: list[Step]) -> LoadOutcome:
        """Runs pass four, recoverLog, and the steps after it."""
        try:
            for step in sorted(steps, key=lambda one: one.name.encode("utf-16-be",
                                                                      "surrogatepass")):
                self.take_step(step)
            while not self._recover_log():
                pass
            return self.finish()
        finally:
            self.scans = None  # its threads belong to the load; a deferred recovery comes later
            self.write_epochs()

    def run_shallow(self, steps: list[Step]) -> LoadOutcome | None:
        """The result of a load that has nothing to recover at its end, without reading a segment;
        None if only a scan can tell."""
        last = int(self.segments.base_offsets[-1]) if len(self.segments) else -1
        for step in steps:
            base = step.base_offset
            if base is None or step.is_orphan:
                self.take_step(step)
            elif (self._is_index_missing(self._opened(base))
                  or check_txn_index(self.segments.get(base).txn_index, base) is not None):
                if base >= last:
                    return None
            else:
                self.take_step(step)
        return self.finish()

    def write_epochs(self) -> None:
        """Writes the leader epochs if they changed."""
        if self._epochs_changed:
            self._epochs_changed = False
            self.disk.write_epochs(self.epochs)

    def unflushed(self) -> list[int]:
        """The segments that recoverLog recovers: those below Long.MAX_VALUE."""
        first = self.inputs.first_scanned(self.segments.base_offsets)
        rest = self.segments.bases(range(first, len(self.segments)))
        return [base for base in rest if base < OFFSET_MAX]

    # ---- pass four ----------------------------------------------------------------------------

    def take_step(self, step: Step) -> None:
        """Handles one file as pass four does."""
        if step.base_offset is None:
            raise number_failure(step.name)
        if not step.is_orphan:
            # Kafka opens files by name, and knows of no segment yet at one such as `+219.log`.
            self._open_segment(step.base_offset,
                               step.base_offset if step.name >= "0" else _LOWEST_OFFSET)
        elif self.disk.size(file_name(step.base_offset, FileKind.LOG)) is None:
            self._log(logging.WARNING, "Found an orphaned index file %s, with no corresponding log "
                      "file.", self._path(step.name))
            self.disk.delete(step.name)

    def _path(self, name: str) -> str:
        return os.path.join(os.path.abspath(self.disk.path), name)

    def _open_segment(self, base: int, limit: int) -> None:
        """Segments below `limit` were opened before it."""
        segment = self._opened(base)
        if self._is_index_missing(segment):
            if self.inputs.clean_shutdown or base < self.inputs.recovery_point:
                self._log(logging.ERROR, "Could not find offset index file corresponding to log "
                          "file %s, recovering segment and rebuilding index files...",
                          segment.log_path)
            self.recover_segment(base, limit, index_last=True)
            return
        if self.disk.size(segment.time_index.name) is None:
            self.disk.create(segment.time_index.name)
            segment.time_index.open()
        problem = check_txn_index(segment.txn_index, base)
        if problem is not None:
            self._log(logging.WARNING, "Found a corrupted index file corresponding to log file %s "
                      "due to %s, recovering segment and rebuilding index files...",
                      segment.log_path, problem)
            self.recover_segment(base, limit, index_last=False)
            return
        self.segments.release(segment)

    def _opened(self, base: int) -> SegmentFiles:
        """Opens the segment, and creates its log if it is missing. Raises LoaderFailure for a log
        that is too large."""
        if base not in self.segments:
            if self.disk.size(file_name(base, FileKind.LOG)) is None:
                self.disk.create(file_name(base, FileKind.LOG))
            self.segments.add(SegmentFiles(self.disk, base, self.inputs.config))
        segment = self.segments.get(base)
        if segment.size > _LOG_BYTES_MAX:
            raise LoaderFailure(
                "KafkaException", f"The size of segment {segment.log_path} ({segment.size}) is "
                f"larger than the maximum allowed segment size of {_LOG_BYTES_MAX}",
                file=segment.log_name)
        return segment

    def _is_index_missing(self, segment: SegmentFiles) -> bool:
        return self.disk.size(segment.offset_index.name) is None

    def recover_segment(self, base: int, limit: int, *, index_last: bool) -> None:
        """Recovers a segment whose indexes are invalid, with producers of segments below `limit`.
        Later segments stay unchanged."""
        try:
            segment, recovery, producers = self._scan(base, limit)
        except _Overflow as overflow:
            self._split_unopened(overflow.recovery, index_last)
            return
        except _Backwards as backwards:
            raise InvalidOffset(backwards.recovery.message,
                                file=file_name(base, FileKind.LOG)) from None
        self._take(segment, recovery, producers, index_last)

    # ---- recoverLog ---------------------------------------------------------------------------

    def _recover_log(self) -> bool:
        """Recovers the unflushed segments. False if a split requires a restart."""
        unflushed = self.unflushed()
        if unflushed:
            self.remaining(len(unflushed))
        if self.scans is not None:
            self.scans.expect(self.segments.get(base).extent for base in unflushed)
        for number, base in enumerate(unflushed):
            self._log(logging.INFO, "Recovering unflushed segment %s. %s recovered for %s.", base,
                      number // len(unflushed), self.inputs.topic_partition)
            try:
                segment, recovery, producers = self._scan(base)
            except _Overflow as overflow:
                self._split(overflow.recovery)
                return False
            except _Backwards as backwards:
                cut = self._empty(backwards.recovery, unflushed[number + 1:])
            else:
                cut = recovery.cut_bytes
                later = unflushed[number + 1:] if cut > 0 else []
                self._remove_segments(later)
                self._take(segment, recovery, producers, index_last=False)
                # The segment's new end offset may be the base offset of a removed segment.
                self.removed += self.snapshots.retire(later)
            if cut > 0:
                self._log(logging.WARNING, "Corruption found in segment %s, truncating to offset "
                          "%s", base, self.segments.get(base).read_next_offset())
                self.remaining(0)
                return True
            self.remaining(len(unflushed) - number - 1)
        return True

    def _scan(self, base: int, limit: int | None = None
              ) -> tuple[SegmentFiles, SegmentRecovery, LoadingProducers]:
        """Runs recoverSegment up to its first change: the producers before the segment, and its
        scan."""
        producers = self._new_producers()
        rebuild_producers(producers, self.segments, self.inputs.log_start_offset, base,
                          limit=limit)
        segment, latest = self.segments.get(base), self.epochs.latest
        try:
            recovery = recover_extent(
                base, segment.extent, self.inputs.config, producers.state, scans=self.scans,
                latest_epoch=-1 if latest is None else latest.epoch)
        except RecoveryFailure as failure:
            # What a read failed at is not what is in the file: everything stays as it is.
            if not isinstance(failure.failure, IoFailure):
                self._assign(failure.recovery)
                self._take_failed(segment, failure.recovery)
            raise
        self._assign(recovery)
        if recovery.overflow:
            self._log(logging.INFO, "Caught segment overflow error: %s. Split segment and retry.",
                      recovery.message)
            raise _Overflow(recovery)
        if recovery.backwards:
            self._take_failed(segment, recovery)
            raise _Backwards(recovery)
        return segment, recovery, producers

    def _take_failed(self, segment: SegmentFiles, recovery: SegmentRecovery) -> None:
        if recovery.is_scanned:
            self._report_cut(segment, recovery)
        segment.take_failed(recovery)

    def _assign(self, recovery: SegmentRecovery) -> None:
        for entry in recovery.epochs:
            self._epochs_changed |= self.epochs.assign(entry.epoch, entry.start_offset)
        # Before the segment is whole, because the epochs of a whole segment are never read again.
        self.write_epochs()

    def _take(self, segment: SegmentFiles, recovery: SegmentRecovery, producers: LoadingProducers,
              index_last: bool) -> None:
        self._report_cut(segment, recovery)
        self.report(finding(
            "segment-rebuilt", directory=self.directory, file=segment.log_name,
            offset=segment.base_offset, bytes=recovery.valid_end - recovery.extent.start,
            records=recovery.record_count, batches=recovery.batch_count))
        # A flush covers what follows the recovery point; the rest must be durable now.
        sync = (self.inputs.clean_shutdown or segment.base_offset < self.inputs.recovery_point)
        segment.take(recovery, sync=sync, index_last=index_last)
        self.segments.release(segment)
        producers.take_snapshot()

    def _report_cut(self, segment: SegmentFiles, recovery: SegmentRecovery) -> None:
        if recovery.cut_bytes <= 0:
            return
        position = recovery.valid_end - recovery.extent.start
        claims = claims_after(recovery.extent, recovery.valid_end, recovery.next_offset,
                              segment.base_offset)
        cause = recovery.status.code.replace("_", " ")
        self._log(logging.WARNING, "Found invalid messages in log segment %s at byte offset %s.",
                  segment.log_path, position)
        self._report_lost(
            "log-truncated", claims, recovery.cut_bytes, recovery.next_offset,
            file=segment.log_name, position=position, expected=recovery.expected,
            found=recovery.found,
            message=f"recovery cuts {recovery.cut_bytes} bytes at byte {position} ({cause}) with "
                    f"{claims}")
        self.disk.keep(segment.log_name, position)

    def _report_lost(self, code: str, claims: Claims, size: int, offset: int,
                     **where: Any) -> None:
        """Reports bytes that are dropped, with what their headers claim. Zeros are no loss."""
        self.report(finding(
            code, directory=self.directory, bytes=size, records=claims.records,
            batches=claims.batches, unread_bytes=claims.unread_bytes,
            offset=offset if claims.first_offset is None else claims.first_offset,
            last_offset=claims.last_offset, severity=None if claims else Severity.WARNING, **where))

    def _empty(self, recovery: SegmentRecovery, later: list[int]) -> int:
        """Empties a segment whose offsets go backwards where an index entry was due. Returns the
        number of dropped bytes."""
        base = recovery.base_offset
        self._log(logging.WARNING, "Found invalid offset during recovery. Deleting the corrupt "
                  "segment and creating an empty one with starting offset %s", base)
        segment = self.segments.get(base)
        position, size = segment.translate(base), segment.size
        if position is not None and position < size:
            extent = recovery.extent
            claims = claims_after(extent, extent.start + position, base, base)
            self._report_lost(
                "segment-emptied", claims, size - position, base, position=position,
                file=segment.log_name, message=f"recovery empties the whole segment at offsets "
                f"that go backwards, with {claims}")
            self._remove_segments(later)
            self.removed += self.snapshots.retire(later)
            self.disk.keep(segment.log_name, position)
        segment.truncate_indexes(base)
        segment.truncate_log(position)
        self.segments.release(segment)
        return size - segment.size

    def _remove_segments(self, bases: list[int]) -> None:
        """Removes segments; their files become .deleted."""
        if not bases:
            return
        removed = {base: self.segments.get(base).extent for base in bases}
        claims = claims_of(removed)
        self._log(logging.INFO, "Deleting segments as part of log recovery: %s", bases)
        self._report_lost(
            "segments-removed", claims, sum(one.size for one in removed.values()), bases[0],
            file=file_name(bases[0], FileKind.LOG), found=len(bases),
            message=f"{counted(len(bases), 'segment')} behind the cut, from offset {bases[0]} on, "
                    f"with {claims}")
        self._delete_segments(bases)
        # Durably: with the cut alone on the disk after a power cut, they would be back behind it.
        self.disk.sync_directory()

    def _delete_segments(self, bases: list[int]) -> None:
        segments = [self.segments.get(base) for base in bases]
        for segment in segments:
            self.disk.keep(segment.log_name)
            segment.rename(FileState.LIVE, FileState.DELETED)  # a later step or load deletes them
            self._note_removed(segment)
        self.segments.remove(bases)

    def _note_removed(self, segment: SegmentFiles) -> None:
        self.removed += [name for name in segment.names(FileState.DELETED)
                         if self.disk.size(name) is not None]

    def _split(self, recovery: SegmentRecovery) -> None:
        base = recovery.base_offset
        segment = self.segments.get(base)
        segment.take_failed(recovery)
        made = split_segment(self.disk, self.inputs.config, segment, recovery, retire=True)
        self._note_split(segment, made)
        self._note_removed(segment)
        if base in self.segments and min(one.base_offset for one in made) < base:
            # Kafka drops the old segment by its base offset, unless the first new one has it.
            self.segments.remove([base])
        elif base not in self.segments:
            self.removed += self.snapshots.retire([base])

    def _split_unopened(self, recovery: SegmentRecovery, index_last: bool) -> None:
        """Splits a segment in pass four, where Kafka does not know it yet and removes no file of
        it.

        Kafka changes the old files before it splits. Here that comes after the split: otherwise a
        load that is killed in between would not find the overflow again.
        """
        base = recovery.base_offset
        segment = self.segments.get(base)
        if index_last:
            segment.txn_index.replace(recovery.aborted, sync=True)
        try:
            made = split_segment(self.disk, self.inputs.config, segment, recovery, retire=False)
        except LoaderFailure:
            segment.take_failed(recovery)
            raise
        self._note_split(segment, made)
        if base in self.segments:
            segment.txn_index.replace(recovery.aborted, sync=True)
        else:
            segment.take_failed(recovery)
            self.segments.add(SegmentFiles(self.disk, base, self.inputs.config))

    def _note_split(self, segment: SegmentFiles, made: list[SegmentFiles]) -> None:
        self.report(finding(
            "offset-overflow", directory=self.directory, offset=segment.base_offset,
            bytes=segment.size, file=segment.log_name, found=len(made)))
        self.segments.remove([segment.base_offset])
        for one in made:
            self.segments.add(one)

    # ---- what follows -------------------------------------------------------------------------

    def finish(self) -> LoadOutcome:
        """The steps from the end offset of the last segment to the producer state."""
        inputs, start = self.inputs, self.inputs.log_start_offset
        recovery_point, end = (0, 0) if inputs.is_deleted else self._end_offsets()
        if inputs.is_deleted and not len(self.segments):
            self._new_segment(0, preallocate=False)
        last = self.segments.get(int(self.segments.base_offsets[-1]))
        if not inputs.is_deleted:
            last.resize_indexes()
        if inputs.is_recovered:
            last.max_timestamp()  # as after the recovery: a truncation reads it from the log again
        self._epochs_changed |= self.epochs.truncate_from_end(end)
        first = start if inputs.is_remote else max(start, int(self.segments.base_offsets[0]))
        self._epochs_changed |= self.epochs.truncate_from_start(start)
        self.segments.release(last)
        self.snapshots.remove_stray(self.segments.base_offsets)
        if inputs.clean_shutdown and not self.snapshots.offsets:
            self._report_no_snapshot()
        rebuild_producers(self.producers, self.segments, first, end, clean=inputs.clean_shutdown)
        self.snapshots.sync()
        if not inputs.clean_shutdown:
            # Records that a recovery removed must not reappear after new ones.
            self.disk.sync_directory()
        return LoadOutcome(first, recovery_point, end)

    def _end_offsets(self) -> tuple[int, int]:
        """(recovery point, log end offset); creates a segment if there is none."""
        inputs, start = self.inputs, self.inputs.log_start_offset
        end: int | None = None
        if len(self.segments):
            # Not released: `finish` still needs it.
            end = self.segments.get(int(self.segments.base_offsets[-1])).read_next_offset()
            if end < start:
                self._delete_all(start, end)
                end = None
        if not len(self.segments):
            self._new_segment(start, preallocate=inputs.config.preallocate)
        if end is not None and inputs.clean_shutdown and not inputs.is_recovered:
            return end, end
        end = start if end is None else end
        return min(inputs.recovery_point, end), end

    def _delete_all(self, start: int, end: int) -> None:
        bases: list[int] = self.segments.base_offsets.tolist()
        self._log(logging.WARNING, "Deleting all segments because logEndOffset (%s) is smaller "
                  "than logStartOffset %s. This could happen if segment files were deleted from "
                  "the file system.", end, start)
        claims = claims_of({base: self.segments.get(base).extent for base in bases})
        self._report_lost(
            "log-end-below-start", claims, self.segments.size, bases[0], expected=start, found=end,
            message=f"the log ends at offset {end}, below its checkpointed start {start}: all "
                    f"segments go, with {claims}")
        self.epochs.clear()
        self._epochs_changed = True
        self.write_epochs()
        self._delete_segments(bases)
        # Kafka searches the snapshots to rename when no segment is left, and so finds none.
        self.producers.truncate_fully_and_start_at(start)

    def _new_segment(self, base: int, *, preallocate: bool) -> None:
        config = self.inputs.config
        name = file_name(base, FileKind.LOG)
        if preallocate:
            self.disk.preallocate(name, config.segment_size)
        else:
            self.disk.create(name)
        self.segments.add(SegmentFiles(self.disk, base, config, size=0))

    def _report_no_snapshot(self) -> None:
        """Reports a missing snapshot if the last segment begins with a producer's batches; a few
        headers tell."""
        base = int(self.segments.base_offsets[-1])
        extent = self.segments.get(base).extent
        if extent.size == 0:
            return
        with opened_log(extent.path) as fd:
            scan = scan_file(fd, extent.start, extent.end, check_crcs=False, max_batches=16)
        if np.any(scan.batches["producer_id"] >= 0):
            self.report(finding("snapshot-missing", directory=self.directory, offset=base))


class _Refused(Exception):
    """The recovery of a segment cannot apply one of its batches."""

    def __init__(self, recovery: SegmentRecovery) -> None:
        super().__init__(recovery.message)
        self.recovery = recovery


class _Overflow(_Refused):
    """LogSegmentOffsetOverflowException."""


class _Backwards(_Refused):
    """InvalidOffsetException."""
