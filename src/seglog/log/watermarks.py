"""High watermark, last stable offset, log start offset (Kafka: UnifiedLog)."""

from __future__ import annotations

import enum
import logging
from typing import Final

from seglog._native.fetch import LogOffsetMetadata
from seglog.errors import IllegalArgumentError, OffsetOutOfRangeError
from seglog.log.leader_epoch_cache import LeaderEpochCache
from seglog.log.local_log import LocalLog
from seglog.log.local_reads import LocalReads
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.recovery.loaded import LoadedState

__all__ = ["StartOffsetReason", "Watermarks"]

_logger = logging.getLogger("seglog.UnifiedLog")
#: A value of the known first unstable offset that makes the next update look it up.
_UNKNOWN: Final = (LogOffsetMetadata(-1), -1)


class StartOffsetReason(enum.Enum):
    """Why the log start offset moves (Kafka: LogStartOffsetIncrementReason)."""

    LEADER_OFFSET_INCREMENTED = "leader offset increment"
    SEGMENT_DELETION = "segment deletion"
    CLIENT_RECORD_DELETION = "client delete records request"
    SNAPSHOT_GENERATED = "snapshot generated"


class Watermarks:
    """The offsets of a log except its end. Methods take the log's lock if they need it; any thread
    may read the attributes."""

    def __init__(self, state: LoadedState, local: LocalLog, reads: LocalReads,
                 epochs: LeaderEpochCache, producers: ProducerStateManager) -> None:
        self._local, self._reads = local, reads
        self._epochs, self._producers = epochs, producers
        self.log_start_offset = state.log_start_offset
        self.local_log_start_offset = state.local_log_start_offset
        self.highest_offset_in_remote_storage = -1
        self.high_watermark_metadata = LogOffsetMetadata(state.high_watermark)
        # The position from the load is looked up again at the first use.
        self._known_unstable: tuple[LogOffsetMetadata, int] | None = _UNKNOWN
        self._first_unstable = None if state.first_unstable_offset is None \
            else LogOffsetMetadata(state.first_unstable_offset)
        if self.local_log_start_offset > state.high_watermark:
            self.update_high_watermark(self.local_log_start_offset)

    # ---- high watermark -----------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The offset without its position."""
        return self.high_watermark_metadata.message_offset

    def update_high_watermark(self, offset: int) -> int:
        """Sets it within [log start, log end]. Returns the new one."""
        with self._local.lock:
            new = self._local.end_metadata
            if offset < new.message_offset:
                new = LogOffsetMetadata(max(offset, self.log_start_offset))
            self._set_high_watermark(new)
            return new.message_offset

    def _set_high_watermark(self, new: LogOffsetMetadata) -> None:
        if new.message_offset < 0:
            raise IllegalArgumentError("High watermark offset should be non-negative")
        before = self.high_watermark_metadata
        if new.message_offset < before.message_offset:
            _logger.warning(self._local.log_text("Non-monotonic update of high watermark from "
                                                 f"{before} to {new}"))
        self.high_watermark_metadata = new
        self._producers.on_high_watermark_updated(new.message_offset)
        self.update_first_unstable_offset()
        if self._local.followers.waiting:  # an append of one record makes no call for none
            self._local.followers.wake()

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """See UnifiedLog.maybe_increment_high_watermark."""
        with self._local.lock:
            end = self._local.end_metadata
            if new.message_offset > end.message_offset:
                raise IllegalArgumentError(f"High watermark {new} update exceeds current log end "
                                           f"offset {end}")
            old = self.fetch_high_watermark_metadata()
            if (old.message_offset < new.message_offset
                    or (old.message_offset == new.message_offset and old.on_older_segment(new))):
                self._set_high_watermark(new)
                return old
            return None

    def follow_log_end(self) -> None:
        """Called after the end moved: keeps the high watermark at or below it, and updates its
        segment."""
        if self.high_watermark >= self._local.log_end_offset:
            self._set_high_watermark(self._local.end_metadata)

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position, looked up once. It moves to the beginning of its
        batch, as in Kafka."""
        with self._local.lock:
            self._local.check_open()
            if self.high_watermark_metadata.message_offset_only:
                self._set_high_watermark(self._reads.locate(self.high_watermark))
            return self.high_watermark_metadata

    # ---- last stable offset -------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open, at most the high watermark."""
        high, unstable = self.high_watermark, self._first_unstable
        return high if unstable is None else min(unstable.message_offset, high)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or ended above the high
        watermark."""
        return None if self._first_unstable is None else self._first_unstable.message_offset

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its position. Takes the lock only to look that up, so that no
        reader waits for the sync of an append."""
        self._local.check_open()
        high = self.high_watermark_metadata
        if high.message_offset_only:
            high = self.fetch_high_watermark_metadata()
        # After the high watermark, which passes no transaction before it is unstable.
        unstable = self._first_unstable
        if unstable is None or unstable.message_offset >= high.message_offset:
            return high
        return self._located(unstable) if unstable.message_offset_only else unstable

    def _located(self, unstable: LogOffsetMetadata) -> LogOffsetMetadata:
        """The first unstable offset with its position, which is kept."""
        with self._local.lock:
            found = self._reads.locate(unstable.message_offset)
            if self._first_unstable is unstable:
                self._first_unstable = found
            return found

    def update_first_unstable_offset(self) -> None:
        """Updates the start of the first open transaction from the producers' state."""
        self._local.check_open()
        found = self._producers.first_unstable_offset
        known = None if found is None else (found, self.log_start_offset)
        if known == self._known_unstable:
            return
        if found is not None and (found.message_offset_only
                                  or found.message_offset < self.log_start_offset):
            # A transaction that began below the log's start counts from the log's start.
            found = self._reads.locate(max(found.message_offset, self.log_start_offset))
            if found.message_offset >= self._local.log_end_offset:
                known = _UNKNOWN  # its position changes if the next batch begins a segment
        if found != self._first_unstable and _logger.isEnabledFor(logging.DEBUG):
            shown = "Optional.empty" if found is None else f"Optional[{found}]"
            _logger.debug(self._local.log_text(f"First unstable offset updated to {shown}"))
        self._known_unstable = known
        self._first_unstable = found
        self._local.followers.wake()

    # ---- log start offset ---------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int, reason: StartOffsetReason) -> bool:
        """See UnifiedLog.maybe_increment_log_start_offset."""
        local = self._local
        with local.guarded("Exception while increasing log start offset for "
                           f"{local.topic_partition} to {offset}"), local.lock:
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"Cannot increment the log start offset to {offset} of partition "
                    f"{local.topic_partition} since it is larger than the high watermark "
                    f"{self.high_watermark}")
            if local.remote_log_enabled:
                self.local_log_start_offset = max(offset, self.local_log_start_offset)
            local.check_open()
            if offset <= self.log_start_offset:
                return False
            self._set_log_start(offset)
            local.recovery_point_at_least(offset)
            _logger.info(local.log_text(f"Incremented log start offset to {offset} due to "
                                        f"{reason.value}"))
            self._epochs.truncate_from_start(offset)
            self._producers.on_log_start_offset_incremented(offset)
            self.update_first_unstable_offset()
            return True

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Moves it up; local segments up to it may be deleted."""
        if not self._local.remote_log_enabled:
            _logger.warning(self._local.log_text(
                "Unable to update the highest offset in remote storage with offset "
                f"{offset} since remote storage is not enabled. The existing highest offset is "
                f"{self.highest_offset_in_remote_storage}."))
        elif offset > self.highest_offset_in_remote_storage:
            self.highest_offset_in_remote_storage = offset

    def start_at_local_segments(self) -> None:
        """See UnifiedLog.start_at_local_segments."""
        self.highest_offset_in_remote_storage = -1
        self.maybe_increment_log_start_offset(self.local_log_start_offset,
                                              StartOffsetReason.SEGMENT_DELETION)

    def update_log_start_offset_from_remote_tier(self, offset: int) -> None:
        """Moves the log's start up, because remote segments below it are deleted or do not exist.
        The start of the local segments does not change."""
        local = self._local
        if not local.remote_log_enabled:
            _logger.error(local.log_text(
                "Ignoring the call as the remote log storage is disabled"))
            return
        self.maybe_increment_log_start_offset(offset, StartOffsetReason.SEGMENT_DELETION)

    def start_after_deletion(self, offset: int) -> None:
        """Moves the start to the first segment that retention leaves. Moves only the local start if
        the deleted segments are in remote storage."""
        local = self._local
        if not local.remote_copy_enabled:
            self.maybe_increment_log_start_offset(offset, StartOffsetReason.SEGMENT_DELETION)
            return
        with local.lock:
            if offset > self.local_log_start_offset:
                self.local_log_start_offset = offset
                self._known_unstable = _UNKNOWN  # it may have been in a deleted segment
                _logger.info(local.log_text(f"Incremented local log start offset to {offset} due "
                                            "to reason "
                                            f"{StartOffsetReason.SEGMENT_DELETION.value}"))

    def start_at_most(self, offset: int) -> None:
        """Adjusts the offsets after a truncation to `offset`."""
        self._set_log_start(min(offset, self.log_start_offset))
        self._forget_remote_from(offset)

    def start_at(self, offset: int, first_local: int) -> None:
        """Adjusts the offsets after a full truncation: the log begins at `offset`, its segments at
        `first_local`."""
        self._set_log_start(offset)
        self._forget_remote_from(first_local)
        if self._local.remote_log_enabled:
            self.local_log_start_offset = first_local

    def _forget_remote_from(self, offset: int) -> None:
        """Other records will have the offsets from `offset` on, of which none is in remote
        storage. (In Kafka they count as copied, and local retention may delete them.)"""
        self.highest_offset_in_remote_storage = min(
            offset - 1, self.highest_offset_in_remote_storage)

    def _set_log_start(self, offset: int) -> None:
        self._local.fast_path.disarm()  # its results contain the log start offset
        self.log_start_offset = offset
        # A truncation may have removed the batch in which the first unstable offset was found.
        self._known_unstable = _UNKNOWN
