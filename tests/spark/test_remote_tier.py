"""Spark over a broker's disk and its remote tier: the rows of its consumers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import seglog.spark
from tests.support import golden as golden_data
from tests.tiered.conftest import Tiered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.judge, pytest.mark.spark]
NAMES = ("t-gzip-0", "t-txn-0", "t-txn-1", "t-start-0", "t-both-0", "local-only-0")


@pytest.fixture(scope="module")
def broker() -> Tiered:
    """The golden directory of a broker with remote storage."""
    return Tiered(golden_data.unpack(archive_path=golden_data.TIERED_ARCHIVE) / "tiered")


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_disk_and_tier(spark: SparkSession, broker: Tiered, isolation: str) -> None:
    frame = (spark.read.format("seglog").option("remote", str(broker.remote))
             .option("subscribe", ",".join(sorted({name[:-2] for name in NAMES})))
             .option("kafka.isolation.level", isolation).option("maxPartitionBytes", 4096)
             .load(str(broker.data)))
    found: dict[str, list[tuple[int, bytes | None, bytes | None]]] = {}
    for row in frame.select("topic", "partition", "offset", "key", "value").collect():
        found.setdefault(f"{row[0]}-{row[1]}", []).append(
            (row[2], *(None if one is None else bytes(one) for one in row[3:])))
    assert {name: sorted(rows, key=lambda row: row[0]) for name, rows in found.items()} == {
        name: [(row.offset, row.key, row.value) for row in broker.rows(
            name, "read_committed" if isolation == "read_committed" else "read_uncommitted")]
        for name in NAMES}
    counts = seglog.spark.count(spark, str(broker.data), remote=str(broker.remote),
                                subscribe="t-gzip")
    assert counts.records == 240


def test_a_gap_ends_the_query_or_is_passed_over(spark: SparkSession, broker: Tiered,
                                                tmp_path: Path) -> None:
    for path in broker.objects("t-gzip-0", ""):
        target = tmp_path / path.relative_to(broker.remote)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.name[:20] != f"{46:020}":
            shutil.copyfile(path, target)

    def read(**options: str) -> list[int]:
        reader = spark.read.format("seglog").option("subscribe", "t-gzip").options(**options)
        rows = reader.option("remote", str(tmp_path)).load(str(broker.data)).select("offset")
        return sorted(row[0] for row in rows.collect())

    with pytest.raises(Exception, match="offsets 46 to 92 are in no segment"):
        read()
    assert read(failOnDataLoss="false") == [*range(46), *range(93, 240)]
