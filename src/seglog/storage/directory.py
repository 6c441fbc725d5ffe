"""What a partition directory holds for a reader, decided as Kafka's loader would decide it.

Kafka deletes and renames on its way to this decision (reference 7.1 to 7.3); here nothing is
touched, and the outcome is a set of files: which segments exist, and under which names.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog._native.scan import (
    HAS_INDEX, HAS_LOG, HAS_TIME_INDEX, HAS_TXN_INDEX, FileClass, PartitionListing, list_partition,
)
from seglog.errors import KafkaStorageError
from seglog.storage.handles import HandleCache
from seglog.storage.paths import FileKind, FileState, parse_file_name
from seglog.storage.segment import LogSegment, SegmentFiles
from seglog.storage.segments import Segments

__all__ = ["PartitionFiles", "read_directory"]

_FLAGS = {FileKind.LOG: HAS_LOG, FileKind.INDEX: HAS_INDEX, FileKind.TIME_INDEX: HAS_TIME_INDEX,
          FileKind.TXN_INDEX: HAS_TXN_INDEX}

_LOOKS = 3

_Overrides = dict[tuple[int, FileKind], str]


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The segments of a partition, and the offsets of its producer snapshots (ascending)."""

    segments: Segments
    snapshots: npt.NDArray[np.int64]


def read_directory(path: str, handles: HandleCache) -> PartitionFiles:
    """Lists `path` once. KafkaStorageError if it is missing, unreadable or no directory.

    Temporary files of a compaction or a split: with a `.cleaned` file of the same or a lower
    offset a `.swap` file is not complete, and the old segments are the log. Otherwise the `.swap`
    files are, and every other file numbered inside the range they cover is stale.
    """
    for looks_left in reversed(range(_LOOKS)):
        try:
            return _read_directory(path, handles)
        except KafkaStorageError as error:
            # A broker that renames its swap files meanwhile: they are in place on another look.
            if error.errno != errno.ENOENT or not looks_left or not os.path.isdir(path):
                raise
    raise AssertionError("the last look returns or raises")


def _read_directory(path: str, handles: HandleCache) -> PartitionFiles:
    listing = list_partition(path)
    swaps = _completed_swaps(listing)
    irregular = _irregular_segments(listing)
    if not swaps and not irregular:
        rows = np.flatnonzero(listing.flags & HAS_LOG)
        return PartitionFiles(
            Segments(path, listing.base_offsets[rows], listing.flags[rows], handles),
            listing.snapshots)
    return _swapped(path, listing, irregular, swaps, handles)


def _irregular_segments(listing: PartitionListing) -> list[int]:
    """Base offsets of log files that are links, directories or devices.

    They are segments all the same: a reader that comes to one gets a typed error there.
    """
    names = [parse_file_name(name) for name, kind in listing.others
             if kind in (FileClass.LINK, FileClass.DIRECTORY, FileClass.SPECIAL)]
    return [parsed.offset for parsed in names if parsed.offset is not None and parsed.canonical
            and parsed.kind is FileKind.LOG and parsed.state is FileState.LIVE]


def _completed_swaps(listing: PartitionListing) -> _Overrides:
    """The `.swap` files that the next start of a broker would rename."""
    names = [(parse_file_name(name), name) for name, kind in listing.others
             if kind in (FileClass.SWAP, FileClass.CLEANED)]
    numbered = [(parsed, parsed.offset, name) for parsed, name in names
                if parsed.offset is not None and parsed.offset >= 0]
    first_cleaned = min((offset for parsed, offset, _ in numbered
                         if parsed.state is FileState.CLEANED), default=None)
    return {(offset, parsed.kind): name for parsed, offset, name in numbered
            if parsed.state is FileState.SWAP and parsed.kind in _FLAGS
            and (first_cleaned is None or offset < first_cleaned)}


def _swapped(path: str, listing: PartitionListing, irregular: list[int], swaps: _Overrides,
             handles: HandleCache) -> PartitionFiles:
    covered = _covered_range(path, swaps, handles)
    flags = {int(base): int(has) for base, has in zip(listing.base_offsets, listing.flags,
                                                      strict=True)
             if not covered or not covered[0] <= base < covered[1]}
    flags.update(dict.fromkeys(irregular, HAS_LOG))
    for base, kind in swaps:
        flags[base] = flags.get(base, 0) | _FLAGS[kind]
    bases = sorted(base for base, has in flags.items() if has & HAS_LOG)
    segments = Segments(path, np.array(bases, np.int64),
                        np.array([flags[base] & 0xff for base in bases], np.uint8),
                        handles, overrides=swaps)
    snapshots = listing.snapshots
    if covered:
        stale = (snapshots >= covered[0]) & (snapshots < covered[1])
        snapshots = snapshots[~stale]
    return PartitionFiles(segments, snapshots)


def _covered_range(path: str, swaps: _Overrides, handles: HandleCache) -> tuple[int, int] | None:
    """Offsets that the swapped segments replace: from the first base to the highest next offset."""
    owner = handles.new_owner()
    bounds = []
    try:
        for (base, kind), name in swaps.items():
            if kind is not FileKind.LOG:
                continue
            index = swaps.get((base, FileKind.INDEX))
            segment = LogSegment(base, SegmentFiles(
                os.path.join(path, name), os.path.join(path, index) if index else None),
                handles, owner)
            bounds.append((base, segment.read_next_offset()))
    finally:
        handles.forget(owner)
    if not bounds:
        return None
    return min(base for base, _ in bounds), max(after for _, after in bounds)
