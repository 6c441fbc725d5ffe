"""What a power cut leaves in a log that no load mends.

A hole is a range that was not durable; the log is truncated at its first one.

Files become durable only in the order of their syncs. A power cut may leave a segment without its
end and a later one complete, or zeros where the unused end of a segment was trimmed. Kafka's loader
checks each segment alone: it keeps the records after such a hole, and fails for a log whose
producers it cannot rebuild because of the zeros. A log that only its leader writes has no gaps. So
the records after a hole were written after the missing ones, and never acknowledged as flushed.
Other logs have gaps that are no holes: a follower's, and those that a cleaner leaves.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from seglog._native.batch import scan_file
from seglog._native.scan import FileClass, list_partition
from seglog.recovery.disk import RealDisk
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.next_offset import opened_log, whole_headers
from seglog.storage.paths import FileKind, file_name
from seglog.storage.segment_table import floor_row

__all__ = ["cut_to_first_hole", "remove_below_start"]

_logger = logging.getLogger("seglog.UnifiedLog")
_OF_SEGMENT = (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
_PIECE_BYTES = 1 << 20


def cut_to_first_hole(path: str, recovery_point: int, *, preallocated: bool = False,
                      may_have_gaps: bool = False) -> int | None:
    """Truncates the log in the directory `path`, which no process has open, at its first hole at or
    above the recovery point. Returns the offset of the hole, None if there is none.

    With `may_have_gaps`, and while the files of a replaced segment wait for their names, only
    invalid bytes are a hole; Kafka's recovery cuts there, too. Otherwise missing offsets between
    two segments are one. All segments of a preallocated log are checked for zeros at their ends,
    which may remain although the records were synced. So is the last segment for offsets that do
    not ascend: a batch's base offset is in no CRC, and a sector that was lost may have held nothing
    else of it. Kafka does not start then. Raises KafkaStorageError.
    """
    listing, disk = list_partition(path), RealDisk(path)
    may_have_gaps |= any(kind is FileClass.SWAP for _, kind in listing.others)
    bases = [int(base) for base in listing.base_offsets]
    first = max(floor_row(listing.base_offsets, recovery_point), 0)
    for row in range(0 if preallocated else first, len(bases) - 1):
        base, next_base = bases[row], bases[row + 1]
        if row < first:
            _cut_zeros(disk, base)
            continue
        end, is_cut = _cut_segment(disk, base, next_base)
        if end != next_base and (is_cut or not may_have_gaps):
            _logger.warning("A power cut left no records of %s from %d to %d: the records "
                            "after them are removed", path, end, next_base - 1)
            _remove(disk, bases[row + 1:], [int(at) for at in listing.snapshots if at > end])
            return end
    if bases:
        _cut_descent(disk, bases[-1])
    return None


def remove_below_start(path: str, log_start_offset: int) -> None:
    """Removes the segments of the log in the directory `path`, which no process has open, that are
    completely below its start. Their deletion was under way at a crash. They count as durable, so
    that no recovery reads them, and may lack any of their bytes. Raises KafkaStorageError."""
    listing, disk = list_partition(path), RealDisk(path)
    bases = [int(base) for base in listing.base_offsets]
    going = bases[:max(floor_row(listing.base_offsets, log_start_offset), 0)]
    for base in going:
        _delete_segment(disk, base)
    if going:
        _logger.info("Removed segments of %s, whose deletion a crash ended, from %d to below %d",
                     path, going[0], bases[len(going)])
        disk.sync_directory()


def _cut_segment(disk: RealDisk, base: int, next_base: int) -> tuple[int, bool]:
    """Truncates a segment after its whole batches below the next one. Returns the offset after
    them, and whether there were other bytes."""
    name = file_name(base, FileKind.LOG)
    extent = disk.extent(name)
    with opened_log(extent.path) as fd:
        batches = scan_file(fd, extent.start, extent.end).batches
    below = int(np.logical_and.accumulate(batches["last_offset"] < next_base).sum())
    kept = batches[:min(below, _ascending(batches, base - 1))]
    end = int(kept["position"][-1] + kept["size"][-1]) if len(kept) else 0
    _cut(disk, name, end, extent.size)
    return int(kept["last_offset"][-1]) + 1 if len(kept) else base, end < extent.size


def _ascending(batches: npt.NDArray[np.void], before: int) -> int:
    """How many of the batches have offsets that ascend from the one `before` them."""
    lasts = np.concatenate(([before], batches["last_offset"][:-1]))
    return int(np.logical_and.accumulate(batches["base_offset"] > lasts).sum())


def _cut_descent(disk: RealDisk, base: int) -> None:
    """Truncates a segment at the first batch whose offsets are below those before it."""
    name = file_name(base, FileKind.LOG)
    extent = disk.extent(name)
    before = base - 1
    with suppress(LoaderFailure), opened_log(extent.path) as fd:  # the load meets it, too
        for batches in whole_headers(fd, extent.path, extent.start, extent.end):
            count = _ascending(batches, before)
            if count < len(batches):
                position = int(batches["position"][count])
                _logger.warning("A power cut left no offset of the batch at byte %d of %s: %d "
                                "bytes from there on are removed", position, extent.path,
                                extent.size - position)
                _cut(disk, name, position, extent.size)
                return
            before = int(batches["last_offset"][-1])


def _cut_zeros(disk: RealDisk, base: int) -> None:
    """Truncates the zeros after a segment's batches; other bytes stay."""
    name = file_name(base, FileKind.LOG)
    extent = disk.extent(name)
    with opened_log(extent.path) as fd:
        end = scan_file(fd, extent.start, extent.end, check_crcs=False).position
    if all(not any(disk.read(name, at, _PIECE_BYTES))
           for at in range(end, extent.size, _PIECE_BYTES)):
        _cut(disk, name, end, extent.size)


def _cut(disk: RealDisk, name: str, end: int, size: int) -> None:
    if end < size:
        disk.resize(name, end)
        disk.sync(name)


def _remove(disk: RealDisk, bases: list[int], snapshots: list[int]) -> None:
    """Removes the last segments first, so that the rest after a crash still follows the same
    hole."""
    for base in reversed(bases):
        _delete_segment(disk, base)
    for offset in reversed(snapshots):
        disk.delete(file_name(offset, FileKind.SNAPSHOT))
    disk.sync_directory()


def _delete_segment(disk: RealDisk, base: int) -> None:
    for kind in reversed(_OF_SEGMENT):  # the log last, as an index alone is an orphan
        disk.delete(file_name(base, kind))
