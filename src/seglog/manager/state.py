"""The state that the parts of a manager share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seglog.errors import LogManagerStateError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.stats import flush_timer
from seglog.log.unified_log import LogContext, UnifiedLog
from seglog.manager.offset_checkpoints import Checkpoints
from seglog.manager.log_cleaning import LogCleaning
from seglog.manager.configs import TopicConfigs
from seglog.manager.manager_gauges import UnopenedGauges
from seglog.manager.live import LiveDirectories
from seglog.manager.table import LogTable
from seglog.manager.unopened import UnopenedLogs

__all__ = ["ManagerState"]


@dataclass(frozen=True, slots=True)
class ManagerState:
    """The logs of a manager, their directories, and the shared objects for new logs.

    Threads that create, delete or replace a log hold `lock`; it is taken before the lock of any
    log, never after one.
    """

    directories: LiveDirectories
    table: LogTable
    failures: LogDirFailureChannel
    configs: TopicConfigs
    checkpoints: Checkpoints
    cleaning: LogCleaning
    context: LogContext
    producer_id_expiration_ms: int
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: The gauges of unopened logs in the registry.
    sources: list[UnopenedGauges] = field(default_factory=list)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Holds `lock` for a change of the logs. Raises LogManagerStateError after `seal`."""
        with self.lock:
            if self.table.is_sealed:
                raise LogManagerStateError("the log manager is closed, not running")
            yield

    def seal(self) -> None:
        """Waits for changes under way, and allows no others: the logs are about to be closed, and
        what came later would be left open in directories that are marked clean, and released."""
        with self.lock:
            self.table.seal()

    def now_ms(self) -> int:
        """The time of the manager's clock (ms)."""
        return self.context.time.milliseconds()

    def measure_unopened(self, logs: UnopenedLogs) -> None:
        """Exposes the gauges of unopened logs."""
        stats = self.context.stats
        if stats is not None:
            flush_timer(stats.registry)
            self.sources.append(source := UnopenedGauges(logs, stats, self.configs.of))
            stats.registry.add_source(source)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Removes the meters of those topics that have no log here any more (Kafka:
        ReplicaManager.maybeRemoveTopicMetrics)."""
        if self.context.stats is not None:
            with self.lock:  # no log of theirs is created meanwhile
                for topic in set(topics) - self.table.topics():
                    self.context.stats.remove_metrics(topic)

    def remove_log_metrics(self) -> None:
        """Removes the gauges of all logs: the registry may have gauges of other logs of their names
        later."""
        for log in self.table.opened():
            if isinstance(log, UnifiedLog):  # not the result of a custom `load`
                log.remove_log_metrics()
        if self.context.stats is not None:
            for source in self.sources:
                self.context.stats.registry.remove_source(source)
