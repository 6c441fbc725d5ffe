"""The logs that a manager holds, by partition and by what their directories are."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from seglog.errors import DuplicatePartitionError
from seglog.model import TopicPartition
from seglog.recovery.loaded import LoadedLog
from seglog.storage.paths import DirectoryKind

__all__ = ["DeletedLog", "LogTable", "dir_of"]


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """A log in a `-delete` directory, and when it was queued (ms since 1970)."""

    log: LoadedLog
    queued_ms: int


def dir_of(log: LoadedLog) -> str:
    """The data directory that holds a log."""
    return os.path.dirname(log.path)


class LogTable:
    """Current, future, stray and deleted logs. Safe from any thread."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self.current: dict[TopicPartition, LoadedLog] = {}
        self.future: dict[TopicPartition, LoadedLog] = {}
        self.stray: dict[TopicPartition, LoadedLog] = {}
        self.to_be_deleted: list[DeletedLog] = []
        self.lock = threading.RLock()
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    def add(self, log: LoadedLog, kind: DirectoryKind) -> None:
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

    def get(self, key: TopicPartition, is_future: bool = False) -> LoadedLog | None:
        """The current log of a partition, or its future one."""
        with self.lock:
            return (self.future if is_future else self.current).get(key)

    def served(self) -> list[LoadedLog]:
        """Current and future logs."""
        with self.lock:
            return [*self.current.values(), *self.future.values()]

    def served_in(self, log_dir: str) -> list[LoadedLog]:
        """Those of one data directory."""
        return [log for log in self.served() if dir_of(log) == log_dir]

    def remove_dir(self, log_dir: str) -> tuple[list[LoadedLog], list[LoadedLog]]:
        """Takes out the logs of a failed directory: (current, future)."""
        with self.lock:
            gone = tuple([log for log in logs.values() if dir_of(log) == log_dir]
                         for logs in (self.current, self.future))
            for logs, removed in zip((self.current, self.future), gone, strict=True):
                for log in removed:
                    del logs[log.topic_partition]
            self.stray = {key: log for key, log in self.stray.items()
                          if dir_of(log) != log_dir}
            self.to_be_deleted = [one for one in self.to_be_deleted
                                  if dir_of(one.log) != log_dir]
            return gone[0], gone[1]
