"""A manager's background tasks: retention, flushes, checkpoints, deletions (LogManager.startup)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from seglog.config import BrokerConfig
from seglog.errors import KafkaStorageError
from seglog.log.failures import CLOSED, OFFLINE
from seglog.log.scheduler import ScheduledTask
from seglog.log.unified_log import UnifiedLog
from seglog.manager.deletion import LogDeletion
from seglog.manager.state import ManagerState

__all__ = ["BackgroundTasks"]

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """The tasks of one manager on its scheduler, under Kafka's names."""

    def __init__(self, state: ManagerState, deletion: LogDeletion, config: BrokerConfig) -> None:
        self._state, self._deletion, self._config = state, deletion, config
        self._scheduled: list[ScheduledTask] = []

    def start(self) -> None:
        """Schedules them; the first run is after `log.initial.task.delay.ms`."""
        config, checkpoints = self._config, self._state.checkpoints
        _log.info("Starting log cleanup with a period of %d ms.",
                  config.log_retention_check_interval_ms)
        self._schedule("kafka-log-retention", self.cleanup_logs,
                       config.log_retention_check_interval_ms)
        _log.info("Starting log flusher with a default period of %d ms.",
                  config.log_flush_scheduler_interval_ms)
        self._schedule("kafka-log-flusher", self.flush_dirty_logs,
                       config.log_flush_scheduler_interval_ms)
        self._schedule("kafka-recovery-point-checkpoint", checkpoints.recovery_offsets,
                       config.log_flush_offset_checkpoint_interval_ms)
        self._schedule("kafka-log-start-offset-checkpoint", checkpoints.log_start_offsets,
                       config.log_flush_start_offset_checkpoint_interval_ms)
        self._deletion.schedule(config.log_initial_task_delay_ms)
        # Kafka: ReplicaManager.
        self._schedule("highwatermark-checkpoint", checkpoints.high_watermarks,
                       config.replica_high_watermark_checkpoint_interval_ms, 0)

    def _schedule(self, name: str, task: Callable[[], object], period_ms: int,
                  delay_ms: int | None = None) -> None:
        if delay_ms is None:
            delay_ms = self._config.log_initial_task_delay_ms
        self._scheduled.append(
            self._state.context.scheduler.schedule(name, task, delay_ms, period_ms))

    def stop(self) -> None:
        """None of them begins again; waits for those that run."""
        self._deletion.stop()
        for task in self._scheduled:
            task.cancel()
            task.join()

    def cleanup_logs(self) -> int:
        """Deletes what retention lets go of all logs that are not compacted; how many segments."""
        _log.debug("Beginning log cleanup...")
        state, total = self._state, 0
        started = state.now_ms()
        with state.table.lock:
            logs = list(state.table.current.items())
        for key, log in logs:
            if log.config.compact:
                continue
            _log.debug("Garbage collecting '%s'", log.path)
            total += _delete_old_segments(log)
            future = state.table.get(key, is_future=True)
            if future is not None:
                _log.debug("Garbage collecting future log '%s'", future.path)
                total += _delete_old_segments(future)
        _log.debug("Log cleanup completed. %d files deleted in %d seconds", total,
                   (state.now_ms() - started) // 1000)
        return total

    def flush_dirty_logs(self) -> None:
        """Flushes the logs whose last flush is `flush.ms` ago."""
        _log.debug("Checking for dirty logs to flush...")
        for log in self._state.table.served():
            topic = log.topic_partition.topic
            try:
                since = self._state.now_ms() - log.last_flush_ms
                _log.debug("Checking if flush is needed on %s flush interval %d last flushed %d "
                           "time since last flush: %d", topic, log.config.flush_ms,
                           log.last_flush_ms, since)
                if since >= log.config.flush_ms:
                    log.flush()
            except Exception as error:
                if getattr(error, "code", None) != CLOSED:  # it was deleted meanwhile
                    _log.error("Error flushing topic %s", topic, exc_info=error)


def _delete_old_segments(log: UnifiedLog) -> int:
    """Of one log; 0 of one that was deleted meanwhile, or went offline, which the failure channel
    has told: the other logs are cleaned all the same."""
    try:
        return log.delete_old_segments()
    except KafkaStorageError as error:
        if error.code not in (CLOSED, OFFLINE):
            raise
        return 0
