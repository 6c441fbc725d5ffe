"""Text as Java prints it for Kafka's tools: strings from bytes, and Jackson's JSON."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from seglog._native.dump import java_utf8
from seglog.java.numbers import double_text

__all__ = ["java_text", "json_text"]

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
        text = double_text(tree)
        return text if text[-1].isdigit() and "I" not in text else f'"{text}"'
    return str(tree)


def _quoted(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04X}"
