"""One query, two formats: Spark's own Kafka source asks the broker, ours reads its directory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka import harness, workload
from tests.kafka.jars import spark_kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.kafka

TOPICS = tuple(workload.TOPICS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    try:
        harness.java_command()
        harness.library()
        harness.compiled("Client")
        spark_kafka_jars()
    except harness.KafkaUnavailable as error:
        pytest.skip(f"no real Kafka: {error}")
    with harness.Broker(tmp_path_factory.mktemp("broker")) as running:
        with harness.Client(running.bootstrap) as client:
            rng = random.Random(5)
            for topic, config in workload.TOPICS.items():
                client.create_topic(topic, config=config)
            workload.produce_mix(client, rng, 6)
            workload.produce_transactions(client, rng, 6, leave_open=True)
            yield running


def both(spark: SparkSession, broker: harness.Broker, **options: object
         ) -> tuple[DataFrame, DataFrame]:
    frames = []
    for name in ("kafka", "seglog"):
        reader = spark.read.format(name)
        for option, value in options.items():
            reader = reader.option(option.replace("__", "."), str(value))
        if name == "kafka":
            frames.append(reader.option("kafka.bootstrap.servers", broker.bootstrap).load())
        else:
            frames.append(reader.load(str(broker.data_dir)))
    return frames[0], frames[1]


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


def test_offsets_and_timestamps_are_equal(spark: SparkSession, broker: harness.Broker) -> None:
    topic = TOPICS[0]
    everything = rows(both(spark, broker, subscribe=topic)[0])
    offset = everything[len(everything) // 3].offset
    stamp = int(everything[len(everything) // 2].timestamp.timestamp() * 1000)
    for options in (
            {"startingOffsets": json.dumps({topic: {"0": offset}})},
            {"endingOffsets": json.dumps({topic: {"0": offset}})},
            {"startingTimestamp": stamp}, {"endingTimestamp": stamp},
            {"startingOffsetsByTimestamp": json.dumps({topic: {"0": stamp}})},
            {"minPartitions": 4}):
        theirs, ours = both(spark, broker, subscribe=topic, **options)
        assert rows(ours) == rows(theirs), options


def test_both_refuse_the_same_options(spark: SparkSession, broker: harness.Broker) -> None:
    topic = TOPICS[0]
    for options in ({"startingOffsets": "latest"}, {"endingOffsets": "earliest"},
                    {"startingOffsets": json.dumps({"other": {"0": 1}})},
                    {"startingOffsets": json.dumps({topic: {"0": -1}})},
                    {"assign": json.dumps({topic: [0]})},
                    {"startingTimestamp": 1 << 61}):
        for frame in range(2):
            with pytest.raises(Exception):
                both(spark, broker, subscribe=topic, **options)[frame].count()
