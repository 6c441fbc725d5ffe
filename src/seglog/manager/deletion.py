"""Deletes logs: renames them at once, removes them later (Kafka: LogManager.asyncDelete,
deleteLogs)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable

from seglog.errors import KafkaStorageError
from seglog.log.scheduler import ScheduledTask
from seglog.log.unified_log import UnifiedLog
from seglog.manager.state import ManagerState
from seglog.manager.table import dir_of
from seglog.model import TopicPartition
from seglog.storage.paths import DirectoryKind, delete_dir_name, stray_dir_name

__all__ = ["LogDeletion"]

_log = logging.getLogger(__name__)

class LogDeletion:
    """Takes logs out of service, and deletes them when they are due."""

    def __init__(self, state: ManagerState) -> None:
        self._state = state
        self._stopped = False
        self._scheduled: ScheduledTask | None = None

    def async_delete(self, key: TopicPartition, is_future: bool = False, *,
                     checkpoint: bool = True, is_stray: bool = False) -> UnifiedLog | None:
        """See LogManager.async_delete."""
        state = self._state
        # Held until the directory has its new name: otherwise a log that is created meanwhile would
        # open the files of this one.
        with state.changing():
            log = state.table.remove(key, is_future)
            if log is None:
                offline = state.directories.offline
                if offline:
                    raise KafkaStorageError(
                        f"Failed to delete log for {'future' if is_future else ''} {key} because "
                        f"it may be in one of the offline directories {','.join(offline)}")
                return None
            log_dir = dir_of(log)
            directory = state.directories.get(log_dir)
            if directory is not None:
                directory.note_deletion(key)
            if not is_future:
                state.cleaning.removed(log)
            self._put_away(log, is_stray)
        if checkpoint:
            state.forget_topics((key.topic,))
            state.checkpoints.recovery_offsets(log_dir)
        return log

    def _put_away(self, log: UnifiedLog, is_stray: bool) -> None:
        state, key = self._state, log.topic_partition
        log.remove_log_metrics()
        name = stray_dir_name if is_stray else delete_dir_name
        try:
            log.rename_dir(name(key, uuid.uuid4().hex), reinitialize=False)
        except KafkaStorageError:
            log.close_handlers()  # no other thread can find it any more
            raise
        if is_stray:
            state.table.add(log, DirectoryKind.STRAY)
            _log.warning("Log for partition %s is marked as stray and renamed to %s", key, log.path)
        else:
            state.table.add(log, DirectoryKind.DELETED)
            _log.info("Log for partition %s is renamed to %s and is scheduled for deletion", key,
                      log.path)

    def async_delete_all(self, keys: Iterable[TopicPartition], is_stray: bool,
                         on_error: Callable[[TopicPartition, Exception], object]) -> None:
        """See LogManager.async_delete_all."""
        log_dirs, topics = set[str](), set[str]()
        for key in keys:
            topics.add(key.topic)
            try:
                for is_future in (False, True):
                    log = self._state.table.get(key, is_future)
                    if log is not None:
                        log_dirs.add(dir_of(log))
                        self.async_delete(key, is_future, checkpoint=False, is_stray=is_stray)
            except Exception as error:
                on_error(key, error)
        self._state.forget_topics(topics)
        for log_dir in sorted(log_dirs):
            self._state.checkpoints.recovery_offsets(log_dir)

    # ---- the task

    def schedule(self, delay_ms: int) -> None:
        """Checks after `delay_ms` for logs that are due, and then repeatedly."""
        if not self._stopped:
            self._scheduled = self._state.context.scheduler.schedule_once(
                "kafka-delete-logs", self._run, delay_ms)

    def stop(self) -> None:
        """Stops the checks, and waits for one that has begun."""
        self._stopped = True
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled.join()

    def _run(self) -> None:
        if self._stopped:
            return
        next_delay_ms = max(self._delay_ms, 1)
        try:
            next_delay_ms = self.delete_logs()
        except Exception as error:
            _log.error("Exception in kafka-delete-logs thread.", exc_info=error)
        finally:
            self.schedule(next_delay_ms)

    @property
    def _delay_ms(self) -> int:
        return self._state.configs.default.file_delete_delay_ms

    def delete_logs(self) -> int:
        """Deletes the logs that were queued `file.delete.delay.ms` ago. Returns the ms until the
        next."""
        state = self._state
        delay = self._delay_ms
        while (due := state.table.take_to_be_deleted(state.now_ms() - delay)) is not None:
            log = due.log
            try:
                log.delete()
                _log.info("Deleted log for partition %s in %s.", log.topic_partition, log.path)
            except KafkaStorageError as error:
                _log.error("Exception while deleting %s in dir %s.", log, dir_of(log),
                           exc_info=error)
                log.close_handlers()  # what it did not come to delete is open
        queued = state.table.next_to_be_deleted_ms()
        return max(delay if queued is None else queued + delay - state.now_ms(), 1)
