"""A log that is stored in an object as chunks, compressed, encrypted or both. Chunks are read ahead
and decoded in the threads that wait for requests."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Final

from seglog._native.status import Status, status_error
from seglog._native.window import WindowSource
from seglog.errors import KafkaStorageError
from seglog.forks import SurvivesFork
from seglog.objects.requests import in_background
from seglog.objects.store import Block
from seglog.objects.urls import is_url
from seglog.storage.blocks import BLOCK_BYTES
from seglog.tiered.aiven_manifest import ChunkIndex
from seglog.tiered.remote_segment import StoredObject
from seglog.tiered.remote_tree import RemoteTree

__all__ = ["ChunkedLog", "chunk_error"]

#: Bound of the decoded bytes in flight of a reader of a range.
_AHEAD_BYTES: Final = 64 << 20
_RUNS_KEPT: Final = 2

#: The original bytes of a chunk: (stored bytes, their count when they are decoded).
Decode = Callable[[memoryview, int], Block]


class ChunkedLog(SurvivesFork):
    """See LogFile. Chunks are fetched in runs of about 4 MiB, one request each, and the requesting
    thread decodes them.

    Raises KafkaStorageError with `position` in the object: "object_size" if the object ends before
    a chunk does, "chunk" for bytes that do not decode to the size in the index.
    """

    def __init__(self, tree: RemoteTree, stored: StoredObject, chunks: ChunkIndex,
                 decode: Decode) -> None:
        self.path, self.size = tree.path(stored.key), chunks.file_size
        self._tree, self._stored, self._chunks, self._decode = tree, stored, chunks, decode
        self._run = max(1, BLOCK_BYTES // chunks.chunk_size) if chunks.chunk_size else 1
        self._kept: OrderedDict[int, Block] = OrderedDict()

    @property
    def source(self) -> WindowSource:
        """See LogFile."""
        return WindowSource(lambda position, least: self._here(position))

    @contextmanager
    def span(self, start: int, end: int) -> Iterator[WindowSource]:
        """See LogFile."""
        ahead = self._tree.options.max_requests
        if not is_url(self._tree.root):  # only decoding takes time: 8 threads on 2 processors
            ahead = min(ahead, os.cpu_count() or 1)  # take twice as long as 2
        reader = _RunReader(self._runs, self._run * self._chunks.chunk_size, min(end, self.size),
                            ahead)
        source = WindowSource(reader.block)
        try:
            yield source
        finally:
            reader.close()
            source.close()

    def read(self, size: int, position: int) -> bytes:
        """See LogFile."""
        if position < 0 or size > self.size - position:
            raise status_error(Status.FILE_SHRANK, file=self.path, position=max(0, position),
                               expected=size, found=max(0, self.size - position))
        out = bytearray()
        while len(out) < size:
            start, block = self._here(position + len(out))
            skip = position + len(out) - start
            out += memoryview(block)[skip:skip + size - len(out)]
        return bytes(out)

    def close(self) -> None:
        """See LogFile: drops cached chunks."""
        with self._lock:
            self._kept.clear()

    def _here(self, position: int) -> tuple[int, Block]:
        """One chunk, cached for the next read."""
        if position >= self.size:
            return position, b""
        chunk = position // self._chunks.chunk_size
        start = chunk * self._chunks.chunk_size
        with self._lock:
            block = self._kept.get(chunk)
            if block is not None:
                self._kept.move_to_end(chunk)
                return start, block
        block = self._decoded(chunk, chunk + 1)
        with self._lock:
            self._kept[chunk] = block
            while len(self._kept) > _RUNS_KEPT:
                self._kept.popitem(last=False)
        return start, block

    def _runs(self, run: int) -> Block:
        first = run * self._run
        return self._decoded(first, min(first + self._run, self._chunks.count))

    def _decoded(self, first: int, end: int) -> Block:
        """The original bytes of chunks [first, end), with one request."""
        positions = self._chunks.positions
        start = positions[first]
        if positions[end] > self._stored.version.size:
            raise chunk_error(self.path, start, "object_size",
                              f"the manifest says that its chunk {end - 1} ends at byte "
                              f"{positions[end]}, the object has {self._stored.version.size}",
                              positions[end], self._stored.version.size)
        data = memoryview(self._tree.read(self._stored.key, start, positions[end],
                                          self._stored.version)).cast("B")
        parts = [self._chunk(chunk, data[positions[chunk] - start:positions[chunk + 1] - start])
                 for chunk in range(first, end)]
        return parts[0] if len(parts) == 1 else b"".join(memoryview(part) for part in parts)

    def _chunk(self, chunk: int, data: memoryview) -> Block:
        expected = self._chunks.original_size(chunk)
        try:
            found = self._decode(data, expected)
        except ValueError as error:
            raise chunk_error(self.path, self._chunks.positions[chunk], "chunk",
                              f"chunk {chunk} does not decode: {error}") from None
        if len(found) != expected:
            raise chunk_error(self.path, self._chunks.positions[chunk], "chunk",
                              f"chunk {chunk} has {len(found)} bytes, the manifest says {expected}",
                              expected, len(found))
        return found


class _RunReader:
    """Runs of chunks in order for one reader, requested ahead. For one thread."""

    def __init__(self, runs: Callable[[int], Block], run_bytes: int, end: int, ahead_max: int
                 ) -> None:
        self._runs, self._bytes, self._end = runs, run_bytes, end
        self._ahead = max(1, min(ahead_max, _AHEAD_BYTES // max(1, run_bytes)))
        self._wanted: dict[int, Future[Block]] = {}

    def block(self, position: int, least: int) -> tuple[int, Block]:
        """The run that holds a position, and its first byte."""
        if position >= self._end:
            return position, b""
        run = position // self._bytes
        for old in [one for one in self._wanted if not run <= one < run + self._ahead]:
            self._wanted.pop(old).cancel()
        for one in range(run, min(run + self._ahead, -(-self._end // self._bytes))):
            if one not in self._wanted:
                self._wanted[one] = in_background(partial(self._runs, one))
        return run * self._bytes, self._wanted[run].result()

    def close(self) -> None:
        """Drops requested runs that are not needed."""
        for future in self._wanted.values():
            future.cancel()
        self._wanted.clear()


def chunk_error(path: str, position: int, code: str, reason: str, expected: object = None,
                found: object = None) -> KafkaStorageError:
    """The error for an object whose bytes contradict its manifest."""
    error = KafkaStorageError(errno.EIO, f"{reason} (at byte {position})", path)
    error.file, error.position, error.code = path, position, code
    error.expected, error.found = expected, found
    return error
