"""The end-transaction marker in a control batch (Kafka: EndTransactionMarker)."""

from __future__ import annotations

import contextlib
import enum
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from seglog._native.batch import ATTRIBUTE_CODEC, ATTRIBUTE_LOG_APPEND_TIME
from seglog.errors import (
    CorruptDataError, DecompressionError, IllegalArgumentError, InvalidRecordError, UncheckedError,
)
from seglog.storage import codecs
from seglog.storage.codec_streams import CodecStream, StreamError, open_stream

__all__ = [
    "CONTROL_BATCH_BYTES_MAX", "ControlType", "EndTransactionMarker", "as_thrown",
    "is_invalid_record", "parse_marker", "read_control_type", "read_marker", "thrown_at",
]

#: A marker's batch has 78 bytes; of a longer one at most this many are read.
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


_PREMATURE = "Incorrect declared batch size, premature EOF reached"
_REMAINING = "Incorrect declared batch size, records still remaining in file"
# Codes for exceptions other than IOException that Kafka's streams throw.
_STREAM_CODES = {
    "SnappyError": "stream_chunk", "BufferUnderflowException": "stream_underflow",
    "NegativeArraySizeException": "stream_size", "OutOfMemoryError": "stream_memory",
}


class _Invalid(Exception):
    """Message and code of an error, before the file is known."""


class _Undecodable(_Invalid):
    """An error of a codec."""


class _Cursor:
    """Reads the fields of records as Kafka reads a buffer: past a record, but never past the
    end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.position, self.end = data, 0, len(data)

    def byte(self) -> int:
        if self.position >= self.end:
            raise _Underflow
        self.position += 1
        return self.data[self.position - 1]

    def varint(self, bytes_max: int) -> int:
        return _varint(self.byte, bytes_max)

    def nullable(self) -> bytes | memoryview | None:
        length = self.varint(5)
        if length < 0:
            return None
        if length > self.end - self.position:
            raise _Invalid("Found invalid record structure", "record_field")
        self.position += length
        return self.data[self.position - length:self.position]


class _Underflow(Exception):
    """Kafka would read a byte after the end of the buffer."""


class _TooLong(Exception):
    """A varint that is too long, with Kafka's text."""


def _varint(byte: Callable[[], int], bytes_max: int) -> int:
    raw = 0
    for number in range(bytes_max):
        value = byte()
        raw |= (value & 0x7F) << 7 * number
        if value < 0x80:
            raw &= (1 << (32 if bytes_max == 5 else 64)) - 1
            return raw >> 1 ^ -(raw & 1)
    raise _TooLong("Varint is too long, the most significant bit in the 5th byte is set, converted "
                   f"value: {raw & 0xFFFFFFFF:x}")


def _parse_key(key: bytes | memoryview | None) -> ControlType:
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
        length = record.varint(5)
        if length < 0:
            raise _Invalid(f"Invalid negative header key size {length}", "record_headers")
        if length > record.end - record.position:
            raise _Invalid("Found invalid record structure", "record_field")
        record.position += length
        record.nullable()


class _Record(NamedTuple):
    """The fields of a record that a marker needs."""

    timestamp_delta: int
    key: bytes | memoryview | None
    value: bytes | memoryview | None


def _parse_record(record: _Cursor, length: int) -> _Record:
    """The record of `length` bytes at the cursor, with its structure checked."""
    left = record.end - record.position
    if length > left:
        raise _Invalid(f"Invalid record size: expected {length} bytes in record payload, but "
                       f"instead the buffer has only {left} remaining bytes.", "record_length")
    start = record.position
    try:
        record.byte()  # attributes, unused
        timestamp_delta = record.varint(10)
        record.varint(5)  # offset delta
        key, value = record.nullable(), record.nullable()
        _parse_headers(record)
    except (_Underflow, _TooLong):
        raise _Invalid("Found invalid record structure", "record_varint") from None
    if record.position - start != length:
        raise _Invalid(f"Invalid record size: expected to read {length} bytes in record payload, "
                       f"but instead read {record.position - start}", "record_size")
    return _Record(timestamp_delta, key, value)


def _first_of_buffer(payload: memoryview, count: int, left: int) -> _Record:
    """The first record of an uncompressed batch; Kafka reads no other. `left` is the bytes in the
    batch, of which `payload` may be the beginning."""
    records = _Cursor(payload)
    try:
        length = records.varint(5)
    except _Underflow:
        raise _Invalid(_PREMATURE, "record_varint") from None
    except _TooLong as error:
        raise _Invalid(str(error), "record_varint_endless") from None
    record = _parse_record(records, length)
    if count == 1 and records.position != left:
        raise _Invalid(_REMAINING, "record_count")
    return record


def _first_of_stream(stream: CodecStream, count: int) -> _Record:
    """The first record of a compressed batch. Kafka parses all records before it uses the first."""
    first = None
    for _ in range(count):
        try:
            # Java reads the end of a stream as a byte of 255.
            length = _varint(lambda: (stream.read(1) or b"\xff")[0], 5)
        except _TooLong:
            length = -1
        if length < 0:
            raise _Invalid(_PREMATURE, "record_varint")
        data = stream.read(length)
        if len(data) < length:
            raise _Invalid(f"Invalid record size: expected {length} bytes in record payload, but "
                           "the record payload reached EOF.", "record_length")
        record = _parse_record(_Cursor(data), length)
        first = first or record
    assert first is not None
    try:
        is_over = not stream.read(1)
    except StreamError as error:
        if not error.is_io:
            raise
        raise _Undecodable("Error checking for remaining bytes after reading batch",
                           "codec_data") from None
    if not is_over:
        raise _Invalid(_REMAINING, "record_count")
    return first


def _parse_value(kind: ControlType, value: bytes | memoryview | None) -> int:
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
    """`parse_marker` for the `size` bytes that `read(position, size)` returns."""
    return parse_marker(read(position, min(size, CONTROL_BATCH_BYTES_MAX)), file=file,
                        position=position)


def parse_marker(batch: bytes | memoryview, *, file: str | None = None,
                 position: int | None = None) -> EndTransactionMarker | None:
    """The marker in a control batch of magic 2; None if compaction removed its record.

    `batch` holds the batch's bytes, or the first CONTROL_BATCH_BYTES_MAX of them. Raises
    InvalidRecordError with Kafka's text: Kafka's loader fails on a producer's control batch without
    a marker.
    """
    with _public(file, position, "an end-transaction marker"):
        return _parse(memoryview(batch))


def read_control_type(batch: bytes | memoryview) -> ControlType | None:
    """The type of the first record of a control batch; None if compaction removed it.

    `batch` holds the batch's bytes. Raises as `parse_marker`, but reads no value.
    """
    with _public(None, None, "a control record"):
        found = _first(memoryview(batch))
        return None if found is None else _parse_key(found[0].key)


@contextlib.contextmanager
def _public(file: str | None, position: int | None, expected: str) -> Iterator[None]:
    try:
        yield
    except _Invalid as error:
        message, code = error.args
        raised = DecompressionError if isinstance(error, _Undecodable) else InvalidRecordError
        raise raised(message, file=file, position=position, expected=expected, found=message,
                     code=code) from None


def _first_record(payload: memoryview, codec: int, count: int, left: int) -> _Record:
    # Kafka opens the stream before it reads the count.
    try:
        stream = open_stream(codec, 2, payload) if codec else None
    except StreamError as error:
        raise _Undecodable(error.message, "codec_data") from None
    if count < 0:
        raise _Invalid(f"Found invalid record count {count} in magic v2 batch",
                       "batch_record_count")
    if stream is None:
        return _first_of_buffer(payload, count, left)
    try:
        return _first_of_stream(stream, count)
    except StreamError as error:
        if error.is_io:
            raise _Undecodable("Failed to decompress record stream", "codec_data") from None
        raise _Undecodable(error.message, _STREAM_CODES[error.kafka_error]) from None


# Java's exception and message for a bad marker, where they differ from the error's own.
_UNCHECKED: dict[str, tuple[str, str | None]] = {
    "batch_size": ("IndexOutOfBoundsException", "null"),
    "batch_codec": ("IllegalArgumentException", None),
    "control_key_null": ("NullPointerException", 'Cannot invoke "java.nio.ByteBuffer.duplicate()" '
                         'because "key" is null'),
    "control_type": ("IllegalArgumentException", None),
    "control_marker_null": ("NullPointerException", 'Cannot invoke "java.nio.ByteBuffer.getShort()'
                            '" because "value" is null'),
    "control_marker_short": ("BufferUnderflowException", "null"),
    "record_varint_endless": ("IllegalArgumentException", None),
    "stream_chunk": ("SnappyError", None),
    "stream_memory": ("OutOfMemoryError", None),
    "stream_size": ("NegativeArraySizeException", None),
    "stream_underflow": ("BufferUnderflowException", "null"),
    "txn_not_started": ("IllegalArgumentException", None),
}


def thrown_at(error: CorruptDataError) -> tuple[str, str]:
    """The name and message of the exception that a JVM throws for an invalid marker, or for one
    that ends a transaction that was not open."""
    name, message = _UNCHECKED.get(error.code, (error.kafka_name, None))
    return name, str(error) if message is None else message


def is_invalid_record(error: CorruptDataError) -> bool:
    """Whether a JVM throws InvalidRecordException there."""
    return isinstance(error, InvalidRecordError) and error.code not in _UNCHECKED


def _first(batch: memoryview) -> tuple[_Record, tuple[int, ...]] | None:
    """The first record of a control batch and the fields of `_HEADER`; None without a record."""
    if len(batch) < _BATCH_HEADER_BYTES:
        raise _Invalid(f"control batch of {len(batch)} bytes", "batch_size")
    fields = _HEADER.unpack_from(batch, _HEADER_POSITION)
    attributes, count = fields[0], fields[-1]
    if not count:
        return None
    size = 12 + int.from_bytes(batch[8:12], "big", signed=True)
    payload = batch[_BATCH_HEADER_BYTES:]
    codec = attributes & ATTRIBUTE_CODEC
    if codec >= len(codecs.CODECS):
        raise _Invalid(f"Unknown compression type id: {codec}", "batch_codec")
    return _first_record(payload, codec, count, size - _BATCH_HEADER_BYTES), fields


def _parse(batch: memoryview) -> EndTransactionMarker | None:
    found = _first(batch)
    if found is None:
        return None
    record, (attributes, _, base_timestamp, max_timestamp, *_) = found
    kind = _parse_key(record.key)
    coordinator_epoch = _parse_value(kind, record.value)
    timestamp = max_timestamp if attributes & ATTRIBUTE_LOG_APPEND_TIME \
        else base_timestamp + record.timestamp_delta
    return EndTransactionMarker(kind is ControlType.ABORT, coordinator_epoch, timestamp)


@contextlib.contextmanager
def as_thrown() -> Iterator[None]:
    """Raises what Kafka throws for an invalid marker or control batch: the error itself, or
    IllegalArgumentError or UncheckedError instead."""
    try:
        yield
    except CorruptDataError as error:
        name, message = thrown_at(error)
        if name == error.kafka_name:
            raise
        if name == IllegalArgumentError.kafka_name:
            raise IllegalArgumentError(message) from None
        raise UncheckedError(message, name) from None
