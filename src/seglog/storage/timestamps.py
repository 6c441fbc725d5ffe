"""Offsets by timestamp: the first record at or after a time, in the order of the log.

Kafka looks into the first segment whose largest known timestamp is late enough, and nowhere else;
when that one turns out to hold nothing (its time index is missing, so the file's time counted) it
answers "none". Here the next segments are asked too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seglog._native.records import RecordDecoder
from seglog._native.status import Status
from seglog.model import TimestampOffset
from seglog.storage import codecs
from seglog.storage.segment import LogSegment

__all__ = ["find_offset_by_timestamp", "find_offset_of_max_timestamp"]


def find_offset_by_timestamp(segments: Iterator[LogSegment], timestamp_ms: int, start_offset: int
                             ) -> TimestampOffset | None:
    """The first record at or above `start_offset` whose timestamp is at least `timestamp_ms`.

    Control records count, as in Kafka. CorruptDataError when the way there is damaged.
    """
    for segment in segments:
        if segment.max_timestamp()[0] < timestamp_ms:
            continue
        found = _find_in_segment(segment, timestamp_ms, start_offset)
        if found is not None:
            return found
    return None


def find_offset_of_max_timestamp(segments: Iterator[LogSegment], start_offset: int
                                 ) -> TimestampOffset | None:
    """The first record that bears the largest timestamp; None for a log without timestamps."""
    best: tuple[int, LogSegment] | None = None
    for segment in segments:
        timestamp = _max_timestamp(segment, start_offset)
        if timestamp >= 0 and (best is None or timestamp > best[0]):
            best = timestamp, segment
    return None if best is None else _find_in_segment(best[1], best[0], start_offset)


def _max_timestamp(segment: LogSegment, start_offset: int) -> int:
    if start_offset <= segment.base_offset:
        return segment.max_timestamp()[0]
    batch = segment.translate_offset(start_offset)
    return -1 if batch is None else segment.scan(batch.position).max_timestamp


def _find_in_segment(segment: LogSegment, timestamp_ms: int, start_offset: int
                     ) -> TimestampOffset | None:
    start = segment.locate_timestamp(timestamp_ms)
    if start_offset > segment.base_offset:
        start = max(start, segment.locate(start_offset))
    for chunk in segment.walk(start):
        wanted = (chunk.batches["max_timestamp"] >= timestamp_ms) & (
            chunk.batches["last_offset"] >= start_offset)
        for row in np.flatnonzero(wanted):
            batch = chunk.batches[row]
            found = _find_in_batch(segment, int(batch["position"]), int(batch["size"]),
                                   timestamp_ms, start_offset)
            if found is not None:
                return found
        if Status(chunk.status).is_error:
            chunk.raise_for_status(segment.files.log)
    return None


def _find_in_batch(segment: LogSegment, position: int, size: int, timestamp_ms: int,
                   start_offset: int) -> TimestampOffset | None:
    with segment.opened() as handle:
        decoder = RecordDecoder(
            handle.fd, position, position + size, columns=("offset", "timestamp"),
            start_offset=start_offset, include_control=True, decompress=codecs.decompress,
            file=segment.files.log)
        for columns in decoder:
            lists = columns.to_pylists()
            for offset, timestamp in zip(lists["offset"], lists["timestamp"], strict=True):
                if timestamp >= timestamp_ms:
                    return TimestampOffset(timestamp, offset)
    return None
