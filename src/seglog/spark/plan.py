"""Turns options into tasks on the driver: chooses partitions, then offsets, then bytes.

A task (`SeglogPartition`) reads byte ranges of one topic partition, so many tasks can share a large
partition and one task can read many small segments. The three steps can also be used separately:
`choose_partitions`, `resolve_offsets`, `cut_tasks`.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from seglog.errors import (
    CorruptRecordError, IllegalStateError, KafkaStorageError, OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from seglog.model import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, TopicPartition
from seglog.objects import StorageOptions
from seglog.spark.filters import INT64_MIN, Pushed
from seglog.spark.locations import directories, require_seen
from seglog.spark.offset_ranges import OffsetRange, divide
from seglog.spark.option_values import java_pattern
from seglog.spark.read_options import EARLIEST, LATEST, SPLIT_BYTES, OffsetBound, ReadOptions
from seglog.spark.remote_option import carried, tier_of
from seglog.storage.discover import FoundDirectory, find_replicas
from seglog.storage.isolation import Isolation
from seglog.storage.log_store import Files, files_of
from seglog.storage.partition_log import PartitionLog
from seglog.storage.place import NOT_A_DATA_DIRECTORY
from seglog.storage.ranges import LogGap, LogRange, pack
from seglog.storage.replicas import choose_replica
from seglog.storage.selection import is_internal, unknown_partition, unknown_topic
from seglog.storage.stream import OnDamage
from seglog.storage.timestamps import ranges_since

__all__ = ["SeglogPartition", "choose_directories", "choose_partitions", "cut_tasks",
           "gaps_of", "has_changed", "has_vanished", "plan_partitions", "refuse_damage",
           "require_all_named", "resolve_offset", "resolve_offsets"]

_log = logging.getLogger("seglog.spark")

# Topics that a consumer's pattern does not match (Kafka: Topic.INTERNAL_TOPICS), and the topic that
# no broker serves.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state",
             "__cluster_metadata")
#: How often a directory is read again if it changes while a query is planned.
_LOOKS = 5
_WARNED_REPLICAS = 5
# Tasks with small output may grow to this size while at least this many remain.
_LIGHT_SPLIT_BYTES, _LIGHT_TASKS = 4 * SPLIT_BYTES, 16
_LOG_STARTS = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)


@dataclass(frozen=True, repr=False)
class SeglogPartition(InputPartition):
    """Byte ranges of one topic partition, in order: the work of one Spark task. Picklable. `where`
    their files lie, if the paths do not say it."""

    topic_partition: TopicPartition
    ranges: Sequence[LogRange]
    where: Files | None = None

    def require_seen(self) -> None:
        """Raises KafkaStorageError on a machine without the data directory. A tier is no directory
        of the partition."""
        if self.where is None and self.ranges:
            require_seen(os.path.dirname(os.path.dirname(self.ranges[0].file)))

    def files(self, planned: LogRange, storage: StorageOptions) -> Files:
        """What reads the file of one of the ranges."""
        return self.where or files_of(planned.file, storage)

    def __repr__(self) -> str:
        size = sum(part.size for part in self.ranges)
        return f"SeglogPartition({self.topic_partition}, {len(self.ranges)} ranges, {size} bytes)"


def plan_partitions(options: ReadOptions, pushed: Pushed | None = None, *, is_narrow: bool = False,
                    on_partition: Callable[[TopicPartition], object] = lambda tp: None
                    ) -> list[SeglogPartition]:
    """All tasks of a query that may have rows that match `pushed`, by partition and offset. Calls
    `on_partition` for each partition read, also without records. `is_narrow` means small output
    rows and makes larger tasks.

    Plans again if retention or the deletion of a topic removes a file meanwhile. Raises
    UnknownTopicOrPartitionError for a missing topic or partition, OffsetOutOfRangeError for offsets
    outside the log while failOnDataLoss is true, and ValueError and IllegalStateError where Spark's
    Kafka source refuses the options.
    """
    for look in range(_LOOKS):
        try:
            return _plan(options, pushed or Pushed(), is_narrow, on_partition)
        except KafkaStorageError as error:
            if not has_changed(error):
                raise
            _log.info("planning again (%d): %s", look + 1, error)
            vanished = error
    raise KafkaStorageError(
        vanished.errno, "files disappear while the query is planned; run it again, or on a copy",
        vanished.filename) from None


def has_changed(error: KafkaStorageError) -> bool:
    """Whether a file was deleted, replaced or truncated while it was read."""
    return has_vanished(error) or error.code in ("file_shrank", "object_changed")


def has_vanished(error: KafkaStorageError) -> bool:
    """Whether a listed file or directory is gone."""
    return error.errno == errno.ENOENT and error.code != NOT_A_DATA_DIRECTORY


def _plan(options: ReadOptions, pushed: Pushed, is_narrow: bool,
          on_partition: Callable[[TopicPartition], object]) -> list[SeglogPartition]:
    chosen = choose_partitions(options)
    require_all_named(options.starting, chosen, "start")
    require_all_named(options.ending, chosen, "end")
    logs: dict[TopicPartition, PartitionLog] = {}
    try:
        ranges = []
        for tp, path in sorted(chosen.items()):
            if pushed.is_empty or not pushed.wants(tp):
                continue
            on_partition(tp)
            logs[tp] = PartitionLog.open(path, storage_options=options.storage,
                                         remote=tier_of(options))
            ranges.append(OffsetRange(tp, *resolve_offsets(options, tp, logs[tp])))
        return list(cut_tasks(options, ranges, logs, pushed, is_narrow))
    finally:
        for log in logs.values():
            log.close()


# ---- which partitions

def choose_partitions(options: ReadOptions, *, without_missing: bool = False
                      ) -> dict[TopicPartition, str]:
    """The directory of each requested partition. Of several replicas, chooses the most complete one
    and logs it.

    Raises UnknownTopicOrPartitionError for a missing topic or partition unless `without_missing`.
    """
    chosen: dict[TopicPartition, str] = {}
    differing = []
    for tp, found in sorted(choose_directories(
            options, without_missing=without_missing).items()):
        if len(found) == 1:
            chosen[tp] = found[0].path
            continue
        choice = choose_replica(tp, found, options.storage)
        chosen[tp] = choice.chosen.path
        if choice.is_plain:
            _log.info("%s", choice)
        else:
            differing.append(choice)
    for choice in differing[:_WARNED_REPLICAS]:
        _log.warning("%s", choice)
    if len(differing) > _WARNED_REPLICAS:
        _log.warning("%d more partitions have replicas that differ; seglog.spark.replicas(spark, "
                     "...) lists them", len(differing) - _WARNED_REPLICAS)
    return chosen


def choose_directories(options: ReadOptions, *, without_missing: bool = False
                       ) -> dict[TopicPartition, list[FoundDirectory]]:
    """The directories of each requested partition."""
    found = find_replicas(directories(options.paths), options.storage)
    where = ", ".join(options.paths)
    if options.assign is not None:
        missing = sorted(options.assign - found.keys())
        if missing and not without_missing:
            raise _unknown(where, missing[0], found)
        return {tp: found[tp] for tp in sorted(options.assign) if tp in found}
    if options.subscribe is not None:
        topics = {tp.topic for tp in found}
        missing_topics = sorted(options.subscribe - topics)
        if missing_topics and not without_missing:
            raise unknown_topic(where, missing_topics[0], topics)
        return {tp: here for tp, here in found.items() if tp.topic in options.subscribe}
    if options.subscribe_pattern is not None:
        pattern = java_pattern(options.subscribe_pattern, "subscribePattern")
        return {tp: here for tp, here in found.items()
                if pattern.search(tp.topic) and tp.topic not in _INTERNAL}
    # A path that is a partition directory selects that partition, internal or not.
    if len(found) == 1:
        return found
    return {tp: here for tp, here in found.items() if not is_internal(tp.topic)}


def _unknown(where: str, tp: TopicPartition, found: Collection[TopicPartition]
             ) -> UnknownTopicOrPartitionError:
    numbers = {one.partition for one in found if one.topic == tp.topic}
    if numbers:
        return unknown_partition(where, [tp.topic], tp.partition, numbers)
    return unknown_topic(where, tp.topic, {one.topic for one in found})


def require_all_named(bound: OffsetBound, chosen: Collection[TopicPartition], position: str
                      ) -> None:
    """Raises IllegalStateError if `bound` names partitions other than `chosen`; `position` is
    "start" or "end" (Spark: KafkaOffsetReaderAdmin.fetchPartitionOffsets)."""
    named = bound.partitions()
    if named is None or named == set(chosen):
        return
    kind = "timestamp based " if bound.timestamps is not None else ""
    special = "" if kind else " Use -1 for latest, -2 for earliest."
    raise IllegalStateError(
        f"Partitions specified for Kafka {kind}{position} offsets don't match what are "
        f"assigned: you must specify all TopicPartitions.{special} "
        f"Specified: {_names(named)} Assigned: {_names(chosen)}")


def _names(partitions: Collection[TopicPartition]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:20]))
    return f"{shown} and {len(partitions) - 20} more" if len(partitions) > 20 else shown or "none"


# ---- which offsets

def resolve_offsets(options: ReadOptions, tp: TopicPartition, log: PartitionLog
                    ) -> tuple[int, int]:
    """The first and end offset of one partition, as Spark resolves them for a batch query."""
    first = log.log_start_offset
    last = log.end_offset(options.isolation, options.on_damage)
    start = resolve_offset(options.starting, options, tp, log)
    if start is None:  # no record at or after the starting timestamp
        if not options.latest_when_no_timestamp:
            raise ValueError(f"No offset matched from request of topic-partition {tp} and "
                             f"timestamp {_stamp(options.starting, tp)}.")
        start = LATEST
    end = resolve_offset(options.ending, options, tp, log)
    start = first if start == EARLIEST else last if start == LATEST else start
    to_end = end is None or end == LATEST
    end = last if end is None or to_end else end
    # A task that reads to damage reports it. None does where nothing after damage is stable, or
    # where the log begins with damage.
    if options.on_damage == "raise" and (to_end or end > last) and (
            options.isolation == "read_committed" or start == last):
        refuse_damage(log, last, options.isolation)
    if start > end:  # as KafkaSourceRDD.compute, for any failOnDataLoss
        raise IllegalStateError(
            f"The resolved start offset {start} is greater than the resolved end offset {end} for "
            f"topic {tp.topic} partition {tp.partition}, which holds {first} to {last}.")
    if start == end:
        return start, start
    if start < first or end > last:
        text = _out_of_range(tp, (start, end), (first, last, log.log_end_offset))
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(text)
        _log.warning("failOnDataLoss is false: %s", text)
    return max(start, first), min(end, last)


def refuse_damage(log: PartitionLog, end: int, isolation: Isolation) -> None:
    """Raises CorruptDataError if damage is why the log ends at `end` for this isolation."""
    for _ in log.to_arrow(end, None, ("offset",), isolation):
        pass


def _out_of_range(tp: TopicPartition, asked: tuple[int, int], there: tuple[int, int, int]) -> str:
    (start, end), (first, last, log_end) = asked, there
    what = (f"starting offset {start}" if start < first or start > last else
            f"ending offset {end}") + f" is outside the log, which holds {first} to {last}"
    if first <= start and last < end <= log_end:
        what += (" (the last stable offset: a transaction is open, and kafka.isolation.level is "
                 "read_committed)")
    return (f"{tp}: {what}. Some data may have been lost. Set failOnDataLoss to false to read what "
            "is there.")


def resolve_offset(bound: OffsetBound, options: ReadOptions, tp: TopicPartition,
                   log: PartitionLog) -> int | None:
    """An offset, EARLIEST or LATEST; None if no record is late enough."""
    if bound.timestamps is None:
        return bound.offsets[tp] if bound.offsets is not None else bound.special
    stamp = _stamp(bound, tp)
    # A broker also accepts Kafka's special timestamps in a request by time.
    last = log.end_offset(options.isolation, options.on_damage)
    if stamp == LATEST:
        return last
    if stamp in _LOG_STARTS:
        return log.log_start_offset
    hit = log.offset_for_timestamp(stamp, on_damage=options.on_damage)
    return None if hit is None or hit.offset >= last else hit.offset


def _stamp(bound: OffsetBound, tp: TopicPartition) -> int:
    assert bound.timestamps is not None
    return bound.timestamps[tp] if tp in bound.timestamps else bound.timestamps[None]


# ---- which bytes

def cut_tasks(options: ReadOptions, ranges: Sequence[OffsetRange],
              logs: Mapping[TopicPartition, PartitionLog], pushed: Pushed, is_narrow: bool
              ) -> Iterator[SeglogPartition]:
    """Tasks for ranges of offsets. Divides them by minPartitions and maxRecordsPerPartition, cuts
    each at batches into about `split_bytes`, and keeps tasks that may have rows for `pushed`."""
    planned = [(part.topic_partition,
                list(_ranges(options, logs[part.topic_partition], part, pushed)))
               for part in divide(ranges, options.min_partitions,
                                  options.max_records_per_partition)]
    target = options.split_bytes or SPLIT_BYTES
    if options.split_bytes is None and (is_narrow or pushed.is_sparse):
        # A task costs Spark 50 to 100 ms, so one with small output may read more.
        total = sum(one.size for _, pieces in planned for one in pieces)
        target = min(max(total // _LIGHT_TASKS, target), _LIGHT_SPLIT_BYTES)
    for tp, pieces in planned:
        for some in pack(pieces, target):
            yield SeglogPartition(tp, some, carried(logs[tp], some))


def _ranges(options: ReadOptions, log: PartitionLog, part: OffsetRange, pushed: Pushed
            ) -> Iterator[LogRange]:
    """The byte ranges of a range of offsets that may hold rows for the filters."""
    for first, last in pushed.offsets.spans(part.start, part.end):
        ranges = log.ranges(options.split_bytes or SPLIT_BYTES, first, last,
                            options.isolation, on_damage=options.on_damage, on_gap=warn_of_gap)
        # Skipping damage requires reading whole segments, wherever the rows are.
        if pushed.timestamps.first > INT64_MIN and options.on_damage == "raise":
            yield from ranges_since(log.segments, ranges, pushed.timestamps.first)
        else:
            yield from ranges


def warn_of_gap(gap: LogGap) -> None:
    """Logs a gap that failOnDataLoss=false skipped."""
    _log.warning("failOnDataLoss is false: %s", gap)


def refuse_gap(gap: LogGap) -> None:
    """Raises CorruptRecordError for the end of a segment inside a log, at which a consumer would
    fail too."""
    raise CorruptRecordError(
        f"{gap.file}: {gap.size} bytes at byte {gap.position} are no whole batch ({gap.kind}), and "
        "another segment follows. Some data may have been lost. Set failOnDataLoss to false to "
        "read what is there.",
        file=gap.file, position=gap.position, code=gap.kind)


def gaps_of(on_damage: OnDamage) -> Callable[[LogGap], None]:
    """What a task does about a gap."""
    return warn_of_gap if on_damage == "skip" else refuse_gap
