"""Counts what was in bytes that a recovery drops, or that cannot be read, by their headers.

These headers are hostile: their CRCs are wrong or were never written. So a count is at most what
the batch's offsets and bytes allow, and every number is an upper bound ("up to").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CODEC, find_batch, scan, scan_file
from seglog._native.file import read_at
from seglog._native.status import Status
from seglog.recovery.scans import Extent
from seglog.recovery.next_offset import opened_log, read_failure
from seglog.storage.codecs import CODECS

__all__ = ["Claims", "claims_after", "claims_of", "counted"]

_BATCHES_PER_CHUNK, _BATCHES_AFTER_STRANGE = 65536, 16
_RELATIVE_OFFSET_MAX = 2**31 - 1
_HEADER_BYTES, _MAGIC_AT, _LENGTH_AT, _COUNT_AT = 61, 16, 8, 57
_DELTA_END = 27             # end of lastOffsetDelta: a header this long tells its offsets
_PREFIX_BYTES = 12          # offset and length
_LEGACY_BYTES = (26, 34)    # smallest message of magic 0 and 1
_RECORD_BYTES = 7           # smallest record of magic 2
_MAGIC_MAX = 2
_ATTRIBUTES_MAX = (0x07, 0x0f, 0x7f)
#: The largest expansion of one byte, for each value of the codec bits.
_EXPANSION = np.ones(ATTRIBUTE_CODEC + 1, np.int64)
_EXPANSION[:len(CODECS)] = [codec.expansion_max for codec in CODECS]
# Bound of searches for a batch after invalid bytes: each may read much of the file.
_SEARCHES_MAX = 16
# After so many entries that break a rule the counting ends.
_PASSES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Claims:
    """The number of batches, an upper bound of their records, their first and last offset (None: no
    header tells), and the bytes without a readable header (zeros do not count)."""

    batches: int = 0
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    unread_bytes: int = 0

    def __add__(self, other: Claims) -> Claims:
        firsts = [one.first_offset for one in (self, other) if one.first_offset is not None]
        lasts = [one.last_offset for one in (self, other) if one.last_offset is not None]
        return Claims(self.batches + other.batches, self.records + other.records,
                      min(firsts, default=None), max(lasts, default=None),
                      self.unread_bytes + other.unread_bytes)

    def __bool__(self) -> bool:
        """Whether there was anything but zeros."""
        return bool(self.batches or self.unread_bytes)

    def __str__(self) -> str:
        parts = []
        if self.batches:
            parts.append(f"up to {counted(self.records, 'record')} in "
                         f"{counted(self.batches, 'batch')}")
        if self.batches and self.first_offset is not None:
            parts[-1] += f", offsets {self.first_offset} to {self.last_offset}"
        if self.unread_bytes:
            parts.append(f"{counted(self.unread_bytes, 'byte')} without a readable batch header")
        return ", and ".join(parts) or "nothing but zeros"


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 batch`, `2 batches`."""
    plural = noun + ("es" if noun.endswith(("ch", "x")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def claims_of(extents: dict[int, Extent]) -> Claims:
    """The claims of whole segments, given by base offset."""
    return sum((claims_after(extent, extent.start, base, base)
                for base, extent in extents.items()), Claims())


def claims_after(extent: Extent, position: int, next_offset: int, base_offset: int) -> Claims:
    """The claims of headers from byte `position` of a segment to its end.

    `next_offset` is the lowest offset possible there, `base_offset` the segment's. Raises
    LoaderFailure (IOException) if a read fails.
    """
    if position >= extent.end:
        return Claims()  # an empty segment of an overlay has no file
    with opened_log(extent.path) as fd:
        return _Walk(fd, extent, next_offset, base_offset).run(position)


class _Walk:
    """Follows headers while their sizes lead from one to the next. After bytes that are not a batch
    it searches the next batch with a valid CRC."""

    def __init__(self, fd: int, extent: Extent, next_offset: int, base_offset: int) -> None:
        self.fd, self.extent, self.end = fd, extent, extent.end
        self.next_offset, self.base_offset = next_offset, base_offset
        self.searches = self.passes = 0
        self.claims = Claims()
        #: The batch whose length led to the current position; counted once that proves to be right.
        self.pending: npt.NDArray[np.void] | None = None

    def run(self, position: int) -> Claims:
        chunk = _BATCHES_PER_CHUNK
        while position < self.end:
            if self.passes > _PASSES_MAX:
                self.claims += Claims(unread_bytes=self.end - position)
                break
            found = scan_file(self.fd, position, self.end, check_crcs=False, strict=True,
                              max_batches=chunk)
            if found.status == Status.IO:
                raise read_failure(self.extent.path, found.position)
            strange = np.flatnonzero(~self._fits(found.batches))
            if len(strange):  # bytes that look like a message, or a batch that was moved
                row = found.batches[strange[0]]
                self._take(found.batches[:strange[0]])
                chunk = _BATCHES_AFTER_STRANGE  # what follows is likely to be strange too
                position = self._pass(int(row["position"]),
                                      int(row["position"]) + int(row["size"]))
                continue
            chunk = min(2 * chunk, _BATCHES_PER_CHUNK)
            self._take(found.batches)
            position = found.position
            if found.status in (Status.END, Status.ZERO_TAIL):
                break
            if found.status != Status.FULL:
                position = self._pass(position, found.next_position)
        self._resolve()
        return self.claims

    def _take(self, batches: npt.NDArray[np.void]) -> None:
        if len(batches):
            self._resolve()
            self._count(batches[:-1])
            self.pending = batches[-1:]

    def _resolve(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            self._count(pending)

    def _count(self, batches: npt.NDArray[np.void], room: int | None = None) -> None:
        """Counts consecutive batches; `room` is the bytes available to one whose length is
        wrong."""
        if not len(batches):
            return
        base, last = batches["base_offset"], batches["last_offset"]
        before = np.concatenate(([self.next_offset], last[:-1] + 1))
        records = _most_records(batches, before, room)
        legacy = batches["magic"] < _MAGIC_MAX
        first = np.where(legacy, np.minimum(base, last - records + 1), base)
        likely = (first >= self.next_offset) & (last >= first)
        self.claims += Claims(
            len(batches), int(records.sum()),
            int(first[likely].min()) if likely.any() else None,
            int(last[likely].max()) if likely.any() else None)
        if likely.any():
            self.next_offset = int(last[likely].max()) + 1

    # ---- what is no batch -----------------------------------------------------------------------

    def _pass(self, position: int, behind: int | None) -> int:
        """Skips the entry at `position` that breaks a rule, and claims to end at `behind`. Returns
        where the walk continues."""
        self.passes += 1
        header = self._header(position)
        if behind is not None and self._is_likely(behind):
            self._resolve()
            if header is None:
                self._count_region(position, behind, None, behind)
            else:
                self.pending = header
            return behind
        start = position
        if header is None and self.pending is not None and not self._is_sound(self.pending):
            # Its length leads to no header, so the length is probably wrong.
            start, header, self.pending = int(self.pending["position"][0]), self.pending, None
        self._resolve()
        again = self._search(start)
        self._count_region(start, self.end if again is None else again, header, again)
        return self.end if again is None else again

    def _search(self, start: int) -> int | None:
        """The next batch with a valid CRC."""
        self.searches += 1
        if self.searches > _SEARCHES_MAX or start + 1 >= self.end:
            return None
        return find_batch(self.fd, start + 1, self.end, self.end)

    def _count_region(self, start: int, end: int, header: npt.NDArray[np.void] | None,
                      again: int | None) -> None:
        """Counts bytes that begin with this header (None: no header) and contain no further sound
        batch; at `again` the next one begins."""
        before = self.claims
        if header is None:
            self.claims += Claims(unread_bytes=end - start)
        else:
            self._count(header, None if again is None else end - start)
        if again is None:
            return
        following = self._header(again)
        if following is None or (header is not None and end - start == int(header["size"][0])):
            return
        # More batches may be in there: their offsets are missing.
        missing = int(following["base_offset"][0]) - self.next_offset
        room = (end - start) * int(_EXPANSION[following["attributes"][0] & ATTRIBUTE_CODEC])
        missing = min(missing, room // _RECORD_BYTES)
        if missing > 0:
            self.claims += Claims(
                0 if self.claims.batches > before.batches else 1, missing, self.next_offset,
                int(following["base_offset"][0]) - 1)

    def _is_likely(self, position: int) -> bool:
        """Whether a batch, or the end, is plausible there."""
        if position == self.end or self._header(position) is not None:
            return True
        return scan_file(self.fd, position, self.end, max_batches=1).status == Status.ZERO_TAIL

    def _is_sound(self, batch: npt.NDArray[np.void]) -> bool:
        return scan_file(self.fd, int(batch["position"][0]), self.end, strict=True,
                         max_batches=1).batch_count == 1

    def _header(self, position: int) -> npt.NDArray[np.void] | None:
        """The header at a position, also if it or its batch is truncated after the offsets; None if
        it cannot be one."""
        size = min(_HEADER_BYTES, self.end - position)
        if size < _DELTA_END:
            return None
        data = bytearray(read_at(self.fd, size, position, file=self.extent.path))
        magic = data[_MAGIC_AT]
        whole = int.from_bytes(data[_LENGTH_AT:_PREFIX_BYTES], "big", signed=True) + _PREFIX_BYTES
        if magic > _MAGIC_MAX or whole < (*_LEGACY_BYTES, _HEADER_BYTES)[magic]:
            return None
        if magic < _MAGIC_MAX and size < _LEGACY_BYTES[magic]:
            return None
        if magic == _MAGIC_MAX and size < _HEADER_BYTES:
            data = data[:_COUNT_AT].ljust(_COUNT_AT, b"\0") + b"\xff" * 4  # -1: no count
        rows = scan(data, end=whole, check_crcs=False, max_batches=1).batches.copy()
        if not len(rows) or not self._is_possible(rows[0]):
            return None
        rows["position"] = position
        return rows

    def _fits(self, batches: npt.NDArray[np.void] | np.void) -> npt.NDArray[np.bool_]:
        """Whether the segment can have these offsets."""
        base, last = batches["base_offset"], batches["last_offset"]
        fits: npt.NDArray[np.bool_] = ((base >= self.base_offset) & (last >= base) & (
            last <= self.base_offset + _RELATIVE_OFFSET_MAX))
        return fits

    def _is_possible(self, row: np.void) -> bool:
        attributes = int(row["attributes"])
        return (0 <= attributes <= _ATTRIBUTES_MAX[int(row["magic"])]
                and attributes & ATTRIBUTE_CODEC < len(CODECS)
                and bool(self._fits(row)))


def _most_records(batches: npt.NDArray[np.void], before: npt.NDArray[np.int64],
                  room: int | None) -> npt.NDArray[np.int64]:
    """An upper bound of the records in each batch; `before` is the offset after the previous
    batch."""
    size = batches["size"].astype(np.int64)
    if room is not None:
        size = np.full_like(size, room)
    codec = batches["attributes"].astype(np.int64) & ATTRIBUTE_CODEC
    legacy = batches["magic"] < _MAGIC_MAX
    room_for = np.where(
        legacy, (size - _PREFIX_BYTES) * _EXPANSION[codec] // _LEGACY_BYTES[0],
        np.maximum(size - _HEADER_BYTES, 0) * _EXPANSION[codec] // _RECORD_BYTES)
    count = batches["record_count"].astype(np.int64)
    offsets = np.where(legacy, batches["last_offset"] - before, batches["last_offset"]
                       - batches["base_offset"]) + 1
    offsets = np.where(offsets > 0, offsets, np.where(legacy, 1, room_for))
    # An old wrapper has no count. The count of a compacted batch may be less than its offsets.
    said = np.where(legacy & (codec == 0), 1, np.where(count >= 0, count, offsets))
    most: npt.NDArray[np.int64] = np.maximum(
        np.minimum(np.minimum(said, offsets), room_for), legacy.astype(np.int64))
    return most
