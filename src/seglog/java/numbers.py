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
    """`Double.toString(value)` as of Java 19: the fewest digits that identify the value, such as
    `1.5`, `2.147483647E9`, `Infinity`."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if len(digits) == 1:  # Java prints at least two digits, the two nearest to the value
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    prefix = "-" if sign else ""
    if not text:
        return prefix + "0.0"
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    point = len(stripped) + exponent  # the value is 0.stripped * 10 ** point
    if -2 <= point <= 7:
        if point <= 0:
            return f"{prefix}0.{'0' * -point}{stripped}"
        whole = stripped[:point].ljust(point, "0")
        return f"{prefix}{whole}.{stripped[point:] or '0'}"
    return f"{prefix}{stripped[0]}.{stripped[1:] or '0'}E{point - 1}"


def trim(text: str) -> str:
    """`String.trim()`: removes blanks and control characters at both ends."""
    return text.strip(_BLANKS)
