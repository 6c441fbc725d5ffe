"""Text as Java prints it for Kafka's tools: strings from bytes, doubles, and Jackson's JSON."""

from __future__ import annotations

import re
from base64 import b64encode
from decimal import Decimal
from typing import Any

from seglog._native.dump import java_utf8

__all__ = ["java_double", "java_text", "json_text"]

_ESCAPED = re.compile('[\x00-\x1f"\\\\]')
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def java_text(data: bytes) -> str:
    """`new String(data, UTF_8)`: malformed bytes become U+FFFD by Java's rules, not Python's."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return java_utf8(data).decode()


def json_text(tree: Any) -> str:
    """The text of Jackson's `JsonNode.toString`: no blanks, bytes in base64, minimal escapes.

    `tree` holds dict, list, str, bytes, bool, int, float and None.
    """
    if isinstance(tree, dict):
        return "{" + ",".join(f"{_quoted(k)}:{json_text(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(json_text(element) for element in tree) + "]"
    if isinstance(tree, str):
        return _quoted(tree)
    if isinstance(tree, bytes):
        return f'"{b64encode(tree).decode()}"'
    if tree is None:
        return "null"
    if isinstance(tree, bool):
        return "true" if tree else "false"
    if isinstance(tree, float):
        text = java_double(tree)
        return text if text[-1].isdigit() and "I" not in text else f'"{text}"'
    return str(tree)


def _quoted(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04X}"


def java_double(value: float) -> str:
    """`Double.toString(value)` as of Java 19: the fewest digits that identify the value."""
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
