"""Finds where a new streaming query starts: `startingOffsets`, `startingTimestamp`, the logs."""

from __future__ import annotations

from dataclasses import dataclass

from seglog.errors import OffsetOutOfRangeError
from seglog.model import LATEST_TIMESTAMP, MAX_TIMESTAMP, TopicPartition
from seglog.spark.read_options import EARLIEST, LATEST, ReadOptions
from seglog.spark.plan import resolve_offset
from seglog.spark.streaming.bounds import LogBounds, WatchedLogs

__all__ = ["InitialOffsets", "resolve_initial"]


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """The first offset of each partition. The `pinned` ones, such as log ends, would differ if they
    were resolved again. The `movable` ones, which include them, may differ."""

    offsets: dict[TopicPartition, int]
    pinned: frozenset[TopicPartition]
    movable: frozenset[TopicPartition]


def resolve_initial(options: ReadOptions, logs: WatchedLogs) -> InitialOffsets:
    """The initial offsets of the existing partitions, or of those that the options name.

    Raises OffsetOutOfRangeError for offsets outside a log while failOnDataLoss is true, and
    ValueError for timestamps after the last record.
    """
    named = options.starting.partitions()
    offsets, pinned = {}, set()
    for tp, log in logs.look().items():
        if named is not None and tp not in named:
            continue
        offsets[tp], is_pinned = _resolve(options, logs, tp, log)
        if is_pinned:
            pinned.add(tp)
    # What is an offset by time now was the log's end while no record was late enough.
    is_movable = options.latest_when_no_timestamp and options.starting.timestamps is not None
    return InitialOffsets(offsets, frozenset(pinned), frozenset(offsets if is_movable else pinned))


def _resolve(options: ReadOptions, logs: WatchedLogs, tp: TopicPartition, log: LogBounds
             ) -> tuple[int, bool]:
    """The first offset of a partition, and whether it is pinned."""
    bound = options.starting
    if bound.timestamps is None:
        offset = bound.offsets[tp] if bound.offsets is not None else bound.special
        if offset == LATEST:
            return log.end, True
        if offset is None or offset == EARLIEST:
            return log.start, False
        if log.start <= offset <= log.log_end:
            return offset, False
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{tp}: starting offset {offset} is outside the log, which holds {log.start} to "
                f"{log.log_end}. Some data may have been lost. Set failOnDataLoss to false to "
                "read what is there.")
        return min(max(offset, log.start), log.log_end), False
    stamp = bound.timestamps.get(tp, bound.timestamps.get(None))
    if stamp == LATEST_TIMESTAMP:
        return log.end, True
    opened = logs.open(tp, logs.paths()[tp])
    try:
        found = resolve_offset(bound, options, tp, opened)
    finally:
        opened.close()
    if found is not None:
        return found, stamp == MAX_TIMESTAMP
    if not options.latest_when_no_timestamp:
        raise ValueError(f"No offset matched from request of topic-partition {tp} and timestamp "
                         f"{stamp}.")
    return log.end, True
