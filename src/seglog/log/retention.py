"""Which old segments can be deleted: by start offset, size and time (Kafka:
UnifiedLog.deleteOldSegments).

Pure functions of settings and segments. `old_segments` applies them to a log's segments.
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

#: Whether a segment can be deleted, given the base offset of the next one (None for the last), and
#: a text with the reason.
_Check: TypeAlias = Callable[[SegmentFiles, int | None], tuple[bool, str]]
#: The value of the `local.retention` settings that stands for those of the whole log.
_SAME_AS_LOG = -2

_future_logger = logging.getLogger("seglog.LogFutureTimestampLogger")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of retention. `reasons` returns the log messages about deleted segments, from the
    log's size before."""

    name: str
    check: _Check
    reasons: Callable[[Sequence[SegmentFiles], int], list[str]]


def retention_bytes(config: LogConfig, *, is_local: bool) -> int:
    """The limit of the (local) log in bytes, negative for none."""
    if is_local and config.local_retention_bytes != _SAME_AS_LOG:
        return config.local_retention_bytes
    return config.retention_bytes


def retention_ms(config: LogConfig, *, is_local: bool) -> int:
    """The retention time of the (local) log in ms, negative for no limit."""
    if is_local and config.local_retention_ms != _SAME_AS_LOG:
        return config.local_retention_ms
    return config.retention_ms


def size_in_percent(size: int, config: LogConfig, *, is_local: bool) -> int:
    """A log's size in percent of `retention.bytes`; 0 if there is no limit, or if it applies to the
    remote log."""
    limit = config.retention_bytes
    return 0 if is_local or limit <= 0 else size * 100 // limit


def by_start_offset(start: int, kind: str, name: str) -> Rule:
    """The rule for segments whose successor begins at or below `start`."""
    def check(segment: SegmentFiles, following: int | None) -> tuple[bool, str]:
        return (following is not None and following <= start,
                f"nextSegmentOpt={following}, {name}={start}")

    def reasons(segments: Sequence[SegmentFiles], size: int) -> list[str]:
        return [f"Deleting segments due to {kind} start offset {start} breach: "
                + ",".join(one.describe() for one in segments)]

    return Rule("logStartOffset", check, reasons)


def by_size(limit: int, size: int, kind: str) -> Rule:
    """The rule for the oldest segments without which a log of `size` bytes still has `limit`. Its
    `check` must get the segments in order."""
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
    """The rule for segments whose newest record is older than `limit` ms at `now`."""
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
