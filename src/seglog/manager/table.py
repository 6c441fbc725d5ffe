"""The logs that a manager holds, by partition and by what their directories are."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from seglog.errors import DuplicatePartitionError
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.storage.paths import DirectoryKind

__all__ = ["DeletedLog", "LogTable", "dir_of"]


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """A log in a `-delete` directory, and when it was queued (ms since 1970)."""

    log: UnifiedLog
    queued_ms: int


def dir_of(log: UnifiedLog) -> str:
    """The data directory that holds a log."""
    return os.path.dirname(log.path)


class LogTable:
    """Current, future, stray and deleted logs. Safe from any thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.current: dict[TopicPartition, UnifiedLog] = {}
        self.future: dict[TopicPartition, UnifiedLog] = {}
        self.stray: dict[TopicPartition, UnifiedLog] = {}
        self.to_be_deleted: deque[DeletedLog] = deque()
        self.lock = threading.RLock()
        self._now_ms = now_ms

    def add(self, log: UnifiedLog, kind: DirectoryKind) -> None:
        """Files a loaded log. DuplicatePartitionError with Kafka's text."""
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
                previous = self.current.setdefault(key, log)
                if previous is not log:
                    raise DuplicatePartitionError(
                        f"Duplicate log directories for {key} are found in both {log.path} and "
                        f"{previous.path}. It is likely because log directory failure happened "
                        "while broker was replacing current replica with future replica. Recover "
                        "broker from this failure by manually deleting one of the two directories "
                        "for this partition. It is recommended to delete the partition in the log "
                        "directory that is known to have failed recently.")

    def get(self, key: TopicPartition, is_future: bool = False) -> UnifiedLog | None:
        """The current log of a partition, or its future one."""
        with self.lock:
            return (self.future if is_future else self.current).get(key)

    def served(self) -> list[UnifiedLog]:
        """Current and future logs."""
        with self.lock:
            return [*self.current.values(), *self.future.values()]

    def served_in(self, log_dir: str) -> list[UnifiedLog]:
        """Those of one data directory."""
        return [log for log in self.served() if dir_of(log) == log_dir]

    def by_dir(self) -> dict[str, list[UnifiedLog]]:
        """Current and future logs by data directory."""
        found: dict[str, list[UnifiedLog]] = {}
        for log in self.served():
            found.setdefault(dir_of(log), []).append(log)
        return found

    def of_topic(self, topic: str) -> list[UnifiedLog]:
        """Current and future logs of a topic."""
        return [log for log in self.served() if log.topic_partition.topic == topic]

    def remove(self, key: TopicPartition, is_future: bool = False) -> UnifiedLog | None:
        """Takes a current or future log out of service."""
        with self.lock:
            return (self.future if is_future else self.current).pop(key, None)

    def promote(self, log: UnifiedLog) -> None:
        """A future log is the current one from here on."""
        with self.lock:
            self.future.pop(log.topic_partition, None)
            self.current[log.topic_partition] = log

    def take_to_be_deleted(self, before_ms: int) -> DeletedLog | None:
        """Takes out the log that has waited longest, if it was queued at `before_ms` or before."""
        with self.lock:
            if self.to_be_deleted and self.to_be_deleted[0].queued_ms <= before_ms:
                return self.to_be_deleted.popleft()
            return None

    def next_to_be_deleted_ms(self) -> int | None:
        """When the log was queued that has waited longest."""
        with self.lock:
            return self.to_be_deleted[0].queued_ms if self.to_be_deleted else None

    def remove_dir(self, log_dir: str) -> tuple[list[UnifiedLog], list[UnifiedLog],
                                               list[UnifiedLog]]:
        """Takes out the logs of a failed directory: (current, future, stray and deleted)."""
        def removed(logs: dict[TopicPartition, UnifiedLog]) -> list[UnifiedLog]:
            gone = [log for log in logs.values() if dir_of(log) == log_dir]
            for log in gone:
                del logs[log.topic_partition]
            return gone

        with self.lock:
            deleted = [one for one in self.to_be_deleted if dir_of(one.log) == log_dir]
            for one in deleted:
                self.to_be_deleted.remove(one)
            return (removed(self.current), removed(self.future),
                    [*removed(self.stray), *(one.log for one in deleted)])
