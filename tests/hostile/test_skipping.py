"""One bad batch costs one batch, however a log is divided, and every gap is reported once."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from seglog.arrow import DecodeOptions, decode_range
from seglog.errors import OffsetOutOfRangeError
from seglog.model import MAX_TIMESTAMP
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from tests.oracle.batch import Row
from tests.support import skipping
from tests.support.effort import quick_first
from tests.support.reading import ALL_COLUMNS, rows_of
from tests.support.skipping import Damaged

CASES = int(os.environ.get("SEGLOG_SKIPPING_CASES", "150"))
FIRST = int(os.environ.get("SEGLOG_SKIPPING_FIRST", "0"))


def read(log: PartitionLog, start: int | None = None, end: int | None = None, **options: Any
         ) -> tuple[list[Row], list[LogGap]]:
    heard: list[LogGap] = []
    stream = log.to_arrow(start, end, ALL_COLUMNS, on_damage="skip", on_gap=heard.append,
                          **{"include_control": True, **options})
    rows = [row for columns in stream for row in rows_of(columns)]
    assert heard == stream.gaps
    assert len(set(heard)) == len(heard)
    return rows, heard


def by_ranges(log: PartitionLog, target: int, start: int | None = None, end: int | None = None,
              isolation: Any = "read_uncommitted") -> tuple[list[Row], list[LogGap]]:
    """As Spark reads: each range alone."""
    gaps: list[LogGap] = []
    ranges = log.ranges(target, start, end, isolation, on_damage="skip", on_gap=gaps.append)
    options = DecodeOptions(ALL_COLUMNS, include_control=True, on_damage="skip")
    rows = [row for planned in ranges
            for columns in decode_range(planned, options, on_gap=gaps.append)
            for row in rows_of(columns)]
    return rows, gaps


def in_place(gaps: list[LogGap]) -> list[LogGap]:
    return sorted(gaps, key=lambda gap: (gap.file, gap.position))


def check_rows(damaged: Damaged, rows: list[Row], start: int, end: int) -> None:
    facts = [skipping.facts(row) for row in rows]
    must = [skipping.facts(row) for row in damaged.rows(start, end)]
    may = [skipping.facts(row) for row in damaged.rows(start, end, unsure=True)]
    come = iter(facts)
    missing = [row["offset"] for row in must if row not in come]
    assert not missing, f"rows at {missing[:5]} did not come"
    allowed = iter(may)
    wrong = [row["offset"] for row in facts if row not in allowed]
    assert not wrong, f"rows at {wrong[:5]} came that were not there"


def check_gaps(damaged: Damaged, gaps: list[LogGap]) -> None:
    """Each lost batch is in exactly one gap, and gaps do not overlap."""
    ends: dict[str, int] = {}
    for gap in in_place(gaps):
        assert gap.position >= ends.get(gap.file, 0), gap
        ends[gap.file] = gap.position + gap.size
    for base, pieces in damaged.files.items():
        mine = [gap for gap in gaps if int(os.path.basename(gap.file)[:20]) == base]
        sound = [n for n, piece in enumerate(pieces) if piece.entry and not piece.is_lost]
        position = 0
        for number, piece in enumerate(pieces):
            if piece.is_lost and piece.entry is not None and (
                    base != damaged.built.segments[-1] or number < max(sound, default=-1)):
                inside = [gap for gap in mine if gap.position < position + len(piece.data)
                          and position < gap.position + gap.size]
                assert inside, f"no gap of {base}/{number}, byte {position}"
                assert any((gap.first_offset or 0) <= piece.entry.base_offset and (
                    gap.last_offset is None or piece.entry.last_offset <= gap.last_offset)
                    for gap in inside) or damaged_offsets(damaged, gaps), (piece.entry, inside)
            position += len(piece.data)


def damaged_offsets(damaged: Damaged, gaps: list[LogGap]) -> bool:
    """What the header of a damaged batch claims may itself be damaged."""
    return any(gap.records is not None for gap in gaps)


def check(path: Path, seed: int) -> int:
    damaged = skipping.make(path, seed)
    rnd = random.Random(seed)
    log = PartitionLog.open(path)
    try:
        rows, gaps = read(log)
        top = 2**62
        check_rows(damaged, rows, 0, top)
        check_gaps(damaged, gaps)
        if not damaged.lost() and not any(p.is_unsure or p.entry is None for pieces in
                                          damaged.files.values() for p in pieces):
            assert gaps == []
        sizes = [rnd.choice([1, 61, 500, 3000, 10**6]) for _ in range(2)]
        for target in sizes:
            again, again_gaps = by_ranges(log, target)
            assert again == rows, target
            assert again_gaps == in_place(gaps), (target, again_gaps, gaps)
        for threads in (1, 3):
            assert read(log, threads=threads, batch_rows=rnd.choice([1, 7, 1000])) == (rows, gaps)
        for _ in range(4):
            start = rnd.randint(log.log_start_offset, damaged.built.log_end_offset - 1)
            end = rnd.choice([None, start + rnd.randint(0, 300)])
            try:
                part, part_gaps = read(log, start, end)
            except OffsetOutOfRangeError:
                assert not any(row["offset"] >= start for row in rows)
                continue
            assert part == [row for row in rows if start <= row["offset"] < (end or top)]
            assert set(part_gaps) <= set(gaps)
            again, again_gaps = by_ranges(log, 700, start, end)
            assert again == part, (start, end)
            assert again_gaps == in_place(part_gaps), (start, end, again_gaps, part_gaps)
        check_committed(damaged, log, gaps)
        check_times(log, rows, rnd)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {damaged.notes}: {error}") from error
    return len(gaps)


def check_times(log: PartitionLog, rows: list[Row], rnd: random.Random) -> None:
    """A look-up by time answers with the first late enough of the rows that come."""
    times = sorted({row["timestamp"] for row in rows})
    wanted = [0, 2**60, *rnd.sample(times, min(6, len(times))), *times[-1:]]
    for time in [moment for moment in wanted if moment >= 0]:
        found = log.offset_for_timestamp(time, on_damage="skip")
        assert (found and (found.timestamp, found.offset)) == next((
            (row["timestamp"], row["offset"]) for row in rows if row["timestamp"] >= time), None)
    found = log.offset_for_timestamp(MAX_TIMESTAMP, on_damage="skip")
    assert (found and (found.timestamp, found.offset)) == next((
        (row["timestamp"], row["offset"]) for row in rows
        if row["timestamp"] == times[-1] >= 0), None)


def check_committed(damaged: Damaged, log: PartitionLog, gaps: list[LogGap]) -> None:
    built = damaged.built
    rows, found = read(log, isolation="read_committed", include_control=False)
    doubt = [gap for gap in found if gap.kind == "transaction_in_doubt"]
    undecided = {(row["producer_id"]) for row in rows if row["is_transactional"]
                 and row["offset"] >= built.open_transactions.get(row["producer_id"], 2**63)}
    assert not undecided, f"undecided records of {undecided}"
    aborted = [row["offset"] for row in rows if built._is_aborted(row)]
    assert not aborted, f"aborted records {aborted}"
    if not doubt and not built.open_transactions:
        committed = {row["offset"] for row in built.rows(isolation="read_committed")}
        want = [row for row in damaged.rows(0, 2**62)
                if row["offset"] in committed and not row["is_control"]]
        got = {row["offset"] for row in rows}
        missing = [row["offset"] for row in want if row["offset"] not in got]
        assert not missing, f"committed records {missing[:5]} did not come"
    for target in (300, 5000):
        again: list[LogGap] = []
        ranges = log.ranges(target, isolation="read_committed", on_damage="skip",
                            on_gap=again.append)
        options = DecodeOptions(ALL_COLUMNS, on_damage="skip")
        assert rows == [row for planned in ranges
                        for columns in decode_range(planned, options, on_gap=again.append)
                        for row in rows_of(columns)]
        assert in_place(again) == in_place(found)


@pytest.mark.parametrize("part", quick_first(range(5), 1))
def test_a_reader_that_skips_damage_loses_what_is_damaged_and_no_more(tmp_path: Path, part: int
                                                                      ) -> None:
    gaps = [check(tmp_path / f"{seed}" / "topic-0", seed)
            for seed in range(FIRST + part, FIRST + CASES, 5)]
    assert sum(gaps) > len(gaps) // 4
