"""Directories that fail: they go offline with their logs, the others work on, and it is told."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import AllLogDirsFailedError, KafkaStorageError, MalformedCheckpointError
from seglog.log.log_dir_failures import CLOSED, OFFLINE, LogDirFailure, LogDirFailureChannel
from seglog.log.scheduler import MockTime
from seglog.model import TopicPartition
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.directories import LogDirectory, create_and_validate_log_dirs
from tests.manager.records import fill
from tests.manager.support import break_load, entries, input_output_error, make_dir, snapshot
from tests.support.waiting import PATIENCE, wait_for

MARKER = ".kafka_cleanshutdown"
HANDLER = "LogDirFailureHandler"
RECOVERY = "recovery-point-offset-checkpoint"
START = "log-start-offset-checkpoint"
A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


class Told:
    """A listener for failures."""

    def __init__(self) -> None:
        self.failures: list[LogDirFailure] = []
        self.called = threading.Event()

    def __call__(self, failure: LogDirFailure) -> None:
        self.failures.append(failure)
        self.called.set()


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / "k1", ["a-0", "a-1"]), make_dir(tmp_path / "k2", ["b-0"])]


def test_a_directory_that_cannot_be_read_while_loading(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    break_load(monkeypatch, "a-1", input_output_error)
    told = Told()
    with seglog.LogManager(roots, on_log_dir_failure=told) as manager:
        assert manager.live_log_dirs == [str(roots[1])]
        assert manager.offline_log_dirs == [str(roots[0])]
        assert not manager.is_log_dir_online(roots[0])
        assert sorted(manager.current_logs) == [B0]
        assert not (roots[0] / ".lock").exists()
        gauges = manager.metrics.snapshot()
        assert gauges["kafka.log:type=LogManager,name=OfflineLogDirectoryCount"]["Value"] == 1
        assert [gauges["kafka.log:type=LogManager,name=LogDirectoryOffline,"
                       f'logDirectory="{root}"']["Value"] for root in roots] == [1, 0]
    assert not (roots[0] / MARKER).exists() and (roots[1] / MARKER).exists()
    failure, = told.failures
    assert failure.log_dir == str(roots[0]) and failure.partitions == (A0,)
    assert failure.message == f"Error while loading log dir {roots[0]}"
    assert isinstance(failure.error, OSError) and failure.error.errno == errno.EIO


def test_a_directory_that_fails_at_run_time(roots: list[Path],
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    with seglog.LogManager(roots, on_log_dir_failure=told) as manager:
        flush = UnifiedLog.flush

        def broken(log: UnifiedLog, force_flush_active_segment: bool = False) -> None:
            if log.topic_partition == A0:
                raise KafkaStorageError(errno.ENOSPC, os.strerror(errno.ENOSPC), log.path)
            flush(log, force_flush_active_segment)

        monkeypatch.setattr(UnifiedLog, "flush", broken)
        manager.flush_logs()
        assert told.called.wait(120)
        assert manager.live_log_dirs == [str(roots[1])]
        assert manager.get_log(A0) is None and manager.get_log(B0) is not None
        assert not [name for name in manager.metrics.snapshot()
                    if name.startswith("kafka.log:type=Log,") and "topic=a," in name]
        manager.checkpoint_log_recovery_offsets()
    failure, = told.failures
    assert sorted(failure.partitions) == [A0, TopicPartition("a", 1)]
    assert failure.message.startswith(f"Error while flushing log for a-0 in dir {roots[0]} with "
                                      "offset ")


@pytest.mark.parametrize(("code", "words"), [
    (CLOSED, []), (OFFLINE, ["Error flushing topic a: of the test"])])
def test_a_log_that_is_deleted_while_all_are_flushed_is_no_failure(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        code: str, words: list[str]) -> None:
    """The other logs are flushed."""
    flush, flushed = UnifiedLog.flush, set()

    def refused(log: UnifiedLog, force_flush_active_segment: bool = False) -> None:
        if log.topic_partition == A0:
            error = KafkaStorageError("of the test")
            error.code = code
            raise error
        flush(log, force_flush_active_segment)
        flushed.add(log.topic_partition)

    with seglog.LogManager(roots) as manager:
        with monkeypatch.context() as patch:
            patch.setattr(UnifiedLog, "flush", refused)
            manager.flush_logs()
        assert flushed == {TopicPartition("a", 1), B0}
        assert manager.live_log_dirs == [str(root) for root in roots]
    assert [record.getMessage() for record in caplog.records
            if record.levelno >= logging.ERROR] == words


def test_the_last_directory(roots: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    with seglog.LogManager(roots[:1], on_log_dir_failure=told) as manager:
        manager.handle_log_dir_failure(roots[0])
        assert told.called.wait(120)
        assert manager.live_log_dirs == []
        assert (f"No data directory is left: all log dirs in {roots[0]} have failed"
                in [record.getMessage() for record in caplog.records])
        for ask in (lambda: manager.get_log(A0), manager.flush_logs,
                    manager.checkpoint_log_start_offsets):
            with pytest.raises(AllLogDirsFailedError, match="all log dirs in .* have failed"):
                ask()
    assert not (roots[0] / MARKER).exists()


def test_the_last_directory_while_loading(roots: list[Path],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    break_load(monkeypatch, "a-0", input_output_error)
    with pytest.raises(AllLogDirsFailedError):
        seglog.LogManager(roots[:1]).__enter__()
    assert not (roots[0] / MARKER).exists() and not (roots[0] / ".lock").exists()


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, errno.ENOSPC), (None, errno.EIO)])
def test_the_error_without_a_directory_has_the_number_of_the_first_failure(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch, number: int | None, told: int) -> None:
    def error(path: str) -> OSError:
        return OSError("refused") if number is None else KafkaStorageError(number, "full", path)

    break_load(monkeypatch, "a-0", error)
    with pytest.raises(AllLogDirsFailedError) as caught:
        seglog.LogManager(roots[:1]).__enter__()
    assert caught.value.errno == told


def test_a_listener_that_fails_keeps_nobody_from_working(
        roots: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()

    def fail(_: LogDirFailure) -> None:
        called.set()
        raise ValueError("no luck")

    with seglog.LogManager(roots, on_log_dir_failure=fail) as manager:
        manager.handle_log_dir_failure(roots[0])
        assert called.wait(120)
        manager.handle_log_dir_failure(roots[0])
        manager.checkpoint_log_recovery_offsets()
        assert manager.live_log_dirs == [str(roots[1])]
        assert [one.daemon for one in threading.enumerate()
                if one.name == "LogDirFailureHandler"] == [True], "a process may end without it"
    assert "The listener for failed log dirs failed" in caplog.messages


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline(tmp_path: Path) -> None:
    """CheckpointFile.write."""
    channel = LogDirFailureChannel()
    directory = LogDirectory(str(tmp_path / "gone"), None, channel)
    with pytest.raises(KafkaStorageError, match="Error while writing to checkpoint file"):
        directory.write_checkpoint(RECOVERY, {A0: 5})
    assert channel.has_offline_log_dir(directory.path)


@pytest.mark.parametrize(("error", "number"), [
    (KafkaStorageError(errno.EACCES, "Permission denied", "f"), errno.EACCES),
    (MalformedCheckpointError("no version"), errno.EIO)])
def test_a_directory_that_cannot_be_identified_fails_with_the_number_of_the_reason(
        tmp_path: Path, error: Exception, number: int) -> None:
    channel, path = LogDirFailureChannel(), str(tmp_path)
    assert create_and_validate_log_dirs([path], {path: error}, channel) == []
    failure = channel.first
    assert failure is not None and isinstance(failure.error, OSError)
    assert failure.error.errno == number


def test_a_directory_works_until_it_has_failed(tmp_path: Path) -> None:
    channel = LogDirFailureChannel()
    directory = LogDirectory(str(tmp_path), None, channel)
    directory.lock()
    directory.check_works()
    channel.maybe_add_offline_log_dir(directory.path, "gone")
    with pytest.raises(KafkaStorageError, match="is already offline due to a previous"):
        directory.check_works()
    directory.unlock()


def test_a_shutdown_waits_for_the_listener(roots: list[Path]) -> None:
    """Afterwards no call of it begins or runs."""
    called, may_end, ended = threading.Event(), threading.Event(), []

    def slow(_: LogDirFailure) -> None:
        called.set()
        assert may_end.wait(PATIENCE)
        ended.append(True)

    manager = seglog.LogManager(roots, on_log_dir_failure=slow)
    manager.startup()
    manager.handle_log_dir_failure(roots[0])
    assert called.wait(PATIENCE)
    shutdown = threading.Thread(target=manager.shutdown)
    shutdown.start()
    shutdown.join(.2)
    assert shutdown.is_alive()
    may_end.set()
    shutdown.join(PATIENCE)
    assert ended and not shutdown.is_alive()


def test_a_path_that_is_a_file_or_has_a_nul(tmp_path: Path,
                                            caplog: pytest.LogCaptureFixture) -> None:
    root = make_dir(tmp_path / "k1", ["a-0"])
    (tmp_path / "file").write_text("x")
    odd = [str(tmp_path / "file"), str(tmp_path / "file" / "below"), str(tmp_path / "nul\0byte")]
    with seglog.LogManager([*odd[:2], Path(odd[2]), root]) as manager:
        assert manager.offline_log_dirs == odd and manager.live_log_dirs == [str(root)]
    with pytest.raises(AllLogDirsFailedError, match="none of the specified log dirs from"):
        seglog.LogManager(odd)
    assert caplog.records[-1].levelno == logging.CRITICAL
    assert "none of the specified log dirs from" in caplog.messages[-1]


def test_a_directory_that_cannot_be_listed_is_not_empty(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def broken(path: str) -> Any:
        if path == str(roots[0]):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    before = (roots[0] / RECOVERY).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", broken)
        with seglog.LogManager(roots) as manager:
            assert manager.live_log_dirs == [str(roots[1])]
    assert not (roots[0] / MARKER).exists()
    assert (roots[0] / RECOVERY).read_bytes() == before


def test_a_checkpoint_that_cannot_be_written_keeps_the_marker_away(roots: list[Path]) -> None:
    """The marker would vouch for old log start offsets."""
    before = (roots[0] / RECOVERY).read_bytes()
    with seglog.LogManager(roots):
        (roots[0] / (RECOVERY + ".tmp")).mkdir()
    assert not (roots[0] / MARKER).exists() and (roots[1] / MARKER).exists()
    assert (roots[0] / RECOVERY).read_bytes() == before


@pytest.mark.parametrize("what", ["recovery", "start"])
def test_a_directory_that_fails_while_others_are_written_keeps_its_checkpoints(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        what: str) -> None:
    """Its logs leave the table meanwhile. Without its lines deleted records would be back."""
    real = LogDirectory.write_manager_checkpoints

    def meanwhile(directory: LogDirectory, *offsets: Any) -> None:
        if directory.path == str(roots[0]):
            manager.handle_log_dir_failure(roots[1])
            wait_for(lambda: str(roots[1]) not in manager._state.table.counts())
        real(directory, *offsets)

    time = MockTime()  # whose tasks run at once: one writes leader epochs after the new start
    with seglog.LogManager(roots, scheduler=time.scheduler, time=time) as manager:
        log = manager.get_log(B0)
        assert log is not None
        start = log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
        manager.checkpoint_log_recovery_offsets()
        before = snapshot(roots[1])
        with monkeypatch.context() as patch:
            patch.setattr(LogDirectory, "write_manager_checkpoints", meanwhile)
            getattr(manager, f"checkpoint_log_{what}_offsets")()
        assert f" checkpoint in directory {roots[1]}: " in caplog.text
        assert manager.live_log_dirs == [str(roots[0])]
    assert snapshot(roots[1]) == {name: data for name, data in before.items() if name != ".lock"}
    assert entries(roots[1] / START)[B0] == start


def test_a_directory_whose_files_cannot_even_be_closed(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, which tells of a write that failed at the close (Kafka: LogSegment.closeHandlers
    logs it). The failure is handled all the same, and so is the next one."""
    told = Told()
    real = os.close

    def close(fd: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        real(fd)
        if name.startswith(f"{roots[0]}/a-") and threading.current_thread().name == HANDLER:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with seglog.LogManager([*roots, roots[0].parent / "k3"], on_log_dir_failure=told) as manager:
        logs = [manager.get_log(TopicPartition("a", number)) for number in (0, 1)]
        for log in logs:
            assert log is not None
            fill(log, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "close", close)
            manager.handle_log_dir_failure(roots[0])
            assert told.called.wait(PATIENCE)
        assert all(log is not None and log.is_closed for log in logs)
        assert not (roots[0] / ".lock").exists()
        manager.handle_log_dir_failure(roots[1])
        wait_for(lambda: len(told.failures) == 2)
        assert manager.get_log(B0) is None


@pytest.mark.parametrize("content", [
    b"0\n2\na 0 5\n", b"1\n0\n", b"x", b"0\n1\na 0 5 6\n", b"0\n1\n\xff 0 5\n"])
def test_a_checkpoint_cut_in_half(roots: list[Path], content: bytes) -> None:
    """As to Kafka: everything is recovered from the first segment on, then the directory goes."""
    (roots[0] / RECOVERY).write_bytes(content)
    told = Told()
    with seglog.LogManager(roots, on_log_dir_failure=told) as manager:
        assert manager.live_log_dirs == [str(roots[1])]
    failure, = told.failures
    assert failure.message == f"Error while reading checkpoint file {roots[0] / RECOVERY}"
    assert (roots[0] / RECOVERY).read_bytes() == content
    assert not (roots[0] / MARKER).exists()


def test_a_checkpoint_with_a_number_that_is_none_only_resets(roots: list[Path]) -> None:
    (roots[0] / RECOVERY).write_bytes(b"0\n1\na 0 five\n")
    with seglog.LogManager(roots) as manager:
        assert len(manager.live_log_dirs) == 2
        ends = {log.topic_partition: log.log_end_offset for log in manager.logs_in_dir(roots[0])}
    assert entries(roots[0] / RECOVERY) == ends


def test_each_failure_enters_once_and_guards_refuse() -> None:
    channel = LogDirFailureChannel()
    channel.maybe_add_offline_log_dir("/k", "first", OSError(5, "x"))
    channel.maybe_add_offline_log_dir("/k", "second")
    first = channel.take_next_offline_log_dir(block=False)
    assert first is not None and first.message == "first"
    assert channel.take_next_offline_log_dir(block=False) is None
    with pytest.raises(KafkaStorageError, match="The log dir /k is already offline due to a "
                                                "previous IO exception."):
        with channel.guard("/k", "message"):
            raise AssertionError("the body does not run")
    with pytest.raises(KafkaStorageError, match="Error while testing"):
        with channel.guard("/other", "Error while testing"):
            raise OSError(errno.EROFS, "Read-only file system")
    assert channel.has_offline_log_dir("/other")


class OddError(Exception):
    """A caller's error that cannot be copied."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"{number}: {why}")


def test_the_callers_errors_of_a_directory(roots: list[Path]) -> None:
    told = Told()
    with seglog.LogManager(roots, on_log_dir_failure=told) as manager:
        wrong: Any = "broken"
        with pytest.raises(TypeError, match="error must be of the class BaseException, not "):
            manager.handle_log_dir_failure(roots[0], wrong)
        log, error = manager.get_log(A0), OddError(7, "the watchdog says so")
        assert log is not None and manager.is_log_dir_online(roots[0])
        manager.handle_log_dir_failure(roots[0], error)
        assert told.called.wait(PATIENCE)
        with pytest.raises(KafkaStorageError, match="is already offline") as caught:
            log.flush()
        assert str(caught.value.__cause__) == "7: the watchdog says so"


# ---- what only the file system itself can do ----------------------------------------------------

AS_NOBODY = """
import os, sys
import seglog
seglog.LogManager  # is imported now: later the interpreter may be out of reach
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with seglog.LogManager(sys.argv[1:]) as manager:
        print("offline", *manager.offline_log_dirs)
        print("logs", *sorted(map(str, manager.current_logs)))
except seglog.SeglogError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user reaches: those of pytest are its own user's."""
    path = Path(tempfile.mkdtemp(prefix="seglog-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def open_all(path: Path) -> None:
    """Everybody may do everything below."""
    for child in path.rglob("*"):
        child.chmod(0o777 if child.is_dir() else 0o666)
    path.chmod(0o777)


def as_nobody(*roots: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, *map(str, roots)],
                          capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(("name", "mode"), [
    ("", 0o000),                       # the directory cannot be listed
    ("", 0o555),                       # no write permission: no lock
    ("meta.properties", 0o000),
    ("a-0", 0o000),                    # a partition cannot be listed
    ("a-1/leader-epoch-checkpoint", 0o000),
])
def test_no_permission(public: Path, name: str, mode: int) -> None:
    roots = [make_dir(public / "k1", ["a-0", "a-1"]), make_dir(public / "k2", ["b-0"])]
    for root in roots:
        open_all(root)
    target = roots[0] / name
    target.chmod(mode)
    try:
        assert as_nobody(*roots) == [f"offline {roots[0]}", "logs b-0"]
        assert (roots[1] / MARKER).exists()
        assert not (roots[0] / ".lock").exists()
        said, = as_nobody(roots[0])
        assert said.startswith("AllLogDirsFailedError ")
    finally:
        target.chmod(0o777)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many bytes."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        path = tmp_path / f"tiny-{len(mounted)}"
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)],
                              capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk(tmp_path: Path, tiny: Callable[[int], Path]) -> None:
    """Nothing can be written any more: the directory goes, and starts again when there is room."""
    good = make_dir(tmp_path / "good", ["b-0"])
    disk = tiny(2 << 20)
    root = make_dir(disk / "k", ["a-0", "a-1"], clean=False)
    for path in root.rglob("*.index"):
        path.unlink()  # so that a start has to write
    before = {name: content for name, content in snapshot(root).items() if name.endswith(".log")}
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space left"):
        while True:
            os.write(descriptor, bytes(4096))
    os.close(descriptor)
    told = Told()
    with seglog.LogManager([root, good], on_log_dir_failure=told) as manager:
        assert manager.live_log_dirs == [str(good)]
    assert [failure.log_dir for failure in told.failures] == [str(root)]
    assert {name: content for name, content in snapshot(root).items()
            if name.endswith(".log")} == before, "a full disk is no reason to cut a log"
    filler.unlink()
    with seglog.LogManager([root, good]) as manager:
        assert manager.offline_log_dirs == [] and len(manager.all_logs) == 3
    assert (root / MARKER).exists()
