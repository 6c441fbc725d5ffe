"""Random messages of Kafka's protocol, encoded from the tables that `seglog.dump` decodes with.

A wrong table makes wrong bytes, which Kafka then reads otherwise or not at all: the tests that use
this compare with Kafka.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from seglog.dump.messages import Field, Message, Struct

_INTEGERS = {"int8": (">b", 8), "int16": (">h", 16), "int32": (">i", 32), "int64": (">q", 64)}
_TEXTS = ["", "a", "group-1", "żółw 𝄞", 'quo"te\\ \n\t\x01\x7f', "x" * 300]
# Doubles whose digits are the same in every Java (up to 18 some print more than they need).
_DOUBLES = [0.0, -0.0, 1.0, 1024.5, -0.001, 1e7, 123456789.0, 1.5e-7, float("inf"), float("nan")]


def encode_message(schema: Message, version: int, rng: random.Random) -> bytes:
    """A message of `version` with random fields."""
    flexible = schema.flexible_from is not None and version >= schema.flexible_from
    return _struct(schema.fields, version, flexible, rng)


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _struct(struct_: Struct, version: int, flexible: bool, rng: random.Random) -> bytes:
    out, tagged = b"", []
    for item in struct_.fields:
        if not item.present(version):
            continue
        if item.tag is None:
            out += _field(item, version, flexible, rng)
        elif flexible and rng.random() < 0.7:
            tagged.append((item.tag, _field(item, version, True, rng)))
    if flexible:
        if rng.random() < 0.2:
            tagged.append((100 + rng.randrange(50), rng.randbytes(rng.randrange(5))))
        out += unsigned_varint(len(tagged))
        for tag, data in sorted(tagged):
            out += unsigned_varint(tag) + unsigned_varint(len(data)) + data
    return out


def _field(item: Field, version: int, flexible: bool, rng: random.Random) -> bytes:
    is_null = item.nullable and rng.random() < 0.3
    if item.is_array:
        count = -1 if is_null else rng.choice([0, 1, 1, 2, 5])
        elements = b"".join(_value(item, version, flexible, rng) for _ in range(count))
        return (unsigned_varint(count + 1) if flexible else struct.pack(">i", count)) + elements
    if item.struct is not None and item.nullable:
        if item.tag is not None:
            return b"\x00" if is_null else b"\x01" + _value(item, version, flexible, rng)
        return b"\xff" if is_null else b"\x01" + _value(item, version, flexible, rng)
    if is_null:
        if flexible:
            return b"\x00"
        return struct.pack(">h" if item.type == "string" else ">i", -1)
    return _value(item, version, flexible, rng)


def _value(item: Field, version: int, flexible: bool, rng: random.Random) -> bytes:
    if item.struct is not None:
        return _struct(item.struct, version, flexible, rng)
    if item.type == "bool":
        return bytes([rng.choice([0, 1, 1, 200])])
    if item.type == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16)])
    if item.type == "float64":
        return struct.pack(">d", rng.choice(_DOUBLES))
    if item.type in ("uint16", "uint32"):
        return rng.randbytes(2 if item.type == "uint16" else 4)
    if item.type in _INTEGERS:
        format_, bits = _INTEGERS[item.type]
        top = 2 ** (bits - 1)
        value: Any = rng.choice([0, 1, 2, 3, -1, -2, top - 1, -top, rng.randrange(-top, top)])
        return struct.pack(format_, value)
    data = rng.choice(_TEXTS).encode() if rng.random() < 0.9 else rng.randbytes(12)
    if item.type == "bytes":
        data = rng.randbytes(rng.randrange(20))
    if flexible:
        return unsigned_varint(len(data) + 1) + data
    return struct.pack(">h" if item.type == "string" else ">i", len(data)) + data
