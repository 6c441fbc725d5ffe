"""What a power cut left after the recovery point is truncated to a prefix of what was appended."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

import seglog
from seglog.log.holes import cut_to_first_hole
from tests.support.synced import syncs

CONFIG = {"internal.segment.bytes": "400", "segment.index.bytes": "1200"}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A partition directory of ten segments, two records in each, as a crash leaves it."""
    with seglog.open(tmp_path / "t-0", config=CONFIG) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    return tmp_path / "t-0"


def bases(path: Path) -> list[int]:
    return sorted(int(log.stem) for log in path.glob("*.log"))


def values(path: Path) -> list[int]:
    with seglog.open(path, config=CONFIG) as log:
        return [int((record.value or b"").partition(b".")[0]) for record in log.records()]


def test_a_whole_log_is_left_alone(written: Path) -> None:
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    assert cut_to_first_hole(str(written), 0, preallocated=True) is None
    assert {path.name: path.read_bytes() for path in written.iterdir()} == before


@pytest.mark.parametrize(("flushed", "row"), [(0, 3), (3, 3), (0, 0)])
def test_nothing_stays_behind_a_hole(written: Path, flushed: int, row: int,
                                     caplog: pytest.LogCaptureFixture) -> None:
    """Also in the segment at which the recovery begins."""
    at, point, following = bases(written)[row], bases(written)[flushed], bases(written)[row + 1]
    log = written / f"{at:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        end = cut_to_first_hole(str(written), point)
    assert end is not None and at <= end < bases(written)[-1] + 2
    assert caplog.messages == [f"A power cut left no records of {written} from {end} to "
                               f"{following - 1}: the records after them are removed"]
    assert bases(written)[-1] == at
    assert all(int(path.stem) <= end for path in written.glob("*.snapshot"))
    assert cut_to_first_hole(str(written), 0) is None


def test_zeros_in_the_place_of_a_segment(written: Path) -> None:
    at = bases(written)[3]
    log = written / f"{at:020d}.log"
    log.write_bytes(bytes(log.stat().st_size))
    (written / f"{bases(written)[5]:020d}.index").unlink()
    with syncs() as synced:
        assert cut_to_first_hole(str(written), 0) == at
    assert (log, b"") in synced
    assert bases(written)[-1] == at and log.stat().st_size == 0
    assert (written / f"{at:020d}.snapshot").exists(), "recovery begins with it"


def test_zeros_behind_a_segment_below_the_recovery_point(written: Path) -> None:
    first, last = bases(written)[0], bases(written)[-1]
    log = written / f"{first:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(3000))
    assert cut_to_first_hole(str(written), last) is None
    assert log.stat().st_size == len(whole) + 3000
    assert cut_to_first_hole(str(written), last, preallocated=True) is None
    assert log.read_bytes() == whole
    log.write_bytes(whole + b"\1" * 30)
    assert cut_to_first_hole(str(written), last, preallocated=True) is None
    assert log.stat().st_size == len(whole) + 30, "not the zeros of a preallocation"


def test_a_hole_behind_zeros_below_the_recovery_point(written: Path) -> None:
    *before, point, at = bases(written)[:5]
    wholes = {base: (written / f"{base:020d}.log").read_bytes() for base in before}
    for base, whole in wholes.items():
        (written / f"{base:020d}.log").write_bytes(whole + bytes(3000))
    os.truncate(written / f"{at:020d}.log", 0)
    assert cut_to_first_hole(str(written), point, preallocated=True) == at
    assert bases(written) == [*before, point, at]
    assert {base: (written / f"{base:020d}.log").read_bytes() for base in before} == wholes


def test_a_batch_that_reaches_into_the_next_segment(written: Path) -> None:
    """A truncation was not durable when the next segment's name was."""
    at, behind = bases(written)[3:5]
    log = written / f"{at:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + (written / f"{behind:020d}.log").read_bytes())
    assert cut_to_first_hole(str(written), 0) is None
    assert log.read_bytes() == whole


def test_seglog_open_begins_with_it(written: Path) -> None:
    at = bases(written)[3]
    (written.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    log = written / f"{at:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    found = values(written)
    assert found == list(range(len(found))) and at <= len(found) < 20


def test_a_compacted_log_has_gaps_that_are_no_holes(written: Path) -> None:
    """Only bytes that are no batch are a hole in it."""
    at = bases(written)[3]
    log = written / f"{at:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:int.from_bytes(whole[8:12], "big") + 12])  # its first batch
    before = bases(written)
    assert cut_to_first_hole(str(written), 0, compacted=True) is None
    assert bases(written) == before
    log.write_bytes(bytes(len(whole)))
    assert cut_to_first_hole(str(written), 0, compacted=True) == at
    assert bases(written)[-1] == at


@pytest.mark.parametrize("checkpoint", [None, b"\xff", b"0\n1\nt 0 many\n"])
def test_a_log_that_was_compacted_has_them_whatever_its_settings_are_now(
        tmp_path: Path, checkpoint: bytes | None) -> None:
    """A killed process loses nothing, also if the next one does not know of the compaction."""
    config = CONFIG | {"cleanup.policy": "compact"}
    with seglog.open(tmp_path / "of" / "t-0", config=config) as log:
        for number in range(30):
            log.append(b"." * 120, key=b"%d" % (number % 3 if number < 20 else number))
        log.compact()
        expected = [record.offset for record in log.records()]
        assert expected == list(range(17, 30))
        shutil.copytree(tmp_path / "of", tmp_path / "killed", ignore=lambda *_: [".lock"])
    if checkpoint is not None:
        (tmp_path / "killed" / "cleaner-offset-checkpoint").write_bytes(checkpoint)
    with seglog.open(tmp_path / "killed" / "t-0") as log:
        assert log.log_end_offset == 30
        assert [record.offset for record in log.records()] == expected


def test_a_compacted_log_opens_after_zeros(tmp_path: Path) -> None:
    """Its last segment has no indexes and no snapshot: the load reads the zeros before it."""
    config = CONFIG | {"cleanup.policy": "compact"}
    with seglog.open(tmp_path / "t-0", config=config) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120, key=b"%d" % number)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    *_, zeros, last = bases(tmp_path / "t-0")
    hole = tmp_path / "t-0" / f"{zeros:020d}.log"
    hole.write_bytes(bytes(hole.stat().st_size))
    for name in (f"{last:020d}.index", f"{last:020d}.timeindex", f"{last:020d}.snapshot"):
        (tmp_path / "t-0" / name).unlink()
    with seglog.open(tmp_path / "t-0", config=config) as log:
        assert log.log_end_offset == zeros
        assert [record.offset for record in log.records()] == list(range(zeros))
