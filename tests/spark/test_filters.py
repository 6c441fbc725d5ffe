"""Pushed filters give the same rows as plain Python over all rows, and read less of the log."""

from __future__ import annotations

import dataclasses
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import datasource

from seglog.errors import CorruptDataError
from seglog.spark import filters as pushing
from seglog.spark.filters import Ints, enable_pushdown, push
from seglog.spark.read_options import parse_options
from seglog.spark.plan import SeglogPartition
from seglog.spark.source_reader import FilteringReader, SeglogReader
from seglog.storage import segment
from seglog.storage.partition_log import PartitionLog
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import LogConfig
from tests.support.effort import examples, quick_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT64 = 2**63
SETTING = "spark.sql.python.filterPushdown.enabled"
FILTERS = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan",
           "LessThanOrEqual", "In", "IsNull", "IsNotNull", "Not")


def filter_of(kind: str, *values: Any) -> Any:
    """PySpark's class of this name, or a substitute where PySpark lacks it (4.0)."""
    known = getattr(datasource, kind, None)
    if known is None:
        known = dataclasses.make_dataclass(
            kind, ["child"] if kind == "Not" else ["attribute", "value"][:len(values)],
            frozen=True)
    return known(*values)


# ---- the oracle ----------------------------------------------------------------------------------

def holds(one: Any, row: Row) -> bool | None:
    """Evaluates a filter by SQL's rules; None for unknown."""
    kind = type(one).__name__
    if kind == "Not":
        found = holds(one.child, row)
        return None if found is None else not found
    cell = row[one.attribute[0]]
    if one.attribute[0] == "timestamp":
        cell = EPOCH + timedelta(microseconds=cell)
    if kind == "IsNull":
        return cell is None
    if kind == "IsNotNull":
        return cell is not None
    if kind == "EqualNullSafe":
        return bool(cell == one.value)
    if kind == "In":
        if cell is None:
            return None
        return cell in [v for v in one.value if v is not None] or (
            None if None in one.value else False)
    if cell is None or one.value is None:
        return None
    return {"EqualTo": cell == one.value, "GreaterThan": cell > one.value,
            "GreaterThanOrEqual": cell >= one.value, "LessThan": cell < one.value,
            "LessThanOrEqual": cell <= one.value}[kind]


def matching(rows: Sequence[Row], filters: Sequence[Any]) -> list[Row]:
    return [row for row in rows if all(holds(one, row) is True for one in filters)]


def is_pushed_whole(one: Any) -> bool:
    """Whether the reader applies the whole filter."""
    kind = type(one).__name__
    if kind == "Not" or (kind, one.attribute[0]) == ("In", "timestamp"):
        return False
    if one.attribute[0] in ("key", "topic"):
        return kind in ("EqualTo", "EqualNullSafe", "In") and (
            one.attribute[0] == "key" or kind == "In" or one.value is not None)
    return kind not in ("IsNull", "IsNotNull")


# ---- random input --------------------------------------------------------------------------------

def moment(millis: int, micros: int = 0) -> datetime:
    return EPOCH + timedelta(milliseconds=millis, microseconds=micros)


def values_of(column: str, rows: Sequence[Row]) -> st.SearchStrategy[Any]:
    cells = [row[column] for row in rows] or [0 if column != "topic" else ""]
    near = st.sampled_from(cells)
    if column == "timestamp":
        return st.builds(lambda cell, micros: EPOCH + timedelta(microseconds=cell + micros),
                         near, st.sampled_from([0, 0, 1, -1, 999, 1000, -1000, 10**9]))
    if column == "key":
        return st.one_of(near.filter(lambda cell: cell is not None) if any(cells) else
                         st.just(b"absent"), st.binary(max_size=2))
    if column == "topic":
        return st.one_of(near, st.sampled_from(["", "absent"]))
    return st.one_of(
        st.builds(lambda cell, step: cell + step, near, st.integers(-2, 2)),
        st.sampled_from([-INT64, INT64 - 1, 0, -1] if column == "offset" else [-2**31, 2**31 - 1]))


@st.composite
def drawn_filter(draw: st.DrawFn, rows: Sequence[Row]) -> Any:
    column = draw(st.sampled_from(["offset", "timestamp", "key", "topic", "partition",
                                   "timestampType"]))
    kind = draw(st.sampled_from(FILTERS))
    path, values = (column,), values_of(column, rows)
    if kind == "Not":
        return filter_of("Not", filter_of("EqualTo", path, draw(values)))
    if kind in ("IsNull", "IsNotNull"):
        return filter_of(kind, path)
    if kind == "In":
        return filter_of(kind, path, tuple(draw(st.lists(st.one_of(values, values, st.none()),
                                                         max_size=5))))
    value = draw(st.none() if kind.startswith("Equal") and draw(st.integers(0, 9)) == 0
                 else values)
    return filter_of(kind, path, value)


CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300)
SHAPES = {
    "a-0": Shape(batches=50, config=CONFIG), "a-1": Shape(batches=40, magics=(0, 1, 2)),
    "b-0": Shape(batches=30, magics=(1,), config=CONFIG),
    "b-1": Shape(batches=40, base_offset=2**40, codecs=(0, 4), clean=False, preallocated=True),
}


@pytest.fixture(scope="module")
def built() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, shape) in enumerate(SHAPES.items()):
            build_log(Path(folder) / name, 70 + number, shape)
        yield ",".join(f"{folder}/{name}" for name in SHAPES)


@pytest.fixture(autouse=True)
def small_logs_use_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "INDEX_BYTES_MIN", 0)


def read(path: str, filters: Sequence[Any] | None, **options: str) -> list[Row]:
    """Plans and decodes a query as in Spark, but without Spark."""
    parsed = parse_options({"path": path, "maxPartitionBytes": "2000", **options})
    reader = SeglogReader(parsed, NAMES)
    if filters is not None:
        reader = FilteringReader(parsed, NAMES)
        assert reader.pushFilters(list(filters)) == list(filters)
    rows: list[Row] = []
    for task in pickle.loads(pickle.dumps(list(reader.partitions()))):
        assert isinstance(task, SeglogPartition)
        for arrow in pickle.loads(cloudpickle.dumps(reader)).read(task):
            assert arrow.num_rows
            stamps = arrow.column("timestamp").cast("int64").to_pylist()
            rows += [{**row, "timestamp": stamp} for row, stamp in zip(
                arrow.drop_columns(["timestamp"]).to_pylist(), stamps, strict=True)]
    return rows


_READ: dict[tuple[str, str, str], list[Row]] = {}


def everything(path: str, **options: str) -> list[Row]:
    key = (path, str(sorted(options.items())), "")
    if key not in _READ:
        _READ[key] = read(path, None, **options)
    return _READ[key]


@settings(max_examples=examples(40),
          suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_filtered_rows_are_those_of_plain_python(built: str, data: st.DataObject) -> None:
    options = {"kafka.isolation.level": data.draw(st.sampled_from(
        ["read_uncommitted", "read_committed"]), label="level"),
        "failOnDataLoss": data.draw(st.sampled_from(["true", "false"]), label="fail")}
    rows = everything(built, **options)
    filters = data.draw(st.lists(drawn_filter(rows), min_size=1, max_size=3), label="filters")
    found, expected = read(built, filters, **options), matching(rows, filters)
    assert matching(found, filters) == expected
    seen = {(row["topic"], row["partition"], row["offset"]) for row in rows}
    assert all((row["topic"], row["partition"], row["offset"]) in seen for row in found)
    if all(map(is_pushed_whole, filters)):
        assert found == expected


@settings(max_examples=examples(10),
          suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damage_costs_no_row_that_an_unfiltered_read_gives(data: st.DataObject, tmp_path_factory:
                                                           pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    name = data.draw(st.sampled_from(list(SHAPES)), label="log")
    build_log(folder / name, data.draw(st.integers(0, 5), label="seed"), SHAPES[name])
    for _ in range(data.draw(st.integers(1, 3), label="flips")):
        file = data.draw(st.sampled_from(sorted((folder / name).glob("0*"))), label="file")
        content = bytearray(file.read_bytes())
        if content:
            at = data.draw(st.integers(0, len(content) - 1), label="byte")
            content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
            file.write_bytes(content)
    path = str(folder / name)
    rows = read(path, None, failOnDataLoss="false")
    filters = data.draw(st.lists(drawn_filter(rows), min_size=1, max_size=2), label="filters")
    assert matching(read(path, filters, failOnDataLoss="false"), filters) == matching(rows, filters)
    try:
        whole = read(path, None)
    except CorruptDataError:
        return  # the filtered read may fail there too, or not reach it
    assert matching(read(path, filters), filters) == matching(whole, filters)


def test_less_is_planned(built: str) -> None:
    """Checks planned partitions, segments and bytes, by offset and by time."""
    def size(*filters: Any) -> int:
        reader = FilteringReader(parse_options({"path": built}), NAMES)
        reader.pushFilters(list(filters))
        return sum(planned.size for task in reader.partitions() for planned in task.ranges)

    whole, rows = size(), everything(built)
    newest = max(row["timestamp"] for row in rows) // 1000
    of_one = [row for row in rows if (row["topic"], row["partition"]) == ("a", 0)]
    assert 0 < size(filter_of("EqualTo", ("topic",), "b")) < whole
    one = size(filter_of("EqualTo", ("topic",), "a"), filter_of("EqualTo", ("partition",), 0))
    assert 0 < one < whole / 2
    middle = of_one[len(of_one) // 2]["offset"]
    assert 0 < size(filter_of("In", ("offset",), (middle, None)),
                    filter_of("EqualTo", ("topic",), "a")) < one / 4
    assert 0 < size(filter_of("GreaterThan", ("offset",), of_one[-2]["offset"]),
                    filter_of("EqualTo", ("topic",), "a")) < one / 4
    late = of_one[-1]["timestamp"] // 1000
    assert 0 < size(filter_of("GreaterThanOrEqual", ("timestamp",), moment(late)),
                    filter_of("EqualTo", ("topic",), "a"),
                    filter_of("EqualTo", ("partition",), 0)) < one / 2
    for nothing in (filter_of("EqualTo", ("topic",), None), filter_of("In", ("offset",), ()),
                    filter_of("EqualTo", ("timestamp",), moment(newest, 1)),
                    filter_of("GreaterThan", ("offset",), INT64 - 1),
                    filter_of("LessThan", ("offset",), -INT64)):
        assert size(nothing) == 0


def test_values_of_other_types_are_left_to_spark() -> None:
    for one in (filter_of("EqualTo", ("offset",), 5.0), filter_of("EqualTo", ("offset",), True),
                filter_of("In", ("offset",), (5, "6")), filter_of("EqualTo", ("key",), "text"),
                filter_of("GreaterThan", ("timestamp",), datetime(2020, 1, 1)),
                filter_of("GreaterThan", ("key",), b"a"), filter_of("LessThan", ("topic",), "a"),
                filter_of("EqualTo", ("headers", "key"), 5), filter_of("IsNull", ("offset",)),
                filter_of("Not", filter_of("EqualTo", ("offset",), 5))):
        assert push([one]) == pushing.Pushed()


def test_spans_of_numbers() -> None:
    assert Ints().spans(3, 9) == [(3, 9)]
    assert (Ints(first=5) & Ints(last=7)).spans(3, 9) == [(5, 8)]
    assert (Ints() & Ints(chosen=frozenset((4, 5, 8, 20)))).spans(3, 9) == [(4, 6), (8, 9)]
    assert (Ints(chosen=frozenset((4, 5))) & Ints(chosen=frozenset((5, 6)))).spans(3, 9) == [(5, 6)]
    assert (Ints(last=4) & Ints(chosen=frozenset((5, 6)))).spans(3, 9) == []
    many = Ints() & Ints(chosen=frozenset(range(0, 1000, 2)))
    assert many.spans(10, 900) == [(10, 900)]


# ---- in Spark ------------------------------------------------------------------------------------

@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[bool]:
    before = spark.conf.getAll.get(SETTING)
    yield enable_pushdown(spark)
    spark.conf.unset(SETTING)
    if before is not None:
        spark.conf.set(SETTING, before)


QUERIES = ("offset = 300", "offset IN (1, 300, 301) AND partition = 0", "partition <=> 1",
           "offset BETWEEN 290 AND 310 AND topic = 'plain-none'", "topic IN ('txn', 'nowhere')",
           "timestamp >= '2000-01-01' AND timestampType = 0", "key = X'6B31'", "key IS NULL",
           "key <=> NULL AND topic <=> 'txn'", "offset > 9223372036854775806", "partition = NULL",
           "timestampType < 0", "offset = 3 OR partition = 1", "offset % 7 = 0 AND offset > 20")


@pytest.mark.parametrize("query", quick_first(QUERIES, 1))
def test_queries_are_the_same_on_and_off(spark: SparkSession, golden: Path, pushdown: bool,
                                         query: str) -> None:
    def rows() -> list[Any]:
        frame = (spark.read.format("seglog").option("columns", ",".join(NAMES))
                 .load(str(golden / "real" / "clean")))
        return sorted(map(str, frame.where(query).collect()))

    with_it = rows()
    if pushdown:
        spark.conf.set(SETTING, "false")
        assert rows() == with_it


def test_what_a_filter_leaves_out_is_not_read(spark: SparkSession, golden_copy: Any,
                                              pushdown: bool) -> None:
    if not pushdown:
        pytest.skip("this Spark pushes no filters into Python data sources")
    root = golden_copy("real/clean")
    log = PartitionLog.open(root / "plain-none-0")
    bad = log.segments[0].files.log
    content = bytearray(Path(bad).read_bytes())
    content[70] ^= 1
    Path(bad).write_bytes(content)
    start = log.segments[1].base_offset
    frame = spark.read.format("seglog").option("subscribe", "plain-none,txn").load(str(root))
    assert frame.where(f"topic = 'plain-none' AND offset >= {start}").count() == \
        log.log_end_offset - start
    assert frame.where("topic = 'txn'").count() > 0
    with pytest.raises(Exception, match="CorruptRecordError"):
        frame.where("topic = 'plain-none'").count()
    spark.conf.set(SETTING, "false")
    with pytest.raises(Exception, match="CorruptRecordError"):
        frame.where("topic = 'txn'").count()


def test_the_setting_of_a_user_stays(spark: SparkSession, pushdown: bool) -> None:
    spark.conf.set(SETTING, "false") if pushdown else None
    assert enable_pushdown(spark) is False
