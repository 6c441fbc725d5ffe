"""Lookups in offset indexes: a small one (copied) and a large one (mapped), by every access."""

from __future__ import annotations

import bisect
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from seglog._native.index import COPY_MAX, OffsetIndexView

LOOKUPS = 1000


def make(path: Path, entries: int) -> tuple[Path, list[int]]:
    """An index, and its offsets for Python's own search."""
    offsets = [n * 40 + 39 for n in range(entries)]
    path.write_bytes(b"".join(struct.pack(">ii", o, n * 4096 + 1) for n, o in enumerate(offsets)))
    return path, offsets


@pytest.mark.parametrize("entries", [1000, 262_144])
def test_lookup(benchmark: Any, tmp_path: Path, entries: int) -> None:
    """Random lookups; the mapped index also asks for the size of its file each time."""
    path, offsets = make(tmp_path / "i", entries)
    targets = random.Random(1).choices(range(offsets[-1]), k=LOOKUPS)
    view = OffsetIndexView(path, 0)

    def look() -> list[tuple[int, int]]:
        return [view.lookup(target) for target in targets]

    found = benchmark(look)
    assert view.is_mapped == (entries * 8 > COPY_MAX)
    assert [offset for offset, _ in found] == [
        offsets[row - 1] if (row := bisect.bisect_right(offsets, target)) else 0
        for target in targets]
    benchmark.extra_info["lookups"] = LOOKUPS


@pytest.mark.parametrize("entries", [100, 1000, 8000, 8192, 65_536, 262_144])
def test_first_lookup(benchmark: Any, tmp_path: Path, entries: int) -> None:
    """Open, first lookup, close: what decides between a copy and a map."""
    path, offsets = make(tmp_path / "i", entries)

    def open_and_look() -> tuple[int, int]:
        view = OffsetIndexView(path, 0)
        found = view.lookup(offsets[entries // 2])
        view.close()
        return found

    assert benchmark(open_and_look) == (offsets[entries // 2], entries // 2 * 4096 + 1)
