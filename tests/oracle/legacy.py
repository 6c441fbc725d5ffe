"""Messages of magic 0 and 1, alone and in compressed wrappers (LegacyRecord)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

from tests.oracle import compression
from tests.oracle.batch import Row
from tests.oracle.wire import OracleError, Reader

NO_TIMESTAMP = -1


@dataclass
class Message:
    """One entry of a log of magic 0 or 1; a wrapper when `codec` is not 0."""

    offset: int
    magic: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    codec: int = 0
    timestamp_type: int = 0
    #: Of a wrapper, with their absolute offsets.
    inner: list[Message] = field(default_factory=list)


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode(message: Message, stored_offset: int | None = None) -> bytes:
    """The bytes of one message, with the right size and CRC."""
    attributes = message.codec | message.timestamp_type << 3
    body = struct.pack(">bb", message.magic, attributes)
    if message.magic == 1:
        body += struct.pack(">q", message.timestamp)
    body += _blob(message.key) + _blob(message.value)
    offset = message.offset if stored_offset is None else stored_offset
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrap(messages: list[Message], codec: int, *, timestamp_type: int = 0,
         append_time: int = NO_TIMESTAMP) -> Message:
    """The wrapper that holds `messages`: offset of the last, inner offsets relative in magic 1."""
    magic, first = messages[0].magic, messages[0].offset
    plain = b"".join(
        encode(message, message.offset - first if magic == 1 else message.offset)
        for message in messages)
    timestamp = NO_TIMESTAMP
    if magic == 1:
        timestamp = append_time if timestamp_type else max(m.timestamp for m in messages)
    return Message(messages[-1].offset, magic,
                   value=compression.compress(codec, plain, magic=magic), timestamp=timestamp,
                   codec=codec, timestamp_type=timestamp_type, inner=messages)


def _decode_one(reader: Reader, *, check_crc: bool) -> Message:
    offset, size = reader.number(8), reader.number(4)
    if size < 14:
        raise OracleError(f"message of {size} bytes")
    body = Reader(reader.take(size))
    crc = body.number(4) & 0xFFFFFFFF
    if check_crc and crc != zlib.crc32(body.data[4:]):
        raise OracleError(f"crc {crc:#x}, not {zlib.crc32(body.data[4:]):#x}")
    # Whatever is not 0 has the fields of 1 here, but only a real 1 takes its wrapper's time.
    magic, attributes = body.number(1), body.number(1)
    timestamp = body.number(8) if magic else NO_TIMESTAMP

    def blob() -> bytes | None:
        length = body.number(4)
        return None if length < 0 else body.take(length)

    key, value = blob(), blob()
    return Message(offset, magic, key, value, timestamp, attributes & 7,
                   attributes >> 3 & 1 if magic else 0)


def decode(data: bytes, *, check_crc: bool = True) -> Message:
    """The entry whose bytes are exactly `data`, a wrapper with its inner messages."""
    outer = _decode_one(Reader(data), check_crc=check_crc)
    if outer.codec == 0:
        return outer
    if outer.codec > compression.LZ4:
        raise OracleError(f"codec {outer.codec} in magic {outer.magic}")
    if outer.value is None:
        raise OracleError("wrapper without a value")
    plain = compression.decompress(outer.codec, outer.value, magic=outer.magic)
    reader = Reader(plain)
    # A message set in a wrapper ends quietly where its last message is cut, as Kafka's does.
    while reader.remaining >= 12:
        size = int.from_bytes(plain[reader.position + 8:reader.position + 12], "big", signed=True)
        if size > reader.remaining - 12:
            break
        outer.inner.append(_decode_one(reader, check_crc=False))
    if not outer.inner:
        raise OracleError("wrapper without inner messages")
    if any(message.codec for message in outer.inner):
        raise OracleError("compressed message in a wrapper")
    if outer.magic == 1:
        last = outer.inner[-1].offset
        if outer.offset and outer.offset < last:
            raise OracleError(f"wrapper offset {outer.offset} below the inner offset {last}")
        base = outer.offset - last if outer.offset else 0
        for message in outer.inner:
            message.offset += base
    return outer


def rows(entry: Message, position: int) -> list[Row]:
    """The entry's records with every column that seglog has."""
    found: list[Row] = []
    for message in entry.inner or [entry]:
        timestamp, kind = message.timestamp, message.timestamp_type
        if entry.inner and message.magic == 1:
            kind = entry.timestamp_type
            timestamp = entry.timestamp if kind else timestamp
        if message.magic == 0:
            timestamp, kind = NO_TIMESTAMP, -1
        found.append({
            "offset": message.offset, "timestamp": timestamp, "timestamp_type": kind,
            "key": message.key, "value": message.value, "headers": [],
            "producer_id": -1, "producer_epoch": -1, "sequence": -1,
            "partition_leader_epoch": -1, "is_transactional": False, "is_control": False,
            "position": position,
        })
    return found
