"""Numbers as Java reads them (`Integer.parseInt`, `Long.parseLong`, `Double.parseDouble`).

They parse Kafka's text files, file names and settings. Java accepts one leading sign and decimal
digits of any script, but no blanks or underscores; Python's int() differs in all three.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

__all__ = ["double_text", "parse_double", "parse_int32", "parse_int64", "trim",
           "wrap_int64"]

# Java reads UTF-16 code units, so digits outside the basic plane are not digits to it.
_INTEGER = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")
_DIGITS_MAX = 4000  # int() raises beyond this; in Java so many digits fit only as leading zeros


def wrap_int64(value: int) -> int:
    """The value wrapped to 64 bits, as Java's long arithmetic does."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _parse(text: str, bits: int) -> int:
    if len(text) < bits // 4 and text.isascii() and text.isdecimal():
        return int(text)  # so few digits always fit
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) < _DIGITS_MAX:
            value = int(digits or "0")
            value = -value if text[0] == "-" else value
            if -1 << bits - 1 <= value < 1 << bits - 1:
                return value
    raise ValueError(f'For input string: "{text}"')


def parse_int32(text: str) -> int:
    """`Integer.parseInt(text)`; raises ValueError with Java's message."""
    return _parse(text, 32)


def parse_int64(text: str) -> int:
    """`Long.parseLong(text)`; raises ValueError with Java's message."""
    return _parse(text, 64)


# A sign, decimal or hexadecimal digits with an exponent, and Java's suffixes.
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9A-Fa-f]+\.?|[0-9A-Fa-f]*\.[0-9A-Fa-f]+)[pP][+-]?[0-9]+[fFdD]?")
_BLANKS = "".join(map(chr, range(0x21)))  # white space to String.trim


def parse_double(text: str) -> float:
    """`Double.parseDouble(text)`; raises ValueError with Java's message."""
    trimmed = text.strip(_BLANKS)
    if not trimmed:
        raise ValueError("empty String")
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(trimmed.rstrip("fFdD"))  # after an exponent they are suffixes
        except OverflowError:
            return -math.inf if trimmed[0] == "-" else math.inf
    raise ValueError(f'For input string: "{text}"')


def double_text(value: float) -> str:
    """`Double.toString(value)`: `1.5`, `2.147483647E9`, `Infinity`."""
    if not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"


def trim(text: str) -> str:
    """`String.trim()`: removes blanks and control characters at both ends."""
    return text.strip(_BLANKS)
