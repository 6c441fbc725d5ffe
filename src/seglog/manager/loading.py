"""The start of a manager: loads the logs of all directories, with a pool of threads for each.

Follows Kafka's LogManager.loadLogs and loadLog, including messages.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from functools import partial

from seglog._native.scan import PartitionListing
from seglog.errors import LogManagerStateError
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.manager.clean_loading import CleanLoading, says_little
from seglog.manager.directories import LogDirectory
from seglog.manager.collector_pause import collections_paused
from seglog.manager.manager_gauges import Countdown, Gauges
from seglog.recovery.segment_loading import SegmentLoading
from seglog.recovery.worker_pool import WorkerPool
from seglog.recovery.load_progress import LogProgress
from seglog.manager.sanity import defer_checks, plan_of_active_segment
from seglog.manager.state import ManagerState
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.clean_rows import (
    PART_PARTITIONS, PART_SEGMENTS, CleanRows, PartitionReports, is_clean_candidate,
)
from seglog.recovery.log_loader import LoadInputs
from seglog.recovery.partition_plan import LoadLevel, PartitionPlan
from seglog.recovery.partition_load import load_partition
from seglog.recovery.load_report import LoadReport, PartitionReport
from seglog.storage.meta import format_uuid
from seglog.storage.paths import (
    HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
    DirectoryKind, DirectoryName, stray_dir_name,
)

__all__ = ["LoadSettings", "LogLoading"]

_log = logging.getLogger(__name__)

# A warm log of a few hundred segments takes less.
_QUICK_SECONDS = 0.002
_Found = tuple[str, DirectoryName]
_SERVED = (DirectoryKind.LIVE, DirectoryKind.FUTURE)
# The checkpoints, and the consequence for the offsets if one cannot be read.
_RESETS = {
    RECOVERY_POINT_CHECKPOINT: "the recovery checkpoint to 0",
    LOG_START_OFFSET_CHECKPOINT: "to the base offset of the first segment",
    HIGH_WATERMARK_CHECKPOINT: "the high watermarks to the log start offsets",
}


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
class _Job:
    """One log directory to load."""

    path: str
    name: DirectoryName
    inputs: LoadInputs
    high_watermark: int | None  # None where the checkpoint has none


@dataclass(slots=True)
class _DirectoryLoad:
    """The load of one data directory."""

    directory: LogDirectory
    pool: WorkerPool
    segments: SegmentLoading
    found: list[_Found] = field(default_factory=list)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    clean: CleanLoading | None = None
    rows: CleanRows | None = None
    parts: list[Future[list[_Found]]] = field(default_factory=list)
    remaining: int = 0
    futures: list[Future[None]] = field(default_factory=list)
    reports: dict[str, PartitionReport] = field(default_factory=dict)
    thread_segments: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class LogLoading:
    """One start. Created and run by one thread; `resize_*` may be called from any other."""

    def __init__(self, state: ManagerState, registry: MetricsRegistry,
                 settings: LoadSettings) -> None:
        self._state, self._settings = state, settings
        self._directories = state.directories.all()
        self._gauges = Gauges(registry)
        self._recovering = Countdown()  # by (directory, thread number of its recovery pool)
        self._loading = Countdown()     # the same
        self._loads: list[_DirectoryLoad] = []
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
        done = False
        try:
            self._register_gauges()
            for directory in self._directories:
                self._submit(directory)
            for load in self._loads:
                self._submit_rest(load)
            for load in self._loads:
                wait(load.futures, return_when=FIRST_EXCEPTION)  # woken once, not by each future
                for future in load.futures:
                    future.result()
                self._report(load, started)
            for path, error in self._failed.items():
                self._state.failures.maybe_add_offline_log_dir(
                    path, f"Error while loading log dir {path}", error)
            done = True
        except Exception as error:
            if self._cancelled:
                raise LogManagerStateError("the manager was shut down while it loaded") from None
            _log.error("There was an error in one of the threads during logs loading: %s", error)
            raise
        finally:
            self._gauges.remove()
            for load in self._loads:
                load.pool.shutdown(cancel=not done)
                load.segments.close()
        unclean = f" (unclean log dirs = {', '.join(self._unclean)})" if self._unclean else ""
        _log.info("Loaded %d logs in %dms%s", sum(len(load.found) for load in self._loads),
                  _ms_since(started), unclean)

    def cancel(self) -> None:
        """Loads no further log, and waits until none is being loaded."""
        self._cancelled = True
        with self._lock:
            loads = list(self._loads)
        for load in loads:
            load.pool.shutdown(cancel=True)

    def resize_recovery(self, threads: int) -> None:
        """Changes the size of the recovery pools while they work."""
        for load in list(self._loads):
            load.pool.resize(threads)

    def resize_segment_loading(self, threads: int) -> None:
        """Changes the size of the segment loading pools while they work."""
        for load in list(self._loads):
            load.segments.resize(threads)

    def _register_gauges(self) -> None:
        """Registers the gauges of every configured directory and thread, including failed ones."""
        for path in self._state.directories.log_dirs:
            self._gauges.add("remainingLogsToRecover", {"dir": path},
                             partial(self._remaining_logs, path))
            for number in range(self._settings.recovery_threads):
                tags: dict[str, str | int] = {"dir": path, "threadNum": number}
                self._gauges.add("remainingSegmentsToRecover", tags,
                                 partial(self._recovering.get, (path, number)))
                if self._settings.segment_threads > 1:
                    self._gauges.add("RemainingSegmentsToLoad", tags,
                                     partial(self._loading.get, (path, number)))

    def _remaining_logs(self, path: str) -> int:
        return sum(load.remaining for load in list(self._loads) if load.directory.path == path)

    def _report(self, load: _DirectoryLoad, started: float) -> None:
        threads = range(max(load.thread_segments, default=0) + 1)
        report = LoadReport(
            load.directory.path, self._settings.level.value, load.directory.had_clean_shutdown,
            self._settings.segment_threads, time.perf_counter() - started,
            tuple(load.thread_segments.get(number, 0) for number in threads), (),
            self._partition_reports(load))
        self.reports[load.directory.path] = report
        self._settings.listener.done(report)

    # ---- one directory

    def _submit(self, directory: LogDirectory) -> None:
        load = _DirectoryLoad(
            directory,
            WorkerPool(self._settings.recovery_threads, f"log-recovery-{directory.path}",
                       quick_seconds=_QUICK_SECONDS),
            SegmentLoading(directory.path, self._settings.segment_threads, self._settings.level))
        with self._lock:
            if self._cancelled:
                raise LogManagerStateError("shut down")
            self._loads.append(load)
        try:
            clean = directory.take_clean_shutdown_marker()
            offsets = {name: directory.read_or_reset(name, what, self._goes_on)
                       for name, what in _RESETS.items()}
            found = directory.partition_directories(
                partial(self._passed_over, directory) if self._goes_on else None)
        except OSError as error:
            self._fail(directory, error)
            return
        directory.keep_on_file(offsets, {name.topic_partition for _, name in found
                                         if name.kind in _SERVED})
        load.found, load.offsets = found, offsets
        load.remaining = len(found)
        self._announce(load, clean)
        self._settings.listener.load_started(len(found), self._settings.segment_threads)
        directory.loading_completed = not found
        if self._knows_rows():
            self._submit_clean(load, after_crash=not clean)

    def _knows_rows(self) -> bool:
        """Whether rows suffice for logs that C can load."""
        settings = self._settings
        return (settings.level is LoadLevel.KAFKA and not settings.deferred
                and settings.load is None and settings.is_stray is None and says_little())

    def _submit_clean(self, load: _DirectoryLoad, *, after_crash: bool) -> None:
        """Begins with the logs that may be ordinary."""
        listener = self._settings.listener
        load.clean = CleanLoading(self._state, load.directory.path, load.offsets,
                                  None if type(listener) is NullListener else listener,
                                  PART_SEGMENTS if self._settings.segment_threads > 1 else 0,
                                  after_crash=after_crash)
        candidates = [one for one in load.found if _may_be_row(one)]
        load.parts = [
            load.pool.submit(partial(self._run_part, load, load.clean, start,
                                     candidates[start:start + PART_PARTITIONS]))
            for start in range(0, len(candidates), PART_PARTITIONS)]

    def _submit_rest(self, load: _DirectoryLoad) -> None:
        """Files the logs that C loaded, and starts all others."""
        rest = load.found
        if load.clean is not None:
            wait(load.parts, return_when=FIRST_EXCEPTION)
            rest = [one for one in rest if not _may_be_row(one)]
            for part in load.parts:
                rest += part.result()
            try:
                logs = load.clean.finish()
            except OSError as error:
                load.found = []  # as if it could not be listed
                self._fail(load.directory, error)
                return
            if logs is not None:
                load.rows = logs.rows
                self._state.table.add_unopened(logs)
                load.directory.forget_on_file(*logs)
                self._state.measure_unopened(logs)
        load.futures = [load.pool.submit(partial(self._run_job, load, path, name))
                        for path, name in sorted(rest, key=lambda one: one[0])]

    def _run_part(self, load: _DirectoryLoad, clean: CleanLoading, number: int,
                  found: list[_Found]) -> list[_Found]:
        """Loads one part. Returns the logs that are left to the loader."""
        def count(logs: int) -> str:
            with load.lock:
                load.remaining -= logs
                done = len(load.found) - load.remaining
                load.directory.loading_completed = not load.remaining
            return f"({done}/{len(load.found)} completed in {load.directory.path})"

        segments, rest = clean.load(number, found, count)
        with load.lock:
            load.thread_segments[0] = load.thread_segments.get(0, 0) + segments
        return rest

    @staticmethod
    def _partition_reports(load: _DirectoryLoad) -> Sequence[PartitionReport]:
        if load.rows is None:
            return tuple(load.reports[path] for path, _ in load.found)
        rows = iter(range(len(load.rows.keys)))
        return PartitionReports([
            load.reports[path] if path in load.reports else next(rows)
            for path, _ in load.found], load.rows)

    def _job(self, load: _DirectoryLoad, path: str, name: DirectoryName) -> _Job:
        key, offsets = name.topic_partition, load.offsets
        config = self._state.configs.of(key.topic)
        return _Job(path, name, LoadInputs(
            key, load.directory.had_clean_shutdown,
            offsets[LOG_START_OFFSET_CHECKPOINT].get(key, 0),
            offsets[RECOVERY_POINT_CHECKPOINT].get(key, 0), config,
            is_deleted=name.kind is DirectoryKind.DELETED,
            is_remote=self._state.context.is_remote(config, key.topic),
            producer_id_expiration_ms=self._state.producer_id_expiration_ms,
            clock=self._state.now_ms,
        ), offsets[HIGH_WATERMARK_CHECKPOINT].get(key))

    def _announce(self, load: _DirectoryLoad, clean: bool) -> None:
        path, count = load.directory.path, len(load.found)
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
    def _goes_on(self) -> bool:
        """Whether the start continues after a log that does not load."""
        return self._settings.on_load_error is not None

    def _passed_over(self, directory: LogDirectory, path: str, error: Exception) -> None:
        """Skips a log that failed to load: its data directory is not clean afterwards."""
        directory.had_clean_shutdown, directory.loading_failed = False, True
        assert self._settings.on_load_error is not None
        self._settings.on_load_error(path, error)

    # ---- one log

    def _run_job(self, load: _DirectoryLoad, path: str, name: DirectoryName) -> None:
        job = self._job(load, path, name)
        started = time.perf_counter()
        key = (load.directory.path, WorkerPool.thread_number())
        progress = LogProgress(os.path.basename(job.path), self._settings.listener,
                               partial(self._loading.set, key), partial(self._recovering.set, key))
        log: UnifiedLog | None = None
        failure: BaseException | None = None
        try:
            log = self._load_log(load, job, progress)
        except BaseException as error:
            failure = error
            if self._goes_on and isinstance(error, Exception):
                self._passed_over(load.directory, job.path, error)
            elif isinstance(error, OSError):
                self._fail(load.directory, error)
            else:
                raise
        finally:
            self._finish_job(load, job, progress, log, failure, _ms_since(started))

    def _finish_job(self, load: _DirectoryLoad, job: _Job, progress: LogProgress,
                    log: UnifiedLog | None, failure: BaseException | None, ms: int) -> None:
        path = load.directory.path
        with load.lock:
            load.remaining -= 1
            done = len(load.found) - load.remaining
            load.directory.loading_completed = not load.remaining
            load.directory.loading_failed |= log is None
        counts = f"({done}/{len(load.found)} completed in {path})"
        if log is None:
            _log.info("Error while loading logs in %s in %dms %s", job.path, ms, counts)
        elif _log.isEnabledFor(logging.INFO):
            _log.info("Completed load of %s with %d segments, local-log-start-offset %d and "
                      "log-end-offset %d in %dms %s", _described(log), len(log.segments),
                      log.local_log_start_offset, log.log_end_offset, ms, counts)
        report = progress.report(job.name.topic_partition, job.inputs.recovery_point, log, failure)
        with load.lock:
            load.reports[job.path] = report
            for thread, count in progress.thread_segments.items():
                load.thread_segments[thread] = load.thread_segments.get(thread, 0) + count

    def _load_log(self, load: _DirectoryLoad, job: _Job, progress: LogProgress) -> UnifiedLog:
        settings, inputs = self._settings, job.inputs
        deferred: PartitionListing | None = None

        def defer(listing: PartitionListing) -> PartitionPlan | None:
            nonlocal deferred
            plan = plan_of_active_segment(listing, settings.level)
            deferred = None if plan is None else listing
            return plan

        may_defer = settings.deferred and inputs.clean_shutdown and job.name.kind in _SERVED
        log = load_partition(
            job.path, inputs,
            settings.load or partial(load_unified_log, context=self._state.context),
            load.segments, progress, plan_first=defer if may_defer else None)
        if deferred is not None:
            log.deferred_checks = defer_checks(log, deferred, settings.level, self._state.failures)
        self._file(load.directory, job, log)
        return log

    def _file(self, directory: LogDirectory, job: _Job, log: UnifiedLog) -> None:
        kind = job.name.kind
        if kind is DirectoryKind.STRAY:
            _log.warning("Loaded stray log: %s", job.path)
        elif (kind is not DirectoryKind.DELETED and self._settings.is_stray is not None
              and self._settings.is_stray(log)):
            kind = DirectoryKind.STRAY
            log.rename_dir(stray_dir_name(log.topic_partition, uuid.uuid4().hex))
            _log.warning("Log in %s marked stray and renamed to %s", job.path, log.path)
        if kind in _SERVED:
            self._set_high_watermark(log, job.high_watermark)
        self._state.table.add(log, kind)
        if job.name.kind in _SERVED:
            directory.forget_on_file(log.topic_partition)
            if self._settings.load is None:
                self._state.serve(log)

    @staticmethod
    def _set_high_watermark(log: UnifiedLog, checkpointed: int | None) -> None:
        key = log.topic_partition
        if checkpointed is None:
            _log.info("No checkpointed highwatermark is found for partition %s", key)
        else:
            log.update_high_watermark(checkpointed)
        _log.info("Log loaded for partition %s with initial high watermark %d", key,
                  log.high_watermark)


def _may_be_row(found: _Found) -> bool:
    path, name = found
    return is_clean_candidate(os.path.basename(path), name.topic_partition, name.kind)


def _described(log: UnifiedLog) -> str:
    """A log in Kafka's text form (UnifiedLog.toString)."""
    key = log.topic_partition
    topic_id = "" if log.topic_id is None else f", topicId={format_uuid(log.topic_id)}"
    return (f"Log(dir={log.path}{topic_id}, topic={key.topic}, partition={key.partition}, "
            f"highWatermark={log.high_watermark}, lastStableOffset={log.last_stable_offset}, "
            f"logStartOffset={log.log_start_offset}, logEndOffset={log.log_end_offset})")


def _ms_since(started: float) -> int:
    return int((time.perf_counter() - started) * 1000)
