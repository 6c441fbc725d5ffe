"""One segment as a reader sees it: finds its batches, whatever its indexes say.

An index is a hint. Kafka trusts it, and returns wrong records or none if it is wrong. Here a
position from an index counts only if a batch with the entry's offset and a valid CRC is there;
otherwise the batches are walked from the start of the segment, which is slow but right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from seglog._native.batch import BatchScan, scan_file
from seglog._native.index import OffsetIndexView, TimeIndexView
from seglog._native.status import Status, status_error
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.objects.store import ObjectVersion
from seglog.storage.log_store import LOCAL, Files, IndexView, LogFile
from seglog.storage.handles import HandleCache

__all__ = ["BatchPosition", "LogSegment", "SegmentPaths", "Walked", "offset_disorder"]

_R = TypeVar("_R")

#: Smaller positions are reached from the start of the file: one pread of that many bytes costs less
#: than opening an index.
INDEX_BYTES_MIN = 64 * 1024
#: An entry further from the one before it than any broker writes is not trusted.
INDEX_STEP_MAX = 16 * 1024 * 1024
_OFFSET_MAX = 2**63 - 1
#: Batches per native call while walking. The first call is small, because most walks are short.
_WALK_FIRST, _WALK_MOST = 4, 8192


@dataclass(frozen=True, slots=True)
class SegmentPaths:
    """Absolute paths of a segment's files; None for one that was not listed. `version` is the
    version of the log if it is an object."""

    log: str
    offset_index: str | None = None
    time_index: str | None = None
    txn_index: str | None = None
    version: ObjectVersion | None = None


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """A batch in a segment: base offset, first byte, bytes, last offset."""

    base_offset: int
    position: int
    size: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Walked:
    """Consecutive batches, the byte after them, and the status there (OK: more follows).

    `error` is the exception for a status that is an error.
    """

    batches: npt.NDArray[np.void]
    position: int
    status: Status
    error: Exception | None = None


def offset_disorder(batches: npt.NDArray[np.void], next_offset: int) -> int | None:
    """The first row whose offsets go backwards or are below `next_offset`; None if there is none.

    The CRC of a batch does not cover its base offset, so only this check detects a damaged one.
    """
    first, last = batches["base_offset"], batches["last_offset"]
    wrong = (last < first) | (last == _OFFSET_MAX)  # no offset could follow
    wrong[1:] |= first[1:] <= last[:-1]
    if len(wrong):
        wrong[0] |= int(first[0]) < next_offset
    rows = np.flatnonzero(wrong)
    return int(rows[0]) if len(rows) else None


class LogSegment:
    """A read view of one segment, which proves what an index says before it uses it;
    `recovery.segment_files.SegmentFiles` trusts it, as Kafka does.

    Cheap to create, because files are opened when they are needed.
    `end` limits the bytes that are read (to the batches that existed when the log was opened);
    without it the size at first use counts. For any thread.
    """

    __slots__ = ("_end", "_handles", "_owner", "base_offset", "files", "next_base_offset", "where")

    def __init__(self, base_offset: int, files: SegmentPaths, handles: HandleCache, owner: int, *,
                 next_base_offset: int | None = None, end: int | None = None,
                 where: Files = LOCAL) -> None:
        self.base_offset = base_offset
        self.files = files
        self.next_base_offset = next_base_offset
        self._handles, self._owner, self._end = handles, owner, end
        self.where = where

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, file={self.files.log!r})"

    def limited_to(self, end: int) -> LogSegment:
        """The same segment, read only up to byte `end`."""
        return LogSegment(self.base_offset, self.files, self._handles, self._owner,
                          next_base_offset=self.next_base_offset, end=end, where=self.where)

    # ---- bytes

    def opened(self) -> AbstractContextManager[LogFile]:
        """The log file, open inside the context. Raises KafkaStorageError if it is missing or not a
        file."""
        return self._handles.pin((self._owner, self.files.log), self._open)

    def _open(self, path: str) -> LogFile:
        return self.where.open_log(path, self.files.version)

    @property
    def size(self) -> int:
        """Bytes of the log file that readers use."""
        if self._end is not None:
            return self._end
        if self.files.version is not None:
            return self.files.version.size
        with self.opened() as handle:
            return handle.size

    def scan(self, start: int = 0, end: int | None = None, *, check_crcs: bool = False,
             collect: bool = False, max_batches: int | None = None) -> BatchScan:
        """One native pass over the batches of `[start, end)`; `start` must begin a batch."""
        with self.opened() as handle:
            limit = self._limit(handle) if end is None else end
            return scan_file(handle.source, min(start, limit), limit, check_crcs=check_crcs,
                             collect=collect, max_batches=max_batches)

    def scan_to_end(self, start: int) -> BatchScan:
        """A scan of all batches from `start` on. Raises KafkaStorageError for a failed read: the
        batches before it are not known to be the last ones."""
        found = self.scan(start)
        if found.status in (Status.IO, Status.NO_MEMORY):
            found.raise_for_status(self.files.log)
        return found

    def walk(self, start: int = 0, end: int | None = None, *, check_crcs: bool = False
             ) -> Iterator[BatchScan]:
        """Batches of `[start, end)` in growing chunks. The last chunk says how the walk ended."""
        chunk = _WALK_FIRST
        while True:
            found = self.scan(start, end, check_crcs=check_crcs, collect=True, max_batches=chunk)
            yield found
            if found.status != Status.FULL:
                return
            start, chunk = found.position, min(chunk * 8, _WALK_MOST)

    def walk_in_order(self, start: int = 0, *, check_crcs: bool = True) -> Iterator[Walked]:
        """As `walk`, up to the first batch whose offsets go backwards."""
        next_offset = self.base_offset
        for found in self.walk(start, check_crcs=check_crcs):
            row = offset_disorder(found.batches, next_offset)
            if row is not None:
                batch, good = found.batches[row], found.batches[:row]
                if row:
                    next_offset = int(good["last_offset"][-1]) + 1
                status, position = Status.BATCH_OFFSET_ORDER, int(batch["position"])
                yield Walked(good, position, status, status_error(
                    status, file=self.files.log, position=position, expected=next_offset,
                    found=int(batch["base_offset"])))
                return
            if found.batch_count:
                next_offset = found.last_offset + 1
            status = Status(found.status)
            error = None
            if status.is_error:
                error = status_error(status, file=self.files.log, position=found.position,
                                     expected=found.expected, found=found.found)
            yield Walked(found.batches, found.position,
                         Status.OK if status == Status.FULL else status, error)

    def _limit(self, handle: LogFile) -> int:
        if self._end is not None:
            return self._end
        version = self.files.version
        # Of an object that ends with records that the log lost, a tier lists the part before them.
        return handle.size if version is None else min(handle.size, version.size)

    # ---- positions

    def locate(self, offset: int) -> int:
        """A batch boundary from which every record at or above `offset` follows."""
        return self._indexed(lambda index: index.lookup(offset), INDEX_BYTES_MIN)

    def locate_last(self) -> int:
        """The batch boundary that the last index entry names; 0 if it is not one."""
        return self._indexed(lambda index: index.last_entry, 0)

    def _indexed(self, entry_of: Callable[[OffsetIndexView], tuple[int, int] | None],
                 bytes_min: int) -> int:
        """The position of an index entry, if it is above `bytes_min` and a boundary; else 0."""
        entry, before = self._ask(OffsetIndexView, self.files.offset_index, lambda index: (
            entry := entry_of(index), entry and _entry_before(index, entry))) or (None, None)
        if entry is None or before is None or entry[1] <= bytes_min:
            return 0
        return entry[1] if self.is_boundary(entry, before) else 0

    def is_inside_a_batch(self, position: int) -> bool:
        """Whether the walk from the start of the segment finds a sound batch around `position`.

        That proves that an index is wrong; damage on the way does not.
        """
        walk = self.scan(0, position)
        if walk.status == Status.END:
            return False
        around = self.scan(walk.position, check_crcs=True, max_batches=1)
        return around.batch_count == 1

    def boundary_after(self, position: int) -> int | None:
        """The first batch boundary at or after `position` that a valid index entry names."""
        return self._indexed(lambda index: index.upper_bound(position), position - 1) or None

    def is_boundary(self, entry: tuple[int, int], before: tuple[int, int]) -> bool:
        """Whether a batch begins at an index entry's position and ends with its offset.

        Its CRC must be valid, and the walk from the entry before must arrive there: the value of a
        record may contain the bytes of a valid batch.
        """
        offset, position = entry
        if not 0 < position < self.size:
            return False
        batch = self.scan(position, collect=True, max_batches=1)
        if not batch.batch_count or batch.last_offset != offset:
            return False
        # Only up to its end, because a scan that checks CRCs reads ahead.
        if not self.scan(position, batch.position, check_crcs=True).batch_count:
            return False
        if before[1] < 0 or not 0 < position - before[1] <= INDEX_STEP_MAX:
            return False
        walk = self.scan(before[1], position)
        return bool(walk.status == Status.END and walk.batch_count
                    and walk.last_offset < batch.first_offset)

    def _ask(self, view: type[IndexView], path: str | None,
             question: Callable[[IndexView], _R]) -> _R | None:
        """The answer of an index; None if it is missing, unreadable or not an index."""
        if path is None:
            return None
        try:
            with self._handles.pin((self._owner, path), lambda name: self.where.index(
                    view, name, self.base_offset)) as index:
                return question(index) if index.entries else None
        except (CorruptDataError, KafkaStorageError):
            return None

    # ---- Kafka's lookups

    def translate_offset(self, offset: int, *, start: int = 0) -> BatchPosition | None:
        """The batch that holds `offset`, else the first one above it; None after the last.

        Kafka's LogSegment.translateOffset, from byte `start` or a later index entry. Raises
        CorruptRecordError if the batches cannot be walked that far.
        """
        batch, walk = self._reaching(offset, max(start, self.locate(offset)))
        if batch is not None:
            return _batch_position(batch)
        if Status(walk.status).is_error:
            walk.raise_for_status(self.files.log)
        return None

    def _reaching(self, offset: int, start: int) -> tuple[np.void | None, BatchScan]:
        """The first batch that ends at or above `offset`, and the last chunk of the walk to it."""
        for chunk in self.walk(start):
            rows = np.flatnonzero(chunk.batches["last_offset"] >= offset)
            if len(rows):
                return chunk.batches[rows[0]], chunk
        return None, chunk

    def read_next_offset(self) -> int:
        """The offset after the last batch; the base offset of an empty segment.

        Kafka's readNextOffset: walks headers from the last index entry and checks no CRC.
        """
        found = self.scan_to_end(self.locate_last())
        return found.last_offset + 1 if found.batch_count else self.base_offset

    def max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp in ms, last offset of the first batch that has it); (-1, base) if
        none.

        Uses the last entry of the time index, if it names a batch with that timestamp, and the
        headers after it; else all headers. Kafka uses the index alone.
        """
        return self._largest_timestamp()[0]

    def is_before(self, timestamp_ms: int) -> bool:
        """Whether all timestamps are smaller. Raises CorruptDataError if damage may hide others."""
        (largest, _), walk = self._largest_timestamp()
        if largest >= timestamp_ms:
            return False
        walk.raise_for_status(self.files.log)
        return True

    def sound_max_timestamp(self) -> int | None:
        """As `max_timestamp`; None if the headers do not lead to the end of the segment, because
        damage may hide a larger timestamp."""
        (timestamp, _), walk = self._largest_timestamp()
        return timestamp if walk.status in (Status.END, Status.ZERO_TAIL) else None

    def _largest_timestamp(self) -> tuple[tuple[int, int], BatchScan]:
        start, best = self._timestamp_start(lambda index: index.last_entry)
        found = self.scan_to_end(start)
        if found.batch_count and found.max_timestamp > best[0]:
            best = found.max_timestamp, found.offset_of_max_timestamp
        return best, found

    def locate_timestamp(self, timestamp_ms: int) -> int:
        """A batch boundary before the first record whose timestamp is at least this one."""
        return self._timestamp_start(lambda index: index.lookup(timestamp_ms - 1))[0]

    def locate_times(self, timestamp_ms: int) -> int | None:
        """A batch boundary before every record with at least this timestamp; None if there is no
        such record, 0 if nothing is known.

        Only for batches of magic 2: the timestamp of an older wrapper need not be its largest.
        """
        if not self.scan(0, collect=True, max_batches=1).batches["magic"].tolist() == [2]:
            return 0
        (largest, _), walk = self._largest_timestamp()
        if Status(walk.status).is_error:
            return 0
        if largest < timestamp_ms:
            return None
        return self.locate_timestamp(timestamp_ms)

    def _timestamp_start(self, entry_of: Callable[[TimeIndexView], tuple[int, int]]
                         ) -> tuple[int, tuple[int, int]]:
        """Where to walk from after a time index entry, and the entry if it is valid."""
        nothing = (-1, self.base_offset)
        entry = self._ask(TimeIndexView, self.files.time_index, entry_of)
        if entry is None or entry == nothing:
            return 0, nothing
        timestamp, offset = entry
        batch, _ = self._reaching(offset, self.locate(offset))
        if (batch is not None and batch["last_offset"] == offset
                and batch["max_timestamp"] == timestamp):
            return int(batch["position"]), entry
        return 0, nothing


def _entry_before(index: OffsetIndexView, entry: tuple[int, int]) -> tuple[int, int]:
    return index.lookup(max(entry[0], 1 - 2**63) - 1)


def _batch_position(row: npt.NDArray[np.void] | np.void) -> BatchPosition:
    return BatchPosition(int(row["base_offset"]), int(row["position"]), int(row["size"]),
                         int(row["last_offset"]))
