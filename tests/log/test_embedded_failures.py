"""What a program that embeds a log is told when its disk fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import seglog
from seglog.errors import KafkaStorageError


def fill_disk(log: seglog.EmbeddedLog) -> None:
    """A write of the log fails."""
    with log.log.guarded("Error while writing"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_block_ends_with_the_error_that_ended_it(tmp_path: Path) -> None:
    """Not with one of the close, that the directory is offline already."""
    with pytest.raises(KafkaStorageError, match="No space left on device") as caught:
        with seglog.open(tmp_path / "t-0") as log:
            fill_disk(log)
    assert caught.value.errno == errno.ENOSPC
    with seglog.open(tmp_path / "t-0") as log:
        assert log.append(b"x") == 0


def test_a_transaction_ends_with_it_too(tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError, match="No space left on device"):
        with seglog.open(tmp_path / "t-0") as log, log.transaction() as transaction:
            transaction.append(b"x")
            fill_disk(log)


def test_a_close_that_fails_is_told(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "t-0")
    with pytest.raises(KafkaStorageError, match="No space left on device"):
        fill_disk(log)
    with pytest.raises(KafkaStorageError, match="is already offline") as caught:
        log.close()
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(KafkaStorageError, match="already offline"):
        with seglog.open(tmp_path / "t-0") as log:
            with pytest.raises(KafkaStorageError):
                fill_disk(log)


def test_a_failure_in_the_background_is_the_cause_of_what_follows(tmp_path: Path) -> None:
    """As one of the flushes of `durability=1`, which no caller sees."""
    log = seglog.open(tmp_path / "t-0", durability=60)
    log.log.context.failures.maybe_add_offline_log_dir(
        str(tmp_path), "Error while flushing", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaStorageError, match="is already offline") as caught:
        log.append(b"x")
    assert caught.value.errno == errno.EIO
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(KafkaStorageError):
        log.close()
