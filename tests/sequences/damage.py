"""Damages of a batch that is appended."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Callable

from tests.oracle import batch as v2
from tests.oracle import compression
from tests.oracle.batch import Batch
from tests.oracle.wire import crc32c, varint, varlong

Damage = Callable[[random.Random, bytes], bytes]

_LENGTH, _MAGIC, _CRC, _ATTRIBUTES, _LAST_DELTA = 8, 16, 17, 21, 23
_BASE_TIMESTAMP, _MAX_TIMESTAMP, _PRODUCER, _EPOCH, _SEQUENCE, _COUNT = 27, 35, 43, 51, 53, 57


def sealed(raw: bytes) -> bytes:
    """The same batch of magic 2 with the CRC that its bytes have."""
    return raw[:_CRC] + struct.pack(">I", crc32c(raw[_ATTRIBUTES:])) + raw[_ATTRIBUTES:]


def put(raw: bytes, at: int, form: str, value: int) -> bytes:
    """`raw` with one number replaced."""
    packed = struct.pack(form, value)
    return raw[:at] + packed + raw[at + len(packed):]


def _field(at: int, form: str, *values: int) -> Damage:
    return lambda source, raw: sealed(put(raw, at, form, source.choice(values)))


def _flipped(source: random.Random, raw: bytes) -> bytes:
    at = source.randrange(_CRC, len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << source.randrange(8)]) + raw[at + 1:]


def _cut(source: random.Random, raw: bytes) -> bytes:
    return raw[:source.choice([0, 1, 12, 16, 17, 18, 60, 61, len(raw) - 1,
                               source.randrange(len(raw))])]


def _tail(source: random.Random, raw: bytes) -> bytes:
    return raw + source.choice([source.randbytes(source.randint(1, 40)),
                                bytes(source.randint(1, 40))])


def _length(source: random.Random, raw: bytes) -> bytes:
    size = len(raw) - 12
    return put(raw, _LENGTH, ">i", source.choice(
        [0, 1, 13, 14, 48, 49, size - 1, size + 1, -1, -2**31, 2**31 - 1]))


def _payload(source: random.Random, raw: bytes) -> bytes:
    """Flips bytes of the payload and corrects the CRC: only a decoder notices."""
    if len(raw) <= v2.HEADER.size:
        return raw
    data = bytearray(raw)
    for _ in range(source.randint(1, 3)):
        data[source.randrange(v2.HEADER.size, len(data))] = source.choice(
            [0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
    return sealed(bytes(data))


def _longer_payload(source: random.Random, raw: bytes) -> bytes:
    raw = raw + source.randbytes(source.randint(1, 8))
    return sealed(put(raw, _LENGTH, ">i", len(raw) - 12))


def _shorter_payload(source: random.Random, raw: bytes) -> bytes:
    if len(raw) <= v2.HEADER.size:
        return raw
    raw = raw[:source.randint(v2.HEADER.size, len(raw) - 1)]
    return sealed(put(raw, _LENGTH, ">i", len(raw) - 12))


def _base_offset(source: random.Random, raw: bytes) -> bytes:
    return put(raw, 0, ">q", source.choice([1, -1, 5, 2**31, 2**62, -2**63]))


def _magic(source: random.Random, raw: bytes) -> bytes:
    return put(raw, _MAGIC, ">b", source.choice([0, 1, 3, -1, 127]))


def _twice(source: random.Random, raw: bytes) -> bytes:
    return raw + raw


#: Damages of one batch of magic 2, by name.
OF_BATCHES: dict[str, Damage] = {
    "flipped": _flipped, "cut": _cut, "tail": _tail, "length": _length, "payload": _payload,
    "longer payload": _longer_payload, "shorter payload": _shorter_payload,
    "base offset": _base_offset, "magic": _magic, "twice": _twice,
    "codec": _field(_ATTRIBUTES, ">h", 5, 6, 7, 1, 2, 3, 4, 0),
    "attributes": _field(_ATTRIBUTES, ">h", 0x08, 0x10, 0x20, 0x30, 0x40, 0x80, -2**15, 0x48),
    "last delta": _field(_LAST_DELTA, ">i", -1, 0, 1, 2**31 - 1, -2**31, 100),
    "base timestamp": _field(_BASE_TIMESTAMP, ">q", -1, 0, 2**63 - 1, -2**63),
    "max timestamp": _field(_MAX_TIMESTAMP, ">q", -1, 0, 2**63 - 1, -5, 1_700_000_000_123),
    "producer": _field(_PRODUCER, ">q", 0, 7, -2, 2**63 - 1),
    "producer epoch": _field(_EPOCH, ">h", 0, -1, -2, 2**15 - 1),
    "sequence": _field(_SEQUENCE, ">i", 0, -1, -2, 2**31 - 1, 5),
    "count": _field(_COUNT, ">i", 0, 1, -1, 2**31 - 1, -2**31, 3),
}


def _record(body: bytes, size: int | None = None) -> bytes:
    return varint(len(body) if size is None else size) + body


def odd_records(source: random.Random, batch: Batch) -> bytes:
    """The batch with one record whose fields do not fit together, its CRC right."""
    number = source.randrange(len(batch.records))
    parts = [v2.encode_record(one, batch.base_offset, batch.base_timestamp)
             for one in batch.records]
    one = batch.records[number]
    stamp, delta = one.timestamp - batch.base_timestamp, one.offset - batch.base_offset
    tail = varint(1) + b"k" + varint(1) + b"v" + varint(0)
    parts[number] = source.choice([
        _record(b"\x01" + varlong(stamp) + varint(delta) + tail),
        _record(b"\x00" + varlong(stamp) + varint(delta + 1) + tail),
        _record(b"\x00" + varlong(stamp) + varint(-1) + tail),
        _record(b"\x00" + varlong(2**62) + varint(delta) + tail),
        _record(b"\x00" + varlong(-2**63) + varint(delta) + tail),
        _record(b"\x00" + varlong(stamp) + varint(delta) + varint(-2) + varint(-2) + varint(0)),
        _record(b"\x00" + varlong(stamp) + varint(delta) + varint(100) + b"k"),
        _record(b"\x00" + varlong(stamp) + varint(delta) + varint(1) + b"k" + varint(-1)
                + varint(-1)),
        _record(b"\x00" + varlong(stamp) + varint(delta) + varint(-1) + varint(-1)
                + varint(2**31 - 1)),
        _record(b"\x00" + varlong(stamp) + varint(delta) + varint(-1) + varint(-1) + varint(1)
                + varint(-1) + varint(-1)),
        _record(b"\x00" + varlong(stamp) + varint(delta) + tail + b"more"),
        _record(b"\x00" + varlong(stamp) + varint(delta) + tail, 2**31 - 1),
        _record(b"\x00" + varlong(stamp) + varint(delta) + tail, -1),
        _record(b""),
        b"\xff\xff\xff\xff\xff\xff",
        b""])
    payload = compression.compress(batch.codec, b"".join(parts), raw_snappy=batch.raw_snappy)
    return v2.seal(batch.base_offset, batch.partition_leader_epoch, batch.attributes,
                   batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp,
                   batch.producer_id, batch.producer_epoch, batch.base_sequence,
                   len(batch.records), payload)


def of_message(source: random.Random, raw: bytes) -> bytes:
    """A message of magic 0 or 1 with something turned, cut or put behind it."""
    kind = source.randrange(5)
    if kind == 0:
        at = source.randrange(8, len(raw))
        return raw[:at] + bytes([raw[at] ^ 1 << source.randrange(8)]) + raw[at + 1:]
    if kind == 1:
        return raw[:source.randrange(len(raw))]
    if kind == 2:
        return raw + source.randbytes(source.randint(1, 30))
    if kind == 3:
        return put(raw, _LENGTH, ">i", source.choice([0, 13, 14, 2**31 - 1, -1]))
    return put(raw, _MAGIC, ">b", source.choice([0, 1, 2, 3, -1]))


#: Fields of a batch of magic 2 with the values that damage gives them.
_FIELDS: tuple[tuple[int, str, tuple[int, ...]], ...] = (
    (0, ">q", (0, 1, -1, 5, 2**31, 2**62, -2**63)),
    (_LENGTH, ">i", (0, 1, 13, 14, 48, 49, 61, 100, 5000, -1, -2**31, 2**31 - 1, 2**31 - 12)),
    (12, ">i", (-1, -2, 0, 7, 2**31 - 1)),
    (_MAGIC, ">b", (0, 1, 3, -1, 127)),
    (_ATTRIBUTES, ">h", (0, 1, 2, 3, 4, 5, 7, 0x08, 0x10, 0x18, 0x20, 0x30, 0x40, 0x50, 0x70, 0x80,
                         -2**15, 0x48, 0x78, 0x44)),
    (_LAST_DELTA, ">i", (-1, 0, 1, 3, 2**31 - 1, -2**31, 100)),
    (_BASE_TIMESTAMP, ">q", (-1, 0, 2**63 - 1, -2**63, 1_700_000_000_000)),
    (_MAX_TIMESTAMP, ">q", (-1, 0, 2**63 - 1, -5, 1_700_000_000_123)),
    (_PRODUCER, ">q", (0, -1, 1000, 2000, 2001, -2, 2**63 - 1)),
    (_EPOCH, ">h", (0, -1, -2, 2**15 - 1)),
    (_SEQUENCE, ">i", (0, -1, -2, 2**31 - 1, 5)),
    (_COUNT, ">i", (0, 1, 2, -1, 2**31 - 1, -2**31, 3)))


def on_disk(source: random.Random, *, of_log: bool) -> dict[str, object]:
    """Damage of a batch or an entry in a file: fields of the operation `spoil`."""
    kind = source.random()
    if kind < .25:
        return {"add": source.choice([1, -1, 2, -2, 3, -5, 10, -100, 1000, 2**31, -2**31, 2**40])}
    if kind < .7 and of_log:
        at, form, values = source.choice(_FIELDS)
        raw = struct.pack(form, source.choice(values))
    else:
        at = source.randrange(5000) if source.random() < .6 else source.randrange(61, 140)
        raw = source.choice([b"\0", b"\xff", b"\x7f", b"\x80", b"\1", b"\2",
                             source.randbytes(source.choice([1, 1, 2, 4, 16, 100]))])
    return {"at": at, "bytes": base64.b64encode(raw).decode()}
