"""Divides the offsets of partitions among tasks as Spark's Kafka source does.

`minPartitions` and `maxRecordsPerPartition` count offsets, not bytes or records: transaction
markers and compacted records also count (KafkaOffsetRangeCalculator).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seglog.model import TopicPartition

__all__ = ["OffsetRange", "divide"]

#: More tasks than Spark can run: the numbers, or the end of a damaged log, are wrong.
_PARTS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


def divide(ranges: Sequence[OffsetRange], min_partitions: int | None,
           max_records: int | None) -> list[OffsetRange]:
    """Divides ranges into at least about `min_partitions` ranges of at most `max_records` offsets.
    Large ranges are divided in proportion to their size, small ones stay whole, and empty ones are
    dropped. Raises ValueError for more ranges than Spark can run.
    """
    whole = [one for one in ranges if one.size > 0]
    parts = whole if max_records is None else _divided(
        [(one, -(-one.size // max_records)) for one in whole],
        f"Option 'maxRecordsPerPartition' of {max_records}")
    if min_partitions is None or min_partitions <= len(parts):
        return parts
    total = sum(part.size for part in parts)
    # As in the original, a partition whose single part is small enough stays whole.
    small = [part for part in parts if _share(part.size, total, min_partitions) == 1]
    unsplit = {part.topic_partition for part in small}
    rest = total - sum(part.size for part in small)
    wanted = max(min_partitions - len(small), 1)
    return _divided(
        [(part, 1 if part.topic_partition in unsplit else _share(part.size, rest, wanted))
         for part in parts], f"Option 'minPartitions' of {min_partitions}")


def _divided(wanted: Sequence[tuple[OffsetRange, int]], option: str) -> list[OffsetRange]:
    """Each range in so many parts, none of them empty; `option` says why."""
    counts = [min(count, one.size) for one, count in wanted]
    if sum(counts) > _PARTS_MAX:
        most, largest = max(zip(counts, (one for one, _ in wanted), strict=True))
        raise ValueError(
            f"{option} divides the offsets {largest.start} to {largest.end - 1} of "
            f"{largest.topic_partition} into {most:,} tasks, and all into {sum(counts):,}; Spark "
            f"runs at most {_PARTS_MAX:,} here.")
    return [part for (one, _), count in zip(wanted, counts, strict=True)
            for part in _equal_parts(one, count)]


def _share(size: int, total: int, count: int) -> int:
    """The share of `count` tasks for `size` of `total` offsets; half a task rounds up."""
    return max(math.floor(size / total * count + 0.5), 1)


def _equal_parts(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """At most as many parts as offsets. Sizes differ by at most one; smaller parts come first."""
    start, left = whole.start, whole.size
    for part in range(count):
        size = left // (count - part)
        yield OffsetRange(whole.topic_partition, start, start + size)
        start, left = start + size, left - size
