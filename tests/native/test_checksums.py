"""Checksums and validity of every value of a column, against one value at a time."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from seglog._native.batch import scan
from seglog._native.checksums import crc32c_column, valid_batches
from seglog._native.crc32c import crc32c
from seglog.errors import IllegalArgumentError
from seglog.log.batch_builder import RecordBatchBuilder
from tests.oracle import legacy

pa = pytest.importorskip("pyarrow")

TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def batch(size: int = 20, **options: object) -> bytes:
    builder = RecordBatchBuilder(**options)  # type: ignore[arg-type]
    builder.append(5, b"k", bytes(size))
    return builder.build()


def values(seed: int) -> list[bytes | None]:
    """Batches, batches with something wrong, and bytes that are nothing."""
    rng = random.Random(seed)
    made: list[bytes | None] = [None, b""]
    for _ in range(300):
        good = bytearray(batch(rng.randrange(300), base_offset=rng.randrange(9)))
        what = rng.randrange(7)
        if what == 1:
            good[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        elif what == 2:
            del good[rng.randrange(len(good)):]
        elif what == 3:
            good += rng.randbytes(rng.randrange(1, 80))
        elif what == 4:
            good[8:12] = struct.pack(">i", rng.choice([-1, 0, 13, 2**31 - 1, len(good)]))
        elif what == 5:
            good = bytearray(rng.randbytes(rng.randrange(100)))
        made.append(bytes(good))
    return made


def is_valid(data: bytes) -> bool:
    found = scan(data)
    return found.batch_count == 1 and found.position == len(data) and data[16] <= 2


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("start", [0, 1, 150])
def test_columns(type: pa.DataType, start: int) -> None:
    given = values(3)[start:]
    column = pa.array(values(3), type).slice(start)
    assert crc32c_column(column).tolist() == [
        -1 if one is None else crc32c(one) for one in given]
    found = valid_batches(column)
    assert found.dtype == np.int8
    assert found.tolist() == [-1 if one is None else int(is_valid(one)) for one in given]
    assert {0, 1} <= set(found.tolist())


def test_checksums_above_2_to_the_31() -> None:
    column = pa.array([bytes([n]) for n in range(256)])
    assert crc32c_column(column).max() > 2**31


def test_old_formats() -> None:
    for magic in (0, 1):
        good = legacy.encode(legacy.Message(offset=7, magic=magic, value=b"v"))
        bad = good[:-1] + b"w"
        assert valid_batches(pa.array([good, bad, good + good])).tolist() == [1, 0, 0]


def test_a_magic_that_does_not_exist() -> None:
    """Kafka: ByteBufferLogInputStream.nextHeaderSize refuses it, whatever the CRC."""
    data = bytearray(batch())
    for magic in (3, 127, 255):
        data[16] = magic
        assert valid_batches(pa.array([bytes(data)])).tolist() == [0]


def test_text_and_refusals() -> None:
    assert crc32c_column(pa.array(["ä"])).tolist() == [crc32c("ä".encode())]
    assert valid_batches(pa.array([], pa.binary())).tolist() == []
    for function in (crc32c_column, valid_batches):
        with pytest.raises(IllegalArgumentError):
            function(pa.array([1, 2]))
        with pytest.raises(TypeError):
            function([b"x"])
