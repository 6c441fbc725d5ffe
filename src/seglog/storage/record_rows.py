"""Records one by one, from columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from seglog._native.columns import RecordColumns

__all__ = ["Record", "one_by_one"]


class Record(NamedTuple):
    """A record as read. `timestamp` is ms since 1970, -1 for none; headers are pairs."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def one_by_one(batches: Iterable[RecordColumns]) -> Iterator[Record]:
    """The rows of columns that hold the fields of a Record."""
    for batch in batches:
        lists = batch.to_pylists()
        yield from map(Record, lists["offset"], lists["timestamp"], lists["key"], lists["value"],
                       map(tuple, lists["headers"]))
