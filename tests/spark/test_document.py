"""Runs the examples of docs/spark.md unchanged. "Hand-over" and "Object stores" need a broker and a
store: tests/spark/test_handover.py and tests/objects/test_spark.py run them."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seglog
from seglog.spark import register
from tests.support.documents import examples_of
from tests.support.readme import localize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.judge, pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas")]
NOW_MS = 1764547200000  # the first example's start
ELSEWHERE = {"Hand-over between disk and broker", "Object stores"}
OF_GOLDEN_DATA = {"Functions", "Tables", "Verify over a cluster"}
OF_ORDERS = {"", "Streaming", "Counting", "Writing", "Replicas"}


def test_every_section_with_an_example_is_run() -> None:
    assert set(examples_of("spark.md")) == ELSEWHERE | OF_GOLDEN_DATA | OF_ORDERS


def run(example: str, names: dict[str, Any]) -> list[str]:
    """Runs an example and returns its printed lines; `names` has its names afterwards."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, names)
    return printed.getvalue().splitlines()


@pytest.mark.parametrize("title", sorted(OF_GOLDEN_DATA))
def test_a_section(spark: SparkSession, golden: Path, title: str) -> None:
    register(spark)
    for example in examples_of("spark.md")[title]:
        expected = re.findall(r"^print\(.*\)\s+# (.*)$", example, re.MULTILINE)
        assert run(localize(example, golden), {"spark": spark}) == expected and expected


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """A topic `orders` of two partitions and 30 records at the page's paths, here in `tmp_path`."""
    made = tmp_path / "kafka"
    for home in ("broker-1/data", "broker-2/data"):
        for partition in (0, 1):
            with seglog.open(made / home / f"orders-{partition}") as log:
                # The second broker's replicas are behind.
                for number in range(15 if home.startswith("broker-1") else 10):
                    log.append(b"%d" % number, key=b"k%d" % number,
                                   timestamp=NOW_MS + number)
    return {"/var/lib/kafka/data": str(made / "broker-1" / "data"),
            "/backup/broker-": str(made / "broker-"),
            "/data/": f"{tmp_path}/", "/var/lib/checkpoints": str(tmp_path / "more")}


@pytest.fixture
def names(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the examples use: a session, and two DataFrames for the writer."""
    register(spark)
    monkeypatch.setattr("seglog.spark.session", lambda: spark)
    events = spark.readStream.format("rate").load().selectExpr("cast(value as string) AS value")
    yield {"spark": spark, "df": spark.range(20), "events": events}
    for query in spark.streams.active:
        query.stop()


@pytest.mark.parametrize("title", sorted(OF_ORDERS))
def test_a_section_about_orders(spark: SparkSession, names: dict[str, Any],
                                places: dict[str, str], title: str) -> None:
    [example] = examples_of("spark.md")[title]
    for name, here in places.items():
        # The read path first, because it is part of no other path.
        example = example.replace(name, here)
    printed = run(example, names)
    if title == "":
        assert names["df"].count() == 30 and "headers" in names["df"].columns
    elif title == "Streaming":
        names["query"].processAllAvailable()
        assert spark.read.parquet(places["/data/"] + "orders").count() == 30
    elif title == "Counting":
        assert names["counts"].records == 30
        assert [line.split()[:3] for line in printed] == [
            ["orders-0", "15", "0"], ["orders-1", "15", "0"]]
    elif title == "Replicas":
        assert sum("broker-1" in line for line in printed) == 2
    else:
        written = spark.read.format("seglog").load(places["/var/lib/kafka/data"])
        topics = {row.topic: row["count"] for row in written.groupBy("topic").count().collect()}
        assert topics["orders"] == 30 + 20
