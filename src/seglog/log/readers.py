"""What the readers of a log have open, and how they notice that its files were changed.

Readers take no lock. They read what the log's end (or a watermark) told them is there, through
descriptors that nobody closes while a reader holds them. What an append adds does not concern
them; whatever else changes files or their set (a truncation, a deletion, a replacement, a roll)
happens inside `LogReaders.changing`, and a reader that overlaps with one begins again.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from seglog._native.fetch import SegmentReader
from seglog.errors import KafkaStorageError
from seglog.log.context import LogContext
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.model import AbortedTxn, TopicPartition
from seglog.recovery.deferred import DeferredChecks
from seglog.recovery.failures import public_errors
from seglog.recovery.index_files import TxnIndexFile
from seglog.recovery.segment_map import SegmentMap
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.handles import shared_cache
from seglog.storage.paths import FileKind, file_name

if TYPE_CHECKING:
    from seglog.log.tail import Followers

__all__ = ["LogReaders", "OpenSegment", "ReadableLog", "SegmentView"]

_FILES_PER_SEGMENT: Final = 2
#: Truncations that are remembered for those who follow the log.
_CUTS_KEPT: Final = 64
#: Aborted transactions of one segment that stay in memory.
_ABORTED_KEPT_MAX: Final = 4096


class ReadableLog(Protocol):
    """What reading asks of a log."""

    path: str
    context: LogContext
    lock: threading.RLock
    topic_partition: TopicPartition
    segments: SegmentMap
    leader_epochs: LeaderEpochs
    deferred_checks: DeferredChecks | None
    readers: LogReaders
    followers: Followers
    is_closed: bool
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    high_watermark_metadata: LogOffsetMetadata
    local_log_start_offset: int
    highest_offset_in_remote_storage: int

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The offset of the next record, the base offset of the last segment, its size."""

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open, at most the high watermark."""

    @property
    def remote_log_enabled(self) -> bool:
        """Whether segments may be in remote storage alone."""

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark, looked up where only its offset was known."""

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The same of the last stable offset."""

    def active_index_entries(self) -> int:
        """Entries in use of the last segment's offset index."""

    def active_size(self) -> int:
        """Bytes of the last segment's log, those of an append that an index refused among them."""

    def check_open(self) -> None:
        """KafkaStorageError if the log was closed or deleted."""

    def guarded(self, message: str) -> AbstractContextManager[None]:
        """Inside, what the file system refuses takes the data directory offline."""

    def settle(self) -> None:
        """Brings `segments` up to date, for the thread that holds the lock."""


class OpenSegment:
    """One segment that readers have open.

    `size` and `entries` (of its offset index) are those of a segment that is no longer written to,
    and None of the last one, whose are the log's to tell.
    """

    __slots__ = ("__weakref__", "_aborted", "_txn_index", "base_offset", "entries", "reader",
                 "size", "was_used")

    def __init__(self, reader: SegmentReader, txn_index: TxnIndexFile, size: int | None,
                 entries: int | None) -> None:
        self.reader, self.size, self.entries = reader, size, entries
        self.base_offset = reader.base_offset
        self.was_used = True
        self._txn_index = txn_index
        self._aborted: list[AbortedTxn] | None = None

    def aborted(self) -> list[AbortedTxn]:
        """The entries of its transaction index."""
        if self._aborted is not None:
            return self._aborted
        found = [AbortedTxn(*fields) for _, (_, *fields) in self._txn_index.read()]
        if self.size is not None and len(found) <= _ABORTED_KEPT_MAX:
            self._aborted = found
        return found


class _Opened(dict[int, OpenSegment]):
    """Open segments by base offset; a class, because a plain dict has no weak references."""


class SegmentView:
    """The segments of a log between two changes of their set."""

    __slots__ = ("active_base", "base_offsets", "opened")

    def __init__(self, base_offsets: npt.NDArray[np.int64], opened: _Opened) -> None:
        self.base_offsets = base_offsets  # never changed in place: a change makes another array
        self.active_base = int(base_offsets[-1]) if len(base_offsets) else -1
        self.opened = opened

    def floor(self, offset: int) -> int:
        """Base offset of the last segment that begins at or below `offset`, -1 without one."""
        if offset >= self.active_base >= 0:
            return self.active_base
        row = int(self.base_offsets.searchsorted(offset, "right")) - 1
        return int(self.base_offsets[row]) if row >= 0 else -1

    def higher(self, base_offset: int) -> int | None:
        """Base offset of the next segment."""
        if base_offset >= self.active_base:
            return None
        row = int(self.base_offsets.searchsorted(base_offset, "right"))
        return int(self.base_offsets[row]) if row < len(self.base_offsets) else None


class _OpenSegments:
    """Which segments all logs of the process have open, at most `segments_max`.

    One that was not used since it was looked at last is let go of first. A reader that is at work
    holds it; its descriptors are closed with the last reference.
    """

    def __init__(self, segments_max: int) -> None:
        self.segments_max = segments_max
        self._ring: deque[tuple[weakref.ref[_Opened], weakref.ref[OpenSegment]]] = deque()
        self._lock = threading.Lock()

    def add(self, opened: _Opened, segment: OpenSegment) -> None:
        """Notes an open segment, and lets go of others if there are too many."""
        with self._lock:
            self._ring.append((weakref.ref(opened), weakref.ref(segment)))
            self._shrink(self.segments_max)

    def clear(self) -> None:
        """Lets go of all that nobody is at work with."""
        with self._lock:
            self._shrink(0)

    def _shrink(self, keep: int) -> None:
        while len(self._ring) > keep:
            held = self._ring.popleft()
            opened, segment = held[0](), held[1]()
            if opened is None or segment is None:
                continue
            if segment.was_used and keep:
                segment.was_used = False
                self._ring.append(held)
            elif opened.get(segment.base_offset) is segment:
                opened.pop(segment.base_offset, None)

    def after_fork(self) -> None:
        """Another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


_shared = _OpenSegments(max(1, shared_cache().files_max // _FILES_PER_SEGMENT))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.after_fork)


class LogReaders:
    """What the readers of one log share. Safe from any thread.

    `generation` is odd while files are being changed. `current_view` may be behind what the
    segments are; `view` is not.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._depth = 0
        self._cuts: deque[tuple[int, int]] = deque(maxlen=_CUTS_KEPT)
        self.current_view = SegmentView(np.empty(0, np.int64), _Opened())

    @contextmanager
    def changing(self, cut_to: int | None = None) -> Iterator[None]:
        """Around every change of bytes that readers may have been told of, by the thread that
        holds the log's lock: truncations, which say from which offset on nothing is as it was, and
        segments that are put in the place of others."""
        self._depth += 1
        if self._depth == 1:
            self.generation += 1
        if cut_to is not None:
            self._cuts.append((self.generation, cut_to))
        # What is open knows its size, and the change itself reads what it leaves.
        self.current_view = SegmentView(np.empty(0, np.int64), _Opened())
        try:
            yield
        finally:
            self.current_view = SegmentView(np.empty(0, np.int64), _Opened())
            self._depth -= 1
            if self._depth == 0:
                self.generation += 1

    def let_go(self) -> None:
        """Closes what nobody is at work with: the log is closed."""
        self.current_view = SegmentView(np.empty(0, np.int64), _Opened())

    def lowest_cut_since(self, generation: int) -> int | None:
        """To which offset the log was cut since then, the lowest; None if it was not. Of a time
        that nobody remembers: 0."""
        cuts = list(self._cuts)
        if len(cuts) == _CUTS_KEPT and cuts[0][0] > generation:
            return 0
        return min((offset for at, offset in cuts if at > generation), default=None)

    def is_current(self, log: ReadableLog, generation: int, view: SegmentView) -> bool:
        """Whether what was read since `generation` and through `view` is still so."""
        return (generation == self.generation and not generation & 1
                and view.base_offsets is log.segments.base_offsets)

    def view(self, log: ReadableLog) -> SegmentView:
        """The segments as they are now."""
        view = self.current_view
        if view.base_offsets is log.segments.base_offsets:
            return view
        with log.lock:
            bases, opened = log.segments.base_offsets, self.current_view.opened
            for base, segment in list(opened.items()):
                if segment.size is None or base not in log.segments:
                    opened.pop(base, None)
            view = self.current_view = SegmentView(bases, opened)
        return view

    def segment(self, log: ReadableLog, view: SegmentView, base_offset: int) -> OpenSegment:
        """The segment at `base_offset`, opened if it is not. KafkaStorageError."""
        found = view.opened.get(base_offset)
        if found is None:
            found = self._open(log, view, base_offset)
        found.was_used = True
        return found

    def aborted(self, log: ReadableLog, view: SegmentView, base_offset: int) -> list[AbortedTxn]:
        """The aborted transactions of a segment. Its other files are not opened for that: Kafka's
        indexes are created when they are."""
        found = view.opened.get(base_offset)
        if found is not None:
            with public_errors(log.path):
                return found.aborted()
        if log.deferred_checks is not None:
            log.deferred_checks.ensure_offset(base_offset)
        with log.lock:
            if base_offset not in log.segments:
                return []
            files = log.segments.get(base_offset)
            log.segments.release(files)
        with public_errors(log.path):
            return [AbortedTxn(*fields) for _, (_, *fields) in files.txn_index.read()]

    def _open(self, log: ReadableLog, view: SegmentView, base_offset: int) -> OpenSegment:
        if log.deferred_checks is not None:
            log.deferred_checks.ensure_offset(base_offset)
        with log.lock, public_errors(log.path):
            if base_offset not in log.segments:
                name = file_name(base_offset, FileKind.LOG)
                raise KafkaStorageError(errno.ENOENT, "the segment was deleted",
                                        os.path.join(log.path, name))
            files = log.segments.get(base_offset)
            files.offset_index.open()  # as at Kafka's first lookup, which creates a missing one
            is_last = base_offset == int(log.segments.base_offsets[-1])
            reader = _open_reader(files.log_path, os.path.join(log.path, files.offset_index.name),
                                  base_offset)
            segment = OpenSegment(reader, files.txn_index, None if is_last else files.size,
                                  None if is_last else files.offset_index.entries)
            log.segments.release(files)
            view.opened[base_offset] = segment
        _shared.add(view.opened, segment)
        return segment


def _open_reader(log_path: str, index_path: str, base_offset: int) -> SegmentReader:
    try:
        return SegmentReader(log_path, index_path, base_offset)
    except KafkaStorageError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    shared_cache()._evict(keep=0)
    _shared.clear()
    return SegmentReader(log_path, index_path, base_offset)
