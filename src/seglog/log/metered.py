"""What a log counts of its own doing (Kafka: UnifiedLog.newMetrics, LogFlushStats)."""

from __future__ import annotations

from collections.abc import Callable

from seglog.log.stats import BrokerTopicStats, LogMetrics, flush_timer
from seglog.recovery.loaded import LoadedLog
from seglog.storage.paths import DirectoryKind

__all__ = ["MeteredLog"]


class MeteredLog(LoadedLog):
    """A log with gauges, and counts that meters follow. Without `stats` it measures nothing."""

    #: Records and bytes that were appended as leader since the log was opened, the records among
    #: them that were encoded anew, and bytes that were appended as follower.
    messages_in = 0
    bytes_in = 0
    messages_converted = 0
    replication_bytes_in = 0
    #: How full the log is of what it may retain, as the last run of the retention found it.
    retention_size_in_percent = 0
    stats: BrokerTopicStats | None = None
    _metrics: LogMetrics | None = None
    _stop_counting: Callable[[], None] | None = None

    @property
    def is_future(self) -> bool:
        """Whether it is one that will replace another directory's log."""
        return self.path.endswith(DirectoryKind.FUTURE.value)

    @property
    def number_of_segments(self) -> int:
        """With the active one."""
        return len(self.segments)

    def measure(self, stats: BrokerTopicStats | None) -> None:
        """Begins, with the registry of `stats`."""
        self.stats = stats
        if stats is not None:
            self._metrics = LogMetrics(stats.registry, self)
            self._flush_timer = flush_timer(stats.registry)
            self.new_metrics()

    def new_metrics(self) -> None:
        """Registers the gauges, under what the log is now (`is-future` is a tag)."""
        if self._metrics is not None and self.stats is not None:
            self._metrics.register()
            if self._stop_counting is None:
                self._stop_counting = self.stats.follow_appends(self.topic_partition.topic, self)

    def remove_log_metrics(self) -> None:
        """Takes them out: the log is not served any more. A second call does nothing."""
        if self._metrics is not None:
            self._metrics.remove()
        if self._stop_counting is not None:
            self._stop_counting()
            self._stop_counting = None

    def _flush_segment(self, base: int) -> None:
        if self._metrics is None:
            super()._flush_segment(base)
        else:
            with self._flush_timer.time():
                super()._flush_segment(base)
