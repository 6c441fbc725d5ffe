"""Finds where a new streaming query starts: `startingOffsets`, `startingTimestamp`, the logs."""

from __future__ import annotations

from dataclasses import dataclass

from seglog.errors import OffsetOutOfRangeError
from seglog.model import TopicPartition
from seglog.spark.read_options import EARLIEST, LATEST, ReadOptions
from seglog.spark.plan import resolve_offset
from seglog.spark.streaming.bounds import LogBounds, WatchedLogs

__all__ = ["InitialOffsets", "resolve_initial"]


@dataclass(frozen=True, slots=True)
class InitialOffsets:
    """The first offset of each partition. The `pinned` ones are log ends, which would differ if
    they were resolved again."""

    offsets: dict[TopicPartition, int]
    pinned: frozenset[TopicPartition]


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
        found = _resolve(options, logs, tp, log)
        if found is None:
            found = log.end
            pinned.add(tp)
        offsets[tp] = found
    return InitialOffsets(offsets, frozenset(pinned))


def _resolve(options: ReadOptions, logs: WatchedLogs, tp: TopicPartition, log: LogBounds
             ) -> int | None:
    """The first offset of a partition; None for the end of the log."""
    bound = options.starting
    if bound.timestamps is None:
        offset = bound.offsets[tp] if bound.offsets is not None else bound.special
        if offset == LATEST:
            return None
        if offset is None or offset == EARLIEST:
            return log.start
        if log.start <= offset <= log.log_end:
            return offset
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{tp}: starting offset {offset} is outside the log, which holds {log.start} to "
                f"{log.log_end}. Some data may have been lost. Set failOnDataLoss to false to "
                "read what is there.")
        return min(max(offset, log.start), log.log_end)
    opened = logs.open(tp, logs.paths()[tp])
    try:
        found = resolve_offset(bound, options, tp, opened)
    finally:
        opened.close()
    if found is None and not options.latest_when_no_timestamp:
        stamp = bound.timestamps.get(tp, bound.timestamps.get(None))
        raise ValueError(f"No offset matched from request of topic-partition {tp} and timestamp "
                         f"{stamp}.")
    return found
