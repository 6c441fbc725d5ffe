"""What a truncation makes of the producers, and which checks it makes first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.recovery.deferred_checks import DeferredChecks
from seglog.recovery.log_files import LogFiles
from tests.log.test_fast_path import batch
from tests.log.test_watermarks import filled, open_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.mark.parametrize(("offset", "expected"), [
    (2, {1}), (3, {1}), (4, {2}), (5, {2}), (6, {3}), (7, {3})])
def test_the_segments_from_the_newest_snapshot_on_are_checked(
        path: Path, offset: int, expected: set[int]) -> None:
    """That at the offset is the one from which the producers are read."""
    log, rows = filled(path), set[int]()

    def check(start: int, stop: int) -> list[int]:
        rows.update(range(start, stop))
        return []

    bases = log.segments.base_offsets.copy()
    assert [*log.producer_manager.snapshots.offsets] == [2, 4, 6]
    log.deferred_checks = DeferredChecks(bases, np.zeros(len(bases), np.bool_), check,
                                         lambda found: None)
    assert log.truncate_to(offset) and rows == expected


def test_producers_are_those_below_the_offset(path: Path) -> None:
    log = open_log(path)
    for producer in (5, 6, 7):
        log.append_as_leader(batch(1, producer=producer, sequence=0), 0)
    assert {*log.producer_manager.active_producers} == {5, 6, 7}
    log.truncate_to(2)
    assert {*log.producer_manager.active_producers} == {5, 6}
    assert log.producer_manager.map_end_offset == 2
    log.append_as_leader(batch(1, producer=7, sequence=0), 0)
    log.truncate_fully_and_start_at(9)
    assert not log.producer_manager.active_producers
    assert log.producer_manager.map_end_offset == 9


def test_the_flush_of_a_roll_before_a_truncation_proves_nothing_about_later_records(
        path: Path) -> None:
    """The task of the roll runs when its offsets are those of other records, or of none."""
    log = open_log(path)
    for _ in range(4):
        log.append_as_leader(batch(1), 0)
    log.truncate_to(2)
    log.flush_to(4)
    assert log.recovery_point == 2
    log.append_as_leader(batch(1), 0)
    log.flush_to(3)
    assert log.recovery_point == 3


def test_a_truncation_during_a_flush(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(path)
    for _ in range(4):
        log.append_as_leader(batch(1), 0)
    flush_segment = LogFiles.flush_segment

    def flush_and_truncate(files: LogFiles, base: int) -> None:
        flush_segment(files, base)
        log.truncate_to(2)
        for _ in range(2):
            log.append_as_leader(batch(1), 0)

    monkeypatch.setattr(LogFiles, "flush_segment", flush_and_truncate)
    log.flush()
    assert log.log_end_offset == 4 and log.recovery_point <= 2
    monkeypatch.undo()
    log.flush()
    assert log.recovery_point == 4
