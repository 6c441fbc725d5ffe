"""Bytes that are fetched: what native readers make of blocks equals what they make of the file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.batch import find_batch, resync, scan_file
from seglog._native.records import RecordDecoder
from seglog._native.window import WindowSource
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.storage.codecs import decompress
from tests.oracle import batch as v2
from tests.support.effort import examples
from tests.support.reading import rows_of
from tests.support.waiting import PATIENCE

Load = Callable[[int, int], tuple[int, bytes]]


@cache
def log_bytes(seed: int) -> bytes:
    """A log of batches of many sizes; one of them is larger than a decoder's window."""
    parts, offset = [], 0
    for number in range(40):
        size = 1_300_000 if number == 20 + seed else (number * 7919 + seed) % 3000
        count = 1 + number % 3
        parts.append(v2.encode(v2.Batch(offset, count - 1, [
            v2.Record(offset + n, 1000 + n, b"k%d" % n, bytes([number]) * (size // count))
            for n in range(count)], base_timestamp=1000, max_timestamp=1000 + count)))
        offset += count
    return b"".join(parts)


def blocks_of(data: bytes, sizes: list[int]) -> Load:
    """Blocks of these sizes, repeated; any position may be requested."""
    bounds, at, number = [0], 0, 0
    while at < len(data):
        at += sizes[number % len(sizes)]
        bounds.append(at)
        number += 1

    def load(position: int, least: int) -> tuple[int, bytes]:
        assert least > 0
        row = max(row for row, start in enumerate(bounds) if start <= position)
        start = bounds[row]
        return start, data[start:bounds[row + 1]] if row + 1 < len(bounds) else b""

    return load


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (CorruptDataError, KafkaStorageError) as error:
        return type(error), error.code, error.position


def decoded(source: int | WindowSource, size: int) -> Any:
    rows: list[Any] = []
    decoder = RecordDecoder(source, 0, size, decompress=decompress, file="log")

    def run() -> Any:
        for columns in decoder:
            rows.extend(rows_of(columns))
        return "end"

    return outcome(run), rows, decoder.status_name, decoder.position


def scanned(source: int | WindowSource, size: int, check: bool) -> Any:
    found = scan_file(source, 0, size, check_crcs=check)
    return found.status, found.position, found.batch_count, found.batches.tolist(), found.found


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Callable[[bytes], int]]:
    opened: list[int] = []

    def make(data: bytes) -> int:
        path = tmp_path / str(len(opened))
        path.write_bytes(data)
        opened.append(os.open(path, os.O_RDONLY))
        return opened[-1]

    yield make
    for fd in opened:
        os.close(fd)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1), sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=5)
       .filter(lambda sizes: sum(sizes) > 2000 * len(sizes)),
       damage=st.one_of(st.none(), st.tuples(st.floats(0, 0.999), st.integers(1, 255))),
       cut=st.integers(0, 100))
def test_blocks_decode_as_the_file_does(
        tmp_path_factory: pytest.TempPathFactory, seed: int, sizes: list[int],
        damage: tuple[float, int] | None, cut: int) -> None:
    data = bytearray(log_bytes(seed))
    if damage is not None:
        data[int(damage[0] * len(data))] ^= damage[1]
    if cut > 50:
        del data[-cut:]
    content = bytes(data)
    path = tmp_path_factory.mktemp("window") / "log"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        def source() -> WindowSource:
            return WindowSource(blocks_of(content, sizes))

        assert decoded(source(), len(content)) == decoded(fd, len(content))
        for check in (False, True):
            assert scanned(source(), len(content), check) == scanned(fd, len(content), check)
        middle = len(content) // 2
        assert find_batch(source(), middle, len(content), len(content)) == find_batch(
            fd, middle, len(content), len(content))
        assert resync(source(), 1, len(content), len(content), budget=1 << 22) == resync(
            fd, 1, len(content), len(content), budget=1 << 22)
    finally:
        os.close(fd)


def test_a_block_that_ends_early_is_a_file_that_shrank(on_disk: Callable[[bytes], int]) -> None:
    data = log_bytes(0)
    for cut in (0, 1, 61, len(data) - 1):
        short = data[:cut]
        source = WindowSource(blocks_of(short, [5000]))
        assert decoded(source, len(data)) == decoded(on_disk(short), len(data))


def test_what_a_fetch_raises_the_reader_raises_after_the_rows_before_it() -> None:
    data, gone = log_bytes(0), KeyError("gone")
    whole = blocks_of(data, [4096])

    def load(position: int, least: int) -> tuple[int, bytes]:
        if position > 60_000:
            raise gone
        return whole(position, least)

    rows = []
    decoder = RecordDecoder(WindowSource(load), 0, len(data), decompress=decompress)
    with pytest.raises(KeyError) as caught:
        for columns in decoder:
            rows += rows_of(columns)
    assert caught.value is gone
    with pytest.raises(KeyError):
        scan_file(WindowSource(load), 0, len(data))
    with pytest.raises(KeyError):
        find_batch(WindowSource(load), 70_000, len(data), len(data))


@pytest.mark.parametrize("answer", [None, (1,), (5000, b"behind"), (0, "text"), ("0", b"")])
def test_a_block_that_is_none_is_an_error(answer: Any) -> None:
    source = WindowSource(lambda position, least: answer)
    with pytest.raises((TypeError, ValueError)):
        scan_file(source, 0, 100)


def test_a_closed_source_and_a_second_reader_are_refused() -> None:
    data = log_bytes(0)
    closed = WindowSource(blocks_of(data, [4096]))
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        scan_file(closed, 0, len(data))

    waiting, go = threading.Event(), threading.Event()

    def load(position: int, least: int) -> tuple[int, bytes]:
        waiting.set()
        assert go.wait(120)
        return 0, data

    source, found = WindowSource(load), []
    reader = threading.Thread(target=lambda: found.append(scan_file(source, 0, len(data))))
    reader.start()
    assert waiting.wait(120)
    with pytest.raises(RuntimeError, match="another thread"):
        scan_file(source, 0, len(data))
    go.set()
    reader.join()
    assert found[0].batch_count == 40


@pytest.mark.parametrize("at", [0, 50_000])
def test_a_load_that_closes_its_own_source_ends_the_read(at: int) -> None:
    data, found = log_bytes(0), list[BaseException]()
    whole = blocks_of(data, [4096])

    def load(position: int, least: int) -> tuple[int, bytes]:
        if position >= at:
            source.close()
        return whole(position, least)

    def read() -> None:
        with pytest.raises(ValueError, match="closed while it was read") as caught:
            scan_file(source, 0, len(data))
        found.append(caught.value)

    source = WindowSource(load)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(PATIENCE)
    assert found, "the read waits for itself"
    source.close()
