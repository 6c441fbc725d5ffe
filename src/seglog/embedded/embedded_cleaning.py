"""The log cleaner of the logs that one process has open in a data directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.cleaner.config import CleanerConfig
from seglog.cleaner.log_cleaner import LogCleaner
from seglog.forks import ProcessBound, ending
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import Time
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from seglog.model import TopicPartition

__all__ = ["EmbeddedCleaning"]


class _OpenLogs:
    """The open logs as the cleaner sees them (CleanedLogs). Needs no lock, because it copies the
    dict."""

    def __init__(self, logs: Mapping[TopicPartition, UnifiedLog]) -> None:
        self._logs = logs

    def compacted(self) -> Iterator[tuple[TopicPartition, UnifiedLog]]:
        """The logs with `compact` in their policy."""
        return ((key, log) for key, log in list(self._logs.items()) if log.config.compact)

    def serves(self, log: UnifiedLog) -> bool:
        """Whether the log is open."""
        return self._logs.get(log.topic_partition) is log

    def has(self, key: TopicPartition) -> bool:
        """Whether the partition's log is open."""
        return key in self._logs

    def keeps(self, log_dir: str, key: TopicPartition) -> bool:
        """True for every line: the directory may have logs that are not open here."""
        return True


class EmbeddedCleaning(ProcessBound):
    """Runs one cleaner thread from the first compacted log on."""

    def __init__(self, directory: LogDirectory, logs: Mapping[TopicPartition, UnifiedLog],
                 failures: LogDirFailureChannel) -> None:
        self._cleaner = LogCleaner(CleanerConfig(), [directory], _OpenLogs(logs), failures, Time())
        self._is_started = False

    def opened(self, log: UnifiedLog) -> None:
        """A log was opened. The caller holds the lock of the data directories. Its line is written
        before its first round: see SharedDirectory.may_have_gaps."""
        if log.config.compact:
            self._cleaner.manager.opened(log, keeps_line=True)
            if not self._is_started:
                self._is_started = True
                self._cleaner.startup()

    def compact(self, log: UnifiedLog, threads: int) -> list[CleanerStats]:
        """See EmbeddedLog.compact."""
        return self._cleaner.clean_now(log, threads=threads)

    @contextmanager
    def paused(self, log: UnifiedLog) -> Iterator[None]:
        """Ends a round over the log, and begins none in the block, which removes it from the open
        ones: then a later one of its name may be cleaned."""
        key = log.topic_partition
        self._cleaner.manager.abort_and_pause_cleaning(key)
        try:
            yield
        finally:
            self._cleaner.manager.resume_cleaning((key,))

    @ending
    def stop(self) -> None:
        """Ends the thread."""
        self._cleaner.shutdown()
