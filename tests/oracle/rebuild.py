"""LogSegment.recover's indexes in plain Python (Kafka): what a rebuild has to come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.oracle.files import OFFSET_ENTRY, TIME_ENTRY

FULL, BACKWARDS, OVERFLOW = "full", "backwards", "overflow"


@dataclass
class Facts:
    """What the rules ask of a batch."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int
    record_count: int = 1


@dataclass
class Rebuilt:
    """Both indexes, and where and why an entry was refused."""

    base_offset: int
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    taken: int = 0
    valid: int = 0
    max_timestamp: tuple[int, int] = (-1, -1)
    error: tuple[str, str] | None = None
    next_offset: int = -1

    @property
    def offset_index(self) -> bytes:
        return b"".join(OFFSET_ENTRY.pack(offset - self.base_offset, position)
                        for offset, position in self.offsets)

    @property
    def time_index(self) -> bytes:
        return b"".join(TIME_ENTRY.pack(timestamp, offset - self.base_offset)
                        for timestamp, offset in self.times)

    def append_offset(self, offset: int, position: int, most: int) -> bool:
        if len(self.offsets) >= most:
            self.error = FULL, "offset"
        elif self.offsets and offset <= self.offsets[-1][0]:
            self.error = BACKWARDS, "offset"
        else:
            self.offsets.append((offset, position))
        return self.error is None

    def maybe_append_time(self, most: int, *, skip_full_check: bool = False) -> bool:
        timestamp, offset = self.max_timestamp
        last = self.times[-1] if self.times else (-1, self.base_offset)
        if not skip_full_check and len(self.times) >= most - 1:
            self.error = FULL, "time"
        elif self.times and offset < last[1]:
            self.error = BACKWARDS, "time"
        elif timestamp > last[0]:
            if len(self.times) >= most:
                self.error = FULL, "time"
            else:
                self.times.append((timestamp, offset))
        return self.error is None


def rebuild(batches: Iterable[Facts], base_offset: int, interval: int,
            index_bytes: int) -> Rebuilt:
    """The loop of LogSegment.recover over batches that all have a right CRC."""
    found = Rebuilt(base_offset, max_timestamp=(-1, base_offset))
    most, most_times, last_entry = index_bytes // 8, index_bytes // 12, 0
    seen: list[tuple[int, Facts]] = []
    for batch in batches:
        if not 0 <= batch.last_offset - base_offset < 2**31:
            found.error = OVERFLOW, ""
            return found
        if batch.max_timestamp > found.max_timestamp[0]:
            found.max_timestamp = batch.max_timestamp, batch.last_offset
        if found.valid - last_entry > interval:
            if not found.append_offset(batch.last_offset, found.valid, most) or \
                    not found.maybe_append_time(most_times):
                return found
            last_entry = found.valid
        seen.append((found.valid, batch))
        found.valid += batch.size
        found.taken += 1
    found.maybe_append_time(most_times, skip_full_check=True)
    found.next_offset = read_next_offset(found, seen)
    return found


def read_next_offset(found: Rebuilt, seen: list[tuple[int, Facts]]) -> int:
    """LogSegment.readNextOffset through the rebuilt index."""
    target, start = found.offsets[-1] if found.offsets else (found.base_offset, 0)
    behind = [batch for position, batch in seen if position >= start]
    if not behind or not (behind[-1].last_offset >= target or any(
            batch.base_offset >= target for batch in behind)):
        return found.base_offset
    return behind[-1].last_offset + 1
