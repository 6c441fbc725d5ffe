"""Finds where a segment ends, as Kafka does without reading all of it (LogSegment.readNextOffset).

Follows batch headers from the last entry of the offset index to the end of the file, and checks no
CRC. Kafka trusts what it reads there, so a damaged index or header chain gives its own result,
which this module predicts.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from seglog._native.batch import BATCH_DTYPE, scan_file
from seglog._native.status import Status
from seglog.java.numbers import wrap_int64
from seglog.recovery.loader_failures import (
    CorruptRecord, FileVanished, IoFailure, LoaderFailure,
)
from seglog.recovery.wrappers import first_offset

__all__ = ["find_offset", "next_offset_from", "opened_log", "read_failure", "whole_headers"]

# The bytes that Kafka needs to find a batch: offset, length, epoch or CRC, magic.
_LOG_OVERHEAD = 17
_BATCHES_PER_CHUNK = 65536
_MAGIC_V2 = 2
# The end of a view of a whole log in Kafka's messages.
_WHOLE_FILE = 2**31 - 1
# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max
# timestamp, producer id and epoch, base sequence, record count.
_HEADER = struct.Struct(">qiibIhiqqqhii")


@contextlib.contextmanager
def opened_log(path: str) -> Iterator[int]:
    """A descriptor of a log file, open inside the context. FileVanished, IoFailure."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileVanished(os.path.basename(path)) from None
    except OSError as error:
        raise IoFailure(f"{path}: {error.strerror}", number=error.errno,
                        file=os.path.basename(path)) from None
    try:
        yield fd
    finally:
        os.close(fd)


def read_failure(path: str, position: int) -> LoaderFailure:
    """A read that the file system refused. It says nothing about the bytes."""
    return IoFailure(f"{path}: cannot be read", file=os.path.basename(path), position=position)


def _header_batches(fd: int, path: str, start: int, end: int, most: int = _BATCHES_PER_CHUNK
                    ) -> Iterator[npt.NDArray[np.void]]:
    """Yields the batches of [start, end) as a header scan finds them, up to `most` at a time,
    without CRCs.

    Raises LoaderFailure at a length that no batch has (CorruptRecordException). A batch may have
    fewer bytes than its header: call `_check_headers` before using more than its framing.
    """
    # A damaged index points anywhere. Kafka begins at 0 for a negative position, and finds nothing
    # after the end.
    position = min(max(start, 0), end)
    while True:
        scan = scan_file(fd, position, end, check_crcs=False, max_batches=most)
        if scan.batch_count:
            yield scan.batches
        position = scan.position
        if scan.status == Status.FULL:
            continue
        if scan.status == Status.BATCH_SIZE and scan.next_position is not None:
            yield _short_batch(fd, position, scan.next_position - position)
            position = scan.next_position
            continue
        if scan.status == Status.IO:
            raise read_failure(path, position)
        if end - position > _LOG_OVERHEAD and scan.status in (Status.BATCH_LENGTH,
                                                              Status.ZERO_TAIL):
            length = scan.found if scan.status == Status.BATCH_LENGTH else 0
            raise CorruptRecord(
                f"Found record size {length} smaller than minimum record overhead (14) in file "
                f"{path}.", file=os.path.basename(path), position=position, expected=14,
                found=length)
        return


def _short_batch(fd: int, position: int, size: int) -> npt.NDArray[np.void]:
    """A batch of fewer bytes than its header. A header scan ignores the size, and reads into the
    bytes that follow."""
    batch = np.zeros(1, BATCH_DTYPE)
    (batch["base_offset"], _, batch["partition_leader_epoch"], batch["magic"], batch["crc"],
     batch["attributes"], delta, batch["base_timestamp"], batch["max_timestamp"],
     batch["producer_id"], batch["producer_epoch"], batch["base_sequence"],
     batch["record_count"]) = _HEADER.unpack(
         os.pread(fd, _HEADER.size, position).ljust(_HEADER.size, b"\0"))
    batch["position"], batch["size"] = position, size
    batch["last_offset"] = batch["base_offset"] + np.int64(delta)
    return batch


def whole_headers(fd: int, path: str, start: int, end: int, *, is_slice: bool = False,
                  most: int = _BATCHES_PER_CHUNK) -> Iterator[npt.NDArray[np.void]]:
    """As `_header_batches`, for callers that use whole headers. `is_slice`: Kafka reads [start,
    end) as a slice of the log. Raises LoaderFailure also if a header ends beyond the file."""
    for batches in _header_batches(fd, path, start, end, most):
        _check_headers(fd, path, batches, end, start if is_slice else None)
        yield batches


def _check_headers(fd: int, path: str, batches: npt.NDArray[np.void], end: int,
                   start: int | None = None) -> None:
    """Raises LoaderFailure (KafkaException) at the first batch whose header ends beyond the file.

    Kafka reads a header when it first uses it. Its message names what it reads: a log of `end`
    bytes, or the slice [start, end) of one.
    """
    for row in np.flatnonzero((batches["size"] < _HEADER.size) & (batches["magic"] >= _MAGIC_V2)):
        position = int(batches["position"][row])
        if len(os.pread(fd, _HEADER.size, position)) < _HEADER.size:
            view = (f"size={end}, file={path}, start=0, end={_WHOLE_FILE}" if start is None else
                    f"size={end - start}, file={path}, start={start}, end={end}")
            raise LoaderFailure("KafkaException", f"Failed to load record batch at position "
                                f"{position} from FileRecords({view})",
                                file=os.path.basename(path), position=position)


def _reaching(fd: int, path: str, batches: npt.NDArray[np.void], offset: int
              ) -> tuple[int, int] | None:
    """(row, base offset) of the first batch that begins at `offset` or above it."""
    if np.any(batches["magic"] < _MAGIC_V2):
        return next(((row, base) for row, batch in enumerate(batches)
                     if (base := first_offset(fd, batch, path)) >= offset), None)
    rows = np.flatnonzero(batches["base_offset"] >= offset)
    return (int(rows[0]), int(batches["base_offset"][rows[0]])) if len(rows) else None


def find_offset(fd: int, path: str, start: int, end: int, offset: int
                ) -> tuple[int, int] | None:
    """(base offset, position) of the batch that holds `offset`, or of the first above it, from byte
    `start` on; None if all end before it (Kafka: searchForOffsetFromPosition)."""
    found = _search(fd, path, _header_batches(fd, path, start, end), end, offset)
    return None if found is None else found[:2]


def _search(fd: int, path: str, chunks: Iterator[npt.NDArray[np.void]], end: int, offset: int
            ) -> tuple[int, int, npt.NDArray[np.void]] | None:
    """As `find_offset`, with the last batch taken from `chunks`."""
    def holds(batch: npt.NDArray[np.void]) -> bool:
        _check_headers(fd, path, batch, end)
        return int(batch["last_offset"][0]) >= offset

    before: npt.NDArray[np.void] | None = None  # the last batch so far
    for batches in chunks:
        reached = _reaching(fd, path, batches, offset)
        if reached is None:
            before = batches[-1:]
            continue
        row, base = reached
        if row:
            before = batches[row - 1:row]
        if base == offset or before is None or not holds(before):
            return base, int(batches["position"][row]), batches[-1:]
        return first_offset(fd, before[0], path), int(before["position"][0]), batches[-1:]
    if before is None or not holds(before):
        return None
    return first_offset(fd, before[0], path), int(before["position"][0]), before


def next_offset_from(fd: int, path: str, position: int, end: int, base_offset: int,
                     target: int) -> int:
    """Follows headers in [position, end). The last batch gives the end, but only if a batch is
    found that holds or follows `target`; otherwise the segment counts as empty."""
    chunks = _header_batches(fd, path, position, end)
    found = _search(fd, path, chunks, end, target)
    if found is None:
        return base_offset
    start, last = found[1:]
    for batches in chunks:
        last = batches[-1:]
    _check_headers(fd, path, last, end, start)
    return wrap_int64(int(last["last_offset"][0]) + 1)
