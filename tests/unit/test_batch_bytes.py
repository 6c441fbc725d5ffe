"""What is decoded of bytes that hold more than valid batches."""

from __future__ import annotations

import pytest

from seglog.arrow.batch_bytes import BadBytes, decode_chunk
from tests.oracle.batch import Batch, Record, encode


def batch(base_offset: int, size: int = 30) -> bytes:
    return encode(Batch(base_offset, 0, [Record(base_offset, 5, None, b"v" * size)],
                        base_timestamp=5, max_timestamp=5))


def bad(data: bytes) -> bytes:
    return data[:-1] + b"x"


@pytest.mark.parametrize(("data", "offsets", "expected"), [
    (batch(0)[:40] + batch(1) + batch(2), [1, 2], [40]),  # a torn one among others
    (batch(0)[:-2] + batch(1), [1], [len(batch(0)) - 2]),
    (batch(0, 300)[:80] + batch(1) + batch(2), [1, 2], [80]),  # as long as the two after it
    (bad(batch(0)) + batch(1), [1], [len(batch(0))]),
    (bad(batch(0)) + bad(batch(1)) + batch(2), [2], [len(batch(0))] * 2),
    (bad(batch(0)) + bytes(100), [], [len(batch(0))]),
    (batch(0) + bad(batch(1)), [0], [len(batch(1))]),
    (batch(0) + batch(1)[:50], [0], [50])])
def test_bad_bytes_cost_no_batch_after_them(data: bytes, offsets: list[int],
                                            expected: list[int]) -> None:
    found: list[BadBytes] = []
    rows = [offset for columns in decode_chunk(data, on_bad=found.append)
            for offset in columns.to_pylists()["offset"]]
    assert (rows, [one.end - one.start for one in found]) == (offsets, expected)
