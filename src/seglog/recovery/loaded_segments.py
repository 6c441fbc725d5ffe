"""The segments of a loaded log as columns, without an object for each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from seglog.config import LogConfig
from seglog.recovery.disk import Disk
from seglog.recovery.partition_plan import CheckedSegments
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.segment_table import SegmentTable, total_bytes

__all__ = ["OFFSET_INDEX_OPEN", "TIME_INDEX_OPEN", "LoadedSegments"]

#: Bits of `opened`: Kafka opens an index at its first use, and trims open ones on close.
OFFSET_INDEX_OPEN: Final = 1
TIME_INDEX_OPEN: Final = 2
#: Its largest timestamp was requested, and is remembered independently of the index.
_MAX_KNOWN: Final = 4

_COLUMNS = ("base_offsets", "log_size", "index_size", "time_index_size", "opened", "created_ms",
            "generation")


class LoadedSegments(SegmentTable):
    """The segments of a log that is loaded or written to, and the state of each one's files (sizes
    in bytes, -1 for a missing file), 45 bytes a segment. Objects exist only for segments in use.
    The only set of segments that changes: the caller holds the log's lock.

    A segment keeps the settings that it was opened with: `generation` is their number. `created_ms`
    is when it was opened, in ms.
    """

    def __init__(self, disk: Disk, config: LogConfig, checked: CheckedSegments) -> None:
        super().__init__(checked.base_offsets.copy())
        self.disk, self.configs = disk, [config]
        self.parent = os.path.dirname(os.path.abspath(disk.path))
        self.log_size = checked.log_size.copy()
        self.index_size = checked.index_size.copy()
        self.time_index_size = checked.time_index_size.copy()
        self.opened: npt.NDArray[np.uint8] = np.zeros(len(self), np.uint8)
        self.created_ms: npt.NDArray[np.int64] = np.zeros(len(self), np.int64)
        self.generation: npt.NDArray[np.uint32] = np.zeros(len(self), np.uint32)
        self._pinned: int | None = None
        self._held: dict[int, SegmentFiles] = {}

    @property
    def size(self) -> int:
        """Bytes of all logs."""
        return total_bytes(self.log_size)

    def note_opened(self, now_ms: int) -> None:
        """A log opens all segments at this time."""
        self.created_ms[:] = now_ms
        for segment in self._held.values():
            segment.created_ms = now_ms

    def pin(self, base_offset: int) -> SegmentFiles:
        """The segment, kept as an object until `unpin`. Replaces the one pinned before."""
        self._pinned = base_offset
        return self.get(base_offset)

    def unpin(self) -> None:
        """Stops keeping the pinned segment."""
        self._pinned = None

    # ---- segments as objects ------------------------------------------------------------------

    def get(self, base_offset: int) -> SegmentFiles:
        """The segment as an object; call `release` after use."""
        held = self._held.get(base_offset)
        if held is None:
            row = self.row(base_offset)
            size = int(self.log_size[row])
            held = SegmentFiles(self.disk, base_offset, self.configs[self.generation[row]],
                                size=size if size >= 0 else None,
                                created_ms=int(self.created_ms[row]))
            for index, bit in ((held.offset_index, OFFSET_INDEX_OPEN),
                               (held.time_index, TIME_INDEX_OPEN)):
                if self.opened[row] & bit:
                    index.open()
            if self.opened[row] & _MAX_KNOWN:
                held.max_seen = held.time_index.last_entry
            self._held[base_offset] = held
        return held

    def release(self, segment: SegmentFiles) -> None:
        """Saves the state of its files, and drops the object if nothing else is left in it."""
        row = self.row(segment.base_offset)
        self.log_size[row], self.created_ms[row] = segment.size, segment.created_ms
        whole = not segment.txn_index.is_left_over and not segment.bytes_since_index_entry
        for index, sizes, bit in ((segment.offset_index, self.index_size, OFFSET_INDEX_OPEN),
                                  (segment.time_index, self.time_index_size, TIME_INDEX_OPEN)):
            if index.is_open:
                sizes[row] = index.length
                self.opened[row] |= bit
                whole = whole and index.entries == index.length // index.entry.size
        # A known maximum that is not in the time index is written on close.
        known = segment.max_seen is not None
        seen = int(self.opened[row]) & ~_MAX_KNOWN
        self.opened[row] = seen | _MAX_KNOWN if known else seen
        if known and whole:
            whole = segment.max_seen == segment.time_index.last_entry
        if whole and segment.base_offset != self._pinned:
            self._held.pop(segment.base_offset, None)

    @property
    def held(self) -> list[SegmentFiles]:
        """The segments whose state is more than the sizes of their files."""
        return list(self._held.values())

    # ---- the set of segments ------------------------------------------------------------------

    def add(self, segment: SegmentFiles) -> None:
        """Adds a segment, or replaces the one with the same base offset."""
        base = segment.base_offset
        if base not in self:
            row = self.floor_row(base) + 1
            for name, value in zip(_COLUMNS, (base, segment.size, -1, -1, 0, 0, 0), strict=True):
                setattr(self, name, np.insert(getattr(self, name), row, value))
        row = self.row(base)
        self.log_size[row], self.opened[row] = segment.size, 0
        self.generation[row] = self._generation(segment.config)
        for index, sizes in ((segment.offset_index, self.index_size),
                             (segment.time_index, self.time_index_size)):
            size = self.disk.size(index.name)
            sizes[row] = -1 if size is None else size
        self._held[base] = segment
        self.release(segment)

    def _generation(self, config: LogConfig) -> int:
        if config not in self.configs:
            self.configs.append(config)
        return self.configs.index(config)

    def remove(self, bases: Iterable[int]) -> None:
        """Removes segments; the caller handles their files."""
        gone = list(bases)
        keep = ~np.isin(self.base_offsets, np.array(gone, np.int64))
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[keep])
        for base in gone:
            self._held.pop(base, None)
