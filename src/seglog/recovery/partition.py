"""Phase two of a load for one partition: the plan, told as findings and as Kafka's outcome."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seglog._native.scan import HAS_INDEX, HAS_LOG, HAS_TIME_INDEX, FileClass
from seglog._native.status import Status
from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.model import TopicPartition
from seglog.recovery.dry_run import DryRun, LoadInputs, LoadOutcome
from seglog.recovery.failures import FileVanished, LoaderFailure, checkpoint_failure
from seglog.recovery.files import LogFiles, tidy
from seglog.recovery.findings import Finding, Severity, finding, status_code
from seglog.recovery.plan import LoadLevel, PartitionPlan
from seglog.recovery.report import FindingList, PartitionReport
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs
from seglog.storage.meta import read_partition_metadata
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, DirectoryKind, FileKind, file_name,
)

__all__ = ["PartitionState", "judge_partition"]

_KINDS = {
    FileClass.LOG: FileKind.LOG, FileClass.INDEX: FileKind.INDEX,
    FileClass.TIME_INDEX: FileKind.TIME_INDEX, FileClass.TXN_INDEX: FileKind.TXN_INDEX,
}
_PADDING = (Status.INDEX_PADDED, Status.INDEX_UNWRITTEN)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the data directory knows of a partition besides its own directory."""

    directory: str
    topic_partition: TopicPartition
    kind: DirectoryKind
    inputs: LoadInputs


def judge_partition(plan: PartitionPlan, state: PartitionState, level: LoadLevel,
                    verified: list[Finding], listener: Callable[[Finding], None]
                    ) -> PartitionReport:
    """Reports everything that is wrong, and where Kafka would arrive.

    `verified` are the findings of reading the segments, at level `verify`.
    """
    return _Judge(plan, state, level, listener).run(verified)


class _Judge:
    def __init__(self, plan: PartitionPlan, state: PartitionState, level: LoadLevel,
                 listener: Callable[[Finding], None]) -> None:
        self.plan, self.state, self.level, self.listener = plan, state, level, listener
        self.findings = FindingList()
        self.failure: LoaderFailure | None = None
        self.unflushed_segments = self.unflushed_bytes = 0

    def report(self, found: Finding) -> None:
        """Collects a finding and tells the listener, unless there are too many of its kind."""
        if self.findings.add(found):
            self.listener(found)

    def run(self, verified: list[Finding]) -> PartitionReport:
        """All of phase two."""
        outcome: LoadOutcome | None = None
        for found in verified:
            self.report(found)
        try:
            epochs = self._read_epochs()
            files = tidy(self.plan.listing, self.report)
            outcome = self._load(files)
            if outcome is not None and epochs is not None:
                self._check_epochs(epochs, outcome)
            self._read_topic_id()
        except FileVanished as vanished:
            outcome = None
            self.report(finding("file-missing", directory=self.plan.directory,
                                file=vanished.name))
        except LoaderFailure as failure:
            outcome, self.failure = None, failure
            code = {LEADER_EPOCH_CHECKPOINT: "epochs-malformed",
                    PARTITION_METADATA: "topic-id-malformed"}.get(
                        failure.where.get("file", ""), "log-unloadable")
            self.report(failure.to_finding(self.plan.directory, code))
        return self._report(outcome)

    def _report(self, outcome: LoadOutcome | None) -> PartitionReport:
        failure = self.failure
        return PartitionReport(
            directory=self.plan.directory, topic_partition=self.state.topic_partition,
            segments=len(self.plan.segments), size=self.plan.segments.size,
            log_start_offset=outcome.log_start_offset if outcome else None,
            log_end_offset=outcome.log_end_offset if outcome else None,
            recovery_point=self.state.inputs.recovery_point,
            recovery_segments=self.unflushed_segments, recovery_bytes=self.unflushed_bytes,
            kafka_error=failure.kafka_error if failure else None,
            kafka_message=failure.message if failure else None,
            findings=self.findings.close(self.plan.directory))

    # ---- segments -----------------------------------------------------------------------------

    def _load(self, files: LogFiles) -> LoadOutcome | None:
        to_recover = self._check_segments(files)
        for offset, flags in files.orphans:
            for kind, flag in ((FileKind.INDEX, 2), (FileKind.TIME_INDEX, 4),
                               (FileKind.TXN_INDEX, 8)):
                if flags & flag:
                    self.report(finding("orphan-index", directory=self.plan.directory,
                                        file=file_name(offset, kind)))
        if self.state.kind is DirectoryKind.DELETED:
            return None  # Kafka opens its segments and recovers nothing
        run = DryRun(files, self.state.inputs, to_recover, self.report)
        unflushed = run.unflushed()
        if unflushed:
            self.unflushed_segments = len(unflushed)
            self.unflushed_bytes = self._bytes_from(unflushed[0])
            self.report(finding(
                "segments-unflushed", directory=self.plan.directory, offset=unflushed[0],
                found=len(unflushed), bytes=self.unflushed_bytes,
                file=file_name(unflushed[0], FileKind.LOG)))
        if self.level is LoadLevel.VERIFY:
            run.snapshots.verify()
            return run.run()
        if unflushed or (run.bases and run.bases[-1] in to_recover):
            return None  # only a scan can tell
        return run.finish()

    def _bytes_from(self, base: int) -> int:
        table = self.plan.segments
        row = int(np.searchsorted(table.base_offsets, base))
        return int(np.maximum(table.log_size[row:], 0).sum())

    def _check_segments(self, files: LogFiles) -> set[int]:
        """Reports the problems of phase one; the segments that pass four recovers."""
        plan = self.plan
        last = int(files.base_offsets[-1]) if len(files.base_offsets) else -1
        present = set(files.base_offsets.tolist()) if len(plan.problems) else set()
        to_recover: set[int] = set()
        failure: LoaderFailure | None = None
        for problem in plan.problems:
            base = int(plan.segments.base_offsets[problem["row"]])
            kind = _KINDS[FileClass(int(problem["file"]))]
            if base not in present or (kind is FileKind.INDEX and files.has(base, HAS_INDEX)
                                       and problem["status"] == Status.FILE_MISSING):
                continue  # a completed swap replaces the segment, or brings the index back
            failure = failure or self._failure_of(base, kind, problem)
            if self._recovers(base, kind, problem):
                to_recover.add(base)
            self.report(self._finding_of(base, kind, problem, last))
        self._report_missing_time_indexes(files)
        for base in sorted(files.created | {base for base, _ in files.renamed}):
            if base in present or files.has(base, HAS_LOG):
                if not files.has(base, HAS_INDEX):
                    to_recover.add(base)
        if failure is not None:
            raise failure
        return to_recover

    def _failure_of(self, base: int, kind: FileKind, problem: np.void) -> LoaderFailure | None:
        """The exception that this problem is to Kafka; segments come in order, so the first."""
        status, path = int(problem["status"]), f"{self.plan.path}/{file_name(base, kind)}"
        if status == Status.TXN_VERSION and problem["found"] >= 256:
            version = int(problem["found"]) >> 8  # Kafka reads one byte of the two
            return LoaderFailure(
                "KafkaException", f"Unexpected aborted transaction version {version} in "
                f"transaction index {path}, current version is 0", file=file_name(base, kind),
                position=int(problem["position"]))
        if status == Status.FILE_TOO_LARGE:
            return LoaderFailure(
                "KafkaException", f"The size of segment {path} ({problem['found']}) is larger "
                "than the maximum allowed segment size of 2147483647", file=file_name(base, kind))
        return None

    def _recovers(self, base: int, kind: FileKind, problem: np.void) -> bool:
        status = int(problem["status"])
        if kind is FileKind.INDEX:
            return status == Status.FILE_MISSING
        # Of the transaction index Kafka compares with the base offset, not with the entry before.
        return status == Status.TXN_OFFSET and int(problem["found"]) < base

    def _finding_of(self, base: int, kind: FileKind, problem: np.void, last: int) -> Finding:
        status = int(problem["status"])
        code, severity, action = status_code(status), None, None
        if status == Status.FILE_MISSING and kind is FileKind.INDEX:
            code = "index-missing"
        elif base == last and status in _PADDING:
            # The active segment of a running or killed broker: how its indexes always are.
            severity = Severity.INFO
            action = "recovers the segment" if not self.state.inputs.clean_shutdown else None
        elif status == Status.TXN_OFFSET and not self._recovers(base, kind, problem):
            action = "none"
        elif status == Status.TXN_VERSION and self._failure_of(base, kind, problem) is None:
            severity, action = Severity.WARNING, "reads it as version 0"
        numbers: dict[str, Any] = {}
        if problem["sys_errno"]:
            numbers = {"found": os.strerror(int(problem["sys_errno"]))}
        elif status not in (Status.FILE_MISSING, Status.FILE_KIND):
            numbers = {"expected": int(problem["expected"]), "found": int(problem["found"])}
        return finding(code, directory=self.plan.directory, file=file_name(base, kind),
                       position=int(problem["position"]), severity=severity, action=action,
                       **numbers)

    def _report_missing_time_indexes(self, files: LogFiles) -> None:
        missing = (files.flags & HAS_TIME_INDEX) == 0
        for base in files.base_offsets[missing].tolist():
            self.report(finding("time-index-missing", directory=self.plan.directory,
                                file=file_name(base, FileKind.TIME_INDEX)))

    # ---- text files ---------------------------------------------------------------------------

    def _read_epochs(self) -> LeaderEpochs | None:
        path = os.path.join(self.plan.path, LEADER_EPOCH_CHECKPOINT)
        if not os.path.lexists(path):
            self.report(finding("epochs-missing", directory=self.plan.directory,
                                file=LEADER_EPOCH_CHECKPOINT))
            return None
        try:
            return read_leader_epochs(path)
        except MalformedCheckpointError as error:
            raise checkpoint_failure(error, "checkpoint", self.plan.path,
                                     LEADER_EPOCH_CHECKPOINT) from None
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
            if self.state.kind is DirectoryKind.LIVE:
                self.report(finding("topic-id-missing", directory=self.plan.directory,
                                    file=PARTITION_METADATA))
            return
        try:
            read_partition_metadata(path)
        except MalformedCheckpointError as error:
            raise checkpoint_failure(error, "partition metadata", self.plan.path,
                                     PARTITION_METADATA) from None
        except KafkaStorageError as error:
            self._unreadable(PARTITION_METADATA, error)

    def _unreadable(self, name: str, error: KafkaStorageError) -> None:
        self.report(finding("file-unreadable", directory=self.plan.directory, file=name,
                            message=str(error), kafka_error="KafkaStorageException"))
