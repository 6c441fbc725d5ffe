"""When a log begins a new segment, and the steps of a roll (Kafka: UnifiedLog.maybeRoll, roll)."""

from __future__ import annotations

import logging
from functools import partial

from seglog.errors import IllegalStateError, KafkaStorageError
from seglog.log.append_info import LogAppendInfo
from seglog.log.local_log import LocalLog
from seglog.log.log_dir_failures import NO_DESCRIPTOR
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.log.watermarks import Watermarks

__all__ = ["Rolling"]

_INT32_MAX = 2**31 - 1
_RETRY_MS = 1000
_logger = logging.getLogger("seglog.LocalLog")


class Rolling:
    """Rolls a log. For the thread that holds its lock."""

    def __init__(self, local: LocalLog, watermarks: Watermarks,
                 producers: ProducerStateManager) -> None:
        self._local, self._watermarks, self._producers = local, watermarks, producers
        #: Whether a roll is under way.
        self.is_running = False

    def check_idle(self) -> None:
        """Raises IllegalStateError inside of a roll: the log's lock lets the thread that rolls in
        again, and an append would take offsets of the new segment to the old one."""
        if self.is_running:
            raise IllegalStateError(
                "an operation began inside of a roll, in the same thread (a finalizer, or a "
                f"signal's handler): the log of {self._local.topic_partition} is not changed")

    def maybe_roll(self, size: int, info: LogAppendInfo) -> None:
        """Rolls before an append of `size` bytes, if a rule requires it (UnifiedLog.maybeRoll)."""
        local = self._local
        active, config, now = local.active, local.config, local.now_ms()
        if not active.should_roll(config, append_size=size, max_timestamp=info.max_timestamp,
                                  last_offset=info.last_offset, now_ms=now):
            return
        files = active.files
        _logger.debug(local.log_text(
            f"Rolling new log segment (log_size = {files.size}/{config.segment_size}}}, "
            f"offset_index_size = {files.offset_index.entries}/{files.offset_index.max_entries}, "
            f"time_index_size = {files.time_index.entries}/{files.time_index.max_entries}, "
            f"inactive_time_ms = {active.time_waited_for_roll(now, info.max_timestamp)}/"
            f"{config.segment_ms - active.jitter_ms})."))
        # Old formats do not store their first offset; no append spans more than this.
        self.roll(info.first_offset if info.first_offset != -1
                  else info.last_offset - _INT32_MAX)

    def roll(self, expected_next_offset: int) -> int:
        """Rolls a new segment at the larger of the log's end and `expected_next_offset`. Returns
        its base offset. A task flushes the old one."""
        local = self._local
        self.check_idle()
        self.is_running = True
        try:
            local.fast_path.disarm()
            base, snapshot = self._rolled(expected_next_offset)
        finally:
            self.is_running = False
        self._watermarks.follow_log_end()
        self._flush_later(snapshot, base)
        return base

    def _rolled(self, expected_next_offset: int) -> tuple[int, str | None]:
        """The base offset of the new segment, and the name of the snapshot there if it is new."""
        local, producers = self._local, self._producers
        with local.guarded(f"Error while rolling log segment for {local.topic_partition}"):
            base = local.roll(expected_next_offset)
            # A snapshot at the base of every segment, from which a recovery begins.
            producers.update_map_end_offset(base)
            return base, producers.take_snapshot(sync=False)

    def _flush(self, snapshot: str | None, base: int) -> None:
        local = self._local
        if local.files.is_closed:
            return  # its close has flushed it, or it was abandoned
        try:
            if snapshot is not None:
                with local.guarded(f"Error while deleting producer state snapshot {snapshot} for "
                                   f"{local.topic_partition}", repeats=True):
                    local.files.sync_file(snapshot)
            local.flush_to(base)
        except KafkaStorageError as error:
            if error.code != NO_DESCRIPTOR:
                raise
            _logger.warning(local.log_text(f"{error}; it is tried again"))
            self._flush_later(snapshot, base, _RETRY_MS)

    def _flush_later(self, snapshot: str | None, base: int, delay_ms: int = 0) -> None:
        self._local.context.scheduler.schedule_once(
            "flush-log", partial(self._flush, snapshot, base), delay_ms)
