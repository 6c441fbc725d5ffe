"""Raw snappy blocks: readable by anybody, and byte for byte those of Kafka's snappy-java."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

import cramjam
import pytest

from seglog._native.snappy import BLOCK_MAX, compress_block

#: SHA-256 over what `org.xerial.snappy.Snappy.compress` of 1.1.10.7 makes of `blocks(400)`.
OF_KAFKA = "39801565d37a0326ba7b207967359d6b75b729b123b3a99d449484078f0cbf6b"


def blocks(count: int) -> Iterator[bytes]:
    """Blocks of all sizes, from nothing to find in them to nothing but repetition."""
    source = random.Random(17)
    for number in range(count):
        size = source.choice([number % 80, source.randint(0, 600), source.randint(0, 5000),
                              source.randint(0, 32768)] + [32768] * (number % 10 == 0))
        kind = number % 5
        if kind == 0:
            yield source.randbytes(size)
        elif kind == 1:
            word = source.randbytes(source.randint(1, 100))
            yield (word * (size // len(word) + 1))[:size]
        elif kind == 2:
            yield bytes(source.choices(b"abcd", k=size))
        else:
            words = [source.randbytes(source.randint(1, 12)) for _ in range(20)]
            text = b""
            while len(text) < size:
                text += source.choice(words) + b" " * source.randint(0, 2)
            yield text[:size]


def test_they_are_kafkas() -> None:
    found = hashlib.sha256()
    for block in blocks(400):
        found.update(compress_block(block))
    assert found.hexdigest() == OF_KAFKA


def test_they_are_read_by_another_library() -> None:
    for block in [*blocks(300), bytes(BLOCK_MAX), random.Random(1).randbytes(BLOCK_MAX)]:
        assert bytes(cramjam.snappy.decompress_raw(compress_block(block))) == block


def test_any_buffer_but_none_that_is_too_large() -> None:
    assert compress_block(bytearray(b"seglog")) == compress_block(memoryview(b"seglog"))
    assert compress_block(b"") == b"\0"
    with pytest.raises(ValueError, match="65537 bytes, at most 65536"):
        compress_block(bytes(BLOCK_MAX + 1))
