"""Records of a writable log: a stream of the existing ones, and followers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from seglog._native.columns import RecordColumns
from seglog.forks import ProcessBound, ending
from seglog.log.executor_calls import ExecutorCalls
from seglog.log.following import AsyncRangeTail, RangeTail
from seglog.storage.isolation import Isolation
from seglog.storage.ranges import LogRange
from seglog.storage.record_rows import ColumnFollower, Record, one_by_one
from seglog.storage.stream import DecodeOptions, Plan, RecordBatchStream

if TYPE_CHECKING:
    from seglog.log.readable_log import ReadableLog

__all__ = ["AsyncFollower", "Follower", "stream_of"]


class Follower(ProcessBound, ColumnFollower):
    """Record columns as they are appended. For one thread; any may `close` it."""

    _has_lock = True

    def __init__(self, tail: RangeTail, options: DecodeOptions) -> None:
        """Created by `UnifiedLog.follow`."""
        self._tail, self._stream = tail, RecordBatchStream(lambda: _plan_of(tail), options)

    def __next__(self) -> RecordColumns:
        try:
            return next(self._stream)
        except StopIteration:
            iter(self._stream)  # after a timeout the next call waits again
            raise

    @ending
    def close(self) -> None:
        """Ends the iteration, also one that is waiting."""
        self._tail.close()


class AsyncFollower(ProcessBound, AsyncIterator[RecordColumns]):
    """The same for `async for`. Records are decoded in a thread of the loop's executor.

    For one task. If that is cancelled while it waits (`asyncio.wait_for`), the next wait returns
    what it would have got.
    """

    _has_lock = True

    def __init__(self, tail: AsyncRangeTail, options: DecodeOptions) -> None:
        """Created by `UnifiedLog.follow_async`."""
        self._tail, self._options = tail, options
        self._stream: RecordBatchStream | None = None
        self._decoded = ExecutorCalls[RecordColumns | None]()
        self._rest = _Rest()

    async def __anext__(self) -> RecordColumns:
        while True:
            if self._stream is None:
                planned = await anext(self._tail)
                self._stream = RecordBatchStream(partial(_plan_of, self._tail, iter((planned,))),
                                                 self._options)
            found = await self._decoded.take(partial(next, self._stream, None))
            if found is not None:
                return found
            self._stream = None

    def records(self) -> AsyncIterator[Record]:
        """See Follower."""
        return _AsyncRecords(self, self._rest)

    @ending
    def close(self) -> None:
        """Ends the iteration, also one that is waiting."""
        self._tail.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        self.close()


class _Rest:
    """The records of a batch that no loop has taken yet."""

    records: Iterator[Record] = iter(())


class _AsyncRecords(AsyncIterator[Record]):
    """No generator, which a cancelled wait would end."""

    def __init__(self, follower: AsyncFollower, rest: _Rest) -> None:
        self._follower, self._rest = follower, rest

    async def __anext__(self) -> Record:
        while (record := next(self._rest.records, None)) is None:
            self._rest.records = one_by_one((await anext(self._follower),))
        return record


def _plan_of(tail: RangeTail | AsyncRangeTail, ranges: Iterator[LogRange] | None = None) -> Plan:
    """The ranges of a tail, by default all, in the files that it has open."""
    if ranges is None:
        assert isinstance(tail, RangeTail)
        ranges = tail
    return Plan(ranges, tail.opened, tail.check_unchanged)


def stream_of(log: ReadableLog, start_offset: int, end_offset: int, isolation: Isolation,
              options: DecodeOptions, threads: int) -> RecordBatchStream:
    """The records of `[start_offset, end_offset)`. Raises OffsetOutOfRangeError for a start outside
    of the log. A stream over a log that is closed meanwhile raises KafkaStorageError if it can no
    longer read the rest."""
    def plan() -> Plan:
        return _plan_of(RangeTail(log, start_offset, isolation=isolation, timeout=0.0,
                                  stop_offset=end_offset, ranges_kept=threads + 2,
                                  ends_with_log=False))

    plan()  # raises errors now, not at the first read
    return RecordBatchStream(
        plan, options, threads=threads,
        about=f"{log.topic_partition} [{start_offset}, {end_offset}), {isolation}")
