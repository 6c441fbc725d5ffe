"""The gauges of a cleaner under Kafka's names (kafka.log.LogCleaner, kafka.log.LogCleanerManager).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from seglog.metrics import MetricsRegistry

if TYPE_CHECKING:
    from seglog.cleaner.log_cleaner import CleanerThread, LogCleaner

__all__ = ["CleanerGauges"]


class CleanerGauges:
    """The gauges of a cleaner; `remove` removes all of them."""

    def __init__(self, registry: MetricsRegistry, cleaner: LogCleaner,
                 log_dirs: Iterable[str]) -> None:
        self._registry, self._cleaner = registry, cleaner
        self._started_ms = cleaner.time.milliseconds()
        manager = cleaner.manager
        self._names = registry.group("kafka.log", "LogCleaner").gauges({
            "max-buffer-utilization-percent": lambda: self._most(
                lambda thread: int(thread.last_stats.buffer_utilization * 100)),
            "cleaner-recopy-percent": self._recopy_percent,
            "max-clean-time-secs": lambda: self._most(
                lambda thread: max(int(thread.last_stats.elapsed_secs), 0)),
            "max-compaction-delay-secs": lambda: self._most(
                lambda thread: thread.last_pre_clean_stats.max_compaction_delay_ms // 1000),
            "DeadThreadCount": lambda: cleaner.dead_thread_count,
        }, {})
        group = registry.group("kafka.log", "LogCleanerManager")
        self._names += group.gauges({
            "max-dirty-percent": lambda: int(100 * manager.dirtiest_log_cleanable_ratio),
            "time-since-last-run-ms": self._since_last_run_ms,
        }, {})
        for path in log_dirs:
            self._names += group.gauges({
                "uncleanable-partitions-count": partial(self._uncleanable_count, path),
                "uncleanable-bytes": partial(self._uncleanable_bytes, path),
            }, {"logDirectory": path})

    def remove(self) -> None:
        """Removes all gauges of the cleaner."""
        self._registry.remove_all(self._names)

    def _most(self, value: Callable[[CleanerThread], int]) -> int:
        return max(map(value, list(self._cleaner.threads)), default=0)

    def _recopy_percent(self) -> int:
        stats = [thread.last_stats for thread in list(self._cleaner.threads)]
        read = max(sum(one.bytes_read for one in stats), 1)
        return int(100 * (sum(one.bytes_written for one in stats) / read))

    def _since_last_run_ms(self) -> int:
        last = self._cleaner.manager.time_of_last_run_ms
        return self._cleaner.time.milliseconds() - (self._started_ms if last is None else last)

    def _uncleanable_count(self, path: str) -> int:
        return len(self._cleaner.manager.uncleanable_partitions(path))

    def _uncleanable_bytes(self, path: str) -> int:
        return self._cleaner.manager.uncleanable_bytes(path, self._cleaner.time.milliseconds())
