"""A manager's background tasks: retention, flushes, checkpoints, deletions (LogManager.startup)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from seglog.config import BrokerConfig
from seglog.errors import KafkaStorageError
from seglog.log.log_dir_failures import CLOSED, OFFLINE
from seglog.log.scheduler import ScheduledTask
from seglog.log.unified_log import UnifiedLog
from seglog.manager.deletion import LogDeletion
from seglog.manager.state import ManagerState

__all__ = ["BackgroundTasks"]

_log = logging.getLogger(__name__)
_retention_log = logging.getLogger("seglog.UnifiedLog")


class BackgroundTasks:
    """The tasks of one manager on its scheduler, under Kafka's names."""

    def __init__(self, state: ManagerState, deletion: LogDeletion,
                 config: BrokerConfig | None) -> None:
        """Without `config` there are no periodic tasks."""
        self._state, self._deletion, self._config = state, deletion, config
        self._scheduled: list[ScheduledTask] = []

    def start(self, *, is_quiet: bool = False) -> None:
        """Schedules them; the first run is after `log.initial.task.delay.ms`. Without tasks a log
        message names the topics that are never compacted, unless `is_quiet`."""
        config, checkpoints = self._config, self._state.checkpoints
        if config is None:
            if not is_quiet:
                self._state.cleaning.warn()
            return
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
        self._state.cleaning.start()
        # Kafka: ReplicaManager.
        self._schedule("highwatermark-checkpoint", checkpoints.high_watermarks,
                       config.replica_high_watermark_checkpoint_interval_ms, 0)

    def _schedule(self, name: str, task: Callable[[], object], period_ms: int,
                  delay_ms: int | None = None) -> None:
        if delay_ms is None:
            assert self._config is not None
            delay_ms = self._config.log_initial_task_delay_ms
        self._scheduled.append(
            self._state.context.scheduler.schedule(name, task, delay_ms, period_ms))

    def stop(self) -> None:
        """Starts none of them again; waits for running ones. The cleaner ends first."""
        self._state.cleaning.stop()
        self._deletion.stop()
        for task in self._scheduled:
            task.cancel()
            task.join()

    def cleanup_logs(self) -> int:
        """Applies retention to all logs that are not compacted. Returns the number of deleted
        segments."""
        _log.debug("Beginning log cleanup...")
        state, total = self._state, 0
        started = state.now_ms()
        self._open_what_retention_needs(started)
        with state.cleaning.retention(list(state.table.opened_current().items())) as deletable:
            for key, log in deletable:
                _log.debug("Garbage collecting '%s'", log.path)
                total += _delete_old_segments(log)
                future = state.table.get(key, is_future=True)
                if future is not None:
                    _log.debug("Garbage collecting future log '%s'", future.path)
                    total += _delete_old_segments(future)
        _log.debug("Log cleanup completed. %d files deleted in %d seconds", total,
                   (state.now_ms() - started) // 1000)
        return total

    def _open_what_retention_needs(self, now_ms: int) -> None:
        """Opens the logs of which it may delete something. With debug messages opens all, because
        it logs each."""
        state = self._state
        if any(one.isEnabledFor(logging.DEBUG) for one in (_log, _retention_log)):
            state.table.open_all()
        for logs in state.table.unopened():
            for key in logs.sweep(now_ms, state.configs.of):
                try:
                    state.table.get(key)
                except KafkaStorageError as error:
                    if error.code not in (CLOSED, OFFLINE):
                        raise

    def flush_dirty_logs(self) -> None:
        """Flushes the logs whose last flush was at least `flush.ms` ago."""
        _log.debug("Checking for dirty logs to flush...")
        # A log that was not opened since its clean shutdown has nothing to flush.
        table, says_all = self._state.table, _log.isEnabledFor(logging.DEBUG)
        for log in table.served() if says_all else table.opened():
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
    """Applies retention to one log. Returns 0 if it was deleted meanwhile or went offline, which
    the failure channel reports: the other logs are still cleaned."""
    try:
        return log.delete_old_segments()
    except KafkaStorageError as error:
        if error.code not in (CLOSED, OFFLINE):
            raise
        return 0
