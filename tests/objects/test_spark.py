"""`spark.read.format("seglog").load("s3://...")` gives the rows of the same directory on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seglog[spark]'")

from seglog.spark import count, register
from seglog.spark.read_options import parse_options
from seglog.spark.replica_table import replica_rows
from tests.objects.faulty import Faulty
from tests.objects.hdfs import LOGS
from tests.objects.server import options_of
from tests.support.documents import examples_of
from tests.spark.conftest import spark, spark_home  # noqa: F401  (fixtures)

pytestmark = [pytest.mark.judge, pytest.mark.spark]

SELECTIONS: list[dict[str, str]] = [
    {"kafka.isolation.level": "read_committed", "includeHeaders": "true"},
    {"subscribePattern": "txn|plain-.*", "maxPartitionBytes": "20000", "columns": "offset,value"},
    {"subscribe": "txn", "startingTimestamp": "1795261366140", "failOnDataLoss": "false"},
]


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Any:
    """A Spark session with the format."""
    found = request.getfixturevalue("spark")
    register(found)
    return found


def rows(session: Any, path: str, options: dict[str, str]) -> list[str]:
    frame = session.read.format("seglog").options(**options).load(path)
    return sorted(map(str, frame.collect()))


@pytest.mark.parametrize("number", range(len(SELECTIONS)))
def test_rows_from_a_bucket(
        session: Any, bucket: Path, s3: dict[str, str], number: int) -> None:
    options = SELECTIONS[number]
    local = rows(session, str(bucket / "golden" / "real" / "clean"), options)
    assert len(local) > 100
    assert rows(session, "s3://golden/real/clean", {**options, **s3}) == local
    counts = count(session, "s3://golden/real/clean", **options, **s3)
    assert counts.records == len(local)


@pytest.mark.parametrize("table", ["segments", "batches", "indexes", "producers", "transactions",
                                   "epochs", "consumer_offsets"])
def test_tables_of_a_bucket(session: Any, bucket: Path, s3: dict[str, str], table: str) -> None:
    def found(path: str, **options: str) -> list[str]:
        frame = session.read.format("seglog").option("table", table).options(**options).load(path)
        if table == "segments":  # LastModified has no fractions of a second
            frame = frame.withColumn("modified", frame["modified"].cast("long"))
        return sorted(map(str, frame.drop("path").collect()))

    local = found(str(bucket / "golden" / "real" / "unclean"))
    assert len(local) > 1
    assert found("s3://golden/real/unclean", **s3) == local


def test_findings_are_of_directories(session: Any, s3: dict[str, str]) -> None:
    with pytest.raises(Exception, match="table findings reads directories, not s3://golden/real"):
        session.read.format("seglog").option("table", "findings").options(**s3).load(
            "s3://golden/real/clean").count()


def test_a_stream_of_a_bucket(session: Any, bucket: Path, s3: dict[str, str], tmp_path: Path
                              ) -> None:
    """Runs Trigger.AvailableNow twice, with a new partition in between."""
    def run() -> list[str]:
        query = (session.readStream.format("seglog").options(**s3)
                 .option("startingOffsets", "earliest").load("s3://golden/grows")
                 .writeStream.format("parquet").option("path", str(tmp_path / "out"))
                 .option("checkpointLocation", str(tmp_path / "state"))
                 .trigger(availableNow=True).start())
        assert query.awaitTermination(120)
        return sorted(map(str, session.read.parquet(str(tmp_path / "out")).collect()))

    clean, grows = bucket / "golden" / "real" / "clean", bucket / "golden" / "grows"
    expected: list[str] = []
    for name in ("txn-0", "plain-zstd-0"):
        shutil.copytree(clean / name, grows / name)
        expected = rows(session, str(grows), {})
        assert run() == expected
    assert len(expected) > 100


def test_hdfs(session: Any, hdfs: str, golden: Path, tmp_path: Path) -> None:
    clean = golden / "real" / "clean"
    expected = sorted(row for name in LOGS for row in rows(session, str(clean / name), {}))
    assert rows(session, f"{hdfs}/data", {"assign": json.dumps({
        name.rpartition("-")[0]: [0] for name in LOGS})}) == expected
    query = (session.readStream.format("seglog").option("startingOffsets", "earliest")
             .option("subscribe", "txn").load(f"{hdfs}/data").writeStream.format("parquet")
             .option("path", str(tmp_path / "out"))
             .option("checkpointLocation", str(tmp_path / "state"))
             .trigger(availableNow=True).start())
    assert query.awaitTermination(120)
    found = session.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(str, found)) == rows(session, str(clean / "txn-0"), {})


def test_the_example_of_the_page(session: Any, s3: dict[str, str]) -> None:
    [example] = examples_of("spark.md")["Object stores"]
    # Credentials come from the environment there, which Spark's workers inherit at Spark's start.
    for there, here in (("https://s3.example.com", s3["aws_endpoint"]), ('"orders"', '"txn"'),
                        (".load(", ".options(**s3).load("),
                        ("s3://bucket/kafka-data", "s3://golden/real/clean")):
        assert there in example
        example = example.replace(there, here)
    names = {"spark": session, "s3": s3}
    exec(example, names)
    assert names["df"].count() > 100


def test_replicas_in_a_bucket(faulty: Faulty, golden: Path) -> None:
    """The options of the store also open the logs that are compared."""
    clean = golden / "real" / "clean"
    for name in ("a", "b"):
        shutil.copytree(clean / "txn-0", faulty.root / "data" / name / "txn-0")
    found = list(replica_rows(["s3://data/a", "s3://data/b"], {**options_of(faulty.port)}))
    assert [(row[2], row[3], row[-1]) for row in found] == [
        ("s3://data/a/txn-0", True, None), ("s3://data/b/txn-0", False, None)]


def test_a_wrong_secret_is_one_sentence_without_it(session: Any, s3: dict[str, str]) -> None:
    wrong = {**s3, "aws_secret_access_key": "not-the-secret-at-all"}
    with pytest.raises(Exception, match="403 Forbidden") as caught:
        rows(session, "s3://golden/real/clean", wrong)
    assert "not-the-secret-at-all" not in str(caught.value)


def test_options_of_the_store_are_found_and_hidden() -> None:
    options = parse_options({"path": "s3://bucket/data", "AWS_Secret_Access_Key": "hush",
                             "storage.max_requests": "3", "storage.allow_http": "true"})
    assert options.storage.max_requests == 3
    assert dict(options.storage)["aws_secret_access_key"] == "hush"
    assert "hush" not in repr(options)
