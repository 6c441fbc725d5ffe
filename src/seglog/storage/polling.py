"""Follows a log that another process writes, by listing its directory repeatedly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from seglog._native.columns import RecordColumns
from seglog.closed_by_with import ClosedByWith
from seglog.errors import OffsetOutOfRangeError
from seglog.storage.isolation import Isolation
from seglog.storage.record_rows import Record, one_by_one
from seglog.storage.stream import RecordBatchStream

__all__ = ["PollingFollower"]

#: How long a follower waits before it lists a quiet directory again.
POLL_SECONDS: Final = 0.05


class Polled(Protocol):
    """A PartitionLog that belongs to one follower."""

    def end_offset(self, isolation: Isolation) -> int:
        """See PartitionLog."""

    def refresh(self) -> None:
        """See PartitionLog."""

    def close(self) -> None:
        """See PartitionLog."""


class PollingFollower(ClosedByWith, Iterator[RecordColumns]):
    """Yields record columns as another process appends them. For one thread; any may `close` it.

    Raises KafkaStorageError if a segment is removed while it is read.
    """

    def __init__(self, log: Polled, start_offset: int, stop_offset: int | None,
                 isolation: Isolation, timeout: float | None,
                 read: Callable[[int, int | None], RecordBatchStream]) -> None:
        """Created by `PartitionLog.follow`. `read` streams the records of a range of offsets."""
        self._log, self._isolation, self._read = log, isolation, read
        self._next, self._stop, self._timeout = start_offset, stop_offset, timeout
        self._closed = threading.Event()
        self._columns = self._follow()

    def __next__(self) -> RecordColumns:
        return next(self._columns)

    def _follow(self) -> Iterator[RecordColumns]:
        news = time.monotonic()
        while not self._closed.is_set():
            end = self._log.end_offset(self._isolation)
            if end < self._next:
                raise OffsetOutOfRangeError(f"the log was truncated to offset {end}, and was read "
                                            f"up to {self._next} before")
            is_last = self._stop is not None and self._stop <= end
            for columns in self._read(self._next, self._stop if is_last else None):
                yield columns
                news = time.monotonic()
                if self._closed.is_set():
                    return
            self._next = end
            left = POLL_SECONDS
            if self._timeout is not None:
                left = min(left, news + self._timeout - time.monotonic())
            if is_last or left <= 0:
                return
            self._closed.wait(left)
            self._log.refresh()

    def records(self) -> Iterator[Record]:
        """Yields the same records one by one."""
        return one_by_one(self)

    def close(self) -> None:
        """Ends the iteration, also one that is waiting."""
        self._closed.set()
        self._log.close()
