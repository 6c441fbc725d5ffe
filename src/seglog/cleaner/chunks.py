"""The batches of a segment as a cleaner reads them: chunks of whole batches in a buffer (Kafka:
Cleaner.cleanInto, growBuffersOrFail)."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CODEC, ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from seglog._native.validate import Refusal, frames
from seglog.errors import (
    CorruptRecordError, IllegalArgumentError, IllegalStateError, OutOfBoundsError, SeglogError,
)
from seglog.log.refusals import of_frame
from seglog.storage import codecs
from seglog.storage.batches import BatchHeader
from seglog.storage.markers import ControlType, as_thrown, read_control_type

__all__ = ["BufferSizes", "Chunk", "SegmentSource", "read_chunks"]

_PREFIX_BYTES, _LENGTH_AT = 12, 8
_HEADER_BYTES_UP_TO_MAGIC, _HEADER_BYTES = 17, 61
_ATTRIBUTES_AT, _LAST_DELTA_AT, _TIMESTAMP_AT, _EPOCH_AT = 21, 23, 27, 51
_LENGTH = struct.Struct(">i")
_logger = logging.getLogger("seglog.LogCleaner")


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """A segment as the round found it; `inode` distinguishes it from another of the same name."""

    base_offset: int
    name: str
    path: str
    size: int
    inode: int
    fd: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of a segment. `rows` of BATCH_DTYPE count their positions from `data`, which
    begins at the byte `position` of the file `path` and lies in the buffer of the number `buffer`.
    It is valid until that buffer's next chunk is read."""

    data: memoryview
    rows: npt.NDArray[np.void]
    path: str
    position: int
    buffer: int = 0

    @property
    def has_zstd(self) -> bool:
        """Whether any of its batches is compressed with zstd."""
        return bool((self.rows["attributes"] & ATTRIBUTE_CODEC == codecs.ZSTD).any())

    def place(self, batch: BatchHeader) -> tuple[str, int]:
        """The file of a batch, and the byte where it begins."""
        return self.path, self.position + batch.position

    def batch(self, row: int) -> BatchHeader:
        """The batch of a row."""
        return BatchHeader(*self.rows[row].tolist())

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """(row, batch) of each."""
        return enumerate(starmap(BatchHeader, self.rows.tolist()))

    def control_type(self, batch: BatchHeader) -> ControlType | None:
        """The type of a control batch; None for an empty one. Raises Kafka's exceptions for an
        invalid one."""
        with as_thrown():
            return read_control_type(self.data[batch.position:batch.position + batch.size])


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """Bytes of the read buffer: initially, and at most unless a topic or a batch needs more."""

    first: int
    most: int


def read_chunks(fd: int, path: str, position: int, sizes: BufferSizes, max_message_bytes: int,
                check_done: Callable[[], None], count: int = 1) -> Iterator[Chunk]:
    """The batches of an open log file from a byte on, to its end; `check_done` runs before each
    read and may raise. Chunks with zstd batches go to `count` buffers by turns.

    Checks no CRC, as in Kafka. At invalid bytes raises CorruptRecordError or IllegalStateError,
    after the batches before them.
    """
    capacity, end = sizes.first, os.fstat(fd).st_size
    buffers, turn = [memoryview(bytearray())] * count, 0
    while position < end:
        check_done()
        if len(buffers[turn]) < (wanted := min(capacity, end - position)):
            buffers[turn] = memoryview(bytearray(wanted))
        buffer = buffers[turn]
        data = buffer[:_read_into(fd, position, buffer[:wanted])]
        found = frames(data)
        error = (_of_short(data[found.position:], found.a) if found.refusal == Refusal.SHORT
                 else of_frame(found.refusal, found.a))
        if len(found.batches):
            chunk = Chunk(data, found.batches, path, position, turn)
            yield chunk
            if count > 1 and chunk.has_zstd:
                turn = (turn + 1) % count
        if error is not None:
            error.batch_at = path, position + found.position
            raise error
        if not len(found.batches):
            capacity = _grown(data, capacity, sizes, max_message_bytes, end - position,
                              f"log segment {path} at position {position}")
        position += found.position


def _of_short(batch: memoryview, size: int) -> SeglogError:
    """The exception for a batch that ends inside its header: of the first field that Kafka misses,
    or of its records, which would begin beyond the end."""
    attributes = int.from_bytes(batch[_ATTRIBUTES_AT:_LAST_DELTA_AT], "big")
    needed = (_HEADER_BYTES if attributes & ATTRIBUTE_CONTROL else
              _EPOCH_AT if attributes & ATTRIBUTE_TRANSACTIONAL else _TIMESTAMP_AT)
    if size < needed:
        return OutOfBoundsError(f"a batch of {size} bytes ends inside its header")
    return IllegalArgumentError(f"newPosition > limit: ({_HEADER_BYTES} > {size})")


def _read_into(fd: int, position: int, buffer: memoryview) -> int:
    size = os.preadv(fd, [buffer], position)
    while size < len(buffer):  # a signal, or a file system that returns less
        more = os.preadv(fd, [buffer[size:]], position + size)
        if not more:
            break
        size += more
    return size


def _grown(data: memoryview, capacity: int, sizes: BufferSizes, max_message_bytes: int, left: int,
           where: str) -> int:
    """A larger buffer for the batch at the start of `data`, which did not fit."""
    wanted = max_message_bytes
    if capacity >= max_message_bytes:
        if len(data) < _HEADER_BYTES_UP_TO_MAGIC:
            raise IllegalStateError(f"Could not determine next batch size for {where}")
        wanted = _LENGTH.unpack_from(data, _LENGTH_AT)[0] + _PREFIX_BYTES
        if wanted <= capacity:
            raise IllegalStateError(f"Batch size {wanted} < buffer size {capacity}, but not "
                                    f"processed for {where}")
        if wanted > left:
            raise CorruptRecordError(
                f"Log segment may be corrupt, batch size {wanted} > {left} bytes left in segment "
                f"for {where}", expected=left, found=wanted, code="batch_length")
    most = max(wanted, sizes.most)
    if capacity >= most:
        raise IllegalStateError("This log contains a message larger than maximum allowable size of "
                                f"{most}.")
    grown = min(capacity * 2, most)
    _logger.info("Growing cleaner I/O buffers from %s bytes to %s bytes.", capacity, grown)
    return grown
