"""What a power cut left behind the recovery point, made the beginning of what was appended.

Files come to the medium in no order but that of their syncs. A cut may leave a segment without its
end and a later one with everything, or zeros where a segment's unused room was given back. Kafka's
loader looks at each segment alone: it keeps what lies behind such a hole, and starts no log whose
producers it cannot rebuild through the zeros. A log that its leader alone writes has no holes, so
what lies behind one was written after what is missing, and was never acknowledged as flushed.
"""

from __future__ import annotations

import logging
import os

import numpy as np

from seglog._native.batch import scan_file
from seglog._native.scan import list_partition
from seglog.recovery.disk import RealDisk
from seglog.recovery.tail import open_log
from seglog.storage.paths import FileKind, file_name

__all__ = ["cut_to_first_hole"]

_logger = logging.getLogger("seglog.UnifiedLog")
_OF_SEGMENT = (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_PIECE_BYTES = 1 << 20


def cut_to_first_hole(path: str, recovery_point: int, *, preallocated: bool = False) -> int | None:
    """Cuts the log in the directory `path`, which nobody has open, at its first hole behind the
    recovery point; the offset of the hole, None without one.

    Of a preallocated log all segments are looked at: the zeros behind one may be there although
    its records were synced. Not for logs that are compacted or replicated, whose holes are meant.
    Raises KafkaStorageError.
    """
    listing, disk = list_partition(path), RealDisk(path)
    bases = [int(base) for base in listing.base_offsets]
    first = max(int(np.searchsorted(listing.base_offsets, recovery_point, "right")) - 1, 0)
    for row in range(0 if preallocated else first, len(bases) - 1):
        base, next_base = bases[row], bases[row + 1]
        if row < first:
            _cut_zeros(disk, base)
            continue
        end = _cut_segment(disk, base, next_base)
        if end != next_base:
            _logger.warning("A power cut left no records of %s from %d to %d: what lies behind "
                            "them is removed", path, end, next_base - 1)
            _remove(disk, bases[row + 1:], [int(at) for at in listing.snapshots if at > end])
            return end
    return None


def _cut_segment(disk: RealDisk, base: int, next_base: int) -> int:
    """Leaves of a segment its whole batches below the next one; the offset behind them."""
    name = file_name(base, FileKind.LOG)
    extent = disk.extent(name)
    fd = open_log(extent.path)
    try:
        batches = scan_file(fd, extent.start, extent.end).batches
    finally:
        os.close(fd)
    kept = batches[:int(np.logical_and.accumulate(batches["last_offset"] < next_base).sum())]
    end = int(kept["position"][-1] + kept["size"][-1]) if len(kept) else 0
    _cut(disk, name, end, extent.size)
    return int(kept["last_offset"][-1]) + 1 if len(kept) else base


def _cut_zeros(disk: RealDisk, base: int) -> None:
    """Takes away the zeros behind a segment's batches; other bytes are none of ours."""
    name = file_name(base, FileKind.LOG)
    extent = disk.extent(name)
    fd = open_log(extent.path)
    try:
        end = scan_file(fd, extent.start, extent.end, check_crcs=False).position
    finally:
        os.close(fd)
    if all(not any(disk.read(name, at, _PIECE_BYTES))
           for at in range(end, extent.size, _PIECE_BYTES)):
        _cut(disk, name, end, extent.size)


def _cut(disk: RealDisk, name: str, end: int, size: int) -> None:
    if end < size:
        disk.resize(name, end)
        disk.sync(name)


def _remove(disk: RealDisk, bases: list[int], snapshots: list[int]) -> None:
    """The last ones first, so that what a crash leaves of them is behind the same hole."""
    for base in reversed(bases):
        for kind in reversed(_OF_SEGMENT):
            disk.delete(file_name(base, kind))
    for offset in reversed(snapshots):
        disk.delete(file_name(offset, FileKind.SNAPSHOT))
    disk.sync_directory()
