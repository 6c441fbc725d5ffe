"""One decoder for every message of Kafka's protocol, driven by the tables in `schemas.py`.

`Message.read` does what the `read` of Kafka's generated classes does, with the same error texts.
`Message.to_json` does what the generated `*JsonConverter.write` does (KIP-482 for flexible
versions). Kafka tests a version only against the bounds that a declaration leaves open. So Kafka
and this module read a version newer than the tables like the newest one.
"""

from __future__ import annotations

import re
import struct as binary
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from seglog.dump.schemas import SCHEMAS
from seglog.java.printed_text import java_text
from seglog.tiered.api_frames import read_unsigned_varint

__all__ = ["Message", "MessageError", "Reader", "message", "messages"]

_STRING_MAX = 0x7FFF
_DEFAULTS: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "uuid": bytes(16),
                             "float64": 0.0}
_FIXED = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H",
          "uint32": ">I", "float64": ">d"}


class MessageError(ValueError):
    """A message that Kafka's generated code rejects; the text is that of its exception."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure. Kafka does not read versions above `newest` (None: it does not check)."""

    name: str
    fields: tuple[Field, ...]
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `low` or `high` is None if Kafka's code does not check that bound."""

    name: str
    type: str
    is_array: bool
    struct: Struct | None
    low: int | None
    high: int | None
    nullable: bool
    ignorable: bool
    zero_copy: bool
    tag: int | None
    default: Any = field(hash=False)

    def present(self, version: int) -> bool:
        """Whether messages of `version` have the field."""
        return ((self.low is None or version >= self.low)
                and (self.high is None or version <= self.high))


class Reader:
    """A cursor over one message, with the reads and error texts of Kafka's ByteBufferAccessor."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.position

    def fixed(self, format: str) -> Any:
        """One big-endian number in a `struct` format."""
        size = binary.calcsize(format)
        if self.remaining < size:
            raise MessageError("null")  # a BufferUnderflowException has no text
        self.position += size
        return binary.unpack_from(format, self.data, self.position - size)[0]

    def unsigned_varint(self) -> int:
        """A varint as in Kafka: see `read_unsigned_varint`."""
        try:
            value, self.position = read_unsigned_varint(self.data, self.position)
        except IndexError:
            raise MessageError("null") from None  # as in `fixed`
        except ValueError as error:
            raise MessageError(str(error)) from None
        return value

    def array(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size > self.remaining:
            raise MessageError(f"Error reading byte array of {size} byte(s): only "
                               f"{self.remaining} byte(s) available")
        if size < 0:
            raise MessageError(str(size))  # NegativeArraySizeException
        self.position += size
        return bytes(self.data[self.position - size:self.position])


@dataclass(frozen=True, slots=True)
class Message:
    """A message of `family` (see schemas.py); `api_key` is -1 for plain data."""

    family: str
    api_key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int | None
    fields: Struct

    def read(self, reader: Reader, version: int) -> dict[str, Any]:
        """The values of all fields; the default if the version lacks one. Raises MessageError."""
        flexible = self.flexible_from is not None and (
            self.flexible_from == self.lowest or version >= self.flexible_from)
        return _read_struct(self.fields, reader, version, flexible)

    def to_json(self, values: dict[str, Any], version: int) -> dict[str, Any]:
        """The JSON tree; values that Kafka prints in base64 are bytes. Raises MessageError."""
        return _struct_json(self.fields, values, version)


def _read_struct(struct: Struct, reader: Reader, version: int, flexible: bool) -> dict[str, Any]:
    if struct.newest is not None and version > struct.newest:
        raise MessageError(f"Can't read version {version} of {struct.name}")
    values = {}
    for item in struct.fields:
        if item.tag is None and item.present(version):
            values[item.name] = _read_field(item, reader, version, flexible)
        else:
            values[item.name] = _default(item)
    if flexible:
        tagged = {item.tag: item for item in struct.fields if item.tag is not None}
        for _ in range(reader.unsigned_varint()):
            tag, size = reader.unsigned_varint(), reader.unsigned_varint()
            item_or_none = tagged.get(tag)
            if item_or_none is None:
                reader.array(size)
            elif not item_or_none.present(version):
                raise MessageError(f"Tag {tag} is not valid for version {version}")
            else:
                values[item_or_none.name] = _read_field(item_or_none, reader, version, True)
    return values


def _read_field(item: Field, reader: Reader, version: int, flexible: bool) -> Any:
    if not item.is_array:
        return _read_value(item, reader, version, flexible, item.name, item.nullable)
    length = reader.unsigned_varint() - 1 if flexible else reader.fixed(">i")
    if length < 0:
        if item.nullable:
            return None
        raise MessageError(f"non-nullable field {item.name} was serialized as null")
    if length > reader.remaining:
        raise MessageError(f"Tried to allocate a collection of size {length}, but there are only "
                           f"{reader.remaining} bytes remaining.")
    name = f"{item.name} element"
    return [_read_value(item, reader, version, flexible, name, False) for _ in range(length)]


def _read_value(item: Field, reader: Reader, version: int, flexible: bool, name: str,
                nullable: bool) -> Any:
    if item.struct is not None:
        if nullable:
            marker = reader.unsigned_varint() - 1 if item.tag is not None else reader.fixed(">b")
            if marker < 0:
                return None
        return _read_struct(item.struct, reader, version, flexible)
    if item.type == "bool":
        return reader.fixed(">b") != 0
    if item.type == "uuid":
        return reader.fixed(">16s")
    if item.type in _FIXED:
        return reader.fixed(_FIXED[item.type])
    if flexible:
        length = reader.unsigned_varint() - 1
    else:
        length = reader.fixed(">h" if item.type == "string" else ">i")
    if length < 0:
        if nullable:
            return None
        raise MessageError(f"non-nullable field {name} was serialized as null")
    if item.type == "bytes":
        if item.zero_copy and length > reader.remaining:
            raise MessageError(f"newLimit > capacity: ({length} > {reader.remaining})")
        return reader.array(length)
    if length > _STRING_MAX:
        raise MessageError(f"string field {name} had invalid length {length}")
    return java_text(reader.array(length))


def _default(item: Field) -> Any:
    if item.default is not None:
        return None if item.default == "null" else item.default
    if item.is_array:
        return []
    if item.struct is not None:
        return {inner.name: _default(inner) for inner in item.struct.fields}
    return _DEFAULTS.get(item.type, 0)


def _struct_json(struct: Struct, values: dict[str, Any], version: int) -> dict[str, Any]:
    tree = {}
    for item in struct.fields:
        value = values[item.name]
        if not item.present(version):
            if not item.ignorable and value != _default(item):
                raise MessageError(
                    f"Attempted to write a non-default {item.name} at version {version}")
        elif item.tag is None or value != _default(item):
            tree[item.name] = _field_json(item, value, version)
    return tree


def _field_json(item: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if item.is_array:
        return [_value_json(item, element, version) for element in value]
    return _value_json(item, value, version)


def _value_json(item: Field, value: Any, version: int) -> Any:
    if item.struct is not None:
        return _struct_json(item.struct, value, version)
    if item.type == "uuid":
        return urlsafe_b64encode(value)[:22].decode()
    return value


@cache
def messages(family: str) -> dict[int, Message]:
    """All messages of a family by api key."""
    return {item.api_key: item for item in _tables() if item.family == family}


@cache
def message(name: str) -> Message:
    """One message by its name, such as `LeaderChangeMessage`."""
    return next(item for item in _tables() if item.name == name)


_HEAD = re.compile(r"^(\S+) (-?\d*) (\w+) (\d+)-(\d+) (-|\d+)\s", re.MULTILINE)
_FIELD = re.compile(r"(\w+):(\[\])?(\w+)")
_REST = re.compile(r"(?:/(\d+)(?:-(\d+))?)?(\?)?(~)?(!)?(?:@(\d+))?(?:=([-\w]+))?")


@cache
def _tables() -> tuple[Message, ...]:
    found = []
    heads = list(_HEAD.finditer(SCHEMAS))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = SCHEMAS[head.end():following.start() if following else len(SCHEMAS)]
        family, key, name, low, high, flexible = head.groups()
        found.append(Message(family, -1 if key == "-" else int(key), name, int(low), int(high),
                             None if flexible == "-" else int(flexible),
                             _Parser(body, int(high)).message(name)))
    return tuple(found)


class _Parser:
    """Parses one definition; inner structures have the newest version of their message."""

    def __init__(self, text: str, highest: int) -> None:
        self.highest = highest
        top, *common = text.replace("\n", "").split(" +")
        self.top = re.sub(r" +", " ", top).strip()
        self.common = {}
        for item in common:
            name, _, body = re.sub(r" +", " ", item).strip().partition("{")
            self.common[name] = "{" + body

    def message(self, name: str) -> Struct:
        fields, _ = self._fields(self.top, 0)
        return Struct(name, tuple(fields))

    def _fields(self, text: str, start: int) -> tuple[list[Field], int]:
        """The fields between the brace at `start` and its closing brace, and the end position."""
        fields, position = [], start + 1
        while text[position] != "}":
            if text[position] == " ":
                position += 1
                continue
            item, position = self._field(text, position)
            fields.append(item)
        return fields, position + 1

    def _field(self, text: str, position: int) -> tuple[Field, int]:
        head = _FIELD.match(text, position)
        assert head is not None, text[position:]
        name, array, kind = head.groups()
        struct, position, in_place = None, head.end(), False
        if text[position] == "{":
            fields, position = self._fields(text, position)
            struct, in_place = Struct(kind, tuple(fields)), True
        elif kind in self.common:
            struct = Struct(kind, tuple(self._fields(self.common[kind], 0)[0]))
        rest = _REST.match(text, position)
        assert rest is not None
        low, high, nullable, ignorable, zero_copy, tag, default = rest.groups()
        if struct is not None and in_place and high is None:
            struct = Struct(struct.name, struct.fields, self.highest)
        return Field(name, kind, bool(array), struct, _int(low), _int(high), bool(nullable),
                     bool(ignorable), bool(zero_copy), _int(tag),
                     _parse_default(kind, default)), rest.end()


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _parse_default(kind: str, text: str | None) -> Any:
    if text is None or text == "null":
        return text
    return text == "true" if kind == "bool" else int(text)
