"""The result of a load: findings, and Kafka's result for each partition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from seglog.model import TopicPartition
from seglog.recovery.findings import Finding, Report, Severity, finding
from seglog.recovery.rows import directory_row, finding_row, partition_row, totals_of

__all__ = ["FINDINGS_PER_CODE_MAX", "FindingList", "LoadReport", "PartitionReport"]

# A directory with a million stray files has one problem, which must not fill a gigabyte of report.
FINDINGS_PER_CODE_MAX = 1000


class FindingList:
    """Collects findings: per code and directory the first thousand, and a count of the rest.

    `hears` gets each that is listed.
    """

    def __init__(self, hears: Report = lambda found: None) -> None:
        self.counts: Counter[str] = Counter()
        self._kept, self._hears = list[Finding](), hears

    def add(self, found: Finding) -> bool:
        """Adds a finding. Returns whether it is listed, not only counted."""
        self.counts[found.code] += 1
        if self.counts[found.code] > FINDINGS_PER_CODE_MAX:
            return False
        self._kept.append(found)
        self._hears(found)
        return True

    def close(self, directory: str | None) -> tuple[Finding, ...]:
        """The listed findings, with a final one for each code that has more."""
        omitted = [
            finding("findings-omitted", directory=directory, expected=FINDINGS_PER_CODE_MAX,
                    found=count, message=f"{count - FINDINGS_PER_CODE_MAX} more findings {code}")
            for code, count in self.counts.items() if count > FINDINGS_PER_CODE_MAX]
        return (*self._kept, *omitted)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The report of one partition directory.

    Offsets are those that Kafka's loader would reach. They are None if the load did not get that
    far (an unclean log at a level without recovery), or if Kafka would not load it; then
    `kafka_error` names its exception. `recovery_bytes` and `recovery_segments` are what a recovery
    would scan. `batches` and `records` count the sound ones; None at a level that does not read
    them.
    """

    directory: str
    topic_partition: TopicPartition
    segments: int
    size: int
    log_start_offset: int | None
    log_end_offset: int | None
    recovery_point: int
    recovery_segments: int
    recovery_bytes: int
    kafka_error: str | None
    kafka_message: str | None
    findings: tuple[Finding, ...]
    batches: int | None = None
    records: int | None = None

    @property
    def severity(self) -> Severity | None:
        """The severity of the worst finding; None if there are no findings."""
        return max((found.severity for found in self.findings), default=None)

    def to_row(self, path: str) -> dict[str, Any]:
        """The row for JSON (docs/json.md); `path` is the data directory's."""
        is_read = self.batches is not None
        return partition_row(
            path, self.directory, segment_count=self.segments, size=self.size,
            log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset,
            recovery_point=self.recovery_point, batches=self.batches, records=self.records,
            recovery_segment_count=self.recovery_segments, recovery_size=self.recovery_bytes,
            unread_segment_count=0 if is_read else self.segments,
            unread_size=0 if is_read else self.size, error=self.kafka_error,
            message=self.kafka_message)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The report of one data directory.

    `seconds` covers both phases; `thread_segments` counts the segments that each thread of phase
    one opened.
    """

    path: str
    level: str
    clean_shutdown: bool
    threads: int
    seconds: float
    thread_segments: tuple[int, ...]
    directory_findings: tuple[Finding, ...]
    partitions: Sequence[PartitionReport] = field(repr=False)
    #: The process that had the directory's lock, in words; None if it was free.
    in_use_by: str | None = None

    @property
    def findings(self) -> Iterator[Finding]:
        """The findings of the data directory, then those of each partition."""
        yield from self.directory_findings
        for partition in self.partitions:
            yield from partition.findings

    @property
    def segments(self) -> int:
        """The number of segments of all partitions."""
        return sum(partition.segments for partition in self.partitions)

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return sum(partition.size for partition in self.partitions)

    @property
    def severity(self) -> Severity | None:
        """The severity of the worst finding; None if there are no findings."""
        return max((found.severity for found in self.findings), default=None)

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings by code."""
        return dict(Counter(found.code for found in self.findings))

    @property
    def severity_counts(self) -> dict[str, int]:
        """The number of findings by severity, including zeros."""
        counted = Counter(found.severity for found in self.findings)
        return {severity.name.lower(): counted[severity] for severity in Severity}

    def directory_row(self) -> dict[str, Any]:
        """The row of `directories` in JSON."""
        return directory_row(
            self.path, clean_shutdown=self.clean_shutdown, in_use_by=self.in_use_by,
            level=self.level, threads=self.threads,
            thread_segments=list(self.thread_segments), seconds=self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON: the directory's row with `partitions`, `findings` and `totals`,
        under the names of docs/json.md."""
        partitions = [one.to_row(self.path) for one in self.partitions]
        findings = [finding_row(self.path, found) for found in self.findings]
        return {**self.directory_row(), "partitions": partitions, "findings": findings,
                "totals": totals_of(partitions, findings)}

    def to_json(self, indent: int | None = 2) -> str:
        """The whole report as JSON in ASCII, because file names need not be valid text."""
        return json.dumps(self.to_dict(), indent=indent, default=str)
