"""What logs count: MBean names, what is registered when, and that meters follow counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from seglog.log.log_metrics import LogMetrics
from seglog.log.stats import BrokerTopicStats, flush_timer
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Log:
    topic_partition: TopicPartition = TopicPartition("orders", 3)
    is_future: bool = False
    number_of_segments: int = 2
    log_start_offset: int = 10
    log_end_offset: int = 20
    size: int = 50
    retention_size_in_percent: int = 25


@dataclass
class Counts:
    messages_in: int = 0
    bytes_in: int = 0
    messages_converted: int = 0
    replication_bytes_in: int = 0


def test_gauges_of_a_log() -> None:
    stats = BrokerTopicStats(MetricsRegistry())
    metrics = LogMetrics(Log(), stats, counts := Counts())
    metrics.register()
    counts.messages_in = 3
    tags = "topic=orders,partition=3"
    assert {name: one["Value"] for name, one in _of_logs(stats.registry).items()} == {
        f"kafka.log:type=Log,name=NumLogSegments,{tags}": 2,
        f"kafka.log:type=Log,name=LogStartOffset,{tags}": 10,
        f"kafka.log:type=Log,name=LogEndOffset,{tags}": 20,
        f"kafka.log:type=Log,name=Size,{tags}": 50,
        f"kafka.log:type=Log,name=RetentionSizeInPercent,{tags}": 25,
    }
    metrics.remove()
    metrics.remove()
    counts.messages_in = 4
    assert not _of_logs(stats.registry)
    assert stats.all_topics_stats.meter("MessagesInPerSec").count == 3


def _of_logs(registry: MetricsRegistry) -> dict[str, Any]:
    return {name: one for name, one in registry.snapshot().items() if name.startswith("kafka.log")}


def test_a_future_log_that_becomes_the_current_one() -> None:
    stats = BrokerTopicStats(registry := MetricsRegistry())
    current, future = Log(), Log(is_future=True, size=7)
    of_current, of_future = (
        LogMetrics(log, stats, Counts()) for log in (current, future))
    of_current.register()
    of_future.register()
    name = "kafka.log:type=Log,name=Size,topic=orders,partition=3"
    assert len(_of_logs(registry)) == 10 and f"{name},is-future=true" in registry
    future.is_future = False
    of_current.remove()
    of_future.register()
    assert len(_of_logs(registry)) == 5
    size = registry.get(name)
    assert size is not None and size.attributes() == {"Value": 7}


def test_meters_of_all_topics_are_there_at_once_and_of_a_topic_when_asked_for() -> None:
    registry = MetricsRegistry()
    stats = BrokerTopicStats(registry)
    prefix = "kafka.server:type=BrokerTopicMetrics,name="
    assert set(registry.snapshot()) == {prefix + name for name in (
        "MessagesInPerSec", "BytesInPerSec", "BytesRejectedPerSec",
        "ProduceMessageConversionsPerSec", "NoKeyCompactedTopicRecordsPerSec",
        "InvalidMagicNumberRecordsPerSec", "InvalidMessageCrcRecordsPerSec",
        "InvalidOffsetOrSequenceRecordsPerSec", "ReplicationBytesInPerSec")}
    before = len(registry)
    topic = stats.topic_stats("orders")
    assert len(registry) == before
    topic.meter("BytesRejectedPerSec").mark(5)
    topic.meter("InvalidMessageCrcRecordsPerSec").mark()
    with pytest.raises(KeyError):
        stats.topic_stats("orders").meter("ReplicationBytesInPerSec")
    assert registry.snapshot()[prefix + "BytesRejectedPerSec,topic=orders"]["Count"] == 5
    again = BrokerTopicStats(registry).topic_stats("orders")
    assert again.meter("BytesRejectedPerSec").count == 5
    stats.remove_metrics("orders")
    assert len(registry) == before
    assert topic.meter("BytesRejectedPerSec").count == 0 and len(registry) == before + 1


def test_appends_are_counted_where_they_happen() -> None:
    clock = Clock()
    registry = MetricsRegistry(clock=clock)
    stats = BrokerTopicStats(registry)
    one, other = Counts(3, 300), Counts()
    stops = [stats.follow_appends("orders", counts) for counts in (one, other)]
    rate = stats.topic_stats("orders").meter("BytesInPerSec")
    assert rate.count == 0, "what was there before is not counted"
    one.messages_in, one.bytes_in = 4, 400
    other.messages_in, other.bytes_in = 1, 50
    other.messages_converted, other.replication_bytes_in = 7, 70
    assert rate.count == 150 and stats.all_topics_stats.meter("MessagesInPerSec").count == 2
    assert stats.topic_stats("orders").meter("ProduceMessageConversionsPerSec").count == 7
    assert stats.all_topics_stats.meter("ReplicationBytesInPerSec").count == 70
    clock.seconds = 5
    assert rate.rates == (30.0, 30.0, 30.0)
    stops[0]()
    stops[0]()
    one.bytes_in += 1_000
    other.bytes_in += 10
    assert rate.count == 160
    stops[1]()
    assert rate.count == 160


def test_counts_are_spread_over_the_time_since_the_last_look() -> None:
    clock = Clock()
    meter = MetricsRegistry(clock=clock).group("g", "T").meter("m", "events")
    total = [0]
    meter.follow(lambda: total[0])
    for _ in range(240):  # 20 minutes, 10 a second, looked at once a minute
        clock.seconds += 5
        total[0] += 50
        if clock.seconds % 60 == 0:
            meter.rates  # noqa: B018
    assert meter.rates == pytest.approx((10.0, 10.0, 10.0))
    meter.mark(100)
    clock.seconds += 5
    assert meter.count == total[0] + 100
    assert meter.rates[0] < 30.0 and meter.rates[0] == pytest.approx(
        10 + (20 - 10) * (1 - 2.718281828 ** (-5 / 60)), rel=1e-6)


def test_the_flush_timer() -> None:
    registry = MetricsRegistry()
    with flush_timer(registry).time():
        pass
    name = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
    assert registry.snapshot()[name]["Count"] == 1
    assert flush_timer(registry) is registry.get(name)
