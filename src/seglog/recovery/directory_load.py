"""The load of one data directory: many partitions per call in C, every other one by the loader.

The read-only load, the manager and the dry run are policies of this driver. They choose the
partitions, the rows and the disk, and decide what a failure means.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from typing import Any, Self, TypeVar

from seglog._native.scan import PartitionListing
from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.clean_rows import (
    PART_PARTITIONS, PART_SEGMENTS, CleanRows, PartitionReports, is_clean_candidate,
    report_of_row,
)
from seglog.recovery.disk import Disk
from seglog.recovery.findings import Finding
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.load_progress import Gauge, LoadedSizes, LogProgress, ignore
from seglog.recovery.load_report import LoadReport, PartitionReport
from seglog.recovery.partition_plan import LoadLevel, PartitionPlan
from seglog.recovery.root import PartitionDirectory
from seglog.recovery.segment_loading import SegmentLoading
from seglog.recovery.worker_pool import WorkerPool
from seglog.recovery.wrong_indexes import without_wrong_indexes

__all__ = ["DirectoryLoad"]

_Log = TypeVar("_Log", bound=LoadedSizes)
_ReadRows = Callable[[Sequence[PartitionDirectory]], CleanRows]

# A warm log of a few hundred segments takes less.
_QUICK_SECONDS = 0.002


class DirectoryLoad:
    """One load of the data directory `path`, at `level`; `listener` is notified.

    `partition_threads` load partitions at the same time; None: the calling thread loads them one
    after the other. `segment_threads` share the segments of a partition (KIP-1346). One thread
    calls the methods in their order here: `start`, `read_rows` and `finish_rows` if rows are
    possible, `load_each`, `finish`, `report`. Any thread may call `resize_partitions`, `cancel` and
    `load_log`.
    """

    def __init__(self, path: str, level: LoadLevel, listener: LoadListener, segment_threads: int,
                 partition_threads: int | None = None) -> None:
        self.path, self.level, self.listener = path, level, listener
        self.segments = SegmentLoading(path, segment_threads, level)
        self._pool = None if partition_threads is None else WorkerPool(
            partition_threads, f"log-recovery-{path}", quick_seconds=_QUICK_SECONDS)
        self.partitions: Sequence[PartitionDirectory] = ()
        #: The partitions that C loaded; None where there are none.
        self.rows: CleanRows | None = None
        self._reads: list[Callable[[], tuple[CleanRows, int]]] = []
        self._loads: list[Future[object]] = []
        self._reports: dict[str, PartitionReport] = {}
        self._thread_segments: Counter[int] = Counter()
        self._completed = 0
        self._started = time.perf_counter()
        self._lock = threading.Lock()

    def start(self, partitions: Sequence[PartitionDirectory]) -> None:
        """Announces the partitions, which are sorted by name."""
        self.partitions = partitions
        self.listener.load_started(len(partitions), self.segments.threads)

    def abandon(self) -> None:
        """Drops all partitions, as if the directory could not be listed."""
        self.partitions, self.rows, self._completed = (), None, 0

    @property
    def remaining(self) -> int:
        """The number of partitions that are not loaded yet."""
        return len(self.partitions) - self._completed

    def complete(self, count: int = 1) -> int:
        """Counts partitions as loaded, or failed. Returns how many there are now."""
        with self._lock:
            self._completed += count
            return self._completed

    # ---- rows ---------------------------------------------------------------------------------

    @property
    def row_segments_max(self) -> int:
        """Partitions with more segments are left to the threads that share one; 0: no limit."""
        return PART_SEGMENTS if self.segments.threads > 1 else 0

    def read_rows(self, read: _ReadRows) -> None:
        """Begins to load partitions as rows. `read` gets some, in any thread, and returns rows of
        those that C can load."""
        candidates = [one for one in self.partitions if is_clean_candidate(
            one.name, one.topic_partition, one.kind)]
        pool = self._pool or self.segments.pool
        for at in range(0, len(candidates), PART_PARTITIONS):
            job = partial(self._read_part, read, candidates[at:at + PART_PARTITIONS])
            self._reads.append(job if pool is None else pool.submit(job).result)

    def _read_part(self, read: _ReadRows,
                   partitions: Sequence[PartitionDirectory]) -> tuple[CleanRows, int]:
        # The threads of a report are those that share segments.
        is_shared = self._pool is None and self.segments.pool is not None
        return read(partitions), WorkerPool.thread_number() if is_shared else 0

    def finish_rows(self, log_row: Callable[[CleanRows, int, int], None] | None = None
                    ) -> CleanRows | None:
        """Waits for the rows, and reports them. `log_row(rows, row, completed)` is called for each.
        """
        parts: list[CleanRows] = []
        is_quiet = log_row is None and type(self.listener) is NullListener
        for read in self._reads:
            part, thread = read()
            parts.append(part)
            self.count_segments(thread, int(part.files["segments"].sum()))
            if is_quiet:
                self.complete(len(part.keys))
                continue
            for row in range(len(part.keys)):
                if log_row is not None:
                    log_row(part, row, self.complete())
                self._notify_row(part, row, thread)
        if any(len(part.keys) for part in parts):
            self.rows = CleanRows.joined(parts)
        return self.rows

    def _notify_row(self, part: CleanRows, row: int, thread: int) -> None:
        """Reports the events of a load to the listener."""
        listener = self.listener
        if type(listener) is NullListener:
            return
        report = report_of_row(part, row)
        name = report.directory
        listener.partition_started(name)
        listener.segments_listed(name, report.segments)
        listener.segments_loaded(name, report.segments, thread)
        if part.after_crash:
            listener.recovery_started(name, report.recovery_segments, report.recovery_bytes)
        for found in report.findings:
            listener.finding(found)
        if part.after_crash:
            listener.segments_recovered(name, report.recovery_segments, report.recovery_bytes)
        listener.partition_loaded(report)

    def others(self) -> list[PartitionDirectory]:
        """The partitions that are not rows."""
        if self.rows is None:
            return list(self.partitions)
        names = set(map(str, self.rows.keys))
        return [one for one in self.partitions if one.name not in names]

    # ---- one partition after the other --------------------------------------------------------

    def load_each(self, partitions: Sequence[PartitionDirectory],
                  load: Callable[[PartitionDirectory], object]) -> None:
        """Calls `load` for each partition, in the threads for partitions; see `finish`."""
        if self._pool is None:
            for one in partitions:
                load(one)
        else:
            self._loads = [self._pool.submit(partial(_call, load, one)) for one in partitions]

    def load_log(self, path: str, inputs: LoadInputs, load: Callable[..., _Log], *,
                 disk: Disk | None = None,
                 plan_first: Callable[[PartitionListing], PartitionPlan | None] | None = None,
                 to_load: Gauge = ignore, to_recover: Gauge = ignore) -> _Log:
        """Loads one partition directory with `load`, which gets the arguments of
        `open_log.load_state`. Returns its result.

        `disk` is the directory itself or an overlay; None leaves the choice to `load`. A plan of
        `plan_first` replaces the checks. The gauges get the number of segments left. Raises the
        exceptions of `load`.
        """
        progress = LogProgress(os.path.basename(path), self.listener, to_load, to_recover)

        def check(listing: PartitionListing) -> PartitionPlan:
            progress.listed(listing)
            plan = None if plan_first is None else plan_first(listing)
            if plan is None:
                plan = self.segments.check(listing, progress.checked)
            progress.planned(plan)
            if self.level is LoadLevel.KAFKA:
                return plan
            return without_wrong_indexes(
                plan, None if inputs.clean_shutdown else inputs.recovery_point, disk)

        where: dict[str, Any] = {} if disk is None else {"disk": disk}
        log: _Log | None = None
        failure: BaseException | None = None
        try:
            progress.started()
            with self.segments.scans() as scans:
                log = load(path, inputs, check=check, listener=progress,
                           remaining=progress.remaining, scans=scans, **where)
            return log
        except BaseException as error:
            failure = error
            raise
        finally:
            self.add(progress.report(inputs.topic_partition, inputs.recovery_point, log, failure))
            for thread, count in progress.thread_segments.items():
                self.count_segments(thread, count)

    def add(self, report: PartitionReport) -> None:
        """Adds the report of a partition."""
        with self._lock:
            self._reports[report.directory] = report

    def count_segments(self, thread: int, count: int) -> None:
        """Counts segments that a thread of phase one checked."""
        with self._lock:
            self._thread_segments[thread] += count

    def finish(self) -> None:
        """Waits until every partition is loaded. Raises the first error of `load_each`."""
        wait(self._loads, return_when=FIRST_EXCEPTION)  # woken once, not by each future
        for future in self._loads:
            future.result()

    # ---- the end ------------------------------------------------------------------------------

    def report(self, clean_shutdown: bool, findings: tuple[Finding, ...] = (),
               in_use_by: str | None = None) -> LoadReport:
        """The report, with the partitions in the order of their names. The listener gets it too."""
        entries: dict[str, PartitionReport | int] = {**self._reports}
        if self.rows is not None:
            entries |= {str(key): row for row, key in enumerate(self.rows.keys)}
        threads = max(self.segments.threads, max(self._thread_segments, default=0) + 1)
        report = LoadReport(
            self.path, self.level.value, clean_shutdown, self.segments.threads,
            time.perf_counter() - self._started,
            tuple(self._thread_segments[number] for number in range(threads)), findings,
            PartitionReports([entries[one.name] for one in self.partitions
                              if one.name in entries], self.rows), in_use_by)
        self.listener.done(report)
        return report

    def resize_partitions(self, threads: int) -> None:
        """Changes the number of threads that load partitions, while they work."""
        if self._pool is not None:
            self._pool.resize(threads)

    def cancel(self) -> None:
        """Loads no further partition, and waits until none is being loaded."""
        if self._pool is not None:
            self._pool.shutdown(cancel=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel=kind is not None)
        self.segments.close()


def _call(load: Callable[[PartitionDirectory], object], partition: PartitionDirectory) -> None:
    """Drops the result, which the future of a pool would keep to the end: of a dry run, the
    rebuilt indexes of every log."""
    load(partition)
