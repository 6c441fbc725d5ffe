"""Pushes a query's filters into the log: partitions, offsets, timestamps and keys.

Spark evaluates every filter again, so an ignored filter costs only time. A filter is used only if
its value has the column's own type.
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
#: Up to this many offsets of one IN are looked up one by one; more become one span.
_SPANS_MAX = 64
#: More keys cost more to compare than they save.
_KEYS_MAX = 64


def enable_pushdown(spark: SparkSession) -> bool:
    """Enables spark.sql.python.filterPushdown.enabled unless the session sets it to false. Returns
    whether Spark pushes filters; Spark 4.0 cannot."""
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 1):
        return False
    if spark.conf.getAll.get(_SETTING, "").lower() != "false":
        spark.conf.set(_SETTING, "true")
    return str(spark.conf.get(_SETTING)).lower() == "true"


def is_pushing() -> bool:
    """Whether this process is Spark's filter pushdown worker.

    Spark refuses a reader that overrides `pushFilters` while the setting is off, and a reader
    cannot read the setting, because its worker has no session. The pushdown worker runs only while
    the setting is on.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _WORKER in sys.modules or (main is not None and main.name == _WORKER)


@dataclass(frozen=True, slots=True)
class Ints:
    """The integers from `first` to `last`, limited to `chosen` unless that is None."""

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
        """The intervals of [start, end) that cover its members; for many members just one."""
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
    """Conditions that a row must all meet. Timestamps are in ms; None allows every value."""

    topics: frozenset[str] | None = None
    partitions: Ints = Ints()
    offsets: Ints = Ints()
    timestamps: Ints = Ints()
    timestamp_types: Ints = Ints()
    keys: frozenset[bytes | None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no row can meet all conditions."""
        return self.topics == frozenset() or self.keys == frozenset() or any(
            one.first > one.last for one in (self.partitions, self.offsets, self.timestamps,
                                             self.timestamp_types))

    def wants(self, tp: TopicPartition) -> bool:
        """Whether a partition can have matching rows."""
        return (self.topics is None or tp.topic in self.topics) and tp.partition in self.partitions

    @property
    def is_sparse(self) -> bool:
        """Whether the bytes read may hold many rows that do not match."""
        return self.keys is not None or self.timestamps.last < INT64_MAX

    @property
    def row_filter(self) -> RowFilter | None:
        """The filter that the decoder applies; None if it applies none."""
        times = self.timestamps
        types = tuple(kind for kind in (-1, 0, 1) if kind in self.timestamp_types)
        keys = None if self.keys is None or len(self.keys) > _KEYS_MAX else self.keys
        if (times.first, times.last, len(types), keys) == (INT64_MIN, INT64_MAX, 3, None):
            return None
        return RowFilter(first_timestamp=max(times.first, INT64_MIN),
                         last_timestamp=min(times.last, INT64_MAX),
                         timestamp_types=types, keys=keys)


def push(filters: Iterable[Any]) -> Pushed:
    """The usable conditions of pyspark.sql.datasource filters."""
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
        topics = _listed(kind, value, str)
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


def _listed(kind: str, value: Any, wanted: type) -> frozenset[Any] | None:
    """The values that an equality filter allows; None for other filters."""
    if kind in ("EqualTo", "EqualNullSafe"):
        values: Sequence[Any] = (value,)
    elif kind == "In" and isinstance(value, (list, tuple)):
        values = value
    else:
        return None
    values = [one for one in values if one is not None]  # null equals nothing
    return frozenset(values) if all(type(one) is wanted for one in values) else None


def _keys(kind: str, value: Any) -> frozenset[bytes | None] | None:
    if kind == "IsNull" or (kind == "EqualNullSafe" and value is None):
        return frozenset((None,))
    if isinstance(value, bytearray):
        value = bytes(value)
    elif isinstance(value, (list, tuple)):
        value = [bytes(one) if isinstance(one, bytearray) else one for one in value]
    return _listed(kind, value, bytes)


def _ints(kind: str, value: Any) -> Ints | None:
    listed = _listed(kind, value, int)
    if listed is not None:
        return Ints() & Ints(chosen=listed)
    return _bound(kind, value, value) if type(value) is int else None


def _times(kind: str, value: Any) -> Ints | None:
    """The allowed timestamps in ms, the precision of a log; filter values are in microseconds."""
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
    """The integers on one side of a value; `down` and `up` are the value rounded down and up."""
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
