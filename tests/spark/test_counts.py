"""`seglog.spark.count` gives from headers what the rows give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest

import seglog
from seglog.model import TopicPartition
from seglog.spark import count
from seglog.storage.record_counts import RecordCount
from tests.support.effort import quick_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_rows(spark: SparkSession, path: Path, **options: Any
            ) -> dict[TopicPartition, tuple[Any, ...]]:
    from pyspark.sql.functions import expr

    wanted = [expr(text) for text in (
        "count(*)", "min(offset)", "max(offset)", "min(unix_millis(timestamp))",
        "max(unix_millis(timestamp))")]
    frame = spark.read.format("seglog").options(**options).load(str(path))
    found = frame.groupBy("topic", "partition").agg(*wanted).collect()
    return {TopicPartition(row[0], row[1]): tuple(row)[2:] for row in found}


@pytest.mark.parametrize("options", quick_first([
    {"subscribe": "outoforder", "startingOffsets": '{"outoforder":{"0":11}}'},
    {}, {"kafka.isolation.level": "read_committed"}, {"failOnDataLoss": "false"}], 1))
def test_counts_are_those_of_a_query(spark: SparkSession, golden: Path, options: Any) -> None:
    path = golden / "real" / "clean"
    expected = by_rows(spark, path, **options)
    exact = count(spark, str(path), exact=True, **options)
    assert len(expected) > 0
    assert {tp: found for tp, found in exact.partitions.items() if found.records} == {
        tp: RecordCount(*row) for tp, row in expected.items()}
    assert exact.records == sum(row[0] for row in expected.values())
    quick = count(spark, str(path), **options)
    assert quick.partitions.keys() == exact.partitions.keys()
    for tp, row in expected.items():
        found = quick.partitions[tp]
        assert (found.records, found.min_offset, found.max_offset, found.max_timestamp) == (
            *row[:3], row[4])
        assert not found.min_timestamp_is_exact or found.min_timestamp == row[3]


def test_nothing_to_count_and_what_is_refused(spark: SparkSession, golden: Path) -> None:
    path = str(golden / "real" / "clean")
    nothing = count(spark, path, subscribe="empty")
    assert nothing.records == 0 and set(nothing.partitions.values()) == {RecordCount()}
    with pytest.raises(Exception, match="did you mean 'txn'"):
        count(spark, path, subscribe="tnx")
    with pytest.raises(ValueError, match="true or false"):
        count(spark, path, failOnDataLoss="perhaps")


class InThisProcess:
    """The calls of a session and its context that a count makes, without executors."""

    defaultParallelism = 2

    @property
    def sparkContext(self) -> InThisProcess:
        return self

    def parallelize(self, shares: list[Any], _: int) -> InThisProcess:
        self._rows = shares
        return self

    def map(self, work: Callable[[Any], Any]) -> InThisProcess:
        self._rows = [work(row) for row in self._rows]
        return self

    def collect(self) -> list[Any]:
        return self._rows


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition",
                                    "maxPartitionBytes"])
def test_options_that_divide_rows_do_not_divide_a_count(tmp_path: Path, option: str) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"value"] * 20)
    here = InThisProcess()
    found = count(cast("SparkSession", here), str(tmp_path), **{option: 2})
    assert found.records == 20 and [len(share) for share in here.collect()] == [1]


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}])
def test_a_log_in_an_object_store(tmp_path: Path, options: dict[str, str]) -> None:
    fsspec = pytest.importorskip("fsspec",
                                 reason="fsspec is not installed: pip install 'seglog[fsspec]'")
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"value"] * 20)
    system, place = fsspec.filesystem("memory"), f"place-{uuid4().hex}"
    for path in (tmp_path / "t-0").iterdir():
        system.pipe_file(f"/{place}/t-0/{path.name}", path.read_bytes())
    found = count(cast("SparkSession", InThisProcess()), f"memory://{place}", **options)
    assert found.records == 20
    system.rm(f"/{place}", recursive=True)
