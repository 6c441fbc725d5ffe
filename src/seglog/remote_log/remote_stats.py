"""The counters of tiering, under Kafka's names (Kafka: BrokerTopicMetrics,
RemoteStorageMetrics)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from seglog.metrics import Meter, MetricsRegistry

__all__ = ["RemoteStats"]

_METERS = {
    "RemoteCopyBytesPerSec": "bytes", "RemoteFetchBytesPerSec": "bytes",
    "RemoteCopyRequestsPerSec": "requests", "RemoteCopyErrorsPerSec": "requests",
    "RemoteFetchRequestsPerSec": "requests", "RemoteFetchErrorsPerSec": "requests",
    "RemoteDeleteRequestsPerSec": "requests", "RemoteDeleteErrorsPerSec": "requests",
    "BuildRemoteLogAuxStateRequestsPerSec": "requests",
    "BuildRemoteLogAuxStateErrorsPerSec": "requests",
}
#: Sums over the partitions of a topic, and over all of them.
_GAUGES = ("RemoteCopyLagBytes", "RemoteCopyLagSegments", "RemoteDeleteLagBytes",
           "RemoteDeleteLagSegments", "RemoteLogMetadataCount", "RemoteLogSizeBytes",
           "RemoteLogSizeComputationTime")


class RemoteStats:
    """Meters and gauges of all topics, in one registry. Safe from any thread."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self.registry = registry
        self._group = registry.group("kafka.server", "BrokerTopicMetrics")
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str], dict[int, int]] = {}
        self._topics: set[str] = set()
        for name, event in _METERS.items():
            self._group.meter(name, event, {})
        self._group.gauges({name: partial(self._total, name) for name in _GAUGES}, {})

    def mark(self, name: str, topic: str, count: int = 1) -> None:
        """Counts for a topic and for all topics."""
        self._meter(name, {}).mark(count)
        self._meter(name, {"topic": topic}).mark(count)
        with self._lock:
            self._topics.add(topic)

    def _meter(self, name: str, tags: dict[str, str | int]) -> Meter:
        return self._group.meter(name, _METERS[name], tags)

    def record(self, name: str, topic: str, partition: int, value: int,
               unless: Callable[[], bool] = lambda: False) -> None:
        """Sets a partition's share of a gauge, `unless()`: that is asked when no other thread
        can `forget` the partition until it is set."""
        with self._lock:
            if unless():
                return
            if (name, topic) not in self._values:
                self._group.gauges({name: partial(self._of_topic, name, topic)}, {"topic": topic})
            self._values.setdefault((name, topic), {})[partition] = value

    def forget(self, topic: str, partition: int) -> None:
        """Removes a partition from all gauges."""
        with self._lock:
            gone = []
            for (name, of), values in self._values.items():
                if of == topic:
                    values.pop(partition, None)
                    if not values:
                        gone.append(name)
            for name in gone:
                del self._values[name, topic]
                self._group.remove(name, {"topic": topic})

    def close(self) -> None:
        """Removes all metrics from the registry."""
        with self._lock:
            topics, gauges = set(self._topics), list(self._values)
            self._values.clear()
        for name in _METERS:
            for tags in ({}, *({"topic": topic} for topic in topics)):
                self._group.remove(name, tags)
        for name in _GAUGES:
            self._group.remove(name, {})
        for name, topic in gauges:
            self._group.remove(name, {"topic": topic})

    def _of_topic(self, name: str, topic: str) -> int:
        with self._lock:
            return sum(self._values.get((name, topic), {}).values())

    def _total(self, name: str) -> int:
        with self._lock:
            return sum(sum(values.values()) for (of, _), values in self._values.items()
                       if of == name)


