"""Blocks that are fetched ahead of a reader: the right bytes, no more of them than allowed."""

from __future__ import annotations

import random

import pytest

from seglog.objects.store import Block
from seglog.storage import blocks
from seglog.storage.blocks import BlockReader

DATA = random.Random(1).randbytes(5000)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_are_the_bytes_at_a_position(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    most, ahead = draw.choice((64, 256)), draw.randint(1, 4)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", most)
    monkeypatch.setattr(blocks, "_STEP_MAX", most)
    fetched: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> Block:
        fetched.append((start, end))
        return DATA[start:end]

    def look(position: int) -> tuple[int, Block]:
        return position, DATA[position:position + 10]

    end = draw.randint(1, len(DATA))
    reader = BlockReader(fetch, end, ahead, first_bytes=draw.choice((16, most)),
                         look=draw.choice((None, look)))
    position = draw.randrange(end)
    if draw.random() < 0.3:
        reader.begin(position)
    for _ in range(60):
        start, block = reader.block(position, 1)
        if position >= end:
            assert (start, block) == (position, b"")
            position = draw.randrange(end)
            continue
        assert start <= position < start + len(block)
        assert bytes(block) == DATA[start:start + len(block)]
        assert len(reader._wanted) <= ahead
        position = draw.choice((start + len(block), start + len(block), position,
                                start + len(block) + draw.randint(0, 2 * most), end,
                                draw.randrange(end)))
    reader.close()
    assert not reader._wanted
    assert all(start < stop <= end and stop - start <= most for start, stop in fetched)


def test_blocks_grow_while_the_reader_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that skips more than a block, or goes back, starts small again."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 128)
    monkeypatch.setattr(blocks, "_STEP_MAX", 128)
    reader = BlockReader(lambda start, end: DATA[start:end], len(DATA), 1, first_bytes=16)
    found = []
    for position in (0, 16, 48, 112, 240, 367, 368, 495, 623, 624, 800, 0, 143, 144, 300, 491, 747):
        start, block = reader.block(position, 1)
        found.append((start, len(block)))
    assert found == [(0, 16), (16, 32), (48, 64), (112, 128), (240, 128), (240, 128), (368, 128),
                     (368, 128), (623, 128), (623, 128), (800, 128), (0, 16), (143, 32), (143, 32),
                     (300, 64), (491, 128), (747, 16)]


@pytest.mark.parametrize(("position", "looks"), [
    (109, True), (110, False), (237, False), (238, True)])
def test_a_reader_that_begins_elsewhere_looks_first(
        monkeypatch: pytest.MonkeyPatch, position: int, looks: bool) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 128)
    monkeypatch.setattr(blocks, "_STEP_MAX", 128)
    looked: list[int] = []

    def look(at: int) -> tuple[int, Block]:
        looked.append(at)
        return at, DATA[at:at + 10]

    reader = BlockReader(lambda start, end: DATA[start:end], len(DATA), 1, first_bytes=16,
                         look=look)
    assert reader.block(100, 1) == (100, DATA[100:110])
    start, block = reader.block(position, 1)
    assert (start, len(block)) == (position, 10 if looks else 32)
    assert looked == [100, *[position] * looks]
