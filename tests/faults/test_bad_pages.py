"""Readers of a log of which some pages cannot be read: they get every batch before them, and those
that skip damage every batch after the next page that can be read, with few attempts to find it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.faults.box import IO, Box
from tests.oracle.batch import Batch, Record, encode
from tests.support.damage import poke

PAGE = 4096
BATCHES = 600
FIRST = f"{0:020d}.log"


def batch(offset: int, size: int | None = None) -> bytes:
    value = b"v" * (offset % 7 * 200 if size is None else size)
    return encode(Batch(offset, 0, [Record(offset, 5, b"k", value)], base_timestamp=5,
                        max_timestamp=5))


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments; the pages of the first go bad."""
    path = tmp_path_factory.mktemp("disk") / "t-0"
    path.mkdir()
    (path / FIRST).write_bytes(b"".join(map(batch, range(BATCHES))))
    (path / f"{BATCHES:020d}.log").write_bytes(batch(BATCHES))
    return path


def attempts(start: int, size: int) -> Iterator[int]:
    """Where a reader tries again after bytes at `start` failed: the next page, and then always
    twice as far as before."""
    at, step = start - start % PAGE + PAGE, PAGE
    while at < size:
        yield at
        at, step = at + step, 2 * step


def read(box: Box, path: Path, bad: tuple[int, int], threads: int, on_damage: str) -> Any:
    """The answer of the job `read`, and how often it read the first segment."""
    answer = box.run("read", under=path, path=str(path), threads=threads, on_damage=on_damage,
                     faults={"calls": "read", "name": FIRST, "bad": f"{bad[0]}-{bad[1]}"})
    return answer["result"], answer["calls"]


BEGINS = [0, *accumulate(len(batch(offset)) for offset in range(BATCHES))]
SIZE = BEGINS[-1]
BAD = pytest.mark.parametrize("bad", [(first * PAGE, last * PAGE) for first, last in (
    (0, 1), (0, 3), (5, 6), (5, 7), (7, 10), (20, 29), (40, 77), (60, 1000), (5, 1000))], ids=str)
THREADS = pytest.mark.parametrize("threads", [0, 2])


def first_lost(bad: tuple[int, int]) -> int:
    """The offset of the first batch that has a byte of a bad page."""
    return next(offset for offset in range(BATCHES) if BEGINS[offset + 1] > bad[0])


@BAD
@THREADS
def test_all_batches_before_bad_pages_come_before_the_error(
        box: Box, partition: Path, bad: tuple[int, int], threads: int) -> None:
    found, _ = read(box, partition, bad, threads, "raise")
    assert found["offsets"] == [*range(first_lost(bad))]
    assert (found["error"], found["errno"], found["file"], found["position"]) == (
        "KafkaStorageError", IO, str(partition / FIRST), bad[0])


@BAD
@THREADS
def test_a_reader_that_skips_damage_also_gets_those_after_them(
        box: Box, partition: Path, bad: tuple[int, int], threads: int) -> None:
    lost = first_lost(bad)
    readable = next((at for at in attempts(BEGINS[lost], SIZE) if at >= bad[1]), SIZE)
    next_one = next(offset for offset, begin in enumerate(BEGINS) if begin >= readable)
    found, calls = read(box, partition, bad, threads, "skip")
    assert found["offsets"] == [*range(lost), *range(next_one, BATCHES + 1)]
    assert found["gaps"] == [["io", BEGINS[lost], BEGINS[next_one] - BEGINS[lost], lost,
                              next_one - 1]]
    assert calls < 60 + bad[0] // 1000  # headers are read in small pieces


@BAD
@pytest.mark.parametrize("max_length", [1, 3000, 1 << 20])
@pytest.mark.parametrize("way", ["fetch", "read_batches"])
def test_fetches_deliver_all_batches_before_bad_pages(
        box: Box, partition: Path, bad: tuple[int, int], max_length: int, way: str) -> None:
    """Also if a page in the window of the search, or in the bytes of the fetch, is bad."""
    path = str(partition / FIRST)
    answer = box.run("fetch", under=partition, path=path, size=SIZE, max_length=max_length,
                     faults={"calls": "read", "name": FIRST, "bad": f"{bad[0]}-{bad[1]}"})
    found = answer["result"][way]
    assert found["offsets"] == [*range(first_lost(bad))]
    assert (found["error"], found["errno"], found["file"], found["position"]) == (
        "KafkaStorageError", IO, path, bad[0])


def eight_a_page(path: Path, pages: int) -> Path:
    """A partition whose first segment has so many pages of eight batches each."""
    path.mkdir()
    size = next(size for size in range(PAGE) if len(batch(0, size)) == PAGE // 8)
    (path / FIRST).write_bytes(b"".join(batch(offset, size) for offset in range(8 * pages)))
    (path / f"{8 * pages:020d}.log").write_bytes(batch(8 * pages))
    return path


def test_a_batch_at_the_beginning_of_a_page_is_found(box: Box, tmp_path: Path) -> None:
    path = eight_a_page(tmp_path / "t-0", 5)
    found, _ = read(box, path, (PAGE, 2 * PAGE), 0, "skip")
    assert found["offsets"] == [*range(8), *range(16, 41)]
    assert found["gaps"] == [["io", PAGE, PAGE, 8, 15]]


def test_a_bad_page_after_foreign_bytes(box: Box, tmp_path: Path) -> None:
    """The search for the next batch goes on after the page, and reads nothing again for it."""
    path = eight_a_page(tmp_path / "t-0", 60)
    poke(path / FIRST, PAGE // 4, b"\xff" * (40 * PAGE - PAGE // 4))
    found, calls = read(box, path, (40 * PAGE, 41 * PAGE), 0, "skip")
    assert found["offsets"] == [0, 1, *range(41 * 8, 60 * 8 + 1)]
    assert found["gaps"] == [["batch_length", PAGE // 4, 41 * PAGE - PAGE // 4, 2, 41 * 8 - 1]]
    assert calls < 40
