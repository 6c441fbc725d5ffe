"""Which old segments may go: by start offset, size and time (Kafka: UnifiedLog.deleteOldSegments).

Pure functions of settings and segments. `old_segments` walks over a log's segments with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from seglog.config import LogConfig
from seglog.recovery.segment_files import SegmentFiles

__all__ = ["Rule", "by_size", "by_start_offset", "by_time", "retention_bytes", "retention_ms",
           "size_in_percent"]

#: Whether a segment may go, given the base offset of the next one, None for the last; and why.
_Check: TypeAlias = Callable[[SegmentFiles, int | None], tuple[bool, str]]
#: The `local.retention` settings have this value where those of the whole log count.
_SAME_AS_LOG = -2

_future_logger = logging.getLogger("seglog.LogFutureTimestampLogger")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of retention. `reasons` gives the lines for the log file about segments that go; it
    is given the size of the log before."""

    name: str
    check: _Check
    reasons: Callable[[Sequence[SegmentFiles], int], list[str]]


def retention_bytes(config: LogConfig, *, is_local: bool) -> int:
    """The limit of the (local) log in bytes, negative for none."""
    if is_local and config.local_retention_bytes != _SAME_AS_LOG:
        return config.local_retention_bytes
    return config.retention_bytes


def retention_ms(config: LogConfig, *, is_local: bool) -> int:
    """How long records stay in the (local) log, negative for ever."""
    if is_local and config.local_retention_ms != _SAME_AS_LOG:
        return config.local_retention_ms
    return config.retention_ms


def size_in_percent(size: int, config: LogConfig, *, is_local: bool) -> int:
    """A log's size in percent of `retention.bytes`; 0 where that is no limit or the remote log
    counts it."""
    limit = config.retention_bytes
    return 0 if is_local or limit <= 0 else size * 100 // limit


def by_start_offset(start: int, kind: str, name: str) -> Rule:
    """Segments whose successor begins at or below `start`."""
    def check(segment: SegmentFiles, following: int | None) -> tuple[bool, str]:
        return (following is not None and following <= start,
                f"nextSegmentOpt={following}, {name}={start}")

    def reasons(segments: Sequence[SegmentFiles], size: int) -> list[str]:
        return [f"Deleting segments due to {kind} start offset {start} breach: "
                + ",".join(one.describe() for one in segments)]

    return Rule("logStartOffset", check, reasons)


def by_size(limit: int, size: int, kind: str) -> Rule:
    """The oldest segments without which a log of `size` bytes still has `limit`. Its `check` takes
    the segments one after the other."""
    left = size - limit

    def check(segment: SegmentFiles, following: int | None) -> tuple[bool, str]:
        nonlocal left
        before, after = left, left - segment.size
        left = after if after >= 0 else before
        return after >= 0, (f"log size before delete segment={before}, after delete segment="
                            f"{after}")

    def reasons(segments: Sequence[SegmentFiles], size: int) -> list[str]:
        lines = []
        for segment in segments:
            size -= segment.size
            lines.append(
                f"Deleting segment {segment.describe()} due to {kind} retention size {limit} "
                f"breach. {kind.capitalize()} size after deletion will be {size}.")
        return lines

    return Rule("retentionSize", check, reasons)


def by_time(limit: int, now: int, kind: str, log_text: Callable[[str], str]) -> Rule:
    """Segments whose newest record is older than `limit` ms at `now`."""
    def check(segment: SegmentFiles, following: int | None) -> tuple[bool, str]:
        largest = segment.largest_timestamp()
        if largest > now:
            _future_logger.warning(log_text(f"{segment.describe()} contains future "
                                            "timestamp(s), making it ineligible to be deleted"))
        return now - largest > limit, f"startMs={now}, retentionMs={limit}"

    def reasons(segments: Sequence[SegmentFiles], size: int) -> list[str]:
        return [f"Deleting segment {segment.describe()} due to {kind} retention time {limit}ms "
                f"breach based on the {_time_basis(segment)}" for segment in segments]

    return Rule("retentionMs", check, reasons)


def _time_basis(segment: SegmentFiles) -> str:
    return ("largest record timestamp in the segment" if segment.max_timestamp().timestamp >= 0
            else "last modified time of the segment")
