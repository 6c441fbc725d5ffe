"""Batches as a log holds them: their headers one by one, and whole ones as a fetch gives them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from seglog._native.batch import (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL, BatchColumns, scan, scan_file,
)
from seglog._native.status import Status, status_error
from seglog.model import AbortedTxn
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.log_store import Readable
from seglog.storage.ranges import LogGap, LogRange, check_torn
from seglog.storage.segment import LogSegment, offset_disorder

__all__ = ["BatchFlags", "BatchHeader", "FetchData", "header_columns", "read_batches",
           "read_headers"]

_CHUNK = 16384
_CHUNK_BYTES = 8 << 20
#: Headers alone come in larger chunks: each costs numpy a third of a millisecond. Of a file that is
#: not cached, headers 16 KiB apart take the disk many times as long one by one as with the bytes
#: between them, which are read ahead; of a cached one a GiB of them takes 60 ms.
_HEADER_CHUNKS = 8
#: Linux reads ahead no more than the device takes at a time, whatever one call asks for.
_ADVICE_BYTES = 1 << 20


class BatchFlags:
    """What the attributes of a batch say: of a row of BATCH_DTYPE in any form."""

    __slots__ = ()

    if TYPE_CHECKING:
        @property
        def attributes(self) -> int:
            """Of the batch."""

        @property
        def magic(self) -> int:
            """Of the batch."""

        @property
        def base_timestamp(self) -> int:
            """Of the batch."""

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction; its marker too."""
        return self.magic >= 2 and bool(self.attributes & ATTRIBUTE_TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """A marker, or a control batch of a Raft log."""
        return self.magic >= 2 and bool(self.attributes & ATTRIBUTE_CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of this batch; None where it set no horizon."""
        has_horizon = self.magic >= 2 and self.attributes & ATTRIBUTE_DELETE_HORIZON
        return self.base_timestamp if has_horizon else None


class _HeaderFields(NamedTuple):
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    position: int
    size: int
    partition_leader_epoch: int
    base_sequence: int
    record_count: int
    crc: int
    attributes: int
    producer_epoch: int
    magic: int
    file: str


class BatchHeader(_HeaderFields, BatchFlags):
    """One batch of a log; for magic 0 and 1 one message, or the wrapper of several.

    There the stored offset is both base and last offset (a wrapper's is its last one's),
    `record_count` is -1 for a wrapper, and what the old formats lack is -1. Timestamps are ms;
    `position` and `size` are bytes of `file`.
    """

    __slots__ = ()

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.last_offset + 1

    @property
    def compression_type(self) -> str:
        """none, gzip, snappy, lz4 or zstd; the number as text for bits that name no codec."""
        codec = self.attributes & ATTRIBUTE_CODEC
        return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else str(codec)

    @property
    def timestamp_type(self) -> int:
        """-1 none (magic 0), 0 create time, 1 log append time."""
        return -1 if self.magic == 0 else int(bool(self.attributes & ATTRIBUTE_LOG_APPEND_TIME))


def header_columns(planned: LogRange, opened: Callable[[str], AbstractContextManager[Readable]],
                   check_crcs: bool) -> Generator[BatchColumns, None, tuple[int, str]]:
    """The batches of one range that hold its offsets, thousands at a time, then the typed error
    that ended it. Returns the byte where it ended, and the name of the scan's status.

    Without `check_crcs` headers alone are read: a pread of each, past its records.
    """
    position, previous = planned.start, planned.start_offset - 1
    next_offset = planned.base_offset
    while True:
        with opened(planned.file) as handle:
            size = _CHUNK_BYTES
            if not check_crcs and isinstance(handle.source, int):
                size *= _HEADER_CHUNKS
                if not _is_cached(handle.source, position, planned.end):
                    _read_ahead(handle.source, position, min(size, planned.end - position))
            found = scan_file(handle.source, position, planned.end, check_crcs=check_crcs,
                              max_batches=_CHUNK, until=position + size)
        batches, error = found.batches, None
        row = offset_disorder(batches, next_offset)
        if row is not None:
            least = int(batches["last_offset"][row - 1]) + 1 if row else next_offset
            error = status_error(
                Status.BATCH_OFFSET_ORDER, file=planned.file,
                position=int(batches["position"][row]), expected=least,
                found=int(batches["base_offset"][row]))
            batches = batches[:row]
        if len(batches):
            next_offset = int(batches["last_offset"][-1]) + 1
        batches = batches[batches["last_offset"] >= planned.start_offset]
        is_over = False
        if planned.end_offset is not None:
            beyond = np.flatnonzero(_first_offsets(batches, previous) >= planned.end_offset)
            is_over = len(beyond) > 0
            batches = batches[:beyond[0]] if is_over else batches
        if len(batches):
            previous = int(batches["last_offset"][-1])
            yield BatchColumns(batches, planned.file)
        if is_over:
            return planned.end, Status.END.code
        if error is not None:
            raise error
        if found.status != Status.FULL:
            found.raise_for_status(planned.file)
            return found.position, found.status_name
        position = found.position


def _is_cached(fd: int, position: int, end: int) -> bool:
    """Whether a byte in each of the next chunks is in the page cache, which may be wrong of the
    others; False where the system does not say."""
    flag, byte = getattr(os, "RWF_NOWAIT", None), bytearray(1)
    if flag is None or position >= end:
        return False
    last = min(position + _HEADER_CHUNKS * _CHUNK_BYTES, end)
    try:
        return all(os.preadv(fd, [byte], at, flag)
                   for at in (*range(position, last, _CHUNK_BYTES), last - 1))
    except OSError:  # not cached (EAGAIN), or a file system without it
        return False


def _read_ahead(fd: int, position: int, size: int) -> None:
    """Asks for the bytes of the next chunk at once: a disk gives them faster than each header."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            for at in range(position, position + size, _ADVICE_BYTES):
                os.posix_fadvise(fd, at, _ADVICE_BYTES, os.POSIX_FADV_WILLNEED)


def _first_offsets(batches: npt.NDArray[np.void], previous: int) -> npt.NDArray[np.int64]:
    """Base offsets; of wrappers, whose headers have only the last one, the least possible."""
    first = batches["base_offset"].copy()
    wrappers = np.flatnonzero(batches["record_count"] < 0)
    wrappers = wrappers[batches["magic"][wrappers] < 2]
    before = np.concatenate(([previous], batches["last_offset"][:-1]))
    first[wrappers] = before[wrappers] + 1
    return first


def read_headers(planned: LogRange, opened: Callable[[str], AbstractContextManager[Readable]],
                 check_crcs: bool, on_gap: Callable[[LogGap], None]) -> Iterator[BatchHeader]:
    """The batches of one range that hold its offsets, then the typed error that ended it."""
    chunks = header_columns(planned, opened, check_crcs)
    while True:
        try:
            chunk = next(chunks)
        except StopIteration as ended:
            position, status_name = ended.value
            break
        for row in chunk.batches.tolist():
            yield BatchHeader._make((*row, planned.file))
    if position < planned.end:
        check_torn(planned, position)
        on_gap(LogGap(status_name, planned.file, position, planned.end - position))


@dataclass(frozen=True, slots=True)
class FetchData:
    """What one read gave, as a broker's fetch response carries it.

    `records` are whole batches, byte for byte; the first may begin below `start_offset`, and a
    consumer leaves those records out. `next_offset` is where the next read goes on.
    `aborted_transactions` (None for read_uncommitted) are those whose records are among these
    bytes. `base_offset`, `segment_base_offset` and `position` say where the bytes begin; without
    any they are `start_offset` and -1.
    """

    start_offset: int
    next_offset: int
    records: bytes
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int | None
    aborted_transactions: tuple[AbortedTxn, ...] | None = None
    base_offset: int = -1
    segment_base_offset: int = -1
    position: int = -1


class BatchSlice(NamedTuple):
    """Whole batches of one segment."""

    data: bytes
    base_offset: int
    position: int
    next_offset: int


def read_batches(segment: LogSegment, start_offset: int, max_bytes: int, upper: int
                 ) -> BatchSlice | None:
    """Batches from the one that holds `start_offset`, none that begins at or above `upper`.

    At least one, then as many as `max_bytes` takes. None if the segment has nothing there.
    CorruptRecordError for a first batch whose length cannot be true.
    """
    first = segment.translate_offset(start_offset)
    if first is None or first.base_offset >= upper:
        return None
    wanted = min(max(max_bytes, first.size), segment.size - first.position)
    with segment.opened() as handle:
        data = handle.read(wanted, first.position)
    batches = scan(data, position=first.position, end=segment.size, check_crcs=False).batches
    batches = batches[batches["position"] + batches["size"] <= first.position + wanted]
    beyond = np.flatnonzero(batches["base_offset"] >= upper)
    if len(beyond):
        batches = batches[:beyond[0]]
    size = int(batches["size"].sum())
    return BatchSlice(data[:size], first.base_offset, first.position,
                      int(batches["last_offset"][-1]) + 1)
