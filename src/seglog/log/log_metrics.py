"""The metrics that a log has while it is open (Kafka: UnifiedLog.newMetrics)."""

from __future__ import annotations

from collections.abc import Callable

from seglog.log.appends import Appends
from seglog.log.readable_log import ReadableLog
from seglog.log.stats import BrokerTopicStats, partition_tags

__all__ = ["LogMetrics"]


class LogMetrics:
    """The metrics of one log: its gauges `kafka.log:type=Log`, with topic and partition as tags,
    and its share of the appends.

    They count from `register` to `remove`. A log whose directory is renamed (`-future` is a tag)
    registers them again.
    """

    def __init__(self, log: ReadableLog, stats: BrokerTopicStats, appends: Appends) -> None:
        self._group = stats.registry.group("kafka.log", "Log")
        self._log, self._stats, self._appends = log, stats, appends
        self._registered: list[str] = []
        self._stop_counting: Callable[[], None] | None = None

    def register(self) -> None:
        """Registers the gauges, replacing registered ones."""
        self._remove_gauges()
        log = self._log
        tags = partition_tags(log.topic_partition)
        if log.is_future:
            tags["is-future"] = "true"
        self._registered = self._group.gauges(self._gauges(), tags)
        if self._stop_counting is None:
            self._stop_counting = self._stats.follow_appends(log.topic_partition.topic,
                                                              self._appends)

    def remove(self) -> None:
        """Removes them; a second call does nothing."""
        self._remove_gauges()
        if self._stop_counting is not None:
            self._stop_counting()
            self._stop_counting = None

    def _remove_gauges(self) -> None:
        registered, self._registered = self._registered, []
        self._group.registry.remove_all(registered)

    def _gauges(self) -> dict[str, Callable[[], int]]:
        log = self._log
        return {
            "NumLogSegments": lambda: log.number_of_segments,
            "LogStartOffset": lambda: log.log_start_offset,
            "LogEndOffset": lambda: log.log_end_offset,
            "Size": lambda: log.size,
            "RetentionSizeInPercent": lambda: log.retention_size_in_percent,
        }
