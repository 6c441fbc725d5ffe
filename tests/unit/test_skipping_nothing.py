"""A reader that skips damage gets from a sound log what any other reader gets."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from seglog.storage.isolation import ISOLATIONS
from seglog.storage.partition_log import PartitionLog
from seglog.storage.stream import DecodeOptions, decode_range
from tests.oracle.batch import ABORT, COMMIT, Batch, Record, encode, marker
from tests.support.facts import refusal
from tests.support.reading import read_rows, rows_of

SKIPS = DecodeOptions(on_damage="skip")


def batch(offset: int, producer: int = -1, count: int = 2) -> bytes:
    records = [Record(offset + number, 1000 + 7 * (offset + number) % 40, b"k", b"v" * 30)
               for number in range(count)]
    return encode(Batch(offset, 0, records, base_timestamp=records[0].timestamp,
                        max_timestamp=max(record.timestamp for record in records),
                        producer_id=producer, is_transactional=producer >= 0))


@pytest.fixture(params=["decided", "open"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> PartitionLog:
    """Producers 7 and 8 commit and abort; 9 does not end what it begins, or commits it."""
    parts = [[batch(0), batch(2, 7), batch(4, 8)],
             [encode(marker(6, 7, 0, COMMIT, 0)), batch(7, 9), encode(marker(9, 8, 0, ABORT, 0))],
             [batch(10), batch(12, 7), encode(marker(14, 7, 0, COMMIT, 0)), batch(15)]]
    if request.param == "decided":
        parts[2].append(encode(marker(17, 9, 0, COMMIT, 0)))
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base, content in zip((0, 6, 10), parts, strict=True):
        (folder / f"{base:020d}.log").write_bytes(b"".join(content))
    return PartitionLog.open(folder, log_start_offset=1)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_same_records_between_any_offsets(log: PartitionLog, isolation: Any) -> None:
    ends = {damage: log.end_offset(isolation, damage) for damage in ("raise", "skip")}
    assert len(set(ends.values())) == 1
    last = log.log_end_offset
    some = 0
    for start, end in product([None, 1, 3, 6, 7, 8, 10, 15, last], [None, 0, 2, 7, 9, 12, last,
                                                                    last + 5]):
        plain = read_rows(log, start, end, isolation=isolation)
        assert read_rows(log, start, end, isolation=isolation, on_damage="skip") == plain
        ranges = log.ranges(60, start, end, isolation, on_damage="skip")
        assert [row for one in ranges for columns in decode_range(one, SKIPS)
                for row in rows_of(columns)] == plain
        some += bool(plain)
    assert some > 10 and not log.gaps


def test_the_same_offsets_of_times_and_errors(log: PartitionLog) -> None:
    for timestamp in (-3, -2, -1, 0, 999, 1000, 1014, 1035, 1039, 1040, 1041):
        found = [log.offset_for_timestamp(timestamp, on_damage=damage)
                 for damage in ("raise", "skip")]
        assert found[0] == found[1], timestamp
    for start, end in ((0, None), (0, 5), (log.log_end_offset + 1, None), (-1, 3)):
        errors = []
        for damage in ("raise", "skip"):
            errors.append(refusal(lambda damage=damage: log.to_arrow(  # type: ignore[misc]
                start, end, on_damage=damage)))
        assert errors[0] == errors[1]
