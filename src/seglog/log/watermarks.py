"""High watermark, last stable offset, log start offset, leader epochs (Kafka: UnifiedLog)."""

from __future__ import annotations

import enum
import logging
import os
from typing import TYPE_CHECKING, Final

from seglog.errors import IllegalArgumentError, OffsetOutOfRangeError
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.log.read import maybe_convert_to_offset_metadata

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = [
    "UNKNOWN", "StartOffsetReason", "assign_epoch", "clear_epochs", "fetch_high_watermark_metadata",
    "fetch_last_stable_offset_metadata", "follow_log_end",
    "maybe_increment_high_watermark", "maybe_increment_local_log_start_offset",
    "maybe_increment_log_start_offset", "truncate_epochs_from_end", "update_first_unstable_offset",
    "update_high_watermark",
]

_logger = logging.getLogger("seglog.UnifiedLog")
#: What `log.unstable_known` is where the first unstable offset has to be looked up the next time.
UNKNOWN: Final = (LogOffsetMetadata(-1), -1)


class StartOffsetReason(enum.Enum):
    """Why the log start offset moves (Kafka: LogStartOffsetIncrementReason)."""

    LEADER_OFFSET_INCREMENTED = "leader offset increment"
    SEGMENT_DELETION = "segment deletion"
    CLIENT_RECORD_DELETION = "client delete records request"
    SNAPSHOT_GENERATED = "snapshot generated"


# ---- high watermark and last stable offset ----------------------------------------------------


def _looked_up(log: UnifiedLog, offset: int) -> LogOffsetMetadata:
    """An offset with its position, which the files tell; alone where it is outside of the log."""
    with log.guarded(f"Exception while reading from {log.topic_partition}"):
        return maybe_convert_to_offset_metadata(log, offset)


def update_high_watermark(log: UnifiedLog, new: LogOffsetMetadata) -> int:
    """Sets it within [log start, log end]; what was set."""
    with log.lock:
        end = log.log_end_offset_metadata
        if new.message_offset < log.log_start_offset:
            new = LogOffsetMetadata(log.log_start_offset)
        elif new.message_offset >= end.message_offset:
            new = end
        _set_high_watermark(log, new)
        return new.message_offset


def _set_high_watermark(log: UnifiedLog, new: LogOffsetMetadata) -> None:
    if new.message_offset < 0:
        raise IllegalArgumentError("High watermark offset should be non-negative")
    before = log.high_watermark_metadata
    if new.message_offset < before.message_offset:
        _logger.warning(log.log_text(f"Non-monotonic update of high watermark from {before} to "
                                     f"{new}"))
    log.high_watermark_metadata, log.high_watermark = new, new.message_offset
    log.producer_manager.on_high_watermark_updated(new.message_offset)
    log.on_high_watermark(new.message_offset)
    update_first_unstable_offset(log)
    log.followers.wake()


def maybe_increment_high_watermark(log: UnifiedLog,
                                   new: LogOffsetMetadata) -> LogOffsetMetadata | None:
    """See UnifiedLog.maybe_increment_high_watermark."""
    with log.lock:
        end = log.log_end_offset_metadata
        if new.message_offset > end.message_offset:
            raise IllegalArgumentError(f"High watermark {new} update exceeds current log end "
                                       f"offset {end}")
        old = fetch_high_watermark_metadata(log)
        if (old.message_offset < new.message_offset
                or (old.message_offset == new.message_offset and old.on_older_segment(new))):
            _set_high_watermark(log, new)
            return old
        return None


def follow_log_end(log: UnifiedLog) -> None:
    """After the end has moved: the high watermark is never behind it, and knows its segment."""
    if log.high_watermark >= log.log_end_offset:
        _set_high_watermark(log, log.log_end_offset_metadata)


def fetch_high_watermark_metadata(log: UnifiedLog) -> LogOffsetMetadata:
    """The high watermark with its position, looked up once. It moves to the beginning of the batch
    that it is in, as Kafka's does."""
    with log.lock:
        log.check_open()
        if log.high_watermark_metadata.message_offset_only:
            _set_high_watermark(log, _looked_up(log, log.high_watermark))
        return log.high_watermark_metadata


def fetch_last_stable_offset_metadata(log: UnifiedLog) -> LogOffsetMetadata:
    """The last stable offset with its position."""
    with log.lock:
        high = fetch_high_watermark_metadata(log)
        unstable = log.first_unstable_metadata
        if unstable is None or unstable.message_offset >= high.message_offset:
            return high
        if unstable.message_offset_only:
            unstable = _looked_up(log, unstable.message_offset)
            _set_first_unstable(log, unstable)
        return unstable


def update_first_unstable_offset(log: UnifiedLog) -> None:
    """Asks the producers' state where the first open transaction begins."""
    log.check_open()
    found = log.producer_manager.first_unstable_offset
    known = None if found is None else (found, log.log_start_offset)
    if known == log.unstable_known:
        return
    if found is not None and (found.message_offset_only
                              or found.message_offset < log.log_start_offset):
        # A transaction that began in what was deleted counts from the log's start.
        found = _looked_up(log, max(found.message_offset, log.log_start_offset))
        if found.message_offset >= log.log_end_offset:
            known = UNKNOWN  # its place is another one when the next batch begins a segment
    _logger.debug(log.log_text(f"First unstable offset updated to {found}"))
    log.unstable_known = known
    _set_first_unstable(log, found)
    log.followers.wake()


def _set_first_unstable(log: UnifiedLog, found: LogOffsetMetadata | None) -> None:
    log.first_unstable_metadata = found
    log.first_unstable_offset = None if found is None else found.message_offset


# ---- log start offset -------------------------------------------------------------------------


def maybe_increment_log_start_offset(log: UnifiedLog, offset: int,
                                     reason: StartOffsetReason) -> bool:
    """See UnifiedLog.maybe_increment_log_start_offset."""
    with log.guarded(f"Exception while increasing log start offset for {log.topic_partition} to "
                     f"{offset}"), log.lock:
        if offset > log.high_watermark:
            raise OffsetOutOfRangeError(
                f"Cannot increment the log start offset to {offset} of partition "
                f"{log.topic_partition} since it is larger than the high watermark "
                f"{log.high_watermark}")
        if log.remote_log_enabled:
            log.local_log_start_offset = max(offset, log.local_log_start_offset)
        log.check_open()
        if offset <= log.log_start_offset:
            return False
        log.log_start_offset = offset
        log.recovery_point = max(log.recovery_point, offset)
        _logger.info(log.log_text(f"Incremented log start offset to {offset} due to "
                                  f"{reason.value}"))
        if log.leader_epochs.truncate_from_start(offset):
            _write_epochs_later(log)
        log.producer_manager.on_log_start_offset_incremented(offset)
        update_first_unstable_offset(log)
        return True


def maybe_increment_local_log_start_offset(log: UnifiedLog, offset: int,
                                           reason: StartOffsetReason) -> None:
    """Moves the start of the local segments up."""
    with log.lock:
        if offset > log.local_log_start_offset:
            log.local_log_start_offset = offset
            _logger.info(log.log_text(f"Incremented local log start offset to {offset} due to "
                                      f"reason {reason.value}"))


# ---- leader epochs ----------------------------------------------------------------------------


def assign_epoch(log: UnifiedLog, epoch: int, offset: int) -> None:
    """Notes that an epoch begins at `offset`, on the medium if that is news."""
    try:
        changed = log.leader_epochs.assign(epoch, offset)
    except ValueError as error:
        raise IllegalArgumentError(str(error)) from None
    if changed:
        with log.guarded(f"Error while writing leader epoch checkpoint of {log.topic_partition}"):
            log.disk.write_epochs(log.leader_epochs)


def clear_epochs(log: UnifiedLog, magic: int) -> None:
    """Forgets all epochs, durably: the log has batches again that do not say theirs."""
    _logger.warning(log.log_text("Clearing leader epoch cache after unexpected append with message "
                                 f"format v{magic}"))
    log.leader_epochs.clear()
    log.disk.write_epochs(log.leader_epochs)


def truncate_epochs_from_end(log: UnifiedLog, offset: int) -> None:
    """Forgets epochs that began at or above `offset`; the file follows."""
    if log.leader_epochs.truncate_from_end(offset):
        _write_epochs_later(log)


def _write_epochs_later(log: UnifiedLog) -> None:
    def write() -> None:
        with log.lock, log.guarded("Error while writing leader epoch checkpoint of "
                                   f"{log.topic_partition}"):
            # The files of a closed log may be another's by now; a load forgets the same again.
            if not log.is_closed and os.path.isdir(log.path):
                log.disk.write_epochs(log.leader_epochs)

    log.context.scheduler.schedule_once(f"leader-epoch-cache-flush-{log.topic_partition}", write)
