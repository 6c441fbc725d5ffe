"""Built logs are what they claim: read back from the bytes, they give their rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle import files, log
from tests.oracle.builder import Shape, build_data_dir, build_log
from tests.oracle.writer import BuiltLog

SHAPES = [Shape(), Shape(clean=False, preallocated=True), Shape(magics=(0, 1, 2)),
          Shape(magics=(0,)), Shape(magics=(1,)), Shape(codecs=(0,), transactions=False)]


def _check(built: BuiltLog) -> None:
    found = log.read(built.path)
    assert found.error is None
    assert found.rows == built.rows(control=True) and found.rows
    replay = log.transactions(built.path)
    assert replay.aborted == built.aborted and replay.open == built.open_transactions
    assert log.committed(log.data(found.rows), replay) == built.rows(isolation="read_committed")
    assert log.base_offsets(built.path) == built.segments
    by_place = {(entry.segment, entry.position): entry for entry in built.entries}
    for base in built.segments:
        raw = files.segment_path(built.path, base, ".index").read_bytes()
        entries = [e for e in files.decode_offset_index(raw, base) if e[1]]
        assert all(by_place[base, position].last_offset == offset for offset, position in entries)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_a_built_log_reads_back(tmp_path: Path, seed: int, shape: int) -> None:
    _check(build_log(tmp_path / "built-0", seed, SHAPES[shape]))


def test_logs_hold_what_tests_need(tmp_path: Path) -> None:
    built = build_log(tmp_path / "built-0", 1, Shape(batches=300))
    assert len(built.segments) > 3 and built.aborted
    sizes = {len(entry.rows) for entry in built.entries}
    assert 0 in sizes and max(sizes) > 5
    rows = built.rows(control=True)
    assert any(row["is_control"] for row in rows) and any(row["headers"] for row in rows)
    assert {row["timestamp_type"] for row in rows} == {0, 1}
    assert len(built.rows(isolation="read_committed")) < len(built.rows())
    assert len(built.leader_epochs) > 1


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for root in ("a", "b"):
        build_data_dir(tmp_path / root, 7, [Shape(), Shape(magics=(0, 1, 2))])
    names = sorted(str(p.relative_to(tmp_path / "a")) for p in (tmp_path / "a").rglob("*.*"))
    assert len(names) > 10
    for name in names:
        if (tmp_path / "a" / name).is_file():
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
