"""What the calls of a program with a LogManager promised, and whether a start keeps that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.crash.promises import Promises, said_in
from tests.crash.writer import ABORTED, COMMITTED


@dataclass
class LogPromises(Promises):
    """Of one log. Its start is durable only where a checkpoint of the manager was written."""

    power_cuts: bool = True
    home: str = ""
    #: "creating", "there", "moving" (to `target`), "deleting".
    state: str = "creating"
    target: str = ""
    #: Whether it is being emptied: then nothing is promised.
    is_emptied: bool = False
    #: Offsets of truncations of which the bytes may come back, and how many there were before each
    #: text.
    truncations: list[int] = field(default_factory=list)
    appended_after: dict[str, int] = field(default_factory=dict)

    def _opened(self, end: int, start: int, found: Sequence[tuple[int, str]] = ()) -> None:
        self.texts, self.end = dict(found), end
        self.start_at_most = max(self.start_at_most, start)

    def restarted(self) -> None:
        """After a crash: of what is not flushed anything may be there, for good."""
        self.lost(self.flushed)
        self.truncations, self.appended_after = [], {}

    def _appending(self, first: int, texts: list[str]) -> None:
        super()._appending(first, texts)
        self.appended_after |= {text: len(self.truncations) for text in texts
                                if text not in (ABORTED, COMMITTED)}

    def _truncating(self, to: int) -> None:
        super()._truncating(to)
        self.truncations.append(to)

    def _flushed(self, to: int) -> None:
        super()._flushed(to)
        for number, at in enumerate(self.truncations):
            if at < to:
                for offset, texts in self.possible.items():
                    if offset >= at:
                        texts -= {text for text in texts
                                  if self.appended_after.get(text, number + 1) <= number}

    def _start_is(self, at: int) -> None:
        """The start is there in memory, so it is not above on the disk."""
        self.start_at_most = at

    def _started_at(self, at: int) -> None:
        """A checkpoint has the start."""
        self.start = at

    def _started(self, at: int) -> None:
        """Nothing is durable yet."""

    def _emptying(self, to: int) -> None:
        self.is_emptied, self.texts = True, {}
        self.start = self.flushed = 0
        self.start_at_most = max(self.start_at_most, self.end, to)

    def _emptied(self, to: int) -> None:
        self.is_emptied, self.texts, self.possible = False, {}, {}
        self.truncations, self.appended_after = [], {}
        self.start = self.start_at_most = self.end = self.flushed = to

    # ---- the directory

    def _created(self) -> None:
        self.state = "there"

    def _moving(self, to: str) -> None:
        self.state, self.target = "moving", to

    def _moved(self, to: str) -> None:
        self.state, self.home = "there", to

    def _copying(self) -> None:
        self.state = "there"

    def _deleting(self) -> None:
        self.state = "deleting"

    # ---- what is found

    def check(self, found: dict[int, str], start: int, end: int) -> None:
        """The texts of the records by offset, of a log that begins and ends there."""
        assert end >= self.flushed, f"ends at {end}, {self.flushed} was promised"
        assert self.start <= start <= max(self.start_at_most, self.start), \
            f"starts at {start}, not {self.start} to {self.start_at_most}"
        for offset, text in self.texts.items():
            if start <= offset < self.flushed:
                assert found.get(offset) == text, f"{offset}: {found.get(offset)}, not {text}"
        for offset, text in found.items():
            assert text in self.possible.get(offset, ()), f"{offset} was never {text}"
        for number, at in enumerate(self.truncations):
            lives = {self.appended_after[text] <= number for offset, text in found.items()
                     if offset >= at and text in self.appended_after}
            assert len(lives) < 2, f"records from before and after the truncation to {at}"


@dataclass
class ManagedPromises:
    """Of all logs by their names."""

    logs: dict[str, LogPromises] = field(default_factory=dict)

    def hear(self, text: bytes) -> None:
        """See Promises."""
        for said in said_in(text):
            self._take(said.pop("what"), said.pop("log", ""), said)

    def _take(self, what: str, log: str, said: dict[str, Any]) -> None:
        if what == "found":
            homes = dict(path.split("/")[::-1] for path in said["paths"])
            for name, one in [*self.logs.items()]:
                if name not in homes:
                    assert one.state in ("creating", "deleting"), f"{name} is gone"
                    del self.logs[name]
                    continue
                one.restarted()
                one.state, one.home, one.is_emptied = "there", homes[name], False
        elif what == "closed":
            for one in self.logs.values():
                one._flushed(one.end)
        elif what == "creating":
            self.logs[log] = LogPromises(home=said["home"])
        elif what == "deleted":
            del self.logs[log]
        elif what != "started":
            getattr(self.logs[log], f"_{what}")(**said)
