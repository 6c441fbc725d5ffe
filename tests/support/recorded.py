"""Recorded answers: what seglog answered where a real Kafka gave the same answer, as short digests.

The questions come out of a seed again, so a line holds only a digest of the question, and one of
each part of the answer. A replay needs no JVM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from seglog.storage.codecs import CODECS, compress
from tests.oracle import compression
from tests.support.source_files import ROOT

Line = dict[str, Any]
_DIGITS = 6
#: Where a branch counts when cases are chosen.
_ROOMS = tuple(f"{os.sep}seglog{os.sep}{room}{os.sep}"
               for room in ("cleaner", "log", "manager", "recovery", "storage"))


def digest(value: Any) -> str:
    """A few digits of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def short_name(name: str) -> str:
    """A file's name without its leading zeros."""
    stem, dot, rest = name.partition(".")
    return (str(int(stem)) if stem.isdecimal() else stem) + dot + rest


def libraries() -> str:
    """A digest of what the libraries compress some bytes to: other versions write other bytes."""
    source = random.Random(1)
    found = []
    for size in (40, 300, 3000, 90_000):
        data = bytes(source.choices(range(256), [3] * 16 + [1] * 240, k=size // 2)) * 2
        for codec, row in enumerate(CODECS):
            if codec:
                found += [compression.compress(codec, data).hex(), *(
                    compress(codec, data, level).hex()
                    for level in (1, 3, 9, 17) if level in row.levels)]
    return digest(found)


def differences(recorded: Line, now: Line) -> Iterator[str]:
    """The parts of two lines that differ, by name."""
    if recorded["question"] != now["question"]:
        yield "another question than the recorded one: the generator changed, record again"
        return
    for part in sorted({*recorded, *now} - {"question"}):
        one, two = recorded.get(part), now.get(part)
        if isinstance(one, dict) and isinstance(two, dict):
            yield from (f"{part} {key}: not the recorded answer ({two.get(key, 'none')}, "
                        f"recorded {one.get(key, 'none')})"
                        for key in sorted({*one, *two}) if one.get(key) != two.get(key))
        elif one != two:
            yield f"{part}: not the recorded answer ({two}, recorded {one})"


def retold(line: Line, now: Line) -> Line:
    """A line with the part `told` of another one, which differs in nothing else."""
    rest = now.keys() - {"told"}
    wrong = list(differences({key: line[key] for key in rest}, {key: now[key] for key in rest}))
    if wrong:
        sys.exit(f"{line['name']}: {'; '.join(wrong)}")
    return {**line, "told": now["told"]}


def read(path: Path) -> tuple[str, list[Line]]:
    """The digest of the libraries of a recording, and its lines."""
    first, *lines = map(json.loads, path.read_text().splitlines())
    return first["libraries"], lines


def write(path: Path, lines: Iterable[Line]) -> None:
    """A recording: a line of what it depends on, then one of each case."""
    rows = [{"libraries": libraries()}, *lines]
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What a command takes that records and replays."""
    parser.add_argument("--record", type=Path, metavar="FILE",
                        help="write what both answer the same, for the tests without Java")
    parser.add_argument("--choose", type=int, metavar="N",
                        help="record N of the cases, those that run the most branches")
    parser.add_argument("--replay", type=Path, metavar="FILE",
                        help="only ours beside a recording")
    parser.add_argument("--retell", type=Path, metavar="FILE",
                        help="record again what only we have, without Java")


def told(wrong: Iterable[tuple[str, str]]) -> int:
    """Prints each difference of a replay by the name of its case; the command's exit code."""
    code = 0
    for name, said in wrong:
        print(f"{name}: {said}".replace("\n", " "))
        code = 1
    return code


def steady(module: str, lines: list[Line], place: Path) -> list[Line]:
    """The lines that another process, with other hashes of strings, answers the same again.
    `place` is written for it."""
    write(place, lines)
    done = subprocess.run(
        [sys.executable, "-m", module, "--replay", str(place)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": "1"}, check=False)
    wrong = {said.partition(":")[0] for said in done.stdout.splitlines()}
    assert done.returncode == (1 if wrong else 0), done.stdout
    for name in sorted(wrong):
        print(f"{name}: left out, two processes answer differently")
    return [line for line in lines if line["name"] not in wrong]


class Branches:
    """Traces which line of the package follows which while a function runs."""

    def __init__(self) -> None:
        self.found: set[tuple[str, int, int]] = set()
        self._known: dict[CodeType, bool] = {}

    def of(self, run: Callable[[], object]) -> set[tuple[str, int, int]]:
        """The steps from line to line of one run."""
        self.found = set()
        sys.settrace(self._called)
        try:
            run()
        finally:
            sys.settrace(None)
        return self.found

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in self._known:
            self._known[code] = any(room in code.co_filename for room in _ROOMS)
        if not self._known[code]:
            return None
        file, last = code.co_filename, 0

        def stepped(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                self.found.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return stepped

        return stepped


def chosen(cases: Iterable[tuple[int, set[Any]]], most: int) -> list[int]:
    """The numbers of the cases that together do the most different things, the one that adds most
    first; then once more with those that are left, until there are enough."""
    left = dict(cases)
    done: set[Any] = set()
    found: list[int] = []
    while left and len(found) < most:
        best = max(left, key=lambda number: (len(left[number] - done), -number))
        if left[best] <= done:
            if not done:
                break  # the others do nothing
            print(f"{len(found)} cases, {len(done)} things that one of them did")
            done = set()
            continue
        done |= left.pop(best)
        found.append(best)
    return sorted(found)
