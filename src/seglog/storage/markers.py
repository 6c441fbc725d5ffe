"""The end-transaction marker in a control batch (Kafka: EndTransactionMarker)."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from seglog._native.batch import ATTRIBUTE_CODEC, ATTRIBUTE_LOG_APPEND_TIME
from seglog.errors import CorruptDataError, InvalidRecordError
from seglog.storage import codecs

__all__ = [
    "CONTROL_BATCH_BYTES_MAX", "ControlType", "EndTransactionMarker", "parse_marker",
    "read_marker",
]

#: A marker's batch has 78 bytes; what a longer one holds behind this many is not read.
CONTROL_BATCH_BYTES_MAX: Final = 1 << 20

# attributes, last offset delta, base and max timestamp, producer id and epoch, sequence, count
_HEADER = struct.Struct(">hiqqqhii")
_HEADER_POSITION = 21
_BATCH_HEADER_BYTES = _HEADER_POSITION + _HEADER.size


class ControlType(enum.IntEnum):
    """Kafka's ControlRecordType; a type beyond these is UNKNOWN."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """How a transaction ended, and when (ms)."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


class _Invalid(Exception):
    """Message and code of what is wrong, on the way to the error that knows the file."""


class _Cursor:
    """Reads one record, never past its end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: memoryview) -> None:
        self.data, self.position, self.end = data, 0, len(data)

    def varint(self, bytes_max: int) -> int:
        raw = 0
        for number in range(bytes_max):
            if self.position >= self.end:
                raise _Invalid("Found invalid record structure", "record_varint")
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                raw &= (1 << (32 if bytes_max == 5 else 64)) - 1
                return raw >> 1 ^ -(raw & 1)
        raise _Invalid("Found invalid record structure", "record_varint")

    def nullable(self) -> memoryview | None:
        length = self.varint(5)
        if length < 0:
            return None
        if length > self.end - self.position:
            raise _Invalid("Found invalid record structure", "record_field")
        self.position += length
        return self.data[self.position - length:self.position]


def _parse_key(key: memoryview | None) -> ControlType:
    if key is None:
        raise _Invalid("control record of null key bytes, 4 are required", "control_key_null")
    if len(key) < 4:
        raise _Invalid("Invalid value size found for control record key. Must have at least 4 "
                       f"bytes, but found only {len(key)}", "control_key")
    version, number = struct.unpack_from(">hh", key)
    if version < 0:
        raise _Invalid(f"Invalid version found for control record: {version}. May indicate data "
                       "corruption", "control_key")
    return ControlType(number) if number in set(ControlType) else ControlType.UNKNOWN


def _parse_headers(record: _Cursor) -> None:
    count = record.varint(5)
    if count < 0:
        raise _Invalid(f"Found invalid number of record headers {count}", "record_headers")
    if count > record.end - record.position:
        raise _Invalid(f"Found invalid number of record headers. {count} is larger than the "
                       "remaining size of the buffer", "record_headers")
    for _ in range(count):
        if record.nullable() is None:
            raise _Invalid("Invalid negative header key size", "record_headers")
        record.nullable()


class _Record(NamedTuple):
    """What a marker needs of a record."""

    timestamp_delta: int
    key: memoryview | None
    value: memoryview | None


def _parse_record(payload: _Cursor) -> _Record:
    """The next record, with its structure checked."""
    length, left = payload.varint(5), payload.end - payload.position
    if not 0 <= length <= left:
        raise _Invalid(f"Invalid record size: expected {length} bytes in record payload, but "
                       f"instead the buffer has only {left} remaining "
                       "bytes.", "record_length")
    record = _Cursor(payload.data[payload.position:payload.position + length])
    payload.position += length
    if record.end < 1:
        raise _Invalid("Found invalid record structure", "record_size")
    record.position = 1  # the record's attributes, unused
    timestamp_delta = record.varint(10)
    record.varint(5)  # offset delta
    key, value = record.nullable(), record.nullable()
    _parse_headers(record)
    if record.position != record.end:
        raise _Invalid(f"Invalid record size: expected to read {record.end} bytes in record "
                       f"payload, but instead read {record.position}", "record_size")
    return _Record(timestamp_delta, key, value)


def _parse_value(kind: ControlType, value: memoryview | None) -> int:
    """The coordinator epoch."""
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise _Invalid("Invalid control record type for end transaction marker "
                       f"{kind.name}", "control_type")
    if value is None:
        raise _Invalid("end transaction marker of null bytes, 6 are required",
                       "control_marker_null")
    if len(value) < 6:
        raise _Invalid(f"end transaction marker of {len(value)} bytes, 6 are required",
                       "control_marker_short")
    version, coordinator_epoch = struct.unpack_from(">hi", value)
    if version < 0:
        raise _Invalid(f"Invalid version found for end transaction marker: {version}. May "
                       "indicate data corruption", "control_marker")
    return int(coordinator_epoch)


def read_marker(read: Callable[[int, int], bytes], position: int, size: int, *,
                file: str | None = None) -> EndTransactionMarker | None:
    """parse_marker of the `size` bytes that `read(position, size)` gives."""
    return parse_marker(read(position, min(size, CONTROL_BATCH_BYTES_MAX)), file=file,
                        position=position)


def parse_marker(batch: bytes | memoryview, *, file: str | None = None,
                 position: int | None = None) -> EndTransactionMarker | None:
    """The marker in a control batch of magic 2; None when compaction left it no record.

    `batch` are the batch's bytes, or the first CONTROL_BATCH_BYTES_MAX of them. Raises
    InvalidRecordError with Kafka's text: a control batch of a producer that holds no marker stops
    Kafka's loader.
    """
    try:
        return _parse(memoryview(batch))
    except _Invalid as error:
        message, code = error.args
        raise InvalidRecordError(message, file=file, position=position,
                                 expected="an end-transaction marker", found=message,
                                 code=code) from None
    except CorruptDataError as error:  # from a codec, which knows no file
        error.file, error.position = file, position
        raise


def _parse(batch: memoryview) -> EndTransactionMarker | None:
    if len(batch) < _BATCH_HEADER_BYTES:
        raise _Invalid(f"control batch of {len(batch)} bytes", "batch_size")
    attributes, _, base_timestamp, max_timestamp, _, _, _, count = _HEADER.unpack_from(
        batch, _HEADER_POSITION)
    if not count:
        return None
    size = 12 + int.from_bytes(batch[8:12], "big", signed=True)
    payload = batch[_BATCH_HEADER_BYTES:]
    codec = attributes & ATTRIBUTE_CODEC
    if codec:  # Kafka opens the stream before it looks at the count
        payload = codecs.decompress(codec, 2, payload, max_bytes=CONTROL_BATCH_BYTES_MAX)
        left = len(payload)
    else:
        left = size - _BATCH_HEADER_BYTES
    if count < 0:
        raise _Invalid(f"Found invalid record count {count} in magic v2 batch",
                       "batch_record_count")
    records = _Cursor(payload)
    record = _parse_record(records)
    # Kafka parses all records of a compressed batch before it looks at the first of them.
    for _ in range(count - 1 if codec else 0):
        _parse_record(records)
    if (codec or count == 1) and records.position != left:
        raise _Invalid("Incorrect declared batch size, records still remaining in file",
                       "record_count")
    kind = _parse_key(record.key)
    coordinator_epoch = _parse_value(kind, record.value)
    timestamp = max_timestamp if attributes & ATTRIBUTE_LOG_APPEND_TIME \
        else base_timestamp + record.timestamp_delta
    return EndTransactionMarker(kind is ControlType.ABORT, coordinator_epoch, timestamp)
