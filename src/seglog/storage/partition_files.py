"""The segments of a partition directory as Kafka's loader would choose them, for readers.

Kafka deletes and renames files while it decides (LogLoader.load). Here nothing is changed: the
result is which segments exist, and under which names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog._native.scan import HAS_LOG, FileClass, PartitionListing
from seglog.errors import KafkaStorageError
from seglog.objects.store import ObjectVersion
from seglog.storage.log_store import LOCAL, Files, ListedDirectory
from seglog.storage.handles import HandleCache
from seglog.storage.paths import FileKind, FileState, parse_file_name
from seglog.storage.segment import LogSegment, SegmentPaths
from seglog.storage.segments import Segments
from seglog.storage.swaps import FLAGS, Swaps, find_swaps

__all__ = ["PartitionFiles", "is_there", "read_directory"]

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The segments of a partition, and the offsets of its producer snapshots (ascending)."""

    segments: Segments
    snapshots: npt.NDArray[np.int64]


def read_directory(path: str, handles: HandleCache, where: Files = LOCAL) -> PartitionFiles:
    """Lists `path` once. Raises KafkaStorageError if it is missing, unreadable or not a directory.

    `storage.swaps` decides about the files of an unfinished compaction or split.
    """
    for looks_left in reversed(range(_LOOKS)):
        try:
            return _read_directory(path, handles, where)
        except KafkaStorageError as error:
            # A broker may rename its swap files meanwhile: a second listing finds them in place.
            if error.errno != errno.ENOENT or not looks_left or not is_there(path, where):
                raise
    raise AssertionError("the last look returns or raises")


def is_there(path: str, where: Files) -> bool:
    """Whether a directory can be listed."""
    try:
        where.entries(path)
    except OSError:
        return False
    return True


def _read_directory(path: str, handles: HandleCache, where: Files) -> PartitionFiles:
    place = ListedDirectory(path) if where is LOCAL else where
    listing, versions = where.listing(path)
    swaps = _completed_swaps(listing)
    irregular = _irregular_segments(listing)
    if not swaps.complete and not irregular:
        rows = np.flatnonzero(listing.flags & HAS_LOG)
        return PartitionFiles(
            Segments(path, listing.base_offsets[rows], listing.flags[rows], handles, where=place,
                     versions=versions, overrides=where.names()), listing.snapshots)
    return _swapped(path, listing, irregular, swaps, handles, place, versions)


def _irregular_segments(listing: PartitionListing) -> list[int]:
    """Base offsets of log files that are links, directories or devices.

    They count as segments: a reader that reaches one gets a typed error there.
    """
    names = [parse_file_name(name) for name, kind in listing.others
             if kind in (FileClass.LINK, FileClass.DIRECTORY, FileClass.SPECIAL)]
    return [parsed.offset for parsed in names if parsed.offset is not None and parsed.canonical
            and parsed.kind is FileKind.LOG and parsed.state is FileState.LIVE]


def _completed_swaps(listing: PartitionListing) -> Swaps:
    """The swaps of segments. A negative number has none."""
    swaps = find_swaps(listing.others)
    return Swaps({key: name for key, name in swaps.complete.items()
                  if key[0] >= 0 and key[1] in FLAGS}, swaps.incomplete)


def _swapped(path: str, listing: PartitionListing, irregular: list[int], swaps: Swaps,
             handles: HandleCache, where: Files, versions: Mapping[str, ObjectVersion]
             ) -> PartitionFiles:
    covered = _covered_range(path, swaps, handles, where, versions)
    flags = {int(base): int(has) for base, has in zip(listing.base_offsets, listing.flags,
                                                      strict=True)
             if not covered or not covered[0] <= base < covered[1]}
    flags.update(dict.fromkeys(irregular, HAS_LOG))
    for base, kind in swaps.complete:
        flags[base] = flags.get(base, 0) | FLAGS[kind]
    bases = sorted(base for base, has in flags.items() if has & HAS_LOG)
    segments = Segments(path, np.array(bases, np.int64),
                        np.array([flags[base] & 0xff for base in bases], np.uint8),
                        handles, overrides={**where.names(), **swaps.complete}, where=where,
                        versions=versions)
    snapshots = listing.snapshots
    if covered:
        stale = (snapshots >= covered[0]) & (snapshots < covered[1])
        snapshots = snapshots[~stale]
    return PartitionFiles(segments, snapshots)


def _covered_range(path: str, swaps: Swaps, handles: HandleCache, where: Files,
                   versions: Mapping[str, ObjectVersion]) -> tuple[int, int] | None:
    """The range of offsets that the swapped segments replace."""
    owner = handles.new_owner()

    def next_offset(base_offset: int, log: str, index: str | None) -> int:
        files = SegmentPaths(os.path.join(path, log),
                             None if index is None else os.path.join(path, index),
                             version=versions.get(log))
        return LogSegment(base_offset, files, handles, owner, where=where).read_next_offset()

    try:
        return swaps.covered(next_offset)
    finally:
        handles.forget(owner)
