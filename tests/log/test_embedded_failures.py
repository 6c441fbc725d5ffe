"""An embedded log whose disk fails, or whose close is interrupted."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

import seglog
from seglog.cleaner.cleaner_manager import LogCleanerManager
from seglog.cleaner.log_cleaner import CleanerThread, LogCleaner
from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from tests.manager.support import snapshot


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


@pytest.mark.parametrize("name", ["recovery-point", "log-start"])
@pytest.mark.parametrize("content", [b"0\n2\nt 0 1\n", bytes(40), b"0\n1\n\xff 0 1\n"])
def test_a_checkpoint_that_cannot_be_read_ends_the_open(tmp_path: Path, name: str, content: bytes
                                                       ) -> None:
    """A log that was opened took no record, and its close replaced the checkpoint: the next open
    had lost where the log starts."""
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"a", b"b"])
        log.delete_before(1)
    path = tmp_path / f"{name}-offset-checkpoint"
    path.write_bytes(content)
    before = snapshot(tmp_path)
    with pytest.raises(KafkaStorageError, match=f"(?s)Error while reading checkpoint file {path}: "
                       f".*; `seglog load --recover {tmp_path}` replaces it") as caught:
        seglog.open(tmp_path / "t-0")
    assert isinstance(caught.value.__cause__, MalformedCheckpointError)
    assert snapshot(tmp_path) == before
    path.unlink()
    path.mkdir()
    with pytest.raises(KafkaStorageError, match="not a regular file"):
        seglog.open(tmp_path / "t-0")
    path.rmdir()
    path.write_bytes(b"0\n1\nt 0 x\n")  # Kafka resets it too
    with seglog.open(tmp_path / "t-0") as log:
        assert log.append(b"c") == 2


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


@pytest.mark.parametrize("step", ["pause", "flush", "checkpoint", "stop", "marker"])
def test_an_interrupted_close_releases_the_directory(tmp_path: Path, step: str,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the second Ctrl-C of somebody in a notebook, who opens it again."""
    log = seglog.open(tmp_path / "t-0")
    log.append(b"x")

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    owner, name = {
        "pause": (LogCleanerManager, "abort_and_pause_cleaning"), "flush": (UnifiedLog, "flush"),
        "checkpoint": (LogDirectory, "write_manager_checkpoints"), "stop": (LogCleaner, "shutdown"),
        "marker": (LogDirectory, "write_clean_shutdown_marker")}[step]
    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.close()
    assert not (tmp_path / ".lock").exists() and not (tmp_path / ".kafka_cleanshutdown").exists()
    log.close()
    with seglog.open(tmp_path / "t-0") as log:
        assert log.append(b"y") == 1
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_an_interrupt_behind_a_thread_that_appends_leaves_the_log_open(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory must not be released while a thread writes. A second call closes."""
    log = seglog.open(tmp_path / "t-0")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupts:
        interrupts.setattr(log.log, "flush", interrupted)
        interrupts.setattr(log.log, "close_handlers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.close()
    assert (tmp_path / ".lock").exists() and log.append(b"x") == 0
    log.close()
    assert not (tmp_path / ".lock").exists()


def test_a_second_close_waits_for_the_first(tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    log, flushing, go_on = seglog.open(tmp_path / "t-0"), threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        flushing.set()
        assert go_on.wait(20)

    monkeypatch.setattr(log.log, "flush", slow)
    first, second = threading.Thread(target=log.close), threading.Thread(target=log.close)
    first.start()
    assert flushing.wait(20)
    second.start()
    second.join(.1)
    assert second.is_alive()
    go_on.set()
    first.join()
    second.join()
    assert not (tmp_path / ".lock").exists()


def test_a_close_that_a_handler_repeats_touches_nothing_after_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of SIGTERM: the directory may be another process's when the first close goes on, and
    its clean shutdown marker would hide a crash of that one."""
    log, marker = seglog.open(tmp_path / "t-0"), tmp_path / ".kafka_cleanshutdown"

    def handled(*_: object) -> None:
        monkeypatch.undo()
        log.close()
        marker.unlink()  # by the next process

    monkeypatch.setattr(log.log, "flush", handled)
    log.close()
    assert not marker.exists()


def test_a_log_that_cannot_be_opened_completely_is_released(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: CleanerThread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as few_threads:
        few_threads.setattr(CleanerThread, "start", refused)
        with pytest.raises(RuntimeError):
            seglog.open(tmp_path / "t-0", config={"cleanup.policy": "compact"})
    assert not (tmp_path / ".lock").exists()
    with seglog.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log:
        assert log.append(b"x", key=b"k") == 0


def test_a_program_without_threads_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    """Not that the thread which did not start cannot be joined."""
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as few_threads:
        few_threads.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            seglog.open(tmp_path / "t-0")
    assert not (tmp_path / ".lock").exists()
    with seglog.open(tmp_path / "t-0") as log:
        assert log.append(b"x") == 0


@pytest.mark.parametrize("step", ["write_manager_checkpoints", "write_checkpoint"])
def test_a_deletion_that_was_interrupted_is_durable_after_the_next(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The start has moved in memory, so that the next call does not move it."""
    with seglog.open(tmp_path / "t-0") as log:
        log.append_many([b"x"] * 9)

        def interrupted(*_: object, **__: object) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(LogDirectory, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.delete_before(5)
        checkpoint = tmp_path / "log-start-offset-checkpoint"
        assert checkpoint.read_text() == "0\n1\nt 0 0\n"
        assert not log.delete_before(5)
        assert checkpoint.read_text() == "0\n1\nt 0 5\n"
