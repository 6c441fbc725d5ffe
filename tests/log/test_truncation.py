"""What a truncation makes of the producers, and which checks it makes first."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import CorruptRecordError, KafkaStorageError
from seglog.recovery import disk
from seglog.recovery.deferred_checks import DeferredChecks
from seglog.log.watermarks import StartOffsetReason
from seglog.model import EpochEntry
from tests.log.test_fast_path import batch
from tests.log.test_segments import Logged
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
    log.append_as_leader(batch(1, producer=8, sequence=0), 0)
    log.truncate_fully_and_start_at(10)  # where it ends already
    assert not log.producer_manager.active_producers


@pytest.mark.parametrize("preallocate", ["false", "true"])
def test_a_roll_of_an_empty_segment_leaves_no_moment_without_a_log_file(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preallocate: str) -> None:
    """What a crash left would begin at 0 (as in Kafka), and give offsets a second time."""
    logged = Logged(tmp_path, preallocate=preallocate, segment_bytes=2**20)
    logged.log.truncate_fully_and_start_at(12)
    file, renamed = tmp_path / "t-0" / "00000000000000000012.log", []
    size, rename = file.stat().st_size, os.replace

    def watched(name: str, new_name: str) -> None:
        rename(name, new_name)
        assert file.exists()
        renamed.append(os.path.basename(new_name))

    monkeypatch.setattr(os, "replace", watched)
    logged.log.roll()
    assert renamed == [f"{12:020d}.index.deleted", f"{12:020d}.timeindex.deleted"]
    assert [Path(f"{file}{suffix}").stat().st_size for suffix in ("", ".deleted")] == [size, size]
    assert logged.append() == 12 and logged.bases == [12]


def test_a_roll_of_an_empty_segment_preallocates_by_the_settings_of_now(tmp_path: Path) -> None:
    logged = Logged(tmp_path, preallocate="true", segment_bytes=2**20)
    file = Path(logged.log.path, f"{0:020d}.log")
    logged.log.update_config(replace(logged.log.config, internal_segment_bytes=2**16))
    for size in (2**20, 2**16):
        logged.log.roll()
        assert [Path(f"{file}{suffix}").stat().st_size for suffix in ("", ".deleted")] == [
            2**16, size]


def test_epochs_end_where_the_next_one_begins(path: Path) -> None:
    log = open_log(path)
    for offset, epoch in ((0, 1), (2, 1), (4, 3)):
        log.append_as_follower(offset.to_bytes(8, "big") + batch(2)[8:12]
                               + epoch.to_bytes(4, "big") + batch(2)[16:], epoch)
    assert [log.end_offset_for_epoch(epoch) for epoch in range(-1, 5)] == [
        None, (0, 0), (1, 4), (1, 4), (3, 6), None]


def test_a_truncation_without_effect_drops_an_epoch_without_records(path: Path) -> None:
    """LeaderEpochFileCache.truncateFromEndAsyncFlush in UnifiedLog.truncateTo."""
    log = open_log(path)
    log.append_as_leader(batch(2), 1)
    log.assign_epoch_start_offset(3, 2)
    assert [one.epoch for one in log.leader_epochs] == [1, 3]
    assert not log.truncate_to(7)
    assert [one.epoch for one in log.leader_epochs] == [1] and log.log_end_offset == 2


def test_epochs_that_are_left_are_written(path: Path) -> None:
    """LeaderEpochFileCache.truncateFromEndAsyncFlush, truncateFromStartAsyncFlush."""
    log = open_log(path)
    for epoch in (1, 3, 4):
        log.append_as_leader(batch(2), epoch)
    log.truncate_to(4)
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n3 2\n"
    log.update_high_watermark(4)
    log.maybe_increment_log_start_offset(3, StartOffsetReason.CLIENT_RECORD_DELETION)
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n1\n3 3\n"


def test_an_epoch_that_was_dropped_without_records_begins_again(path: Path) -> None:
    log = open_log(path)
    log.append_as_leader(batch(), 1)
    log.append_as_leader(batch(), 1)
    log.assign_epoch_start_offset(2, 2)
    with pytest.raises(CorruptRecordError):
        log.append_as_leader(batch()[:-1] + b"!", 2)
    assert not log.truncate_to(2) and log.leader_epochs.latest == EpochEntry(1, 0)
    log.append_as_leader(batch(), 2)
    assert log.leader_epochs.latest == EpochEntry(2, 2)


@pytest.mark.parametrize(("number", "is_offline"), [
    (errno.EMFILE, False), (errno.ENFILE, False), (errno.EIO, True), (errno.ENOSPC, True)])
def test_epochs_that_wait_for_a_descriptor_are_written_later(
        path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        number: int, is_offline: bool) -> None:
    """CheckpointFileWithFailureHandler.writeIfDirExists warns if the file cannot be opened."""
    log = open_log(path)
    for epoch in (1, 3, 4):
        log.append_as_leader(batch(2), epoch)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_leader_epochs", refused := Refused(number))
        log.truncate_to(4)
        assert refused.count == 1 and log.context.failures.is_any_offline == is_offline
        log.context.time.sleep(1000)
        assert refused.count == (1 if is_offline else 2)
        assert caplog.text.count("; it is tried again") == (0 if is_offline else 2)
    log.context.time.sleep(1000)
    assert (path / "leader-epoch-checkpoint").read_text() == (
        "0\n3\n1 0\n3 2\n4 4\n" if is_offline else "0\n2\n1 0\n3 2\n")
    if not is_offline:
        log.append_as_leader(batch(2), 5)


class Refused:
    """A write that fails."""

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0

    def __call__(self, path: str, epochs: object) -> None:
        self.count += 1
        raise KafkaStorageError(self.number, os.strerror(self.number), path)


def test_a_roll_above_the_end_leaves_a_snapshot_there(path: Path) -> None:
    """UnifiedLog.roll: producerStateManager.updateMapEndOffset(newSegment.baseOffset)."""
    log = open_log(path)
    log.append_as_leader(batch(2), 0)
    assert log.roll(50) == 50
    assert [*log.producer_manager.snapshots.offsets] == [50]
    assert (log.producer_manager.map_end_offset, log.log_end_offset) == (50, 2)
