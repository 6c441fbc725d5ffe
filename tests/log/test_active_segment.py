"""The segment that is written, and what it knows without its file."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from seglog._native.batch import scan
from seglog.config import LogConfig
from seglog.errors import (
    CorruptRecordError, IllegalArgumentError, KafkaStorageError, LogLoadError,
    LogSegmentOffsetOverflowError,
)
from seglog.log import active_segment
from tests.log.test_fast_path import NOW, batch, open_log
from tests.log.test_segments import Logged


def test_the_age_of_a_written_segment_needs_no_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs from the timestamp of its first batch, which the writer notes."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(timestamp=NOW - 50), 0)
    with monkeypatch.context() as patch:
        patch.setattr("seglog.log.active_segment.opened_log", None)
        for _ in range(2):
            assert log.active.time_waited_for_roll(NOW, NOW + 7) == 57
    log.close()
    again = open_log(tmp_path / "t-0")
    assert again.active.time_waited_for_roll(NOW, NOW + 7) == 57
    again.close()


def test_the_age_runs_from_0_but_not_from_a_missing_timestamp(tmp_path: Path) -> None:
    """LogSegment.timeWaitedForRoll."""
    for timestamp, waited in ((0, 7), (-1, 50)):
        log = open_log(tmp_path / f"t{timestamp}-0")
        log.append_as_leader(batch(timestamp=timestamp), 0)
        assert log.active.time_waited_for_roll(log.active.files.created_ms + 50, 7) == waited
        log.close()


@pytest.mark.parametrize("length", [0, 13, -1])
def test_nothing_is_written_behind_bytes_that_are_no_batch(tmp_path: Path, length: int) -> None:
    """LogSegment.loadFirstBatchTimestamp, after a load that did not read them: no reader and no
    recovery would find the records."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(), 0)
    log.close()
    file = tmp_path / "t-0" / f"{0:020d}.log"
    damaged = file.read_bytes()[:8] + struct.pack(">i", length) + file.read_bytes()[12:]
    file.write_bytes(damaged)
    file.with_suffix(".index").write_bytes(struct.pack(">ii", 5, len(damaged) + 1))
    log = open_log(tmp_path / "t-0")
    assert log.log_end_offset == 0
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=f"^Found record size {length} smaller than "
                           f"minimum record overhead .14. in file {file}.$"):
            log.append_as_leader(batch(), 0)
    log.close()
    assert file.read_bytes() == damaged


def test_a_roll_leaves_no_preallocated_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", preallocate="true")
    log.append_as_leader(batch(), 0)
    file = tmp_path / "t-0" / f"{0:020d}.log"
    assert file.stat().st_size > len(batch())
    log.roll()
    assert file.read_bytes()[8:12] == batch()[8:12] and file.stat().st_size == len(batch())
    log.close()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex"])
def test_an_empty_directory_in_the_place_of_a_new_file_goes(tmp_path: Path, suffix: str) -> None:
    """LocalLog.roll: File.exists and Files.delete."""
    made = Logged(tmp_path)
    made.append()
    (made.path / f"{1:020d}{suffix}").mkdir()
    made.log.roll()
    assert made.append() == 1 and made.bases == [0, 1]


def test_a_directory_that_holds_something_stays(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    made.append()
    (made.path / f"{1:020d}.log" / "inside").mkdir(parents=True)
    with pytest.raises(KafkaStorageError):
        made.log.roll()
    assert (made.path / f"{1:020d}.log" / "inside").exists()


@pytest.mark.parametrize("room", [0, -1])
def test_a_segment_ends_at_2_gib(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """FileRecords.append."""
    log = open_log(tmp_path / "t-0")
    data = batch(timestamp=NOW)
    log.append_as_leader(data, 0)
    more = log.active.size.to_bytes(8, "big") + data[8:]
    before = log.active.size
    monkeypatch.setattr(active_segment, "_INT32_MAX", before + len(more) + room)
    if room < 0:
        with pytest.raises(IllegalArgumentError, match=f"current file position at {before}$"):
            log.active.append(before, more, scan(more).batches)
    else:
        log.active.append(before, more, scan(more).batches)
    assert log.active.size == before + len(more) * (room == 0)
    log.close()


def test_an_overflow_names_the_segment_as_it_is(tmp_path: Path) -> None:
    """LogSegment.ensureOffsetInRange."""
    log, data = open_log(tmp_path / "t-0"), batch(timestamp=NOW)
    log.append_as_leader(data, 0)
    far = (2**31).to_bytes(8, "big") + data[8:]
    with pytest.raises(LogSegmentOffsetOverflowError, match=(
            rf"overflow at offset {2**31} in segment LogSegment\(baseOffset=0, size={len(data)}, "
            rf".*, largestRecordTimestamp={NOW}\)$")):
        log.active.append(2**31, far, scan(far).batches)
    log.close()


def test_the_edges_of_a_roll(tmp_path: Path) -> None:
    """LogSegment.shouldRoll: each rule at its edge and beyond; an empty segment never ages."""
    log = open_log(tmp_path / "t-0")
    config = LogConfig(internal_segment_bytes=1000, segment_ms=500, segment_jitter_ms=0)

    def rolls(*, size: int = 0, waited: int = 0, offset: int = 0) -> bool:
        return log.active.should_roll(config, append_size=1000 - log.active.size + size,
                                      max_timestamp=NOW + waited, last_offset=offset,
                                      now_ms=NOW + waited)

    assert not rolls(waited=1 << 40) and rolls(size=1)
    log.append_as_leader(batch(timestamp=NOW), 0)
    assert not rolls() and rolls(size=1)
    assert not rolls(waited=500) and rolls(waited=501)
    assert not rolls(offset=2**31 - 1) and rolls(offset=2**31) and rolls(offset=-1)
    log.close()


@pytest.mark.parametrize(("offset", "bases"), [(0, [0]), (1, [0, 1])])
def test_a_segment_that_a_truncation_empties_begins_anew(
        tmp_path: Path, offset: int, bases: list[int]) -> None:
    """LogSegment.truncateTo; one with records keeps its age."""
    made = Logged(tmp_path, segment_ms=1000)
    for _ in range(2):
        made.append(timestamp=-1)
    made.time.sleep(1000)
    made.log.truncate_to(offset)
    made.time.sleep(1)
    for _ in range(2):
        made.append(timestamp=-1)
    assert made.bases == bases


def test_an_index_entry_is_due_an_interval_after_a_truncation(tmp_path: Path) -> None:
    """LogSegment.truncateTo."""
    made = Logged(tmp_path, index_interval_bytes=len(batch()))
    for _ in range(2):
        made.append()
    made.log.truncate_to(1)
    for entries in (0, 0, 1):
        made.append()
        assert made.log.active.index_entries == entries


@pytest.mark.parametrize(("step", "said"), [(0, r"index \(size = 4\)"),
                                            (1, r"time index \(size = 2\)")])
def test_an_index_that_one_append_fills_refuses_its_next_batch(
        tmp_path: Path, step: int, said: str) -> None:
    """OffsetIndex.append, TimeIndex.maybeAppend, with the entries that this append has written."""
    log = open_log(tmp_path / "t-0", index_interval_bytes="0", segment_index_bytes="36")
    with pytest.raises(LogLoadError, match=f"Attempt to append to a full {said}"):
        log.append_as_follower(b"".join(
            offset.to_bytes(8, "big") + batch(timestamp=NOW + step * offset)[8:]
            for offset in range(9)), 0)
    assert log.log_end_offset == 0
    log.close_handlers()


def test_a_process_that_ends_with_an_open_log_says_nothing(tmp_path: Path) -> None:
    """What is alive to the very end, as a log to be deleted here, goes after Python's modules."""
    ended = subprocess.run(
        [sys.executable, "-c", "import sys, seglog\n"
         f"sys.held = manager = seglog.LogManager([{str(tmp_path / 'k')!r}])\n"
         "manager.startup()\n"
         "log = manager.get_or_create_log(seglog.TopicPartition('t', 0))\n"
         f"log.append_as_leader({batch()!r}, 0)\n"
         "manager.async_delete(log.topic_partition)\n"
         "manager.shutdown()\n"],
        capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")
