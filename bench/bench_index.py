"""Lookups in offset indexes, next to a binary search in C and Python's bisect over a list."""

from __future__ import annotations

import bisect
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import seglog
from bench.floors import Floors
from bench.harness import Against, Compare, equals, opened, pick
from seglog._native.index import COPY_MAX, OffsetIndexView
from seglog.log.batch_builder import RecordBatchBuilder

LOOKUPS = pick(1_000, 100_000, 500_000)
RECORDS = 8  # of a batch
SEGMENT_BYTES = pick(1 << 20, 64 << 20, 512 << 20)


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

    check = equals(wanted)
    compare(f"open and look up, {entries:,} entries", ours,
            [Against("read the file, numpy.searchsorted", read_whole, check=check)],
            work=count, unit="lookups", check=check)


def test_sealed_segment(compare: Compare, floors: Floors, scratch: Path) -> None:
    """Batches of 1 KiB by offset, in a closed segment of a directory whose lock is held: its index
    is mapped. The floor knows how many bytes it has to read."""
    with seglog.open(scratch / "sealed" / "t-0", config={
            "internal.segment.bytes": str(SEGMENT_BYTES)}) as program:
        builder = RecordBatchBuilder()
        for _ in range(RECORDS):
            builder.append(1_700_000_000_000, b"key", b"v" * 100)
        batch, log = builder.build(), program.log
        span = batch * (100_000 // len(batch))
        while log.number_of_segments == 1:
            program.append_batches(span)
        last = int(log.segments.base_offsets[1])
        view = log.readers.view()
        segment = log.readers.segment(view, 0)
        assert segment.reader.index.mapped_bytes and segment.size and segment.entries
        size, entries, fetch = segment.size, segment.entries, segment.reader.fetch
        offsets = random.Random(1).choices(range(last), k=LOOKUPS)
        targets = np.array(offsets, np.int64)
        stored = Path(segment.reader.index.path).read_bytes()

        def ours() -> int:
            total = 0
            for offset in offsets:
                found = fetch(offset, size, entries, 1, size, True)
                total += 0 if found is None else len(found.records)
            return total

        check = equals(LOOKUPS * len(batch))
        with opened(Path(segment.reader.path)) as fd:
            compare("fetch by offset, closed segment, batches of 1 KiB", ours,
                    [Against("bisect, pread and the headers in C",
                             lambda: floors.fetch(fd, stored, targets, len(batch), RECORDS),
                             goal=0.6, check=check),
                     # Reads as many bytes as a batch has, but where the entry points: others.
                     Against("bisect and pread of 1 KiB in C",
                             lambda: floors.pread(fd, stored, targets, len(batch)), check=check)],
                    work=LOOKUPS, unit="lookups", check=check)
