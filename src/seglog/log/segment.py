"""The segment at the end of a log, which is written to (Kafka: LogSegment)."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from seglog._native.batch import scan_file
from seglog._native.file import write_at
from seglog.config import LogConfig
from seglog.errors import IllegalArgumentError, LogSegmentOffsetOverflowError
from seglog.model import AbortedTxn, TimestampOffset
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.tail import open_log

__all__ = ["ActiveSegment", "Records", "max_segment_ms"]

Records: TypeAlias = bytes | bytearray | memoryview

_INT32_MAX = 2**31 - 1


class ActiveSegment:
    """The files of the last segment, and what only matters while it is the last.

    For the thread that holds the log's lock. Whoever looks at `files` calls `settle` first.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self.base_offset = files.base_offset
        self.jitter_ms = _random_jitter(files.config)
        self._bytes_since_index_entry = 0
        self._first_timestamp: int | None = None
        self._fd = -1

    @property
    def size(self) -> int:
        """Bytes of its log."""
        return self.files.size

    # ---- rolling ------------------------------------------------------------------------------

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """How long it has been open, in ms: by the first batch's timestamp, or else the clock."""
        if self._first_timestamp is None:
            self._first_timestamp = self._read_first_timestamp()
        if self._first_timestamp is not None and self._first_timestamp >= 0:
            return _int64(message_timestamp - self._first_timestamp)
        return now_ms - self.files.created_ms

    def _read_first_timestamp(self) -> int | None:
        self.settle()
        extent = self.files.extent
        if not extent.size:
            return None
        fd = open_log(extent.path)
        try:
            first = scan_file(fd, extent.start, extent.end, check_crcs=False, max_batches=1)
        finally:
            os.close(fd)
        return int(first.batches["max_timestamp"][0]) if len(first.batches) else None

    def should_roll(self, config: LogConfig, *, append_size: int, max_timestamp: int,
                    last_offset: int, now_ms: int) -> bool:
        """Whether what is to be appended goes to a new segment (reference 2.6)."""
        waited = self.time_waited_for_roll(now_ms, max_timestamp)
        files = self.files
        return (files.size > config.segment_size - append_size
                or (files.size > 0 and waited > max_segment_ms(config) - self.jitter_ms)
                or files.offset_index.is_full or files.time_index.is_full
                or not self.can_convert(last_offset))

    def can_convert(self, offset: int) -> bool:
        """Whether the distance from the base offset fits an index entry."""
        return 0 <= offset - self.base_offset <= _INT32_MAX

    # ---- writing ------------------------------------------------------------------------------

    def append(self, last_offset: int, data: Records, batches: npt.NDArray[np.void]) -> None:
        """Writes whole batches, valid and in order, and the index entries that are due.

        A write that fails leaves the segment as it was: KafkaStorageError. Raises
        LogSegmentOffsetOverflowError, IllegalArgumentError for a segment beyond 2 GiB, and what an
        index refuses, when the batches are written already, as in Kafka.
        """
        files, size = self.files, len(memoryview(data))
        if size == 0:
            return
        if not self.can_convert(last_offset):
            raise LogSegmentOffsetOverflowError(
                f"Detected offset overflow at offset {last_offset} in segment {files.describe()}")
        if size > _INT32_MAX - files.size:
            raise IllegalArgumentError(
                f"Append of size {size} bytes is too large for segment with current file position "
                f"at {files.size}")
        position = files.size
        before = (files.offset_index.entries, files.time_index.entries, files.max_seen)
        try:
            if self._fd < 0:
                self._fd = os.open(files.log_path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            write_at(self._fd, data, position, file=files.log_path)
            files.size = position + size
            self._index(batches, position)
        except OSError:
            files.size = position
            files.offset_index.entries, files.time_index.entries, files.max_seen = before
            with contextlib.suppress(OSError):
                os.truncate(files.log_path, position)
            raise

    def _index(self, batches: npt.NDArray[np.void], position: int) -> None:
        files, interval = self.files, self.files.config.index_interval_bytes
        for last_offset, timestamp, size in zip(
                batches["last_offset"].tolist(), batches["max_timestamp"].tolist(),
                batches["size"].tolist(), strict=True):
            if timestamp > files.max_timestamp().timestamp:
                files.max_seen = TimestampOffset(timestamp, last_offset)
            if self._bytes_since_index_entry > interval:
                files.offset_index.append(last_offset, position)
                files.time_index.maybe_append(files.max_timestamp())
                self._bytes_since_index_entry = 0
            position += size
            self._bytes_since_index_entry += size

    def append_aborted(self, ended: AbortedTxn) -> None:
        """An entry of the transaction index."""
        self.files.txn_index.append([ended])

    def settle(self) -> None:
        """Brings `files` up to date."""

    # ---- its end ------------------------------------------------------------------------------

    def become_inactive(self) -> None:
        """The closing entry of the time index; indexes and log without what is not in use."""
        self.settle()
        files = self.files
        files.time_index.append_last(files.max_timestamp())
        files.offset_index.trim()
        files.time_index.trim()
        files.trim_log()
        self.close_handles()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cuts at the first batch that ends at or above `offset`, and may be written to again."""
        self.settle()
        self.close_handles()
        files = self.files
        position = files.translate(offset)
        files.truncate_indexes(offset)
        files.truncate_log(position)
        if files.size == 0:
            files.created_ms, self._first_timestamp = now_ms, None
        self._bytes_since_index_entry = 0

    def close_handles(self) -> None:
        """Gives the descriptors back; the next append opens them again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def max_segment_ms(config: LogConfig) -> int:
    """How old a segment may become."""
    if config.compact and config.max_compaction_lag_ms > 0:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


def _random_jitter(config: LogConfig) -> int:
    if config.segment_jitter_ms == 0:
        return 0
    return random.randrange(2**31) % min(config.segment_jitter_ms, config.segment_ms)


def _int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
