"""Splits of segments with bad bytes after the overflow, which a split copies unchecked. Kafka
copies chunks of a mebibyte: its exception depends on where they end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.differential.test_opened_batches import judged
from tests.oracle import batch as v2

pytestmark = pytest.mark.judge

_CASES = 250
_FAR = 2**31 + 11
_SIZES = (61, 61, 100, 5000, 5000, 300_000, 700_000, 2**20 - 61, 2**20, 1_300_000)


def _good(offset: int) -> bytes:
    return v2.encode(v2.Batch(offset, 0, [v2.Record(offset, 1000, b"k", b"v")],
                              base_timestamp=1000, max_timestamp=1000))


def _framed(rng: random.Random, offset: int, size: int, magic: int = 2) -> bytes:
    """A batch whose CRC is wrong; the fields that a split reads are right."""
    delta = rng.choice([0, 0, 0, 1, 9])
    data = v2.HEADER.pack(offset, size - 12, 0, magic, 0, 0, delta, 1000,
                          rng.choice([1000, 5, 2000 + offset % 1000, -1]), -1, -1, -1, 1)
    return (data + bytes(max(0, size - len(data))))[:size]


def _trouble(rng: random.Random, offset: int) -> bytes:
    kind = rng.randrange(6)
    if kind < 2:  # fewer bytes than a header, or than the fields of it that are read
        return _framed(rng, offset, rng.choice([26, 27, 34, 42, 43, 44, 60]))
    if kind == 2:
        return _framed(rng, offset, rng.choice([26, 100, 5000]), rng.choice([-1, 3, 9, 127, -128]))
    if kind == 3:
        return _framed(rng, offset, rng.choice([26, 40, 100]), rng.choice([0, 1]))
    if kind == 4:  # a length that no batch has, or that ends behind the file
        return offset.to_bytes(8, "big", signed=True) + rng.choice(
            [b"\0\0\0\x0d", bytes(4), b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x40"])
    return rng.randbytes(rng.choice([1, 17, 18, 80]))


def _overflowing(rng: random.Random, _: Path) -> bytes:
    """A segment that has to be split at its second batch."""
    offset = rng.choice([_FAR, _FAR, 2**33])
    parts, used = [_good(0), _good(offset)], {0, offset}
    for _ in range(rng.randint(1, 9)):
        # Two new segments of one base can crash a JVM: one cuts a file that the other has mapped.
        while offset in used:
            offset += rng.choice([1, 1, 1, 10, 10, 10, -3, 2**31 - 1, _FAR, -_FAR])
        used.add(offset)
        if rng.random() < .3:
            parts.append(_trouble(rng, offset))
        else:
            parts.append(_framed(rng, offset, rng.choice(_SIZES)))
    return b"".join(parts)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.usefixtures("kafka_lib")
def test_kafka_gives_up_at_the_same_place(home: Path, seed: int) -> None:
    wrong, refused = judged(home, _overflowing, seed, _CASES)
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)
    assert _CASES / 5 < refused < _CASES


@pytest.mark.usefixtures("kafka_lib")
def test_new_segments_of_one_base_are_missed_from_the_last_on(home: Path) -> None:
    def make(_: random.Random, __: Path) -> bytes:
        return b"".join(_good(offset) for offset in (0, _FAR, 1, 0, _FAR, 5, 3 * _FAR))

    wrong, refused = judged(home, make, 1, 1)
    assert not wrong, wrong
    assert refused == 1
