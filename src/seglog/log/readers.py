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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from seglog._native.fetch import SegmentReader
from seglog._native.file import read_at
from seglog.errors import KafkaStorageError, SeglogError
from seglog.forks import SurvivesFork
from seglog.log.context import LogContext
from seglog.log.failures import closed_error
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.model import AbortedTxn, TopicPartition
from seglog.recovery.deferred import DeferredChecks
from seglog.recovery.failures import public_errors
from seglog.recovery.index_files import TxnIndexFile
from seglog.recovery.segment_map import SegmentMap
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.files import Source
from seglog.storage.handles import shared_cache

if TYPE_CHECKING:
    from seglog.log.tail import Followers

__all__ = ["LogReaders", "OpenSegment", "ReadableLog", "SegmentRetired", "SegmentView",
           "read_steadily"]

_FILES_PER_SEGMENT: Final = 2
#: Truncations that are remembered for those who follow the log.
_CUTS_KEPT: Final = 64
#: Aborted transactions of one segment that stay in memory.
_ABORTED_KEPT_MAX: Final = 4096
#: How often a read begins again without the lock.
_ATTEMPTS: Final = 3

_T = TypeVar("_T")


class SegmentRetired(SeglogError):
    """Retention, a truncation or a replacement took a segment out of the log after a reader found
    it in its view. Never leaves `seglog.log`: the reader looks at the log again."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the segment {base_offset} is no longer in the log")


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

    def reading(self, message: str) -> AbstractContextManager[None]:
        """Inside, a read that the file system refuses takes the data directory offline."""

    def settle(self) -> None:
        """Brings `segments` up to date, for the thread that holds the lock."""


class OpenSegment:
    """One segment that readers have open.

    `size` and `entries` (of its offset index) are those of a segment that is no longer written to,
    and None of the last one, whose are the log's to tell.
    """

    __slots__ = ("__weakref__", "aborted", "base_offset", "entries", "reader", "size",
                 "txn_index", "was_used")

    def __init__(self, reader: SegmentReader, txn_index: TxnIndexFile, size: int | None,
                 entries: int | None) -> None:
        self.reader, self.size, self.entries = reader, size, entries
        self.base_offset = reader.base_offset
        self.was_used = True
        self.txn_index = txn_index
        #: The entries of its transaction index, once they were read and cannot become more.
        self.aborted: list[AbortedTxn] | None = None

    @property
    def fd(self) -> int:
        """The descriptor of its log, which is open as long as the object lives."""
        return self.reader.fileno()

    @property
    def source(self) -> Source:
        """Its descriptor (see storage.files.Readable)."""
        return self.fd

    def span(self, start: int, end: int) -> AbstractContextManager[Source]:
        """Its descriptor."""
        return nullcontext(self.fd)

    def read(self, size: int, position: int) -> bytes:
        """Exactly `size` bytes. KafkaStorageError where the file ends before."""
        return read_at(self.fd, size, position)

    def keep_aborted(self, found: list[AbortedTxn]) -> None:
        """Notes the entries of its transaction index, if they are few and all."""
        if self.size is not None and len(found) <= _ABORTED_KEPT_MAX:
            self.aborted = found


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


class _OpenSegments(SurvivesFork):
    """Which segments all logs of the process have open, at most `segments_max`.

    One that was not used since it was looked at last is let go of first. A reader that is at work
    holds it; its descriptors are closed with the last reference.
    """

    def __init__(self, segments_max: int) -> None:
        self.segments_max = segments_max
        self._ring: deque[tuple[weakref.ref[_Opened], weakref.ref[OpenSegment]]] = deque()

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


_shared = _OpenSegments(max(1, shared_cache().files_max // _FILES_PER_SEGMENT))


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

    def is_unchanged(self, generation: int) -> bool:
        """Whether no file that readers may hold was changed since `generation`."""
        return generation == self.generation and not generation & 1

    def is_current(self, log: ReadableLog, generation: int, view: SegmentView) -> bool:
        """Whether what was read since `generation` and through `view` is still so."""
        return self.is_unchanged(generation) and view.base_offsets is log.segments.base_offsets

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
        """The segment at `base_offset`, opened if it is not. KafkaStorageError, SegmentRetired."""
        found = view.opened.get(base_offset)
        if found is None:
            found = self._open(log, view, base_offset)
        found.was_used = True
        return found

    def aborted(self, log: ReadableLog, view: SegmentView, base_offset: int) -> list[AbortedTxn]:
        """The aborted transactions of a segment. KafkaStorageError, SegmentRetired.

        Its other files are not opened for that: Kafka's indexes are created when they are.
        """
        found = view.opened.get(base_offset)
        if found is not None and found.aborted is not None:
            return found.aborted
        txn_index = _txn_index(log, base_offset) if found is None else found.txn_index
        try:
            # By name and without the lock, so that no reader waits for the sync of an append.
            aborted = [AbortedTxn(*fields) for _, (_, *fields) in txn_index.read()]
        except KafkaStorageError:
            if base_offset not in log.segments:
                raise SegmentRetired(base_offset) from None
            raise
        # A segment leaves the map before its files leave the directory.
        if (view.base_offsets is not log.segments.base_offsets
                and base_offset not in log.segments):
            raise SegmentRetired(base_offset)
        if found is not None:
            found.keep_aborted(aborted)
        return aborted

    def _open(self, log: ReadableLog, view: SegmentView, base_offset: int) -> OpenSegment:
        if log.deferred_checks is not None:
            log.deferred_checks.ensure_offset(base_offset)
        with log.lock, public_errors(log.path):
            if base_offset not in log.segments:
                raise SegmentRetired(base_offset)
            files = log.segments.get(base_offset)
            if not log.is_closed:
                files.offset_index.open()  # as at Kafka's first lookup, which creates a missing one
            is_last = base_offset == int(log.segments.base_offsets[-1])
            try:
                reader = _open_reader(files.log_path,
                                      os.path.join(log.path, files.offset_index.name), base_offset)
            except KafkaStorageError as error:
                if log.is_closed:  # the files are another's by now
                    raise closed_error(f"the log {log.topic_partition} is closed") from error
                raise
            segment = OpenSegment(reader, files.txn_index, None if is_last else files.size,
                                  None if is_last else files.offset_index.entries)
            if log.is_closed and not is_last:
                segment.entries = reader.index.entries
            log.segments.release(files)
            view.opened[base_offset] = segment
        _shared.add(view.opened, segment)
        return segment


def read_steadily(log: ReadableLog, read: Callable[[SegmentView], _T],
                  is_sound: Callable[[int, SegmentView], bool]) -> _T:
    """What `read` gives of the log's segments, when no change of the files came in between.

    `is_sound(generation, view)` says so, also of what `read` raised. It takes no lock, unless files
    are changed again and again.
    """
    readers = log.readers
    for _ in range(_ATTEMPTS):
        generation, view = readers.generation, readers.view(log)
        try:
            found = read(view)
        except SegmentRetired:
            continue
        except SeglogError:
            if is_sound(generation, view):
                raise
        else:
            if is_sound(generation, view):
                return found
    with log.lock:
        return read(readers.view(log))


def _txn_index(log: ReadableLog, base_offset: int) -> TxnIndexFile:
    if log.deferred_checks is not None:
        log.deferred_checks.ensure_offset(base_offset)
    with log.lock:
        if base_offset not in log.segments:
            raise SegmentRetired(base_offset)
        files = log.segments.get(base_offset)
        log.segments.release(files)
        return files.txn_index


def _open_reader(log_path: str, index_path: str, base_offset: int) -> SegmentReader:
    try:
        return SegmentReader(log_path, index_path, base_offset)
    except KafkaStorageError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    shared_cache()._evict(keep=0)
    _shared.clear()
    return SegmentReader(log_path, index_path, base_offset)
