"""What the verbs share about the terminal: data on stdout, messages on stderr.

Data is bytes on `stdout()`. Messages go through `message`, `warning` and `error`. `Progress` draws
only when stderr is a terminal. Colour follows NO_COLOR (any non-empty value switches it off) and
is never used when the stream is not a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, BinaryIO, TextIO

from seglog.errors import CorruptDataError

__all__ = ["Progress", "abandon_stdout", "error", "human_bytes", "json_line", "message", "paint",
           "stdout", "uses_color", "warning"]

_COLORS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def stdout() -> BinaryIO:
    """Standard output for bytes. Text printed before is flushed first, to keep the order."""
    sys.stdout.flush()
    return sys.stdout.buffer


def abandon_stdout() -> None:
    """Drops what is still buffered, so that the interpreter ends at once and quietly."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # stdout is no descriptor (a test's capture): nothing to silence
        pass


def message(text: str) -> None:
    """One line of information on stderr."""
    print(text, file=sys.stderr)


def warning(text: str) -> None:
    """One line on stderr about something that does not stop the verb."""
    print(f"{paint('warning', 'yellow', sys.stderr)}: {text}", file=sys.stderr)


def error(cause: BaseException | str) -> None:
    """One line on stderr; for corrupt data with code, file, position, expected and found."""
    label = paint("error", "red", sys.stderr)
    if not isinstance(cause, CorruptDataError):
        print(f"{label}: {cause}", file=sys.stderr)
        return
    facts = [f"{name} {getattr(cause, name)}" for name in ("file", "position", "expected", "found")
             if getattr(cause, name) is not None and str(getattr(cause, name)) not in str(cause)]
    where = f" ({', '.join(facts)})" if facts else ""
    print(f"{label}: {type(cause).__name__} [{cause.code}]: {cause}{where}", file=sys.stderr)


def uses_color(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that may be coloured (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, color: str, stream: TextIO) -> str:
    """`text` in one of red, green, yellow, bold, dim, or unchanged where colour is not wanted."""
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if uses_color(stream) else text


def json_line(value: Any) -> bytes:
    """One line of JSON (UTF-8, no blanks, keys in the order given)."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def human_bytes(size: int) -> str:
    """`1536` as `1.5 KiB`."""
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


class Progress:
    """A bar on stderr, redrawn at most ten times a second; nothing when stderr is no terminal.

    `total` is in any unit (None: unknown); `detail` gives the text behind the bar at each redraw.
    """

    def __init__(self, label: str, total: int | None = None, *,
                 detail: Callable[[], str] | None = None, stream: TextIO | None = None) -> None:
        self.label, self.total, self.detail, self.done = label, total, detail, 0
        self._stream = sys.stderr if stream is None else stream
        self._visible = self._stream.isatty()
        self._drawn_at = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self._visible and self._drawn_at:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def advance(self, count: int = 1) -> None:
        """Counts `count` more as done, and draws at most ten times a second."""
        self.done += count
        now = time.monotonic()
        if self._visible and now - self._drawn_at >= 0.1:
            self._drawn_at = now
            self._stream.write("\r\x1b[K" + self._line())
            self._stream.flush()

    def _line(self) -> str:
        text = f"{self.label} {self.done}"
        if self.total:
            filled = min(24, 24 * self.done // self.total)
            text = f"{self.label} [{'#' * filled}{'.' * (24 - filled)}] {self.done}/{self.total}"
        return f"{text} {self.detail()}" if self.detail else text
