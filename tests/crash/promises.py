"""What a writer was promised before it died: its acknowledgements, a line each, in a file that
goes the way of its log (so that the trace says what came before what)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = "acknowledged"


class Acknowledgements:
    """The file, for the writer: a line for each operation that came back."""

    def __init__(self, root: Path) -> None:
        self._fd = os.open(root / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._fd, b"\n")

    def say(self, what: str, **fields: Any) -> None:
        line = json.dumps({"what": what, **fields}).encode() + b"\n"
        assert os.write(self._fd, line) == len(line)


def said_in(text: bytes) -> Iterator[dict[str, Any]]:
    """The lines of the file; one that was torn is none, and the next writer's begins a new line."""
    for line in text.split(b"\n"):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        yield said


@dataclass
class Promises:
    """What has to be there: everything below `end`, with the text that `texts` has for it."""

    texts: dict[int, str] = field(default_factory=dict)
    start: int = 0
    #: For appended records, and for flushed ones.
    end: int = 0
    flushed: int = 0
    #: Every text that an offset may have beyond that, unacknowledged appends among them.
    possible: dict[int, set[str]] = field(default_factory=dict)
    #: Where the start may have moved to by an operation that did not come back.
    start_at_most: int = 0
    #: Whether the crashes are power cuts: then the next writer finds what was flushed, and what
    #: else it finds may be what a truncation had cut before.
    power_cuts: bool = False

    def hear(self, text: bytes) -> None:
        """Takes lines in."""
        for said in said_in(text):
            getattr(self, "_" + said.pop("what"))(**said)

    def lost(self, end: int) -> None:
        """What is behind `end` was not promised, and did not outlive the crash."""
        self.end = end
        self.texts = {offset: text for offset, text in self.texts.items() if offset < end}

    def _opened(self, end: int, start: int) -> None:
        self.lost(min(end, self.flushed) if self.power_cuts else end)
        self.end, self.start = end, start
        self.start_at_most = max(self.start_at_most, start)

    def _appending(self, first: int, texts: list[str]) -> None:
        for offset, text in enumerate(texts, first):
            self.possible.setdefault(offset, set()).add(text)

    def _appended(self, first: int, texts: list[str]) -> None:
        self.texts.update(enumerate(texts, first))
        self.end = first + len(texts)

    def _flushed(self, to: int) -> None:
        # A log that ends where it starts syncs nothing, as Kafka's (UnifiedLog.updateLogStartOffset
        # raises the recovery point): that it starts there is for a checkpoint to say.
        if to > self.start:
            self.flushed = max(self.flushed, to)

    def _truncating(self, to: int) -> None:
        self.flushed, self.end = min(self.flushed, to), min(self.end, to)
        self.start = min(self.start, to)
        self.texts = {offset: text for offset, text in self.texts.items() if offset < to}

    def _truncated(self, end: int) -> None:
        self.lost(end)
        self.flushed = min(self.flushed, end)

    def _starting(self, at: int) -> None:
        self.start_at_most = max(self.start_at_most, at)

    def _started(self, at: int) -> None:
        self.start = max(self.start, at)


def promised(text: bytes) -> Promises:
    """By the content of the file."""
    promises = Promises()
    promises.hear(text)
    return promises
