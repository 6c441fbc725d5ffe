"""Phase two of a load for one partition: turns the plan into findings and Kafka's result."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from seglog.errors import KafkaStorageError
from seglog.recovery.callbacks import LoadListener
from seglog.recovery.loader_failures import (
    FileVanished, IoFailure, LoaderFailure, text_file_failures,
)
from seglog.recovery.findings import Finding, finding
from seglog.recovery.inputs import OFFSET_MAX, LoadInputs, LoadOutcome
from seglog.recovery.load_assembly import assemble
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.partition_plan import LoadLevel, PartitionPlan
from seglog.recovery.load_report import FindingList, PartitionReport
from seglog.recovery.root import PartitionDirectory
from seglog.recovery.scans import SegmentScans
from seglog.recovery.segment_verification import SegmentCheck, staying
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs
from seglog.storage.meta import read_partition_metadata
from seglog.storage.segment_table import total_bytes
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, DirectoryKind, FileKind, file_name,
)

__all__ = ["PartitionState", "Verified", "judge_partition"]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the data directory knows of a partition besides its own directory."""

    partition: PartitionDirectory
    inputs: LoadInputs

    def first_scanned_base(self, base_offsets: npt.NDArray[np.int64]) -> int:
        """The base offset of the first segment that a start scans; OFFSET_MAX for none."""
        row = self.inputs.first_scanned(base_offsets)
        return int(base_offsets[row]) if row < len(base_offsets) else OFFSET_MAX


@dataclass(slots=True)
class Verified:
    """The result of reading a partition's segments: findings, and the number of sound batches.

    `end` is the next offset of the last segment, None while no batch was found in it.
    """

    findings: list[Finding] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    end: int | None = None

    def add(self, directory: str, check: SegmentCheck, *, is_scanned: bool) -> None:
        """Adds the next segment of the partition `directory`; `is_scanned` if a start would scan
        it."""
        self.batches += check.batch_count
        self.records += check.record_count
        self.findings += check.findings if is_scanned else staying(check.findings)
        self.close_gap(directory, check.base_offset)
        self.end = check.next_offset

    def close_gap(self, directory: str, base_offset: int) -> None:
        """Another segment begins at `base_offset`: reports the missing offsets before it."""
        if self.end is not None and self.end < base_offset:
            self.findings.append(finding(
                "offset-gap", directory=directory, offset=self.end, expected=self.end,
                found=base_offset))


def judge_partition(plan: PartitionPlan, state: PartitionState, level: LoadLevel,
                    verified: Verified | None, listener: LoadListener,
                    scans: SegmentScans) -> PartitionReport:
    """Reports every problem, and the result that Kafka would reach.

    `verified` is given at level `verify`.
    """
    return _Judge(plan, state, level, listener, scans, verified).run()


class _Judge:
    def __init__(self, plan: PartitionPlan, state: PartitionState, level: LoadLevel,
                 listener: LoadListener, scans: SegmentScans, verified: Verified | None) -> None:
        self.scans, self.verified = scans, verified
        self.plan, self.state, self.level, self.listener = plan, state, level, listener
        self.findings = FindingList(listener.finding)
        self.report = self.findings.add
        self.failure: LoaderFailure | None = None
        self.unflushed_segments = self.unflushed_bytes = self.recovered = 0

    def run(self) -> PartitionReport:
        """Runs all of phase two."""
        outcome: LoadOutcome | None = None
        for found in self.verified.findings if self.verified else ():
            self.report(found)
        try:
            epochs = self._read_epochs()
            outcome = self._load(epochs.copy() if epochs is not None else LeaderEpochs())
            if outcome is not None and epochs is not None:
                self._check_epochs(epochs, outcome)
            self._read_topic_id()
        except FileVanished as vanished:
            outcome = None
            self._missing(vanished.name)
        except LoaderFailure as failure:
            outcome = None
            self._abandon(failure)
        except KafkaStorageError as error:
            outcome, name = None, os.path.basename(os.fsdecode(error.filename or ""))
            if error.errno == errno.ENOENT:
                self._missing(name)
            else:
                self._abandon(IoFailure(str(error), kafka_error=error.kafka_name, file=name,
                                        position=error.position))
        return self._report(outcome)

    def _missing(self, name: str) -> None:
        self.report(finding("file-missing", directory=self.plan.directory, file=name))

    def _abandon(self, failure: LoaderFailure) -> None:
        self.failure = failure
        code = {LEADER_EPOCH_CHECKPOINT: "epochs-malformed",
                PARTITION_METADATA: "topic-id-malformed"}.get(
                    failure.where.get("file", ""),
                    "file-unreadable" if isinstance(failure, IoFailure) else "log-unloadable")
        self.report(failure.to_finding(self.plan.directory, code))

    def _report(self, outcome: LoadOutcome | None) -> PartitionReport:
        failure = self.failure
        return PartitionReport(
            directory=self.plan.directory, topic_partition=self.state.inputs.topic_partition,
            segments=len(self.plan.segments), size=self.plan.segments.size,
            log_start_offset=outcome.log_start_offset if outcome else None,
            log_end_offset=outcome.log_end_offset if outcome else None,
            recovery_point=self.state.inputs.recovery_point,
            recovery_segments=self.unflushed_segments, recovery_bytes=self.unflushed_bytes,
            kafka_error=failure.kafka_error if failure else None,
            kafka_message=failure.message if failure else None,
            findings=self.findings.close(self.plan.directory),
            batches=self.verified.batches if self.verified else None,
            records=self.verified.records if self.verified else None)

    # ---- segments -----------------------------------------------------------------------------

    def _load(self, epochs: LeaderEpochs) -> LoadOutcome | None:
        inputs, disk = self.state.inputs, OverlayDisk(self.plan.path)
        loader, steps = assemble(self.plan, disk, inputs, epochs, self.report, self._remaining,
                                 self.scans)
        unflushed = loader.unflushed()
        if unflushed:
            self.unflushed_segments = len(unflushed)
            self.unflushed_bytes = self._bytes_from(unflushed[0])
            self.report(finding(
                "segments-unflushed", directory=self.plan.directory, offset=unflushed[0],
                found=len(unflushed), bytes=self.unflushed_bytes,
                file=file_name(unflushed[0], FileKind.LOG)))
        if self.level is LoadLevel.VERIFY:
            self.listener.recovery_started(self.plan.directory, len(unflushed),
                                           self.unflushed_bytes)
            loader.snapshots.verify()
            return loader.run(steps)
        return None if unflushed else loader.run_shallow(steps)

    def _remaining(self, count: int) -> None:
        """The dry recovery has `count` segments left."""
        done = self.unflushed_segments - count - self.recovered
        if done > 0:
            self.recovered += done
            self.listener.segments_recovered(self.plan.directory, done, 0)

    def _bytes_from(self, base: int) -> int:
        table = self.plan.segments
        return total_bytes(table.log_size[table.row(base):])

    # ---- text files ---------------------------------------------------------------------------

    def _read_epochs(self) -> LeaderEpochs | None:
        path = os.path.join(self.plan.path, LEADER_EPOCH_CHECKPOINT)
        if not os.path.lexists(path):
            self.report(finding("epochs-missing", directory=self.plan.directory,
                                file=LEADER_EPOCH_CHECKPOINT))
            return None
        try:
            with text_file_failures("checkpoint", self.plan.path, LEADER_EPOCH_CHECKPOINT):
                return read_leader_epochs(path)
        except KafkaStorageError as error:
            self._unreadable(LEADER_EPOCH_CHECKPOINT, error)
            return None

    def _check_epochs(self, epochs: LeaderEpochs, outcome: LoadOutcome) -> None:
        for entry in epochs:
            if entry.start_offset >= outcome.log_end_offset and entry.start_offset > 0:
                self.report(finding(
                    "epochs-beyond-end", directory=self.plan.directory,
                    file=LEADER_EPOCH_CHECKPOINT, expected=outcome.log_end_offset,
                    found=entry.start_offset))

    def _read_topic_id(self) -> None:
        path = os.path.join(self.plan.path, PARTITION_METADATA)
        if not os.path.lexists(path):
            if self.state.partition.kind is DirectoryKind.LIVE:
                self.report(finding("topic-id-missing", directory=self.plan.directory,
                                    file=PARTITION_METADATA))
            return
        try:
            with text_file_failures("partition metadata", self.plan.path, PARTITION_METADATA):
                read_partition_metadata(path)
        except KafkaStorageError as error:
            self._unreadable(PARTITION_METADATA, error)

    def _unreadable(self, name: str, error: KafkaStorageError) -> None:
        self.report(finding("file-unreadable", directory=self.plan.directory, file=name,
                            message=str(error), kafka_error="KafkaStorageException"))
