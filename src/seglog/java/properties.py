"""java.util.Properties text: `server.properties`, `meta.properties`."""

from __future__ import annotations

import re

__all__ = ["parse_properties"]

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and leading blanks; continued lines are joined, escapes are kept."""
    naturals = re.split(r"\r\n|\n|\r", text)
    last = len(naturals) - 1  # the line without a terminator, often empty
    lines: list[str] = []
    pending = ""
    for number, natural in enumerate(naturals):
        line = natural.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        joined = pending + line
        if (len(line) - len(line.rstrip("\\"))) % 2 == 0:
            lines.append(joined)
            pending = ""
        elif number == last or (number == last - 1 and not naturals[last]):
            lines.append(joined[:-1])  # at the end of the text Java returns even an empty line
            pending = ""
        else:
            pending = joined[:-1]
    if pending:
        lines.append(pending)
    return lines


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position:position + 4]
            if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                raise ValueError("Malformed \\uxxxx encoding.")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)


_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


def parse_properties(content: bytes) -> dict[str, str]:
    """java.util.Properties text (ISO-8859-1 with \\uXXXX). Raises ValueError for a bad escape.

    If a key occurs twice, the last one counts. Surrogates stay separate, as in Java's strings.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(content.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None
        value = _SEPARATOR.match(line, key.end())
        assert value is not None
        found[_unescape(key[0])] = _unescape(line[value.end():])
    return found
