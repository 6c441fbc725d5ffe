"""Cutting a log at its end, or emptying it (UnifiedLog.truncateTo)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from seglog.errors import IllegalArgumentError
from seglog.log import deletion, watermarks

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["truncate_fully_and_start_at", "truncate_to"]

_logger = logging.getLogger("seglog.UnifiedLog")
_REASON = "Deleting segments as part of log truncation: %s"


def truncate_to(log: UnifiedLog, offset: int) -> bool:
    """See UnifiedLog.truncate_to."""
    with log.guarded(f"Error while truncating log to offset {offset} for {log.topic_partition}"):
        log.check_deferred_until(offset)
        if offset < 0:
            raise IllegalArgumentError(f"Cannot truncate partition {log.topic_partition} to a "
                                       f"negative offset ({offset}).")
        with log.lock:
            if offset < log.high_watermark:
                _logger.warning(log.log_text(
                    f"Truncating {'future ' if log.is_future else ''}{log.topic_partition} to "
                    f"offset {offset} below high watermark {log.high_watermark}"))
            if offset >= log.log_end_offset:
                _logger.info(log.log_text(f"Truncating to {offset} has no effect as the largest "
                                          f"offset in the log is {log.log_end_offset - 1}"))
                # An epoch may have begun at the end and never been written in.
                watermarks.truncate_epochs_from_end(log, log.log_end_offset)
                return False
            _logger.info(log.log_text(f"Truncating to offset {offset}"))
            log.check_current()
            if int(log.segments.base_offsets[0]) > offset:
                truncate_fully_and_start_at(log, offset, None)
            else:
                with log.readers.changing(offset):
                    _truncate(log, offset)
            return True


def _truncate(log: UnifiedLog, offset: int) -> None:
    log.settle()
    first = int(log.segments.floor_row(offset)) + 1
    bases = log.segments.bases(range(first, len(log.segments)))
    if bases:
        log.active.close_handles()
        log.segments.pinned = None
        deletion.remove_segments(log, bases, deletion.reason(log, _REASON))
        log.activate(int(log.segments.base_offsets[-1]))
    log.active.truncate_to(offset, log.now_ms())
    log.settle()
    log.set_log_end(offset)
    deletion.delete_producer_snapshots(log, bases)
    watermarks.truncate_epochs_from_end(log, offset)
    log.log_start_offset = min(offset, log.log_start_offset)
    log.rebuild_producers(offset)
    _sync_names(log)
    if log.high_watermark >= log.log_end_offset:
        watermarks.update_high_watermark(log, log.log_end_offset_metadata)


def _sync_names(log: UnifiedLog) -> None:
    """Before the offsets are given to other records: a power cut would bring a segment or a
    producer snapshot of the old ones back, which would hide what was flushed since. Kafka never
    syncs it."""
    log.disk.sync_directory()


def truncate_fully_and_start_at(log: UnifiedLog, offset: int,
                                log_start_offset: int | None) -> None:
    """See UnifiedLog.truncate_fully_and_start_at."""
    start = offset if log_start_offset is None else log_start_offset
    with (log.guarded(f"Error while truncating the entire log for {log.topic_partition}"),
          log.lock, log.readers.changing(offset)):
        _logger.debug(log.log_text(f"Truncate and start at offset {offset}, logStartOffset: "
                                   f"{start}"))
        log.check_current()
        log.settle()
        bases = log.segments.bases(range(len(log.segments)))
        why = deletion.reason(log, _REASON)
        deletion.remove_segments(log, bases[:-1], why)
        deletion.replace_active(log, offset, why)
        log.set_log_end(offset)
        log.leader_epochs.clear()
        log.disk.write_epochs(log.leader_epochs)
        log.producer_manager.truncate_fully_and_start_at(offset)
        log.log_start_offset = start
        if log.remote_log_enabled:
            log.local_log_start_offset = offset
        log.rebuild_producers(offset)
        _sync_names(log)
        watermarks.update_high_watermark(log, log.log_end_offset_metadata)
