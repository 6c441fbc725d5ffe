"""CRC-32C: seglog's kernel through Python, next to google-crc32c's, on the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from bench.harness import Against, Compare, equals, pick
from seglog._native.crc32c import KERNELS, crc32c, crc32c_with

google_crc32c = pytest.importorskip("google_crc32c", reason="google-crc32c is not installed")

BYTES_EACH = pick(1 << 22, 1 << 27, 1 << 29)
SIZES = {"1 KiB": 1 << 10, "16 KiB": 1 << 14, "1 MiB": 1 << 20}


def repeated(checksum: Callable[[bytes], int], data: bytes) -> Callable[[], int]:
    """Checksums `data` repeatedly until the round's bytes are read."""
    calls = range(BYTES_EACH // len(data))

    def run() -> int:
        value = 0
        for _ in calls:
            value = checksum(data)
        return value

    return run


@pytest.mark.parametrize("name", SIZES)
def test_crc32c(compare: Compare, name: str) -> None:
    """Goal: at least google-crc32c's rate."""
    data = random.Random(1).randbytes(SIZES[name])
    check = equals(crc32c_with("portable", data))
    others = [Against("google-crc32c", repeated(google_crc32c.value, data), goal=1.0, check=check)]
    others += [Against(f"own kernel {kernel}", repeated(partial(crc32c_with, kernel), data),
                       check=check)
        for kernel in KERNELS if kernel != "portable" and name == "1 MiB"]
    compare(f"CRC-32C, {name}", repeated(crc32c, data), others, work=BYTES_EACH / 1e9, unit="GB",
            check=check, rounds=7)
