"""Kafka's hash of keys, held against Kafka's own known answers and a slow model of it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from seglog._native.murmur2 import hashes, murmur2, partitions
from seglog.errors import IllegalArgumentError

pa = pytest.importorskip("pyarrow")

# Kafka: UtilsTest.testMurmur2.
KNOWN = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
         b"a-little-bit-longer-string": -1486304829,
         b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, b"abc": 479470107}
MASK = 0xFFFFFFFF
TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def model(data: bytes) -> int:
    """Utils.murmur2, a byte at a time."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    for at in range(0, len(data) - 3, 4):
        k = int.from_bytes(data[at:at + 4], "little") * m & MASK
        h = h * m & MASK ^ (k ^ k >> 24) * m & MASK
    if tail := data[len(data) & ~3:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & MASK
    h = (h ^ h >> 13) * m & MASK
    h ^= h >> 15
    return h - ((h & 0x80000000) << 1)


def keys(seed: int) -> list[bytes | None]:
    rng = random.Random(seed)
    return [None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 1, 2, 3, 4, 7, 13, 80]))
            for _ in range(500)]


def test_known_answers() -> None:
    assert {data: murmur2(data) for data in KNOWN} == KNOWN
    assert hashes(pa.array(list(KNOWN))).tolist() == list(KNOWN.values())


def test_every_size_and_any_buffer() -> None:
    data = random.Random(1).randbytes(300)
    for size in range(301):
        assert murmur2(data[:size]) == model(data[:size]) == murmur2(memoryview(data)[:size])


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("start", [0, 3, 499, 500])
def test_columns(type: pa.DataType, start: int) -> None:
    """Arrays that begin in the middle of their buffers, with nulls."""
    given = keys(2)[start:]
    column = pa.array(keys(2), type).slice(start)
    found = hashes(column, null=7)
    assert found.dtype == np.int32
    assert found.tolist() == [7 if key is None else model(key) for key in given]
    assert partitions(column, 13).tolist() == [
        -1 if key is None else (model(key) & 0x7FFFFFFF) % 13 for key in given]


def test_text_fixed_size_and_null_columns() -> None:
    assert partitions(pa.array(["a", None, "grüße"]), 50).tolist() == [
        (model(b"a") & 0x7FFFFFFF) % 50, -1, (model("grüße".encode()) & 0x7FFFFFFF) % 50]
    assert hashes(pa.array([b"abcd", b"efgh"], pa.binary(4))).tolist() == [
        model(b"abcd"), model(b"efgh")]
    assert partitions(pa.nulls(3), 4).tolist() == [-1, -1, -1]
    assert partitions(pa.array([b"x"]), 1).tolist() == [0]


def test_refusals() -> None:
    with pytest.raises(IllegalArgumentError, match="keys of Arrow type 'l'"):
        partitions(pa.array([1]), 4)
    with pytest.raises(IllegalArgumentError, match="keys of Arrow type"):
        hashes(pa.array(["a"]).dictionary_encode())
    with pytest.raises(TypeError, match="__arrow_c_array__"):
        partitions([b"a"], 4)
    with pytest.raises(ValueError, match="0 partitions"):
        partitions(pa.array([b"a"]), 0)


def test_offsets_that_contradict_themselves() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 3, 1, 4], np.int32)), pa.py_buffer(b"abcd")]
    with pytest.raises(IllegalArgumentError):
        hashes(pa.Array.from_buffers(pa.binary(), 3, buffers))
