"""The start of a manager: loads the logs of all directories, with a pool of threads for each.

Follows Kafka's LogManager.loadLogs and loadLog, including messages.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from seglog._native.scan import PartitionListing
from seglog.errors import LogManagerStateError
from seglog.log.readable_log import described
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.manager.clean_loading import CleanLoading, says_little
from seglog.manager.directories import LogDirectory
from seglog.manager.collector_pause import collections_paused
from seglog.manager.sanity import defer_checks, plan_of_active_segment
from seglog.manager.state import ManagerState
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.callbacks import LoadListener
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.load_report import LoadReport
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.partition_plan import LoadLevel, PartitionPlan
from seglog.recovery.root import PartitionDirectory
from seglog.recovery.worker_pool import WorkerPool
from seglog.storage.checkpoint_files import has_line
from seglog.storage.paths import (
    HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
    DirectoryKind, stray_dir_name,
)

__all__ = ["LoadSettings", "LogLoading"]

_log = logging.getLogger(__name__)

_SERVED = (DirectoryKind.LIVE, DirectoryKind.FUTURE)
_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How logs are loaded."""

    recovery_threads: int
    segment_threads: int
    level: LoadLevel
    deferred: bool  # inactive segments are checked later, after a clean shutdown
    #: None: nothing is stray.
    is_stray: Callable[[UnifiedLog], bool] | None
    listener: LoadListener
    #: Loads one log; None: `load_unified_log`.
    load: Callable[..., UnifiedLog] | None
    #: Gets the path and error of a directory that does not load, and the others continue; None: the
    #: start fails.
    on_load_error: Callable[[str, Exception], object] | None


@dataclass(slots=True)
class _Start:
    """The start of one data directory. `had_clean_shutdown` is the same for all of its logs,
    whether others load or not. `offsets` are those of its checkpoints by name."""

    directory: LogDirectory
    load: DirectoryLoad
    had_clean_shutdown: bool = False
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    clean: CleanLoading | None = None


class LogLoading:
    """One start. Created and run by one thread; `resize_*` may be called from any other."""

    def __init__(self, state: ManagerState, registry: MetricsRegistry,
                 settings: LoadSettings) -> None:
        self._state, self._settings = state, settings
        self._directories = state.directories.all()
        self._registry = registry
        # Segments that remain, by (directory, thread number of its recovery pool): each entry is
        # set by its own thread alone.
        self._recovering: dict[tuple[str, int], int] = {}
        self._loading: dict[tuple[str, int], int] = {}
        self._starts: list[_Start] = []
        self._failed: dict[str, OSError] = {}
        self._unclean: list[str] = []
        self._cancelled = False
        #: By data directory, for completed ones.
        self.reports: dict[str, LoadReport] = {}
        self._lock = threading.Lock()

    # ---- the whole

    @collections_paused()
    def run(self) -> None:
        """Loads everything.

        A directory that the file system fails is in the channel afterwards. Every other error of a
        log is raised after all threads of this load have ended. Raises LogManagerStateError after
        `cancel`.
        """
        _log.info("Loading logs from log dirs %s", ", ".join(d.path for d in self._directories))
        started = time.perf_counter()
        try:
            with ExitStack() as loads:
                loads.callback(self._registry.remove_all, self._register_gauges())
                for directory in self._directories:
                    self._start(directory, loads)
                for start in self._starts:
                    self._start_others(start)
                for start in self._starts:
                    start.load.finish()
                    self.reports[start.directory.path] = start.load.report(
                        start.had_clean_shutdown)
                for path, error in self._failed.items():
                    self._state.failures.maybe_add_offline_log_dir(
                        path, f"Error while loading log dir {path}", error)
        except Exception as error:
            if self._cancelled:
                raise LogManagerStateError("the manager was shut down while it loaded") from None
            _log.error("There was an error in one of the threads during logs loading: %s", error)
            raise
        unclean = f" (unclean log dirs = {', '.join(self._unclean)})" if self._unclean else ""
        _log.info("Loaded %d logs in %dms%s",
                  sum(len(start.load.partitions) for start in self._starts), _ms_since(started),
                  unclean)

    def cancel(self) -> None:
        """Loads no further log, and waits until none is being loaded."""
        self._cancelled = True
        with self._lock:
            starts = list(self._starts)
        for start in starts:
            start.load.cancel()

    def resize_recovery(self, threads: int) -> None:
        """Changes the size of the recovery pools while they work."""
        for start in list(self._starts):
            start.load.resize_partitions(threads)

    def resize_segment_loading(self, threads: int) -> None:
        """Changes the size of the segment loading pools while they work."""
        for start in list(self._starts):
            start.load.segments.resize(threads)

    def _register_gauges(self) -> list[str]:
        """Registers the gauges of every configured directory and thread, including failed ones."""
        group, names = self._registry.group("kafka.log", "LogManager"), list[str]()
        remaining = {"remainingSegmentsToRecover": self._recovering}
        if self._settings.segment_threads > 1:
            remaining["RemainingSegmentsToLoad"] = self._loading
        for path in self._state.directories.log_dirs:
            names += group.gauges(
                {"remainingLogsToRecover": partial(self._remaining_logs, path)}, {"dir": path})
            for number in range(self._settings.recovery_threads):
                names += group.gauges({
                    name: partial(counts.get, (path, number)) for name, counts in remaining.items()
                }, {"dir": path, "threadNum": number})
        return names

    def _remaining_logs(self, path: str) -> int:
        return sum(start.load.remaining for start in list(self._starts)
                   if start.directory.path == path)

    # ---- one directory

    def _start(self, directory: LogDirectory, loads: ExitStack) -> None:
        settings = self._settings
        start = _Start(directory, DirectoryLoad(
            directory.path, settings.level, settings.listener, settings.segment_threads,
            settings.recovery_threads))
        with self._lock:
            if self._cancelled:
                raise LogManagerStateError("shut down")
            self._starts.append(start)
            loads.enter_context(start.load)
        try:
            clean = start.had_clean_shutdown = directory.take_clean_shutdown_marker()
            start.offsets = {name: directory.read_or_reset(name, self._continues)
                             for name in _CHECKPOINTS}
            found = directory.partition_directories(
                partial(self._passed_over, directory) if self._continues else None)
        except OSError as error:
            self._fail(directory, error)
            return
        directory.keep_on_file(start.offsets, {one.topic_partition for one in found
                                               if one.kind in _SERVED})
        self._announce(directory.path, len(found), clean)
        for one in found:
            if not has_line(one.topic_partition):
                _log.warning("%r in %s: no checkpoint can hold the offsets of a topic with blanks "
                             "or bytes that are not UTF-8 in its name. After a crash it is "
                             "recovered from its first segment; it is not compacted.", one.name,
                             directory.path)
        directory.loading_completed = not found
        start.load.start(found)
        if self._knows_rows():
            start.clean = CleanLoading(self._state, start.load, start.offsets,
                                       after_crash=not clean)
            start.load.read_rows(start.clean.read)

    def _knows_rows(self) -> bool:
        """Whether rows suffice for logs that C can load."""
        settings = self._settings
        return (settings.level is LoadLevel.KAFKA and not settings.deferred
                and settings.load is None and settings.is_stray is None and says_little())

    def _start_others(self, start: _Start) -> None:
        """Files the logs that C loaded, and starts all others."""
        directory, load = start.directory, start.load
        if start.clean is not None:
            try:
                logs = start.clean.finish()
            except OSError as error:
                load.abandon()
                self._fail(directory, error)
                return
            if logs is not None:
                self._state.table.add_unopened(logs)
                directory.forget_on_file(*logs)
                self._state.measure_unopened(logs)
                directory.loading_completed = not load.remaining
        load.load_each(load.others(), partial(self._load, start))

    def _announce(self, path: str, count: int, clean: bool) -> None:
        if not count:
            _log.info("No logs found to be loaded in %s", path)
        elif clean:
            _log.info("Skipping recovery of %d logs from %s since clean shutdown file was found",
                      count, path)
        else:
            _log.info("Recovering %d logs from %s since no clean shutdown file was found", count,
                      path)
            self._unclean.append(path)

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        with self._lock:
            self._failed.setdefault(directory.path, error)
        _log.error("Error while loading log dir %s", directory.path, exc_info=error)

    @property
    def _continues(self) -> bool:
        """Whether the start continues after a log that does not load."""
        return self._settings.on_load_error is not None

    def _passed_over(self, directory: LogDirectory, path: str, error: Exception) -> None:
        """Skips a log that failed to load: its data directory is not clean afterwards."""
        directory.had_clean_shutdown, directory.loading_failed = False, True
        assert self._settings.on_load_error is not None
        self._settings.on_load_error(path, error)

    # ---- one log

    def _load(self, start: _Start, partition: PartitionDirectory) -> None:
        directory, path = start.directory, os.path.join(start.directory.path, partition.name)
        started = time.perf_counter()
        log: UnifiedLog | None = None
        try:
            log = self._load_log(start, partition, path)
        except Exception as error:
            if self._continues:
                if partition.kind in _SERVED:
                    directory.not_loaded.add(partition.topic_partition)
                self._passed_over(directory, path, error)
            elif isinstance(error, OSError):
                self._fail(directory, error)
            else:
                raise
        finally:
            self._finish(start, path, log, _ms_since(started))

    def _finish(self, start: _Start, path: str, log: UnifiedLog | None, ms: int) -> None:
        directory, total = start.directory, len(start.load.partitions)
        if log is None:
            directory.loading_failed = True
        done = start.load.complete()
        if done == total:
            directory.loading_completed = True
        counts = f"({done}/{total} completed in {directory.path})"
        if log is None:
            _log.info("Error while loading logs in %s in %dms %s", path, ms, counts)
        elif _log.isEnabledFor(logging.INFO):
            _log.info("Completed load of %s with %d segments, local-log-start-offset %d and "
                      "log-end-offset %d in %dms %s", described(
                          log.path, log.topic_partition, log.topic_id, log.high_watermark,
                          log.last_stable_offset, log.log_start_offset, log.log_end_offset),
                      len(log.segments), log.local_log_start_offset, log.log_end_offset, ms,
                      counts)

    def _load_log(self, start: _Start, partition: PartitionDirectory, path: str) -> UnifiedLog:
        settings, inputs = self._settings, self._inputs(start, partition)
        load = settings.load or partial(load_unified_log, context=self._state.context)
        thread = (start.directory.path, WorkerPool.thread_number())
        deferred: PartitionListing | None = None

        def defer(listing: PartitionListing) -> PartitionPlan | None:
            nonlocal deferred
            plan = plan_of_active_segment(listing, settings.level)
            deferred = None if plan is None else listing
            return plan

        def load_and_file(path: str, inputs: LoadInputs, **how: Any) -> UnifiedLog:
            log = load(path, inputs, **how)
            if deferred is not None:
                log.deferred_checks = defer_checks(log, deferred, settings.level,
                                                   self._state.failures)
            self._file(start, partition, log)
            return log

        may_defer = settings.deferred and inputs.clean_shutdown and partition.kind in _SERVED
        return start.load.load_log(
            path, inputs, load_and_file, plan_first=defer if may_defer else None,
            to_load=partial(self._loading.__setitem__, thread),
            to_recover=partial(self._recovering.__setitem__, thread))

    def _inputs(self, start: _Start, partition: PartitionDirectory) -> LoadInputs:
        key, state = partition.topic_partition, self._state
        config = state.configs.of(key.topic)
        return LoadInputs(
            key, start.had_clean_shutdown,
            start.offsets[LOG_START_OFFSET_CHECKPOINT].get(key, 0),
            start.offsets[RECOVERY_POINT_CHECKPOINT].get(key, 0), config,
            is_deleted=partition.kind is DirectoryKind.DELETED,
            is_remote=state.context.is_remote(config, key.topic),
            producer_id_expiration_ms=state.producer_id_expiration_ms, clock=state.now_ms)

    def _file(self, start: _Start, partition: PartitionDirectory, log: UnifiedLog) -> None:
        kind = partition.kind
        if kind is DirectoryKind.STRAY:
            _log.warning("Loaded stray log: %s", log.path)
        elif (kind is not DirectoryKind.DELETED and self._settings.is_stray is not None
              and self._settings.is_stray(log)):
            kind, path = DirectoryKind.STRAY, log.path
            log.rename_dir(stray_dir_name(log.topic_partition, uuid.uuid4().hex))
            if self._settings.load is None:
                log.remove_log_metrics()
            _log.warning("Log in %s marked stray and renamed to %s", path, log.path)
        if kind in _SERVED:
            self._set_high_watermark(log, start.offsets[HIGH_WATERMARK_CHECKPOINT].get(
                partition.topic_partition))
        self._state.table.add(log, kind)
        if partition.kind in _SERVED:
            start.directory.forget_on_file(log.topic_partition)
            if self._settings.load is None:
                self._state.configs.serve(log)

    @staticmethod
    def _set_high_watermark(log: UnifiedLog, checkpointed: int | None) -> None:
        key = log.topic_partition
        if checkpointed is None:
            _log.info("No checkpointed highwatermark is found for partition %s", key)
        else:
            log.update_high_watermark(checkpointed)
        _log.info("Log loaded for partition %s with initial high watermark %d", key,
                  log.high_watermark)


def _ms_since(started: float) -> int:
    return int((time.perf_counter() - started) * 1000)
