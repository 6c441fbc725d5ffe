"""kcat's output formats: `-f` tokens, `-J`, `-D`/`-K`, compiled once and applied to columns.

A format becomes a list of parts: constant bytes, or a function from the decoded columns to one
`bytes` per row. Rendering a batch is a single join over all of them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from seglog.cli.unpack import Unpack, UnpackError
from seglog.model import TopicPartition

__all__ = ["Columns", "Formatter", "compile_format", "json_formatter"]

Columns = dict[str, list[Any]]
Part = bytes | Callable[[Columns], list[bytes]]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\", "a": b"\a", "b": b"\b",
            "e": b"\x1b"}
_TIMESTAMP_TYPES = {0: "create", 1: "logappend"}


class Formatter:
    """Renders rows as bytes; `columns` are the columns that it needs."""

    def __init__(self, columns: Sequence[str], parts: Sequence[Part]) -> None:
        self.columns = tuple(dict.fromkeys(columns)) or ("offset",)
        self._parts = tuple(parts)

    def with_unpacked(self, unpack: Mapping[str, Unpack]) -> Formatter:
        """A formatter that prints keys and values as `unpack` returns them; null stays null."""
        return self if not unpack else _Unpacking(self, unpack)

    def render(self, columns: Columns, count: int) -> bytes:
        """The first `count` rows as output bytes."""
        cells: list[Iterator[bytes]] = []
        for part in self._parts:
            if isinstance(part, bytes):
                cells.append(repeat(part, count))
            else:
                cells.append(iter(part(columns)[:count]))
        return b"".join(chain.from_iterable(zip(*cells, strict=False)))


class _Unpacking(Formatter):
    """Prints deserialized keys and values instead of bytes."""

    def __init__(self, inner: Formatter, unpack: Mapping[str, Unpack]) -> None:
        super().__init__((*inner.columns, "offset"), inner._parts)
        self._unpack = {name: made for name, made in unpack.items() if name in inner.columns}

    def render(self, columns: Columns, count: int) -> bytes:
        """The rows. Raises UnpackError with the offset of the first row that does not unpack."""
        shown = dict(columns)
        for name, unpack in self._unpack.items():
            shown[name] = cells = list[bytes | None]()
            for row, cell in enumerate(columns[name][:count]):
                try:
                    cells.append(None if cell is None else unpack(cell))
                except UnpackError as error:
                    failure = UnpackError(f"offset {columns['offset'][row]}: {error}")
                    failure.row = row
                    raise failure from None
        return super().render(shown, count)


def compile_format(text: str, tp: TopicPartition, null: bytes = b"") -> Formatter:
    """Compiles kcat's `-f` string. `null` replaces a null key or value (`-Z`: NULL).

    Tokens: %s value, %S its length (-1 for null), %R its length as 4 bytes big-endian, %k key, %K
    its length, %T timestamp in ms, %h headers as name=value with commas, %t topic, %p partition,
    %o offset, %% a percent sign; escapes: \\n \\r \\t \\\\ \\0 \\a \\b \\e \\xHH.
    Raises ValueError for any other token or escape.
    """
    columns: list[str] = []
    parts: list[Part] = []

    def literal(raw: bytes) -> None:
        if parts and isinstance(parts[-1], bytes):
            raw = parts.pop() + raw  # type: ignore[operator]
        parts.append(raw)

    at = 0
    while at < len(text):
        char, following = text[at], text[at + 1:at + 2]
        if char == "\\":
            raw, at = _escape(text, at)
            literal(raw)
        elif char != "%":
            literal(char.encode("utf-8", "surrogateescape"))
            at += 1
        else:
            at += 2
            if following == "%":
                literal(b"%")
            elif following == "t":
                literal(tp.topic.encode("utf-8", "surrogateescape"))
            elif following == "p":
                literal(b"%d" % tp.partition)
            else:
                column, part = _token(following, null)
                columns.append(column)
                parts.append(part)
    return Formatter(columns, parts)


def _escape(text: str, at: int) -> tuple[bytes, int]:
    following = text[at + 1:at + 2]
    if following == "x":
        digits = text[at + 2:at + 4]
        try:
            return bytes([int(digits, 16)]), at + 2 + len(digits)
        except ValueError:
            raise ValueError(f"-f: \\x needs two hexadecimal digits, got {digits!r}") from None
    if following not in _ESCAPES or not following:
        raise ValueError(f"-f: unknown escape \\{following}")
    return _ESCAPES[following], at + 2


def _token(name: str, null: bytes) -> tuple[str, Callable[[Columns], list[bytes]]]:
    def data(column: str) -> Callable[[Columns], list[bytes]]:
        return lambda columns: [null if cell is None else cell for cell in columns[column]]

    def length(column: str) -> Callable[[Columns], list[bytes]]:
        return lambda columns: [b"-1" if cell is None else b"%d" % len(cell)
                                for cell in columns[column]]

    def number(column: str) -> Callable[[Columns], list[bytes]]:
        return lambda columns: [b"%d" % cell for cell in columns[column]]

    def framed(columns: Columns) -> list[bytes]:
        return [(-1 if cell is None else len(cell)).to_bytes(4, "big", signed=True)
                for cell in columns["value"]]

    def headers(columns: Columns) -> list[bytes]:
        return [b",".join(key.encode() + b"=" + (b"NULL" if value is None else value)
                          for key, value in cell) for cell in columns["headers"]]

    tokens: dict[str, tuple[str, Callable[[Columns], list[bytes]]]] = {
        "s": ("value", data("value")), "S": ("value", length("value")), "R": ("value", framed),
        "k": ("key", data("key")), "K": ("key", length("key")),
        "T": ("timestamp", number("timestamp")), "o": ("offset", number("offset")),
        "h": ("headers", headers),
    }
    if name not in tokens:
        raise ValueError(f"-f: unknown token %{name}")
    return tokens[name]


def json_formatter(tp: TopicPartition, binary: str = "text") -> Formatter:
    """kcat's `-J`: one JSON object per line.

    `binary` is "text" (invalid UTF-8 becomes U+FFFD, as in kcat) or "base64" (keys, payloads and
    header values in base64, lossless).
    """
    def show(cell: bytes | None) -> str | None:
        if cell is None:
            return None
        return b64encode(cell).decode() if binary == "base64" else cell.decode("utf-8", "replace")

    def lines(columns: Columns) -> list[bytes]:
        out = []
        for offset, timestamp, kind, key, value, headers in zip(
                columns["offset"], columns["timestamp"], columns["timestamp_type"],
                columns["key"], columns["value"], columns["headers"], strict=True):
            row: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "offset": offset,
                                   "tstype": _TIMESTAMP_TYPES.get(kind, "unknown"),
                                   "ts": timestamp, "broker": -1}
            if headers:
                row["headers"] = [show(cell) if isinstance(cell, bytes | None) else cell
                                  for pair in headers for cell in pair]
            row["key"], row["payload"] = show(key), show(value)
            out.append(json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                       .encode("utf-8", "replace") + b"\n")
        return out

    return Formatter(("offset", "timestamp", "timestamp_type", "key", "value", "headers"), [lines])
