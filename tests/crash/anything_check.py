"""What the calls of a program on one log promised, and whether the next one finds it."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seglog
from seglog.cli.main import main
from seglog.storage.paths import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT
from tests.crash.anything import MARKER, PARTITION, Texts, config_of, contents, key_of
from tests.crash.promises import FILE, said_in


@dataclass
class Txn:
    """The records of a transaction, and what became of it."""

    texts: Texts = field(default_factory=dict)
    #: "open", "committing", "aborted", "committed" (its marker ends at `end`), or "cut": records of
    #: it are gone.
    state: str = "open"
    end: int = 0


@dataclass
class LogPromises:
    """`texts` is what the log holds, `flushed` the end of what is durable."""

    texts: Texts = field(default_factory=dict)
    end: int = 0
    flushed: int = 0
    start: int = 0
    start_at_most: int = 0
    has_gaps: bool = False
    is_emptied: bool = False
    possible: dict[int, set[str]] = field(default_factory=dict)
    transactions: dict[int, Txn] = field(default_factory=dict)

    def hear(self, text: bytes) -> None:
        """See Promises."""
        for said in said_in(text):
            getattr(self, "_" + said.pop("what"))(**said)

    def _opened(self, start: int, end: int, texts: Sequence[tuple[int, str]]) -> None:
        """After a crash, too: of what was not flushed the log is what was found."""
        self.texts, self.end = dict(texts), end
        # A part of the old records may be left after the new segment.
        self.has_gaps, self.is_emptied = self.has_gaps or self.is_emptied, False
        self.flushed = min(self.flushed, end)
        self.start_at_most = max(self.start_at_most, start)
        for one in self.transactions.values():
            if any(self.texts.get(at) != text for at, text in one.texts.items() if at >= start):
                one.state = "cut"

    def _appending(self, first: int, texts: list[str], transaction: int) -> None:
        for offset, text in enumerate(texts, first):
            self.possible.setdefault(offset, set()).add(text)
        if transaction >= 0:
            self.transactions.setdefault(transaction, Txn()).texts.update(enumerate(texts, first))

    def _appended(self, first: int, texts: list[str]) -> None:
        self.texts.update(enumerate(texts, first))
        if texts or not self.has_gaps:  # the end may be in a gap, which no load finds
            self.end = first + len(texts)

    def _ending(self, transaction: int, commits: bool) -> None:
        if transaction in self.transactions:
            self.transactions[transaction].state = "committing" if commits else "aborted"

    def _ended(self, transaction: int, at: int) -> None:
        one = self.transactions.get(transaction, Txn())
        one.end = at
        if one.state == "committing":
            one.state = "committed"

    def _flushed(self, to: int) -> None:
        self.flushed = max(self.flushed, min(to, self.end) if self.has_gaps else to)

    def _gap(self) -> None:
        self.has_gaps = True

    def _truncating(self, to: int) -> None:
        self.flushed, self.end = min(self.flushed, to), min(self.end, to)
        # A cleaner may have removed what had a later record, which goes now.
        gone = {key_of(text) for at, text in self.texts.items() if at >= to} \
            if self.has_gaps else set()
        self.texts = {at: text for at, text in self.texts.items()
                      if at < to and key_of(text) not in gone}
        for one in self.transactions.values():
            if one.state == "open" or one.end > to or any(at >= to for at in one.texts):
                one.state = "cut"
                one.texts = {at: text for at, text in one.texts.items() if at < to}
        if self.has_gaps:  # a load finds the end of the last batch, perhaps before a gap
            self.end = self._end_of_kept()
            self.flushed = min(self.flushed, self.end)

    def _end_of_kept(self) -> int:
        """The end of the records that no cleaner removes."""
        removed = {at for one in self.transactions.values() if one.state != "committed"
                   for at in one.texts}
        return 1 + max((at for at, text in self.texts.items()
                        if text != MARKER and at not in removed), default=-1)

    def _truncated(self, to: int) -> None:
        if not self.has_gaps:
            self.end = to

    def _emptying(self, to: int) -> None:
        self.is_emptied, self.texts, self.transactions = True, {}, {}
        self.flushed = self.start = 0
        self.start_at_most = max(self.start_at_most, self.end, to)

    def _emptied(self, to: int) -> None:
        self.is_emptied = False
        self.start = self.start_at_most = self.end = self.flushed = to

    def _deleting(self, before: int) -> None:
        self.start_at_most = max(self.start_at_most, before)

    def _deleted(self, before: int) -> None:
        self.start = max(self.start, before)

    def lose_power(self) -> None:
        """What was not flushed may be gone by now; the next life says what is there."""
        self.end = self.flushed
        self.texts = {at: text for at, text in self.texts.items() if at < self.end}
        for one in self.transactions.values():
            if one.state == "committed" and one.end > self.end:
                one.state = "committing"

    # ---- what is found

    def check(self, log: seglog.EmbeddedLog, found: Texts, *, everything: bool) -> None:
        """`everything`: only the process died."""
        start, end = log.log_start_offset, log.log_end_offset
        wanted = 0 if self.is_emptied else self.end if everything else self.flushed
        assert end >= wanted, f"ends at {end}, {wanted} was promised"
        assert self.start <= start <= max(self.start_at_most, self.start), \
            f"starts at {start}, not {self.start} to {self.start_at_most}"
        assert [*found] == sorted(found), "out of order"
        if not self.has_gaps and not self.is_emptied:
            assert [*found] == [*range(start, end)], "a hole"
        for offset, text in found.items():
            assert text in self.possible.get(offset, ()), f"{offset} was never {text}"
        last = {key_of(text): offset for offset, text in found.items() if text != MARKER}

        def is_kept(offset: int, text: str) -> bool:
            return found.get(offset) == text or (
                self.has_gaps and (text == MARKER or last.get(key_of(text), -1) > offset))

        aborted = {at for one in self.transactions.values() if one.state != "committed"
                   for at in one.texts}
        for offset, text in self.texts.items():
            if start <= offset < wanted and offset not in aborted:
                assert is_kept(offset, text), f"{offset}: {found.get(offset)}, not {text}"
        self._check_transactions(contents(log, isolation="read_committed"), start,
                                 log.last_stable_offset, wanted)

    def _check_transactions(self, seen: Texts, start: int, stable: int, wanted: int) -> None:
        for one in self.transactions.values():
            visible = [seen.get(at) == text for at, text in one.texts.items()
                       if start <= at < stable]
            if one.state in ("open", "aborted"):
                assert not any(visible), f"{one} is visible"
            elif not self.has_gaps and one.state != "cut":
                assert len({*visible}) < 2, f"{one} is visible in part"
                assert one.state == "committing" or one.end > wanted or all(visible), \
                    f"{one} is gone"


def check_anything(root: Path, source: random.Random, promises: LogPromises, *, everything: bool
                   ) -> None:
    """The next program finds what was promised, and so do those after it, by the files that it
    leaves and by what their recovery makes of them."""
    (root / FILE).unlink()

    def opened() -> seglog.EmbeddedLog:
        return seglog.open(root / PARTITION, config=config_of(source, compacts=promises.has_gaps))

    with opened() as log:
        found = contents(log)
        promises.check(log, found, everything=everything)
        end = log.log_end_offset
        assert log.append(b"0 and on", key=b"0") == end
        found[end] = "0 and on"
        kept = producers(log)
    output = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main(["verify", str(root)])
    assert code == 0, output.buffer.getvalue().decode()  # type: ignore[attr-defined]
    recovered = root.with_name(f"{root.name}-recovered")
    shutil.copytree(root, recovered)
    (recovered / CLEAN_SHUTDOWN_FILE).unlink()
    (recovered / RECOVERY_POINT_CHECKPOINT).unlink()
    with opened() as log:
        assert contents(log) == found, "another after a clean shutdown"
        assert producers(log) == kept
    root = recovered
    with opened() as log:
        assert contents(log) == found, "another after a recovery"
        if not promises.has_gaps and not log.log_start_offset:  # all of the producers' batches
            assert producers(log) == kept
    shutil.rmtree(recovered)


def producers(log: seglog.EmbeddedLog) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.log.state_without_files()["producers"]
    return found
