"""Logs in an object store: reads listings, indexes and small files whole, log files in ranges.

Nothing is copied to a local file, and memory is bounded: a reader of a range holds `max_requests`
blocks, and an open log keeps a few small blocks for random access.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from seglog._native.index import read_aborted
from seglog._native.scan import PartitionListing, list_names
from seglog._native.status import Status, status_error
from seglog._native.window import WindowSource
from seglog.errors import KafkaStorageError
from seglog.forks import SurvivesFork
from seglog.objects.store_options import StorageOptions
from seglog.objects.requests import Requests
from seglog.objects.store import Block, ObjectVersion, open_store
from seglog.objects.urls import parse_url
from seglog.storage.blocks import BLOCK_BYTES, BlockReader
from seglog.storage.log_store import CheckStart, IndexView, Stamp
from seglog.storage.paths import FileKind

__all__ = ["RemoteFiles", "RemoteLog", "StoredLog"]

#: Larger than any index that Kafka fills, because objects in a bucket may have any size.
_INDEX_BYTES_MAX: Final = 1 << 30
#: For random access: bytes per request, how much of them precede the requested byte (a check of an
#: index entry walks from the entry before), and how many blocks are kept. A smaller request is
#: hardly faster: its latency equals the transfer of some 100 KiB.
_LOOK_BYTES, _LOOK_BEFORE, _LOOKS_KEPT = 256 * 1024, 64 * 1024, 2


class RemoteFiles(SurvivesFork):
    """The objects of the container that a URL names. For any thread. Its pickle holds the options,
    which may be secrets."""

    range_factor = 8

    def __init__(self, url: str, options: StorageOptions) -> None:
        self._root, self._options = parse_url(url).root, options
        self._made: tuple[int, Requests] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling creates a new client."""
        return (type(self), (self._root, self._options))

    def __repr__(self) -> str:
        return f"RemoteFiles({self._root!r})"

    @property
    def requests(self) -> Requests:
        """The store's client; a forked child creates its own."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), Requests(open_store(self._root, self._options),
                                                    self._options))
            return self._made[1]

    def _key(self, path: str) -> str:
        if not path.startswith(self._root):
            raise ValueError(f"{path} is not below {self._root}")
        return path[len(self._root):].strip("/")

    def _list(self, path: str) -> tuple[dict[str, ObjectVersion], list[str]]:
        objects, prefixes = self.requests.list(self._key(path), path)
        if not objects and not prefixes:
            raise KafkaStorageError(errno.ENOENT, "no such directory: there is no object below "
                                    "this URL", path)
        return objects, prefixes

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """See Files."""
        objects, prefixes = self._list(path)
        return [*((name, False) for name in objects), *((name, True) for name in prefixes)]

    def listing(self, path: str) -> tuple[PartitionListing, Mapping[str, ObjectVersion]]:
        """See Files."""
        objects, _ = self._list(path)
        return list_names(path, objects), objects

    def names(self) -> Mapping[tuple[int, FileKind], str]:
        """See Files: none."""
        return {}

    def stamp(self, directory: str, file: str | None) -> Stamp:
        """See Files: one list request, which has the file too."""
        objects, _ = self._list(directory)
        newest = max((one.modified_ms or 0 for one in objects.values() if one.etag is None),
                     default=None)
        return Stamp(tuple(sorted((name, *one) for name, one in objects.items())),
                     None if newest is None else newest * 1_000_000)

    def state(self, path: str) -> Hashable | None:
        """See Files."""
        try:
            return self.requests.version(self._key(path), path)
        except KafkaStorageError as error:
            if error.code == "file_missing":
                return None
            raise

    def open_log(self, path: str, version: ObjectVersion | None) -> RemoteLog:
        """See Files. Without a listed version this is a request."""
        requests, key = self.requests, self._key(path)
        return RemoteLog(path, key, version or requests.version(key, path), requests,
                         self._options.max_requests)

    def index(self, view: type[IndexView], path: str, base_offset: int) -> IndexView:
        """See Files."""
        return view(path, base_offset, fetch=partial(self._index, path))

    def aborted(self, path: str) -> npt.NDArray[np.void]:
        """See Files."""
        found = self._index_or_none(path)
        if found is None:
            raise status_error(Status.FILE_MISSING, file=path)
        return read_aborted(path, found)

    def _index(self, path: str) -> Block:
        found = self._index_or_none(path)
        return b"" if found is None else found  # same as for a missing file

    def _index_or_none(self, path: str) -> Block | None:
        found = self.requests.beginning(self._key(path), path, _INDEX_BYTES_MAX)
        if found is None:
            return None
        content, size = found
        if size > _INDEX_BYTES_MAX:
            raise status_error(Status.FILE_TOO_LARGE, file=path, expected=_INDEX_BYTES_MAX,
                               found=size)
        return content

    def beginning(self, path: str, bytes_max: int) -> tuple[bytes, int] | None:
        """See Files."""
        found = self.requests.beginning(self._key(path), path, bytes_max)
        return None if found is None else (bytes(memoryview(found[0])), found[1])


class StoredLog(SurvivesFork):
    """The log file of an object: a LogFile that keeps a few blocks for random access.

    `check_start` gets the block with the log's first byte each time that it was fetched, and raises
    if these are not the bytes of the log.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self._kept: OrderedDict[int, Block] = OrderedDict()  # by their first byte
        self.check_start: CheckStart | None = None

    def close(self) -> None:
        """See LogFile: drops the kept blocks."""
        with self._lock:
            self._kept.clear()

    def _require(self, size: int, position: int) -> None:
        """Raises KafkaStorageError if the log has no such bytes."""
        if position < 0 or size > self.size - position:
            raise status_error(Status.FILE_SHRANK, file=self.path, position=max(0, position),
                               expected=size, found=max(0, self.size - position))

    def _load(self, position: int) -> tuple[int, Block]:
        """Fetches a small block around a position, and says where it begins."""
        raise RuntimeError("a log is of one kind or the other")

    def _look(self, position: int) -> tuple[int, Block]:
        """A small block around a position, kept for the next read; none at the end."""
        start, block = self._kept_at(position)
        if len(block) or position >= self.size:
            return start, block
        start, block = self._load(position)
        with self._lock:
            self._kept[start] = block
            while len(self._kept) > _LOOKS_KEPT:
                self._kept.popitem(last=False)
        return start, block

    def _kept_at(self, position: int) -> tuple[int, Block]:
        """The kept block around a position, if there is one."""
        with self._lock:
            for start, block in self._kept.items():
                if start <= position < start + len(block):
                    self._kept.move_to_end(start)
                    return start, block
        return position, b""


class RemoteLog(StoredLog):
    """One version of a log's object."""

    def __init__(self, path: str, key: str, version: ObjectVersion, requests: Requests,
                 requests_max: int) -> None:
        super().__init__(path, version.size)
        self._key, self._version, self._requests = key, version, requests
        self._requests_max, self._spans = requests_max, 0

    @property
    def source(self) -> WindowSource:
        """See LogFile. Begins with one small block, and reads more at a time if the reader
        continues."""
        reader = BlockReader(self._fetch, self.size, self._requests_max,
                             first_bytes=_LOOK_BYTES, look=self._look)
        return WindowSource(reader.block)

    @contextmanager
    def span(self, start: int, end: int) -> Iterator[WindowSource]:
        """See LogFile: as many blocks ahead of the reader as it takes not to wait."""
        with self._lock:
            self._spans += 1
            # Threads that read the same log share its requests.
            ahead_max = max(1, self._requests_max // self._spans)
        reader = BlockReader(self._fetch, end, ahead_max, first_bytes=BLOCK_BYTES)
        source = WindowSource(reader.block)
        try:
            reader.begin(start)
            yield source
        finally:
            reader.close()
            source.close()
            with self._lock:
                self._spans -= 1

    def read(self, size: int, position: int) -> bytes:
        """See LogFile."""
        self._require(size, position)
        is_small = size <= _LOOK_BYTES - _LOOK_BEFORE
        start, look = self._look(position) if is_small else self._kept_at(position)
        if position + size <= start + len(look):
            return bytes(memoryview(look)[position - start:position - start + size])
        return bytes(memoryview(self._fetch(position, position + size)))

    def _fetch(self, start: int, end: int) -> Block:
        block = self._requests.read(self._key, start, end, self._version, self.path)
        if not start and self.check_start is not None:
            self.check_start(memoryview(block).cast("B"))
        return block

    def _load(self, position: int) -> tuple[int, Block]:
        start = max(0, position - _LOOK_BEFORE)
        return start, self._fetch(start, min(self.size, start + _LOOK_BYTES))
