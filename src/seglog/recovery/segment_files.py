"""One segment while its log is loaded: what Kafka's LogSegment does to its four files."""

from __future__ import annotations

import contextlib
import logging
import os
from functools import partial
from typing import Final

from seglog.config import LogConfig
from seglog.model import TimestampOffset
from seglog.recovery.disk import Disk
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.index_files import OffsetIndexFile, TimeIndexFile, TxnIndexFile
from seglog.recovery.scans import Extent
from seglog.recovery.segment_recovery import SegmentRecovery
from seglog.recovery.next_offset import find_offset, next_offset_from, opened_log, whole_headers
from seglog.storage.paths import FileKind, FileState, segment_file_names

__all__ = ["TOLD_FILES", "SegmentFiles"]

_logger = logging.getLogger("seglog.LogSegment")

#: What messages call its files, in the order in which Kafka renames and deletes them.
TOLD_FILES: Final = {
    FileKind.LOG: "log", FileKind.INDEX: "offset index", FileKind.TIME_INDEX: "time index",
    FileKind.TXN_INDEX: "transaction index"}


class SegmentFiles:
    """The files of the segment at `base_offset`, for code that changes them. It trusts its indexes,
    and fails with Kafka's exceptions; `storage.segment.LogSegment`, which only reads, proves them.

    Indexes are opened at first use.
    `size` is the bytes of the log that count; a preallocated file is longer. `max_seen` is the
    largest timestamp so far, None until it is requested. `created_ms` is when a writable log opened
    or emptied it. `bytes_since_index_entry`: those of the batches since the last entry of the
    offset index, which Kafka counts in memory, from 0 at a load.
    """

    def __init__(self, disk: Disk, base_offset: int, config: LogConfig,
                 state: FileState = FileState.LIVE, size: int | None = None, *,
                 created_ms: int = 0, max_seen: TimestampOffset | None = None) -> None:
        self.disk, self.base_offset, self.config = disk, base_offset, config
        self.log_name, index, time_index, txn_index = segment_file_names(base_offset, state)
        self.size = (disk.size(self.log_name) or 0) if size is None else size
        self.offset_index = OffsetIndexFile(disk, index, base_offset, config.segment_index_bytes)
        self.time_index = TimeIndexFile(disk, time_index, base_offset, config.segment_index_bytes)
        self.txn_index = TxnIndexFile(disk, txn_index)
        self.max_seen, self.created_ms = max_seen, created_ms
        self.bytes_since_index_entry = 0

    def note_appends(self, size: int, offset_entries: int, time_entries: int,
                     max_timestamp: TimestampOffset) -> None:
        """Takes over the counters of a writer."""
        self.size, self.max_seen = size, max_timestamp
        self.offset_index.entries, self.time_index.entries = offset_entries, time_entries

    @property
    def log_path(self) -> str:
        """The absolute path of the log file."""
        return os.path.join(os.path.abspath(self.disk.path), self.log_name)

    def describe(self) -> str:
        """The segment in Kafka's text form."""
        largest = -1 if self.max_seen is None else self.max_seen.timestamp
        return (f"LogSegment(baseOffset={self.base_offset}, size={self.size}, "
                f"lastModifiedTime={self.disk.modified_ms(self.log_name)}, "
                f"largestRecordTimestamp={largest})")

    @property
    def extent(self) -> Extent:
        """The bytes of its log."""
        whole = self.disk.extent(self.log_name)
        return Extent(whole.path, whole.start, whole.start + min(whole.size, self.size))

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp so far; before any write, that of the time index."""
        if self.max_seen is None:
            self.max_seen = self.time_index.last_entry
        return self.max_seen

    def largest_timestamp(self) -> int:
        """The largest timestamp of its records (ms); without timestamps, when its log was last
        written."""
        largest = self.max_timestamp().timestamp
        return largest if largest >= 0 else self.disk.modified_ms(self.log_name)

    # ---- reading ------------------------------------------------------------------------------

    def find(self, offset: int) -> tuple[int, int] | None:
        """(base offset, byte of the log) of the batch with `offset`, or the first above it."""
        position = max(self.offset_index.lookup(offset)[1], 0)
        extent = self.extent
        if not extent.size:
            return None
        with opened_log(extent.path) as fd:
            found = find_offset(fd, self.log_path, extent.start + position, extent.end, offset)
        return None if found is None else (found[0], found[1] - extent.start)

    def translate(self, offset: int) -> int | None:
        """Byte of the log at which the batch with `offset`, or the first above it, begins."""
        found = self.find(offset)
        return None if found is None else found[1]

    def read_next_offset(self) -> int:
        """The offset after the last batch; the base offset of an empty segment."""
        target = self.offset_index.last_offset
        position = self.offset_index.lookup(target)[1]
        extent = self.extent
        if not extent.size:
            return self.base_offset
        with opened_log(extent.path) as fd:
            return next_offset_from(fd, self.log_path, extent.start + max(position, 0), extent.end,
                                    self.base_offset, target)

    def _find_largest_timestamp(self) -> TimestampOffset:
        last = self.time_index.last_entry
        position = self.offset_index.lookup(last.offset)[1]
        extent = self.extent
        if not extent.size:
            return last
        found = TimestampOffset(-1, -1)
        with opened_log(extent.path) as fd:
            for batches in whole_headers(fd, self.log_path, extent.start + max(position, 0),
                                         extent.end):
                row = int(batches["max_timestamp"].argmax())
                if int(batches["max_timestamp"][row]) > found.timestamp:
                    found = TimestampOffset(int(batches["max_timestamp"][row]),
                                            int(batches["last_offset"][row]))
        return found if found.timestamp > last.timestamp else last

    # ---- changing -----------------------------------------------------------------------------

    def take(self, recovery: SegmentRecovery, *, sync: bool, index_last: bool) -> None:
        """Applies a recovery to the files.

        Each file is replaced in one step. `index_last`: the offset index was missing. It is written
        last, so that the next load recovers the segment again if this one is killed.
        """
        self._cut(recovery)
        if sync and recovery.cut_bytes > 0:
            self.disk.sync(self.log_name)  # with whole indexes no later load scans it
        replacements = [partial(self.offset_index.replace, recovery.offset_index),
                        partial(self.time_index.replace, recovery.time_index),
                        partial(self.txn_index.replace, recovery.aborted)]
        for replace in reversed(replacements) if index_last else replacements:
            replace(sync=sync)
        self._saw(recovery)

    def take_failed(self, recovery: SegmentRecovery) -> None:
        """Leaves the files as Kafka does when it fails in the middle of a recovery."""
        if recovery.is_scanned:
            self._cut(recovery)
            self.offset_index.replace(recovery.offset_index, sync=False)
        else:
            self.offset_index.refill(recovery.offset_index)
        self.time_index.refill(recovery.time_index)
        self.txn_index.replace(recovery.aborted, sync=False)
        self._saw(recovery)

    def _cut(self, recovery: SegmentRecovery) -> None:
        if recovery.cut_bytes > 0:
            self.size = recovery.valid_end - recovery.extent.start
            self.disk.resize(self.log_name, self.size)

    def _saw(self, recovery: SegmentRecovery) -> None:
        self.max_seen = None if recovery.max_timestamp < 0 else TimestampOffset(
            recovery.max_timestamp, recovery.offset_of_max_timestamp)

    def truncate_indexes(self, offset: int) -> None:
        """The index part of truncateTo: truncates them and makes them writable again."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes()

    def truncate_log(self, position: int | None) -> None:
        """The log part of truncateTo: truncates the log at a byte (None: not at all)."""
        if position is not None and position < self.size:
            self.disk.resize(self.log_name, position)
            self.size = position
        if self.max_timestamp().timestamp >= 0:
            self.max_seen = self._find_largest_timestamp()

    def resize_indexes(self) -> None:
        """Resizes the indexes to `segment.index.bytes`, as the active segment needs it."""
        self.offset_index.resize(self.config.segment_index_bytes)
        self.time_index.resize(self.config.segment_index_bytes)

    def trim_log(self) -> None:
        """Truncates the preallocated part of the log file."""
        if (self.disk.size(self.log_name) or 0) > self.size:
            self.disk.resize(self.log_name, self.size)

    def close(self) -> None:
        """Closes the segment's files as Kafka does."""
        if self.max_seen is not None:
            try:
                self.time_index.append_last(self.max_seen)
            except LoaderFailure as failure:
                _logger.warning("maybeAppend: %s", failure)
        with contextlib.ExitStack() as rest:  # each is tried, even if others fail
            rest.callback(self._close_log)
            for index in (self.time_index, self.offset_index):
                if index.is_open:
                    rest.callback(index.trim)

    def _close_log(self) -> None:
        self.trim_log()
        if self.disk.size(self.log_name) is not None:
            self.disk.sync(self.log_name)

    def open_indexes(self) -> None:
        """Opens both indexes; creates missing ones."""
        self.offset_index.open()
        self.time_index.open()

    def names(self, state: FileState) -> list[str]:
        """The names of its four files with this suffix, in Kafka's order."""
        return segment_file_names(self.base_offset, state)

    def rename(self, old: FileState, new: FileState, *, keeps_log: bool = False) -> None:
        """Changes the suffix of all its files that exist, in Kafka's order; with `keeps_log` of its
        indexes alone."""
        for name, new_name in list(zip(self.names(old), self.names(new), strict=True))[keeps_log:]:
            self.disk.rename(name, new_name)
