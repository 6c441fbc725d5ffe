"""Integers as Java reads them (`Integer.parseInt`, `Long.parseLong`).

Kafka's text files and file names go through these. Java takes one leading sign and decimal digits
of any script, but neither blanks nor underscores; Python's int() differs in all of that.
"""

from __future__ import annotations

import re

__all__ = ["parse_int32", "parse_int64"]

# Java looks at UTF-16 units, so that digits beyond the basic plane are none to it.
_INTEGER = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")
_DIGITS_MAX = 4000  # beyond this int() refuses; Java reads on, and only zeros could still fit


def _parse(text: str, bits: int) -> int:
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) < _DIGITS_MAX:
            value = int(digits or "0")
            value = -value if text[0] == "-" else value
            if -1 << bits - 1 <= value < 1 << bits - 1:
                return value
    raise ValueError(f'For input string: "{text}"')


def parse_int32(text: str) -> int:
    """`Integer.parseInt(text)`; ValueError with Java's text for what it refuses."""
    return _parse(text, 32)


def parse_int64(text: str) -> int:
    """`Long.parseLong(text)`; ValueError with Java's text for what it refuses."""
    return _parse(text, 64)
