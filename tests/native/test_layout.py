"""Rows in Spark's layout equal the default ones in other types; and the effect of a row filter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seglog._native.columns import LAYOUTS, ColumnPool, Projection, RecordColumns
from seglog._native.records import RecordDecoder, RowFilter
from seglog.errors import CorruptDataError, InvalidRecordError
from seglog.storage.codecs import decompress
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Record

SPARK = ("headers", "topic", "timestampType", "offset", "partition", "value", "timestamp", "key")
MOST_MS = (2**63 - 1) // 1000

Rows = list[dict[str, Any]]


def batch(base: int, stamps: list[int], *, append_time: int | None = None, codec: int = 0) -> bytes:
    records = [Record(base + n, stamp, key=[b"k%d" % (n % 3), None][n % 4 == 3],
                      value=b"v" * (n % 5),
                      headers=[(b"h\xff", None), (b"", b"x")][:n % 3])
               for n, stamp in enumerate(stamps)]
    return v2.encode(Batch(
        base, len(stamps) - 1, records, codec=codec, base_timestamp=stamps[0],
        timestamp_type=int(append_time is not None),
        max_timestamp=max(stamps) if append_time is None else append_time))


def message(offset: int, stamp: int, magic: int = 1) -> legacy.Message:
    return legacy.Message(offset, magic, key=b"k1", value=b"old", timestamp=stamp)


def wrapper(offset: int, stamps: list[int]) -> bytes:
    return legacy.encode(legacy.wrap([message(offset + n, s) for n, s in enumerate(stamps)], 1))


def decoded(data: bytes, tmp_path: Path, **options: Any) -> list[RecordColumns]:
    path = tmp_path / "0.log"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(RecordDecoder(fd, 0, len(data), decompress=decompress, file=path, **options))
    finally:
        os.close(fd)


def rows_of(sets: list[RecordColumns]) -> Rows:
    rows: Rows = []
    for columns in sets:
        lists = columns.to_pylists()
        rows += [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return rows


DATA = (legacy.encode(message(0, -1, 0)) + legacy.encode(message(1, 77)) + wrapper(2, [90, 20, 50])
        + batch(10, [1000, 400, 2000, 1500, 1000]) + batch(20, [3000] * 9, append_time=2500)
        + batch(40, [-5, -1, 0, 1], codec=1) + b"".join(
            batch(100 + 10 * n, [5000 + n, 4999 + n, 6000 - n]) for n in range(30)))


@pytest.mark.parametrize("max_rows", [1, 4, 1000])
def test_spark_rows_are_those_of_arrow(tmp_path: Path, max_rows: int) -> None:
    arrow = rows_of(decoded(DATA, tmp_path, max_rows=max_rows))
    sets = decoded(DATA, tmp_path, max_rows=max_rows, layout="spark", columns=SPARK,
                   origin=("tøpic", 7))
    assert all(columns.columns == SPARK and columns.nbytes > 0 for columns in sets)
    assert rows_of(sets) == [{
        "headers": row["headers"] or None, "topic": "tøpic", "timestampType": row["timestamp_type"],
        "offset": row["offset"], "partition": 7, "value": row["value"],
        "timestamp": row["timestamp"] * 1000, "key": row["key"]} for row in arrow]
    assert any(row["headers"] for row in arrow) and len(arrow) == 23 + 90 - 0


def test_a_set_is_used_again_for_other_partitions_and_layouts(tmp_path: Path) -> None:
    """The pool hands the memory of one decoder to the next; nothing of it may shine through."""
    pool = ColumnPool()
    for layout, origin, rows in (("spark", ("topic", 1), 9), ("spark", ("topic", 2), 3),
                                 ("spark", ("topics", 2), 12), ("kafka", ("t", 2), 20),
                                 ("spark", ("", 3), 20), ("spark", ("t", 3), 40)):
        for _ in range(3):
            sets = decoded(batch(5, list(range(rows))), tmp_path, layout=layout, origin=origin,
                           columns=("topic", "partition", "headers", "timestamp"), pool=pool)
            found = rows_of(sets)
            del sets
            assert [(row["topic"], row["partition"]) for row in found] == [origin] * rows
            scale, empty = (1000, None) if layout == "spark" else (1, [])
            assert [row["timestamp"] for row in found] == [n * scale for n in range(rows)]
            assert [row["headers"] == empty for row in found] == [n % 3 == 0 for n in range(rows)]


def test_only_constant_columns(tmp_path: Path) -> None:
    sets = decoded(DATA, tmp_path, layout="spark", columns=("partition", "topic"),
                   origin=("t" * 249, 3))
    assert rows_of(sets) == [{"partition": 3, "topic": "t" * 249}] * 113


@pytest.mark.parametrize("make", [
    lambda stamp: batch(0, [1, 2]) + batch(5, [7, stamp, 9]),
    lambda stamp: (batch(0, [1, 2]) + legacy.encode(message(5, 7))
                   + legacy.encode(message(6, stamp))),
    lambda stamp: batch(0, [1, 2]) + wrapper(5, [7, stamp]),
])
@pytest.mark.parametrize("stamp", [MOST_MS + 1, 2**63 - 1, -MOST_MS - 1, -2**63])
def test_a_timestamp_beyond_microseconds_is_an_error_after_the_rows_before(
        tmp_path: Path, make: Any, stamp: int) -> None:
    """As Spark's own source, which fails the query (Math.multiplyExact)."""
    path = tmp_path / "0.log"
    data = make(stamp)
    path.write_bytes(data)
    with open(path, "rb") as file:
        decoder = RecordDecoder(file.fileno(), 0, len(data), decompress=decompress, file=path,
                                layout="spark", columns=("offset", "timestamp"))
        columns = decoder.next()
        assert columns is not None
        assert columns.to_pylists() == {"offset": [0, 1, 5], "timestamp": [1000, 2000, 7000]}
        with pytest.raises(InvalidRecordError, match="leave timestamp out of the") as caught:
            decoder.next()
    assert (caught.value.code, caught.value.found) == ("record_timestamp", stamp)
    # Without the column, and in the default layout, the record reads as any other.
    for options in ({"layout": "spark", "columns": ("offset",)}, {"columns": ("offset",
                                                                             "timestamp")}):
        assert rows_of(decoded(data, tmp_path, **options))[3]["offset"] == 6
    for near in (MOST_MS, -MOST_MS):
        assert rows_of(decoded(make(near), tmp_path, layout="spark",
                               columns=("timestamp",)))[3] == {"timestamp": near * 1000}


def test_names_of_a_layout() -> None:
    assert LAYOUTS == ("kafka", "spark")
    with pytest.raises(ValueError, match="no column 'timestampType'"):
        Projection(("timestampType",))
    with pytest.raises(ValueError, match="no column 'timestamp_type'"):
        Projection(("timestamp_type",), layout="spark")
    with pytest.raises(ValueError, match="neither kafka nor spark"):
        Projection(("offset",), layout="flink")
    with pytest.raises(ValueError, match="no column 'topic'"):
        Projection(("topic",), layout="spark")


# ---- row filters ---------------------------------------------------------------------------------

LAYOUT_COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


@pytest.mark.parametrize("believe_headers", [True, False])
@pytest.mark.parametrize("columns", [LAYOUT_COLUMNS, ("value",), ("offset",), ("headers", "key")])
@pytest.mark.parametrize("asked", [
    {"first_timestamp": 1000}, {"last_timestamp": 999}, {"first_timestamp": 21,
                                                        "last_timestamp": 400},
    {"first_timestamp": 5020, "last_timestamp": 5020}, {"timestamp_types": (1,)},
    {"timestamp_types": (-1, 0)}, {"timestamp_types": ()}, {"keys": [b"k1"]}, {"keys": [None]},
    {"keys": [b"k2", None, b"absent"]}, {"keys": []}, {"first_timestamp": 5000, "keys": [b"k0"]},
    {"first_timestamp": 10, "last_timestamp": 5}, {"last_timestamp": 2499}, {},
    {"first_timestamp": -2**63, "last_timestamp": 2**63 - 1},
], ids=str)
def test_a_row_filter_leaves_what_it_says(tmp_path: Path, asked: dict[str, Any],
                                          columns: tuple[str, ...], believe_headers: bool) -> None:
    def is_kept(row: dict[str, Any]) -> bool:
        return (asked.get("first_timestamp", row["timestamp"]) <= row["timestamp"]
                <= asked.get("last_timestamp", row["timestamp"])
                and row["timestamp_type"] in asked.get("timestamp_types", (-1, 0, 1))
                and ("keys" not in asked or row["key"] in asked["keys"]))

    every = rows_of(decoded(DATA, tmp_path))
    for start, end in ((None, None), (3, 42), (12, 13)):
        sets = decoded(DATA, tmp_path, columns=columns, row_filter=RowFilter(**asked),
                       believe_headers=believe_headers, start_offset=start, end_offset=end)
        assert rows_of(sets) == [
            {name: row[name] for name in columns} for row in every
            if is_kept(row) and (start is None or row["offset"] >= start)
            and (end is None or row["offset"] < end)]
        assert all(columns.num_rows for columns in sets)


def test_a_batch_that_is_left_out_by_its_header_is_not_checked(tmp_path: Path) -> None:
    bad = bytearray(batch(0, [1, 2, 3]))
    bad[-1] ^= 1
    data = bytes(bad) + batch(10, [50, 60])
    late = RowFilter(first_timestamp=55)
    assert [row["offset"] for row in rows_of(decoded(data, tmp_path, row_filter=late))] == [11]
    with pytest.raises(CorruptDataError):
        decoded(data, tmp_path, row_filter=late, believe_headers=False)
    with pytest.raises(CorruptDataError):
        decoded(data, tmp_path, row_filter=RowFilter(last_timestamp=55))


def test_what_a_row_filter_refuses() -> None:
    with pytest.raises(ValueError, match="timestamp type 2 is none of"):
        RowFilter(timestamp_types=(2,))
    with pytest.raises(TypeError):
        RowFilter(keys=["text"])  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        RowFilter(first_timestamp=2**63)
