"""Decodes record batches in memory: a column of bytes, a message or a copied file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from seglog._native.batch import find_batch, scan_file
from seglog._native.columns import ColumnPool, RecordColumns
from seglog._native.status import Status
from seglog.errors import CorruptDataError, CorruptRecordError
from seglog.storage.ranges import LogRange
from seglog.storage.stream import DecodeOptions

__all__ = ["BadBytes", "decode_chunk"]


@dataclass(frozen=True, slots=True)
class BadBytes:
    """Bytes [start, end) of a chunk that are not a valid batch, and why."""

    start: int
    end: int
    error: CorruptDataError


def decode_chunk(data: Any, options: DecodeOptions | None = None, *, name: str = "chunk",
                 on_bad: Callable[[BadBytes], None] | None = None) -> Iterator[RecordColumns]:
    """Yields the records of consecutive batches in `data` (a bytes-like object).

    Unlike in a log, offsets may restart at each batch: producers number each from 0. Zeros at the
    end are skipped, as in a preallocated segment. After the records before any other invalid
    bytes, including a torn last batch, raises CorruptDataError, which calls the chunk `name`. With
    `on_bad` calls that instead and continues at the next valid batch.
    """
    asked = options or DecodeOptions()
    view = memoryview(data).cast("B")
    with _as_file(view) as fd:
        position, pool = 0, ColumnPool()
        while position < len(view):
            bad, position = yield from _sound(fd, position, len(view), asked, pool, name)
            if bad is None:
                continue
            if on_bad is None:
                raise bad
            end = _next(fd, position, len(view))
            on_bad(BadBytes(position, end, bad))
            position = end


def _sound(fd: int, start: int, end: int, options: DecodeOptions, pool: ColumnPool, name: str
           ) -> Generator[RecordColumns, None, tuple[CorruptDataError | None, int]]:
    """Yields columns up to the first bad bytes; returns (error, position)."""
    decoder = options.decoder(fd, LogRange(name, 0, start, end, 0, None, end, 0), pool)
    try:
        yield from decoder
    except CorruptDataError as error:
        position = decoder.position
        if error.code == Status.BATCH_OFFSET_ORDER.code and position > start:
            return None, position  # valid by itself: a new decoder starts here
        return error, position
    if decoder.status == Status.TORN_TAIL:
        position = decoder.position
        return CorruptRecordError(
            f"{name}: byte {position}: the last batch is torn: {end - position} bytes are left",
            file=name, position=position, code=Status.TORN_TAIL.code), position
    return None, end


def _next(fd: int, position: int, end: int) -> int:
    """The position of the next batch after the bad one at `position`, or `end`."""
    scan = scan_file(fd, position, end, strict=True, max_batches=1)
    if scan.next_position is not None and scan.next_position > position and \
            _may_begin(fd, scan.next_position, end):
        return min(scan.next_position, end)
    if scan.batch_count and scan.position > position:
        return scan.position  # a valid batch with invalid records
    found = find_batch(fd, position + 1, end, end)
    return end if found is None else found


def _may_begin(fd: int, position: int, end: int) -> bool:
    """Whether a length that leads to a position can be true: it leads to a batch's header, to zeros
    or to the end. That of a batch that was cut ends in the middle of a later one."""
    scan = scan_file(fd, position, end, check_crcs=False, max_batches=1)
    return position >= end or scan.batch_count == 1 or scan.status == Status.ZERO_TAIL


@contextmanager
def _as_file(view: memoryview) -> Iterator[int]:
    """The descriptor of an anonymous file with these bytes, because the decoder uses pread."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("seglog-chunk", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        written = 0
        while written < len(view):
            written += os.write(fd, view[written:])
        yield fd
    finally:
        os.close(fd)
