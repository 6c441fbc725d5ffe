"""CRC-32C and CRC-32: known answers, every kernel on every slice, the buffers that they take."""

from __future__ import annotations

import random
import sys
import threading
import zlib
from collections.abc import Callable

import pytest

from seglog._native import crc32c as native
from tests.oracle import wire

# RFC 3720 B.4 and the catalogue's check value; Kafka's empty producer snapshot covers 4 zero bytes.
KNOWN = [
    (b"", 0x00000000),
    (b"\0", 0x527D5351),
    (b"123456789", 0xE3069283),
    (bytes(4), 0x48674BC7),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), KNOWN)
def test_known_answers(kernel: str, data: bytes, expected: int) -> None:
    assert native.crc32c_with(kernel, data) == expected
    assert native.crc32c(data) == expected


def test_kernels_agree_on_every_slice_alignment_and_length(kernel: str) -> None:
    data = random.Random(3).randbytes(70_000)
    lengths = [*range(0, 530), *range(1000, 1030), 2047, 4079, 4080, 4081, 16384, 65537]
    view = memoryview(data)
    for start in (*range(0, 17), 31, 33, 63, 64, 65):
        for length in lengths:
            piece = view[start:start + length]
            expected = native.crc32c_with("portable", piece, 1)
            assert native.crc32c_with(kernel, piece, 1) == expected, (start, length)


def test_spans_chain(kernel: str) -> None:
    random_source = random.Random(4)
    data = random_source.randbytes(20_000)
    whole = native.crc32c(data)
    for _ in range(200):
        cut = random_source.randrange(len(data) + 1)
        first = native.crc32c_with(kernel, data[:cut])
        assert native.crc32c_with(kernel, data[cut:], first) == whole


def test_agrees_with_the_oracle_and_zlib() -> None:
    random_source = random.Random(5)
    for length in (0, 1, 7, 8, 9, 63, 64, 65, 1000, 4096):
        data = random_source.randbytes(length)
        assert native.crc32c(data) == wire.crc32c(data)
        assert native.crc32(data) == zlib.crc32(data)
        assert native.crc32(data, 77) == zlib.crc32(data, 77)


@pytest.mark.parametrize("function", [native.crc32c, native.crc32])
def test_takes_every_contiguous_buffer(function: Callable[..., int]) -> None:
    data = b"seglog" * 7
    for same in (bytearray(data), memoryview(data), memoryview(bytearray(data)).toreadonly()):
        assert function(same) == function(data)
    with pytest.raises(BufferError):
        function(memoryview(data)[::2])
    with pytest.raises(TypeError):
        function("text")
    for value in (-1, 1 << 32):
        with pytest.raises(OverflowError):
            function(data, value)


def test_names_of_kernels() -> None:
    assert native.KERNELS[0] == "portable"
    assert native.KERNEL in native.KERNELS
    for name in ("", "unknown", "Portable"):
        with pytest.raises(ValueError, match="no CRC-32C kernel"):
            native.crc32c_with(name, b"")


def test_no_reference_is_lost_or_kept() -> None:
    data = bytearray(b"x" * 100)
    before = sys.getrefcount(data)
    for _ in range(100):
        native.crc32c(data)
        native.crc32(data)
    assert sys.getrefcount(data) == before
    data.extend(b"y")  # BufferError if an export were left behind


def test_threads_share_nothing() -> None:
    data = random.Random(6).randbytes(1 << 20)
    expected = native.crc32c(data)
    results: list[int] = []

    def work() -> None:
        results.extend(native.crc32c(data) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 80
