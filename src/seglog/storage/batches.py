"""Record batches of a log: headers one by one, and whole batches as a fetch returns them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglog._native.batch import (
    ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL, BatchColumns, scan, scan_file,
)
from seglog._native.status import Status, status_error
from seglog.model import AbortedTxn
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.ranges import LogGap, LogRange, Opened, check_torn
from seglog.storage.segment import LogSegment, offset_disorder

__all__ = ["BatchHeader", "FetchData", "header_columns", "read_batches",
           "read_headers"]

_CHUNK = 16384
_CHUNK_BYTES = 8 << 20
#: Headers without records are read in larger chunks, because each chunk costs numpy a third of a
#: millisecond. In a file that is not cached, reading headers that lie 16 KiB apart takes many times
#: as long as reading all bytes between them, so those are read ahead. A cached GiB takes 60 ms.
_HEADER_CHUNKS = 8
#: One call reads ahead no more than the device transfers at once, so a chunk takes several calls.
_ADVICE_BYTES = 1 << 20


class BatchHeader(NamedTuple):
    """One batch of a log. In magic 0 and 1 a batch is one message, or the wrapper of several.

    For those formats the stored offset (a wrapper's last) is both base and last offset,
    `record_count` of a wrapper is -1, and fields that the format lacks are -1. Timestamps are ms.
    `position` and `size` are bytes of `file`. All fields but that are those of BATCH_DTYPE.
    """

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
    file: str = ""

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.last_offset + 1

    @property
    def codec(self) -> int:
        """The id in the codec bits, which may name no codec."""
        return self.attributes & ATTRIBUTE_CODEC

    @property
    def compression_type(self) -> str:
        """none, gzip, snappy, lz4 or zstd; the number as text for bits that name no codec."""
        return CODEC_NAMES[self.codec] if self.codec < len(CODEC_NAMES) else str(self.codec)

    @property
    def timestamp_type(self) -> int:
        """-1 for none (magic 0), 0 for create time, 1 for log append time."""
        return -1 if self.magic == 0 else int(bool(self.attributes & ATTRIBUTE_LOG_APPEND_TIME))

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction. True for markers too."""
        return self.magic >= 2 and bool(self.attributes & ATTRIBUTE_TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether this is a transaction marker, or a control batch of a Raft log."""
        return self.magic >= 2 and bool(self.attributes & ATTRIBUTE_CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time (ms) after which compaction may drop the tombstones of this batch; None if not
        set."""
        has_horizon = self.magic >= 2 and self.attributes & ATTRIBUTE_DELETE_HORIZON
        return self.base_timestamp if has_horizon else None


def header_columns(planned: LogRange, opened: Opened,
                   check_crcs: bool) -> Generator[BatchColumns, None, tuple[int, str]]:
    """Yields the batches of one range that hold its offsets, thousands at a time. Then raises the
    typed error that ended it. Returns the byte where it ended, and the name of the scan's status.

    Without `check_crcs` only headers are read, with one pread each.
    """
    position, previous = planned.start, planned.start_offset - 1
    next_offset = planned.base_offset
    while True:
        with opened(planned) as handle:
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
    """Whether the next chunks seem to be in the page cache: checks one byte of each. False if the
    system cannot tell."""
    flag, byte = getattr(os, "RWF_NOWAIT", None), bytearray(1)
    if flag is None or position >= end:
        return False
    last = min(position + _HEADER_CHUNKS * _CHUNK_BYTES, end)
    try:
        return all(os.preadv(fd, [byte], at, flag)
                   for at in (*range(position, last, _CHUNK_BYTES), last - 1))
    except OSError:  # not cached (EAGAIN), or the file system does not support it
        return False


def _read_ahead(fd: int, position: int, size: int) -> None:
    """Requests the bytes of the next chunk at once: a disk reads them faster than single
    headers."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            for at in range(position, position + size, _ADVICE_BYTES):
                os.posix_fadvise(fd, at, _ADVICE_BYTES, os.POSIX_FADV_WILLNEED)


def _first_offsets(batches: npt.NDArray[np.void], previous: int) -> npt.NDArray[np.int64]:
    """Base offsets. For wrappers, whose headers hold only the last offset, the lowest possible
    one."""
    first = batches["base_offset"].copy()
    wrappers = np.flatnonzero(batches["record_count"] < 0)
    wrappers = wrappers[batches["magic"][wrappers] < 2]
    before = np.concatenate(([previous], batches["last_offset"][:-1]))
    first[wrappers] = before[wrappers] + 1
    return first


def read_headers(planned: LogRange, opened: Opened,
                 check_crcs: bool, on_gap: Callable[[LogGap], None]) -> Iterator[BatchHeader]:
    """Yields the batches of one range that hold its offsets, then raises the error that ended
    it."""
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
    """The result of one read, as a broker's fetch response carries it.

    `records` are whole batches, byte for byte. The first batch may begin below `start_offset`;
    consumers drop those records. The next read starts at `next_offset`. `aborted_transactions`
    lists the aborted transactions with records in these bytes (None for read_uncommitted).
    `base_offset`, `segment_base_offset` and `position` say where the bytes begin; if there are
    none, they are `start_offset` and -1.
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
    """Reads batches from the one that holds `start_offset` on, none that begins at or above
    `upper`.

    Returns at least one batch, then as many as fit into `max_bytes`. None if the segment has no
    such batch. Raises CorruptRecordError if the first batch's length is impossible.
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
