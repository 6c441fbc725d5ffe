"""Which segments a round merges into one (Kafka: Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence

from seglog.log.unified_log import UnifiedLog
from seglog.recovery.segment_files import SegmentFiles

__all__ = ["group_segments_by_size"]

_INT32_MAX = 2**31 - 1


def group_segments_by_size(log: UnifiedLog, bases: Sequence[int], max_size: int,
                           max_index_size: int, first_uncleanable_offset: int) -> list[list[int]]:
    """Groups adjacent segments of at most `max_size` bytes of log and `max_index_size` bytes of
    each index, whose offsets fit one segment. Takes and returns base offsets.

    The caller holds the log's lock. The last offset of a segment is estimated by the base of the
    next one, that of the last by `first_uncleanable_offset`.
    """
    grouped: list[list[int]] = []
    sizes = [0, 0, 0]
    for number, base in enumerate(bases):
        segment = log.segments.get(base)
        end = bases[number + 1] if number + 1 < len(bases) else first_uncleanable_offset
        limits = (max_size, max_index_size, max_index_size)
        if grouped and _fits(segment, sizes, limits) and (
                not segment.size or end - 1 - grouped[-1][0] <= _INT32_MAX):
            grouped[-1].append(base)
            sizes = [_bytes(segment, what) + sizes[what] for what in range(3)]
        else:
            grouped.append([base])
            sizes = [_bytes(segment, what) for what in range(3)]
        log.segments.release(segment)
    return grouped


def _bytes(segment: SegmentFiles, what: int) -> int:
    """The bytes of its log, or of the entries of an index, which is opened and so created if
    missing."""
    if what == 0:
        return segment.size
    index = segment.offset_index if what == 1 else segment.time_index
    index.open()
    return index.entries * index.entry.size


def _fits(segment: SegmentFiles, sizes: Sequence[int], limits: Sequence[int]) -> bool:
    """Whether it fits into a group; as in Kafka, indexes are read after the log."""
    return all(sizes[what] + _bytes(segment, what) <= limits[what] for what in range(3))
