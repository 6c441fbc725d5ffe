"""A log that is stored in an object as chunks, compressed, encrypted or both. Chunks are read ahead
and decoded in the threads that wait for requests."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Final

import numpy as np

from seglog._native.window import WindowSource
from seglog.errors import KafkaStorageError
from seglog.objects.requests import in_background, result_of
from seglog.objects.store import Block
from seglog.objects.urls import is_url
from seglog.storage.blocks import BLOCK_BYTES
from seglog.storage.remote import StoredLog
from seglog.tiered.aiven_manifest import ChunkIndex
from seglog.tiered.remote_segment import StoredObject
from seglog.tiered.remote_tree import RemoteTree

__all__ = ["ChunkedLog", "chunk_error"]

#: Bound of the decoded bytes in flight of a reader of a range.
_AHEAD_BYTES: Final = 64 << 20

#: Decodes the stored bytes of a chunk into a buffer of the chunk's size, and returns the number of
#: original bytes. Raises ValueError for bytes that were changed.
Decode = Callable[[memoryview, memoryview], int]


class ChunkedLog(StoredLog):
    """See LogFile. Chunks are fetched in runs of about 4 MiB, one request each, and the requesting
    thread decodes them.

    Raises KafkaStorageError with `position` in the object: "object_size" if the object ends before
    a chunk does, "chunk" for bytes that do not decode to the size in the index.
    """

    def __init__(self, tree: RemoteTree, stored: StoredObject, chunks: ChunkIndex,
                 decode: Decode) -> None:
        super().__init__(tree.path(stored.key), chunks.file_size)
        self._tree, self._stored, self._chunks, self._decode = tree, stored, chunks, decode
        self._run = max(1, BLOCK_BYTES // chunks.chunk_size) if chunks.chunk_size else 1

    @property
    def source(self) -> WindowSource:
        """See LogFile."""
        return WindowSource(lambda position, least: self._look(position))

    @contextmanager
    def span(self, start: int, end: int) -> Iterator[WindowSource]:
        """See LogFile."""
        ahead = self._tree.options.max_requests
        if not is_url(self._tree.root):  # only decoding takes time: 8 threads on 2 processors
            ahead = min(ahead, os.cpu_count() or 1)  # take twice as long as 2
        reader = _RunReader(self._decode_run, self._run * self._chunks.chunk_size, end, self.size,
                            ahead)
        source = WindowSource(reader.block)
        try:
            yield source
        finally:
            reader.close()
            source.close()

    def read(self, size: int, position: int) -> bytes:
        """See LogFile."""
        self._require(size, position)
        out = bytearray()
        while len(out) < size:
            start, block = self._look(position + len(out))
            skip = position + len(out) - start
            out += memoryview(block)[skip:skip + size - len(out)]
        return bytes(out)

    def _load(self, position: int) -> tuple[int, Block]:
        chunk = position // self._chunks.chunk_size
        return (chunk * self._chunks.chunk_size,
                self._decoded(chunk, chunk + 1, _buffer(self._chunks.original_size(chunk))))

    def _decode_run(self, run: int, into: memoryview) -> memoryview:
        first = run * self._run
        return self._decoded(first, min(first + self._run, self._chunks.count), into)

    def _decoded(self, first: int, end: int, into: memoryview) -> memoryview:
        """The original bytes of chunks [first, end) in `into`, with one request."""
        positions = self._chunks.positions
        start = positions[first]
        if positions[end] > self._stored.version.size:
            raise chunk_error(self.path, start, "object_size",
                              f"the manifest says that its chunk {end - 1} ends at byte "
                              f"{positions[end]}, the object has {self._stored.version.size}",
                              positions[end], self._stored.version.size)
        data = memoryview(self._tree.read(self._stored.key, start, positions[end],
                                          self._stored.version)).cast("B")
        size = 0
        for chunk in range(first, end):
            expected = self._chunks.original_size(chunk)
            self._decode_chunk(chunk, data[positions[chunk] - start:positions[chunk + 1] - start],
                               into[size:size + expected])
            size += expected
        if not first and self.check_start is not None:
            self.check_start(into[:size])
        return into[:size]

    def _decode_chunk(self, chunk: int, data: memoryview, into: memoryview) -> None:
        try:
            found = self._decode(data, into)
        except ValueError as error:
            raise chunk_error(self.path, self._chunks.positions[chunk], "chunk",
                              f"chunk {chunk} does not decode: {error}") from None
        if found != len(into):
            raise chunk_error(self.path, self._chunks.positions[chunk], "chunk",
                              f"chunk {chunk} has {found} bytes, the manifest says {len(into)}",
                              len(into), found)


class _RunReader:
    """Runs of chunks in order for one reader, requested ahead. For one thread.

    Buffers are used again: to touch the pages of a new one takes as long as to decompress into it.
    """

    def __init__(self, decode: Callable[[int, memoryview], memoryview], run_bytes: int, end: int,
                 size: int, ahead_max: int) -> None:
        self._decode, self._bytes, self._end = decode, run_bytes, min(end, size)
        self._buffer_bytes = min(run_bytes, size)
        self._ahead = max(1, min(ahead_max, _AHEAD_BYTES // max(1, run_bytes)))
        self._wanted: dict[int, tuple[Future[memoryview], memoryview]] = {}
        self._spare: list[memoryview] = []
        self._left: list[memoryview] = []  # the reader may still hold these

    def block(self, position: int, least: int) -> tuple[int, Block]:
        """The run that holds a position, and its first byte. It stays valid up to the next call
        but one."""
        if position >= self._end:
            return position, b""
        run = position // self._bytes
        self._spare += self._left
        self._left.clear()
        for old in [one for one in self._wanted if not run <= one < run + self._ahead]:
            future, buffer = self._wanted.pop(old)
            if future.done() or future.cancel():  # else a thread still writes into it
                self._left.append(buffer)
        for one in range(run, min(run + self._ahead, -(-self._end // self._bytes))):
            if one not in self._wanted:
                buffer = self._spare.pop() if self._spare else _buffer(self._buffer_bytes)
                self._wanted[one] = in_background(partial(self._decode, one, buffer)), buffer
        return run * self._bytes, result_of(self._wanted[run][0])

    def close(self) -> None:
        """Drops requested runs that are not needed."""
        for future, _ in self._wanted.values():
            future.cancel()
        self._wanted.clear()


def _buffer(size: int) -> memoryview:
    """Bytes that are not zeroed."""
    return np.empty(size, np.uint8).data


def chunk_error(path: str, position: int, code: str, reason: str, expected: object = None,
                found: object = None) -> KafkaStorageError:
    """The error for an object whose bytes contradict its manifest."""
    return KafkaStorageError(errno.EIO, f"{reason} (at byte {position})", path, position=position,
                             expected=expected, found=found, code=code)
