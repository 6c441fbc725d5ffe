"""The files that readers of a log have open, and how readers notice changes of those files.

Readers take no lock. They read up to the log's end (or a watermark), through descriptors that stay
open while a reader holds them. Appends do not concern them. Every other change of files or of their
set (a truncation, a deletion, a replacement, a roll) happens inside `LogReaders.changing`, and a
reader that overlaps with one starts again.
"""

from __future__ import annotations

import errno
import os
import weakref
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from seglog._native.fetch import SegmentReader
from seglog.errors import KafkaStorageError, SeglogError
from seglog.forks import SurvivesFork
from seglog.log.log_dir_failures import closed_error
from seglog.model import AbortedTxn
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.index_files import TxnIndexFile
from seglog.recovery.log_files import LogFiles
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.log_store import LocalFile
from seglog.storage.handles import shared_cache
from seglog.storage.lock import holds_lock
from seglog.storage.paths import FileKind, file_name
from seglog.storage.segment_table import SegmentTable

__all__ = ["LogReaders", "OpenSegment", "SegmentRetired", "SegmentView"]

_FILES_PER_SEGMENT: Final = 2
#: Truncations that are remembered for followers of the log.
_CUTS_KEPT: Final = 64
#: How many aborted transactions of one segment stay in memory.
_ABORTED_KEPT_MAX: Final = 4096
#: Of how many segments it is known that they have none.
_WITHOUT_ABORTED_MAX: Final = 1 << 16
#: How often a read starts again without the lock.
_ATTEMPTS: Final = 3

_T = TypeVar("_T")


class SegmentRetired(SeglogError):
    """Retention, a truncation or a replacement removed a segment after a reader found it in its
    view. Never leaves `seglog.log`: the reader reads the log's view again."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the segment {base_offset} is no longer in the log")


class OpenSegment(LocalFile):
    """The descriptors of one segment that the readers of a writable log hold without its lock;
    SegmentFiles names files, and belongs to the thread that has the lock.

    `size` and `entries` (of its offset index) are those of an inactive segment. They are None for
    the active one, where the log knows them.
    """

    __slots__ = ("__weakref__", "aborted", "base_offset", "entries", "reader", "size",
                 "txn_index", "was_used")

    def __init__(self, reader: SegmentReader, txn_index: TxnIndexFile, size: int | None,
                 entries: int | None) -> None:
        self.reader, self.size, self.entries = reader, size, entries
        self.fd, self.path = reader.fileno(), reader.path  # open as long as this object lives
        self.base_offset = reader.base_offset
        self.was_used = True
        self.txn_index = txn_index
        #: The entries of its transaction index, once they were read and can no longer grow.
        self.aborted: list[AbortedTxn] | None = None

    def keep_aborted(self, found: list[AbortedTxn]) -> None:
        """Keeps the entries of its transaction index, if they are few and complete."""
        if self.size is not None and len(found) <= _ABORTED_KEPT_MAX:
            self.aborted = found


class _Opened(dict[int, OpenSegment]):
    """Open segments by base offset; a class, because a plain dict has no weak references."""


class SegmentView(SegmentTable):
    """The segments of a log between two changes of LoadedSegments, which needs the lock, and those
    that readers have open."""

    __slots__ = ("_bases", "active_base", "opened")

    def __init__(self, base_offsets: npt.NDArray[np.int64], opened: _Opened) -> None:
        super().__init__(base_offsets)
        self._bases = np.ascontiguousarray(base_offsets).data  # whose items are plain numbers
        self.active_base = int(base_offsets[-1]) if len(base_offsets) else -1
        self.opened = opened

    def floor(self, offset: int) -> int:
        """Base offset of the last segment that begins at or below `offset`, -1 if there is none."""
        if offset >= self.active_base >= 0:
            return self.active_base
        row = bisect_right(self._bases, offset)
        return self._bases[row - 1] if row else -1

    def bases_from(self, base_offset: int) -> memoryview:
        """The base offsets from that of a segment on."""
        return self._bases[bisect_left(self._bases, base_offset):]

    def higher(self, base_offset: int) -> int | None:
        """Base offset of the next segment."""
        return None if base_offset >= self.active_base else self.higher_base(base_offset)


class _OpenSegments(SurvivesFork):
    """The segments that all logs of the process have open, at most `segments_max`.

    Those that were not used since the last check are closed first. A reader at work holds its
    segment; the descriptors are closed with the last reference.
    """

    def __init__(self, segments_max: int) -> None:
        self.segments_max = segments_max
        self._ring: deque[tuple[weakref.ref[_Opened], weakref.ref[OpenSegment]]] = deque()

    def add(self, opened: _Opened, segment: OpenSegment) -> None:
        """Adds an open segment, and closes others if there are too many."""
        with self._lock:
            self._ring.append((weakref.ref(opened), weakref.ref(segment)))
            self._shrink(self.segments_max)

    def clear(self) -> None:
        """Closes all that no reader uses."""
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
    """The state that the readers of one log share. Safe from any thread.

    `generation` is odd while files are being changed. `current_view` may be older than the
    segments; `view` is not. Below `replaced_to` records may have gone: cleaned segments replaced
    others.
    """

    def __init__(self, files: LogFiles) -> None:
        self._files, self._segments = files, files.segments
        self.generation = self.replaced_to = 0
        self._depth = 0
        self._mapped: weakref.WeakSet[OpenSegment] = weakref.WeakSet()  # with a map of the index
        self._cuts: deque[tuple[int, int]] = deque(maxlen=_CUTS_KEPT)
        # Closed segments without aborted transactions. A change of files replaces the set, so that
        # a reader which overlaps adds to one that is no longer used.
        self._without_aborted: set[int] = set()
        self._forget_view()

    @contextmanager
    def changing(self, cut_to: int | None = None, replaced: Sequence[int] | None = None
                 ) -> Iterator[None]:
        """Encloses every change of bytes that readers may know, in the thread that holds the log's
        lock: truncations, which give the offset from which on bytes change, and replacements, with
        the base offsets of old and new segments. With neither, anything may change."""
        self._detach_maps()
        self._depth += 1
        if self._depth == 1:
            self.generation += 1
        if cut_to is not None:
            self._cuts.append((self.generation, cut_to))
            self.replaced_to = min(self.replaced_to, cut_to)
        # Open segments have recorded sizes, and the change itself reads what it leaves.
        self._forget_view()
        try:
            yield
        finally:
            self._forget_view()
            self._forget_aborted(replaced)
            self._depth -= 1
            if self._depth == 0:
                self.generation += 1

    def _forget_view(self) -> None:
        self.current_view = SegmentView(np.empty(0, np.int64), _Opened())

    def _forget_aborted(self, replaced: Sequence[int] | None) -> None:
        self._without_aborted = (set() if replaced is None
                                 else self._without_aborted.difference(replaced))

    def close(self) -> None:
        """Closes the files that no reader uses now: the log is closed."""
        self._forget_view()
        with self._files.lock:
            self._detach_maps()

    def _detach_maps(self) -> None:
        """Allows index files to be truncated. If it raises KafkaStorageError, they must not be."""
        for segment in self._mapped:
            segment.reader.index.detach()
        self._mapped.clear()

    def lowest_cut_since(self, generation: int) -> int | None:
        """The lowest offset to which the log was truncated since then; None if it was not, 0 if
        that is longer ago than truncations are remembered."""
        cuts = list(self._cuts)
        if len(cuts) == _CUTS_KEPT and cuts[0][0] > generation:
            return 0
        return min((offset for at, offset in cuts if at > generation), default=None)

    def is_unchanged(self, generation: int) -> bool:
        """Whether no file that readers may hold was changed since `generation`."""
        return generation == self.generation and not generation & 1

    def is_current(self, generation: int, view: SegmentView) -> bool:
        """Whether what was read since `generation` and through `view` is still valid."""
        return (self.is_unchanged(generation)
                and view.base_offsets is self._segments.base_offsets)

    def view(self) -> SegmentView:
        """The current segments."""
        view, segments = self.current_view, self._segments
        if view.base_offsets is segments.base_offsets:
            return view
        with self._files.lock:
            bases, opened = segments.base_offsets, self.current_view.opened
            for base, segment in list(opened.items()):
                if segment.size is None or base not in segments:
                    opened.pop(base, None)
            view = self.current_view = SegmentView(bases, opened)
        return view

    def segment(self, view: SegmentView, base_offset: int) -> OpenSegment:
        """The segment at `base_offset`, opened if it is not. Raises KafkaStorageError,
        SegmentRetired."""
        found = view.opened.get(base_offset)
        if found is None:
            found = self._open(view, base_offset)
        found.was_used = True
        return found

    def aborted(self, view: SegmentView, base_offset: int) -> list[AbortedTxn]:
        """The aborted transactions of a segment. Raises KafkaStorageError, SegmentRetired.

        Does not open its other files: Kafka creates indexes when they are opened.
        """
        without = self._without_aborted
        if base_offset in without and not self._files.is_closed and (
                view.base_offsets is self._segments.base_offsets or base_offset in self._segments):
            return []
        found = view.opened.get(base_offset)
        if found is not None and found.aborted is not None:
            return found.aborted
        if found is None:
            with self.locked_files(base_offset) as files:
                txn_index = files.txn_index
        else:
            txn_index = found.txn_index
        try:
            # By name and without the lock, so that no reader waits for the sync of an append.
            aborted = [AbortedTxn(*fields) for _, (_, *fields) in txn_index.read()]
        except KafkaStorageError:
            if base_offset not in self._segments:
                raise SegmentRetired(base_offset) from None
            raise
        # A segment leaves the map before its files leave the directory.
        if (view.base_offsets is not self._segments.base_offsets
                and base_offset not in self._segments):
            raise SegmentRetired(base_offset)
        if self._files.is_closed:
            self._check_kept(base_offset, found)
        if found is not None:
            found.keep_aborted(aborted)
        if not aborted and base_offset != view.active_base and len(without) < _WITHOUT_ABORTED_MAX:
            without.add(base_offset)
        return aborted

    def _check_kept(self, base_offset: int, found: OpenSegment | None) -> None:
        """Raises KafkaStorageError if the segment of a closed log is not the one that a reader has
        open: the process that has the directory now has taken its transactions along."""
        path = os.path.join(self._files.path, file_name(base_offset, FileKind.LOG))
        try:
            status = os.stat(path)
            if found is None or os.path.samestat(status, os.fstat(found.fd)):
                return
        except FileNotFoundError:
            pass
        raise closed_error(f"the log {self._files.topic_partition} is closed, and {path} is no "
                           "longer its segment")

    @contextmanager
    def locked_files(self, base_offset: int) -> Iterator[SegmentFiles]:
        """The files of a segment, checked, while this thread holds the log's lock. Raises
        SegmentRetired."""
        log, segments = self._files, self._segments
        log.ensure_checked(base_offset)
        with log.lock, public_errors(log.path):
            if base_offset not in segments:
                raise SegmentRetired(base_offset)
            files = segments.get(base_offset)
            try:
                yield files
            finally:
                segments.release(files)

    def _open(self, view: SegmentView, base_offset: int) -> OpenSegment:
        log = self._files
        with self.locked_files(base_offset) as files:
            if not log.is_closed:
                files.offset_index.open()  # as at Kafka's first lookup, which creates a missing one
            is_last = base_offset == int(self._segments.base_offsets[-1])
            mapped = 0
            if not self._depth and not log.is_closed and holds_lock(os.path.dirname(log.path)):
                mapped = files.config.segment_index_bytes if is_last else 1  # the maximum size
            try:
                reader = _open_reader(files.log_path, os.path.join(
                    log.path, files.offset_index.name), base_offset, mapped)
            except KafkaStorageError as error:
                if log.is_closed:  # the files belong to another log by now
                    raise closed_error(f"the log {log.topic_partition} is closed") from error
                raise
            segment = OpenSegment(reader, files.txn_index, None if is_last else files.size,
                                  None if is_last else files.offset_index.entries)
            if log.is_closed and not is_last:
                segment.entries = reader.index.entries
            view.opened[base_offset] = segment
            if mapped:
                self._mapped.add(segment)
        _shared.add(view.opened, segment)
        return segment

    def read_steadily(self, read: Callable[[SegmentView], _T],
                      is_sound: Callable[[int, SegmentView], bool]) -> _T:
        """The result of `read` on the log's segments, if no change of the files overlapped.

        `is_sound(generation, view)` decides that, also for exceptions of `read`. Takes no lock,
        unless files are changed repeatedly.
        """
        for _ in range(_ATTEMPTS):
            generation, view = self.generation, self.view()
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
        with self._files.lock:
            return read(self.view())


def _open_reader(log_path: str, index_path: str, base_offset: int, mapped: int) -> SegmentReader:
    try:
        return SegmentReader(log_path, index_path, base_offset, mapped=mapped)
    except KafkaStorageError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    shared_cache().evict(keep=0)
    _shared.clear()
    return SegmentReader(log_path, index_path, base_offset, mapped=mapped)
