"""The last segment of a log, to which appends go (Kafka: LogSegment)."""

from __future__ import annotations

import os
import random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from seglog._native.append import IndexRefusal, LogEnd, SegmentWriter
from seglog.config import LogConfig
from seglog.errors import IllegalArgumentError, LogSegmentOffsetOverflowError
from seglog.model import TimestampOffset
from seglog.java.numbers import wrap_int64
from seglog.log.log_dir_failures import closed_error
from seglog.recovery.loader_failures import LoaderFailure, reading_error
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.next_offset import opened_log, whole_headers

__all__ = ["ActiveSegment", "Records", "max_segment_ms"]

Records: TypeAlias = bytes | bytearray | memoryview

_INT32_MAX = 2**31 - 1
_OFFSET_REFUSALS = (IndexRefusal.OFFSET_FULL, IndexRefusal.OFFSET_BACK, IndexRefusal.OFFSET_FAR)


class ActiveSegment:
    """A writer of the last segment: its `files`, a SegmentFiles, and the state that only a segment
    with appends has.

    For the thread that holds the log's lock. Call `update_files` before reading `files`.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self.files = files
        self.base_offset = files.base_offset
        self.jitter_ms = _random_jitter(files.config)
        self._bytes_since_index_entry = files.bytes_since_index_entry
        self._first_timestamp: int | None = None
        self._writer: SegmentWriter | None = None
        self._configured: LogConfig | None = None
        self._is_over = False

    @property
    def size(self) -> int:
        """Bytes of its log."""
        writer = self._writer  # a reader asks without the lock
        return self.files.size if writer is None else writer.size

    @property
    def index_entries(self) -> int:
        """The number of entries of its offset index."""
        writer = self._writer  # a reader asks without the lock
        return self.files.offset_index.entries if writer is None else writer.offset_entries

    # ---- rolling ------------------------------------------------------------------------------

    def time_waited_for_roll(self, now_ms: int, message_timestamp: int) -> int:
        """How long it has been open, in ms: by the first batch's timestamp, else by the clock."""
        if self._first_timestamp is None and self._writer is not None:
            self._first_timestamp = self._writer.first_timestamp
        if self._first_timestamp is None:
            self._first_timestamp = self._read_first_timestamp()
            if self._writer is not None:
                self._writer.first_timestamp = self._first_timestamp
        if self._first_timestamp is not None and self._first_timestamp >= 0:
            return wrap_int64(message_timestamp - self._first_timestamp)
        return now_ms - self.files.created_ms

    def _read_first_timestamp(self) -> int | None:
        self.update_files()
        extent = self.files.extent
        if not extent.size:
            return None
        try:
            with opened_log(extent.path) as fd:
                first = next(whole_headers(fd, extent.path, extent.start, extent.end, most=1), None)
        except LoaderFailure as failure:  # nothing is written behind bytes that are no batch
            raise reading_error(failure, extent.path) from None
        return None if first is None else int(first["max_timestamp"][0])

    def should_roll(self, config: LogConfig, *, append_size: int, max_timestamp: int,
                    last_offset: int, now_ms: int) -> bool:
        """Whether an append goes to a new segment (LogSegment.shouldRoll)."""
        self.update_files()
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

    def append(self, last_offset: int, data: Records, batches: npt.NDArray[np.void],
               end: LogEnd | None = None, first_offset: int = -1) -> None:
        """Writes whole batches, valid and in order, and the index entries that are due, and moves
        the log's `end`, which is at most `first_offset`, after them.

        If a write fails, the segment is unchanged. Raises KafkaStorageError, IllegalStateError,
        LogSegmentOffsetOverflowError, and IllegalArgumentError for a segment beyond 2 GiB. Errors
        of an index are raised after the batches are written, as in Kafka.
        """
        files, size = self.files, len(memoryview(data))
        if size == 0:
            return
        if not self.can_convert(last_offset):
            self.update_files()
            files.offset_index.open()  # Kafka opens it here, which creates it
            raise LogSegmentOffsetOverflowError(
                f"Detected offset overflow at offset {last_offset} in segment {files.describe()}")
        if self._writer is None:
            self._writer = self._open_writer()
        if size > _INT32_MAX - self.size:
            raise IllegalArgumentError(
                f"Append of size {size} bytes is too large for segment with current file position "
                f"at {self.size}")
        refusal, row = self._writer.append(data, batches, end, first_offset, last_offset + 1)
        if refusal != IndexRefusal.TAKES:
            self._raise_refused(int(batches["last_offset"][row]), refusal)

    def _open_writer(self) -> SegmentWriter:
        """Opens the segment for writing; from then on the writer counts bytes and entries."""
        if self._is_over:  # a signal's handler closed the log inside of an append
            raise closed_error(f"The log in {self.files.disk.path} is closed")
        files = self.files
        files.open_indexes()
        largest, last = files.max_timestamp(), files.time_index.last_entry
        directory = os.path.abspath(files.disk.path)
        self._configured = None
        return SegmentWriter(
            files.log_path, os.path.join(directory, files.offset_index.name),
            os.path.join(directory, files.time_index.name), base_offset=self.base_offset,
            size=files.size, index_interval_bytes=files.config.index_interval_bytes,
            offset_entries=files.offset_index.entries, offset_slots=files.offset_index.max_entries,
            last_index_offset=files.offset_index.last_offset,
            time_entries=files.time_index.entries, time_slots=files.time_index.max_entries,
            last_time_entry=(last.timestamp, last.offset),
            bytes_since_index_entry=self._bytes_since_index_entry,
            max_timestamp=(largest.timestamp, largest.offset),
            first_timestamp=self._first_timestamp if files.size else None)

    def _raise_refused(self, last_offset: int, refusal: int) -> None:
        """Raises the error of the index that refused an entry."""
        self.update_files()
        files = self.files
        if refusal in _OFFSET_REFUSALS:
            files.offset_index.append(last_offset, 0)
        else:
            files.time_index.maybe_append(files.max_timestamp())

    def writer(self, config: LogConfig) -> SegmentWriter | None:
        """The writer of the fast path with these settings; None for a segment without appends so
        far, and for a log that compresses."""
        writer = self._writer
        if writer is None or config is self._configured:
            return writer
        if config.compression_type not in ("producer", "uncompressed"):
            return None
        writer.configure(
            needs_key=config.compact,
            has_create_time=config.message_timestamp_type == "CreateTime",
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            max_message_bytes=config.max_message_bytes, segment_bytes=config.segment_size,
            max_segment_ms=max_segment_ms(config) - self.jitter_ms,
            created_ms=self.files.created_ms)
        self._configured = config
        return writer

    def update_files(self) -> None:
        """Brings `files` up to date."""
        writer, files = self._writer, self.files
        if writer is not None:
            files.note_appends(writer.size, writer.offset_entries, writer.time_entries,
                               TimestampOffset(*writer.max_timestamp))

    # ---- its end ------------------------------------------------------------------------------

    def become_inactive(self) -> None:
        """Writes the final entry of the time index, and trims indexes and log."""
        self.close_handles()
        files = self.files
        files.time_index.append_last(files.max_timestamp())
        files.offset_index.trim()
        files.time_index.trim()
        files.trim_log()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncates at the first batch that ends at or above `offset`. The segment can be written
        to again."""
        self.close_handles()
        files = self.files
        position = files.translate(offset)
        files.truncate_indexes(offset)
        files.truncate_log(position)
        if files.size == 0:
            files.created_ms = now_ms
            self._first_timestamp = None
        self._bytes_since_index_entry = 0

    def end(self) -> None:
        """Closes the descriptors for good: the files may be another process's now."""
        self._is_over = True
        self.close_handles()

    def close_handles(self) -> None:
        """Closes the descriptors; the next append opens them again."""
        writer = self._writer
        if writer is not None:
            self.update_files()
            self._bytes_since_index_entry = writer.bytes_since_index_entry
            self._first_timestamp = writer.first_timestamp
            self._writer = None
            writer.close()


def max_segment_ms(config: LogConfig) -> int:
    """The maximum age of a segment (ms)."""
    if config.compact and config.max_compaction_lag_ms > 0:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


def _random_jitter(config: LogConfig) -> int:
    if config.segment_jitter_ms == 0:
        return 0
    return random.randrange(2**31) % min(config.segment_jitter_ms, config.segment_ms)
