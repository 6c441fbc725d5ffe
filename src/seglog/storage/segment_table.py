"""The sorted base offsets of a log's segments, and Kafka's lookups among them (LogSegments)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["SegmentTable", "floor_row", "total_bytes"]


def floor_row(base_offsets: npt.NDArray[np.int64], offset: int) -> int:
    """The row of the last segment that begins at or below `offset`; -1 if there is none."""
    return int(base_offsets.searchsorted(offset, "right")) - 1


def total_bytes(sizes: npt.NDArray[np.int64]) -> int:
    """The sum of the sizes of files, of which -1 is a missing one."""
    return int(np.maximum(sizes, 0).sum())


class SegmentTable:
    """Row n is the segment at `base_offsets[n]`; they ascend.

    A change of the set replaces the array and never its numbers. A thread without the log's lock
    reads `base_offsets` once, and its identity says whether the set has changed since.
    """

    __slots__ = ("base_offsets",)

    base_offsets: npt.NDArray[np.int64]

    def __init__(self, base_offsets: npt.NDArray[np.int64]) -> None:
        self.base_offsets = base_offsets

    def __len__(self) -> int:
        return len(self.base_offsets)

    def __contains__(self, base_offset: int) -> bool:
        bases = self.base_offsets
        row = int(bases.searchsorted(base_offset))
        return row < len(bases) and int(bases[row]) == base_offset

    def row(self, base_offset: int) -> int:
        """The row of the segment with this base offset. Raises KeyError."""
        row = int(self.base_offsets.searchsorted(base_offset))
        if row == len(self) or int(self.base_offsets[row]) != base_offset:
            raise KeyError(base_offset)
        return row

    def floor_row(self, offset: int) -> int:
        """The row of the last segment that begins at or below `offset`; -1 if there is none."""
        return floor_row(self.base_offsets, offset)

    def higher_base(self, offset: int) -> int | None:
        """The base offset of the first segment that begins above `offset`."""
        bases = self.base_offsets
        row = floor_row(bases, offset) + 1
        return int(bases[row]) if row < len(bases) else None

    def rows(self, start: int, end: int | None = None) -> range:
        """Kafka's values(start, end): from the segment that holds `start`, or the first, to the
        last one below `end`, or the last. ValueError if the range is backwards."""
        if end is None:
            return range(max(self.floor_row(start), 0), len(self))
        if start > end:
            raise ValueError(f"Invalid log segment range: requested segments from offset {start} "
                             f"which is greater than limit offset {end}")
        if start == end:
            return range(0)
        return range(max(self.floor_row(start), 0),
                     int(self.base_offsets.searchsorted(end, "left")))

    def bases(self, rows: range) -> list[int]:
        """The base offsets of some rows."""
        found: list[int] = self.base_offsets[rows.start:rows.stop].tolist()
        return found
