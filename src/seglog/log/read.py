"""Reads of a log by offset (Kafka: UnifiedLog.read, LocalLog.read, LogSegment.read).

Answers are Kafka's, with bytes in the place of a file region. CRCs are left to the consumer.
"""

from __future__ import annotations

import enum
import os
import struct
from functools import partial
from typing import Final

from seglog._native.fetch import FetchDataInfo
from seglog.arguments import int64
from seglog.errors import (
    CorruptDataError, CorruptRecordError, IllegalArgumentError, OffsetOutOfRangeError, SeglogError,
)
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.log.readers import OpenSegment, ReadableLog, SegmentView, read_steadily
from seglog.model import AbortedTxn
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.tail import find_offset

__all__ = ["FetchDataInfo", "FetchIsolation", "collect_aborted_transactions",
           "convert_to_offset_metadata", "maybe_convert_to_offset_metadata", "public_error", "read",
           "upper_bound"]

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT, _PREFIX_SIZE = 8, 12
# Ends of a native walk over headers that Kafka's own iteration judges otherwise: old messages,
# whose first offset may be inside of a compressed payload, and entries shorter than a header.
_KAFKA_DECIDES: Final = ("batch_magic", "batch_size")


class FetchIsolation(enum.Enum):
    """Up to where a read goes: the log's end (replicas), the high watermark, or the last stable
    offset (consumers that read committed)."""

    LOG_END = "LOG_END"
    HIGH_WATERMARK = "HIGH_WATERMARK"
    TXN_COMMITTED = "TXN_COMMITTED"


_LOG_END, _HIGH_WATERMARK = FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK
_NOWHERE: Final = LogOffsetMetadata(-1)

def read(log: ReadableLog, start_offset: int, max_length: int,
         isolation: FetchIsolation = _LOG_END, min_one_message: bool = True) -> FetchDataInfo:
    """Up to `max_length` bytes from the batch that holds `start_offset`, none beyond the bound of
    `isolation`; with `min_one_message` at least that whole batch (Kafka: UnifiedLog.read).

    Takes no lock, unless files are being changed. Raises OffsetOutOfRangeError,
    IllegalArgumentError for a negative `max_length`, CorruptRecordError where the headers on the
    way cannot be followed, KafkaStorageError.
    """
    # What nearly all reads are, in few steps: of a segment that is open, below the bound, with
    # nobody changing files. Any other is decided by the rest.
    readers, end = log.readers, log.log_end_offset_metadata
    generation, view = readers.generation, readers.current_view
    bound = (end if isolation is _LOG_END else
             log.high_watermark_metadata if isolation is _HIGH_WATERMARK else _NOWHERE)
    if (log.log_start_offset <= start_offset < bound.message_offset and max_length >= 0
            and not log.is_closed and not log.context.failures.is_any_offline):
        base, last = view.active_base, bound.segment_base_offset  # -1 of an offset alone
        if start_offset < base:
            base = view.floor(start_offset)
        segment = view.opened.get(base)
        if segment is not None and base <= last:
            size, entries = segment.size, segment.entries
            if size is None and base == end.segment_base_offset:
                size, entries = end.relative_position_in_segment, log.active_index_entries()
            if size is not None and entries is not None:
                try:
                    found = segment.reader.fetch(
                        start_offset, size, entries, max_length,
                        size if base < last else bound.relative_position_in_segment,
                        min_one_message)
                except (SeglogError, OSError, OverflowError):
                    found = None
                if (found is not None and generation == readers.generation and not generation & 1
                        and view.base_offsets is log.segments.base_offsets):
                    segment.was_used = True
                    return found
    return _read_any(log, start_offset, max_length, isolation, min_one_message)


def _read_any(log: ReadableLog, start_offset: int, max_length: int, isolation: FetchIsolation,
              min_one_message: bool) -> FetchDataInfo:
    """`read`, whatever it takes."""
    text = f"Exception while reading from {log.topic_partition}"
    if log.is_closed or log.context.failures.is_any_offline:
        with log.reading(text):
            log.check_open()
    try:
        return read_steadily(
            log, lambda view: _read(log, view, start_offset, max_length, isolation,
                                    min_one_message), partial(log.readers.is_current, log))
    except OffsetOutOfRangeError:
        log.check_open()  # a log that was deleted meanwhile has no segment
        raise
    except OSError:
        with log.reading(text):
            raise


def upper_bound(log: ReadableLog, isolation: FetchIsolation) -> LogOffsetMetadata:
    """Up to where a read with this isolation goes."""
    if isolation is FetchIsolation.LOG_END:
        return log.log_end_offset_metadata
    if isolation is FetchIsolation.TXN_COMMITTED:
        return log.fetch_last_stable_offset_metadata()
    known = log.high_watermark_metadata
    return log.fetch_high_watermark_metadata() if known.message_offset_only else known


def convert_to_offset_metadata(log: ReadableLog, offset: int) -> LogOffsetMetadata:
    """Where the batch that holds `offset` is, or the next one; the answer has that batch's base
    offset. Raises OffsetOutOfRangeError (Kafka: convertToOffsetMetadataOrThrow).

    For the thread that holds the log's lock.
    """
    return _read_up_to(log, log.readers.view(log), offset, 1, False, log.log_end_offset_metadata,
                       None).fetch_offset_metadata


def maybe_convert_to_offset_metadata(log: ReadableLog, offset: int) -> LogOffsetMetadata:
    """The same; the offset alone where it is outside of the log."""
    try:
        return convert_to_offset_metadata(log, offset)
    except OffsetOutOfRangeError:
        return LogOffsetMetadata(offset)


def collect_aborted_transactions(log: ReadableLog, start_offset: int, upper_bound_offset: int
                                 ) -> list[AbortedTxn]:
    """The aborted transactions of the segment that holds `start_offset` and those behind it, as
    far as they concern offsets from the log's start to below `upper_bound_offset`."""
    def collect(view: SegmentView) -> list[AbortedTxn]:
        base = view.floor(start_offset)
        return [] if base < 0 else _aborted(log, view, base, log.log_start_offset,
                                            upper_bound_offset)

    return read_steadily(log, collect, lambda generation, _: log.readers.is_unchanged(generation))


def _read(log: ReadableLog, view: SegmentView, start_offset: int, max_length: int,
          isolation: FetchIsolation, min_one_message: bool) -> FetchDataInfo:
    log_start_offset = log.log_start_offset
    if start_offset < log_start_offset:
        raise OffsetOutOfRangeError(
            f"Received request for offset {start_offset} for partition {log.topic_partition}, but "
            f"we only have log segments starting from offset: {log_start_offset}.")
    return _read_up_to(log, view, start_offset, max_length, min_one_message,
                       upper_bound(log, isolation),
                       [] if isolation is FetchIsolation.TXN_COMMITTED else None)


def _read_up_to(log: ReadableLog, view: SegmentView, start_offset: int, max_length: int,
                min_one_message: bool, bound: LogOffsetMetadata,
                none_aborted: list[AbortedTxn] | None) -> FetchDataInfo:
    """LocalLog.read; `none_aborted` is [] where aborted transactions are wanted, else None."""
    end = log.log_end_offset_metadata
    floor = view.floor(start_offset)
    if start_offset > end.message_offset or floor < 0:
        raise OffsetOutOfRangeError(
            f"Received request for offset {start_offset} for partition {log.topic_partition}, but "
            f"we only have log segments upto {end.message_offset}.")
    if start_offset >= bound.message_offset:
        if start_offset > bound.message_offset:
            bound = convert_to_offset_metadata(log, start_offset)
        return FetchDataInfo(bound, b"", False, none_aborted)
    base: int | None = floor
    while base is not None:
        segment = log.readers.segment(log, view, base)
        found = _read_segment(log, segment, start_offset, max_length, min_one_message, bound, end)
        if found is not None:
            if none_aborted is not None:
                _add_aborted(log, view, segment, start_offset, found)
            return found
        base = view.higher(base)
    return FetchDataInfo(log.log_end_offset_metadata)


def _read_segment(log: ReadableLog, segment: OpenSegment, start_offset: int, max_length: int,
                  min_one_message: bool, bound: LogOffsetMetadata, end: LogOffsetMetadata
                  ) -> FetchDataInfo | None:
    if max_length < 0:
        raise IllegalArgumentError(f"Invalid max size {max_length} for log read from segment "
                                   f"{segment.reader.path}")
    base, size, entries = segment.base_offset, segment.size, segment.entries
    if size is None or entries is None:
        size, entries = end.relative_position_in_segment, log.active_index_entries()
    if base < bound.segment_base_offset:
        max_position = size
    elif base == bound.segment_base_offset:
        max_position = bound.relative_position_in_segment
    else:
        max_position = -1
    try:
        return segment.reader.fetch(start_offset, size, entries, max_length, max_position,
                                    min_one_message)
    except OverflowError:
        int64("start_offset", start_offset)
        int64("max_length", max_length)
        raise
    except CorruptDataError as error:
        if error.code not in _KAFKA_DECIDES:
            raise
    return _fetch_slowly(segment, start_offset, size, entries, max_length, max_position,
                         min_one_message)


def _fetch_slowly(segment: OpenSegment, start_offset: int, size: int, entries: int,
                  max_length: int, max_position: int, min_one_message: bool
                  ) -> FetchDataInfo | None:
    """SegmentReader.fetch where there are messages of old formats on the way."""
    reader = segment.reader
    position = max(reader.index.lookup(start_offset, entries)[1], 0)
    try:
        found = find_offset(reader.fileno(), reader.path, position, size, start_offset)
    except LoaderFailure as failure:
        raise public_error(failure, reader.path) from failure
    if found is None:
        return None
    base_offset, position = found
    batch_size = _LENGTH.unpack(reader.read(position + _LENGTH_AT, _LENGTH.size))[0] + _PREFIX_SIZE
    place = LogOffsetMetadata(base_offset, segment.base_offset, position)
    limit = max(max_length, batch_size) if min_one_message else max_length
    if limit == 0 or max_position < 0:
        return FetchDataInfo(place)
    length = min(limit, min(max_position, size) - position)
    if length < 0:
        raise IllegalArgumentError(f"Invalid size: {length} in read from {reader.path}")
    return FetchDataInfo(place, reader.read(position, length), limit < batch_size)


def public_error(failure: LoaderFailure, path: str) -> SeglogError:
    """What a reader is told of bytes at which Kafka's iteration throws."""
    if failure.kafka_error == "CorruptRecordException":
        return CorruptRecordError(failure.message, file=path,
                                  position=failure.where.get("position"), code="batch_length")
    return failure.to_error(os.path.dirname(path))


def _add_aborted(log: ReadableLog, view: SegmentView, segment: OpenSegment, start_offset: int,
                 found: FetchDataInfo) -> None:
    """Which of the records were aborted: the offset index says how far they go at most."""
    entries = log.active_index_entries() if segment.entries is None else segment.entries
    stop = found.fetch_offset_metadata.relative_position_in_segment + len(found.records)
    entry = segment.reader.index.upper_bound(stop, entries)
    if entry is not None:
        upper_bound = entry[0]
    else:
        higher = view.higher(segment.base_offset)
        upper_bound = log.log_end_offset_metadata.message_offset if higher is None else higher
    found.aborted_transactions = _aborted(log, view, segment.base_offset, start_offset, upper_bound)


def _aborted(log: ReadableLog, view: SegmentView, first_base: int, start_offset: int,
             upper_bound: int) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    base: int | None = first_base
    while base is not None:
        for aborted in log.readers.aborted(log, view, base):
            if aborted.last_offset >= start_offset and aborted.first_offset < upper_bound:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound:
                return found
        base = view.higher(base)
    return found
