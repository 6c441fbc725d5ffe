"""The log cleaner of a manager, and its notifications about created, truncated, moved and deleted
logs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.cleaner.config import CleanerConfig
from seglog.cleaner.log_cleaner import LogCleaner
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import ConfigError, SeglogError
from seglog.log.context import LogContext
from seglog.log.log_dir_failures import CLOSED, OFFLINE
from seglog.log.unified_log import UnifiedLog
from seglog.manager.configs import TopicConfigs
from seglog.manager.live import LiveDirectories
from seglog.manager.table import LogTable, dir_of
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition

__all__ = ["LogCleaning"]

_log = logging.getLogger(__name__)
_TOPICS_SHOWN = 5

#: Settings of a broker's cleaner that can change at run time (Kafka:
#: LogCleaner.RECONFIGURABLE_CONFIGS).
_DYNAMIC = ("log.cleaner.threads", "log.cleaner.dedupe.buffer.size",
            "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size", "message.max.bytes",
            "log.cleaner.io.max.bytes.per.second", "log.cleaner.backoff.ms")


class _ServedLogs:
    """The current logs of a manager as its cleaner sees them (CleanedLogs)."""

    def __init__(self, table: LogTable, configs: TopicConfigs,
                 directories: LiveDirectories) -> None:
        self._table, self._configs, self._directories = table, configs, directories

    def compacted_partitions(self) -> list[TopicPartition]:
        """Partitions whose topic's policy has `compact`."""
        return [key for key in self._table.current_keys() if self._configs.of(key.topic).compact]

    def compacted(self) -> Iterator[tuple[TopicPartition, UnifiedLog]]:
        """Their logs. Logs of other topics are not opened."""
        for key in self.compacted_partitions():
            try:
                log = self._table.get(key)
            except SeglogError as error:
                # Its directory has just failed; or the process has too many files open, which must
                # not end the cleaner's thread.
                if getattr(error, "code", None) not in (CLOSED, OFFLINE):
                    _log.warning("%s is not compacted now: it cannot be opened: %s", key, error)
                continue
            if isinstance(log, UnifiedLog):  # not the result of a custom `load`
                yield key, log

    def serves(self, log: UnifiedLog) -> bool:
        """False for a log with a future log: the part that the move has already copied would stay
        dirty below the checkpoint."""
        key = log.topic_partition
        with self._table.lock:
            return self._table.is_current(log) and key not in self._table.future

    def has(self, key: TopicPartition) -> bool:
        """Whether the partition has a current log."""
        return self._table.has(key)

    def keeps(self, log_dir: str, key: TopicPartition) -> bool:
        """Lines of vanished partitions are dropped, as in Kafka; those of logs that failed to load
        stay."""
        directory = self._directories.get(log_dir)
        return self.has(key) or (directory is not None and directory.loading_failed)


class LogCleaning:
    """Keeps the cleaner's checkpoints true in any case; cleans only after `start`."""

    def __init__(self, table: LogTable, configs: TopicConfigs, directories: LiveDirectories,
                 broker: BrokerConfig, context: LogContext, metrics: MetricsRegistry) -> None:
        self._broker, self._reconfiguring = broker, threading.Lock()
        self._logs = _ServedLogs(table, configs, directories)
        #: Whether its threads run.
        self.is_started = False
        self.cleaner = LogCleaner(
            CleanerConfig.of(broker), directories.all(), self._logs, context.failures,
            context.time, metrics)

    def start(self) -> None:
        """Starts the threads, unless `log.cleaner.enable` is false."""
        if self._broker.log_cleaner_enable:
            self.cleaner.startup()
            self.is_started = True
        else:
            self.warn()

    def warn(self) -> None:
        """Logs the topics that are never compacted because there is no cleaner."""
        if topics := sorted({key.topic for key in self._logs.compacted_partitions()}):
            _log.warning("%d topics are compacted (cleanup.policy=compact), but no cleaner runs: "
                         "the manager has no scheduler, or log.cleaner.enable is false: %s%s",
                         len(topics), ", ".join(topics[:_TOPICS_SHOWN]),
                         ", ..." if len(topics) > _TOPICS_SHOWN else "")

    def stop(self) -> None:
        """Ends the threads and rounds on demand, even in the middle of a round."""
        self.is_started = False
        self.cleaner.shutdown()

    def reconfigure(self, properties: Mapping[str, object]) -> None:
        """See LogManager.reconfigure_cleaner."""
        if unknown := sorted(set(map(str, properties)) - set(_DYNAMIC)):
            raise ConfigError("Cannot update these configs dynamically: " + ", ".join(unknown))
        with self._reconfiguring:
            broker = replace(self._broker, **BrokerConfig.pick(properties))
            config = CleanerConfig.of(broker)
            if self.is_started:
                self.cleaner.reconfigure(config)
            else:
                self.cleaner.change_settings(config)
            self._broker = broker

    def compact(self, log: UnifiedLog, on_read: Callable[[int], object] | None = None,
                threads: int = 1) -> list[CleanerStats]:
        """See LogManager.compact."""
        return self.cleaner.clean_now(log, on_read, threads)

    # ---- what happens to logs -----------------------------------------------------------------

    def retention(self, logs: Sequence[tuple[TopicPartition, UnifiedLog]]
                  ) -> AbstractContextManager[list[tuple[TopicPartition, UnifiedLog]]]:
        """The logs from which retention may delete segments: not the compacted ones, which the
        cleaner's threads handle, and none with a round in progress."""
        return self.cleaner.manager.paused_for_retention(logs)

    @contextlib.contextmanager
    def truncation(self, log: UnifiedLog, offset: int, *, is_full: bool = False) -> Iterator[None]:
        """Prevents rounds over the log while it is truncated to `offset`, or emptied to start
        there, and limits its checkpoint to what is left of it.

        A truncation inside the active segment concerns no round. It holds the log's lock, so that
        the segment stays the active one.
        """
        with log.lock:
            if log.is_future or not (is_full or offset < log.active.base_offset):
                yield
                return
        manager, key = self.cleaner.manager, log.topic_partition
        manager.abort_and_pause_cleaning(key)
        try:
            # Before the truncation: a crash between the two would leave new records below it.
            manager.maybe_truncate_checkpoint(log, offset if is_full else _segment_of(log, offset))
            yield
        finally:
            manager.resume_cleaning((key,))

    def created(self, log: UnifiedLog) -> None:
        """The log is new, or was opened."""
        if log.config.compact and not log.is_future:
            self.cleaner.manager.opened(log)

    def move_begins(self, key: TopicPartition) -> None:
        """The partition has a future log now; see `_ServedLogs.serves`."""
        self.cleaner.manager.abort_cleaning(key)

    def moved(self, key: TopicPartition, source: str, target: str, *, is_clean: bool) -> None:
        """The partition's log is about to be the one in another directory. If the move began in an
        earlier process, the source may have been cleaned while the copy's directory was away: then
        the copy counts as dirty."""
        manager = self.cleaner.manager
        if not is_clean:
            manager.update_checkpoints(source, remove=key)
        manager.alter_checkpoint_dir(key, source, target)

    def removed(self, log: UnifiedLog) -> None:
        """The log has left the table and is about to be renamed for its deletion."""
        manager, key = self.cleaner.manager, log.topic_partition
        manager.abort_cleaning(key)
        manager.update_checkpoints(dir_of(log), remove=key)

    def reconfigured(self, log: UnifiedLog, before: LogConfig) -> None:
        """The log has new settings; ends a round over a log that is no longer compacted."""
        if before.compact and not log.config.compact and not log.is_future:
            self.cleaner.manager.abort_cleaning(log.topic_partition)

    def directory_failed(self, log_dir: str) -> None:
        """A data directory is offline."""
        self.cleaner.manager.handle_log_dir_failure(log_dir)


def _segment_of(log: UnifiedLog, offset: int) -> int:
    """The base offset of the segment that is the active one after a truncation to `offset`."""
    with log.lock:
        row = log.segments.floor_row(offset)
        return max(offset, 0) if row < 0 else int(log.segments.base_offsets[row])
