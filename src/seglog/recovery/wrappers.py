"""The first offset of a batch as Kafka's file iteration computes it.

The header of a compressed wrapper holds only its last offset. Kafka decompresses it when it needs
the first one: when it splits a segment, and when it searches an offset. Its exceptions end the
load, whatever the CRC says.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from seglog._native.file import read_at
from seglog.recovery.loader_failures import CorruptRecord, InvalidRecord, LoaderFailure
from seglog.storage.codec_streams import StreamError, open_stream
from seglog.storage.codecs import CODECS

__all__ = ["base_offsets", "first_offset"]

_ENTRY = struct.Struct(">qi")  # offset, size of the rest
_RECORD_BYTES_MIN = 14
_MAGIC_POSITION, _ATTRIBUTES_POSITION = 4, 5
_CODEC_MASK = 0x07
_MAGIC_V2 = 2


def first_offset(fd: int, batch: np.void, path: str) -> int:
    """Base offset of a row of BATCH_DTYPE of the log `path`, open as `fd`. Raises LoaderFailure
    where Kafka throws."""
    if batch["magic"] >= _MAGIC_V2:
        return int(batch["base_offset"])
    position = int(batch["position"])
    try:
        return _first_offset(read_at(fd, int(batch["size"]), position, file=path))
    except LoaderFailure as failure:
        failure.where.update(file=os.path.basename(path), position=position)
        raise


def base_offsets(fd: int, path: str, batches: npt.NDArray[np.void]) -> Iterator[int]:
    """Yields `first_offset` of each batch, computed on demand."""
    return (first_offset(fd, batch, path) for batch in batches)


def _codec(record: bytes) -> int:
    codec = record[_ATTRIBUTES_POSITION] & _CODEC_MASK
    if codec >= len(CODECS):
        raise LoaderFailure("IllegalArgumentException", f"Unknown compression type id: {codec}")
    return codec


def _invalid(message: str) -> LoaderFailure:
    return InvalidRecord(message)


def _first_offset(data: bytes) -> int:
    """The first offset of one whole entry, a message or a wrapper."""
    stored: int = _ENTRY.unpack_from(data)[0]
    record = data[_ENTRY.size:]
    codec = _codec(record)
    if codec == 0:
        return stored
    magic = struct.unpack_from(">b", record, _MAGIC_POSITION)[0]
    if magic not in (0, 1):
        raise _invalid(f"Invalid wrapper magic found in legacy deep record iterator {magic}")
    if magic < CODECS[codec].min_magic:
        raise _invalid("Invalid wrapper compressionType found in legacy deep record iterator "
                       f"{magic}")
    value = _value(record, magic)
    if value is None:
        raise _invalid(f"Found invalid compressed record set with null value (magic = {magic})")
    inner = _inner(codec, magic, value)
    if not inner:
        raise _invalid("Found invalid compressed record set with no inner records")
    first, first_record = inner[0]
    if magic == 1:
        first += _absolute_base(stored, inner[-1][0])
    if _codec(first_record):
        raise _invalid("Inner messages must not be compressed")
    return (first + (1 << 63)) % (1 << 64) - (1 << 63)  # Java's long


def _absolute_base(stored: int, last: int) -> int:
    if stored == 0:
        return 0  # written by some versions of librdkafka
    if stored < last:
        raise _invalid("Found invalid wrapper offset in compressed v1 message set, wrapper offset "
                       f"'{stored}' is less than the last inner message offset '{last}' and it is "
                       "not zero.")
    return stored - last


def _value(record: bytes, magic: int) -> bytes | None:
    """The value of a message, with the bounds checks of Java's buffers."""
    def number(at: int) -> int:
        if not 0 <= at <= len(record) - 4:
            raise LoaderFailure("IndexOutOfBoundsException", "null")
        found: int = struct.unpack_from(">i", record, at)[0]
        return found

    key_at = 14 if magic else 6
    value_at = key_at + 4 + max(number(key_at), 0)
    size = number(value_at)
    if size < 0:
        return None
    start = value_at + 4
    if size > len(record) - start:
        raise LoaderFailure("IllegalArgumentException",
                            f"newLimit > capacity: ({size} > {len(record) - start})")
    return record[start:start + size]


def _inner(codec: int, magic: int, payload: bytes) -> list[tuple[int, bytes]]:
    """(offset, record) of every whole message in a wrapper."""
    found = []
    try:
        stream = open_stream(codec, magic, payload)
        while len(head := stream.read(_ENTRY.size)) == _ENTRY.size:
            offset, size = _ENTRY.unpack(head)
            if size < _RECORD_BYTES_MIN:
                raise CorruptRecord("Record size is less than the "
                                    f"minimum record overhead ({_RECORD_BYTES_MIN})")
            record = stream.read(size)
            if len(record) < size:
                break
            found.append((offset, record))
    except StreamError as error:
        if error.is_io:
            raise LoaderFailure("KafkaException", str(error)) from None
        raise LoaderFailure(error.kafka_error, error.message) from None
    return found
