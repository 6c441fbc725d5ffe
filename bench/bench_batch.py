"""Validation of every batch of a page-cached segment, next to CRC over pread in C."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.data import Log, write_log
from bench.floors import Floors
from bench.harness import Against, Compare, equals, opened, pick
from seglog._native.batch import BatchScan, scan_file
from seglog._native.crc32c import crc32c
from seglog._native.status import Status

RECORDS = pick(20_000, 2_000_000, 8_000_000)


@pytest.fixture(scope="module")
def log(scratch: Path) -> Log:
    """16 KiB batches of 100 B values; 0.2 GB, or 0.9 GB at full size."""
    return write_log(scratch / "batch", RECORDS)


@pytest.mark.parametrize("strict", [False, True], ids=["kafka", "strict"])
def test_validate_segment(compare: Compare, floors: Floors, log: Log, strict: bool) -> None:
    """Goal: 60% of the floor. `strict` validates more fields than Kafka's recovery."""
    with open(log.path, "rb") as file:
        whole = 0
        while window := file.read(1 << 20):
            whole = crc32c(window, whole)
    with opened(log.path) as fd:

        def check(scan: BatchScan) -> None:
            assert scan.status == Status.END and scan.position == log.size
            assert (scan.batch_count, scan.record_count) == (log.batches, log.records)
            assert scan.last_offset == log.last_offset

        compare(f"validate a segment{', strictly' if strict else ''}",
                lambda: scan_file(fd, 0, log.size, strict=strict, collect=False),
                [Against("CRC over pread in C", lambda: floors.crc_pread(fd, log.size), goal=0.6,
                         check=equals(whole))],
                work=log.size / 1e9, unit="GB", check=check)
