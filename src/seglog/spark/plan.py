"""From options to tasks, on the driver: which partitions, which offsets, which bytes.

A task (`SeglogPartition`) is some byte ranges of one topic partition, cut at batches, so that one
big partition is read by many tasks and many small segments by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from seglog.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from seglog.model import TopicPartition
from seglog.spark.options import EARLIEST, LATEST, OffsetBound, ReadOptions
from seglog.storage.discover import find_partitions
from seglog.storage.log import PartitionLog
from seglog.storage.ranges import LogRange

__all__ = ["SeglogPartition", "plan_partitions"]

_BATCH_BYTES_MIN = 61  # no batch is smaller, so below this a target cuts at every batch


class SeglogPartition(InputPartition):
    """Byte ranges of one topic partition, in order: the work of one Spark task. Picklable."""

    def __init__(self, topic_partition: TopicPartition, ranges: Sequence[LogRange]) -> None:
        super().__init__(None)
        self.topic_partition = topic_partition
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        size = sum(part.size for part in self.ranges)
        return f"SeglogPartition({self.topic_partition}, {len(self.ranges)} ranges, {size} bytes)"


def plan_partitions(options: ReadOptions) -> list[SeglogPartition]:
    """Every task of a query, by partition and offset.

    Raises UnknownTopicOrPartitionError for a topic or partition that is not there,
    OffsetOutOfRangeError for offsets outside the log while failOnDataLoss is true, ValueError
    where Spark's Kafka source refuses the options.
    """
    chosen = _choose(options)
    _check_named(options.starting, chosen, "startingOffsets")
    _check_named(options.ending, chosen, "endingOffsets")
    planned: list[tuple[TopicPartition, PartitionLog, int, int]] = []
    try:
        for tp, path in sorted(chosen.items()):
            log = PartitionLog.open(path)
            planned.append((tp, log, *_offsets(options, tp, log)))
        return _cut(options, [part for part in planned if part[2] < part[3]])
    finally:
        for _, log, _, _ in planned:
            log.close()


def _choose(options: ReadOptions) -> dict[TopicPartition, str]:
    found = find_partitions(options.paths)
    where = ", ".join(options.paths)
    if options.assign is not None:
        missing = sorted(options.assign - found.keys())
        if missing:
            raise UnknownTopicOrPartitionError(f"{where}: partition {missing[0]} is not here")
        return {tp: found[tp] for tp in options.assign}
    if options.subscribe is not None:
        topics = {tp.topic for tp in found}
        missing_topics = sorted(options.subscribe - topics)
        if missing_topics:
            raise UnknownTopicOrPartitionError(f"{where}: topic {missing_topics[0]} is not here")
        return {tp: path for tp, path in found.items() if tp.topic in options.subscribe}
    if options.subscribe_pattern is not None:
        pattern = re.compile(options.subscribe_pattern)
        return {tp: path for tp, path in found.items()
                if pattern.fullmatch(tp.topic) and not _is_internal(tp)}
    # A path that is one partition's own directory means that partition, internal or not.
    if len(found) == 1:
        return found
    return {tp: path for tp, path in found.items() if not _is_internal(tp)}


def _is_internal(tp: TopicPartition) -> bool:
    """Topics that a pattern of a consumer passes over (exclude.internal.topics)."""
    return tp.topic.startswith("__")


def _check_named(bound: OffsetBound, chosen: Mapping[TopicPartition, str], option: str) -> None:
    named = bound.partitions()
    if named is not None and named != set(chosen):
        raise ValueError(
            f"If {option} contains specific offsets, you must specify all TopicPartitions.\n"
            f"Use -1 for latest, -2 for earliest.\n"
            f"Specified: {', '.join(map(str, sorted(named)))} "
            f"Assigned: {', '.join(map(str, sorted(chosen)))}")


def _offsets(options: ReadOptions, tp: TopicPartition, log: PartitionLog) -> tuple[int, int]:
    """First offset and end of one partition, as Spark resolves them for a batch query."""
    first = log.log_start_offset
    last = (log.last_stable_offset if options.isolation == "read_committed"
            else log.log_end_offset)
    start = _resolve(options.starting, tp, log, first, last)
    if start is None:  # no record at or after the starting timestamp
        if not options.latest_when_no_timestamp:
            raise ValueError(f"No offset matched from request of topic-partition {tp} and "
                             f"timestamp {_stamp(options.starting, tp)}.")
        start = last
    end = _resolve(options.ending, tp, log, first, last)
    end = last if end is None else end
    if options.fail_on_data_loss:
        for offset, name in ((start, "starting"), (end, "ending")):
            if not first <= offset <= max(log.log_end_offset, first):
                raise OffsetOutOfRangeError(
                    f"{tp}: {name} offset {offset} is outside the log, which holds {first} to "
                    f"{log.log_end_offset}. Some data may have been lost. Set failOnDataLoss to "
                    "false to read what is there.")
    return max(start, first), min(end, last)


def _resolve(bound: OffsetBound, tp: TopicPartition, log: PartitionLog, first: int, last: int
             ) -> int | None:
    if bound.timestamps is not None:
        hit = log.offset_for_timestamp(_stamp(bound, tp))
        return None if hit is None else hit.offset
    offset = bound.offsets[tp] if bound.offsets is not None else bound.special
    if offset == EARLIEST:
        return first
    return last if offset == LATEST else offset


def _stamp(bound: OffsetBound, tp: TopicPartition) -> int:
    assert bound.timestamps is not None
    return bound.timestamps[tp] if tp in bound.timestamps else bound.timestamps[None]


def _cut(options: ReadOptions, planned: Sequence[tuple[TopicPartition, PartitionLog, int, int]]
         ) -> list[SeglogPartition]:
    """Tasks of about `split_bytes`, or smaller until there are minPartitions of them. There may be
    fewer in the end: a batch is never cut."""
    wanted, target = options.min_partitions or 1, options.split_bytes
    if wanted > 1:
        size = sum(log.segments.size for _, log, _, _ in planned)
        target = max(1, min(target, size // wanted))
    while True:
        tasks = [SeglogPartition(tp, part) for tp, log, start, end in planned
                 for part in _pack(log.ranges(target, start, end, options.isolation), target)]
        if len(tasks) >= wanted or target == 1:
            return tasks
        target = max(1, target // 2) if target > _BATCH_BYTES_MIN else 1


def _pack(ranges: Sequence[LogRange], target: int) -> Iterator[list[LogRange]]:
    """Ranges that follow each other, together as long as they stay below the target."""
    part: list[LogRange] = []
    size = 0
    for planned in ranges:
        if part and size + planned.size > target:
            yield part
            part, size = [], 0
        part.append(planned)
        size += planned.size
    if part:
        yield part
