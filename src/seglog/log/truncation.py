"""Truncating a log, and emptying it (Kafka: UnifiedLog.truncateTo, truncateFullyAndStartAt)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from seglog.errors import IllegalArgumentError
from seglog.log.leader_epoch_cache import LeaderEpochCache
from seglog.log.local_log import LocalLog, Reason
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.log.watermarks import Watermarks
from seglog.model import EpochEntry
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.loading_producers import rebuild_producers
from seglog.storage.paths import DirectoryKind, snapshot_name
from seglog.storage.producer_state import decode_snapshot

__all__ = ["Truncation"]

_logger = logging.getLogger("seglog.UnifiedLog")


class Truncation:
    """Truncates the segments of a log and everything derived from them."""

    def __init__(self, local: LocalLog, watermarks: Watermarks, epochs: LeaderEpochCache,
                 producers: ProducerStateManager) -> None:
        self._local, self._watermarks = local, watermarks
        self._epochs, self._producers = epochs, producers

    def truncate_to(self, offset: int) -> bool:
        """See UnifiedLog.truncate_to."""
        local, watermarks = self._local, self._watermarks
        with local.guarded(f"Error while truncating log to offset {offset} for "
                           f"{local.topic_partition}"):
            self._ensure_checked(offset)
            if offset < 0:
                raise IllegalArgumentError(f"Cannot truncate partition {local.topic_partition} to "
                                           f"a negative offset ({offset}).")
            with local.lock:
                if offset < watermarks.high_watermark:
                    is_future = local.path.endswith(DirectoryKind.FUTURE.value)
                    _logger.warning(local.log_text(
                        f"Truncating {'future ' if is_future else ''}{local.topic_partition} to "
                        f"offset {offset} below high watermark {watermarks.high_watermark}"))
                if offset >= local.log_end_offset:
                    _logger.info(local.log_text(
                        f"Truncating to {offset} has no effect as the largest offset in the log is "
                        f"{local.log_end_offset - 1}"))
                    # An epoch may have begun at the end without any record.
                    self._epochs.truncate_from_end(local.log_end_offset)
                    return False
                _logger.info(local.log_text(f"Truncating to offset {offset}"))
                local.check_current()
                if int(local.segments.base_offsets[0]) > offset:
                    self.truncate_fully_and_start_at(offset, None)
                else:
                    with local.readers.changing(offset):
                        self._truncate(offset)
                return True

    def _ensure_checked(self, offset: int) -> None:
        """Makes the deferred checks of all segments on which the producers' state at `offset`
        depends (KIP-263)."""
        checks = self._local.files.deferred_checks
        if checks is not None:
            checks.ensure_range(self._producers.snapshots.latest_below(offset + 1), offset)

    def _truncate(self, offset: int) -> None:
        local, watermarks = self._local, self._watermarks
        bases = local.truncate_to(offset, self._reason())
        local.delete_snapshots(self._producers.snapshots.retire(bases))
        self._epochs.truncate_from_end(offset)
        watermarks.start_at_most(offset)
        self._rebuild_producers(offset)
        self._sync_names()
        if watermarks.high_watermark >= local.log_end_offset:
            watermarks.update_high_watermark(local.log_end_offset)
        if local.has_own_checkpoints and local.ends_with_gap():
            local.keep_gap()
        else:
            local.checkpoint()

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None) -> None:
        """See UnifiedLog.truncate_fully_and_start_at."""
        start = offset if log_start_offset is None else log_start_offset
        local = self._local
        with (local.guarded(f"Error while truncating the entire log for {local.topic_partition}"),
              local.lock, local.readers.changing(offset)):
            _logger.debug(local.log_text(f"Truncate and start at offset {offset}, logStartOffset: "
                                         f"{start}"))
            local.check_current()
            local.truncate_fully_and_start_at(offset, self._reason())
            self._epochs.clear_and_write()
            self._producers.truncate_fully_and_start_at(offset)
            self._watermarks.start_at(start, offset)
            self._rebuild_producers(offset)
            self._sync_names()
            self._watermarks.update_high_watermark(local.log_end_offset)
            local.checkpoint()

    def start_with_state(self, offset: int, log_start_offset: int, epochs: Iterable[EpochEntry],
                         snapshot: bytes) -> None:
        """See UnifiedLog.start_with_state."""
        entries = decode_snapshot(snapshot, file=snapshot_name(offset))
        local = self._local
        with local.lock:
            self.truncate_fully_and_start_at(offset, log_start_offset)
            with local.guarded("Error while building the state at the start of "
                               f"{local.topic_partition}"), local.readers.changing(offset):
                self._epochs.assign_all(epochs)
                self._producers.restart_with(offset, snapshot, entries)
                self._sync_names()
            self._watermarks.update_first_unstable_offset()

    def _reason(self) -> Reason:
        return self._local.reason("Deleting segments as part of log truncation: %s")

    def _rebuild_producers(self, end: int) -> None:
        with public_errors(self._local.path):
            rebuild_producers(self._producers, self._local.segments,
                              self._watermarks.log_start_offset, end)

    def _sync_names(self) -> None:
        """Syncs the directory before the offsets are reused. Otherwise a power cut could bring back
        a segment or a producer snapshot of the old records, which would hide flushed ones. Kafka
        never syncs it."""
        self._local.disk.sync_directory()
