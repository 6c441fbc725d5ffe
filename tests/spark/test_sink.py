"""`df.write` and `df.writeStream` to a data directory write what Spark's Kafka sink would send."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import seglog
from seglog._native.murmur2 import murmur2
from seglog.config import LogConfig
from seglog.fragments import check_target
from seglog.spark import register
from seglog.spark.sink import _column
from seglog.spark.sink_options import SinkOptions, check_columns, parse_sink_options
from seglog.spark.source_schema import HEADERS
from tests.fragments.jobs import left_over
from tests.fragments.test_publish import check_sound
from tests.support import reading
from tests.support.effort import quick_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import BinaryType, StructType, TimestampNTZType, TimestampType

ROWS = 300


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def ddl(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


def records(session: SparkSession, count: int = ROWS, parts: int = 3) -> DataFrame:
    return session.range(0, count, 1, parts).selectExpr(
        "if(id % 5 = 0, null, cast(id as string)) AS key",
        "cast(concat('value ', id) as binary) AS value",
        "if(id % 3 = 0, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) "
        "AS headers",
        "timestamp_millis(1700000000000 + id) AS timestamp", "id AS not_of_a_record")


def written(data_dir: Path) -> dict[str, list[dict[str, Any]]]:
    with seglog.open_data_dir(data_dir) as opened:
        return {str(key): reading.read_rows(log) for key, log in opened.logs.items()}


def save(frame: DataFrame, data_dir: Path, **options: str) -> None:
    frame.write.format("seglog").mode("append").options(**options).save(str(data_dir))


def test_a_data_frame_becomes_logs_and_is_continued(session: SparkSession, tmp_path: Path) -> None:
    """Keys go where Kafka's producers send them, rows without keys go evenly, tasks keep order."""
    frame, options = records(session), {"topic": "a", "kafka.num.partitions": "3",
                                        "kafka.compression.type": "zstd"}
    save(frame, tmp_path / "new", **options)
    save(frame, tmp_path / "new", **options)
    found = written(tmp_path / "new")
    assert sorted(found) == ["a-0", "a-1", "a-2"] and left_over(tmp_path / "new") == []
    keyless: Counter[str] = Counter()
    for name, rows in found.items():
        assert [row["offset"] for row in rows] == list(range(len(rows)))
        for row in rows:
            number = int(row["value"].split()[1])
            assert row["key"] == (None if number % 5 == 0 else b"%d" % number)
            assert row["timestamp"] == 1_700_000_000_000 + number
            assert row["headers"] == ([{"key": "h", "value": b"x"}] if number % 3 == 0 else [])
            if row["key"] is None:
                keyless[name] += 1
            else:
                assert name == f"a-{(murmur2(row['key']) & 0x7fffffff) % 3}"
        half = [row["value"] for row in rows[:len(rows) // 2]]
        assert half == [row["value"] for row in rows[len(rows) // 2:]]
        assert [row["timestamp"] for row in rows[:len(half)]] == sorted(
            row["timestamp"] for row in rows[:len(half)])
    values = Counter(row["value"] for rows in found.values() for row in rows)
    assert len(values) == ROWS and set(values.values()) == {2}
    assert max(keyless.values()) - min(keyless.values()) <= 6  # 3 tasks, 2 jobs
    check_sound(tmp_path / "new")


def test_topic_and_partition_columns(session: SparkSession, tmp_path: Path) -> None:
    frame = session.range(0, 40, 1, 2).selectExpr(
        "concat('t', id % 2) AS topic", "cast(id as string) AS value",
        "if(id < 20, cast(id % 4 as int), null) AS partition", "id + 0.5D AS timestamp")
    save(frame, tmp_path, **{"num.partitions": "4"})
    found = written(tmp_path)
    assert sorted(found) == [f"t{topic}-{number}" for topic in range(2) for number in range(4)]
    for name, rows in found.items():
        for row in rows:
            number = int(row["value"])
            assert name.startswith(f"t{number % 2}-") and row["timestamp"] == number * 1000 + 500
            assert number >= 20 or name.endswith(f"-{number % 4}")
    assert sum(map(len, found.values())) == 40
    # An option overrides a column, as in Spark's Kafka sink.
    save(frame, tmp_path / "other", topic="one", **{"num.partitions": "4"})
    assert {name.partition("-")[0] for name in written(tmp_path / "other")} == {"one"}


@pytest.mark.parametrize(("columns", "options", "said"), quick_each([
    pytest.param(
        ["'v' AS value", "cast(null as string) AS topic"], {},
        "null topic present in the data. Use the topic option for setting a default topic."),
    pytest.param(
        ["'v' AS value", "if(id = 7, 3, 0) AS partition"], {"topic": "a", "num.partitions": "3"},
        r"Invalid partition given with record: 3 is not in the range \[0...3\)"),
    pytest.param(["'v' AS value", "'no/topic' AS topic"], {}, "Topic name is invalid"),
    pytest.param(["repeat('v', 2000) AS value"], {"topic": "a", "max.message.bytes": "1000"},
                 "exceeds the maximum configured value of 1000"),
    pytest.param(
        ["'v' AS value", "array(named_struct('key', cast(null as string), 'value', "
         "cast('x' as binary))) AS headers"], {"topic": "a"}, "[Nn]ull header key"),
    pytest.param(["'v' AS value", "if(id = 7, double('NaN'), 0D) AS timestamp"], {"topic": "a"},
                 "Invalid timestamp nan: expected seconds since 1970"),
], 3))
def test_rows_that_are_no_records_leave_nothing(
        session: SparkSession, tmp_path: Path, columns: list[str], options: dict[str, str],
        said: str) -> None:
    with pytest.raises(PySparkException, match=said) as refused:
        save(session.range(10).selectExpr(*columns), tmp_path, **options)
    assert "Traceback" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_only_append(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="only appends"):
        records(session).write.format("seglog").mode("overwrite").option("topic", "a").save(
            str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_a_stream_commits_each_batch_once(session: SparkSession, tmp_path: Path) -> None:
    """Spark repeats the last micro-batch after a restart if it finds no commit of it."""
    source, data_dir, checkpoint = tmp_path / "in", tmp_path / "data", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        query = (session.readStream.schema("value string").json(str(source))
                 .writeStream.format("seglog").option("topic", "s").option("num.partitions", "2")
                 .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
                 .start(str(data_dir)))
        query.awaitTermination()

    for number in range(2):
        (source / f"{number}.json").write_text(
            "".join(json.dumps({"value": f"{number} {row}"}) + "\n" for row in range(20)))
        run()
        (checkpoint / "commits" / str(number)).unlink()
        (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
    run()
    values = [row["value"].decode() for rows in written(data_dir).values() for row in rows]
    assert sorted(values) == sorted(f"{number} {row}" for number in range(2) for row in range(20))
    check_target(str(data_dir))
    assert left_over(data_dir) == []
    check_sound(data_dir)


# ---- without a session --------------------------------------------------------------------------

@pytest.mark.parametrize(("schema", "topic", "said"), [
    ("value string", None, "topic option required when no 'topic' attribute is present. Use the "
                           "topic option for setting a topic."),
    ("topic string", None, "Required attribute 'value' not found"),
    ("value int", "t", "value attribute unsupported type int. value must be a(n) string or binary"),
    ("value string, topic int", None,
     "topic attribute unsupported type int. topic must be a(n) string"),
    ("value string, key bigint", "t",
     "key attribute unsupported type bigint. key must be a(n) string or binary"),
    ("value string, partition bigint", "t",
     "partition attribute unsupported type bigint. partition must be a(n) int"),
    ("value string, headers array<string>", "t",
     "headers attribute unsupported type array<string>. headers must be a(n) "
     "array<struct<key:string,value:binary>>"),
    ("value string, timestamp string", "t",
     "timestamp attribute unsupported type string. timestamp must be a(n) double or timestamp"),
])
def test_columns_are_refused_as_by_the_kafka_sink(session: SparkSession, schema: str,
                                                  topic: str | None, said: str) -> None:
    """The messages are those of KafkaWriter.validateQuery."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        check_columns(ddl(schema), topic)
    check_columns(ddl("value binary, topic int, other map<int, int>"), "t")


@pytest.mark.parametrize(("name", "value"), [
    ("num.partitions", "0"), ("num.partitions", "x"), ("batch.size", "-1"),
    ("kafka.segment.bytes", "13"), ("segment.bytes", "2147483648"), ("compression.type", "rar"),
    ("num.partitions", "2147483647"), ("path", " "), ("path", "s3://bucket/data"),
    ("path", "hdfs://node/data"), ("path", "file://node/data")])
def test_options_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"Option '|writes to a |names the host 'node'"):
        parse_sink_options({"path": "/data", name: value})


@pytest.mark.parametrize(("name", "meant"), [
    ("numPartitions", "num.partitions"), ("partitions", "num.partitions"), ("Topics", "topic"),
    ("kafka.num.partitons", "num.partitions"), ("compression", "compression.type"),
    ("log.segment.bytes", "segment.bytes")])
def test_a_misspelt_option_is_refused(name: str, meant: str) -> None:
    """It would be ignored, and a topic would get one partition."""
    with pytest.raises(ValueError, match=f"is unknown; did you mean '{meant}'"):
        parse_sink_options({"path": "/data", name: "1"})


def test_settings_of_topics_and_clients_are_ignored() -> None:
    """Also those whose names are near to an option's, such as segment.index.bytes."""
    names = [field.name.replace("_", ".") for field in fields(LogConfig)]
    names += ["kafka.bootstrap.servers", "kafka.acks", "kafka.linger.ms", "kafka.max.request.size",
              "checkpointLocation", "queryName", "outputMode", "mode"]
    known = {"compression.type", "segment.bytes", "index.interval.bytes", "max.message.bytes"}
    assert parse_sink_options({"path": "/data"} | {
        name: "x" for name in names if name not in known}) == SinkOptions("/data")


def test_options() -> None:
    assert parse_sink_options({"PATH": "/data"}) == SinkOptions("/data")
    for path in ("file:/data", "file:///data", "file://localhost/data"):
        assert parse_sink_options({"path": path, "topic": " t "}) == SinkOptions("/data", "t")
    assert parse_sink_options({
        "path": "/data", "topic": "t", "kafka.bootstrap.servers": "ignored", "Num.Partitions": "5",
        "kafka.compression.type": "LZ4", "kafka.batch.size": "1000", "segment.bytes": "2000",
        "index.interval.bytes": "0", "max.message.bytes": "7"}) == SinkOptions(
            "/data", "t", 5, "lz4", 1000, 2000, 0, 7)


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local time zone of this process."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"], indirect=True)
def test_rows_before_pyspark_4_1_are_the_same_records(zone: str) -> None:
    """Its stream writers get rows, whose timestamps are local time without a zone."""
    schema = (StructType().add("value", BinaryType()).add("timestamp", TimestampType())
              .add("headers", HEADERS).add("other", TimestampNTZType()))
    moments = [None, *(datetime(2023, month, 1, month, 30, tzinfo=UTC) for month in range(1, 10))]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table({
        "value": pa.array([b"v"] * 10), "timestamp": pa.array(moments, pa.timestamp("us", "UTC")),
        "headers": pa.array([[{"key": "k", "value": b"w"}]] * 10, pa.list_(header)),
        "other": pa.array([datetime(2023, 7, 1)] * 10, pa.timestamp("us"))})
    rows = ArrowTableToRowsConversion.convert(table, schema)
    for number, column in enumerate(table.itercolumns()):
        found = _column([row[number] for row in rows], column.type)
        assert found.equals(column.combine_chunks()), (zone, table.column_names[number])
