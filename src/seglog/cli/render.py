"""The terminal output of all verbs: data on stdout, messages on stderr.

Data is bytes on `stdout()`. Messages go through `message`, `warning` and `error`. `Progress` draws
only if stderr is a terminal. Only terminals get colour, and a non-empty NO_COLOR switches it off.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading

from seglog.errors import CorruptDataError

TYPE_CHECKING = False  # `seglog --help` imports no typing
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, BinaryIO, Self, TextIO

__all__ = ["Progress", "abandon", "end_messages", "error", "human_bytes", "json_line", "message",
           "paint", "stdout", "terminal_columns", "text_line", "text_of", "uses_color", "warning"]

_REDRAW_SECONDS = 0.1
_BAR_COLUMNS, _BAR_COLUMNS_MIN = 24, 8
_COLUMNS_UNKNOWN = 80
_COLORS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def stdout() -> BinaryIO:
    """Standard output for bytes. Flushes earlier text first, to keep the order."""
    sys.stdout.flush()
    return sys.stdout.buffer


def abandon(stream: TextIO) -> None:
    """Discards buffered output, so that the interpreter exits at once and without an error."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a descriptor (captured by a test)
        pass


def message(text: str) -> None:
    """Prints one line of information on stderr. Drops it if stderr takes nothing (a full disk):
    the exit code still says how the verb ended."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def end_messages() -> None:
    """Discards what stderr did not take, for which the interpreter would change the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        abandon(sys.stderr)


def warning(text: str) -> None:
    """Prints one line on stderr about a problem that does not stop the verb."""
    message(f"{paint('warning', 'yellow', sys.stderr)}: {text}")


def error(cause: BaseException | str) -> None:
    """Prints one line on stderr; for corrupt data with code, file, position, expected and found."""
    label = f"seglog: {paint('error', 'red', sys.stderr)}"
    text = " ".join(text_of(cause).splitlines())
    if not isinstance(cause, CorruptDataError):
        message(f"{label}: {text}")
        return
    facts = [f"{name} {getattr(cause, name)}" for name in ("file", "position", "expected", "found")
             if getattr(cause, name) is not None and str(getattr(cause, name)) not in text]
    where = f" ({', '.join(facts)})" if facts else ""
    message(f"{label}: {type(cause).__name__} [{cause.code}]: {text}{where}")


def text_of(cause: BaseException | str) -> str:
    """The message of an error; for a failed system call the path, then the reason."""
    if isinstance(cause, OSError) and cause.strerror:
        path = os.fsdecode(cause.filename) if cause.filename else ""
        is_named = re.search(rf"{re.escape(path)}(?![\w./-])", cause.strerror)
        return cause.strerror if is_named else f"{path}: {cause.strerror}"
    return str(cause)


def uses_color(stream: TextIO) -> bool:
    """Whether `stream` is a terminal and colour is allowed (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def terminal_columns() -> int:
    """COLUMNS, or the width of standard output's terminal, or 80."""
    # As shutil.get_terminal_size, without the compression libraries that shutil imports.
    columns = os.environ.get("COLUMNS", "")
    wanted = int(columns) if columns.isdecimal() else 0
    return wanted or _width(sys.__stdout__) or _COLUMNS_UNKNOWN


def _width(stream: TextIO | None) -> int:
    """The width of the terminal `stream`, or 0 if it is none."""
    try:
        return 0 if stream is None else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def paint(text: str, color: str, stream: TextIO) -> str:
    """`text` in red, green, yellow, bold or dim; unchanged if `stream` takes no colour."""
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if uses_color(stream) else text


def text_line(text: str) -> bytes:
    """One line of text: file names as the bytes that they are, lone surrogates of a Java file as
    escapes."""
    try:
        return text.encode("utf-8", "surrogateescape") + b"\n"
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace") + b"\n"


def json_line(value: Any) -> bytes:
    """One line of JSON (UTF-8, no blanks, keys in the order given)."""
    import json  # not for `seglog --help`

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
    """A progress bar on stderr, drawn at once and then ten times a second; nothing if stderr is
    not a terminal. Each redraw fits the current width of the terminal.

    `total` is in any unit (None or 0: unknown); `done` never exceeds it. `detail` takes the number
    of columns left and returns the text after the bar. Thread-safe.
    """

    def __init__(self, label: str, total: int | None = None, *,
                 detail: Callable[[int], str] | None = None, stream: TextIO | None = None) -> None:
        self.label, self.total, self.detail, self.done = label, total, detail, 0
        self._stream = sys.stderr if stream is None else stream
        self.is_visible = self._stream.isatty()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self.is_visible:
            self._draw()
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self.is_visible:
            self._ended.set()
            self._thread.join()
            with contextlib.suppress(OSError, ValueError):
                self._write("")

    def advance(self, count: int = 1) -> None:
        """Adds `count` to `done`."""
        with self._lock:
            self.done += count
            if self.total:
                self.done = min(self.done, self.total)

    def _redraw(self) -> None:
        while not self._ended.wait(_REDRAW_SECONDS):
            self._draw()

    def _draw(self) -> None:
        # If the terminal disappears, only the drawing ends.
        with contextlib.suppress(OSError, ValueError):
            self._write(self._line(self._columns() - 1))  # the last column would wrap

    def _write(self, line: str) -> None:
        self._stream.write("\r\x1b[K" + line)
        self._stream.flush()

    def _columns(self) -> int:
        return _width(self._stream) or terminal_columns()

    def _line(self, columns: int) -> str:
        total, done = self.total, self.done
        text = f"{self.label} {done:,}"
        if total:
            text += f"/{total:,}"
            if len(text) > columns:
                text = f"{100 * done // total}%"  # a truncated number would be a different one
        width = min(_BAR_COLUMNS, columns - len(text) - 3)
        if total and width >= _BAR_COLUMNS_MIN:
            filled = width * done // total
            text = f"{self.label} [{'#' * filled}{'.' * (width - filled)}] {done:,}/{total:,}"
        if self.detail is not None:
            room = columns - len(text) - 1
            text += f" {self.detail(room)[:room]}" if room > 0 else ""
        return text[:max(columns, 0)].rstrip()
