"""Which old segments go: by start offset, size and time (UnifiedLog.deleteOldSegments)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from seglog.log import deletion, rolling, watermarks
from seglog.log.watermarks import StartOffsetReason
from seglog.recovery.segment_files import SegmentFiles

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["delete_old_segments", "retention_size_in_percent"]

#: Whether a segment may go, given the base offset of the next one, None for the last.
_Predicate: TypeAlias = Callable[[SegmentFiles, int | None], bool]

_logger = logging.getLogger("seglog.UnifiedLog")
_future_logger = logging.getLogger("seglog.LogFutureTimestampLogger")


def delete_old_segments(log: UnifiedLog) -> int:
    """See UnifiedLog.delete_old_segments."""
    try:
        deleted = _by_start_offset(log)
        if log.config.delete or (not log.config.compact and log.remote_copy_enabled):
            deleted += _by_size(log)
            deleted += _by_time(log)
        return deleted
    finally:
        log.retention_size_in_percent = retention_size_in_percent(log)


def retention_size_in_percent(log: UnifiedLog) -> int:
    """The log's size in percent of `retention.bytes`; 0 where that is no limit or the remote log
    counts it."""
    limit = log.config.retention_bytes
    if log.remote_copy_enabled or limit <= 0:
        return 0
    return log.size * 100 // limit


def _retention_bytes(log: UnifiedLog) -> int:
    config = log.config
    is_local = log.remote_copy_enabled and config.local_retention_bytes != -2
    return config.local_retention_bytes if is_local else config.retention_bytes


def _retention_ms(log: UnifiedLog) -> int:
    config = log.config
    is_local = log.remote_copy_enabled and config.local_retention_ms != -2
    return config.local_retention_ms if is_local else config.retention_ms


# ---- the three passes -------------------------------------------------------------------------


def _by_start_offset(log: UnifiedLog) -> int:
    kind = "local log" if log.remote_copy_enabled else "log"
    which = "localLogStartOffset" if log.remote_log_enabled else "logStartOffset"
    start = log.local_log_start_offset if log.remote_log_enabled else log.log_start_offset

    def breached(segment: SegmentFiles, following: int | None) -> bool:
        found = following is not None and following <= start
        _debug(log, segment, "logStartOffset", found,
               f"nextSegmentOpt={following}, {which}={start}")
        return found

    return _delete(log, breached, deletion.reason(
        log, f"Deleting segments due to {kind} start offset {start} breach: %s", ","))


def _by_size(log: UnifiedLog) -> int:
    limit, size = _retention_bytes(log), log.size
    if limit < 0 or size < limit:
        return 0
    left = size - limit

    def breached(segment: SegmentFiles, following: int | None) -> bool:
        nonlocal left
        found = left - segment.size >= 0
        _debug(log, segment, "retentionSize", found, f"log size before delete segment={left}, "
               f"after delete segment={left - segment.size}")
        left -= segment.size * found
        return found

    def why(segments: Sequence[SegmentFiles]) -> None:
        kind, after = "local log" if log.remote_copy_enabled else "log", log.size
        for segment in segments:
            after -= segment.size
            _logger.info(log.log_text(
                f"Deleting segment {segment.describe()} due to {kind} retention size {limit} "
                f"breach. {kind.capitalize()} size after deletion will be {after}."))

    return _delete(log, breached, why)


def _by_time(log: UnifiedLog) -> int:
    limit, now = _retention_ms(log), log.now_ms()
    if limit < 0:
        return 0

    def breached(segment: SegmentFiles, following: int | None) -> bool:
        largest = segment.largest_timestamp()
        if largest > now:
            _future_logger.warning(log.log_text(f"{segment.describe()} contains future "
                                                "timestamp(s), making it ineligible to be deleted"))
        found = now - largest > limit
        _debug(log, segment, "retentionMs", found, f"startMs={now}, retentionMs={limit}")
        return found

    def why(segments: Sequence[SegmentFiles]) -> None:
        kind = "local log" if log.remote_copy_enabled else "log"
        for segment in segments:
            basis = ("largest record timestamp in the segment"
                     if segment.max_timestamp().timestamp >= 0
                     else "last modified time of the segment")
            _logger.info(log.log_text(f"Deleting segment {segment.describe()} due to {kind} "
                                      f"retention time {limit}ms breach based on the {basis}"))

    return _delete(log, breached, why)


def _debug(log: UnifiedLog, segment: SegmentFiles, what: str, found: bool, details: str) -> None:
    if _logger.isEnabledFor(logging.DEBUG):
        _logger.debug(log.log_text(f"{segment.describe()} {what} breached: {str(found).lower()}, "
                                   f"{details}"))


# ---- what they share --------------------------------------------------------------------------


def _delete(log: UnifiedLog, predicate: _Predicate, why: deletion.Reason) -> int:
    with log.guarded(f"Error while deleting segments for {log.topic_partition}"), log.lock:
        log.check_open()  # its files may be another's by now
        log.settle()
        bases = _deletable(log, predicate)
        return _delete_segments(log, bases, why) if bases else 0


def _deletable(log: UnifiedLog, predicate: _Predicate) -> list[int]:
    """From the oldest on, up to the first that stays: base offsets."""
    found: list[int] = []
    roll_active = False
    for row in range(len(log.segments)):
        base = int(log.segments.base_offsets[row])
        is_last = row + 1 == len(log.segments)
        following = None if is_last else int(log.segments.base_offsets[row + 1])
        upper = log.log_end_offset if following is None else following
        if log.high_watermark < upper:
            break
        log.check_deferred(base)
        segment = log.segments.get(base)
        breached, is_empty = predicate(segment, following), segment.size == 0
        log.segments.release(segment)
        if not breached:
            break
        roll_active |= log.remote_log_enabled and is_last and not is_empty
        if (is_last and is_empty) or not _may_go(log, following, upper):
            break
        found.append(base)
    if roll_active:
        _logger.info(log.log_text("Rolling the active segment to make it eligible for deletion"))
        rolling.roll(log, 0)
    return found


def _may_go(log: UnifiedLog, following: int | None, upper: int) -> bool:
    """Whether all of the segment is in remote storage, or below the log's start."""
    return (not log.remote_copy_enabled
            or (upper > 0 and upper - 1 <= log.highest_offset_in_remote_storage)
            or (following is not None and log.log_start_offset >= following))


def _delete_segments(log: UnifiedLog, bases: list[int], why: deletion.Reason) -> int:
    count, going = len(bases), bases
    if len(log.segments) == count:
        # There is always a segment to write to.
        if rolling.roll(log, 0) == bases[-1]:
            _logger.warning(log.log_text(f"Empty active segment at {bases[-1]} was deleted and "
                                         "recreated"))
            going = bases[:-1]
    log.check_open()
    if going:
        start = int(log.segments.base_offsets[log.segments.row(going[-1]) + 1])
        if log.remote_copy_enabled:
            watermarks.maybe_increment_local_log_start_offset(
                log, start, StartOffsetReason.SEGMENT_DELETION)
        else:
            watermarks.maybe_increment_log_start_offset(
                log, start, StartOffsetReason.SEGMENT_DELETION)
        deletion.remove_segments(log, going, why)
    deletion.delete_producer_snapshots(log, going)
    return count
