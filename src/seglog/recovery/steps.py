"""Turns the checks of phase one into findings, and the files that pass four handles."""

from __future__ import annotations

import errno
import os
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from seglog._native.scan import HAS_TIME_INDEX, FileClass
from seglog._native.status import Status
from seglog.errors import KafkaStorageError
from seglog.recovery.loading_passes import ListedFiles
from seglog.recovery.findings import Finding, Report, Severity, finding, status_code
from seglog.recovery.inputs import Step
from seglog.recovery.partition_plan import CheckedSegments, PartitionPlan
from seglog.storage.paths import FileKind, FileState, file_name, parse_file_name

__all__ = ["SegmentSteps", "raise_unreadable", "stops_at"]


_KINDS = {
    FileClass.LOG: FileKind.LOG, FileClass.INDEX: FileKind.INDEX,
    FileClass.TIME_INDEX: FileKind.TIME_INDEX, FileClass.TXN_INDEX: FileKind.TXN_INDEX,
}
_INDEX_KINDS = (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_PADDING = (Status.INDEX_PADDED, Status.INDEX_UNWRITTEN)
_TXN_STATUSES = (Status.TXN_OFFSET, Status.TXN_VERSION)


def raise_unreadable(plan: PartitionPlan) -> None:
    """Raises KafkaStorageError if a file could not be checked: that says nothing about its
    bytes."""
    problems = plan.problems
    for problem in problems[problems["sys_errno"] != 0] if len(problems) else ():
        base = int(plan.segments.base_offsets[problem["row"]])
        name = file_name(base, _KINDS[FileClass(int(problem["file"]))])
        number = int(problem["sys_errno"])
        raise KafkaStorageError(number, os.strerror(number), os.path.join(plan.path, name),
                                position=int(problem["position"]))
    for name, kind in plan.listing.others:
        if kind is FileClass.LINK and name.endswith(tuple(one.value for one in _KINDS.values())):
            number, what = errno.ELOOP, "a symbolic link"
        elif kind is FileClass.DIRECTORY and _is_index(name, plan):
            number, what = errno.EISDIR, "a directory"
        else:
            continue
        raise KafkaStorageError(number, f"{what} where a file of a segment is expected",
                                os.path.join(plan.path, name))


def _is_index(name: str, plan: PartitionPlan) -> bool:
    """Whether a segment's index has this name. (Kafka ignores a directory with the name of a log,
    but opens one with that of an index.)"""
    found = parse_file_name(name)
    return (found.kind in _INDEX_KINDS and found.state is FileState.LIVE and found.canonical
            and found.offset is not None and found.offset in plan.segments)


def stops_at(problems: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which problems pass four handles: rows of PROBLEM_DTYPE."""
    if not len(problems):
        return np.zeros(0, np.bool_)  # a large directory has thousands of these
    status, kind = problems["status"], problems["file"]
    stops: npt.NDArray[np.bool_] = (
        (kind == FileClass.INDEX) & (status == Status.FILE_MISSING)
        | (kind == FileClass.TXN_INDEX) & np.isin(status, _TXN_STATUSES)
        | (kind == FileClass.LOG) & (status == Status.FILE_TOO_LARGE))
    return stops


class SegmentSteps:
    """Compares the plan of phase one with the files that passes one to three left."""

    def __init__(self, plan: PartitionPlan, files: ListedFiles, clean_shutdown: bool) -> None:
        self.plan, self.files, self.clean_shutdown = plan, files, clean_shutdown
        self._kept = (np.isin(plan.segments.base_offsets, files.base_offsets)
                      if len(files.base_offsets) != len(plan.segments)
                      else np.ones(len(plan.segments), np.bool_))

    def segments(self) -> CheckedSegments:
        """The segments of the logs that existed and still exist."""
        if self._kept.all():
            return self.plan.segments
        return CheckedSegments(*(getattr(self.plan.segments, column.name)[self._kept]
                                 for column in fields(CheckedSegments)))

    def steps(self) -> list[Step]:
        """The files to handle one by one; all other segments are sound."""
        table, problems = self.plan.segments, self.plan.problems
        suspect = (table.flags & HAS_TIME_INDEX) == 0
        if len(problems):
            suspect[problems["row"][stops_at(problems)]] = True
        bases = table.base_offsets[suspect & self._kept].tolist()
        return [*(Step(file_name(base, FileKind.LOG), base) for base in bases),
                *(Step(name, base) for name, base in self.files.opened.items()),
                *(Step(name, base, is_orphan=True) for name, base in self.files.orphans.items()),
                *(Step(name, None) for name in self.files.unreadable)]

    # ---- findings -----------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        """Reports the results of the checks, and missing or orphaned indexes."""
        table, bases = self.plan.segments, self.files.base_offsets
        last = max((int(bases[-1]) if len(bases) else -1, *self.files.opened.values()))
        for problem in self.plan.problems:
            if self._kept[problem["row"]]:
                report(self._finding_of(problem, last))
        missing = (table.flags & HAS_TIME_INDEX) == 0
        for base in table.base_offsets[missing & self._kept].tolist():
            report(finding("time-index-missing", directory=self.plan.directory,
                           file=file_name(base, FileKind.TIME_INDEX)))
        for name in self.files.orphans:
            report(finding("orphan-index", directory=self.plan.directory, file=name))

    def _finding_of(self, problem: np.void, last: int) -> Finding:
        base = int(self.plan.segments.base_offsets[problem["row"]])
        kind = _KINDS[FileClass(int(problem["file"]))]
        status = int(problem["status"])
        code, severity, action = status_code(status), None, None
        if status == Status.FILE_MISSING and kind is FileKind.INDEX:
            code = "index-missing"
        elif base == last and status in _PADDING:
            # The normal state of the indexes of an active segment, after a crash or in a running
            # broker.
            severity = Severity.INFO
            action = "recovers the segment" if not self.clean_shutdown else None
        elif status == Status.TXN_OFFSET and int(problem["found"]) >= base:
            # Kafka compares with the base offset, not with the previous entry.
            action = "none"
        elif status == Status.TXN_VERSION and problem["found"] < 256:
            severity, action = Severity.WARNING, "reads it as version 0"
        numbers: dict[str, Any] = {}
        if problem["sys_errno"]:
            numbers = {"found": os.strerror(int(problem["sys_errno"]))}
        elif status not in (Status.FILE_MISSING, Status.FILE_KIND):
            numbers = {"expected": int(problem["expected"]), "found": int(problem["found"])}
        return finding(code, directory=self.plan.directory, file=file_name(base, kind),
                       position=int(problem["position"]), severity=severity, action=action,
                       **numbers)
