"""`seglog.spark.verify`: `seglog verify` distributed over a cluster's executors.

Two Spark jobs. The first reads every segment to its end, the second checks the indexes of each
partition and runs Kafka's loader as a dry run. Tasks alternate between data directories, so that
all disks are read at the same time. Nothing is written, created or locked.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark import InheritableThread

from seglog.arguments import given_path, require_local
from seglog.config import BrokerConfig
from seglog.scrub import (
    DirectoryScrub, LoadListener, LoadLevel, LoadOptions, LoadReport, NullListener, PartitionPiece,
    PartitionReport, SegmentCheck, SegmentsPiece, exit_code, finding_row,
)
from seglog.spark.table_columns import alternate, struct_type
from seglog.spark.finding_rows import FINDING_COLUMNS, finding_batches
from seglog.spark.jobs import context_of, results_by_frame
from seglog.spark.locations import require_seen
from seglog.spark.spark_session import register, session
from seglog.storage.ranges import pack

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TASK_BYTES_DEFAULT", "Verification", "verify", "verify_on"]

#: Bytes of log files that a task reads: a second or two of a fast disk, far above Spark's cost of a
#: task. Tasks of small clusters and directories are smaller: see _TASKS_PER_SLOT.
TASK_BYTES_DEFAULT: Final = 2 << 30
#: Tasks for each slot of the cluster, so that the last ones end together, unless they become
#: smaller than a task must be to cover its start.
_TASKS_PER_SLOT, _TASK_BYTES_MIN = 4, 4 << 20
_POLL_SECONDS = 0.1
_SLOTS_OF_CONNECT = 8  # a client does not know the server's number of cores

_T = TypeVar("_T")
_P = TypeVar("_P", SegmentsPiece, PartitionPiece)
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`: one report a path, in order."""

    reports: tuple[LoadReport, ...]

    @property
    def exit_code(self) -> int:
        """The exit code of `seglog verify`. 0: nothing is lost; 1: a finding of severity error or
        fatal, or a log that Kafka would not load."""
        rows = [one.to_dict() for one in self.reports]
        return exit_code([], [row for one in rows for row in one["partitions"]],
                         [row for one in rows for row in one["findings"]])

    def rows(self) -> list[dict[str, Any]]:
        """One mapping a finding, with the names of docs/json.md."""
        return [finding_row(one.path, found) for one in self.reports for found in one.findings]

    def to_df(self, spark: SparkSession) -> DataFrame:
        """One row a finding, with the columns of `option("table", "findings")`."""
        rows = [row for batch in finding_batches(self.rows())
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
        return spark.createDataFrame(rows, struct_type(FINDING_COLUMNS))


def verify(spark: SparkSession, paths: str | PathLike[str] | Sequence[str | PathLike[str]], *,
           config: Mapping[str, object] | None = None, listener: LoadListener | None = None,
           task_bytes: int = TASK_BYTES_DEFAULT) -> Verification:
    """Checks every batch and every index of data directories on the executors of `spark`.

    `paths` are data directories or partition directories, with the same names on the driver and the
    executors. `config` holds broker or topic settings under Kafka's names. `listener` gets progress
    in the calling thread; over Spark Connect it gets only completion. A task reads about
    `task_bytes`.

    The findings and their order are those of `seglog verify` on one machine. Raises
    KafkaStorageError for a URL and for a path that cannot be listed or is no data directory, and
    ConfigError.
    """
    broker = BrokerConfig.from_properties(dict(config or {}))
    options = LoadOptions(LoadLevel.VERIFY, broker, broker.log_config(dict(config or {})))
    given = [given_path(path) for path in
             ([paths] if isinstance(paths, str | PathLike) else paths)]
    for path in given:
        require_local(path)
    register(spark)  # raises one sentence if executors lack something
    return Verification(_verify(spark, given, options, listener or NullListener(), task_bytes))


def verify_on(master: str, paths: Sequence[str], options: LoadOptions, listener: LoadListener
              ) -> tuple[LoadReport, ...]:
    """Runs `verify` in its own session on a Spark master, for `seglog verify --spark`.

    Raises SparkSetupError if Spark cannot start or an executor cannot run seglog."""
    spark = session(master, "seglog verify")
    try:
        return _verify(spark, paths, options, listener, TASK_BYTES_DEFAULT)
    finally:
        spark.stop()


def _verify(spark: SparkSession, paths: Sequence[str], options: LoadOptions,
            hears: LoadListener, task_bytes: int) -> tuple[LoadReport, ...]:
    scrubs = [DirectoryScrub(path, options) for path in paths]
    slots = _slots(spark)
    _announce(scrubs, hears, slots)
    segments = sum(count for one in scrubs for count, _ in one.segment_counts().values())
    recovered = sum(count for one in scrubs for _, count in one.segment_counts().values())
    size = sum(piece.size for one in scrubs for piece in one.segment_pieces(task_bytes))

    checked = _run(spark, "reads segments", _check_all,
                   [list(one.segment_pieces(_cut(spark, size, task_bytes))) for one in scrubs],
                   task_bytes,
                   _Share(segments, lambda n: hears.segments_verified(
                       "", n, size * n // max(segments, 1), 0)))
    judged = _run(spark, "judges partitions", _judge_all,
                  [list(one.partition_pieces(one.verified(results)))
                   for one, results in zip(scrubs, checked, strict=True)], task_bytes,
                  _Share(segments + recovered, lambda n: hears.segments_loaded("", n, 0)))
    reports = []
    for one, results in zip(scrubs, judged, strict=True):
        reports.append(one.report([report for _, report in results], slots))
        for found in reports[-1].findings:
            hears.finding(found)
        hears.done(reports[-1])
    return tuple(reports)


def _slots(spark: SparkSession) -> int:
    context = context_of(spark)
    return _SLOTS_OF_CONNECT if context is None else context.defaultParallelism


def _cut(spark: SparkSession, size: int, task_bytes: int) -> int:
    """The number of bytes of `size` that each task reads."""
    return min(task_bytes, max(size // (_slots(spark) * _TASKS_PER_SLOT), _TASK_BYTES_MIN))


def _announce(scrubs: Iterable[DirectoryScrub], listener: LoadListener, threads: int) -> None:
    for one in scrubs:
        listener.load_started(one.partition_count, threads)
        for name, (segments, recovered) in one.segment_counts().items():
            listener.partition_started(name)
            listener.segments_listed(name, segments)
            listener.recovery_planned(name, recovered)


# ---- on the executors --------------------------------------------------------------------------

def _check_all(pieces: list[SegmentsPiece]) -> list[list[SegmentCheck]]:
    for piece in pieces:
        require_seen(os.path.dirname(piece.path))
    return [piece.check() for piece in pieces]


def _judge_all(pieces: list[PartitionPiece]) -> list[PartitionReport | None]:
    for piece in pieces:
        require_seen(os.path.dirname(piece.listing.path))
    return [piece.judge() for piece in pieces]


# ---- the jobs ----------------------------------------------------------------------------------

class _Share:
    """Reports progress in whole numbers that add up to `total` when all tasks are done."""

    def __init__(self, total: int, tell: Callable[[int], None]) -> None:
        self._total, self._report, self._reported = total, tell, 0

    def update(self, done: int, tasks: int) -> None:
        """Reports that `done` of `tasks` are done."""
        reached = self._total * done // max(tasks, 1)
        if reached > self._reported:
            self._report(reached - self._reported)
            self._reported = reached


def _run(spark: SparkSession, what: str, work: Callable[[list[Any]], list[_R]],
         pieces: list[list[_P]], task_bytes: int, share: _Share) -> list[list[tuple[_P, _R]]]:
    """Runs `work` on the pieces of every data directory. Returns each directory's (piece, result)
    pairs, in order."""
    order = list(alternate(pieces))
    size = sum(piece.size for piece in order)
    tasks = list(pack(order, _cut(spark, size, task_bytes)))
    results: Iterator[_R] = iter(())
    if tasks:
        context = context_of(spark)
        if context is None:  # the caller's thread waits, and sees no progress
            found = results_by_frame(spark, tasks, work)
        else:
            job = _Job(context, what, tasks, work)
            for done in job.progress():
                share.update(done, len(tasks))
            found = job.results()
        results = itertools.chain.from_iterable(found)
    share.update(1, 1)
    paired: list[list[tuple[_P, _R]]] = [[] for _ in pieces]
    homes = alternate([[home] * len(some) for home, some in zip(paired, pieces, strict=True)])
    for home, piece, result in zip(homes, order, results, strict=True):
        home.append((piece, result))
    return paired


class _Job:
    """One Spark job in its own thread, while the caller polls Spark's status tracker."""

    def __init__(self, context: SparkContext, what: str, tasks: list[Any],
                 work: Callable[[Any], Any]) -> None:
        self._context, self._what = context, what
        self._group = f"seglog-verify-{uuid.uuid4()}"
        self._rdd = context.parallelize(tasks, len(tasks)).map(work)
        self._results: list[Any] = []
        self._error: BaseException | None = None
        self._thread = InheritableThread(target=self._collect, daemon=True)

    def _collect(self) -> None:
        try:
            self._context.setJobGroup(self._group, f"seglog verify: {self._what}")
            self._results = self._rdd.collect()
        except BaseException as error:
            self._error = error

    def progress(self) -> Iterator[int]:
        """Yields the number of completed tasks until the job ends. Cancels the job if the caller
        stops early."""
        self._thread.start()
        tracker = self._context.statusTracker()
        try:
            while self._thread.is_alive():
                self._thread.join(_POLL_SECONDS)
                yield sum(stage.numCompletedTasks
                          for job in tracker.getJobIdsForGroup(self._group)
                          if (found := tracker.getJobInfo(job)) is not None
                          for one in found.stageIds
                          if (stage := tracker.getStageInfo(one)) is not None)
        finally:
            if self._thread.is_alive():
                self._context.cancelJobGroup(self._group)
                self._thread.join()

    def results(self) -> list[Any]:
        """One result a task, in order. Raises the error of a failed job."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results
