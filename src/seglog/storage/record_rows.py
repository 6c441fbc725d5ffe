"""Records one by one, from columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from seglog._native.columns import RecordColumns
from seglog.closed_by_with import ClosedByWith
from seglog.errors import IllegalArgumentError

__all__ = ["ColumnFollower", "Record", "one_by_one"]


class Record(NamedTuple):
    """A record as read. `timestamp` is ms since 1970, -1 for none; headers are pairs."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


_FIELDS: Final = frozenset(Record._fields)


def one_by_one(batches: Iterable[RecordColumns]) -> Iterator[Record]:
    """The rows of columns. Raises IllegalArgumentError if they lack a field of a Record."""
    for batch in batches:
        if not _FIELDS.issubset(batch.columns):
            raise IllegalArgumentError(
                f"records need the columns {', '.join(Record._fields)}, and only "
                f"{', '.join(batch.columns)} were requested: iterate over the batches instead")
        lists = batch.to_pylists()
        yield from map(Record, lists["offset"], lists["timestamp"], lists["key"], lists["value"],
                       map(tuple, lists["headers"]))


class ColumnFollower(ClosedByWith, Iterator[RecordColumns]):
    """Yields record columns as they are appended, and waits for more. For one thread; any thread
    may `close` it, which ends an iteration that is waiting."""

    #: Records of the last columns that `records` has not yielded.
    _rest: Iterator[Record] = iter(())

    def records(self) -> Iterator[Record]:
        """Yields the same records one by one. A second call continues where the first was left."""
        while True:
            while (record := next(self._rest, None)) is not None:
                yield record
            batch = next(self, None)
            if batch is None:
                return
            self._rest = one_by_one((batch,))
