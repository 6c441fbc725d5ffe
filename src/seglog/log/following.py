"""Follows a log while it grows: a blocking and an asynchronous iterator.

A reader that keeps up costs the writer almost nothing. It returns after `linger` without being
woken, and reads everything that was appended meanwhile in one call without the GIL. It waits to be
woken only if there was nothing. The writer then checks one empty queue for each append.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from seglog.closed_by_with import ClosedByWith
from seglog.errors import KafkaStorageError, OffsetOutOfRangeError, SeglogError
from seglog.forks import ProcessBound, ending
from seglog.log.executor_calls import ExecutorCalls
from seglog.log.readable_log import ReadableLog
from seglog.log.readers import OpenSegment, SegmentRetired
from seglog.model import AbortedTxn
from seglog.storage.isolation import Isolation
from seglog.storage.ranges import LogRange

__all__ = ["LINGER_SECONDS", "MAX_BYTES", "AsyncRangeTail", "AsyncSpanTail", "RangeTail",
           "SpanTail", "TailSpan"]

#: Upper bound of one step, unless a single batch is larger.
MAX_BYTES: Final = 4 * 1024 * 1024
#: How long a reader pauses after a span. Under load this bounds the delay of an append; in a quiet
#: log an append is delivered at once.
LINGER_SECONDS: Final = 0.01
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TailSpan:
    """Whole batches, byte for byte, that follow those returned before.

    `start_offset` is the first offset that the reader has not seen; the first batch may begin below
    it. `next_offset` is where the next span begins. `aborted_transactions` are the aborted
    transactions of these records (read_committed; else None).
    """

    start_offset: int
    next_offset: int
    records: bytes
    aborted_transactions: list[AbortedTxn] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes `[start, stop)` of a segment that were not returned yet: whole batches, and the offset
    after them."""

    segment: OpenSegment
    start: int
    stop: int
    next_offset: int


_Item = TypeVar("_Item")


class _Tail(ProcessBound, Generic[_Item]):
    """The common part of all tails: the reader's position, and whether there is more."""

    _has_lock = True

    def __init__(self, log: ReadableLog, start_offset: int, *,
                 isolation: Isolation = "log_end",
                 stop_offset: int | None = None, timeout: float | None = None,
                 max_bytes: int = MAX_BYTES, linger: float = LINGER_SECONDS,
                 ends_with_log: bool = True) -> None:
        if max_bytes < 1:
            raise ValueError(f"spans of {max_bytes} bytes")
        self._log, self._isolation, self._max_bytes = log, isolation, max_bytes
        self._stop_offset = _INT64_MAX if stop_offset is None else stop_offset
        self._timeout, self._linger, self._ends_with_log = timeout, linger, ends_with_log
        self._closed = False
        self._delivered = 0.0  # time of the last delivery, by the monotonic clock
        self._wake: Callable[[], object] | None = None
        #: The first offset that was not returned.
        self.next_offset = start_offset
        self._generation = log.readers.generation
        self._base, self._position = -1, -1  # of the next batch; unknown
        if not log.log_start_offset <= start_offset <= log.log_end_offset:
            log.read(start_offset, 0, "log_end", False)  # raises Kafka's exceptions

    def _take(self, place: _Place) -> tuple[_Item, int, int]:
        """The next item, the offset after it, and how many bytes of the place it covers."""
        raise RuntimeError("a tail is of one kind or the other")

    # ---- where it is

    def _has_news(self) -> bool:
        log = self._log
        if self._isolation == "log_end":
            end = log.log_end_offset
        elif self._isolation == "read_uncommitted":
            end = log.high_watermark
        else:
            end = log.last_stable_offset
        return self.next_offset < end or self._generation != log.readers.generation

    def _poll(self) -> _Item | None:
        """The next available item, None if there is none now."""
        log = self._log
        while not self._is_over() and self._has_news():
            generation = log.readers.generation
            if generation & 1:
                with log.lock:  # waits until a change of files is complete
                    continue
            if generation != self._generation:
                self._check_cut()
                self._generation, self._position = generation, -1
                continue
            try:
                place = self._next_place()
                taken = None if place is None else self._take(place)
            except SegmentRetired:
                self._position = -1  # retention removed it: the next read decides what that means
                continue
            except SeglogError as error:
                if (self._ends_with_log and log.is_closed
                        and isinstance(error, KafkaStorageError)):
                    self._closed = True  # unread records can no longer be read
                    return None
                if generation == log.readers.generation:
                    raise
                continue
            if generation != log.readers.generation:
                continue
            self._delivered = time.monotonic()
            if taken is None:
                return None  # the watermark was changed meanwhile
            item, next_offset, size = taken
            self._position += size
            self.next_offset = max(next_offset, self.next_offset)
            return item
        return None

    def _check_cut(self) -> None:
        cut = self._log.readers.lowest_cut_since(self._generation)
        if cut is not None and cut < self.next_offset:
            raise OffsetOutOfRangeError(
                f"{self._log.topic_partition} was truncated to offset {cut}, and was read up to "
                f"{self.next_offset} before")

    def _next_place(self) -> _Place | None:
        log, start = self._log, self.next_offset
        if start < log.log_start_offset or self._position < 0:
            found = log.read(start, 0, self._isolation, False).fetch_offset_metadata
            if found.message_offset_only:
                return None
            self._base = found.segment_base_offset
            self._position = found.relative_position_in_segment
        while True:
            # Computed again each time: a truncation may remove the segment of the old bound.
            bound = log.upper_bound(self._isolation)
            if self._base > bound.segment_base_offset:
                return None
            view = log.readers.view()
            segment = log.readers.segment(view, self._base)
            if self._base == bound.segment_base_offset:
                stop = bound.relative_position_in_segment
                return (_Place(segment, self._position, stop, bound.message_offset)
                        if self._position < stop else None)
            if segment.size is None:
                continue  # it was the last segment a moment ago
            higher = view.higher(self._base)
            if higher is None:
                return None
            if self._position < segment.size:
                return _Place(segment, self._position, segment.size, higher)
            self._base, self._position = higher, 0

    def _aborted(self, next_offset: int) -> list[AbortedTxn] | None:
        if self._isolation != "read_committed":
            return None
        found = [txn for txn in self._log.collect_aborted_transactions(self.next_offset,
                                                                       next_offset)
                 if txn.last_offset >= self.next_offset]
        # A segment that left the log took its transactions along, whether the records are below the
        # log's start now, in remote storage alone, or in another directory.
        if (self.next_offset < self._log.log_start_offset
                or self._base not in self._log.readers.view()):
            raise SegmentRetired(self._base)
        return found

    # ---- its end

    def _is_over(self) -> bool:
        return self._closed or self.next_offset >= self._stop_offset

    def _ends_here(self) -> bool:
        """Whether nothing can come any more, if there is nothing to read."""
        return self._is_over() or (self._log.is_closed and not self._has_news())

    def _rest(self, now: float) -> float:
        """Seconds until the reader reads again."""
        return self._delivered + self._linger - now

    @contextlib.contextmanager
    def _registered(self, wake: Callable[[], object]) -> Iterator[bool]:
        """Inside, the next change of the log calls `wake`. Yields whether there is one to wait for:
        no news and no end came before the registration."""
        followers = self._log.followers
        self._wake = wake
        followers.waiting.append(wake)
        try:
            must_wait = not (self._has_news() or self._closed or self._log.is_closed)
            if must_wait:
                followers.clear()
            yield must_wait
        finally:
            self._wake = None
            followers.forget(wake)

    @ending
    def close(self) -> None:
        """Ends the iteration, also in a thread or task that is waiting. From any thread."""
        self._closed = True
        wake = self._wake
        if wake is not None:
            wake()


class _Blocking(_Tail[_Item], ClosedByWith, Iterator[_Item]):
    def __next__(self) -> _Item:
        began = time.monotonic()
        while True:
            span = self._poll()
            if span is not None:
                return span
            if self._ends_here():
                raise StopIteration
            now = time.monotonic()
            left = None if self._timeout is None else began + self._timeout - now
            if left is not None and left <= 0:
                raise StopIteration
            rest = self._rest(now)
            if rest > 0:
                time.sleep(rest if left is None else min(rest, left))
            else:
                self._wait(left)

    def _wait(self, left: float | None) -> None:
        woken = _thread.allocate_lock()
        woken.acquire()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # another thread closed it
                woken.release()

        with self._registered(wake) as must_wait:
            if must_wait:
                woken.acquire(timeout=-1 if left is None else left)


class _Asynchronous(_Tail[_Item], AsyncIterator[_Item]):
    def __init__(self, log: ReadableLog, start_offset: int, **options: Any) -> None:
        super().__init__(log, start_offset, **options)
        self._polls = ExecutorCalls[_Item | None]()

    async def __anext__(self) -> _Item:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            if self._polls.is_pending or (self._has_news() and not self._is_over()):
                span = await self._polls.take(self._poll)
                if span is not None:
                    return span
            if self._ends_here():
                raise StopAsyncIteration
            left = None if self._timeout is None else began + self._timeout - loop.time()
            if left is not None and left <= 0:
                raise StopAsyncIteration
            rest = self._rest(time.monotonic())
            if rest > 0:
                await asyncio.sleep(rest if left is None else min(rest, left))
            else:
                await self._wait(loop, left)

    async def _wait(self, loop: asyncio.AbstractEventLoop, left: float | None) -> None:
        woken = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(woken.set)

        with self._registered(wake) as must_wait:
            if must_wait:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        self.close()


class _Spans(_Tail[TailSpan]):
    def _take(self, place: _Place) -> tuple[TailSpan, int, int]:
        # Spans end at multiples of their size in the file, as far as batches do: so readers at
        # different positions meet again, and share what is read.
        limit = self._max_bytes - place.start % self._max_bytes
        room = place.stop - place.start
        records, _, next_offset = self._log.followers.read_once(
            (self._generation, self._base, place.start),
            lambda: place.segment.reader.read_batches(place.start, place.stop, limit,
                                                      self._stop_offset),
            lambda found: (len(found[0]) <= min(limit, room) and found[2] <= self._stop_offset))
        span = TailSpan(self.next_offset, next_offset, records, self._aborted(next_offset))
        return span, next_offset, len(records)


class _Ranges(_Tail[LogRange]):
    """`ranges_kept`: how many of the last returned ranges still have their file open."""

    def __init__(self, log: ReadableLog, start_offset: int, *, ranges_kept: int = 1,
                 **options: Any) -> None:
        super().__init__(log, start_offset, **options)
        self._ranges_kept = ranges_kept
        #: By the offset at which the range begins: a merged segment has the name of one that it
        #: replaced, whose range may not have been decoded yet.
        self._segments: OrderedDict[int, OpenSegment] = OrderedDict()

    @contextlib.contextmanager
    def opened(self, planned: LogRange) -> Iterator[OpenSegment]:
        """The log file of a recently returned range, even if it was renamed, deleted or replaced
        meanwhile."""
        yield self._segments[planned.start_offset]

    def return_again(self, offset: int) -> None:
        """Begins the next range at `offset`, if it was in one that was returned."""
        if offset < self.next_offset:
            self.next_offset, self._position = offset, -1

    def check_unchanged(self) -> None:
        """Raises OffsetOutOfRangeError if a truncation removed some of the returned ranges: their
        bytes may be other records by now."""
        self._check_cut()

    def _take(self, place: _Place) -> tuple[LogRange, int, int]:
        segments, path = self._segments, place.segment.reader.path
        segments[self.next_offset] = place.segment
        if len(segments) > self._ranges_kept:
            segments.popitem(last=False)
        stop = None if self._stop_offset == _INT64_MAX else self._stop_offset
        aborted = self._aborted(place.next_offset) or ()
        planned = LogRange(
            path, place.segment.base_offset, place.start, place.stop, self.next_offset,
            stop, place.stop, place.stop,
            tuple((one.producer_id, one.first_offset, one.last_offset) for one in aborted))
        return planned, place.next_offset, place.stop - place.start


class SpanTail(_Spans, _Blocking[TailSpan]):
    """Bytes of a log as they are appended; blocks until there are more. For one thread; any may
    `close` it.

    Ends when it is closed, at `stop_offset`, when the log is closed, or after `timeout` seconds
    without new records. `max_bytes` bounds a span, unless a single batch is larger. `linger`
    (seconds) is the pause after a span. Raises OffsetOutOfRangeError if retention or a truncation
    removed the next records, and the exceptions of `read`.
    """


class AsyncSpanTail(_Spans, _Asynchronous[TailSpan]):
    """The same for `async for`. Bytes are read in a thread of the loop's executor, so a slow disk
    does not block the loop. For one task; any thread may `close` it. A task that is cancelled while
    it waits (`asyncio.wait_for`) misses nothing: the next wait returns what it would have got."""


class RangeTail(_Ranges, _Blocking[LogRange]):
    """Like SpanTail, but yields byte ranges for a decoder."""


class AsyncRangeTail(_Ranges, _Asynchronous[LogRange]):
    """Like AsyncSpanTail, but yields byte ranges for a decoder."""
