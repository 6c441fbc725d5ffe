"""A query reads a partition with several directories once, and says from which."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.spark import replicas
from seglog.spark.plan import choose_partitions
from seglog.spark.read_options import parse_options
from tests.unit.test_replica_choice import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_reads_each_partition_once_and_says_from_where(
        spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        write(tmp_path / "a" / f"t-{number}", [(0, 20), (2, 30)], mark=b"a")
        write(tmp_path / "b" / f"t-{number}", [(0, 20), (1, 90 if number < 2 else 5)], mark=b"b")
    write(tmp_path / "b" / "t-3", [(0, 7)], mark=b"b")
    both = f"{tmp_path}/[ab]"
    rows = spark.read.format("seglog").load(both).collect()
    by_partition = {number: [row for row in rows if row.partition == number] for number in range(4)}
    assert [len(by_partition[number]) for number in range(4)] == [30, 30, 30, 7]
    assert all(row.value.startswith(b"a") for row in rows if row.partition < 3)
    with caplog.at_level(logging.INFO, "seglog.spark"):
        choose_partitions(parse_options({"path": both}))
    assert [record.getMessage() for record in caplog.records][:1] == [
        f"t-0: read from {tmp_path}/a/t-0, not {tmp_path}/b/t-0: its leader epoch 2 is newer than "
        "1 (log end offsets 30 and 90)"]
    table = replicas(spark, both, subscribe="t")
    table.createOrReplaceTempView("seglog_replicas")
    assert [tuple(row) for row in spark.sql(
        "SELECT topic, partition, path, leader_epoch, log_end_offset FROM seglog_replicas "
        "WHERE NOT is_read ORDER BY partition").collect()] == [
        ("t", number, f"{tmp_path}/b/t-{number}", 1 if number < 2 else 0, 90 if number < 2 else 20)
        for number in range(3)]
    assert {row.reason for row in table.where("is_read and partition = 3").collect()} == {
        "it is the only one"}
