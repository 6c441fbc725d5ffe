"""What a flush proves durable where a truncation or a roll comes in between, and a close."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.errors import KafkaStorageError
from seglog.recovery import log_files
from seglog.recovery.log_files import LogFiles
from tests.log.test_fast_path import NOW, batch
from tests.log.test_watermarks import open_log
from tests.support.synced import syncs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def test_the_flush_of_a_roll_before_a_truncation_proves_nothing_about_later_records(
        path: Path) -> None:
    """The task of a roll runs when its offsets are those of other records, or of none."""
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
        log.context.time.sleep(1)

    monkeypatch.setattr(LogFiles, "flush_segment", flush_and_truncate)
    log.flush()
    assert log.log_end_offset == 4 and log.recovery_point <= 2
    assert log.last_flush_ms == NOW, "it is as due as before (LocalLog.markFlushed)"
    monkeypatch.undo()
    log.flush()
    assert log.recovery_point == 4


def test_a_roll_during_a_flush(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery point stays in the segment that the roll trimmed, until its own flush."""
    log = open_log(path)
    for _ in range(2):
        log.append_as_leader(batch(1), 0)
    flush_segment, rolls = LogFiles.flush_segment, [2]

    def flush_and_roll(files: LogFiles, base: int) -> None:
        flush_segment(files, base)
        if rolls:
            rolls.pop()
            monkeypatch.setattr(log.context.scheduler, "schedule_once", lambda *task: None)
            log.roll()

    monkeypatch.setattr(LogFiles, "flush_segment", flush_and_roll)
    log.flush()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2


def test_a_full_segment_counts_before_it_is_flushed(
        path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(path)
    monkeypatch.setattr(log.context.scheduler, "schedule_once", lambda *task: None)
    for _ in range(3):
        log.append_as_leader(batch(1), 0)
        log.roll()
    assert log.size == 3 * len(batch(1))
    assert log.segments.held == [log.active.files], "the others need no object"


def test_a_flushed_segment_is_closed_durably_before_the_next_one_exists(
        path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery begins at the next one, and leaves alone what a power cut made of the closed."""
    log, closed = open_log(path), []
    log.append_as_leader(batch(1), 0)
    log.flush()
    flush_segment = LogFiles.flush_segment

    def flush(files: LogFiles, base: int) -> None:
        closed.append((base, sorted(one.name for one in path.glob("*.log")),
                       (path / f"{base:020}.index").stat().st_size))
        flush_segment(files, base)

    monkeypatch.setattr(LogFiles, "flush_segment", flush)
    log.roll()
    assert closed == [(0, [f"{0:020}.log"], 0)]
    log.roll()
    assert len(closed) == 1


def test_a_segment_that_a_truncation_emptied_is_durable_before_the_next_one_exists(
        path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old records would be back after a power cut, before others at their offsets."""
    log, closed = open_log(path), []
    log.append_as_follower((5).to_bytes(8, "big") + batch(1)[8:], 0)
    log.flush()
    log.truncate_to(3)
    monkeypatch.setattr(LogFiles, "flush_segment", lambda files, base: closed.append(
        (base, [one.stat().st_size for one in path.glob("*.log")])))
    log.roll()
    assert log.log_end_offset == 3 and closed[:1] == [(0, [0])]


def test_a_closed_log_is_durable_with_its_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    """No load after a clean shutdown looks at them: an index whose zeros came back would be full,
    and the next roll fails."""
    log = seglog.open(tmp_path / "t-0", config={"index.interval.bytes": "0"})
    for number in range(5):
        log.append(b"%d" % number, timestamp=1000 + number)
    index, time_index = (tmp_path / "t-0" / f"{0:020d}.{kind}" for kind in ("index", "timeindex"))
    sync, synced = log_files.sync, dict[str, bytes]()

    def recorded(fd: int, *, metadata: bool, file: str) -> None:
        assert metadata and not (tmp_path / ".kafka_cleanshutdown").exists()
        sync(fd, metadata=metadata, file=file)
        synced[file] = Path(file).read_bytes()

    monkeypatch.setattr(log_files, "sync", recorded)
    log.close()
    assert len(index.read_bytes()) == 4 * 8 and len(time_index.read_bytes()) == 4 * 12
    for file in (index, time_index):
        assert synced[str(file)] == file.read_bytes(), file


def test_a_new_name_of_the_directory_is_durable(path: Path) -> None:
    """A deletion begins with one: a power cut must not bring the log back."""
    log, name = open_log(path), f"t-0.{'a' * 32}-delete"
    with syncs() as synced:
        log.rename_dir(name)
    assert (path.parent, [name]) in synced


def test_a_log_that_is_abandoned_as_its_flush_begins_is_not_flushed(
        path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files may be another process's by then."""
    log = open_log(path)
    log.append_as_leader(batch(2), 0)
    log_text = log._local.log_text

    def late(text: str) -> str:
        log.close_handlers()
        return log_text(text)

    monkeypatch.setattr(log._local, "log_text", late)
    with syncs() as synced, pytest.raises(KafkaStorageError):
        log.flush(True)
    assert not synced
