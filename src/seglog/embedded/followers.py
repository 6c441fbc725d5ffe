"""Records of an embedded log as they are read: one by one, and as they are appended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from seglog._native.columns import RecordColumns
from seglog.forks import ProcessBound, ending
from seglog.log.following import AsyncRangeTail, RangeTail
from seglog.storage.ranges import LogRange
from seglog.storage.stream import DecodeOptions, Plan, RecordBatchStream

__all__ = ["AsyncFollower", "Follower", "Record", "one_by_one", "plan_of"]


class Record(NamedTuple):
    """A record that was read. `timestamp` is ms since 1970, -1 for none; headers are pairs."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Follower(ProcessBound, Iterator[RecordColumns]):
    """Record columns as they are appended. For one thread; any may `close` it."""

    def __init__(self, tail: RangeTail, options: DecodeOptions) -> None:
        """By `EmbeddedLog.follow`."""
        self._tail, self._stream = tail, RecordBatchStream(lambda: plan_of(tail), options)

    def __next__(self) -> RecordColumns:
        return next(self._stream)

    def records(self) -> Iterator[Record]:
        """The same record by record."""
        return one_by_one(self)

    @ending
    def close(self) -> None:
        """Ends the iteration, also one that is waiting."""
        self._tail.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()


class AsyncFollower(ProcessBound, AsyncIterator[RecordColumns]):
    """The same for `async for`. Records are decoded in a thread of the loop's executor."""

    def __init__(self, tail: AsyncRangeTail, options: DecodeOptions) -> None:
        """By `EmbeddedLog.follow_async`."""
        self._tail, self._options = tail, options
        self._stream: RecordBatchStream | None = None

    async def __anext__(self) -> RecordColumns:
        while True:
            if self._stream is None:
                planned = await anext(self._tail)
                self._stream = RecordBatchStream(partial(plan_of, self._tail, iter((planned,))),
                                                 self._options)
            found = await asyncio.get_running_loop().run_in_executor(
                None, next, self._stream, None)
            if found is not None:
                return found
            self._stream = None

    @ending
    def close(self) -> None:
        """Ends the iteration, also one that is waiting."""
        self._tail.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        self.close()


def plan_of(tail: RangeTail | AsyncRangeTail, ranges: Iterator[LogRange] | None = None) -> Plan:
    """Ranges of a tail, by default all, in the files that it has open."""
    if ranges is None:
        assert isinstance(tail, RangeTail)
        ranges = tail
    return Plan(ranges, tail.opened, tail.check_unchanged)


def one_by_one(batches: Iterable[RecordColumns]) -> Iterator[Record]:
    """The rows of columns that have those of a Record."""
    for batch in batches:
        lists = batch.to_pylists()
        yield from map(Record, lists["offset"], lists["timestamp"], lists["key"], lists["value"],
                       map(tuple, lists["headers"]))
