"""Counts records from batch headers: `count(spark, path)`."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from seglog.model import TopicPartition
from seglog.objects import StorageOptions
from seglog.spark.jobs import context_of, results_by_frame
from seglog.spark.option_values import query_options
from seglog.spark.read_options import parse_options
from seglog.spark.plan import SeglogPartition, gaps_of, plan_partitions
from seglog.storage.record_counts import RecordCount, count_range
from seglog.storage.stream import DecodeOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Counts", "count"]

#: A segment of Kafka's default size: the headers of 1 GiB take a tenth of a second.
_TASK_BYTES = 1 << 30
_SHARES_OF_CONNECT = 32


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
    # Options that divide rows into tasks would cut batches, which are then decoded.
    whole = replace(given, split_bytes=_TASK_BYTES, min_partitions=None,
                    max_records_per_partition=None)
    tasks = plan_partitions(whole, on_partition=chosen.append)
    decoding = DecodeOptions(check_crcs=given.check_crcs, on_damage=given.on_damage)
    totals = {tp: RecordCount() for tp in chosen}
    for task, found in _run(spark, tasks, decoding, given.storage, exact):
        totals[tasks[task].topic_partition] += found
    return Counts(totals)


def _run(spark: SparkSession, tasks: Sequence[SeglogPartition], decoding: DecodeOptions,
         storage: StorageOptions, exact: bool) -> Iterable[tuple[int, RecordCount]]:
    """Each task's number and count."""
    if not tasks:
        return ()
    context = context_of(spark)
    slots = _SHARES_OF_CONNECT if context is None else max(1, context.defaultParallelism)
    shares = [[(number, tasks[number]) for number in share]
              for share in _shares(tasks, min(len(tasks), slots))]

    def count_share(share: list[tuple[int, SeglogPartition]]) -> list[tuple[int, RecordCount]]:
        return [(number, _count(task, decoding, storage, exact)) for number, task in share]

    return chain.from_iterable(
        results_by_frame(spark, shares, count_share) if context is None
        else context.parallelize(shares, len(shares)).map(count_share).collect())


def _count(task: SeglogPartition, decoding: DecodeOptions, storage: StorageOptions, exact: bool
           ) -> RecordCount:
    task.require_seen()
    return sum((count_range(planned, decoding, exact=exact, on_gap=gaps_of(decoding.on_damage),
                            where=task.files(planned, storage))
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
