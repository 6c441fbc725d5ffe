"""A cache of remote segments' indexes in local files, bounded in size (Kafka: RemoteIndexCache)."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import stat
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from seglog._native.index import IndexReader, read_aborted
from seglog.errors import (
    CorruptIndexError, IllegalStateError, KafkaStorageError, RemoteResourceNotFoundError,
    SeglogError, storage_errors,
)
from seglog.forks import ProcessBound, ending
from seglog.log.scheduler import Time
from seglog.model import AbortedTxn
from seglog.storage.meta import format_uuid, parse_uuid
from seglog.storage.paths import REMOTE_LOG_INDEX_CACHE
from seglog.storage.textfile import remove_path
from seglog.storage.txn_entries import search_ends, to_aborted_txns
from seglog.tiered.remote_records import RemoteLogSegmentMetadata
from seglog.tiered.remote_storage import IndexType, RemoteStorageManager

__all__ = ["RemoteIndexCache", "RemoteIndexes"]

_logger = logging.getLogger(__name__)

_SUFFIXES: Final = {IndexType.OFFSET: ".index", IndexType.TIMESTAMP: ".timeindex",
                    IndexType.TRANSACTION: ".txnindex"}
_LEFT_OVERS: Final = (".tmp", ".deleted")
_ENTRY_BYTES: Final = {IndexType.OFFSET: 8, IndexType.TIMESTAMP: 12, IndexType.TRANSACTION: 34}
#: Segments whose indexes are open, with two descriptors each. Of small segments the cache has
#: thousands.
_OPEN_MAX: Final = 32


class RemoteIndexes:
    """The indexes of one remote segment. They stay usable after the cache has deleted the files."""

    def __init__(self, paths: dict[IndexType, str], base_offset: int) -> None:
        """Raises CorruptIndexError for a file that is not an index of a segment with this base
        offset, KafkaStorageError for one that cannot be read."""
        self.paths, self.base_offset = paths, base_offset
        self.size = 0
        for kind, path in paths.items():
            size = _file_size(path)
            self.size += size
            if size % _ENTRY_BYTES[kind]:
                raise CorruptIndexError(
                    f"{path}: {size} bytes are not a multiple of {_ENTRY_BYTES[kind]}",
                    file=path, position=size - size % _ENTRY_BYTES[kind])
        self.offsets = IndexReader(paths[IndexType.OFFSET], base_offset)
        self.times = IndexReader(paths[IndexType.TIMESTAMP], base_offset, times=True)
        # A store may send 1 GiB: rows, of which a fetch makes objects of those that it needs.
        self._aborted = read_aborted(paths[IndexType.TRANSACTION])

    def position_of(self, offset: int) -> int:
        """The byte of the log at which a search for an offset begins."""
        return max(self.offsets.lookup(offset)[1], 0)

    def offset_at(self, timestamp_ms: int, start_offset: int) -> int:
        """The offset at which a search for a time begins."""
        return max(self.times.lookup(timestamp_ms)[1], start_offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions that may have records in `[start_offset, end_offset)`, and
        whether no later entry, of this or the next segment, can be of another one."""
        ends = np.flatnonzero(search_ends(self._aborted, end_offset))
        known = self._aborted[:ends[0] + 1] if len(ends) else self._aborted
        return to_aborted_txns(known[(known["last_offset"] >= start_offset)
                                     & (known["first_offset"] < end_offset)]), len(ends) > 0


class _Stored(NamedTuple):
    """The files of an entry."""

    paths: dict[IndexType, str]
    base_offset: int
    size: int


class RemoteIndexCache(ProcessBound):
    """The most recently used indexes, in `remote-log-index-cache` of a data directory.

    Files are named `<start offset>_<segment id>` with the suffix of their kind, as in Kafka. The
    sum of their sizes is at most `size_max`, unless a single entry is larger. An entry that was not
    used for `ttl_ms` is deleted too (-1 or 0: by size alone). A start keeps complete entries and
    deletes the remains of downloads and deletions. Links, pipes and empty directories in the place
    of a file are deleted too; a directory that holds something stays, and the file keeps another
    name until the next start. Safe from any thread: two threads that need the same segment download
    it once.
    """

    def __init__(self, log_dir: str, storage: RemoteStorageManager, size_max: int, ttl_ms: int,
                 time: Time) -> None:
        self.path = os.path.join(log_dir, REMOTE_LOG_INDEX_CACHE)
        self._storage, self._size_max = storage, size_max
        self._ttl_ms, self._time = ttl_ms, time
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, _Stored] = OrderedDict()
        self._open: OrderedDict[bytes, RemoteIndexes] = OrderedDict()
        self._used_ms: dict[bytes, int] = {}
        self._loading: dict[bytes, threading.Lock] = {}
        self._removed: set[bytes] = set()  # of those that are loading
        self.size = 0  # bytes of all files
        self._is_closed = False
        with storage_errors(self.path):
            os.makedirs(self.path, exist_ok=True)
            self._take_over()

    def _take_over(self) -> None:
        """Loads the entries of an earlier process. What cannot be deleted is logged, and stays."""
        stems: dict[str, set[str]] = {}
        for name in sorted(os.listdir(self.path)):
            if name.endswith(_LEFT_OVERS):
                _delete([os.path.join(self.path, name)])
            else:
                stem, suffix = os.path.splitext(name)
                stems.setdefault(stem, set()).add(suffix)
        for stem, suffixes in stems.items():
            try:
                if suffixes != set(_SUFFIXES.values()):
                    raise ValueError("incomplete")
                start, segment_id = _parsed(stem)
                if segment_id in self._entries:
                    raise ValueError("the segment has other files")
                indexes = RemoteIndexes(self._paths(stem), start)
            except (SeglogError, ValueError) as error:
                _logger.info("Deleting the stored index files of %s: %s", stem, error)
                _delete(os.path.join(self.path, stem + suffix) for suffix in suffixes)
                continue
            self._put(segment_id, indexes)

    def _paths(self, stem: str) -> dict[IndexType, str]:
        return {kind: os.path.join(self.path, stem + suffix)
                for kind, suffix in _SUFFIXES.items()}

    # ---- use

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, segment_id: bytes) -> bool:
        return segment_id in self._entries

    def get(self, segment: RemoteLogSegmentMetadata) -> RemoteIndexes:
        """The indexes of a segment, downloaded if they are not cached. Raises the storage's
        exceptions, CorruptIndexError, KafkaStorageError, and IllegalStateError after `close`."""
        segment_id = segment.remote_log_segment_id.id
        while True:
            with self._lock:
                found = self._use(segment)
                if found is not None:
                    return found
                own = self._loading.setdefault(segment_id, threading.Lock())
            with own:
                with self._lock:
                    if self._loading.get(segment_id) is not own:
                        continue  # another thread's download ended, perhaps with an error
                try:
                    found = self._download(segment)
                    with self._lock:
                        if segment_id in self._removed:
                            _delete(found.paths.values())
                        else:
                            self._put(segment_id, found)
                    return found
                finally:
                    with self._lock:
                        self._loading.pop(segment_id, None)
                        self._removed.discard(segment_id)

    def _use(self, segment: RemoteLogSegmentMetadata) -> RemoteIndexes | None:
        if self._is_closed:
            raise IllegalStateError("Instance is already closed.")
        self._expire()
        segment_id = segment.remote_log_segment_id.id
        found = self._entries.get(segment_id)
        if found is None:
            return None
        if found.base_offset != segment.start_offset:
            self._drop(segment_id)  # files of an earlier process, under another offset
            return None
        self._entries.move_to_end(segment_id)
        self._used_ms[segment_id] = self._time.milliseconds()
        return self._opened(segment_id, found)

    def _opened(self, segment_id: bytes, stored: _Stored) -> RemoteIndexes | None:
        """None if another program has changed or deleted the files: the entry is dropped."""
        indexes = self._open.get(segment_id)
        if indexes is None:
            try:
                indexes = RemoteIndexes(stored.paths, stored.base_offset)
            except SeglogError as error:
                if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                    raise
                _logger.info("Deleting the stored index files of %d: %s", stored.base_offset, error)
            if indexes is None or indexes.size != stored.size:
                self._drop(segment_id)
                return None
        self._keep_open(segment_id, indexes)
        return indexes

    def _keep_open(self, segment_id: bytes, indexes: RemoteIndexes) -> None:
        self._open[segment_id] = indexes
        self._open.move_to_end(segment_id)
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)

    def _download(self, segment: RemoteLogSegmentMetadata) -> RemoteIndexes:
        segment_id = segment.remote_log_segment_id
        paths = self._paths(f"{segment.start_offset}_{format_uuid(uuid.UUID(bytes=segment_id.id))}")
        made = []
        try:
            for kind, path in paths.items():
                # A new name each time: a link, a pipe or a directory may have a known one.
                made.append(loaded := f"{path}.{secrets.token_hex(8)}.tmp")
                with storage_errors(path), open(loaded, "xb") as file:
                    try:
                        with self._storage.fetch_index(segment, kind) as stream:
                            shutil.copyfileobj(stream, file)
                        file.flush()
                        os.fsync(file.fileno())  # a name stands for its content, also to a start
                    except RemoteResourceNotFoundError:
                        if kind is not IndexType.TRANSACTION:
                            raise
                with storage_errors(path):
                    paths[kind] = _moved(loaded, path)
                made[-1] = paths[kind]
            return RemoteIndexes(paths, segment.start_offset)
        except BaseException:
            _delete(made)
            raise

    # ---- bounds

    def _put(self, segment_id: bytes, indexes: RemoteIndexes) -> None:
        self._entries[segment_id] = _Stored(indexes.paths, indexes.base_offset, indexes.size)
        self._keep_open(segment_id, indexes)
        self._used_ms[segment_id] = self._time.milliseconds()
        self.size += indexes.size
        while self.size > self._size_max and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _expire(self) -> None:
        if self._ttl_ms <= 0:
            return
        limit = self._time.milliseconds() - self._ttl_ms
        while self._entries and self._used_ms[oldest := next(iter(self._entries))] < limit:
            self._drop(oldest)

    def _drop(self, segment_id: bytes) -> None:
        """Deletes the files of an entry; readers that have it keep its descriptors."""
        gone = self._entries.pop(segment_id)
        self._open.pop(segment_id, None)
        del self._used_ms[segment_id]
        self.size -= gone.size
        _delete(gone.paths.values())

    def resize(self, size_max: int) -> None:
        """Sets another bound (`remote.log.index.file.cache.total.size.bytes`)."""
        with self._lock:
            self._size_max = size_max
            while self.size > size_max and self._entries:
                self._drop(next(iter(self._entries)))

    def remove_all(self, segment_ids: Iterable[bytes]) -> None:
        """Removes deleted segments. The files of a download that is under way are deleted when it
        ends."""
        with self._lock:
            for segment_id in segment_ids:
                if segment_id in self._loading:
                    self._removed.add(segment_id)
                if segment_id in self._entries:
                    self._drop(segment_id)

    @ending
    def close(self) -> None:
        """Keeps the files for the next start. A second call does nothing."""
        with self._lock:
            self._is_closed = True
            self._entries.clear()
            self._open.clear()
            self._used_ms.clear()


def _parsed(stem: str) -> tuple[int, bytes]:
    """Start offset and segment id of a name. ValueError for one that no cache writes."""
    start, _, text = stem.partition("_")
    segment_id = parse_uuid(text)
    if f"{int(start)}_{format_uuid(segment_id)}" != stem or not 0 <= int(start) < 1 << 63:
        raise ValueError("not the name of an index")
    return int(start), segment_id.bytes


def _file_size(path: str) -> int:
    """Raises KafkaStorageError also for what is no file: an open of a named pipe would wait, and
    the cache makes no links."""
    with storage_errors(path):
        status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise KafkaStorageError(errno.EINVAL, "not a file", path)
    return status.st_size


def _moved(source: str, target: str) -> str:
    """Renames a file and returns its name: the old one if a directory that holds something, which
    the cache did not make, has the new one."""
    try:
        os.replace(source, target)
    except IsADirectoryError:
        _delete([target])
        if os.path.isdir(target):
            return source
        os.replace(source, target)
    return target


def _delete(paths: Iterable[str]) -> None:
    """Deletes files, links and empty directories."""
    for path in paths:
        try:
            remove_path(path)
        except FileNotFoundError:
            continue
        except OSError as error:  # the next start tries again
            _logger.warning("Cannot delete %s: %s", path, error)
