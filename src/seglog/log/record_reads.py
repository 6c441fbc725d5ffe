"""The verbs of LogReader that read records of a writable log: streams of the existing ones, and
followers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from seglog._native.columns import DEFAULT_COLUMNS, RecordColumns
from seglog.arguments import count, int32, int64, names, seconds
from seglog.arguments import threads as at_once
from seglog.forks import ProcessBound, ending
from seglog.log.executor_calls import ExecutorCalls
from seglog.log.following import AsyncRangeTail, RangeTail
from seglog.log.readable_log import ReadableLog
from seglog.storage.isolation import Isolation, check_isolation
from seglog.storage.log_reader import BATCH_BYTES, BATCH_ROWS
from seglog.storage.ranges import LogRange
from seglog.storage.record_rows import ColumnFollower, Record, one_by_one
from seglog.storage.stream import DecodeOptions, Plan, RecordBatchStream

__all__ = ["AsyncFollower", "Follower", "RecordReads"]


class Follower(ProcessBound, ColumnFollower):
    """Record columns as they are appended. For one thread; any may `close` it."""

    _has_lock = True

    def __init__(self, tail: RangeTail, options: DecodeOptions) -> None:
        """Created by `UnifiedLog.follow`."""
        self._tail, self._stream = tail, RecordBatchStream(lambda: _plan_of(tail), options)
        self._next_offset = tail.next_offset

    def __next__(self) -> RecordColumns:
        try:
            found = next(self._stream)
        except StopIteration:
            iter(self._stream)  # after a timeout the next call waits again
            raise
        except BaseException:
            # Ctrl-C, or what a signal's handler raises, may come in the middle of a range: the next
            # call continues there. An error of the log comes again.
            self._tail.return_again(self._next_offset)
            iter(self._stream)
            raise
        self._next_offset = found.last_offset + 1
        return found

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


class RecordReads:
    """The verbs of LogReader that read records: of a log, and of one inside a program."""

    if TYPE_CHECKING:
        def _reads_as(self, isolation: Isolation) -> tuple[ReadableLog, Isolation]:
            """The log, and what it calls this isolation."""

    def to_arrow(self, start_offset: int | None = None, end_offset: int | None = None,
                 columns: Sequence[str] | None = None, isolation: Isolation = "read_uncommitted",
                 *, threads: int = 0, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES,
                 include_control: bool = False, check_crcs: bool = True) -> RecordBatchStream:
        """See LogReader. `threads` decode different segments. Iterate the stream for
        `RecordColumns` (`to_pylists()`), or pass it to pyarrow, polars, duckdb. A stream over a log
        that is closed meanwhile raises KafkaStorageError if it can no longer read the rest."""
        log, isolation = self._reads_as(isolation)
        log.check_open()
        stop = log.upper_bound(isolation).message_offset
        start = (log.log_start_offset if start_offset is None
                 else int64("start_offset", start_offset))
        end = stop if end_offset is None else min(stop, int64("end_offset", end_offset))
        options = DecodeOptions(
            DEFAULT_COLUMNS if columns is None else names("columns", columns),
            int32("batch_rows", batch_rows, 1), count("batch_bytes", batch_bytes), check_crcs,
            include_control)
        threads = at_once("threads", threads)

        def plan() -> Plan:
            return _plan_of(RangeTail(log, start, isolation=isolation, timeout=0.0, stop_offset=end,
                                      ranges_kept=threads + 2, ends_with_log=False))

        plan()  # raises errors now, not at the first read
        return RecordBatchStream(plan, options, threads=threads,
                                 about=f"{log.topic_partition} [{start}, {end}), {isolation}")

    def records(self, start_offset: int | None = None, end_offset: int | None = None, *,
                isolation: Isolation = "read_uncommitted") -> Iterator[Record]:
        """Yields the records of `to_arrow` one by one."""
        return one_by_one(self.to_arrow(start_offset, end_offset, isolation=isolation))

    def follow(self, start_offset: int | None = None, *, end_offset: int | None = None,
               isolation: Isolation = "read_uncommitted", timeout: float | None = None,
               columns: Sequence[str] | None = None, include_control: bool = False) -> Follower:
        """See LogReader. Any number of followers may run at once."""
        tail = RangeTail(**self._following(start_offset, end_offset, isolation, timeout))
        return Follower(tail, _options(columns, include_control))

    def follow_async(self, start_offset: int | None = None, *, end_offset: int | None = None,
                     isolation: Isolation = "read_uncommitted", timeout: float | None = None,
                     columns: Sequence[str] | None = None, include_control: bool = False
                     ) -> AsyncFollower:
        """`follow` for `async for`."""
        tail = AsyncRangeTail(**self._following(start_offset, end_offset, isolation, timeout))
        return AsyncFollower(tail, _options(columns, include_control))

    def _following(self, start_offset: int | None, end_offset: int | None, isolation: Isolation,
                   timeout: float | None) -> dict[str, Any]:
        """The arguments of a tail."""
        log, isolation = self._reads_as(isolation)
        log.check_open()
        check_isolation(isolation)
        return {"log": log, "start_offset": log.log_end_offset if start_offset is None
                else int64("start_offset", start_offset), "isolation": isolation,
                "stop_offset": None if end_offset is None else int64("end_offset", end_offset),
                "timeout": seconds("timeout", timeout)}


def _options(columns: Sequence[str] | None, include_control: bool) -> DecodeOptions:
    return DecodeOptions(DEFAULT_COLUMNS if columns is None else names("columns", columns),
                         include_control=include_control)
