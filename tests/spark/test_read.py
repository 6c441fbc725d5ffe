"""`format("seglog")` on directories of a real broker, compared with what a consumer received."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seglog.model import TopicPartition
from seglog.spark import register
from seglog.storage.partition_log import PartitionLog
from tests.support.effort import quick_first
from tests.support.golden import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("seglog")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load(str(path))


def truth(golden: Path, state: str, tp: str, committed: bool = False) -> list[Row]:
    rows = []
    for line in (golden / "real" / "truth" / state / f"{tp}.jsonl").read_text().splitlines():
        row = json.loads(line)
        if committed and not row["committed"]:
            continue
        kind = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}[row["timestamp_type"]]
        headers = [(name, decode(value)) for name, value in row["headers"]] or None
        rows.append((row["offset"], row["timestamp"] * 1000, kind, decode(row["key"]),
                     decode(row["value"]), headers))
    return rows


def rows_by_partition(frame: DataFrame) -> list[tuple[str, Row]]:
    """("topic-partition", row) of every record by offset, with rows in the form of `truth`."""
    from pyspark.sql.functions import unix_micros

    columns = ("topic", "partition", "offset", unix_micros("timestamp"), "timestampType", "key",
               "value", "headers")
    rows = sorted(frame.select(*columns).collect(), key=lambda row: row[:3])
    return [(f"{row[0]}-{row[1]}", (row[2], row[3], row[4], _copy(row[5]), _copy(row[6]),
             None if row[7] is None else [(pair[0], _copy(pair[1])) for pair in row[7]]))
            for row in rows]


def rows_of(frame: DataFrame) -> list[Row]:
    return [row for _, row in rows_by_partition(frame)]


def _copy(cell: bytes | bytearray | None) -> bytes | None:
    return None if cell is None else bytes(cell)


@pytest.mark.parametrize("state", ["clean", "unclean"])
@pytest.mark.parametrize("level", quick_first(["read_committed", "read_uncommitted"], 1))
def test_every_partition_equals_its_truth(spark: SparkSession, golden: Path, state: str,
                                          level: str) -> None:
    frame = read(spark, golden / "real" / state, includeHeaders=True,
                 kafka__isolation__level=level)
    found: dict[str, list[Row]] = {}
    for tp, row in rows_by_partition(frame):
        found.setdefault(tp, []).append(row)
    expected = {path.stem: truth(golden, state, path.stem, level == "read_committed")
                for path in (golden / "real" / "truth" / state).glob("*.jsonl")}
    assert len(expected) > 15
    # Like a consumer's pattern, a query without a subscription skips internal topics.
    assert found == {tp: rows for tp, rows in expected.items()
                     if rows and not tp.startswith("__")}


def test_schema_is_that_of_the_kafka_source(spark: SparkSession, golden: Path) -> None:
    base = ("struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
            "timestamp:timestamp,timestampType:int")
    path = golden / "real" / "clean"
    assert read(spark, path).schema.simpleString() == base + ">"
    assert (read(spark, path, includeHeaders=True).schema.simpleString()
            == base + ",headers:array<struct<key:string,value:binary>>>")


def test_columns_option_and_user_schema(spark: SparkSession, golden: Path) -> None:
    path = golden / "real" / "clean" / "txn-1"
    expected = truth(golden, "clean", "txn-1")
    frame = read(spark, path, columns="offset,topic")
    assert frame.columns == ["offset", "topic"]
    assert sorted(map(tuple, frame.collect())) == [(row[0], "txn") for row in expected]
    assert read(spark, path, columns="topic,partition").count() == len(expected)
    chosen = spark.read.format("seglog").schema("value binary, offset long").load(str(path))
    assert [_copy(row.value) for row in chosen.orderBy("offset").collect()] == [
        row[4] for row in expected]
    with pytest.raises(Exception, match="no column 'size'"):
        read(spark, path, columns="offset,size").count()
    with pytest.raises(Exception, match="has no column 'offset' of type string"):
        spark.read.format("seglog").schema("offset string").load(str(path)).count()


def test_splits_inside_a_partition(spark: SparkSession, golden: Path) -> None:
    path = golden / "real" / "clean"
    expected = truth(golden, "clean", "plain-zstd-0")
    frame = read(spark, path, subscribe="plain-zstd", minPartitions=12, includeHeaders=True)
    assert frame.rdd.getNumPartitions() >= 12
    assert rows_of(frame) == expected
    one = read(spark, path, subscribe="plain-zstd", includeHeaders=True)
    assert one.rdd.getNumPartitions() == 1  # five small segments are one task


def test_strategies(spark: SparkSession, golden: Path) -> None:
    path = golden / "real" / "clean"

    def partitions(**options: object) -> set[str]:
        found = read(spark, path, columns="topic,partition", **options).distinct().collect()
        return {f"{row.topic}-{row.partition}" for row in found}

    assert partitions(assign='{"txn":[1]}') == {"txn-1"}
    assert partitions(subscribe="txn,big") == {"txn-0", "txn-1", "big-0"}
    assert partitions(subscribePattern="plain-.*") == {
        f"plain-{codec}-0" for codec in ("none", "gzip", "snappy", "lz4", "zstd")}
    assert partitions(subscribePattern="nothing-here") == set()
    assert partitions(subscribe="__consumer_offsets") == {"__consumer_offsets-0"}
    assert partitions(subscribe="empty") == set()
    for strategy in ({"subscribe": "txn,gone"}, {"assign": '{"txn":[7]}'}):
        with pytest.raises(Exception, match="is not here"):
            partitions(**strategy)


def test_offsets_and_timestamps(spark: SparkSession, golden: Path) -> None:
    path = golden / "real" / "clean"
    expected = truth(golden, "clean", "outoforder-0")

    def offsets(**options: object) -> list[int]:
        frame = read(spark, path, subscribe="outoforder", columns="offset", **options)
        return sorted(row.offset for row in frame.collect())

    every = [row[0] for row in expected]
    assert offsets(startingOffsets='{"outoforder":{"0":100}}',
                   endingOffsets='{"outoforder":{"0":140}}') == [
        offset for offset in every if 100 <= offset < 140]
    assert offsets(startingOffsets='{"outoforder":{"0":-2}}',
                   endingOffsets='{"outoforder":{"0":-1}}') == every
    stamp = sorted(row[1] for row in expected)[len(expected) // 2] // 1000
    first = next(row[0] for row in expected if row[1] // 1000 >= stamp)
    assert offsets(startingTimestamp=stamp) == [offset for offset in every if offset >= first]
    by_partition = f'{{"outoforder":{{"0":{stamp}}}}}'
    assert offsets(startingOffsetsByTimestamp=by_partition) == [o for o in every if o >= first]
    assert offsets(endingTimestamp=stamp) == [offset for offset in every if offset < first]
    beyond = max(row[1] for row in expected) // 1000 + 1
    assert offsets(endingTimestamp=beyond) == every
    assert offsets(startingTimestamp=beyond, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match="No offset matched"):
        offsets(startingTimestamp=beyond)
    with pytest.raises(Exception, match="must specify all TopicPartitions"):
        offsets(startingOffsets='{"txn":{"0":1}}')


def test_data_loss(spark: SparkSession, golden_copy: Any) -> None:
    root = golden_copy("real/clean")
    with pytest.raises(Exception, match="outside the log"):
        read(spark, root, assign='{"startoffset":[0]}',
             startingOffsets='{"startoffset":{"0":3}}').count()
    frame = read(spark, root, assign='{"startoffset":[0]}', failOnDataLoss=False,
                 startingOffsets='{"startoffset":{"0":3}}', columns="offset")
    assert min(row.offset for row in frame.collect()) == 253
    # One flipped bit in the middle: the query fails with file and position, or continues after it.
    log = PartitionLog.open(root / "plain-none-0")
    segment = log.segments[1]
    batch = next(iter(log.batches(segment.base_offset)))
    with open(segment.files.log, "r+b") as file:
        file.seek(batch.position + 70)
        byte = file.read(1)
        file.seek(batch.position + 70)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(Exception, match="CorruptRecordError"):
        read(spark, root, subscribe="plain-none").count()
    left = read(spark, root, subscribe="plain-none", failOnDataLoss=False, columns="offset")
    offsets = {row.offset for row in left.collect()}
    assert batch.base_offset not in offsets
    assert {0, log.log_end_offset - 1} <= offsets
    assert not offsets & set(range(batch.base_offset, batch.next_offset))
    assert len(offsets) == log.log_end_offset - (batch.next_offset - batch.base_offset)


def test_register_and_several_paths(spark: SparkSession, golden: Path) -> None:
    register(spark)
    assert read(spark, golden / "real" / "clean" / "txn-0").count() == len(
        truth(golden, "clean", "txn-0"))
    both = f"{golden}/real/clean/txn-0,{golden}/real/clean/txn-1"
    assert (spark.read.format("seglog").load(both).count()
            == len(truth(golden, "clean", "txn-0")) + len(truth(golden, "clean", "txn-1")))
    assert (spark.read.format("seglog").load([f"{golden}/real/clean/txn-0"] * 2).count()
            == len(truth(golden, "clean", "txn-0")))


def test_tasks_are_picklable(golden: Path) -> None:
    import pickle

    from seglog.spark.read_options import parse_options
    from seglog.spark.plan import plan_partitions

    tasks = plan_partitions(parse_options({"path": str(golden / "real" / "clean" / "txn-0")}))
    copies = pickle.loads(pickle.dumps(tasks))
    assert [task.ranges for task in copies] == [task.ranges for task in tasks]
    assert copies[0].topic_partition == TopicPartition("txn", 0)


def test_tasks_that_give_few_bytes_read_more(
        golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks grow without the binary columns and with filters that drop rows, unless an option sets
    their size. The ranges are the same."""
    from seglog.spark import plan
    from seglog.spark.filters import Pushed
    from seglog.spark.read_options import parse_options

    monkeypatch.setattr(plan, "SPLIT_BYTES", 2000)
    monkeypatch.setattr(plan, "_LIGHT_SPLIT_BYTES", 8000)
    path = str(golden / "real" / "clean" / "plain-none-0")
    options = parse_options({"path": path})
    wide = plan.plan_partitions(options)
    total = sum(one.size for task in wide for one in task.ranges)
    assert len(wide) > total // 4000 > 16
    for light in (plan.plan_partitions(options, is_narrow=True),
                  plan.plan_partitions(options, Pushed(keys=frozenset([b"k"])))):
        assert total // 8000 <= len(light) <= total // 4000
        assert [one for task in light for one in task.ranges] == [
            one for task in wide for one in task.ranges]
    asked = parse_options({"path": path, "maxPartitionBytes": "2000"})
    assert len(plan.plan_partitions(asked, is_narrow=True)) == len(wide)


def test_a_query_of_records_imports_what_it_needs() -> None:
    """Spark starts a Python for each step of a plan, so that each import costs every query."""
    code = ("import sys; from pyspark_seglog import DefaultSource; "
            "from seglog.spark.source_reader import SeglogReader; import seglog.spark.streaming; "
            "print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules} & {"
            "'seglog.recovery', 'seglog.log', 'seglog.manager', 'seglog.scrub', 'seglog.dump', "
            "'seglog.tiered', 'seglog.fragments', 'pandas', 'pyarrow.compute'}))")
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "\n"


def test_what_the_package_names_is_there() -> None:
    code = ("import seglog.spark as it; print(it.functions.decode_batches, callable(it.session), "
            "*(getattr(it, name) for name in it.__all__), it.filters, it.functions, dir(it))")
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert " True " in told.stdout and "seglog.spark.filters" in told.stdout


def test_unknown_names_are_explained(spark: SparkSession, golden: Path) -> None:
    path = str(golden / "real" / "clean")
    for options, sentence in (({"subscribe": "tnx"}, "did you mean 'txn'"),
                              ({"assign": '{"txn":[0,4]}'}, "txn has 0 to 1"),
                              ({"assign": '{"txm":[0]}'}, "did you mean 'txn'")):
        with pytest.raises(Exception, match=sentence):
            spark.read.format("seglog").options(**options).load(path).count()
    with pytest.raises(Exception, match="did you mean .*/real/clean"):
        spark.read.format("seglog").load(str(golden / "real")).count()
