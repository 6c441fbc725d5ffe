"""What seglog reads, as the oracle's rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.oracle.batch import Row

DEFAULT_COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
ALL_COLUMNS = (*DEFAULT_COLUMNS, "producer_id", "producer_epoch", "sequence",
               "partition_leader_epoch", "is_transactional", "is_control", "position")


def rows_of(columns: Any) -> list[Row]:
    """The rows of one `RecordColumns`."""
    lists = columns.to_pylists()
    if "headers" in lists:
        lists["headers"] = [[{"key": key, "value": value} for key, value in headers]
                            for headers in lists["headers"]]
    names = list(lists)
    return [dict(zip(names, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def read_rows(log: Any, *args: Any, **options: Any) -> list[Row]:
    """All rows of `log.to_arrow(...)`; an error is raised as it comes."""
    return collect(log.to_arrow(*args, **options))


def collect(stream: Iterable[Any], into: list[Row] | None = None) -> list[Row]:
    """All rows of a stream; `into` keeps those before an error."""
    found: list[Row] = [] if into is None else into
    for columns in stream:
        found += rows_of(columns)
    return found


def project(rows: Iterable[Row], columns: Iterable[str] = DEFAULT_COLUMNS) -> list[Row]:
    names = list(columns)
    return [{name: row[name] for name in names} for row in rows]
