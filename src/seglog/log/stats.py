"""The counters of logs, under Kafka's names (Kafka: BrokerTopicStats, UnifiedLog.newMetrics).

An append updates no meter: a log has counters of its own, and a meter reads them on request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from seglog.forks import SurvivesFork
from seglog.metrics import Meter, MetricsRegistry, Timer
from seglog.model import TopicPartition

__all__ = ["BrokerTopicMetrics", "BrokerTopicStats", "flush_timer", "partition_tags"]


def flush_timer(registry: MetricsRegistry) -> Timer:
    """A timer with one update for each flushed segment."""
    return registry.group("kafka.log", "LogFlushStats").timer("LogFlushRateAndTimeMs")


def partition_tags(key: TopicPartition) -> dict[str, str | int]:
    """The tags of what is measured for each partition."""
    return {"topic": key.topic, "partition": key.partition}


#: The counter of a log's `Appends` that each meter reads.
_APPENDED = {"messages_in": "MessagesInPerSec", "bytes_in": "BytesInPerSec",
             "messages_converted": "ProduceMessageConversionsPerSec",
             "replication_bytes_in": "ReplicationBytesInPerSec"}


class _Appended(SurvivesFork):
    """The sum of the appends to several logs while they were followed, including logs that are
    gone."""

    def __init__(self) -> None:
        self._logs: dict[int, object] = {}  # by id()
        self._others = dict.fromkeys(_APPENDED, 0)

    def add(self, log: object) -> None:
        """Starts to follow a log."""
        with self._lock:
            if id(log) not in self._logs:
                self._logs[id(log)] = log
                self._count(log, -1)

    def remove(self, log: object) -> None:
        """Stops following a log. A second call does nothing."""
        with self._lock:
            if self._logs.pop(id(log), None) is not None:
                self._count(log, 1)

    def _count(self, log: object, sign: int) -> None:
        for name in self._others:
            self._others[name] += sign * getattr(log, name)

    def total(self, name: str) -> int:
        """The sum of one counter."""
        with self._lock:
            found: int = self._others[name] + sum(
                [getattr(log, name) for log in self._logs.values()])
            return found


class BrokerTopicMetrics:
    """Meters of a topic, or of all topics together (Kafka: BrokerTopicMetrics).

    Those of a topic are registered on first request. Created by BrokerTopicStats.
    """

    _METERS = {
        "MessagesInPerSec": "messages", "BytesInPerSec": "bytes", "BytesRejectedPerSec": "bytes",
        "ProduceMessageConversionsPerSec": "requests",
        "NoKeyCompactedTopicRecordsPerSec": "requests",
        "InvalidMagicNumberRecordsPerSec": "requests",
        "InvalidMessageCrcRecordsPerSec": "requests",
        "InvalidOffsetOrSequenceRecordsPerSec": "requests",
    }
    _METERS_OF_ALL = {"ReplicationBytesInPerSec": "bytes"}

    def __init__(self, registry: MetricsRegistry, topic: str | None = None) -> None:
        self._group = registry.group("kafka.server", "BrokerTopicMetrics")
        self._tags = {} if topic is None else {"topic": topic}
        self._events = self._METERS | ({} if self._tags else self._METERS_OF_ALL)
        self._meters: dict[str, Meter] = {}
        self._appended: _Appended | None = None
        if topic is None:
            for name in self._events:
                self.meter(name)

    def meter(self, name: str) -> Meter:
        """The meter with this name of Kafka's. Raises KeyError if there is none."""
        found = self._meters.get(name)
        if found is None:
            event = self._events[name]
            found = self._meters[name] = self._group.meter(name, event, self._tags)
        return found

    @property
    def appended(self) -> _Appended:
        """The logs whose appends the meters count."""
        if self._appended is None:
            self._appended = _Appended()
            for count, name in _APPENDED.items():
                if name in self._events:
                    self.meter(name).follow(partial(self._appended.total, count))
        return self._appended

    def close(self) -> None:
        """Removes the meters from the registry."""
        for name in self._events:
            self._group.remove(name, self._tags)
        self._meters.clear()


class BrokerTopicStats:
    """The meters of all topics, in one registry. Safe from any thread."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self.registry = registry
        self._topics: dict[str, BrokerTopicMetrics] = {}
        #: The meters of all topics together.
        self.all_topics_stats = BrokerTopicMetrics(registry)

    def topic_stats(self, topic: str) -> BrokerTopicMetrics:
        """The meters of one topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics.setdefault(topic, BrokerTopicMetrics(self.registry, topic))
        return found

    def remove_metrics(self, topic: str) -> None:
        """Removes the meters of a deleted topic."""
        found = self._topics.pop(topic, None)
        if found is not None:
            found.close()

    def follow_appends(self, topic: str, counts: object) -> Callable[[], None]:
        """Adds the counters of a log's `Appends` to its topic's and to the total.

        The counters only grow. The returned function stops this.
        """
        both = self.topic_stats(topic).appended, self.all_topics_stats.appended
        for one in both:
            one.add(counts)

        def stop() -> None:
            for one in both:
                one.remove(counts)

        return stop
