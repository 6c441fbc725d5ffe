"""Deletes the segments that break a rule of retention (Kafka: UnifiedLog.deleteOldSegments)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from seglog.log import retention
from seglog.log.local_log import LocalLog
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.log.retention import Rule
from seglog.log.rolling import Rolling
from seglog.log.watermarks import Watermarks
from seglog.recovery.segment_files import SegmentFiles

__all__ = ["OldSegments"]

_logger = logging.getLogger("seglog.UnifiedLog")


class OldSegments:
    """Applies retention to one log. Takes the log's lock for each of its rules."""

    def __init__(self, local: LocalLog, watermarks: Watermarks, producers: ProducerStateManager,
                 rolling: Rolling) -> None:
        self._local, self._watermarks = local, watermarks
        self._producers, self._rolling = producers, rolling
        #: The log's size in percent of `retention.bytes`, at the last run.
        self.size_in_percent = 0

    def delete(self) -> int:
        """See UnifiedLog.delete_old_segments."""
        local = self._local
        is_local = local.remote_copy_enabled
        kind = "local log" if is_local else "log"
        try:
            deleted = self._delete(self._by_start_offset(kind))
            config = local.config
            if config.delete or (not config.compact and is_local):
                limit, size = retention.retention_bytes(config, is_local=is_local), local.size()
                if 0 <= limit <= size:
                    deleted += self._delete(retention.by_size(limit, size, kind))
                limit = retention.retention_ms(config, is_local=is_local)
                if limit >= 0:
                    deleted += self._delete(retention.by_time(limit, local.now_ms(), kind,
                                                              local.log_text))
            return deleted
        finally:
            self.size_in_percent = retention.size_in_percent(local.size(), local.config,
                                                             is_local=is_local)

    def _by_start_offset(self, kind: str) -> Rule:
        watermarks = self._watermarks
        if self._local.remote_log_enabled:
            return retention.by_start_offset(watermarks.local_log_start_offset, kind,
                                             "localLogStartOffset")
        return retention.by_start_offset(watermarks.log_start_offset, kind, "logStartOffset")

    def _delete(self, rule: Rule) -> int:
        local = self._local
        message = f"Error while deleting segments for {local.topic_partition}"
        with local.lock:
            with local.guarded(message, reads=True):
                local.check_open()  # its files may belong to another log by now
                local.update_files()
                bases = self._deletable(rule)
            with local.guarded(message):
                return self._delete_segments(bases, rule) if bases else 0

    def _deletable(self, rule: Rule) -> list[int]:
        """Base offsets from the oldest segment up to the first that stays."""
        local, segments = self._local, self._local.segments
        found: list[int] = []
        roll_active = False
        for row in range(len(segments)):
            base = int(segments.base_offsets[row])
            is_last = row + 1 == len(segments)
            following = None if is_last else int(segments.base_offsets[row + 1])
            upper = local.log_end_offset if following is None else following
            if self._watermarks.high_watermark < upper:
                break
            local.files.ensure_checked(base)
            segment = segments.get(base)
            breached, details = rule.check(segment, following)
            is_empty = segment.size == 0
            if _logger.isEnabledFor(logging.DEBUG):
                _logger.debug(local.log_text(f"{segment.describe()} {rule.name} breached: "
                                             f"{str(breached).lower()}, {details}"))
            segments.release(segment)
            if not breached:
                break
            roll_active |= local.remote_log_enabled and is_last and not is_empty
            if (is_last and is_empty) or not self._may_go(following, upper):
                break
            found.append(base)
        if roll_active:
            _logger.info(local.log_text("Rolling the active segment to make it eligible for "
                                        "deletion"))
            self._rolling.roll(0)
        return found

    def _may_go(self, following: int | None, upper: int) -> bool:
        """Whether all of the segment is in remote storage, or below the log's start."""
        watermarks = self._watermarks
        return (not self._local.remote_copy_enabled
                or (upper > 0 and upper - 1 <= watermarks.highest_offset_in_remote_storage)
                or (following is not None and watermarks.log_start_offset >= following))

    def _delete_segments(self, bases: list[int], rule: Rule) -> int:
        local = self._local
        if len(local.segments) == len(bases):
            # There must always be an active segment. The last one is not empty, so this is another.
            self._rolling.roll(0)
        local.check_open()
        start = local.segments.higher_base(bases[-1])
        assert start is not None  # the active segment stays
        self._watermarks.start_after_deletion(start)

        def why(segments: Sequence[SegmentFiles]) -> None:
            for line in rule.reasons(segments, local.size()):
                _logger.info(local.log_text(line))

        local.remove_segments(bases, why)
        local.delete_snapshots(self._producers.snapshots.retire(bases))
        return len(bases)
