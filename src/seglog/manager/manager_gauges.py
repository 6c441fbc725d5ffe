"""The gauges of logs that are not open, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from seglog.config import LogConfig
from seglog.log.retention import size_in_percent
from seglog.log.stats import BrokerTopicStats, partition_tags
from seglog.manager.unopened import UnopenedLogs
from seglog.metrics import Gauge, Metric, MetricName
from seglog.model import TopicPartition

__all__ = ["UnopenedGauges"]

_LOG = ("kafka.log", "Log")
# The gauges of a log, and the columns with their values.
_LOG_GAUGES = {"NumLogSegments": "segments", "LogStartOffset": "log_start_offset",
               "LogEndOffset": "log_end_offset", "Size": "size", "RetentionSizeInPercent": ""}


class UnopenedGauges:
    """The gauges of unopened logs (`LogMetrics`), and the meters of their topics: a
    MetricsSource. Gauges are created on request."""

    def __init__(self, logs: UnopenedLogs, stats: BrokerTopicStats,
                 config_of: Callable[[str], LogConfig]) -> None:
        self._logs, self._stats, self._config_of = logs, stats, config_of
        self._has_topics = False

    def __len__(self) -> int:
        self._register_topics()
        return len(self._logs) * len(_LOG_GAUGES)

    def metrics(self) -> Iterator[tuple[MetricName, Metric]]:
        """See MetricsSource."""
        self._register_topics()
        for key in self._logs:
            for name, gauge in self._gauges(key).items():
                yield MetricName.of(*_LOG, name, partition_tags(key)), gauge

    def find(self, mbean: str) -> Metric | None:
        """See MetricsSource."""
        if mbean.startswith(f"{_LOG[0]}:type={_LOG[1]},"):
            keys = (key for key in self._logs if mbean.endswith(f",partition={key.partition}"))
            return next((gauge for key in keys for name, gauge in self._gauges(key).items()
                         if MetricName.of(*_LOG, name, partition_tags(key)).mbean == mbean), None)
        if not self._has_topics and "type=BrokerTopicMetrics" in mbean:
            self._register_topics()
            return self._stats.registry.get(mbean)
        return None

    def _register_topics(self) -> None:
        if not self._has_topics:
            self._has_topics = True
            for topic in {key.topic for key in self._logs}:
                _ = self._stats.topic_stats(topic).appended

    def _gauges(self, key: TopicPartition) -> dict[str, Metric]:
        found: dict[str, Metric] = {
            name: Gauge(partial(self._logs.number, key, column))
            for name, column in _LOG_GAUGES.items() if column}
        found["RetentionSizeInPercent"] = Gauge(partial(self._percent, key))
        return found

    def _percent(self, key: TopicPartition) -> int:
        """0 until retention has checked the log, as for any log."""
        config = self._config_of(key.topic)
        if not self._logs.was_swept or config.compact:
            return 0
        return size_in_percent(self._logs.number(key, "size"), config, is_local=False)
