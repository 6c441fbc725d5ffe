"""Splitting a segment whose offsets no longer fit its base (LocalLog.splitOverflowedSegment)."""

from __future__ import annotations

import logging
import os
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog._native.rebuild import IndexRebuild
from seglog._native.status import Status
from seglog.config import LogConfig
from seglog.recovery.disk import Disk
from seglog.recovery.loader_failures import CorruptRecord, LoaderFailure
from seglog.recovery.segment_recovery import SegmentRecovery, index_failure
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.next_offset import opened_log, whole_headers
from seglog.recovery.wrappers import first_offset
from seglog.storage.paths import FileKind, FileState, file_name

__all__ = ["split_segment", "write_split"]

_RELATIVE_OFFSET_MAX = 2**31 - 1
_MAGIC_MAX = 2
# Kafka copies chunks of whole batches. They are shorter than this, unless they are one batch. It
# finds the end of a chunk in the file, before it reads the batches that it copied.
_CHUNK_BYTES = 1 << 20
# Bytes of a batch up to the end of its largest timestamp, which Kafka reads from the copy.
_TIMESTAMP_END = 43
_logger = logging.getLogger("seglog.LocalLog")


@dataclass(slots=True)
class _Piece:
    """Bytes [start, end) of the old log: the new segment at `base_offset`."""

    base_offset: int
    start: int
    end: int
    indexes: IndexRebuild


def split_segment(disk: Disk, config: LogConfig, segment: SegmentFiles, recovery: SegmentRecovery,
                  *, retire: bool) -> list[SegmentFiles]:
    """Replaces the segment by several, returned in ascending order. Crash-safe at every step.

    `recovery` is the one that found the overflow: Kafka finds the end of the segment with the index
    that it left unfinished. With `retire` the old files become `.deleted`. Without it they stay
    unless a new file takes their name. That is so in pass four, where Kafka does not know the
    segment yet, and opens all segments anew after the split. Otherwise Kafka continues with the new
    segments, which have no transaction index even if another segment's has their name.

    Raises LoaderFailure where Kafka cannot split: no overflow at its end, bytes after the last
    batch, or batches that do not fit a segment of their own.
    """
    dry_run = SegmentFiles(disk.overlay(), segment.base_offset, config)
    dry_run.take_failed(recovery)
    segment.max_seen = dry_run.max_seen  # messages below contain it
    made = write_split(disk, config, segment, dry_run.read_next_offset())
    _logger.info("Replacing overflowed segment %s with split segments %s", segment.describe(),
                 [one.base_offset for one in made])
    for one in reversed(made):
        one.rename(FileState.CLEANED, FileState.SWAP)
    if retire:
        segment.rename(FileState.LIVE, FileState.DELETED)
    for one in made:
        one.rename(FileState.SWAP, FileState.LIVE)
    disk.sync_directory()
    opened = [SegmentFiles(disk, one.base_offset, config) for one in made]
    if retire:
        for one in opened:
            one.txn_index.is_left_over = disk.size(one.txn_index.name) is not None
        last = opened[-1]  # which may be the log's active one
        position = last.offset_index.lookup(last.offset_index.last_offset)[1]
        last.bytes_since_index_entry = last.size - position
    return opened


def write_split(disk: Disk, config: LogConfig, segment: SegmentFiles,
                next_offset: int) -> list[SegmentFiles]:
    """The segments that replace one, ascending, as durable `.cleaned` files.

    `next_offset` is the offset after its last batch. Raises LoaderFailure as `split_segment`.
    """
    if next_offset - 1 - segment.base_offset <= _RELATIVE_OFFSET_MAX:
        raise LoaderFailure(
            "IllegalArgumentException", "Split operation is only permitted for segments with "
            f"overflow, and the problem path is {segment.log_path}", file=segment.log_name)
    _logger.info("Splitting overflowed segment %s", segment.describe())
    pieces = _Splitting(segment, config).run()
    made: list[SegmentFiles] = []
    try:
        for piece in pieces:
            made.append(_write(disk, config, segment, piece))
    except BaseException:
        for one in made:
            _delete(disk, one, FileState.CLEANED)
        raise
    return made


class _Splitting:
    """Decides where the new segments begin and end, and what their indexes hold."""

    def __init__(self, segment: SegmentFiles, config: LogConfig) -> None:
        self.segment, self.config, self.extent = segment, config, segment.extent
        self.pieces: list[_Piece] = []
        self.is_full = True  # the last piece is complete

    def run(self) -> list[_Piece]:
        """All pieces. Raises LoaderFailure."""
        extent = self.extent
        with opened_log(extent.path) as fd:
            for batches in whole_headers(fd, self.segment.log_path, extent.start, extent.end):
                self._take(fd, batches)
        end = self.pieces[-1].end if self.pieces else extent.start
        if end < extent.end:
            # Kafka's copy loop runs to the end of the file and requests a batch that is not there.
            raise LoaderFailure("NoSuchElementException", "null", file=self.segment.log_name,
                                position=end, expected=extent.end)
        for piece in self.pieces:
            self._finish(piece)
        self._refuse_twice()
        return self.pieces

    def _refuse_twice(self) -> None:
        """Raises Kafka's error for two new segments of the same base: Kafka deletes the files of
        the first, and misses them when it renames them, from the last on."""
        counts = Counter(piece.base_offset for piece in self.pieces)
        twice = [base for base, count in counts.items() if count > 1]
        if twice:
            name = file_name(max(twice), FileKind.LOG, FileState.CLEANED)
            raise LoaderFailure("NoSuchFileException", os.path.join(
                os.path.dirname(self.segment.log_path), name), file=name)

    def _take(self, fd: int, batches: npt.NDArray[np.void]) -> None:
        magic = batches["magic"]
        strange = np.flatnonzero((magic < 0) | (magic > _MAGIC_MAX) | (
            (magic == _MAGIC_MAX) & (batches["size"] < _TIMESTAMP_END)))
        readable = int(strange[0]) if len(strange) else len(batches)
        row = 0
        while row < len(batches):
            if self.is_full:
                self._begin(first_offset(fd, batches[row], self.segment.log_path), batches[row])
            piece = self.pieces[-1]
            taken = piece.indexes.feed(batches[row:readable]) if row < readable else 0
            if taken:
                row += taken
                piece.end = int(batches["position"][row - 1]) + int(batches["size"][row - 1])
            status = Status(piece.indexes.status)
            if status not in (Status.OK, Status.BATCH_OFFSET_RANGE):
                self._copy_chunk(fd, piece, int(batches["position"][row]))
                raise index_failure(piece.indexes, piece.base_offset, self.segment.log_path,
                                    state=FileState.CLEANED)
            self.is_full = status == Status.BATCH_OFFSET_RANGE
            if not self.is_full and row == readable < len(batches):
                self._handle_strange(fd, piece, batches[row])
            if self.is_full and piece.end == piece.start:
                raise LoaderFailure(
                    "IllegalStateException", "Failed to append records from position "
                    f"{piece.start - self.extent.start} in {self.segment.describe()}",
                    file=self.segment.log_name, position=piece.start)

    def _begin(self, base_offset: int, batch: np.void) -> None:
        start = int(batch["position"])
        self.pieces.append(_Piece(base_offset, start, start, IndexRebuild(
            base_offset, start, interval_bytes=self.config.index_interval_bytes,
            index_bytes=self.config.segment_index_bytes)))

    def _handle_strange(self, fd: int, piece: _Piece, batch: np.void) -> None:
        """Handles a batch that Kafka finds in the file, but cannot read in what it copied. It may
        only be the first that does not fit the piece."""
        self.is_full = not _fits(piece, batch)
        if self.is_full:
            return
        position = int(batch["position"])
        self._copy_chunk(fd, piece, position)
        if batch["magic"] == _MAGIC_MAX:
            raise LoaderFailure("IndexOutOfBoundsException", "null", file=self.segment.log_name,
                                position=position, expected=_TIMESTAMP_END,
                                found=int(batch["size"]))
        raise CorruptRecord(f"Invalid magic found in record: {batch['magic']}",
                            file=self.segment.log_name, position=position)

    def _copy_chunk(self, fd: int, piece: _Piece, position: int) -> None:
        """Copies the chunk of the piece that has the batch at `position`. Raises LoaderFailure if
        Kafka cannot find the chunk's end."""
        size, room = 0, _CHUNK_BYTES
        for batches in whole_headers(fd, self.segment.log_path, piece.start, self.extent.end):
            for batch in batches:
                if not _fits(piece, batch):
                    return
                if size and size + int(batch["size"]) >= room:
                    if batch["position"] > position:
                        return
                    size, room = 0, max(room, size)
                size += int(batch["size"])

    def _finish(self, piece: _Piece) -> None:
        """Adds the final entry of the time index."""
        if not piece.indexes.finish():
            raise index_failure(piece.indexes, piece.base_offset, self.segment.log_path,
                                finishing=True, state=FileState.CLEANED)


def _fits(piece: _Piece, batch: np.void) -> bool:
    return 0 <= int(batch["last_offset"]) - piece.base_offset <= _RELATIVE_OFFSET_MAX


def _write(disk: Disk, config: LogConfig, segment: SegmentFiles, piece: _Piece) -> SegmentFiles:
    """Writes one new segment as durable `.cleaned` files."""
    start = segment.extent.start
    new = SegmentFiles(disk, piece.base_offset, config, FileState.CLEANED, piece.end - piece.start)
    _delete(disk, new, FileState.CLEANED)
    disk.copy(segment.log_name, piece.start - start, piece.end - start, new.log_name)
    new.offset_index.replace(piece.indexes.offset_index, sync=True)
    new.time_index.replace(piece.indexes.time_index, sync=True)
    disk.sync(new.log_name)
    for name in (new.log_name, new.offset_index.name, new.time_index.name):
        disk.copy_times(segment.log_name, name)
    return new


def _delete(disk: Disk, segment: SegmentFiles, state: FileState) -> None:
    for name in segment.names(state):
        disk.delete(name)
