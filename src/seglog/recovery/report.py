"""The result of a load: findings, and what Kafka would make of each partition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seglog.model import TopicPartition
from seglog.recovery.findings import Finding, Severity, finding

__all__ = ["FINDINGS_PER_CODE_MAX", "FindingList", "LoadReport", "PartitionReport"]

# A directory with a million stray files has one problem, not a report of a gigabyte.
FINDINGS_PER_CODE_MAX = 1000


class FindingList:
    """Collects findings; of one code in one directory the first thousand, and a count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kept: list[Finding] = []

    def add(self, found: Finding) -> bool:
        """Whether the finding is listed, not only counted."""
        self.counts[found.code] += 1
        if self.counts[found.code] > FINDINGS_PER_CODE_MAX:
            return False
        self._kept.append(found)
        return True

    def close(self, directory: str | None) -> tuple[Finding, ...]:
        """All that is listed, with a last finding per code that was cut short."""
        omitted = [
            finding("findings-omitted", directory=directory, expected=FINDINGS_PER_CODE_MAX,
                    found=count, message=f"{count - FINDINGS_PER_CODE_MAX} more findings {code}")
            for code, count in self.counts.items() if count > FINDINGS_PER_CODE_MAX]
        return (*self._kept, *omitted)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition directory.

    Offsets are those at which Kafka's loader would arrive; None where the load did not look that
    far (an unclean log at a level without recovery) or Kafka would not load it, and then
    `kafka_error` names its exception. `recovery_bytes` and `recovery_segments` are what a
    recovery would scan.
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

    @property
    def severity(self) -> Severity | None:
        """Of the worst finding; None without any."""
        return max((found.severity for found in self.findings), default=None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = [name for name in self.__slots__ if name not in ("findings", "topic_partition")]
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        fields["findings"] = [found.to_dict() for found in self.findings]
        return fields


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One data directory, loaded.

    `seconds` are those of both phases; `thread_segments` counts the segments that each thread of
    phase one opened.
    """

    path: str
    level: str
    clean_shutdown: bool
    threads: int
    seconds: float
    thread_segments: tuple[int, ...]
    directory_findings: tuple[Finding, ...]
    partitions: tuple[PartitionReport, ...] = field(repr=False)

    @property
    def findings(self) -> Iterator[Finding]:
        """Those of the data directory, then those of each partition."""
        yield from self.directory_findings
        for partition in self.partitions:
            yield from partition.findings

    @property
    def segments(self) -> int:
        """Of all partitions."""
        return sum(partition.segments for partition in self.partitions)

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return sum(partition.size for partition in self.partitions)

    @property
    def severity(self) -> Severity | None:
        """Of the worst finding; None without any."""
        return max((found.severity for found in self.findings), default=None)

    @property
    def counts(self) -> dict[str, int]:
        """Findings by code."""
        return dict(Counter(found.code for found in self.findings))

    @property
    def severity_counts(self) -> dict[str, int]:
        """Findings by severity, every severity named."""
        counted = Counter(found.severity for found in self.findings)
        return {severity.name.lower(): counted[severity] for severity in Severity}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "path": self.path, "level": self.level, "clean_shutdown": self.clean_shutdown,
            "threads": self.threads, "seconds": self.seconds,
            "thread_segments": list(self.thread_segments), "segments": self.segments,
            "size": self.size, "counts": self.counts, "severities": self.severity_counts,
            "findings": [found.to_dict() for found in self.directory_findings],
            "partitions": [partition.to_dict() for partition in self.partitions],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """The whole report as JSON, in ASCII, as file names need not be valid text."""
        return json.dumps(self.to_dict(), indent=indent, default=str)
