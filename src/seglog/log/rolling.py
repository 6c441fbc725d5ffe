"""Rolling a log: a new segment at its end (Kafka: LocalLog.roll, UnifiedLog.roll)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from seglog.errors import SeglogError
from seglog.log import deletion, watermarks
from seglog.log.append_info import LogAppendInfo
from seglog.log.segment import max_segment_ms
from seglog.recovery.segment_files import SEGMENT_FILES, SegmentFiles
from seglog.storage.paths import FileKind, file_name

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["maybe_roll", "open_segment", "roll"]

_INT32_MAX = 2**31 - 1
_logger = logging.getLogger("seglog.LocalLog")


def open_segment(log: UnifiedLog, base_offset: int) -> SegmentFiles:
    """A new segment, with a log file and nothing else, which is the one that is written to."""
    name, disk = file_name(base_offset, FileKind.LOG), log.disk
    if log.config.preallocate:
        disk.preallocate(name, log.config.segment_size)
    else:
        disk.create(name)
    files = SegmentFiles(disk, base_offset, log.config, size=0)
    files.created_ms = log.now_ms()
    log.segments.add(files)
    log.activate(base_offset)
    return files


def maybe_roll(log: UnifiedLog, size: int, info: LogAppendInfo) -> None:
    """Rolls before an append of `size` bytes, if a rule says so (UnifiedLog.maybeRoll)."""
    active, config, now = log.active, log.config, log.now_ms()
    if not active.should_roll(config, append_size=size, max_timestamp=info.max_timestamp,
                              last_offset=info.last_offset, now_ms=now):
        return
    files = active.files
    _logger.debug(log.log_text(
        f"Rolling new log segment (log_size = {files.size}/{config.segment_size}}}, "
        f"offset_index_size = {files.offset_index.entries}/{files.offset_index.max_entries}, "
        f"time_index_size = {files.time_index.entries}/{files.time_index.max_entries}, "
        f"inactive_time_ms = {active.time_waited_for_roll(now, info.max_timestamp)}/"
        f"{max_segment_ms(config) - active.jitter_ms})."))
    # Old formats do not say their first offset; no append spans more than this.
    first = info.first_offset if info.first_offset != -1 else info.last_offset - _INT32_MAX
    roll(log, first)


def roll(log: UnifiedLog, expected_next_offset: int) -> int:
    """A new segment at the larger of the log's end and `expected_next_offset`; its base offset.

    The lock is the caller's.
    """
    with log.guarded(f"Error while rolling log segment for {log.topic_partition}"):
        base = _roll_segment(log, expected_next_offset)
        # A snapshot at the base of every segment: a recovery begins with it.
        log.producer_manager.update_map_end_offset(base)
        snapshot = log.producer_manager.take_snapshot(sync=False)
    watermarks.follow_log_end(log)
    log.context.scheduler.schedule_once("flush-log", partial(_flush_rolled, log, snapshot, base))
    return base


def _flush_rolled(log: UnifiedLog, snapshot: str | None, base: int) -> None:
    if log.is_closed:
        return  # nobody relies on it any more
    if snapshot is not None:
        with log.guarded(f"Error while deleting producer state snapshot {snapshot} for "
                         f"{log.topic_partition}"):
            log.sync_file(snapshot)
    log.flush_to(base)


def _roll_segment(log: UnifiedLog, expected: int) -> int:
    log.check_open()
    log.settle()
    active, started = log.active, log.now_ms()
    base = max(expected, log.log_end_offset)
    where = (f"start offset {base}=max(provided offset = {expected}, LEO = "
             f"{log.log_end_offset})")
    wider = where.replace("=max", " =max")
    if base in log.segments:
        if base != active.base_offset or active.files.size:
            segment = log.segments.get(base).describe()
            raise SeglogError(
                f"Trying to roll a new log segment for topic partition {log.topic_partition} with "
                f"{wider} while it already exists. Existing segment is Optional[{segment}].")
        active.files.open_indexes()  # Kafka prints their sizes, and so creates them
        _logger.warning(log.log_text(
            f"Trying to roll a new log segment with {where} while it already exists and is active "
            f"with size 0. Size of time index: {active.files.time_index.entries}, size of offset "
            f"index: {active.files.offset_index.entries}."))
        deletion.replace_active(log, base, deletion.reason(
            log, "Deleting segments as part of log roll: %s"))
    elif base < active.base_offset:
        raise SeglogError(
            f"Trying to roll a new log segment for topic partition {log.topic_partition} with "
            f"{wider} lower than start offset of the active segment {active.files.describe()}")
    else:
        for name in (file_name(base, kind) for kind in SEGMENT_FILES):
            if log.disk.size(name) is not None:
                _logger.warning(log.log_text(f"Newly rolled segment file {log.path}/{name} already "
                                             "exists; deleting it first"))
                log.disk.delete(name)
        active.become_inactive()
        if active.size and log.recovery_point >= base:
            log.closed_unsynced.append(active.base_offset)
        log.segments.pinned = None
        log.segments.release(active.files)
        open_segment(log, base)
    log.set_log_end(log.log_end_offset)
    _logger.info(log.log_text(f"Rolled new log segment at offset {base} in "
                              f"{log.now_ms() - started} ms."))
    return base
