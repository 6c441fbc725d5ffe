"""Functions on columns: against Kafka's own classes, one value at a time, and from SQL."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row

from seglog._native.crc32c import crc32c
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.spark import decoding, encoding_rows, functions
from seglog.spark.decoding import Decoding
from seglog.storage.partition_log import PartitionLog
from tests.kafka.harness import required
from tests.kafka.jars import spark_kafka_jars
from tests.support import effort
from tests.support.effort import how_many, quick_first

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Each is also given to Kafka's classes in the JVM, which takes 50 ms.
VALUES = how_many("SEGLOG_FUNCTION_VALUES", 400, 150)
# PySpark warns of every pandas version newer than its own tests.
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")


def batch(count: int, base_offset: int = 0, **options: Any) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, **options)
    for number in range(count):
        builder.append(1000 + number, b"k%d" % number if number % 2 else None, b"v" * number,
                       [("h", b"x"), ("n", None)] if number % 3 == 0 else ())
    return builder.build()


def hostile(seed: int) -> list[bytes | None]:
    """Keys, valid batches, damaged batches, and random bytes."""
    rng = random.Random(seed)
    made: list[bytes | None] = [None, b"", b"\xff", b"foobar"]
    while len(made) < VALUES:
        data = bytearray(batch(rng.randrange(1, 5), rng.randrange(100),
                               codec=rng.choice(["none", "gzip", "zstd"])))
        for _ in range(rng.choice([0, 0, 1, 3])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < .2:
            del data[rng.randrange(len(data)):]
        made.append(rng.randbytes(rng.randrange(40)) if rng.random() < .5 else bytes(data))
    return made


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    functions.register_functions(spark)
    made = spark.createDataFrame(
        [(row, None if data is None else bytearray(data), row % 7 + 1)
         for row, data in enumerate(hostile(1))], "row int, data binary, n int")
    made.createOrReplaceTempView("hostile")
    return made


def kafka(spark: SparkSession) -> Any:
    """Kafka's own packages in Spark's JVM, which has the jars of tests/spark/conftest.py."""
    with required():
        spark_kafka_jars()
    return spark._jvm.org.apache.kafka


def is_valid(spark: SparkSession, packages: Any, data: bytes) -> bool:
    """Whether Kafka finds exactly one batch and it is valid."""
    from py4j.protocol import Py4JJavaError

    buffer = spark._jvm.java.nio.ByteBuffer.wrap(data)
    try:
        records = packages.common.record.MemoryRecords.readableRecords(buffer)
        batches = records.batches().iterator()
        if not batches.hasNext():
            return False
        first = batches.next()
        return bool(first.isValid()) and first.sizeInBytes() == len(data)
    except Py4JJavaError:
        return False


@pytest.mark.judge
def test_against_kafka(spark: SparkSession, frame: DataFrame) -> None:
    packages = kafka(spark)
    partitioner = packages.clients.producer.internals.BuiltInPartitioner
    found = frame.select("data", "n", functions.murmur2("data"),
                         functions.kafka_partition(frame.data, frame.n),
                         functions.is_valid_batch("data")).collect()
    valid = 0
    for data, count, murmur, partition, is_batch in found:
        if data is None:
            assert (murmur, partition, is_batch) == (None, None, None)
            continue
        assert murmur == packages.common.utils.Utils.murmur2(bytes(data))
        assert partition == partitioner.partitionForKey(bytes(data), count)
        assert is_batch == is_valid(spark, packages, bytes(data)), bytes(data)
        valid += is_batch
    assert VALUES / 8 < valid < VALUES * 7 / 8


def test_crc32c(frame: DataFrame) -> None:
    for data, found in frame.select("data", functions.crc32c("data")).collect():
        assert found == (None if data is None else crc32c(bytes(data)))


def test_from_sql(spark: SparkSession, frame: DataFrame) -> None:
    found = spark.sql("SELECT murmur2(data), kafka_partition(data, 6), crc32c(data), "
                      "is_valid_batch(data) FROM hostile ORDER BY row").collect()
    expected = frame.select(
        functions.murmur2("data"), functions.kafka_partition("data", 6), functions.crc32c("data"),
        functions.is_valid_batch("data"), "row").orderBy("row").collect()
    assert [tuple(row) for row in found] == [tuple(row)[:4] for row in expected]
    assert len({row[1] for row in found}) == 7  # six partitions and null


def test_text_keys_and_columns_of_nulls(spark: SparkSession, frame: DataFrame) -> None:
    assert spark.sql("SELECT murmur2('foobar'), murmur2(cast(null AS binary)), "
                     "crc32c('ä')").collect()[0][:] == (-790332482, None, crc32c("ä".encode()))
    empty = spark.createDataFrame([(None,), (None,)], "key binary")
    assert [row[0] for row in empty.select(functions.kafka_partition("key", 3)).collect()] == [
        None, None]


def test_a_null_number_of_partitions() -> None:
    """Of SQL's NULL without a type the column has Arrow's null type."""
    for count in (pa.nulls(2), pa.nulls(2, pa.int32())):
        found = functions._kafka_partition(pa.array([b"a", None]), count)
        assert found.type == pa.int32() and found.to_pylist() == [None, None]


@pytest.mark.parametrize(("query", "said"), [
    ("SELECT kafka_partition(data, 0) FROM hostile", "0 partitions, expected at least 1"),
    ("SELECT kafka_partition(data, -3) FROM hostile", "-3 partitions, expected at least 1"),
    ("SELECT murmur2(n) FROM hostile", "expected binary or string, found int32: cast the column"),
])
def test_refusals(spark: SparkSession, frame: DataFrame, query: str, said: str) -> None:
    with pytest.raises(Exception, match=said) as refused:
        spark.sql(query).collect()
    assert "Traceback" not in str(refused.value)


# ---- record batches to rows --------------------------------------------------------------------

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")


def chunks(spark: SparkSession, *values: bytes | None) -> DataFrame:
    return spark.createDataFrame([(row, None if one is None else bytearray(one))
                                  for row, one in enumerate(values)], "id int, content binary")


def offsets(frame: DataFrame) -> list[int | None]:
    return [row.offset for row in frame.select("offset").collect()]


@pytest.mark.judge
def test_decode_files_of_a_broker(spark: SparkSession, golden: Path) -> None:
    """For files read with `binaryFile`, the rows equal the source's, for every codec."""
    from seglog.spark import register

    register(spark)
    root = golden / "real" / "clean"
    folders = sorted(path for path in root.iterdir()
                     if path.is_dir() and not path.name.startswith("_") and "-delete" not in
                     path.name and any(path.glob("*.log")))[:12:3 if effort.IS_QUICK else 1]
    files = spark.read.format("binaryFile").load(
        [str(log) for folder in folders for log in folder.glob("*.log")])
    decoded = functions.decode_batches(files, keep=["path"])
    assert decoded.columns == ["path", *COLUMNS]
    for folder in folders:
        with PartitionLog.open(folder) as log:
            start = log.log_start_offset
        found = decoded.where(f"path like '%/{folder.name}/%' AND offset >= {start}").drop("path")
        read = spark.read.format("seglog").option("includeHeaders", "true").load(str(folder))
        assert (sorted(found.collect(), key=lambda row: row.offset)
                == sorted(read.select(*COLUMNS).collect(), key=lambda row: row.offset))


def test_batches_whose_offsets_begin_anew(spark: SparkSession) -> None:
    """Batches as from producers; zeros at the end as in a preallocated segment."""
    frame = chunks(spark, batch(3) + batch(2) + batch(1, 50) + bytes(4000), None, b"", batch(1))
    assert offsets(functions.decode_batches(frame)) == [0, 1, 2, 0, 1, 50, 0]


def test_the_decoded_column_can_be_kept(spark: SparkSession) -> None:
    rows = functions.decode_batches(chunks(spark, batch(2)), keep=["content", "id"]).collect()
    assert [(bytes(row.content), row.id, row.offset) for row in rows] == [
        (batch(2), 0, 0), (batch(2), 0, 1)]


def damaged() -> tuple[bytes, bytes]:
    """Batches with a bad one in the middle and a torn one at the end, and the bytes of both."""
    bad = bytearray(batch(4, 10))
    bad[-1] ^= 1
    return batch(2) + bytes(bad) + batch(2, 20) + batch(9, 30)[:-1], bytes(bad)


def test_modes(spark: SparkSession) -> None:
    data, bad = damaged()
    frame = chunks(spark, data, batch(1, 90))
    with pytest.raises(Exception, match="decode_batches"):
        functions.decode_batches(frame).collect()
    assert offsets(functions.decode_batches(frame, mode="dropmalformed")) == [0, 1, 20, 21, 90]
    permissive = functions.decode_batches(frame, mode="PERMISSIVE", keep=["id"])
    rows = permissive.collect()
    assert [(row.id, row.offset) for row in rows] == [
        (0, 0), (0, 1), (0, None), (0, 20), (0, 21), (0, None), (1, 90)]
    assert [None if row._corrupt_record is None else bytes(row._corrupt_record) for row in rows] \
        == [None, None, bad, None, None, batch(9, 30)[:-1], None]


def test_hostile_chunks(spark: SparkSession, frame: DataFrame) -> None:
    """For any bytes, only FAILFAST fails, and the parts together lose no row."""
    dropped = functions.decode_batches(frame, "data", mode="DROPMALFORMED").count()
    permissive = functions.decode_batches(frame, "data", mode="PERMISSIVE")
    assert permissive.where("_corrupt_record IS NULL").count() == dropped > 50
    assert permissive.where("_corrupt_record IS NOT NULL").count() > 50


def test_decode_in_sql(spark: SparkSession, frame: DataFrame) -> None:
    data, _ = damaged()
    chunks(spark, data, None, batch(3, 7)).createOrReplaceTempView("chunks")
    found = spark.sql("SELECT * FROM decode_batches(TABLE(chunks), 'DROPMALFORMED')")
    assert found.columns == list(COLUMNS)
    assert sorted(offsets(found)) == [0, 1, 7, 8, 9, 20, 21]
    lateral = spark.sql("SELECT id, d.* FROM chunks, LATERAL "
                        "decode_batches_of(content, 'DROPMALFORMED') d ORDER BY id, offset")
    assert lateral.columns == ["id", *COLUMNS]
    assert [(row.id, row.offset) for row in lateral.collect()] == [
        (0, 0), (0, 1), (0, 20), (0, 21), (2, 7), (2, 8), (2, 9)]
    assert (sorted(map(repr, lateral.drop("id").collect()))
            == sorted(map(repr, found.collect())))
    for query in ("decode_batches(TABLE(chunks))", "chunks, LATERAL decode_batches_of(content)"):
        with pytest.raises(Exception, match="batch is corrupt"):
            spark.sql(f"SELECT * FROM {query}").collect()


def test_decode_in_sql_of_large_arrow_types(spark: SparkSession, frame: DataFrame) -> None:
    chunks(spark, batch(3)).createOrReplaceTempView("large_chunks")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        found = spark.sql("SELECT * FROM decode_batches(TABLE(large_chunks))")
        assert sorted(offsets(found)) == [0, 1, 2]
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


@pytest.mark.parametrize(("options", "said"), [
    ({"mode": "STRICT"}, "mode is FAILFAST, DROPMALFORMED or PERMISSIVE, not 'STRICT'"),
    ({"column": "absent"}, "no column 'absent'; there are id, content"),
    ({"column": "id"}, "column 'id' must be binary, not int"),
    ({"keep": ["id", "id"]}, "two columns of the result would be named 'id'"),
])
def test_refusals_of_decode(spark: SparkSession, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        functions.decode_batches(chunks(spark, b""), **{"column": "content", **options})


# ---- rows to record batches --------------------------------------------------------------------

RECORDS = [(b"k%d" % n if n % 3 else None, b"v" * (n % 50) if n % 5 else None, 1_000_000 + n,
            [("h", b"x"), ("n", None)] if n % 4 == 0 else None) for n in range(2000)]


@pytest.fixture(scope="module")
def records(spark: SparkSession, frame: DataFrame) -> DataFrame:
    made = spark.createDataFrame(
        [(*row[:2], n, row[2], row[3]) for n, row in enumerate(RECORDS)],
        "key binary, value binary, row long, ms long, "
        "headers array<struct<key: string, value: binary>>").repartition(1).sortWithinPartitions(
            "row").selectExpr("key", "value", "row", "timestamp_millis(ms) AS timestamp",
                              "headers")
    made.createOrReplaceTempView("records")
    return made


@pytest.mark.parametrize("codec", quick_first(["zstd", "none", "gzip", "snappy", "lz4"], 2))
def test_encode(spark: SparkSession, records: DataFrame, codec: str) -> None:
    """The batches are valid and their records are the rows."""
    encoded = functions.encode_batches(records, codec=codec, max_batch_bytes=4096).cache()
    assert encoded.columns == ["batch", "record_count"]
    assert encoded.where(functions.is_valid_batch("batch")).count() == encoded.count() > 5
    assert encoded.selectExpr("sum(record_count)").first()[0] == len(RECORDS)
    found = functions.decode_batches(encoded, "batch").selectExpr(
        "key", "value", "unix_millis(timestamp)", "headers").collect()
    assert [(a and bytes(a), b and bytes(b), c, d and [(h.key, h.value and bytes(h.value))
                                                       for h in d])
            for a, b, c, d in found] == [(k, v or (v if v is None else b""), t, h)
                                         for k, v, t, h in RECORDS]


def test_encode_in_sql(spark: SparkSession, records: DataFrame) -> None:
    found = spark.sql("SELECT * FROM encode_batches(TABLE(SELECT key, value, row FROM records), "
                      "'zstd')")
    assert found.columns == ["batch", "record_count"]
    assert found.where("is_valid_batch(batch)").selectExpr(
        "sum(record_count)").first()[0] == len(RECORDS)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_rows_are_encoded_as_columns_are(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0's table functions get rows, with local time without a zone."""
    moment = datetime(2023, 7, 1, 12, 30, 0, 5000, UTC)
    rows = [Row(key=b"k", value=None, timestamp=moment, headers=[Row(key="h", value=b"x"),
                                                                 Row(key="n", value=None)]),
            Row(key=None, value=b"v", timestamp=None, headers=None)]
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        function = encoding_rows._ByRow()
        for row in rows:
            local = row.timestamp and row.timestamp.astimezone().replace(tzinfo=None)
            assert not list(function.eval(Row(**{**row.asDict(), "timestamp": local})))
        [(encoded, count)] = function.terminate()
    time.tzset()
    [found] = Decoding("", "FAILFAST").rows_of(encoded)
    assert (count, found.column("key").to_pylist()) == (2, [b"k", None])
    assert found.column("value").to_pylist() == [None, b"v"]
    assert found.column("timestamp")[0].as_py() == moment
    assert found.column("headers").to_pylist() == [
        [{"key": "h", "value": b"x"}, {"key": "n", "value": None}], None]


def test_a_row_without_its_content_has_no_records() -> None:
    """PySpark 4.0: another binary column of the row is not decoded instead."""
    function = decoding._ByRow()
    assert [row.offset for row in function.eval(Row(content=batch(2), key=b"k"))] == [0, 1]
    assert [row.offset for row in function.eval(Row(other=batch(2), number=3))] == [0, 1]
    assert not list(function.eval(Row(content=None, key=b"k")))


def test_refusals_of_encode(spark: SparkSession, records: DataFrame) -> None:
    with pytest.raises(ValueError, match="no column 'key' or 'value'; there are row"):
        functions.encode_batches(records.select("row"))
    with pytest.raises(Exception, match="brotli"):
        functions.encode_batches(records, codec="brotli").collect()
