"""A log inside a program that has too many open files: it fails what it cannot do, and goes on."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import KafkaStorageError
from seglog.log import readers
from seglog.recovery.log_files import LogFiles
from tests.log.test_fast_path import batch
from tests.log.test_watermarks import filled, open_log


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Inside, the process can open no file."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(KafkaStorageError) as caught:
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.errno == errno.EMFILE


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_the_next_sync_makes_up_for_one_that_failed(tmp_path: Path, compression: str) -> None:
    """The data directory went offline, with all logs in it."""
    path = tmp_path / "t-0"
    with seglog.open(path, durability="append", config={"compression.type": compression}) as log:
        log.append(b"0")
        with no_descriptors():
            log.append(b"1")
        assert (log.log_end_offset, log.log.recovery_point) == (2, 1)
        assert log.append(b"2") == 2
        assert log.log.recovery_point == 3
        with no_descriptors():
            log.flush()
        log.flush()
        with log.transaction() as transaction:
            with no_descriptors():
                transaction.append(b"3")
            assert transaction.append(b"4") == 4
        assert [one.value for one in log.records(isolation="read_committed")] == [
            b"%d" % n for n in range(5)]
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_checkpoints_are_written_later(tmp_path: Path) -> None:
    """By the task, which no caller of the program sees, or by a second call."""
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"x"] * 9)
        log.flush()
        with no_descriptors():
            log._directory.checkpoint()
        with no_descriptors():
            log.delete_before(5)
        assert not log.delete_before(5)
        assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 9\n"
        assert log.append(b"y") == 9


def test_the_sync_of_a_roll_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(2), 0)

    def refused(*_: Any) -> None:
        monkeypatch.undo()
        raise KafkaStorageError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(LogFiles, "sync_file", refused)
    assert log.roll() == 2 and log.recovery_point == 0
    assert "; it is tried again" in caplog.text
    log.context.time.sleep(1000)
    assert log.recovery_point == 2


@pytest.mark.parametrize(("number", "is_offline"), [(errno.EMFILE, False), (errno.EIO, True)])
def test_a_sync_before_a_cleaning_can_be_tried_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_offline: bool) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(2), 0)

    def refused(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(LogFiles, "flush", refused)
    with pytest.raises(KafkaStorageError, match="Error while syncing log for t-0"):
        log.sync_to(2)
    assert log.context.failures.is_any_offline == is_offline


def test_segments_that_were_read_are_rows_again(tmp_path: Path) -> None:
    """A log of thousands of segments has objects of few."""
    log = filled(tmp_path / "t-0", 4)
    for use in log.delete_old_segments, *(partial(log.read, offset, 1) for offset in range(8)):
        use()
        assert [one.base_offset for one in log.segments.held] == [6]


def test_a_segment_in_use_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_shared", readers._OpenSegments(3))
    log = filled(tmp_path / "t-0", 6)
    view, bases = log.readers.view(), log.segments.base_offsets.tolist()
    for number in (0, 1, 2, 3, 1, 4):
        log.readers.segment(view, bases[number])
    assert list(view.opened) == [bases[number] for number in (1, 3, 4)]
