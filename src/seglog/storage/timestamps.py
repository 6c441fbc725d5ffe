"""Offsets by timestamp: the first record at or after a time, in the order of the log.

Kafka searches only the first segment whose largest known timestamp is late enough. If that holds no
such record (its time index is missing, so the file's time counted), Kafka answers "none". Here the
search continues in the next segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from seglog._native.records import RecordDecoder
from seglog._native.status import Status
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import TimestampOffset
from seglog.storage import codecs
from seglog.storage.ranges import LogRange
from seglog.storage.salvage import Salvage
from seglog.storage.segment import LogSegment
from seglog.storage.segments import Segments

__all__ = ["find_offset_by_timestamp", "find_offset_of_max_timestamp",
           "find_past_damage_by_timestamp", "find_past_damage_max_timestamp", "ranges_since"]

#: What can be read of a segment, every CRC checked.
Survey = Callable[[LogSegment], Salvage]


def find_offset_by_timestamp(segments: Iterator[LogSegment], timestamp_ms: int, start_offset: int
                             ) -> TimestampOffset | None:
    """The first record at or above `start_offset` with at least this timestamp.

    Control records count, as in Kafka. Raises CorruptDataError if damage prevents the search.
    """
    for segment in segments:
        if segment.is_before(timestamp_ms):
            continue
        found = _find_in_segment(segment, timestamp_ms, start_offset)
        if found is not None:
            return found
    return None


def find_offset_of_max_timestamp(segments: Iterator[LogSegment], start_offset: int
                                 ) -> TimestampOffset | None:
    """The first record with the largest timestamp; None for a log without timestamps."""
    best: tuple[int, LogSegment] | None = None
    for segment in segments:
        timestamp = _max_timestamp(segment, start_offset)
        if timestamp >= 0 and (best is None or timestamp > best[0]):
            best = timestamp, segment
    return None if best is None else _find_in_segment(best[1], best[0], start_offset)


# ---- ranges

def ranges_since(segments: Segments, ranges: Iterable[LogRange], timestamp_ms: int
                 ) -> Iterator[LogRange]:
    """The parts of the ranges that may hold records at or after a time, by headers and time
    indexes."""
    known: dict[int, int | None] = {}
    for planned in ranges:
        base = planned.base_offset
        if base not in known:
            known[base] = _position_since(segments.floor(base), timestamp_ms)
        position = known[base]
        if position is not None and position < planned.end:
            yield replace(planned, start=max(planned.start, position))


def _position_since(segment: LogSegment | None, timestamp_ms: int) -> int | None:
    if segment is None:
        return 0
    try:
        return segment.locate_times(timestamp_ms)
    except (CorruptDataError, KafkaStorageError):
        return 0  # the reader reports the error


# ---- past damage

def find_past_damage_by_timestamp(segments: Iterator[LogSegment], timestamp_ms: int,
                                  start_offset: int, survey: Survey) -> TimestampOffset | None:
    """As `find_offset_by_timestamp`, among the records that a reader gets that skips damage.

    A segment is skipped by its time index and the headers after it, if they lead to its end. Every
    CRC of the segment with the answer is checked.
    """
    for segment in segments:
        try:
            most = segment.sound_max_timestamp()
            if most is not None and most < timestamp_ms:
                continue
            for batch in _sound_batches(segment, survey, timestamp_ms):
                found = _find_if_sound(segment, batch, timestamp_ms, start_offset)
                if found is not None:
                    return found
        except (CorruptDataError, KafkaStorageError):
            continue  # the segment cannot be opened (any more): a gap
    return None


def find_past_damage_max_timestamp(segments: Iterator[LogSegment], start_offset: int,
                                   survey: Survey) -> TimestampOffset | None:
    """As `find_offset_of_max_timestamp`, past damage."""
    best: TimestampOffset | None = None
    for segment in segments:
        try:
            most = segment.sound_max_timestamp()
            if best is not None and most is not None and most <= best.timestamp:
                continue
            batches = [batch for batch in _sound_batches(
                           segment, survey, 0 if best is None else best.timestamp + 1)
                       if int(batch["last_offset"]) >= start_offset]
        except (CorruptDataError, KafkaStorageError):
            continue
        found = None
        if batches:  # the start offset may cut the first one
            found = _latest_if_sound(segment, batches[0], start_offset)
        for batch in sorted(batches[1:], key=lambda one: -int(one["max_timestamp"])):
            if found is not None and int(batch["max_timestamp"]) <= found.timestamp:
                break
            later = _find_if_sound(segment, batch, int(batch["max_timestamp"]), start_offset)
            if later is not None:
                found = later
                break
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _sound_batches(segment: LogSegment, survey: Survey, timestamp_ms: int
                   ) -> Iterator[npt.NDArray[np.void] | np.void]:
    """Headers of the batches of a segment that may have a record so late, in order."""
    for start, end in survey(segment).spans:
        for chunk in segment.walk(start, end):
            for row in np.flatnonzero(chunk.batches["max_timestamp"] >= timestamp_ms):
                yield chunk.batches[row]


def _latest_if_sound(segment: LogSegment, batch: npt.NDArray[np.void] | np.void,
                     start_offset: int) -> TimestampOffset | None:
    try:
        most = _max_in_batch(segment, batch, start_offset)
    except (CorruptDataError, KafkaStorageError):
        return None
    return None if most < 0 else _find_in_batch(segment, batch, most, start_offset)


def _find_if_sound(segment: LogSegment, batch: npt.NDArray[np.void] | np.void, timestamp_ms: int,
                   start_offset: int) -> TimestampOffset | None:
    if int(batch["last_offset"]) < start_offset:
        return None
    try:
        return _find_in_batch(segment, batch, timestamp_ms, start_offset)
    except (CorruptDataError, KafkaStorageError):
        return None  # its records are invalid


# ---- within a segment

def _max_timestamp(segment: LogSegment, start_offset: int) -> int:
    if start_offset <= segment.base_offset:
        return segment.max_timestamp()[0]
    for chunk in segment.walk(segment.locate(start_offset)):
        for row in np.flatnonzero(chunk.batches["last_offset"] >= start_offset):
            first = chunk.batches[row]
            after = segment.scan_to_end(int(first["position"] + first["size"])).max_timestamp
            return max(after, _max_in_batch(segment, first, start_offset))
        if Status(chunk.status).is_error:
            chunk.raise_for_status(segment.files.log)
    return -1


def _max_in_batch(segment: LogSegment, batch: npt.NDArray[np.void] | np.void, start_offset: int
                  ) -> int:
    """The largest timestamp of its records from an offset on: that of the header may be that of a
    record before."""
    return max((timestamp for _, timestamp in _records(segment, batch, start_offset)), default=-1)


def _find_in_segment(segment: LogSegment, timestamp_ms: int, start_offset: int
                     ) -> TimestampOffset | None:
    start = segment.locate_timestamp(timestamp_ms)
    if start_offset > segment.base_offset:
        start = max(start, segment.locate(start_offset))
    for chunk in segment.walk(start):
        wanted = (chunk.batches["max_timestamp"] >= timestamp_ms) & (
            chunk.batches["last_offset"] >= start_offset)
        for row in np.flatnonzero(wanted):
            found = _find_in_batch(segment, chunk.batches[row], timestamp_ms, start_offset)
            if found is not None:
                return found
        if Status(chunk.status).is_error:
            chunk.raise_for_status(segment.files.log)
    return None


def _find_in_batch(segment: LogSegment, batch: npt.NDArray[np.void] | np.void, timestamp_ms: int,
                   start_offset: int) -> TimestampOffset | None:
    epoch = int(batch["partition_leader_epoch"])
    for offset, timestamp in _records(segment, batch, start_offset):
        if timestamp >= timestamp_ms:
            return TimestampOffset(timestamp, offset, epoch if epoch >= 0 else None)
    return None


def _records(segment: LogSegment, batch: npt.NDArray[np.void] | np.void, start_offset: int
             ) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of the records of one batch from an offset on."""
    position, size = int(batch["position"]), int(batch["size"])
    with (segment.opened() as handle, handle.span(position, position + size) as source):
        decoder = RecordDecoder(
            source, position, position + size, columns=("offset", "timestamp"),
            start_offset=start_offset, include_control=True, decompress=codecs.decompress,
            max_decompressed_bytes=codecs.MAX_BYTES_DEFAULT, file=segment.files.log)
        for columns in decoder:
            lists = columns.to_pylists()
            yield from zip(lists["offset"], lists["timestamp"], strict=True)
