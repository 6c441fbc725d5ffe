"""What of a query's filters is pushed into the log: partitions, offsets, times and keys.

Spark evaluates every filter again on the rows that it gets, so what is left alone here costs time
and no row. A filter only counts where its value has the column's own type.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, UTC
from typing import TYPE_CHECKING, Any

from seglog.model import TopicPartition
from seglog.storage.stream import RowFilter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["INT64_MIN", "Pushed", "enable_pushdown", "is_pushing", "push"]

_SETTING = "spark.sql.python.filterPushdown.enabled"
_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Offsets of one IN that are looked up one by one; more are one span from the least to the largest.
_SPANS_MAX = 64
#: More keys cost more to compare with than they save.
_KEYS_MAX = 64


def enable_pushdown(spark: SparkSession) -> bool:
    """Switches spark.sql.python.filterPushdown.enabled on for the session, unless it was set to
    false there; whether filters are pushed. Spark 4.0 cannot."""
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 1):
        return False
    if spark.conf.getAll.get(_SETTING, "").lower() != "false":
        spark.conf.set(_SETTING, "true")
    return str(spark.conf.get(_SETTING)).lower() == "true"


def is_pushing() -> bool:
    """Whether this process is the one by which Spark pushes filters.

    Spark refuses a reader that overrides `pushFilters` while the setting is off, and a reader
    cannot ask for it: it is made in a Python worker without a session. But Spark has a worker of
    its own for it, which runs only while the setting is on.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _WORKER in sys.modules or (main is not None and main.name == _WORKER)


@dataclass(frozen=True, slots=True)
class Ints:
    """Whole numbers from `first` to `last`, and of these only `chosen`, if there are any."""

    first: int = INT64_MIN
    last: int = INT64_MAX
    chosen: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last and (
            self.chosen is None or number in self.chosen)

    def __and__(self, other: Ints) -> Ints:
        first, last = max(self.first, other.first), min(self.last, other.last)
        chosen = self.chosen if other.chosen is None else other.chosen if self.chosen is None \
            else self.chosen & other.chosen
        if chosen is not None:
            chosen = frozenset(one for one in chosen if first <= one <= last)
            first, last = min(chosen, default=INT64_MAX), max(chosen, default=INT64_MIN)
        return Ints(first, last, chosen)

    def spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of [start, end) is inside, as such intervals; few, so perhaps with more."""
        if self.chosen is None or len(self.chosen) > _SPANS_MAX:
            start, end = max(start, self.first), min(end, self.last + 1)
            return [(start, end)] if start < end else []
        spans: list[tuple[int, int]] = []
        for one in sorted(one for one in self.chosen if start <= one < end):
            if spans and spans[-1][1] == one:
                spans[-1] = spans[-1][0], one + 1
            else:
                spans.append((one, one + 1))
        return spans


@dataclass(frozen=True, slots=True)
class Pushed:
    """What rows must be: all of it at once. Timestamps in ms; None stands for anything."""

    topics: frozenset[str] | None = None
    partitions: Ints = Ints()
    offsets: Ints = Ints()
    timestamps: Ints = Ints()
    timestamp_types: Ints = Ints()
    keys: frozenset[bytes | None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no row can be all of it."""
        return self.topics == frozenset() or self.keys == frozenset() or any(
            one.first > one.last for one in (self.partitions, self.offsets, self.timestamps,
                                             self.timestamp_types))

    def wants(self, tp: TopicPartition) -> bool:
        """Whether a partition can have such rows."""
        return (self.topics is None or tp.topic in self.topics) and tp.partition in self.partitions

    @property
    def is_sparse(self) -> bool:
        """Whether the bytes that are read may hold many rows that are left out."""
        return self.keys is not None or self.timestamps.last < INT64_MAX

    @property
    def row_filter(self) -> RowFilter | None:
        """What the decoder leaves out by itself; None for nothing."""
        times = self.timestamps
        types = tuple(kind for kind in (-1, 0, 1) if kind in self.timestamp_types)
        keys = None if self.keys is None or len(self.keys) > _KEYS_MAX else self.keys
        if (times.first, times.last, len(types), keys) == (INT64_MIN, INT64_MAX, 3, None):
            return None
        return RowFilter(first_timestamp=max(times.first, INT64_MIN),
                         last_timestamp=min(times.last, INT64_MAX),
                         timestamp_types=types, keys=keys)


def push(filters: Iterable[Any]) -> Pushed:
    """What pyspark.sql.datasource's filters ask for, as far as it can be used."""
    pushed = Pushed()
    for one in filters:
        attribute = getattr(one, "attribute", None)
        if attribute is not None and len(attribute) == 1:
            pushed = _add(pushed, type(one).__name__, attribute[0], getattr(one, "value", None))
    return pushed


def _add(pushed: Pushed, kind: str, column: str, value: Any) -> Pushed:
    if column == "key":
        keys = _keys(kind, value)
        return pushed if keys is None else replace(
            pushed, keys=keys if pushed.keys is None else pushed.keys & keys)
    if column == "topic":
        topics = _topics(kind, value)
        return pushed if topics is None else replace(
            pushed, topics=topics if pushed.topics is None else pushed.topics & topics)
    if column == "timestamp":
        times = _times(kind, value)
        return pushed if times is None else replace(pushed, timestamps=pushed.timestamps & times)
    numbers = _ints(kind, value)
    if numbers is None:
        return pushed
    match column:
        case "partition":
            return replace(pushed, partitions=pushed.partitions & numbers)
        case "offset":
            return replace(pushed, offsets=pushed.offsets & numbers)
        case "timestampType":
            return replace(pushed, timestamp_types=pushed.timestamp_types & numbers)
    return pushed


def _listed(kind: str, value: Any, wanted: type) -> list[Any] | None:
    """The values that a column may have by an equality; None if it says nothing of the kind."""
    if kind in ("EqualTo", "EqualNullSafe"):
        values: Sequence[Any] = (value,)
    elif kind == "In" and isinstance(value, (list, tuple)):
        values = value
    else:
        return None
    values = [one for one in values if one is not None]  # equal to nothing
    return list(values) if all(type(one) is wanted for one in values) else None


def _keys(kind: str, value: Any) -> frozenset[bytes | None] | None:
    if kind == "IsNull" or (kind == "EqualNullSafe" and value is None):
        return frozenset((None,))
    if isinstance(value, bytearray):
        value = bytes(value)
    elif isinstance(value, (list, tuple)):
        value = [bytes(one) if isinstance(one, bytearray) else one for one in value]
    listed = _listed(kind, value, bytes)
    return None if listed is None else frozenset(listed)


def _topics(kind: str, value: Any) -> frozenset[str] | None:
    listed = _listed(kind, value, str)
    return None if listed is None else frozenset(listed)


def _ints(kind: str, value: Any) -> Ints | None:
    listed = _listed(kind, value, int)
    if listed is not None:
        return Ints() & Ints(chosen=frozenset(listed))
    return _bound(kind, value, value) if type(value) is int else None


def _times(kind: str, value: Any) -> Ints | None:
    """Of milliseconds, which are all that a log has; the filter's values are microseconds."""
    listed = _listed(kind, value, datetime)
    if listed is not None:
        if any(one.tzinfo is None for one in listed):
            return None
        stamps = [(one - _EPOCH) // timedelta(microseconds=1) for one in listed]
        return Ints() & Ints(chosen=frozenset(one // 1000 for one in stamps if one % 1000 == 0))
    if type(value) is not datetime or value.tzinfo is None:
        return None
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    return _bound(kind, micros // 1000, -(-micros // 1000))


def _bound(kind: str, down: int, up: int) -> Ints | None:
    """Numbers on one side of a value that lies between the numbers `down` and `up`, or is both."""
    match kind:
        case "GreaterThan":
            return Ints(first=down + 1)
        case "GreaterThanOrEqual":
            return Ints(first=up)
        case "LessThan":
            return Ints(last=up - 1)
        case "LessThanOrEqual":
            return Ints(last=down)
    return None
