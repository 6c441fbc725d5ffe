"""Messages of magic 0 and 1 as Kafka reads them (LegacyRecord, AbstractLegacyRecordBatch): for
conversions, error messages and the first offset of a wrapper.

Only old producers send them. Reads one message at a time, and each field where Kafka reads it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from seglog.errors import (
    CorruptRecordError, IllegalArgumentError, InvalidRecordError, OutOfBoundsError,
)
from seglog.java.numbers import wrap_int64
from seglog.storage import codecs
from seglog.storage.codec_streams import open_stream

__all__ = ["LegacyRecord", "inner_records"]

_OFFSET_AND_SIZE = struct.Struct(">qi")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_MAGIC_AT, _ATTRIBUTES_AT, _TIMESTAMP_AT = 4, 5, 6
_SIZE_MIN = 14
_LOG_APPEND_TIME = 0x08


@dataclass(slots=True)
class LegacyRecord:
    """One message: `buffer` begins at its CRC. Messages inside a wrapper have its timestamp (ms)
    and its LogAppendTime bit. Every property raises what Kafka throws for a missing field
    (OutOfBoundsError, IllegalArgumentError).
    """

    offset: int
    buffer: memoryview
    wrapper_timestamp: int = -1
    wrapper_has_append_time: bool | None = None

    @property
    def magic(self) -> int:
        """0 or 1; any byte in the middle of a wrapper."""
        return _signed_byte(self.buffer[_MAGIC_AT])

    @property
    def attributes(self) -> int:
        """Codec and timestamp type."""
        return _signed_byte(self.buffer[_ATTRIBUTES_AT])

    @property
    def codec(self) -> int:
        """The id of the codec. Raises IllegalArgumentError for bits that name none."""
        return codecs.known_codec(self.attributes)

    @property
    def has_append_time(self) -> bool:
        """Whether the LogAppendTime bit is set; False for magic 0."""
        if self.magic == 0:
            return False
        if self.wrapper_has_append_time is not None:
            return self.wrapper_has_append_time
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def timestamp(self) -> int:
        """The timestamp (ms); -1 for magic 0."""
        if self.magic == 0:
            return -1
        if self.wrapper_has_append_time:
            return self.wrapper_timestamp
        return int(_I64.unpack_from(self.buffer, _TIMESTAMP_AT)[0])

    @property
    def key_size(self) -> int:
        """The size of the key; negative for null."""
        return self._int_at(self._key_at)

    @property
    def key(self) -> memoryview | None:
        """The key; None for null."""
        return self._sized_at(self._key_at)

    @property
    def value(self) -> memoryview | None:
        """The value; None for null."""
        return self._sized_at(self._key_at + 4 + max(0, self.key_size))

    @property
    def crc(self) -> int:
        """The stored CRC."""
        return int(_U32.unpack_from(self.buffer)[0])

    def touch(self) -> None:
        """Raises the exceptions of `key` and `value`."""
        _ = self.key, self.value

    def ensure_valid(self) -> None:
        """Raises CorruptRecordError unless the stored CRC matches."""
        computed = zlib.crc32(self.buffer[_MAGIC_AT:])
        if computed != self.crc:
            raise CorruptRecordError(
                f"Record is corrupt (stored crc = {self.crc}, computed crc = {computed})",
                expected=self.crc, found=computed, code="batch_crc")

    @property
    def _key_at(self) -> int:
        return _TIMESTAMP_AT if self.magic == 0 else _TIMESTAMP_AT + 8

    def _int_at(self, position: int) -> int:
        if position > len(self.buffer) - 4:
            raise OutOfBoundsError(f"no field at byte {position} of {len(self.buffer)}")
        return int(_I32.unpack_from(self.buffer, position)[0])

    def _sized_at(self, position: int) -> memoryview | None:
        size = self._int_at(position)
        if size < 0:
            return None
        rest = self.buffer[position + 4:]
        if size > len(rest):
            raise IllegalArgumentError(f"newLimit > capacity: ({size} > {len(rest)})")
        return rest[:size]

    def __str__(self) -> str:
        time = ""
        if self.magic > 0:
            kind = "LogAppendTime" if self.has_append_time else "CreateTime"
            time = f"{kind}={self.timestamp}, "
        return (f"LegacyRecordBatch(offset={self.offset}, Record(magic={self.magic}, "
                f"attributes={self.attributes}, compression={codecs.CODEC_NAMES[self.codec]}, "
                f"crc={self.crc}, {time}key={len(self.key or b'')} bytes, "
                f"value={len(self.value or b'')} bytes))")


def _signed_byte(value: int) -> int:
    return value - 256 if value > 127 else value


def inner_records(wrapper: LegacyRecord) -> Iterator[LegacyRecord]:
    """The messages in a compressed one, with absolute offsets (Kafka: DeepRecordsIterator).

    Raises InvalidRecordError, CorruptRecordError or StreamError before the first one, and
    InvalidRecordError instead of a message that is itself compressed.
    """
    magic = wrapper.magic
    if magic < codecs.CODECS[wrapper.codec].min_magic:
        raise InvalidRecordError(
            f"Invalid wrapper compressionType found in legacy deep record iterator {magic}",
            code="legacy_codec")
    value = wrapper.value
    if value is None:
        raise InvalidRecordError(
            f"Found invalid compressed record set with null value (magic = {magic})",
            code="legacy_null_wrapper")
    inner = _inner(wrapper, value)
    if not inner:
        raise InvalidRecordError("Found invalid compressed record set with no inner records",
                                 code="legacy_empty_wrapper")
    base = 0
    if magic == 1 and wrapper.offset:
        last = inner[-1].offset
        if wrapper.offset < last:
            raise InvalidRecordError(
                "Found invalid wrapper offset in compressed v1 message set, wrapper offset "
                f"'{wrapper.offset}' is less than the last inner message offset '{last}' and it "
                "is not zero.", expected=last, found=wrapper.offset, code="legacy_offset")
        base = wrapper.offset - last
    for record in inner:
        record.offset = wrap_int64(record.offset + base)
        if record.codec:
            raise InvalidRecordError("Inner messages must not be compressed",
                                     code="legacy_nested")
        yield record


def _inner(wrapper: LegacyRecord, value: memoryview) -> list[LegacyRecord]:
    """The messages of a wrapper; a truncated one at the end is ignored."""
    found: list[LegacyRecord] = []
    stream = open_stream(wrapper.codec, wrapper.magic, value)
    while len(head := stream.read(_OFFSET_AND_SIZE.size)) == _OFFSET_AND_SIZE.size:
        offset, size = _OFFSET_AND_SIZE.unpack(head)
        if size < _SIZE_MIN:
            raise CorruptRecordError(
                f"Record size is less than the minimum record overhead ({_SIZE_MIN})",
                expected=_SIZE_MIN, found=size, code="legacy_size")
        message = stream.read(size)
        if len(message) < size:
            break
        record = LegacyRecord(offset, memoryview(message))
        if record.magic == 1:
            record.wrapper_timestamp = wrapper.timestamp
            record.wrapper_has_append_time = wrapper.has_append_time
        found.append(record)
    return found
