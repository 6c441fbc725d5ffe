"""What can be read of a damaged segment: its sound batches, and the gaps between them.

The result depends only on the bytes of the whole segment, so all readers of it agree, however they
divide it:

1. The lengths lead from batch to batch. A batch with a bad CRC is one gap if its length leads,
possibly through more bad batches, to a batch with a valid CRC or to the segment's end. If a batch
inside of it with a valid CRC leads there too, its length is wrong. 2. If lengths lead nowhere, the
next batch with a valid CRC ends the gap. 3. The CRC does not cover the base offset. Batches whose
offsets lie outside of the segment are damaged. Of the others the longest sequence with increasing
offsets counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog._native.batch import BatchScan, resync, scan_file
from seglog._native.status import Status, status_error
from seglog.errors import KafkaStorageError
from seglog.forks import SurvivesFork
from seglog.storage.log_store import Readable
from seglog.storage.ranges import LogGap
from seglog.storage.segment import offset_disorder

__all__ = ["SegmentExtent", "Salvage", "Surveys"]

_BATCHES_PER_SCAN = 8192
_MARK_BYTES = 1 << 20
_RELATIVE_OFFSETS = 1 << 31
_OFFSET_MAX = (1 << 63) - 1
#: How many batches, of how many bytes, are scanned at once after a bad batch; then more each time.
_FIRST_BATCHES, _FIRST_BYTES, _GROWTH = 16, 1 << 14, 8
_WINDOW_BYTES = 1 << 20
#: The survey of a segment with more gaps ends at the last of them.
_GAPS_MAX = 50_000
#: Bound of fruitless checksumming: this many bytes plus this many times the segment.
_BUDGET_BYTES, _BUDGET_TIMES = 64 << 20, 4
#: After an unreadable page the distance to the next attempt doubles.
_PAGE = 4096
_ENDS = {Status.TORN_TAIL: "the segment ends inside a batch",
         Status.ZERO_TAIL: "the segment ends in zeros"}

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """The bytes of one segment: its file, base offset, size, and the next segment's base offset."""

    file: str
    base_offset: int
    size: int
    upper_offset: int | None

    @property
    def offset_limit(self) -> int:
        """The upper bound of its offsets, exclusive."""
        most = min(self.base_offset + _RELATIVE_OFFSETS, _OFFSET_MAX)
        return most if self.upper_offset is None else min(most, self.upper_offset)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Spans of consecutive batches that count, as (first byte, byte after), and the gaps.

    A gap between batches that follow each other has a last offset below its first.

    `marks` are some batch boundaries, ascending. `is_checked` is whether CRCs were checked. They
    are not if all headers are sound; then a batch with a bad CRC is still among the spans.
    """

    spans: tuple[tuple[int, int], ...]
    gaps: tuple[LogGap, ...]
    marks: _Offsets
    next_offset: int
    is_checked: bool


class Surveys(SurvivesFork):
    """Surveys of the segments that readers are at, each made once. Safe from any thread."""

    def __init__(self, *, check_crcs: bool = True, most: int = 64) -> None:
        self._check_crcs, self._most = check_crcs, most
        self._made: OrderedDict[SegmentExtent, Salvage] = OrderedDict()

    def of(self, handle: Readable, extent: SegmentExtent, *, checked: bool = False) -> Salvage:
        """The survey of a segment; with `checked` one that has checked every CRC."""
        with self._lock:
            found = self._made.get(extent)
            if found is None or (checked and not found.is_checked):
                found = None if checked else _by_headers(handle, extent)
                found = found or _Survey(handle, extent, self._check_crcs).run()
                self._made[extent] = found
            self._made.move_to_end(extent)
            while len(self._made) > self._most:
                self._made.popitem(last=False)
            return found


def _by_headers(handle: Readable, extent: SegmentExtent) -> Salvage | None:
    """The survey of a segment whose headers lead to its end in order; None for any other."""
    position, next_offset, marks = 0, extent.base_offset, [np.zeros(1, np.int64)]
    while True:
        found = scan_file(handle.source, position, extent.size, check_crcs=False,
                          max_batches=_BATCHES_PER_SCAN)
        batches = found.batches
        if len(batches):
            if offset_disorder(batches, next_offset) is not None or \
                    int(batches["last_offset"][-1]) >= extent.offset_limit:
                return None
            next_offset = int(batches["last_offset"][-1]) + 1
            marks.append(_marks(batches["position"]))
        position, status = found.position, Status(found.status)
        if status == Status.FULL:
            continue
        if status not in (Status.END, Status.ZERO_TAIL):
            return None
        gaps = () if status == Status.END or extent.upper_offset is None else (
            LogGap("zero_tail", extent.file, position, extent.size - position,
                   first_offset=next_offset, last_offset=extent.upper_offset - 1,
                   cause=_ENDS[Status.ZERO_TAIL]),)
        spans = ((0, position),) if position else ()
        return Salvage(spans, gaps, np.concatenate(marks), next_offset, False)


def _marks(positions: _Offsets) -> _Offsets:
    """The first position in every so many bytes."""
    chosen = np.flatnonzero(np.diff(positions // _MARK_BYTES, prepend=-1))
    return np.array(positions[chosen], np.int64)


@dataclass(frozen=True, slots=True)
class _Bad:
    """Bytes that do not count, and the error at the first of them. `own` are the first and the last
    offset of a sound batch that lies among others."""

    start: int
    end: int
    status: Status
    expected: int
    found: int
    own: tuple[int, int] | None = None


class _Survey:
    """One pass over a segment with its CRCs."""

    def __init__(self, handle: Readable, extent: SegmentExtent, check_crcs: bool) -> None:
        self._handle, self._extent, self._check_crcs = handle, extent, check_crcs
        self._budget = _BUDGET_BYTES + _BUDGET_TIMES * extent.size
        self._leads: dict[int, bool] = {}
        self._bad: list[_Bad] = []

    def run(self) -> Salvage:
        parts, position, size = [], 0, self._extent.size
        most, window = _BATCHES_PER_SCAN, _WINDOW_BYTES
        while position < size:
            found = self._scan(position, max_batches=most, window_bytes=window)
            most = min(most * _GROWTH, _BATCHES_PER_SCAN)
            window = min(window * _GROWTH, _WINDOW_BYTES)
            parts.append(np.stack([found.batches[name].astype(np.int64) for name in (
                "position", "size", "base_offset", "last_offset")]))
            position, status = found.position, Status(found.status)
            if status == Status.FULL:
                continue
            if status == Status.END:
                break
            position = self._pass(found, status)
            most, window = _FIRST_BATCHES, _FIRST_BYTES
        columns = np.concatenate(parts, axis=1) if parts else np.empty((4, 0), np.int64)
        return self._order(*columns)

    def _scan(self, position: int, **options: int) -> BatchScan:
        return scan_file(self._handle.source, position, self._extent.size,
                         check_crcs=self._check_crcs, **options)  # type: ignore[arg-type]

    # ---- from damage to the next batch

    def _pass(self, found: BatchScan, status: Status) -> int:
        """Records the bad bytes at the end of a scan; returns where the next batch begins."""
        start, size = found.position, self._extent.size
        following = found.next_position
        if status == Status.NO_MEMORY:
            found.raise_for_status(self._extent.file)
        if status in (Status.IO, Status.FILE_SHRANK):
            end = self._after_unreadable(start)
        elif status == Status.ZERO_TAIL or len(self._bad) == _GAPS_MAX:
            end = size
        elif following is not None and self._spend(following - start) and \
                self._leads_on(following):
            end = self._inside(start, following)
        else:
            end = self._search(start + 1, self._stored_offset(start))
        if status == Status.TORN_TAIL and end < size:
            status = Status.BATCH_LENGTH  # more bytes follow
        self._bad.append(_Bad(start, end, status, found.expected, found.found))
        return end

    def _spend(self, size: int) -> bool:
        self._budget -= size
        return self._budget >= 0

    def _leads_on(self, position: int) -> bool:
        """Whether lengths lead from here to a batch with a valid CRC, or to the end."""
        visited = []
        at: int | None = position
        leads = False
        while at is not None and not leads:
            if at in self._leads:
                leads = self._leads[at]
                break
            visited.append(at)
            if at == self._extent.size:
                leads = True
                break
            found = self._scan(at, max_batches=1, window_bytes=_FIRST_BYTES)
            leads = bool(found.batch_count) or found.status == Status.ZERO_TAIL
            at = found.next_position
            if at is not None and not self._spend(at - visited[-1]):
                break
        self._leads.update(dict.fromkeys(visited, leads))
        return leads

    def _inside(self, start: int, end: int) -> int:
        """The first batch inside a bad one that leads to the same end; else that end."""
        at, stored = start + 1, self._stored_offset(start)
        while at < end:
            found, self._budget = self._resync(at, end, end)
            if found is None:
                return end
            walk = scan_file(self._handle.source, found, end, check_crcs=False, collect=False)
            if walk.status == Status.END and self._belongs(found, stored):
                return found
            if not self._spend(_PAGE):
                return end
            at = found + 1
        return end

    def _search(self, start: int, stored_offset: int = -1) -> int:
        """The next batch of this segment that begins at or after `start`; else the end.

        A codec may leave the messages of a wrapper readable. None of them counts whose offset is at
        or below the one stored in the damaged entry.
        """
        at, size = start, self._extent.size
        while at < size:
            try:
                found, self._budget = self._resync(at, size, size)
            except KafkaStorageError as error:
                at = self._after_unreadable(max(at, error.position or at))
                continue
            if found is None:
                return size
            if self._belongs(found, stored_offset):
                return found
            at = found + 1
        return size

    def _stored_offset(self, position: int) -> int:
        """The first 8 bytes of an entry; -1 if they cannot be an offset of this segment."""
        if position + 8 > self._extent.size:
            return -1
        offset = int.from_bytes(self._handle.read(8, position), "big")
        return offset if self._extent.base_offset <= offset < self._extent.offset_limit else -1

    def _resync(self, start: int, until: int, end: int) -> tuple[int | None, int]:
        if self._budget < 0:
            return None, self._budget
        return resync(self._handle.source, start, until, end, budget=self._budget,
                      file=self._extent.file)

    def _belongs(self, position: int, stored_offset: int = -1) -> bool:
        batches = self._scan(position, max_batches=1, window_bytes=_FIRST_BYTES).batches
        return bool(len(batches)) and (
            int(batches["magic"][0]) >= 2 or int(batches["base_offset"][0]) > stored_offset) and (
            self._extent.base_offset <= int(batches["base_offset"][0])
            <= int(batches["last_offset"][0]) < self._extent.offset_limit)

    def _after_unreadable(self, position: int) -> int:
        """The next readable page, searched in growing steps, so that a dead disk is read only a few
        times."""
        step = _PAGE
        at = (position // _PAGE + 1) * _PAGE
        while at < self._extent.size:
            try:
                self._handle.read(1, at)
            except KafkaStorageError:
                at, step = at + step, 2 * step
                continue
            return self._search(at)
        return self._extent.size

    # ---- offsets

    def _order(self, positions: _Offsets, sizes: _Offsets, first: _Offsets, last: _Offsets
               ) -> Salvage:
        extent = self._extent
        kept = (first >= extent.base_offset) & (first <= last) & (last < extent.offset_limit)
        for row in np.flatnonzero(~kept):
            self._bad.append(_Bad(int(positions[row]), int(positions[row] + sizes[row]),
                                  Status.BATCH_OFFSET_RANGE, extent.base_offset,
                                  int(last[row])))
        rows = np.flatnonzero(kept)
        if np.any(first[rows][1:] <= last[rows][:-1]):
            rising = rows[_longest_rising(first[rows].tolist(), last[rows].tolist())]
            for row in np.setdiff1d(rows, rising):
                before = rising[rising < row]
                self._bad.append(_Bad(int(positions[row]), int(positions[row] + sizes[row]),
                                      Status.BATCH_OFFSET_ORDER,
                                      int(last[before[-1]]) + 1 if len(before)
                                      else extent.base_offset, int(first[row]),
                                      (int(first[row]), int(last[row]))))
            rows = rising
        positions, ends = positions[rows], positions[rows] + sizes[rows]
        first, last = first[rows], last[rows]
        breaks = np.flatnonzero(positions[1:] != ends[:-1])
        spans = tuple(zip(
            positions[np.append(0, breaks + 1)].tolist() if len(rows) else (),
            ends[np.append(breaks, -1)].tolist() if len(rows) else (), strict=True))
        # Whether each batch, and the end of the segment, follows what is before it without a gap.
        directly = np.append(positions, extent.size) == np.append(0, ends)
        gaps = (self._gap(bad, positions, first, last, directly)
                for bad in sorted(self._bad, key=lambda bad: bad.start))
        return Salvage(spans, tuple(gap for gap in gaps if gap is not None), _marks(positions),
                       int(last[-1]) + 1 if len(last) else extent.base_offset, True)

    def _gap(self, bad: _Bad, positions: _Offsets, first: _Offsets, last: _Offsets,
             directly: npt.NDArray[np.bool_]) -> LogGap | None:
        extent = self._extent
        if bad.status in _ENDS and extent.upper_offset is None:
            return None  # the end of the log
        after = int(np.searchsorted(positions, bad.start))
        lowest = int(last[after - 1]) + 1 if after else extent.base_offset
        highest = None if extent.upper_offset is None else extent.upper_offset - 1
        if after < len(first):
            highest = int(first[after]) - 1
        records = None
        claimed = self._claims(bad)
        if claimed is not None and lowest <= claimed[0] <= claimed[1] and (
                highest is None or claimed[1] <= highest):
            lowest, highest, records = claimed
        elif bad.own is not None:
            if highest is not None and lowest > highest:
                lowest, highest = bad.own
            elif self._is_missing(bad.own, first, last, directly):
                lowest = min(lowest, bad.own[0])
                highest = None if highest is None else max(highest, bad.own[1])
        return LogGap(bad.status.code, extent.file, bad.start, bad.end - bad.start,
                      first_offset=lowest, last_offset=highest, records=records,
                      cause=self._cause(bad))

    def _is_missing(self, own: tuple[int, int], first: _Offsets, last: _Offsets,
                    directly: npt.NDArray[np.bool_]) -> bool:
        """Whether these offsets are missing where the next batch, or the end of the segment,
        follows `directly` in the file, so that no gap there reports them."""
        after = int(np.searchsorted(first, own[0]))
        return bool(directly[after]) and (not after or int(last[after - 1]) < own[0]) and (
            after == len(first) or own[1] < int(first[after]))

    def _claims(self, bad: _Bad) -> tuple[int, int, int | None] | None:
        """First offset, last offset and record count in a bad batch's own header, if the next batch
        begins with the next offset. Otherwise None: the gap may contain other batches."""
        found = scan_file(self._handle.source, bad.start, self._extent.size, check_crcs=False,
                          max_batches=2)
        batches = found.batches
        if not len(batches) or int(batches["position"][0] + batches["size"][0]) != bad.end:
            return None
        first, last = batches["base_offset"].tolist(), batches["last_offset"].tolist()
        if bad.end < self._extent.size and (len(first) < 2 or first[1] != last[0] + 1):
            return None
        count = int(batches["record_count"][0])
        return None if count < 0 else (first[0], last[0], count or None)

    def _cause(self, bad: _Bad) -> str:
        if bad.status in _ENDS:
            return _ENDS[bad.status]
        if bad.status == Status.BATCH_LENGTH and bad.found > bad.expected:
            return f"the batch at byte {bad.start} has no end within the segment"
        return str(status_error(bad.status, position=bad.start, expected=bad.expected,
                                found=bad.found))


def _longest_rising(first: list[int], last: list[int]) -> npt.NDArray[np.intp]:
    """Rows of the longest sequence of batches each of which begins after the one before."""
    ends: list[int] = []  # by length: the smallest last offset of such a sequence
    tails: list[int] = []
    before: list[int] = []
    for row, (low, high) in enumerate(zip(first, last, strict=True)):
        length = bisect_left(ends, low)
        before.append(tails[length - 1] if length else -1)
        if length == len(ends):
            ends.append(high)
            tails.append(row)
        elif high < ends[length]:
            ends[length], tails[length] = high, row
    rows = []
    row = tails[-1] if tails else -1
    while row >= 0:
        rows.append(row)
        row = before[row]
    return np.array(rows[::-1], np.intp)
