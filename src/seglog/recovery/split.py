"""Splitting a segment whose offsets no longer fit its base (reference 7.8)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog.config import LogConfig
from seglog.recovery.disk import Disk
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.rebuild import IndexRule
from seglog.recovery.recover import Extent
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.tail import header_batches, open_log
from seglog.storage.paths import FileState

__all__ = ["split_segment"]

_RELATIVE_OFFSET_MAX = 2**31 - 1
_logger = logging.getLogger("seglog.LocalLog")


@dataclass(slots=True)
class _Piece:
    """Bytes [start, end) of the old log, the segment from `rule.base` on."""

    start: int
    end: int
    rule: IndexRule


def split_segment(disk: Disk, config: LogConfig, segment: SegmentFiles) -> list[SegmentFiles]:
    """Replaces the segment by the ones returned, in ascending order; crash-safe at every step.

    LoaderFailure where Kafka cannot split: no overflow at its end, bytes behind the last batch.
    """
    if segment.read_next_offset() - 1 - segment.base_offset <= _RELATIVE_OFFSET_MAX:
        raise LoaderFailure(
            "IllegalArgumentException", "Split operation is only permitted for segments with "
            f"overflow, and the problem path is {segment.log_path}", file=segment.log_name)
    _logger.info("Splitting overflowed segment %s", segment.base_offset)
    pieces = _pieces(segment, config)
    made: list[SegmentFiles] = []
    try:
        for piece in pieces:
            made.append(_write(disk, config, segment, piece))
    except BaseException:
        for one in made:
            _delete(disk, one, FileState.CLEANED)
        raise
    _logger.info("Replacing overflowed segment %s with split segments %s", segment.base_offset,
                 [one.base_offset for one in made])
    for one in reversed(made):
        one.rename(FileState.CLEANED, FileState.SWAP)
    segment.rename(FileState.LIVE, FileState.DELETED)
    for one in made:
        one.rename(FileState.SWAP, FileState.LIVE)
    disk.sync_directory()
    _delete(disk, segment, FileState.DELETED)
    return [SegmentFiles(disk, one.base_offset, config) for one in made]


def _pieces(segment: SegmentFiles, config: LogConfig) -> list[_Piece]:
    extent, pieces = segment.extent, list[_Piece]()
    directory = os.path.dirname(segment.log_path)
    for batches in _headers(extent, segment.log_path):
        row = 0
        while row < len(batches):
            if not pieces or pieces[-1].rule.overflow:
                start = int(batches["position"][row])
                pieces.append(_Piece(start, start, IndexRule(
                    int(batches["base_offset"][row]), start, config.index_interval_bytes,
                    config.segment_index_bytes, directory)))
            piece = pieces[-1]
            taken = piece.rule.feed(batches[row:])
            if piece.rule.failure is not None and not piece.rule.overflow:
                raise piece.rule.failure
            if taken:
                row += taken
                piece.end = int(batches["position"][row - 1]) + int(batches["size"][row - 1])
            elif piece.end == piece.start:
                raise LoaderFailure(
                    "IllegalStateException", f"Failed to append records from position "
                    f"{piece.start - extent.start} in segment {segment.base_offset}",
                    file=segment.log_name, position=piece.start)
    if not pieces or pieces[-1].end < extent.end:
        # Kafka's copy loop runs to the end of the file and asks for a batch that is not there.
        raise LoaderFailure("NoSuchElementException", "null", file=segment.log_name,
                            position=pieces[-1].end if pieces else extent.start,
                            expected=extent.end)
    for piece in pieces:
        if piece.rule.overflow:
            piece.rule.failure = None
        piece.rule.finish()
        if piece.rule.failure is not None:
            raise piece.rule.failure
    return pieces


def _headers(extent: Extent, path: str) -> Iterator[npt.NDArray[np.void]]:
    fd = open_log(extent.path)
    try:
        yield from header_batches(fd, path, extent.start, extent.end)
    finally:
        os.close(fd)


def _write(disk: Disk, config: LogConfig, segment: SegmentFiles, piece: _Piece) -> SegmentFiles:
    """One new segment, as `.cleaned` files that are on the medium."""
    start = segment.extent.start
    new = SegmentFiles(disk, piece.rule.base, config, FileState.CLEANED, piece.end - piece.start)
    _delete(disk, new, FileState.CLEANED)
    disk.copy(segment.log_name, piece.start - start, piece.end - start, new.log_name)
    new.offset_index.replace(bytes(piece.rule.offset_entries), sync=True)
    new.time_index.replace(bytes(piece.rule.time_entries), sync=True)
    disk.sync(new.log_name)
    for name in (new.log_name, new.offset_index.name, new.time_index.name):
        disk.copy_times(segment.log_name, name)
    return new


def _delete(disk: Disk, segment: SegmentFiles, state: FileState) -> None:
    for name in segment.names(state):
        disk.delete(name)
