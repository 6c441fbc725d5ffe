"""Damage behind a CRC that holds: header fields, records, compressed payloads, old messages."""

from __future__ import annotations

import functools
import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam

from tests.oracle import batch as v2
from tests.oracle import compression, legacy
from tests.oracle.log import Entry
from tests.oracle.wire import OracleError, varint, varlong, xxh32
from tests.support.damage import Target, kind, old_message, splice

_FIELDS = ("base_offset", "length", "leader_epoch", "magic", "crc", "attributes",
           "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
           "producer_epoch", "base_sequence", "record_count")
#: Above the default cap of a payload (storage.codecs.MAX_BYTES_DEFAULT).
BOMB_BYTES = 640 << 20


def _fields(entry: Entry) -> dict[str, Any]:
    found = dict(zip(_FIELDS, v2.HEADER.unpack_from(entry.data), strict=True))
    del found["length"], found["crc"]
    found["payload"] = entry.data[v2.HEADER.size:]
    return found


def _is_v2(entry: Entry) -> bool:
    return entry.magic == 2 and entry.size >= v2.HEADER.size


def _with_records(codecs: tuple[int, ...]) -> Callable[[Entry], bool]:
    def want(entry: Entry) -> bool:
        if not _is_v2(entry):
            return False
        fields = _fields(entry)
        return fields["record_count"] > 0 and fields["attributes"] & 7 in codecs

    return want


def _reseal(t: Target, change: Callable[[dict[str, Any]], str | None],
            codecs: tuple[int, ...] = (0, 1, 2, 3, 4)) -> str | None:
    """Changes the fields of one batch that has records and gives it the CRC that they need."""
    place = t.place(_with_records(codecs))
    if place is None:
        return None
    path, entry = place
    fields = _fields(entry)
    said = change(fields)
    if said is None:
        return None
    splice(path, entry, v2.seal(**fields))
    return f"{path.name} {said} at {entry.position}"


def _set(name: str, choose: Callable[[Target, Any], int]) -> Callable[[Target], str | None]:
    def apply(t: Target) -> str | None:
        def change(fields: dict[str, Any]) -> str:
            fields[name] = choose(t, fields[name])
            return f"{name} {fields[name]}"

        return _reseal(t, change)

    apply.__name__ = f"sealed_{name}"
    return apply


kind(_set("record_count", lambda t, now: t.random.choice(
    [-1, -2**31, 0, now - 1, now + 1, 10**6, 2**31 - 1])))
kind(_set("last_offset_delta", lambda t, now: t.random.choice(
    [-1, -2**31, now + 1, now + 10**6, 2**31 - 1])))
kind(_set("base_offset", lambda t, now: t.random.choice(
    [-1, -2**63, now - 1, now + 1, 2**63 - 1, 2**63 - 2])))
kind(_set("base_timestamp", lambda t, now: t.random.choice([-2**63, 2**63 - 1, -1, now + 10**9])))
kind(_set("max_timestamp", lambda t, now: t.random.choice([-2**63, 2**63 - 1, -1, now + 10**9])))
kind(_set("producer_id", lambda t, now: t.random.choice([-2, -2**63, 2**63 - 1, 7])))
kind(_set("base_sequence", lambda t, now: t.random.choice([-2, 2**31 - 1, -2**31, 5])))


@kind
def sealed_codec_bits(t: Target) -> str | None:
    """A codec that does not exist, or not the one that wrote the payload."""
    def change(fields: dict[str, Any]) -> str:
        codec = (fields["attributes"] & 7) + t.random.randint(1, 7) & 7
        fields["attributes"] = fields["attributes"] & ~7 | codec
        return f"codec {codec}"

    return _reseal(t, change)


@kind
def sealed_attributes(t: Target) -> str | None:
    def change(fields: dict[str, Any]) -> str:
        fields["attributes"] ^= 1 << t.random.choice([3, 4, 5, 6, 7, 8, 14])
        return f"attributes {fields['attributes']:#06x}"

    return _reseal(t, change)


@kind
def sealed_payload_flipped(t: Target) -> str | None:
    """One bit of the payload, under a CRC that is right: only records or the codec can object."""
    def change(fields: dict[str, Any]) -> str:
        payload = bytearray(fields["payload"])
        at = t.random.randrange(len(payload))
        payload[at] ^= 1 << t.random.randrange(8)
        fields["payload"] = bytes(payload)
        return f"payload bit in byte {at}"

    return _reseal(t, change)


@kind
def sealed_payload_cut(t: Target) -> str | None:
    def change(fields: dict[str, Any]) -> str:
        size = t.random.randrange(len(fields["payload"]))
        fields["payload"] = fields["payload"][:size]
        return f"payload cut to {size} bytes"

    return _reseal(t, change)


@kind
def sealed_payload_longer(t: Target) -> str | None:
    def change(fields: dict[str, Any]) -> str:
        raw = t.random.choice([b"\0", b"\x02\0", t.random.randbytes(40)])
        fields["payload"] += raw
        return f"{len(raw)} bytes behind the payload"

    return _reseal(t, change)


def _hostile_records(t: Target) -> tuple[str, bytes]:
    """One record with wrong numbers, and what is wrong with it."""
    endless, most = b"\xff" * t.random.choice([5, 6, 10, 11, 40]), varint(2**31 - 1)

    def whole(body: bytes) -> bytes:
        return varint(len(body)) + body

    head = b"\0" + varlong(0) + varint(0)
    cases = {
        "record length without an end": endless,
        "record length of 2 GiB": most + head,
        "negative record length": varint(-1) + head,
        "record length of 0": varint(0),
        "timestamp delta without an end": whole(b"\0" + endless),
        "timestamp delta that overflows": whole(
            b"\0" + varlong(2**63 - 1) + varint(0) + b"\1\1\0"),
        "offset delta that overflows": whole(
            b"\0" + varlong(0) + varint(2**31 - 1) + b"\1\1\0"),
        "negative offset delta": whole(b"\0" + varlong(0) + varint(-5) + b"\1\1\0"),
        "key length of 2 GiB": whole(head + most + b"key"),
        "key length past the record": whole(head + varint(50) + b"key\1\0"),
        "value length without an end": whole(head + b"\1" + endless),
        "value length past the record": whole(head + b"\1" + varint(99) + b"\0"),
        "header count of 2 GiB": whole(head + b"\1\1" + most),
        "negative header count": whole(head + b"\1\1" + varint(-1)),
        "header count without headers": whole(head + b"\1\1" + varint(3)),
        "negative header key": whole(head + b"\1\1" + varint(1) + varint(-1) + b"\1"),
        "header key past the record": whole(head + b"\1\1" + varint(1) + varint(30) + b"k"),
        "header value past the record": whole(
            head + b"\1\1" + varint(1) + varint(1) + b"k" + varint(1000)),
        "bytes behind the headers": whole(head + b"\1\1\0" + b"more"),
        "record that ends early": whole(head),
        "no byte at all": b"",
    }
    name = t.random.choice(sorted(cases))
    return name, cases[name]


@kind
def sealed_hostile_record(t: Target) -> str | None:
    """Sound records, then one with wrong lengths, in a batch of any codec."""
    def change(fields: dict[str, Any]) -> str | None:
        codec = t.random.randrange(5)
        try:
            plain = compression.decompress(fields["attributes"] & 7, fields["payload"])
        except OracleError:
            return None
        name, raw = _hostile_records(t)
        fields["attributes"] = fields["attributes"] & ~7 | codec
        fields["payload"] = compression.compress(codec, plain + raw)
        fields["record_count"] += 1
        return f"{name} in codec {codec}"

    return _reseal(t, change)


@functools.cache
def bomb(codec: int) -> bytes:
    """A small payload that grows to `BOMB_BYTES` of zeros, or says so."""
    step = bytes(1 << 20)
    if codec == compression.GZIP:
        deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
        return b"".join(deflate.compress(step) for _ in range(BOMB_BYTES >> 20)) + deflate.flush()
    if codec == compression.ZSTD:
        encoder = cramjam.zstd.Compressor()
        for _ in range(BOMB_BYTES >> 20):
            encoder.compress(step)
        return bytes(encoder.finish())
    if codec == compression.LZ4:
        block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
        header = b"\x60\x70"
        frame = b"\x04\x22\x4d\x18" + header + bytes([xxh32(header) >> 8 & 0xFF])
        return frame + (len(block).to_bytes(4, "little") + block) * (BOMB_BYTES >> 22) + bytes(4)
    block = bytes(cramjam.snappy.compress_raw(bytes(16 << 20)))
    return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + (
        len(block).to_bytes(4, "big") + block) * (BOMB_BYTES >> 24)


def _sized_lie(t: Target, codec: int) -> bytes:
    """A payload whose own header says that it holds far more than it does."""
    if codec == compression.GZIP:
        return gzip.compress(b"x")[:-4] + b"\xff\xff\xff\xff"
    if codec == compression.ZSTD:
        return bytes.fromhex("28b52ffde0") + (2**62).to_bytes(8, "little") + b"\x01\0\0"
    if codec == compression.LZ4:
        header = b"\x68\x70" + (2**62).to_bytes(8, "little")
        return b"\x04\x22\x4d\x18" + header + bytes([xxh32(header) >> 8 & 0xFF]) + \
            (2**31 - 1).to_bytes(4, "little") + b"x"
    return t.random.choice([b"\xff\xff\xff\xff\x0f\0", b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 +
                            b"\x7f\xff\xff\xff" + b"x"])


@kind
def decompression_bomb(t: Target) -> str | None:
    codec = t.random.randint(1, 4)

    def change(fields: dict[str, Any]) -> str:
        fields["attributes"] = fields["attributes"] & ~7 | codec
        fields["payload"] = bomb(codec)
        return f"{len(fields['payload'])} bytes of codec {codec} that hold {BOMB_BYTES}"

    return _reseal(t, change)


@kind
def decompressed_size_lies(t: Target) -> str | None:
    codec = t.random.randint(1, 4)

    def change(fields: dict[str, Any]) -> str:
        fields["attributes"] = fields["attributes"] & ~7 | codec
        fields["payload"] = _sized_lie(t, codec)
        return f"codec {codec} whose header names a size that it has not"

    return _reseal(t, change)


def _bad_message(t: Target, entry: Entry) -> tuple[str, legacy.Message]:
    """What is wrong with a message of the old formats, and that message."""
    old = legacy.decode(entry.data)
    magic, first = old.magic, (old.inner or [old])[0].offset
    one = legacy.Message(first, magic, b"k", b"v", 1000 if magic else -1)
    inner = legacy.encode(one, 0 if magic else first)

    def wrapper(payload: bytes | None, codec: int = 1, offset: int = first) -> legacy.Message:
        value = None if payload is None else compression.compress(codec, payload, magic=magic)
        return legacy.Message(offset, magic, None, value, one.timestamp, codec)

    nested = legacy.encode(legacy.wrap([one], 1), 0 if magic else first)
    cases = {
        "wrapper without a value": wrapper(None),
        "wrapper without a message": wrapper(b""),
        "wrapper in a wrapper": wrapper(nested),
        "inner message cut": wrapper(inner[:-3]),
        "inner size of 2 GiB": wrapper(inner[:8] + b"\x7f\xff\xff\xff" + inner[12:]),
        "inner size of 3": wrapper(inner[:8] + b"\0\0\0\3" + inner[12:]),
        "inner magic of 2": wrapper(inner[:16] + b"\2" + inner[17:]),
        "codec of nobody": legacy.Message(first, magic, None, b"x" * 30, one.timestamp, 6),
        "zstd in an old message": legacy.Message(first, magic, None, b"x" * 30, one.timestamp, 4),
        "payload that is none": legacy.Message(first, magic, None, b"x" * 30, one.timestamp,
                                               t.random.randint(1, 3)),
        "inner offset above the wrapper's": wrapper(
            legacy.encode(one, 2**62), offset=max(1, first)),
        "bomb": legacy.Message(first, magic, None, bomb(1), one.timestamp, 1),
    }
    name = t.random.choice(sorted(cases))
    return name, cases[name]


@kind
@old_message
def sealed_old_message(t: Target, path: Path, entry: Entry) -> str:
    name, message = _bad_message(t, entry)
    splice(path, entry, legacy.encode(message))
    return f"{path.name} {name} at {entry.position}"


@kind
@old_message
def sealed_old_lengths(t: Target, path: Path, entry: Entry) -> str:
    """A wrong key or value length of an old message, under a valid CRC."""
    body = bytearray(entry.data[16:])
    at = 2 if entry.magic == 0 else 10
    length = t.random.choice([-2, -2**31, 10**6, 2**31 - 1, len(body)])
    body[at:at + 4] = struct.pack(">i", length)
    sealed = entry.data[:12] + struct.pack(">I", zlib.crc32(body)) + bytes(body)
    splice(path, entry, sealed)
    return f"{path.name} key length {length} at {entry.position}"
