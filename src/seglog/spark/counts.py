"""Counts records from batch headers: `count(spark, path)`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from seglog.model import TopicPartition
from seglog.spark.option_values import query_options
from seglog.spark.read_options import parse_options
from seglog.spark.plan import SeglogPartition, plan_partitions
from seglog.storage.record_counts import RecordCount, count_range
from seglog.storage.log_store import LOCAL
from seglog.storage.stream import DecodeOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Counts", "count"]

#: A segment of Kafka's default size: the headers of 1 GiB take a tenth of a second.
_TASK_BYTES = 1 << 30
_SHARES_OF_CONNECT = 32
_FIELDS = {"task": pa.int64(), "records": pa.int64(), "min_offset": pa.int64(),
           "max_offset": pa.int64(), "min_timestamp": pa.int64(), "max_timestamp": pa.int64(),
           "min_timestamp_is_exact": pa.bool_()}
_DDL = ", ".join(f"{name} {'boolean' if kind == pa.bool_() else 'long'}"
                 for name, kind in _FIELDS.items())


@dataclass(frozen=True, slots=True)
class Counts:
    """The count of every partition read; 0 for one without records."""

    partitions: Mapping[TopicPartition, RecordCount]

    @property
    def records(self) -> int:
        """The records of all partitions."""
        return sum(one.records for one in self.partitions.values())


def count(spark: SparkSession, path: str, *, exact: bool = False, **options: object) -> Counts:
    """Counts the records that `spark.read.format("seglog").options(**options).load(path)` returns,
    and finds the smallest and largest offset and timestamp of each partition.

    Executors read only batch headers, so they do not find damage in records. The largest timestamp
    is exact. The smallest is that of a batch's first record unless `exact`, which decodes all
    timestamps (see RecordCount.min_timestamp_is_exact). failOnDataLoss=false decodes all records,
    because only that finds all damage.

    Raises as the read does: ValueError, UnknownTopicOrPartitionError or OffsetOutOfRangeError on
    the driver, Spark's exception for a failed task.
    """
    given = parse_options(query_options(path, options))
    chosen: list[TopicPartition] = []
    tasks = plan_partitions(replace(given, split_bytes=_TASK_BYTES, min_partitions=None),
                            on_partition=chosen.append)
    decoding = DecodeOptions(check_crcs=given.check_crcs, on_damage=given.on_damage)
    totals = {tp: RecordCount() for tp in chosen}
    for task, found in _run(spark, tasks, decoding, exact):
        totals[tasks[task].topic_partition] += found
    return Counts(totals)


def _run(spark: SparkSession, tasks: Sequence[SeglogPartition], decoding: DecodeOptions,
         exact: bool) -> Iterator[tuple[int, RecordCount]]:
    """Yields each task's number and count."""
    if not tasks:
        return
    try:
        context = spark.sparkContext
    except AttributeError:  # Spark Connect has no SparkContext
        yield from _run_by_frame(spark, tasks, decoding, exact)
        return
    shares = _shares(tasks, min(len(tasks), max(1, context.defaultParallelism)))
    work = [[(number, tasks[number]) for number in share] for share in shares]
    counted = context.parallelize(work, len(work)).map(
        lambda share: [(number, _count(task, decoding, exact)) for number, task in share])
    for found in counted.collect():
        yield from found


def _run_by_frame(spark: SparkSession, tasks: Sequence[SeglogPartition], decoding: DecodeOptions,
                  exact: bool) -> Iterator[tuple[int, RecordCount]]:
    """As `_run`, without RDDs; PySpark requires pandas for it."""
    shares = _shares(tasks, min(len(tasks), _SHARES_OF_CONNECT))

    def count_shares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                rows = [(number, *astuple(_count(tasks[number], decoding, exact)))
                        for number in shares[share]]
                yield pa.record_batch({
                    name: pa.array([row[at] for row in rows], kind)
                    for at, (name, kind) in enumerate(_FIELDS.items())})

    frame = spark.range(0, len(shares), 1, len(shares)).mapInArrow(count_shares, _DDL)
    for row in frame.collect():
        yield int(row[0]), RecordCount(*row[1:])


def _count(task: SeglogPartition, decoding: DecodeOptions, exact: bool) -> RecordCount:
    task.require_seen()
    return sum((count_range(planned, decoding, exact=exact, where=task.where or LOCAL)
                for planned in task.ranges), RecordCount())


def _shares(tasks: Sequence[SeglogPartition], wanted: int) -> list[list[int]]:
    """Task numbers in shares of about equal bytes, the largest tasks first."""
    heap: list[tuple[int, int]] = [(0, share) for share in range(wanted)]
    shares: list[list[int]] = [[] for _ in heap]
    sizes = [sum(planned.size for planned in task.ranges) for task in tasks]
    for task in sorted(range(len(tasks)), key=lambda n: -sizes[n]):
        size, share = heapq.heappop(heap)
        shares[share].append(task)
        heapq.heappush(heap, (size + sizes[task], share))
    return shares
