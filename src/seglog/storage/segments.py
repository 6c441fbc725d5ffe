"""The sorted segments of a log, as columns: a million of them in under 30 bytes each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt

from seglog._native.scan import (
    HAS_INDEX, HAS_LOG, HAS_TIME_INDEX, HAS_TXN_INDEX, check_segments, segment_ends,
)
from seglog.objects.store import ObjectVersion
from seglog.objects.urls import is_url
from seglog.storage.log_store import LOCAL, Files, LogFile
from seglog.storage.handles import HandleCache
from seglog.storage.paths import FileKind, file_name
from seglog.storage.segment import LogSegment, SegmentPaths
from seglog.storage.segment_table import SegmentTable, total_bytes

__all__ = ["Segments"]


class Placed(Protocol):
    """A part of a log file."""

    @property
    def file(self) -> str:
        """The path of the file."""


class Segments(SegmentTable):
    """The segments of one log at one moment, a sequence by base offset, for readers of files that
    another process may change. Immutable, for any thread.

    `LogSegment` objects are created on request, and nothing is opened for them. `overrides` names
    the files that are not at their canonical name, by base offset and kind: those of a completed
    swap that was not renamed (LogLoader.load), and those of another place. `where` is the store of
    the files; `versions` has the listed versions of objects by name.
    """

    def __init__(self, directory: str, base_offsets: npt.NDArray[np.int64],
                 flags: npt.NDArray[np.uint8], handles: HandleCache, *,
                 overrides: Mapping[tuple[int, FileKind], str] | None = None,
                 where: Files = LOCAL,
                 versions: Mapping[str, ObjectVersion] | None = None) -> None:
        self.directory = directory
        super().__init__(base_offsets)
        self.flags = flags
        self.base_offsets.flags.writeable = False
        self._handles = handles
        self._owner = handles.new_owner()
        self._is_closed = False
        self._overrides = dict(overrides or {})
        self.where, self._versions = where, versions or {}

    @overload
    def __getitem__(self, row: int) -> LogSegment: ...
    @overload
    def __getitem__(self, row: slice) -> list[LogSegment]: ...

    def __getitem__(self, row: int | slice) -> LogSegment | list[LogSegment]:
        if isinstance(row, slice):
            return [self._at(n) for n in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"segment {row} of {len(self)}")
        return self._at(row % len(self))

    def __iter__(self) -> Iterator[LogSegment]:
        return (self._at(row) for row in range(len(self)))

    def __repr__(self) -> str:
        return f"Segments({self.directory!r}, {len(self)} segments)"

    def _at(self, row: int) -> LogSegment:
        base = int(self.base_offsets[row])
        following = int(self.base_offsets[row + 1]) if row + 1 < len(self) else None
        flags = int(self.flags[row])
        log = self._path(base, FileKind.LOG)
        files = SegmentPaths(
            log=log, version=self.listed_version(log),
            offset_index=self._path(base, FileKind.INDEX) if flags & HAS_INDEX else None,
            time_index=(self._path(base, FileKind.TIME_INDEX)
                        if flags & HAS_TIME_INDEX else None),
            txn_index=self._path(base, FileKind.TXN_INDEX) if flags & HAS_TXN_INDEX else None)
        return LogSegment(base, files, self._handles, self._owner, next_base_offset=following,
                          where=self.where)

    def _path(self, base_offset: int, kind: FileKind) -> str:
        name = self._overrides.get((base_offset, kind)) if self._overrides else None
        if name is not None and is_url(name):
            return name
        return os.path.join(self.directory, name or file_name(base_offset, kind))

    def listed_version(self, path: str) -> ObjectVersion | None:
        """The version that an object of the directory had in the listing; None for a file."""
        return self._versions.get(os.path.basename(path)) if self._versions else None

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset <= `offset`."""
        row = self.floor_row(offset)
        return self._at(row) if row >= 0 else None

    def values(self, start_offset: int, end_offset: int | None = None) -> Iterator[LogSegment]:
        """The segments of `rows`, ascending."""
        return (self._at(row) for row in self.rows(start_offset, end_offset))

    @property
    def last(self) -> LogSegment | None:
        """The active segment."""
        return self._at(len(self) - 1) if len(self) else None

    def with_txn_index(self) -> Iterator[LogSegment]:
        """The segments that have a transaction index: those in which a transaction was aborted."""
        return (self._at(int(row)) for row in np.flatnonzero(self.flags & HAS_TXN_INDEX))

    def sizes(self) -> npt.NDArray[np.int64]:
        """Current bytes of every log file, one system call each without the GIL; -1 for a missing
        file. For objects, the sizes of the listing."""
        if self._versions:
            return np.array([segment.size for segment in self], np.int64)
        present = np.asarray(self.flags, np.uint8) & np.uint8(HAS_LOG | HAS_INDEX)
        sizes = check_segments(self.directory, self.base_offsets, present).log_size
        for (base, kind), name in self._overrides.items():
            if kind is FileKind.LOG:
                row = self.floor_row(base)
                try:
                    sizes[row] = os.lstat(os.path.join(self.directory, name)).st_size
                except FileNotFoundError:
                    sizes[row] = -1
        return sizes

    @property
    def size(self) -> int:
        """Current bytes of all log files. Opens none."""
        return total_bytes(self.sizes())

    def ends(self) -> tuple[list[int], list[int]]:
        """(bytes of the log, offset after its last batch) of all segments, as two columns:
        `LogSegment.size` and `read_next_offset` without an object for each. Raises
        KafkaStorageError."""
        if self._overrides or self._versions:
            sizes, ends = [-1] * len(self), [-1] * len(self)
        else:
            sizes, ends = (column.tolist() for column in segment_ends(
                self.directory, self.base_offsets, self.flags))
        for row in [row for row, end in enumerate(ends) if end < 0]:
            segment = self._at(row)
            sizes[row], ends[row] = segment.size, segment.read_next_offset()
        return sizes, ends

    def opened(self, planned: Placed) -> AbstractContextManager[LogFile]:
        """The log file of a range, open inside the context."""
        return self._handles.pin((self._owner, planned.file), self._open)

    def _open(self, path: str) -> LogFile:
        return self.where.open_log(path, self.listed_version(path))

    def close(self) -> None:
        """Closes the open files of these segments. They can still be used, and open files again."""
        self._is_closed = True
        self._handles.forget(self._owner)

    def release(self) -> None:
        """Closes the files that readers opened after `close`, so that none stays open."""
        if self._is_closed:
            self._handles.forget(self._owner)
