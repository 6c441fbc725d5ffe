"""Lookups in offset indexes, next to a binary search in C and Python's bisect over a list."""

from __future__ import annotations

import bisect
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from bench.floors import Floors
from bench.harness import Against, Compare, pick
from seglog._native.index import COPY_MAX, OffsetIndexView

LOOKUPS = pick(1_000, 100_000, 500_000)


def make(path: Path, entries: int) -> list[int]:
    """Writes an index file; returns its offsets for Python's bisect."""
    offsets = [n * 40 + 39 for n in range(entries)]
    path.write_bytes(b"".join(struct.pack(">ii", o, n * 4096 + 1) for n, o in enumerate(offsets)))
    return offsets


@pytest.mark.parametrize("entries", [1000, 262_144])
def test_lookup(compare: Compare, floors: Floors, tmp_path: Path, entries: int) -> None:
    """Random lookups in a small index (copied into memory) and a large one (read by entry)."""
    path = tmp_path / "index"
    offsets = make(path, entries)
    targets = random.Random(1).choices(range(offsets[-1]), k=LOOKUPS)
    expected = [offsets[row - 1] if (row := bisect.bisect_right(offsets, target)) else 0
                for target in targets]
    raw, array = path.read_bytes(), np.array(targets, np.int64)
    view = OffsetIndexView(path, 0)

    def in_python() -> list[int]:
        return [bisect.bisect_right(offsets, target) for target in targets]

    def check_python(rows: list[int]) -> None:
        assert [offsets[row - 1] if row else 0 for row in rows] == expected

    def check_floor(found: np.ndarray) -> None:
        assert found.tolist() == expected

    def check(found: list[tuple[int, int]]) -> None:
        assert [offset for offset, _ in found] == expected

    compare(f"lookup among {entries:,} entries",
            lambda: [view.lookup(target) for target in targets],
            [Against("Python's bisect on a list", in_python, check=check_python),
             Against("bisect in C, no Python", lambda: floors.bisect(raw, array),
                     check=check_floor)],
            work=LOOKUPS, unit="lookups", check=check)
    assert view.holds_descriptor == (entries * 8 > COPY_MAX)
    view.close()


@pytest.mark.parametrize("entries", [1000, 262_144])
def test_first_lookup(compare: Compare, tmp_path: Path, entries: int) -> None:
    """Open, one lookup, close: the cost of a segment when the descriptor cache is full."""
    path, count = tmp_path / "index", LOOKUPS // 50
    offsets = make(path, entries)
    wanted = offsets[entries // 2]

    def ours() -> int:
        found = -1
        for _ in range(count):
            view = OffsetIndexView(path, 0)
            found = view.lookup(wanted)[0]
            view.close()
        return found

    def read_whole() -> int:
        found = -1
        for _ in range(count):
            raw = np.frombuffer(path.read_bytes(), ">i4")[::2]
            found = int(raw[np.searchsorted(raw, wanted, "right") - 1])
        return found

    def check(found: int) -> None:
        assert found == wanted

    compare(f"open and look up, {entries:,} entries", ours,
            [Against("read the file, numpy.searchsorted", read_whole, check=check)],
            work=count, unit="lookups", check=check)
