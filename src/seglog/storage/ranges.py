"""Byte ranges of log files that begin and end at batches, decoded by threads and Spark tasks.

The boundaries come from index entries that a walk has verified (segment.py), else from the headers
themselves. So the union of the ranges is the log, whatever the indexes say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from seglog._native.status import Status, status_error
from seglog.errors import CorruptDataError, CorruptRecordError, KafkaStorageError
from seglog.objects.store import ObjectVersion
from seglog.storage.log_store import Readable
from seglog.storage.segment import LogSegment
from seglog.storage.segments import Segments
from seglog.storage.log_tail import LogTail

__all__ = ["LogGap", "LogRange", "Opened", "check_torn", "pack", "plan_for_skipping", "plan_ranges",
           "upper_offset"]

#: Wider than any segment, for a reader that wants one range per segment.
WHOLE_SEGMENT = 1 << 62
#: The smallest range of a read that skips damage, because each range surveys its whole segment.
_SKIPPING_BYTES_MIN = 1024


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes `[start, end)` of one log file, whole batches; picklable.

    Only records in `[start_offset, end_offset)` count (`end_offset` None: all at or above the
    start). `segment_end` is the byte at which the whole segment ends. Below `sound_end` the segment
    is known to hold batches: a torn or zero batch there is damage, not the end. `aborted` holds
    (producer_id, first_offset, last_offset) of transactions whose records are left out.

    A range to be read with damage skipped may begin and end anywhere in the file: it holds the
    batches that begin inside. The offsets of its segment are below `upper_offset` then (None: the
    last segment).

    Of an object in a store only `version` is read, so that all ranges see the same content.
    """

    file: str
    base_offset: int
    start: int
    end: int
    start_offset: int
    end_offset: int | None
    segment_end: int
    sound_end: int
    aborted: tuple[tuple[int, int, int], ...] = ()
    upper_offset: int | None = None
    version: ObjectVersion | None = None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.end - self.start

    @property
    def is_segment_end(self) -> bool:
        """Whether the range may end inside a batch, because the segment does."""
        return self.end == self.segment_end


#: Opens the log file of a range, for as long as the context lasts.
Opened = Callable[[LogRange], AbstractContextManager[Readable]]


class Sized(Protocol):
    """An object with a size."""

    @property
    def size(self) -> int:
        """The size in bytes."""


_S = TypeVar("_S", bound=Sized)


def pack(pieces: Iterable[_S], target_bytes: int) -> Iterator[list[_S]]:
    """Groups consecutive pieces up to the target size: the work of one task."""
    part: list[_S] = []
    size = 0
    for piece in pieces:
        if part and size + piece.size > target_bytes:
            yield part
            part, size = [], 0
        part.append(piece)
        size += piece.size
    if part:
        yield part


@dataclass(frozen=True, slots=True)
class LogGap:
    """Bytes inside a log that readers skip, although records follow.

    `kind` is "torn_tail" (a segment that is not the last ends inside a batch, as in a directory
    copied halfway), "zero_tail" (it ends in zeros), or "overlap" (it holds offsets that the next
    segment holds too; its own count). For a reader that skips damage it is the `code` of the error
    that the bytes raise otherwise ("batch_crc", "record_length", "io", ...), or
    "transaction_in_doubt" (the marker may have been in a gap).

    `position` and `size` are bytes of `file`; readers continue at `next_offset` or above. Lost are
    only offsets from `first_offset` to `last_offset` (None: unknown), and at most `records` records
    by the batch's header (None: unreadable). `cause` is the error's text.
    """

    kind: str
    file: str
    position: int
    size: int
    next_offset: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    cause: str | None = None

    def __str__(self) -> str:
        first = "?" if self.first_offset is None else self.first_offset
        last = "?" if self.last_offset is None else self.last_offset
        count = "" if self.records is None else f" (up to {self.records} records)"
        offsets = "" if first == last == "?" else f", offsets {first} to {last}{count}"
        return (f"{self.file}: skipped {self.size} bytes at byte {self.position}{offsets}: "
                f"{self.cause or self.kind}")


#: (producer_id, first_offset, last_offset) of aborted transactions, between two offsets.
AbortedBetween = Callable[[int, int], tuple[tuple[int, int, int], ...]]


def plan_ranges(segments: Segments, start_offset: int, end_offset: int | None,
                target_bytes: int, tail: LogTail, aborted: AbortedBetween | None,
                on_gap: Callable[[LogGap], None]) -> Iterator[LogRange]:
    """Plans the ranges of `[start_offset, end_offset)` in order, each about `target_bytes` long.

    A segment is opened only when its first range is requested. Raises CorruptRecordError for a
    segment that ends beyond the log's end.
    """
    rows = segments.rows(start_offset, end_offset)
    if not len(rows):
        return
    first = rows.start
    # After an interrupted compaction the segment before the floor may hold the start offset too.
    while first > 0 and _reaches(segments[first - 1], start_offset):
        first -= 1
    lower = start_offset
    for row in range(first, rows.stop):
        segment = segments[row]
        if segment.next_base_offset is None:
            segment = segment.limited_to(tail.end)
        following = segment.next_base_offset
        concerned = () if aborted is None else aborted(
            max(lower, segment.base_offset), _end_of(segment, end_offset))
        sound_end = segment.locate_last()
        if following is None and not tail.status.is_error:
            sound_end = tail.end
        # All records of a segment that lies wholly below the end count. A record whose offset is
        # not below the end is damaged there, and must not look like the end.
        bound = end_offset
        if following is not None and end_offset is not None and following <= end_offset and \
                upper_offset(segments, row) <= end_offset:
            bound = None
        for planned in _segment_ranges(segment, lower, bound, target_bytes):
            yield replace(planned, sound_end=sound_end, aborted=concerned)
        if following is None or row + 1 == rows.stop:
            continue
        next_offset = segment.read_next_offset()
        if next_offset > following:
            _check_overlap(segment, next_offset, tail.log_end_offset, segments[row + 1])
            on_gap(LogGap("overlap", segment.files.log, 0, 0, next_offset))
            lower = max(lower, next_offset)


def plan_for_skipping(segments: Segments, start_offset: int, end_offset: int | None,
                      target_bytes: int, last_size: int, aborted: AbortedBetween | None,
                      on_gap: Callable[[LogGap], None]) -> Iterator[LogRange]:
    """Plans the ranges of a read that skips damage: whole segments, divided anywhere.

    Ignores the positions in headers and indexes. A segment that cannot be opened is a gap.
    """
    rows = segments.rows(start_offset, end_offset)
    if not len(rows):
        return
    first, lower = rows.start, start_offset
    while first > 0 and upper_offset(segments, first - 1) > start_offset:
        first -= 1
    for row in range(first, rows.stop):
        segment = segments[row]
        following = segment.next_base_offset
        upper = None if following is None else upper_offset(segments, row)
        file, base = segment.files.log, segment.base_offset
        try:
            size = last_size if following is None else segment.size
        except KafkaStorageError as error:
            on_gap(LogGap(error.code, file, 0, 0, following, base,
                          None if following is None else following - 1, None, str(error)))
            continue
        concerned = () if aborted is None else aborted(
            max(lower, base), _end_of(segment, end_offset))
        step = max(target_bytes, _SKIPPING_BYTES_MIN)
        for start in range(0, size, step):
            end = min(size, start + step)
            yield LogRange(file, base, start, end, lower, end_offset, size, 0, concerned, upper,
                           segment.files.version)
        if upper is not None and following is not None and upper > following:
            on_gap(LogGap("overlap", file, 0, 0, upper))
            lower = max(lower, upper)


def upper_offset(segments: Segments, row: int) -> int:
    """The upper bound of a segment's offsets: the next base offset, or more if it overlaps the next
    segments. Then its last batch is also in one of those; a damaged base offset is not."""
    segment = segments[row]
    following = segment.next_base_offset
    assert following is not None
    try:
        next_offset = min(segment.read_next_offset(), (1 << 63) - 1)
        if next_offset <= following:
            return following
        other = segments.floor_row(next_offset - 1)  # a later one, because `following` is there
        batch = segments[other].translate_offset(next_offset - 1)
    except (CorruptDataError, KafkaStorageError):
        return following
    is_theirs = batch is not None and batch.last_offset == next_offset - 1
    return next_offset if is_theirs else following


def _reaches(segment: LogSegment, offset: int) -> bool:
    try:
        return segment.read_next_offset() > offset
    except KafkaStorageError:
        return False  # a reader of that segment reports the error


def _check_overlap(segment: LogSegment, next_offset: int, log_end_offset: int,
                   following: LogSegment) -> None:
    """A merged segment ends where the segments ended that it replaced. Raises CorruptRecordError if
    it ends beyond the log, and KafkaStorageError if it was merged after the listing with records
    that the log did not have then: the following segment is gone."""
    if next_offset > log_end_offset:
        following.where.open_log(following.files.log, following.files.version).close()
        batch = segment.translate_offset(next_offset - 1)
        raise status_error(Status.BATCH_OFFSET_RANGE, file=segment.files.log,
                           position=batch.position if batch else 0,
                           expected=segment.base_offset, found=next_offset - 1)


def _end_of(segment: LogSegment, end_offset: int | None) -> int:
    """An offset above all offsets of the segment for this read."""
    most = segment.base_offset + (1 << 31)
    return most if end_offset is None else min(most, end_offset)


def _segment_ranges(segment: LogSegment, start_offset: int, end_offset: int | None,
                    target_bytes: int) -> Iterator[LogRange]:
    start, end = _span(segment, start_offset, end_offset)
    while start < end:
        cut = _cut(segment, start, end, target_bytes)
        yield LogRange(segment.files.log, segment.base_offset, start, cut, start_offset,
                       end_offset, segment.size, 0, version=segment.files.version)
        start = cut


def _span(segment: LogSegment, start_offset: int, end_offset: int | None) -> tuple[int, int]:
    """The bytes that hold `[start_offset, end_offset)`; the reader reports damage on the way."""
    start, end = 0, segment.size
    if start_offset > segment.base_offset:
        try:
            batch = segment.translate_offset(start_offset)
        except CorruptDataError:
            start = segment.locate(start_offset)
        else:
            if batch is None:
                return end, end
            start = batch.position
    if end_offset is not None:
        try:
            batch = segment.translate_offset(end_offset, start=start)
        except CorruptDataError:
            return start, end
        # The whole batch: one of an old format may begin below the offset that it stores.
        if batch is not None:
            end = min(end, batch.position + batch.size)
    return start, end


def _cut(segment: LogSegment, start: int, end: int, target_bytes: int) -> int:
    """The end of a range that begins at `start`: a batch boundary near the target, or `end`."""
    wanted = start + target_bytes
    if end - wanted < target_bytes // 2:
        return end
    indexed = segment.boundary_after(wanted)
    if indexed is not None and indexed < end:
        return indexed
    for found in segment.walk_in_order(start, check_crcs=False):
        rows = np.flatnonzero(found.batches["position"] >= wanted)
        if len(rows):
            return min(end, int(found.batches["position"][rows[0]]))
    return end


def check_torn(planned: LogRange, position: int) -> None:
    """Raises CorruptRecordError for an apparent end of a segment that has batches after it."""
    if position < planned.sound_end:
        raise CorruptRecordError(
            f"{planned.file}: the batch at byte {position} has no end within the segment, but "
            f"sound batches follow it, up to byte {planned.sound_end}", file=planned.file,
            position=position, expected=planned.sound_end, found=position,
            code=Status.BATCH_LENGTH.code)
