"""Handover between disk and broker: our source and Spark's Kafka source take turns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seglog.spark import end_offsets
from tests.kafka import harness
from tests.kafka.jars import spark_kafka_jars
from tests.spark.queries import finished
from tests.support.documents import examples_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.judge, pytest.mark.kafka]

TOPIC = "orders"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    with harness.required():
        harness.java_command()
        harness.library()
        harness.compiled("Client")
        spark_kafka_jars()
    with harness.Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: harness.Broker) -> Iterator[harness.Client]:
    with harness.Client(broker.bootstrap) as asked:
        yield asked


class Producer:
    """Numbers every record of a topic, so that lost and duplicate records are visible."""

    def __init__(self, client: harness.Client, topic: str) -> None:
        client.create_topic(topic, partitions=2)
        self._client, self.topic, self.count = client, topic, 0

    def produce(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self._client.produce(self.topic, [{"key": b"k", "value": b"%d" % number}],
                                 partition=number % 2)
        self.count += count

    @property
    def every_record_once(self) -> Counter[int]:
        return Counter(range(self.count))


def values(frame: DataFrame) -> Counter[int]:
    return Counter(int(row.value) for row in frame.select("value").collect())


def test_a_backfill_continues_on_the_broker(spark: SparkSession, broker: harness.Broker,
                                            client: harness.Client, tmp_path: Path) -> None:
    orders = Producer(client, "backfill")
    orders.produce(25)
    end = end_offsets(broker.data_dir, subscribe="backfill")
    assert json.loads(end) == {"backfill": {"0": 13, "1": 12}}
    orders.produce(10)
    backfill = (spark.read.format("seglog").option("subscribe", "backfill")
                .option("endingOffsets", end).load(str(broker.data_dir)))
    found = values(backfill)
    assert sum(found.values()) == 25

    def collect(frame: DataFrame, batch: int) -> None:
        found.update(values(frame))
    live = (spark.readStream.format("kafka").option("subscribe", "backfill")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("startingOffsets", end).load())
    finished(live.writeStream.foreachBatch(collect).trigger(availableNow=True)
             .option("checkpointLocation", str(tmp_path / "checkpoint")))
    assert found == orders.every_record_once


def test_the_example_of_the_page(spark: SparkSession, broker: harness.Broker,
                                 client: harness.Client) -> None:
    orders = Producer(client, "orders")
    orders.produce(12)
    [example] = examples_of("spark.md")["Hand-over between disk and broker"]
    names: dict[str, Any] = {"spark": spark}
    exec(example.replace("/var/lib/kafka/data", str(broker.data_dir))
         .replace("localhost:9092", broker.bootstrap), names)
    orders.produce(5)
    found = values(names["backfill"])
    assert sum(found.values()) == 12
    finished(names["live"].writeStream.trigger(availableNow=True)
             .foreachBatch(lambda frame, _: found.update(values(frame))))
    assert found == orders.every_record_once


@pytest.mark.parametrize("formats", [("seglog", "kafka", "seglog"), ("kafka", "seglog", "kafka")])
def test_a_checkpoint_continues_on_the_other_source(
        spark: SparkSession, broker: harness.Broker, client: harness.Client, tmp_path: Path,
        formats: tuple[str, ...]) -> None:
    topic = f"from-{formats[0]}"
    orders = Producer(client, topic)
    found: Counter[int] = Counter()

    def collect(frame: DataFrame, batch: int) -> None:
        found.update(values(frame))

    def run(name: str) -> Any:
        reader = (spark.readStream.format(name).option("subscribe", topic)
                  .option("startingOffsets", "earliest"))
        if name == "kafka":
            frame = reader.option("kafka.bootstrap.servers", broker.bootstrap).load()
        else:
            frame = reader.load(str(broker.data_dir))
        finished(frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
                 .option("checkpointLocation", str(tmp_path / "checkpoint")))
    for name in formats:
        orders.produce(15)
        run(name)
        assert found == orders.every_record_once, name
