"""Following a log while it grows: a blocking and an asynchronous iterator.

A reader that keeps up costs the writer next to nothing: it comes back on its own after `linger`,
takes all that was appended meanwhile in one read without the GIL, and asks to be woken only when
there was nothing. The writer then checks one empty queue for each append.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from seglog.errors import KafkaStorageError, OffsetOutOfRangeError, SeglogError
from seglog.forks import ProcessBound, ending
from seglog.log.follower_queue import Followers
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.log.read import FetchDataInfo
from seglog.log.readers import LogReaders, OpenSegment, SegmentRetired
from seglog.model import AbortedTxn, TopicPartition
from seglog.storage.isolation import Isolation
from seglog.storage.ranges import LogRange

__all__ = ["LINGER_SECONDS", "MAX_BYTES", "AsyncRangeTail", "AsyncSpanTail", "FollowedLog",
           "RangeTail", "SpanTail", "TailSpan"]

#: What one step hands over at most, unless a single batch is larger.
MAX_BYTES: Final = 4 * 1024 * 1024
#: How long after a span a reader leaves the log alone. Under load it is what an append waits for
#: at most before it is delivered; in a quiet log an append is delivered at once.
LINGER_SECONDS: Final = 0.01
_INT64_MAX: Final = 2**63 - 1


class FollowedLog(Protocol):
    """What following asks of a log: a UnifiedLog has it."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""

    @property
    def lock(self) -> threading.RLock:
        """Held by a thread that changes the log."""

    @property
    def readers(self) -> LogReaders:
        """The files that readers have open."""

    @property
    def followers(self) -> Followers:
        """The readers that wait for news."""

    @property
    def is_closed(self) -> bool:
        """Whether there will be nothing new."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def high_watermark(self) -> int:
        """Below it records are replicated."""

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open."""

    def read(self, start_offset: int, max_length: int, isolation: Isolation = ...,
             min_one_message: bool = ...) -> FetchDataInfo:
        """See UnifiedLog."""

    def upper_bound(self, isolation: Isolation) -> LogOffsetMetadata:
        """See UnifiedLog."""

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int
                                     ) -> list[AbortedTxn]:
        """See UnifiedLog."""


@dataclass(frozen=True, slots=True)
class TailSpan:
    """Whole batches, byte for byte, that follow those handed over before.

    `start_offset` is the first offset that the reader has not seen; the first batch may begin
    below it. `next_offset` is where the next span begins. `aborted_transactions` are those that
    concern these records (read committed; else None).
    """

    start_offset: int
    next_offset: int
    records: bytes
    aborted_transactions: list[AbortedTxn] | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes `[start, stop)` of a segment that were not handed over yet; whole batches, and the
    offset after them."""

    segment: OpenSegment
    start: int
    stop: int
    next_offset: int


_Item = TypeVar("_Item")


class _Tail(ProcessBound, Generic[_Item]):
    """What all of them share: where the reader is, and whether there is more."""

    def __init__(self, log: FollowedLog, start_offset: int, *,
                 isolation: Isolation = "log_end",
                 stop_offset: int | None = None, timeout: float | None = None,
                 max_bytes: int = MAX_BYTES, linger: float = LINGER_SECONDS) -> None:
        if max_bytes < 1:
            raise ValueError(f"spans of {max_bytes} bytes")
        self._log, self._isolation, self._max_bytes = log, isolation, max_bytes
        self._stop_offset = _INT64_MAX if stop_offset is None else stop_offset
        self._timeout, self._linger = timeout, linger
        self._closed = False
        self._delivered = 0.0  # when something was, by the monotonic clock
        self._wake: Callable[[], object] | None = None
        #: The first offset that was not handed over.
        self.next_offset = start_offset
        self._generation = log.readers.generation
        self._base, self._position = -1, -1  # of the next batch; unknown
        if not log.log_start_offset <= start_offset <= log.log_end_offset:
            log.read(start_offset, 0, "log_end", False)  # raises, in Kafka's words

    def _take(self, place: _Place) -> tuple[_Item, int, int]:
        """What there is to hand over, the offset behind it, and how many bytes of the place it
        is."""
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
        """The next of what there is, None if that is nothing now."""
        log = self._log
        while not self._is_over() and self._has_news():
            generation = log.readers.generation
            if generation & 1:
                with log.lock:  # files are being changed: until that is done
                    continue
            if generation != self._generation:
                self._check_cut()
                self._generation, self._position = generation, -1
                continue
            try:
                place = self._next_place()
                taken = None if place is None else self._take(place)
            except SegmentRetired:
                self._position = -1  # retention took it: what is read next says what that means
                continue
            except SeglogError as error:
                if log.is_closed and isinstance(error, KafkaStorageError):
                    self._closed = True  # what was not read before can be read no more
                    return None
                if generation == log.readers.generation:
                    raise
                continue
            if generation != log.readers.generation:
                continue
            self._delivered = time.monotonic()
            if taken is None:
                return None  # a watermark that is not what it seemed
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
            # Asked again each time: a truncation may remove the segment in which the bound was.
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
                continue  # it was the last one a moment ago
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
        if self.next_offset < self._log.log_start_offset:
            raise SegmentRetired(self._base)  # and with it what was known of its transactions
        return found

    # ---- its end

    def _is_over(self) -> bool:
        return self._closed or self.next_offset >= self._stop_offset

    def _ends_here(self) -> bool:
        """With nothing to read: whether nothing can come any more."""
        return self._is_over() or (self._log.is_closed and not self._has_news())

    def _rest(self, now: float) -> float:
        """Seconds that the reader leaves the log alone."""
        return self._delivered + self._linger - now

    @ending
    def close(self) -> None:
        """Ends the iteration, also of a thread or task that is waiting. From any thread."""
        self._closed = True
        wake = self._wake
        if wake is not None:
            wake()


class _Blocking(_Tail[_Item], Iterator[_Item]):
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
            with contextlib.suppress(RuntimeError):  # another thread did
                woken.release()

        followers = self._log.followers
        self._wake = wake
        followers.waiting.append(wake)
        # What came before the queue knew of us is seen here, what comes now wakes us.
        if not self._has_news() and not self._closed and not self._log.is_closed:
            followers.clear()
            woken.acquire(timeout=-1 if left is None else left)
        self._wake = None
        followers.forget(wake)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()


class _Asynchronous(_Tail[_Item], AsyncIterator[_Item]):
    async def __anext__(self) -> _Item:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            if self._has_news() and not self._is_over():
                span = await loop.run_in_executor(None, self._poll)
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

        followers = self._log.followers
        self._wake = wake
        followers.waiting.append(wake)
        try:
            if not self._has_news() and not self._closed and not self._log.is_closed:
                followers.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left)
        finally:
            self._wake = None
            followers.forget(wake)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        self.close()


class _Spans(_Tail[TailSpan]):
    def _take(self, place: _Place) -> tuple[TailSpan, int, int]:
        # Spans end at multiples of their size in the file, as far as batches do: readers that were
        # apart are at the same places again, and share what is read.
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
    """`ranges_kept`: how many of the ranges handed over last still have their file open."""

    def __init__(self, log: FollowedLog, start_offset: int, *, ranges_kept: int = 1,
                 **options: Any) -> None:
        super().__init__(log, start_offset, **options)
        self._ranges_kept = ranges_kept
        self._segments: OrderedDict[str, OpenSegment] = OrderedDict()

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[OpenSegment]:
        """The log file of a range that was handed over lately, whatever became of its name."""
        yield self._segments[path]

    def check_unchanged(self) -> None:
        """OffsetOutOfRangeError if a truncation took some of the ranges handed over: what was read
        of them may be other records by now."""
        self._check_cut()

    def _take(self, place: _Place) -> tuple[LogRange, int, int]:
        segments, path = self._segments, place.segment.reader.path
        segments[path] = place.segment
        segments.move_to_end(path)
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
    """Bytes of a log as they are appended; blocks until there is more. For one thread; any may
    `close` it.

    It ends when it is closed, at `stop_offset`, when the log is closed, or after `timeout` seconds
    without news. `max_bytes` bounds a span, unless a single batch is larger; `linger` (seconds) is
    how long the reader leaves the log alone after a span. Raises OffsetOutOfRangeError where
    retention or a truncation took what it was to read next, and what `read` raises.
    """


class AsyncSpanTail(_Spans, _Asynchronous[TailSpan]):
    """The same for `async for`. Bytes are read in a thread of the loop's executor, so that a slow
    disk does not hold up the loop. For one task; any thread may `close` it."""


class RangeTail(_Ranges, _Blocking[LogRange]):
    """Like SpanTail, with ranges of bytes for a decoder in the place of bytes."""


class AsyncRangeTail(_Ranges, _Asynchronous[LogRange]):
    """Like AsyncSpanTail, with ranges of bytes for a decoder in the place of bytes."""
