"""The threads that compact logs (Kafka: LogCleaner, CleanerThread)."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable

from seglog._native.clean import OffsetMap
from seglog.cleaner.checkpoints import CheckpointDirectory
from seglog.cleaner.cleanable import LogToClean
from seglog.cleaner.cleaner import Cleaner
from seglog.cleaner.cleaner_manager import CleanedLogs, LogCleanerManager, PreCleanStats
from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.cleaner.config import SLOT_BYTES, CleanerConfig
from seglog.cleaner.gauges import CleanerGauges
from seglog.cleaner.throttler import Throttler
from seglog.errors import (
    ConfigError, KafkaStorageError, LogCleaningAbortedError, LogCleaningError,
)
from seglog.forks import ProcessBound, ending
from seglog.log.log_dir_failures import CLOSED, OFFLINE, LogDirFailureChannel
from seglog.log.scheduler import Time
from seglog.log.unified_log import UnifiedLog
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition

__all__ = ["CleanerThread", "LogCleaner", "map_size"]

_logger = logging.getLogger("seglog.LogCleaner")
_SPARE_SLOTS = 2


class _ThreadShutdown(Exception):
    """The thread is to end, even in the middle of a round."""


class LogCleaner(ProcessBound):
    """Compacts logs in the background, and on demand. Safe from any thread.

    `directories` are the live data directories, `failures` is notified of those that fail.
    """

    def __init__(self, config: CleanerConfig, directories: Iterable[CheckpointDirectory],
                 logs: CleanedLogs, failures: LogDirFailureChannel, time: Time,
                 metrics: MetricsRegistry | None = None) -> None:
        self.config, self.failures, self.time = config, failures, time
        self.logs = logs
        live = list(directories)
        self.manager = LogCleanerManager(live, logs)
        self.throttler = Throttler(config.io_max_bytes_per_second, time)
        self.threads: list[CleanerThread] = []
        self._lock = threading.Lock()
        # Held while the threads are started, ended or replaced.
        self._life = threading.RLock()
        # Running rounds on demand, and whether they are to end.
        self._on_demand, self._ends = 0, False
        self._idle = threading.Condition(self._lock)
        self._metrics, self._log_dirs = metrics, [one.path for one in live]
        self._gauges: CleanerGauges | None = None

    # ---- life ---------------------------------------------------------------------------------

    def startup(self) -> None:
        """Starts the threads, unless it was shut down."""
        with self._life:
            if not self._ends:
                self._start_threads()

    def _start_threads(self) -> None:
        if self.config.threads < 1:
            _logger.warning("Invalid value for `log.cleaner.threads`: must be >= 1 starting from "
                            "Kafka 5.0 since log cleaner is always enabled.")
        _logger.info("Starting the log cleaner")
        if self._gauges is None and self._metrics is not None:
            self._gauges = CleanerGauges(self._metrics, self, self._log_dirs)
            self.throttler.meter = self._metrics.group(
                "kafka.utils", "Throttler").meter("cleaner-io", "bytes")
        with self._lock:
            self.threads = [CleanerThread(self, number) for number in range(self.config.threads)]
            for thread in self.threads:
                thread.start()

    @ending
    def shutdown(self) -> None:
        """Ends the threads and the rounds on demand, even in the middle, and waits for them."""
        try:
            with self._idle:
                self._ends = True
            with self._life:
                self._shutdown_threads()
            with self._idle:
                while self._on_demand:
                    self._idle.wait()
        finally:
            gauges, self._gauges = self._gauges, None
            if gauges is not None:
                gauges.remove()

    def _shutdown_threads(self) -> None:
        with self._lock:
            threads, self.threads = self.threads, []
        if threads:
            _logger.info("Shutting down the log cleaner.")
        for thread in threads:
            thread.initiate_shutdown()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def validate_reconfiguration(self, config: CleanerConfig) -> None:
        """Raises ConfigError, with Kafka's text, for a number of threads too far from the current
        one."""
        wanted, now = config.threads, self.config.threads
        if wanted < 1:
            raise ConfigError("Log cleaner threads should be at least 1")
        if wanted < now // 2:
            raise ConfigError("Log cleaner threads cannot be reduced to less than half the current "
                              f"value {now}")
        if wanted > now * 2:
            raise ConfigError("Log cleaner threads cannot be increased to more than double the "
                              f"current value {now}")

    def change_settings(self, config: CleanerConfig) -> None:
        """Sets new settings for rounds on demand, and for threads that are started later. Raises
        ConfigError."""
        with self._life:
            self.validate_reconfiguration(config)
            if config.io_max_bytes_per_second != self.config.io_max_bytes_per_second:
                _logger.info("Updating logCleanerIoMaxBytesPerSecond: %s",
                             config.io_max_bytes_per_second)
                self.throttler.desired_rate = config.io_max_bytes_per_second
            self.config = config

    def reconfigure(self, config: CleanerConfig) -> None:
        """Replaces the threads, including dead ones, by others with new settings. Raises
        ConfigError."""
        with self._life:
            self.change_settings(config)
            self._shutdown_threads()
            self.startup()

    @property
    def dead_thread_count(self) -> int:
        """The number of threads that ended with an error."""
        return sum(thread.is_failed for thread in list(self.threads))

    # ---- on demand ----------------------------------------------------------------------------

    def clean_now(self, log: UnifiedLog, on_read: Callable[[int], object] | None = None,
                  threads: int = 1) -> list[CleanerStats]:
        """Cleans everything cleanable in a log, however dirty it is, in the calling thread and
        `threads` - 1 others. Returns the statistics of each round. More than one is needed if the
        keys do not fit the offset map.

        `on_read` gets the bytes of each read, in any of the threads, one at a time. What becomes
        cleanable meanwhile is left to the next call: a writer may be faster.

        Waits for a round in the background first. Raises the exceptions of `Cleaner.do_clean`, and
        LogCleaningAbortedError if the cleaner is shut down.
        """
        with self._idle:
            self._on_demand += 1
        try:
            return self._clean_now(log, on_read, threads)
        finally:
            with self._idle:
                self._on_demand -= 1
                self._idle.notify_all()

    def _check_running(self) -> None:
        if self._ends:
            raise LogCleaningAbortedError("The log cleaner was shut down")

    def _clean_now(self, log: UnifiedLog, on_read: Callable[[int], object] | None,
                   threads: int) -> list[CleanerStats]:
        rounds: list[CleanerStats] = []
        goal: int | None = None
        self._check_running()
        while (found := self.manager.grab(log, self.time.milliseconds())) is not None:
            start = found.first_dirty_offset
            end, log_dir = start, log.parent_dir
            goal = found.first_uncleanable_offset if goal is None else goal
            try:
                end, stats = self.round(len(self.threads), found, self._check_running, on_read,
                                        threads)
                rounds.append(stats)
            finally:
                self.manager.done_cleaning(log, log_dir, end)
            if end >= goal or end <= start:
                break  # done, or a map without room for a key
        return rounds

    def round(self, cleaner_id: int, cleanable: LogToClean, check: Callable[[], object],
              on_read: Callable[[int], object] | None = None, threads: int = 1
              ) -> tuple[int, CleanerStats]:
        """Runs one round over a log in progress; see `Cleaner`. `check` is called at each read and
        may raise."""
        config, key = self.config, cleanable.topic_partition

        def check_done(_: TopicPartition) -> None:
            check()
            self.manager.check_cleaning_aborted(key)

        cleaner = Cleaner(
            cleaner_id, offset_map=OffsetMap(map_size(config, cleanable)),
            map_bytes=config.map_size, io_buffer_size=config.buffer_size,
            max_io_buffer_size=config.max_message_size, load_factor=config.io_buffer_load_factor,
            threads=threads, check_done=check_done, throttler=self.throttler, on_read=on_read)
        end, stats = cleaner.do_clean(cleanable, self.time.milliseconds())
        stats.buffer_utilization = len(cleaner.offset_map) / max(config.map_size // SLOT_BYTES, 1)
        stats.log(cleaner_id, str(key), cleanable.first_dirty_offset, end)
        return end, stats


def map_size(config: CleanerConfig, cleanable: LogToClean) -> int:
    """Bytes of the offset map of a round: those of the settings, or less if the range has not so
    many offsets. Only damage gives it more keys; a round over those takes the larger map."""
    keys = cleanable.first_uncleanable_offset - cleanable.first_dirty_offset + 1
    if config.io_buffer_load_factor <= 0:
        return config.map_size
    slots = int(keys / config.io_buffer_load_factor) + _SPARE_SLOTS
    return min(config.map_size, slots * SLOT_BYTES)


class CleanerThread(threading.Thread):
    """Cleans the dirtiest log repeatedly, and sleeps if none is dirty enough."""

    def __init__(self, owner: LogCleaner, number: int) -> None:
        super().__init__(name=f"kafka-log-cleaner-thread-{number}", daemon=True)
        self.number = number
        self.last_stats, self.last_pre_clean_stats = CleanerStats(), PreCleanStats()
        #: Whether an error has ended it.
        self.is_failed = False
        self._owner, self._manager = owner, owner.manager
        self._ends = threading.Event()
        if owner.config.dedupe_buffer_size // max(owner.config.threads, 1) > owner.config.map_size:
            _logger.warning("[%s]: Cannot use more than 2G of cleaner buffer space per cleaner "
                            "thread, ignoring excess buffer space...", self.name)

    def initiate_shutdown(self) -> None:
        """Ends the thread at its next check; each read checks."""
        self._ends.set()

    def run(self) -> None:
        """Runs until `initiate_shutdown`."""
        _logger.info("[%s]: Starting", self.name)
        try:
            while not self._ends.is_set():
                if not self._try_clean_filthiest_log():
                    self._ends.wait(min(self._owner.config.backoff_ms / 1000,
                                        threading.TIMEOUT_MAX))
                self._manager.maintain_uncleanable_partitions()
        except _ThreadShutdown:
            pass
        except Exception as error:
            self.is_failed = True
            _logger.error("[%s]: Error due to", self.name, exc_info=error)
        _logger.info("[%s]: Stopped", self.name)

    def _check(self) -> None:
        if self._ends.is_set():
            raise _ThreadShutdown

    def _try_clean_filthiest_log(self) -> bool:
        """Cleans the dirtiest log. Returns whether a log was cleaned."""
        try:
            return self._clean_filthiest_log()
        except LogCleaningError as failure:
            log = failure.log
            _logger.warning(
                "[%s]: Unexpected exception thrown when cleaning log %s. Marking its partition "
                "(%s) as uncleanable", self.name, log, log.topic_partition,
                exc_info=failure.__cause__)
            self._manager.mark_uncleanable(log)
            return False

    def _clean_filthiest_log(self) -> bool:
        cleanable, stats = self._manager.grab_filthiest_compacted_log(
            self._owner.time.milliseconds())
        is_cleaned = False
        if cleanable is not None:
            self.last_pre_clean_stats = stats
            try:
                is_cleaned = self._clean(cleanable)
            except _ThreadShutdown:
                raise
            except Exception as error:
                raise LogCleaningError(str(error), cleanable.log) from error
        with contextlib.closing(self._manager.deletable_logs()) as logs:
            for log in logs:
                self._check()
                self._delete_old_segments(log)
        return is_cleaned

    def _delete_old_segments(self, log: UnifiedLog) -> None:
        try:
            log.delete_old_segments()
        except KafkaStorageError as error:
            if error.code not in (CLOSED, OFFLINE):  # too many open files, say
                _logger.info("[%s]: The next pass deletes old segments of %s: %s", self.name,
                             log.topic_partition, error)
        except Exception as error:
            raise LogCleaningError(str(error), log) from error

    def _clean(self, cleanable: LogToClean) -> bool:
        """Cleans one log. Returns whether the thread may look for work at once."""
        log = cleanable.log
        end, log_dir = cleanable.first_dirty_offset, log.parent_dir
        try:
            # Too many open files say nothing about the directory: the round is tried again.
            with self._owner.failures.guard(
                    log_dir, f"Failed to clean up log for {log.topic_partition} in dir {log_dir} "
                             "due to IOException", reads=True):
                end, self.last_stats = self._owner.round(self.number, cleanable, self._check)
            self._log_delays()
        except LogCleaningAbortedError as error:
            _logger.info("[%s]: %s", self.name, error)
        except KafkaStorageError as error:
            _logger.info("[%s]: The cleaning of %s ended: %s", self.name, log.topic_partition,
                         error)
            return False
        finally:
            self._manager.done_cleaning(log, log_dir, end)
        return True

    def _log_delays(self) -> None:
        found = self.last_pre_clean_stats
        if found.delayed_partitions > 0:
            _logger.info("\tCleanable partitions: %s, Delayed partitions: %s, max delay: %s",
                         found.cleanable_partitions, found.delayed_partitions,
                         found.max_compaction_delay_ms)
