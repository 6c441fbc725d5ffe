"""kcat's `-s`: prints bytes as numbers and text, by a pack string."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

__all__ = ["Unpack", "UnpackError", "parse_deserializers"]

#: Turns bytes into printed text. Raises UnpackError.
Unpack = Callable[[bytes], bytes]

_NUMBERS = frozenset("bBhHiIqQ")
_HELP = ("expected a pack string of < > b B h H i I q Q c s $ (big-endian unless < comes before), "
         "with key= or value= before it where it is for one of them")


class UnpackError(ValueError):
    """A row of a batch does not have the form given with `-s`."""

    row = 0


def parse_deserializers(given: Sequence[str]) -> dict[str, Unpack]:
    """The values of `-s` by column (key, value). Raises ValueError, which lists valid values."""
    found: dict[str, Unpack] = {}
    for text in given:
        column, separator, pack = text.partition("=")
        if not separator:
            column, pack = "", text
        if column not in ("", "key", "value"):
            raise ValueError(f"-s: {column!r} is neither key nor value; {_HELP}")
        if pack.lower() == "avro":
            raise ValueError("-s: avro needs a schema registry, which this command does not use; "
                             "print the bytes with -J --base64 and decode them elsewhere")
        for name in ("key", "value") if not column else (column,):
            found[name] = _compile(name, pack)
    return found


def _compile(column: str, pack: str) -> Unpack:
    unknown = sorted(set(pack) - _NUMBERS - set("<>cs$ "))
    if unknown or not pack.strip():
        got = f"{unknown[0]!r} in {pack!r}" if unknown else "nothing"
        raise ValueError(f"-s: {_HELP}, got {got}")

    def unpack(data: bytes) -> bytes:
        out: list[bytes] = []
        at, endian = 0, ">"
        for token in pack:
            if token in "<>":
                endian = token
            elif token == " ":
                out.append(b" ")
            elif token == "s":
                out.append(data[at:])
                at = len(data)
            elif token == "$":
                if at < len(data):
                    raise UnpackError(f"expected the end of the {column}, but "
                                      f"{len(data) - at} bytes remain")
            else:
                part = struct.Struct(endian + token)
                if len(data) - at < part.size:
                    raise UnpackError(f"the {column} is truncated: {token} takes {part.size} "
                                      f"bytes, {len(data) - at} remain")
                value, = part.unpack_from(data, at)
                out.append(value if token == "c" else b"%d" % value)
                at += part.size
        return b"".join(out)

    return unpack
