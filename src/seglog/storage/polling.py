"""Follows a log that another process writes, by listing its directory repeatedly."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, Protocol

from seglog._native.columns import RecordColumns
from seglog.errors import (
    InconsistentTopicIdError, KafkaStorageError, MalformedCheckpointError, OffsetOutOfRangeError,
    SeglogError,
)
from seglog.objects.urls import is_url
from seglog.storage.isolation import Isolation
from seglog.storage.log_store import Files, costs_requests
from seglog.storage.paths import PARTITION_METADATA
from seglog.storage.record_rows import ColumnFollower
from seglog.storage.segments import Segments
from seglog.storage.stream import RecordBatchStream

__all__ = ["PollingFollower", "Pauses", "TopicWatch"]

#: How long a follower waits before it lists a quiet directory again.
POLL_SECONDS: Final = 0.05
#: The longest wait for a store, in which each list costs money, and for a disk with a tier in one.
STORE_POLL_SECONDS: Final = 5.0
TIERED_POLL_SECONDS: Final = 1.0


class Identified(Protocol):
    """A PartitionLog whose topic may be created again."""

    @property
    def path(self) -> str:
        """See PartitionLog."""

    @property
    def where(self) -> Files:
        """See PartitionLog."""

    @property
    def segments(self) -> Segments:
        """See PartitionLog."""

    @property
    def topic_id(self) -> str | None:
        """See PartitionLog."""


class Polled(Identified, Protocol):
    """A PartitionLog that belongs to one follower."""

    def end_offset(self, isolation: Isolation) -> int:
        """See PartitionLog."""

    def refresh(self) -> None:
        """See PartitionLog."""

    def close(self) -> None:
        """See PartitionLog."""


class Pauses:
    """The seconds to wait before the next look at logs: each time the same for local files, and
    twice as long if a store has to be asked and there was nothing new."""

    def __init__(self, first: float, logs: Iterable[Identified]) -> None:
        self._first, self._next = first, first
        self._most = max([first, *(
            STORE_POLL_SECONDS if is_url(log.path) else TIERED_POLL_SECONDS
            for log in logs if costs_requests(log.where))])

    def next(self) -> float:
        """The next pause."""
        pause, self._next = self._next, min(2 * self._next, self._most)
        return pause

    def reset(self) -> None:
        """Begins again, because there was something new."""
        self._next = self._first


class TopicWatch:
    """Notices that a topic was deleted and created again: its log may be longer than the old one.
    `partition.metadata` is read when it was replaced; without it nothing is noticed."""

    def __init__(self) -> None:
        self._state: Hashable | None = None
        self._topic_id: str | None = None

    def check(self, log: Identified) -> None:
        """Raises InconsistentTopicIdError if the log has another topic id than at an earlier
        check."""
        path = os.path.join(log.path, PARTITION_METADATA)
        # A request for an object would cost as much as the listing, which has its version.
        state = log.segments.listed_version(path) if is_url(path) else log.where.state(path)
        if state is None or state == self._state:
            return
        try:
            topic_id = log.topic_id
        except (KafkaStorageError, MalformedCheckpointError):
            topic_id = None  # a broker would not start with it, but the records can be read
        if topic_id is not None and self._topic_id not in (None, topic_id):
            raise InconsistentTopicIdError(
                f"{log.path} is the log of another topic: its topic id is {topic_id}, and was "
                f"{self._topic_id} before. The topic was deleted and created again.")
        self._state, self._topic_id = state, topic_id or self._topic_id


class PollingFollower(ColumnFollower):
    """Yields record columns as another process appends them. For one thread; any may `close` it.

    Raises KafkaStorageError if a segment is removed while it is read, and InconsistentTopicIdError
    once the directory is that of a topic that was created again.
    """

    def __init__(self, log: Polled, start_offset: int, stop_offset: int | None,
                 isolation: Isolation, timeout: float | None, topic: TopicWatch,
                 read: Callable[[int, int | None], RecordBatchStream]) -> None:
        """Created by `PartitionLog.follow`. `read` streams the records of a range of offsets;
        `topic` knows the topic from before the first listing."""
        self._log, self._isolation, self._topic, self._read = log, isolation, topic, read
        self._next, self._stop, self._timeout = start_offset, stop_offset, timeout
        self._closed, self._is_at_stop = threading.Event(), False
        self._pauses = Pauses(POLL_SECONDS, [log])
        self._failure: SeglogError | None = None
        self._columns = self._follow(is_listed=True)

    def __next__(self) -> RecordColumns:
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._columns)
        except StopIteration:
            # After a timeout the next call waits again.
            self._columns = self._follow(is_listed=False)
            raise
        except SeglogError as error:
            self._failure = error
            raise
        except BaseException:
            # After Ctrl-C, or what a signal's handler raised, the next call continues.
            self._columns = self._follow(is_listed=False)
            raise

    def _follow(self, *, is_listed: bool) -> Iterator[RecordColumns]:
        news = time.monotonic()
        while not (self._closed.is_set() or self._is_at_stop):
            if not is_listed:
                self._log.refresh()
            is_listed = False
            self._topic.check(self._log)
            end = self._log.end_offset(self._isolation)
            if end < self._next:
                self._check_cut()
                end = self._next  # the follower began after the last stable offset
            is_last = self._stop is not None and self._stop <= end
            for columns in self._read(self._next, self._stop if is_last else None):
                yield columns
                self._next = columns.last_offset + 1
                news = time.monotonic()
                self._pauses.reset()
                if self._closed.is_set():
                    return
            self._next, self._is_at_stop = end, is_last
            left = self._pauses.next()
            if self._timeout is not None:
                left = min(left, news + self._timeout - time.monotonic())
            if is_last or left <= 0:
                return
            self._closed.wait(left)

    def _check_cut(self) -> None:
        end = self._log.end_offset("log_end")
        if end < self._next:
            raise OffsetOutOfRangeError(f"the log was truncated to offset {end}, and was read "
                                        f"up to {self._next} before")

    def close(self) -> None:
        """Ends the iteration, also one that is waiting."""
        self._closed.set()
        self._log.close()
