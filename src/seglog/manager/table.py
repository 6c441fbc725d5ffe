"""The logs of a manager, by partition and by the kind of their directories."""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from seglog.errors import DuplicatePartitionError, KafkaStorageError, LogManagerStateError
from seglog.log.log_dir_failures import OFFLINE
from seglog.log.unified_log import UnifiedLog
from seglog.manager.collector_pause import collections_paused
from seglog.manager.unopened import UnopenedLogs
from seglog.model import TopicPartition
from seglog.storage.paths import DirectoryKind

__all__ = ["DeletedLog", "LogTable", "RemovedLogs", "dir_of"]


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """A log in a `-delete` directory, and when it was queued (ms since 1970)."""

    log: UnifiedLog
    queued_ms: int


@dataclass(frozen=True, slots=True)
class RemovedLogs:
    """The logs of a failed directory; `unopened` are current ones too."""

    current: list[UnifiedLog]
    future: list[UnifiedLog]
    others: list[UnifiedLog]
    unopened: list[TopicPartition]

    @property
    def opened(self) -> list[UnifiedLog]:
        """All logs that are objects."""
        return [*self.current, *self.future, *self.others]

    @property
    def current_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that had a current log."""
        return (*(log.topic_partition for log in self.current), *self.unopened)


def dir_of(log: UnifiedLog) -> str:
    """The data directory that holds a log."""
    return os.path.dirname(log.path)


class LogTable:
    """Current, future, stray and deleted logs. Safe from any thread.

    Current logs that were closed cleanly are rows (`unopened`) until a caller asks for them; a
    request for all logs as objects opens them. `on_opened` is called with each.
    """

    def __init__(self, now_ms: Callable[[], int],
                 on_opened: Callable[[UnifiedLog], object] = lambda log: None) -> None:
        self._current: dict[TopicPartition, UnifiedLog] = {}
        self._unopened: list[UnopenedLogs] = []
        self.future: dict[TopicPartition, UnifiedLog] = {}
        self.stray: dict[TopicPartition, UnifiedLog] = {}
        self.to_be_deleted: deque[DeletedLog] = deque()
        self.lock = threading.RLock()
        # Held by the thread that opens a log, before `lock`, which is free meanwhile.
        self._opening = threading.RLock()
        #: Whether no more logs are opened.
        self.is_sealed = False
        self._now_ms, self._on_opened = now_ms, on_opened

    def add(self, log: UnifiedLog, kind: DirectoryKind) -> None:
        """Adds a loaded log. Raises DuplicatePartitionError with Kafka's text."""
        key = log.topic_partition
        with self.lock:
            if kind is DirectoryKind.DELETED:
                self.to_be_deleted.append(DeletedLog(log, self._now_ms()))
            elif kind is DirectoryKind.STRAY:
                self.stray[key] = log
            elif kind is DirectoryKind.FUTURE:
                previous = self.future.setdefault(key, log)
                if previous is not log:
                    raise DuplicatePartitionError("Duplicate log directories found: "
                                                  f"{log.path}, {previous.path}")
            else:
                self._refuse_second(key, log.path)
                self._current[key] = log

    def add_unopened(self, logs: UnopenedLogs) -> None:
        """Adds logs as rows. Raises DuplicatePartitionError."""
        with self.lock:
            for key in logs:
                self._refuse_second(key, logs.path(key))
            self._unopened.append(logs)

    def _refuse_second(self, key: TopicPartition, path: str) -> None:
        """Raises DuplicatePartitionError if the partition has a current log already."""
        log, home = self._current.get(key), self._home(key)
        if log is not None or home is not None:
            previous = log.path if log is not None else home.path(key) if home else ""
            raise DuplicatePartitionError(
                f"Duplicate log directories for {key} are found in both {path} and "
                f"{previous}. It is likely because log directory failure happened "
                "while broker was replacing current replica with future replica. Recover "
                "broker from this failure by manually deleting one of the two directories "
                "for this partition. It is recommended to delete the partition in the log "
                "directory that is known to have failed recently.")

    # ---- opening ------------------------------------------------------------------------------

    def _home(self, key: TopicPartition) -> UnopenedLogs | None:
        return next((logs for logs in self._unopened if key in logs), None)

    def seal(self) -> None:
        """Opens no more logs: the manager is about to release its directories."""
        with self._opening:
            self.is_sealed = True

    def _open(self, key: TopicPartition) -> UnifiedLog | None:
        """Opens the log of a row. None if its directory failed meanwhile.

        Raises KafkaStorageError; LogManagerStateError if the table is sealed.
        """
        with self._opening:
            with self.lock:
                home = self._home(key)
                row = None if home is None else home.row(key)
                if home is None or row is None:
                    return self._current.get(key)
            if self.is_sealed:
                raise LogManagerStateError(f"the log of {key} was not opened before the log "
                                           "manager was closed")
            log = home.open(row)
            with self.lock:
                is_here = home.take(key)
                if is_here:
                    self._current[key] = log
            if not is_here:
                log.remove_log_metrics()
                log.close_handlers()
                return None
            self._on_opened(log)
            return log

    def open_all(self, log_dir: str | None = None, topic: str | None = None) -> None:
        """Opens the logs of all rows, or of those of one data directory or topic. One that fails
        goes offline; the others are still opened."""
        if any(self._unopened):
            with collections_paused():
                for key in [key for logs in self.unopened(log_dir) for key in logs
                            if topic in (None, key.topic)]:
                    try:
                        self._open(key)
                    except KafkaStorageError as error:
                        if error.code != OFFLINE:
                            raise

    def unopened_keys(self) -> list[TopicPartition]:
        """The partitions whose logs are rows."""
        with self.lock:
            return [key for logs in self._unopened for key in logs]

    def unopened(self, log_dir: str | None = None) -> list[UnopenedLogs]:
        """The rows, of one data directory or of all."""
        with self.lock:
            return [logs for logs in self._unopened if log_dir in (None, logs.log_dir)]

    # ---- asking -------------------------------------------------------------------------------

    @property
    def current(self) -> dict[TopicPartition, UnifiedLog]:
        """All current logs, opened."""
        self.open_all()
        with self.lock:
            return dict(self._current)

    def get(self, key: TopicPartition, is_future: bool = False) -> UnifiedLog | None:
        """The current log of a partition, or its future one. Raises the errors of opening it."""
        with self.lock:
            if is_future:
                return self.future.get(key)
            log = self._current.get(key)
            if log is not None or self._home(key) is None:
                return log
        return self._open(key)

    def has(self, key: TopicPartition) -> bool:
        """Whether a partition has a current log. Opens nothing."""
        with self.lock:
            return key in self._current or self._home(key) is not None

    def is_current(self, log: UnifiedLog) -> bool:
        """Whether a log is the current one of its partition. Opens nothing."""
        with self.lock:
            return self._current.get(log.topic_partition) is log

    def current_keys(self) -> list[TopicPartition]:
        """The partitions that have a current log. Opens nothing."""
        with self.lock:
            return [*self._current, *self.unopened_keys()]

    def served(self) -> list[UnifiedLog]:
        """Current and future logs, opened."""
        self.open_all()
        return self.opened()

    def opened(self, log_dir: str | None = None) -> list[UnifiedLog]:
        """Current and future logs that are objects, of one data directory or of all."""
        with self.lock:
            logs = [*self._current.values(), *self.future.values()]
        return logs if log_dir is None else [log for log in logs if dir_of(log) == log_dir]

    def opened_current(self) -> dict[TopicPartition, UnifiedLog]:
        """Current logs that are objects."""
        with self.lock:
            return dict(self._current)

    def served_in(self, log_dir: str) -> list[UnifiedLog]:
        """Current and future logs of one data directory, opened."""
        self.open_all(log_dir)
        return self.opened(log_dir)

    def counts(self) -> Counter[str]:
        """The number of current and future logs of each data directory that has any."""
        with self.lock:
            found = Counter(dir_of(log) for log in self.opened())
            for logs in self._unopened:
                found[logs.log_dir] += len(logs)
        return +found

    def topics(self) -> set[str]:
        """The topics of current and future logs."""
        return {key.topic for key in self.unopened_keys()} | {
            log.topic_partition.topic for log in self.opened()}

    def producer_count(self, now_ms: int) -> int:
        """The number of producers of current logs."""
        return (sum(logs.producer_count(now_ms) for logs in self.unopened())
                + sum(log.producer_id_count for log in self.opened_current().values()))

    def opened_of_topic(self, topic: str) -> list[UnifiedLog]:
        """Current and future logs of a topic that are objects."""
        return [log for log in self.opened() if log.topic_partition.topic == topic]

    # ---- changing -----------------------------------------------------------------------------

    def remove(self, key: TopicPartition, is_future: bool = False) -> UnifiedLog | None:
        """Takes a current or future log out of service."""
        if not is_future:
            self.get(key)
        with self.lock:
            return (self.future if is_future else self._current).pop(key, None)

    def promote(self, log: UnifiedLog) -> None:
        """Makes a future log the current one."""
        with self.lock:
            self.future.pop(log.topic_partition, None)
            self._current[log.topic_partition] = log

    def take_to_be_deleted(self, before_ms: int) -> DeletedLog | None:
        """Removes and returns the log that has waited longest, if it was queued at or before
        `before_ms`."""
        with self.lock:
            if self.to_be_deleted and self.to_be_deleted[0].queued_ms <= before_ms:
                return self.to_be_deleted.popleft()
            return None

    def next_to_be_deleted_ms(self) -> int | None:
        """When the log was queued that has waited longest."""
        with self.lock:
            return self.to_be_deleted[0].queued_ms if self.to_be_deleted else None

    def remove_dir(self, log_dir: str) -> RemovedLogs:
        """Removes the logs of a failed directory."""
        def removed(logs: dict[TopicPartition, UnifiedLog]) -> list[UnifiedLog]:
            gone = [log for log in logs.values() if dir_of(log) == log_dir]
            for log in gone:
                del logs[log.topic_partition]
            return gone

        with self.lock:
            unopened = [key for logs in self.unopened(log_dir) for key in logs if logs.take(key)]
            deleted = [one for one in self.to_be_deleted if dir_of(one.log) == log_dir]
            for one in deleted:
                self.to_be_deleted.remove(one)
            return RemovedLogs(removed(self._current), removed(self.future),
                               [*removed(self.stray), *(one.log for one in deleted)], unopened)
