"""Which segments a round merges into one (Kafka: Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seglog.log.unified_log import UnifiedLog
from seglog.recovery.index_files import OffsetIndexFile, TimeIndexFile

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
    limits = np.array([max_size, max_index_size, max_index_size])
    total = np.zeros(3, np.int64)
    for base, end in zip(bases, [*bases[1:], first_uncleanable_offset], strict=False):
        segment = log.segments.get(base)
        sizes = np.array([segment.size, _entry_bytes(segment.offset_index),
                          _entry_bytes(segment.time_index)])
        if grouped and (total + sizes <= limits).all() and (
                not segment.size or end - 1 - grouped[-1][0] <= _INT32_MAX):
            grouped[-1].append(base)
            total += sizes
        else:
            grouped.append([base])
            total = sizes
        log.segments.release(segment)
    return grouped


def _entry_bytes(index: OffsetIndexFile | TimeIndexFile) -> int:
    """The bytes of an index's entries. Opens the index, and so creates it if it is missing."""
    index.open()
    return index.entries * index.entry.size
