"""One query in two formats: Spark's own Kafka source reads from a broker, ours from its directory.

Each set of options gives the same rows, schema and tasks in both, or the same class of error.
docs/spark.md and DIFFERENT below list the intended differences.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from seglog.storage.partition_log import PartitionLog
from tests.kafka import harness, workload
from tests.kafka.jars import spark_kafka_jars
from tests.spark.kafka_options import FIRST_MS, TABLE, TRIMMED, TRIMMED_END, WIDE, Options, draw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.judge, pytest.mark.kafka]

TOPICS = tuple(workload.TOPICS)
DRAWN = int(os.environ.get("SEGLOG_SPARK_OPTIONS", "25"))
SEED = int(os.environ.get("SEGLOG_SPARK_OPTIONS_SEED", "0"))
#: The classes of Spark's exception and ours, by the text of Spark's exception.
CLASSES = (
    (r"Some data may have been lost", "OffsetOutOfRangeError"),
    (r"KafkaIllegalStateException", "IllegalStateError"),
    (r"UnknownTopicOrPartitionException", "UnknownTopicOrPartitionError"),
    # java.lang.IllegalArgumentException, and others that are also ValueError in Python.
    (r"", "ValueError"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    with harness.required():
        harness.java_command()
        harness.library()
        harness.compiled("Client")
        spark_kafka_jars()
    # The directory then has the log start soon, while the broker runs.
    extra = {"log.initial.task.delay.ms": "0",
             "log.flush.start.offset.checkpoint.interval.ms": "200"}
    with harness.Broker(tmp_path_factory.mktemp("broker"), extra) as running:
        with harness.Client(running.bootstrap) as client:
            rng = random.Random(5)
            for topic, config in workload.TOPICS.items():
                client.create_topic(topic, config=config)
            workload.produce_mix(client, rng, 6)
            workload.produce_transactions(client, rng, 6, leave_open=True)
            write_topics(client, rng)
            wait_for_log_start(running)
            yield running


def write_topics(client: harness.Client, rng: random.Random) -> None:
    """Writes the topics that tests/spark/kafka_options.py uses."""
    config = {**workload.SMALL, "retention.ms": "-1"}
    client.create_topic("wide", partitions=len(WIDE), config=config)
    for partition, count in WIDE.items():
        if count:
            client.produce("wide", records(rng, count), partition=partition)
    client.create_topic("trimmed", config=config)
    client.produce("trimmed", records(rng, TRIMMED_END))
    client.ask("delete_records", topic="trimmed", partition=0, before=TRIMMED)
    client.create_topic("__hidden")
    client.produce("__hidden", workload.records(rng, 5))


def wait_for_log_start(broker: harness.Broker) -> None:
    """Waits until the directory and the broker agree on the log start of "trimmed"."""
    end = time.monotonic() + 300
    while PartitionLog.open(broker.data_dir / "trimmed-0").log_start_offset != TRIMMED:
        assert time.monotonic() < end, "the broker writes no log start offset"
        time.sleep(0.1)


def records(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [{**record, "timestamp": FIRST_MS + 1000 * number}
            for number, record in enumerate(workload.records(rng, count))]


def both(spark: SparkSession, broker: harness.Broker, **options: object
         ) -> tuple[DataFrame, DataFrame]:
    named = {name.replace("__", "."): str(value) for name, value in options.items()}
    return kafka(spark, broker, named), seglog(spark, broker, named)


def kafka(spark: SparkSession, broker: harness.Broker, options: Options) -> DataFrame:
    return (spark.read.format("kafka").options(**{name: str(options[name]) for name in options})
            .option("kafka.bootstrap.servers", broker.bootstrap)
            # At the end of a log a fetch waits, and a poll for what is beyond it.
            .option("kafka.fetch.max.wait.ms", "10")
            .option("kafkaConsumer.pollTimeoutMs", "3000")
            .option("fetchOffset.numRetries", "1")
            .option("fetchOffset.retryIntervalMs", "10").load())


def seglog(spark: SparkSession, broker: harness.Broker, options: Options) -> DataFrame:
    return (spark.read.format("seglog").options(**{name: str(options[name]) for name in options})
            .load(str(broker.data_dir)))


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_rows_and_schemas_are_equal(spark: SparkSession, broker: harness.Broker, level: str
                                    ) -> None:
    theirs, ours = both(spark, broker, subscribe=",".join(TOPICS), includeHeaders=True,
                        kafka__isolation__level=level)
    assert ours.schema == theirs.schema
    expected = rows(theirs)
    assert len(expected) > 100
    assert rows(ours) == expected


def outcome(frame_of: Any, spark: SparkSession, broker: harness.Broker, options: Options
            ) -> tuple[str, Any]:
    """("rows", schema and rows with their tasks) or ("error", text)."""
    from pyspark.sql.functions import spark_partition_id

    try:
        frame = frame_of(spark, broker, options)
        found = rows(frame.withColumn("task", spark_partition_id()))
        return "rows", (frame.schema, found)
    except Exception as error:
        java = getattr(error, "java_exception", None)
        return "error", f"{java or ''} {error}"


def tasks(found: list[Any]) -> dict[str, list[list[int]]]:
    """The offsets of each task of each partition, in order."""
    groups: dict[str, dict[int, list[int]]] = {}
    for row in found:
        groups.setdefault(f"{row.topic}-{row.partition}", {}).setdefault(row.task, []).append(
            row.offset)
    return {name: sorted(parts.values()) for name, parts in groups.items()}


def given(options: Options, name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def check(spark: SparkSession, broker: harness.Broker, options: Options, *,
          may_be_several: bool = False) -> str:
    """Compares one set of options with Spark's source; returns the kind of outcome.
    `may_be_several`: more than one partition may be refused, and Spark may name another first."""
    kind, theirs = outcome(kafka, spark, broker, options)
    our_kind, ours = outcome(seglog, spark, broker, options)
    least = int(given(options, "minPartitions") or 0) if kind == "rows" else 0
    if least and kind != our_kind and "The resolved start offset" in ours:
        return "rows"  # with minPartitions Spark omits such a partition
    assert our_kind == kind, (options, ours, theirs)
    if kind == "rows":
        assert ours[0] == theirs[0], options
        assert [row[:-1] for row in ours[1]] == [row[:-1] for row in theirs[1]], options
        # Spark counts empty partitions and missing offsets.
        is_lossy = (given(options, "failOnDataLoss") or "").lower() == "false"
        if not least or (least > len(WIDE) and not is_lossy):
            assert tasks(ours[1]) == tasks(theirs[1]), options
        return "rows"
    expected = next(name for text, name in CLASSES if re.search(text, theirs))
    found = re.search(r"(?:seglog\.errors\.)?(\w+Error): ", ours)
    several = {"IllegalStateError", "OffsetOutOfRangeError", "ValueError"}
    assert found and (found[1] == expected or (
        may_be_several and {found[1], expected} <= several)), (options, ours, theirs)
    assert "Traceback" not in ours and len(ours.strip().splitlines()) <= 2, ours
    return expected


@pytest.mark.parametrize("part", range(4))
def test_each_option_does_what_it_does_there(spark: SparkSession, broker: harness.Broker,
                                             part: int) -> None:
    done = [check(spark, broker, options) for options in TABLE[part::4]]
    assert done.count("rows") > 3 and done.count("ValueError") > 3


def test_mixtures_of_options_do_what_they_do_there(spark: SparkSession, broker: harness.Broker
                                                   ) -> None:
    """Tests SEGLOG_SPARK_OPTIONS combinations, drawn from SEGLOG_SPARK_OPTIONS_SEED on."""
    done = []
    for seed in range(SEED, SEED + DRAWN):
        try:
            done.append(check(spark, broker, draw(seed), may_be_several=True))
        except AssertionError as error:
            raise AssertionError(f"mixture {seed}: {error}") from None
    assert done.count("rows") >= DRAWN // 4


#: (options, what Spark's Kafka source does, what we do): the table in docs/spark.md.
DIFFERENT: tuple[tuple[Options, str, str], ...] = (
    ({}, "error", "rows"),
    ({"assign": '{"wide":[0,9]}'}, "rows", "UnknownTopicOrPartitionError"),
    ({"subscribe": "__consumer_offsets"}, "error", "UnknownTopicOrPartitionError"),
    ({"subscribe": "wide", "startingOffset": "latest"}, "rows", "ValueError"),
    ({"assign": '{"wide":[0]}', "startingOffsets": '{"wide":{"0":1.0}}'}, "rows", "ValueError"),
    ({"assign": '{"wide":[0]}', "startingOffsets": '{"wide":{"0":1}} x'}, "rows", "ValueError"),
    ({"subscribe": "txn", "kafka.isolation.level": "READ_COMMITTED"}, "error", "rows"),
)


def test_what_differs_on_purpose(spark: SparkSession, broker: harness.Broker) -> None:
    for options, theirs, ours in DIFFERENT:
        assert outcome(kafka, spark, broker, options)[0] == theirs, options
        kind, found = outcome(seglog, spark, broker, options)
        assert (kind if kind == "rows" else found) and (
            kind == ours or re.search(rf"\b{ours}: ", found)), (options, found)
    # Spark divides by maxRecordsPerPartition only if it already knows the offsets.
    options = {"assign": '{"wide":[0]}', "maxRecordsPerPartition": "33"}
    assert len(tasks(outcome(kafka, spark, broker, options)[1][1])["wide-0"]) == 1
    assert len(tasks(outcome(seglog, spark, broker, options)[1][1])["wide-0"]) == 7


def test_offsets_in_a_record_batch(spark: SparkSession, broker: harness.Broker) -> None:
    """Bounds and tasks that begin inside a batch."""
    topic = TOPICS[0]
    everything = rows(both(spark, broker, subscribe=topic)[0])
    for place in (len(everything) // 3, len(everything) // 2):
        offset = everything[place].offset
        check(spark, broker, {"subscribe": topic, "minPartitions": 5,
                              "startingOffsets": json.dumps({topic: {"0": offset}})})
        check(spark, broker, {"subscribe": topic,
                              "endingOffsets": json.dumps({topic: {"0": offset}})})
