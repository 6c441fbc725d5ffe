"""The progress bar on a terminal of any width: at once, within its line, and honest."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.cli.bar import LoadBar
from seglog.cli.render import Progress
from tests.support.waiting import wait_for
from tests.support.effort import quick_first

CLEAR = "\r\x1b[K"
WIDTHS = (20, 40, 80, 200)


class Screen:
    """A pseudo terminal, and the lines that were drawn on it with the time of each."""

    def __init__(self, columns: int) -> None:
        self._master, self.slave = pty.openpty()
        self.resize(columns)
        self.drawn: list[tuple[float, str]] = []
        self._rest = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            now = time.monotonic()
            *whole, self._rest = (self._rest + data.decode()).split(CLEAR)
            self.drawn += [(now, line) for line in whole if line]

    def wait_for_lines(self, count: int) -> None:
        """Waits until so many have been drawn over; the newest one may still be drawn."""
        wait_for(lambda: len(self.drawn) >= count)

    def close(self) -> None:
        os.close(self.slave)
        self._thread.join(120)
        if self._rest:
            self.drawn.append((time.monotonic(), self._rest))
        os.close(self._master)

    @property
    def lines(self) -> list[str]:
        return [line for _, line in self.drawn]


@contextmanager
def screen(columns: int) -> Iterator[Screen]:
    shown = Screen(columns)
    try:
        yield shown
    finally:
        shown.close()


def steps(lines: list[str]) -> list[tuple[int, int]]:
    """(done, total) of each line that has them."""
    found = (re.search(r"([\d,]+)/([\d,]+)(?! partitions)", line) for line in lines
             if "listing" not in line)
    return [(int(one[1].replace(",", "")), int(one[2].replace(",", ""))) for one in found if one]


def check(lines: list[str], columns: int) -> None:
    assert lines and all(len(line) < columns for line in lines), max(lines, key=len)
    counted = steps(lines)
    done = [one for one, _ in counted]
    assert done == sorted(done) and all(one <= total for one, total in counted), counted
    assert len({total for _, total in counted}) <= 1, "the total grew"


@pytest.mark.parametrize("columns", WIDTHS)
def test_drawn_at_once_and_while_nothing_happens(columns: int) -> None:
    with screen(columns) as shown, os.fdopen(os.dup(shown.slave), "w") as stream:
        with Progress("verifying", 1000, detail=lambda room: "x" * room, stream=stream) as bar:
            shown.wait_for_lines(4)
            bar.advance(10)
            shown.wait_for_lines(len(shown.drawn) + 2)
    check(shown.lines, columns)
    assert steps(shown.lines)[0] == (0, 1000)
    assert steps(shown.lines)[-1] == (10, 1000)


def test_a_terminal_that_is_resized() -> None:
    with screen(200) as shown, os.fdopen(os.dup(shown.slave), "w") as stream:
        with Progress("loading", 10, detail=lambda room: "x" * room, stream=stream):
            for columns in (200, 40, 120, 9):
                shown.resize(columns)
                wait_for(lambda: shown.lines and len(shown.lines[-1]) < columns)
                before = len(shown.drawn)
                shown.wait_for_lines(before + 3)
                assert all(len(line) < columns for line in shown.lines[before:])
    assert max(map(len, shown.lines)) == 199


def test_a_terminal_that_goes_away() -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        with Progress("loading", 10, stream=stream):
            os.close(master)
            time.sleep(.3)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


@pytest.mark.parametrize("seed", range(12))
def test_any_load_on_any_terminal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of many threads in any order, some twice (a split begins anew), some never."""
    rng = random.Random(seed)
    columns, threads = rng.choice(WIDTHS), rng.choice((1, 2, 16, 64))
    with screen(columns) as shown, os.fdopen(os.dup(shown.slave), "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with LoadBar("recovering", reads=rng.random() < .5) as bar:
            partitions = {f"t-{number}": rng.randrange(5000) for number in range(30)}
            bar.load_started(len(partitions), threads)
            for name, count in partitions.items():
                bar.segments_listed(name, count)
                bar.recovery_planned(name, count // 3)
            bar.announced()

            def work(number: int) -> None:
                mine = random.Random(f"{seed} {number}")
                for name, count in list(partitions.items())[number::threads]:
                    for _ in range(mine.choice((1, 1, 2))):
                        bar.segments_listed(name, count)
                        bar.segments_loaded(name, count, number)
                        time.sleep(mine.random() / 50)
                        bar.segments_verified(name, count, 0, number)
                        bar.segments_recovered(name, count // mine.randrange(1, 4), 0)

            workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            shown.wait_for_lines(len(shown.drawn) + 2)
            used = min(threads, len(partitions))
            assert threads < 16 or f"{used} threads" in bar._detail(90)
    check(shown.lines, columns)


@pytest.fixture(scope="module")
def many(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed broker's directory with more partitions."""
    root = tmp_path_factory.mktemp("many") / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    for number in range(1, 9):
        for topic in ("plain-none", "plain-zstd", "idempotent"):
            shutil.copytree(root / f"{topic}-0", root / f"{topic}{number}-0")
    return root


@pytest.mark.parametrize("columns", quick_first([20, 80], 1))
@pytest.mark.parametrize("verb", [("load",), ("verify",), ("load", "--dry-run"),
                                  ("load", "--recover")], ids=" ".join)
def test_the_commands(many: Path, tmp_path: Path, verb: tuple[str, ...], columns: int) -> None:
    root = many
    if "--recover" in verb:
        root = tmp_path / "data"
        shutil.copytree(many, root)
    with screen(columns) as shown:
        done = subprocess.run(
            [sys.executable, "-m", "seglog", *verb, "--threads", "16", "--json", str(root)],
            stdout=subprocess.PIPE, stderr=shown.slave, check=False, timeout=600)
    assert done.returncode == 0 and done.stdout.startswith(b"{")  # data and bar never mix
    check(shown.lines, columns)
    counted = steps(shown.lines)
    if counted:
        assert counted[-1][1] >= 100
