"""Errors of logs in background tasks, in the cleaner's lists and at the end of a manager: which of
them concern one log, and which end the work."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seglog
from seglog.errors import KafkaStorageError
from seglog.log.log_dir_failures import CLOSED, OFFLINE
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager import clean_loading, closing
from seglog.manager.log_cleaning import _ServedLogs
from seglog.manager.table import LogTable
from seglog.model import TopicPartition
from tests.manager.moving import manager_of
from tests.manager.records import fill
from tests.manager.row_starts import NOW_MS, SETTINGS, idle_directory
from tests.manager.support import copy, make_dir, snapshot
from tests.support.facts import refusal
from tests.support.said import said
from tests.support.waiting import wait_for

N0, N1 = TopicPartition("new", 0), TopicPartition("new", 1)
MARKER = ".kafka_cleanshutdown"


def failing(patch: pytest.MonkeyPatch, name: str, code: str) -> None:
    """A method of the log N0 raises KafkaStorageError."""
    real = getattr(UnifiedLog, name)

    def call(log: UnifiedLog, *args: Any) -> Any:
        if log.topic_partition == N0:
            raise KafkaStorageError("of the test", code=code)
        return real(log, *args)

    patch.setattr(UnifiedLog, name, call)


@pytest.mark.parametrize("code", [CLOSED, OFFLINE, "io"])
def test_retention_of_a_log_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         code: str) -> None:
    """The others are still cleaned."""
    with manager_of([tmp_path / "k"])[0] as manager:
        for key in (N0, N1):
            log = manager.get_or_create_log(key)
            log.update_high_watermark(fill(log, 40))
        manager.update_topic_config("new", {"retention.bytes": "0"})
        failing(monkeypatch, "delete_old_segments", code)
        with said(tmp_path, "manager.tasks") as heard:
            if code == "io":
                assert refusal(manager._tasks.cleanup_logs) == {
                    "class": "KafkaStorageError", "code": "io", "text": "of the test"}
                return
            deleted = manager._tasks.cleanup_logs()
        assert deleted == 8 and len(log.segments) == 1
        assert heard.take() == [
            "DEBUG Beginning log cleanup...", *(
                f"DEBUG Garbage collecting 'ROOT/k/{key}'" for key in (N0, N1)),
            "DEBUG Log cleanup completed. 8 files deleted in 0 seconds"]


@pytest.mark.parametrize(("error", "words"), [
    (KafkaStorageError("gone", code=CLOSED), []),
    (KafkaStorageError("bad", code=OFFLINE), ["ERROR Error flushing topic new <- "
                                              "KafkaStorageError"]),
    (ValueError("odd"), ["ERROR Error flushing topic new <- ValueError"])])
def test_a_flush_of_a_log_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       error: Exception, words: list[str]) -> None:
    with manager_of([tmp_path / "k"])[0] as manager:
        for key in (N0, N1):
            fill(manager.get_or_create_log(key), 1)
        manager.update_topic_config("new", {"flush.ms": "0"})
        real = UnifiedLog.flush

        def flush(log: UnifiedLog, *args: Any) -> None:
            if log.topic_partition == N0:
                raise error
            real(log, *args)

        with monkeypatch.context() as patch, said(
                tmp_path, "manager.tasks", level=logging.INFO) as heard:
            patch.setattr(UnifiedLog, "flush", flush)
            manager._tasks.flush_dirty_logs()
            assert heard.take() == words
        recovered = {key: log.recovery_point for key, log in manager.current_logs.items()}
        assert recovered == {N0: 0, N1: 3}


def here_alone(mine: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """`mine` in this thread, `real` in all others: the cleaner's may look at the logs meanwhile."""
    this = threading.get_ident()

    def call(*arguments: Any) -> Any:
        return (mine if threading.get_ident() == this else real)(*arguments)

    return call


@pytest.mark.parametrize("code", [CLOSED, OFFLINE, "io"])
def test_rows_that_cannot_be_opened_for_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                               code: str) -> None:
    """Retention and the cleaner pass over a directory that has just failed."""
    asked: list[TopicPartition] = []

    def get(table: LogTable, key: TopicPartition, is_future: bool = False) -> Any:
        asked.append(key)
        if key == N0:
            raise KafkaStorageError("of the test", code=code)
        return SimpleNamespace() if key.partition == 2 else log

    with manager_of([tmp_path / "k"])[0] as manager:
        log = manager.get_or_create_log(N1)
        keys = [N0, TopicPartition("new", 2), N1]
        rows: Any = SimpleNamespace(sweep=lambda now_ms, config_of: keys)
        manager.update_topic_config("new", {"cleanup.policy": "compact"})
        served: _ServedLogs = manager._state.cleaning._logs
        with monkeypatch.context() as patch:
            for name, mine in (("get", get), ("unopened", lambda table: [rows]),
                               ("current_keys", lambda table: keys)):
                patch.setattr(LogTable, name, here_alone(mine, getattr(LogTable, name)))
            calls: tuple[Callable[[], object], ...] = (
                lambda: manager._tasks._open_what_retention_needs(0),
                lambda: list(served.compacted()))
            if code == "io":  # the cleaner's thread goes on with the other logs
                assert refusal(calls[0])["text"] == "of the test"
                assert calls[1]() == [(N1, log)]
                return
            assert [call() for call in calls] == [None, [(N1, log)]]
            assert asked == keys * 2


def test_the_cleaner_knows_which_logs_are_served(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / name, []) for name in ("k1", "k2")]
    with manager_of(roots)[0] as manager:
        manager.maybe_update_preferred_log_dir(N0, roots[0])
        log = manager.get_or_create_log(N0)
        served: _ServedLogs = manager._state.cleaning._logs
        assert served.serves(log) and served.has(N0) and not served.has(N1)
        assert served.keeps(str(roots[0]), N0) and not served.keeps(str(roots[0]), N1)
        assert not served.keeps("/none", N1)
        directory = manager._state.directories.get(str(roots[0]))
        assert directory is not None
        directory.loading_failed = True
        assert served.keeps(str(roots[0]), N1) and not served.keeps(str(roots[1]), N1)
        manager.alter_replica_log_dir(N0, roots[1])
        future = manager.get_log(N0, is_future=True)
        assert future is not None
        assert not served.serves(log) and not served.serves(future)
        directory.loading_failed = False


@pytest.mark.parametrize(("what", "text"), [
    ("flush", "Error while flushing log for new-0 in dir ROOT/k1 with offset 3"),
    ("close", "Error while renaming dir for new-0 in dir ROOT/k1")])
def test_a_log_that_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str,
                                     text: str) -> None:
    roots = [make_dir(tmp_path / name, []) for name in ("k1", "k2")]
    manager, _ = manager_of(roots)
    manager.startup()
    for key, root in ((N0, roots[0]), (N1, roots[1])):
        manager.maybe_update_preferred_log_dir(key, root)
        fill(manager.get_or_create_log(key), 1)
    real = getattr(UnifiedLog, what)

    def broken(log: UnifiedLog, *args: Any) -> None:
        if log.topic_partition == N0:
            raise OSError(errno.EIO, "Input/output error", f"{log.path}/x")
        real(log, *args)

    monkeypatch.setattr(UnifiedLog, what, broken)
    with said(tmp_path, "manager.closing", "log.log_dir_failures") as heard:
        manager.shutdown()
    assert heard.take() == [
        "DEBUG Flushing and closing logs at ROOT/k1", "DEBUG Flushing and closing logs at ROOT/k2",
        f"ERROR {text} <- OSError",
        "WARNING There was an error in one of the threads during LogManager shutdown: [Errno 5] "
        f"{text}: Input/output error: 'ROOT/k1/new-0/x' <- KafkaStorageError",
        *(f"DEBUG {done} at ROOT/k2" for done in (
            "Updating log start offsets", "Updating recovery points",
            "Writing clean shutdown marker"))]
    assert not (roots[0] / MARKER).exists() and (roots[1] / MARKER).exists()
    assert not any((root / ".lock").exists() for root in roots)


@pytest.fixture
def home(golden: Path, tmp_path: Path) -> Path:
    return idle_directory(golden, tmp_path / "k")


def test_rows_that_fail_at_the_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(logs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    manager = seglog.LogManager(home, log_config=SETTINGS)
    manager.startup()
    monkeypatch.setattr(closing.UnopenedLogs, "flush", broken)
    with said(home.parent, "manager.closing", "log.log_dir_failures", level=logging.INFO) as heard:
        manager.shutdown()
    text = "Error while flushing logs in dir ROOT/k"
    assert heard.take() == [
        f"ERROR {text} <- OSError", "WARNING There was an error in one of the threads during "
        f"LogManager shutdown: [Errno 28] {text}: No space left on device: 'ROOT/k' <- "
        "KafkaStorageError"]
    assert not (home / MARKER).exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_row_that_does_not_open(home: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Too many open files are no fault of the directory."""
    def broken(path: str, *args: Any, **how: Any) -> Any:
        raise OSError(number, os.strerror(number), path)

    key, text = TopicPartition("t", 0), f"Error while opening log for t-0 in dir {home}"
    with seglog.LogManager([home, home.parent / "l"], log_config=SETTINGS) as manager:
        with monkeypatch.context() as patch:
            patch.setattr(clean_loading, "load_unified_log", broken)
            assert refusal(lambda: manager.get_log(key)) == {
                "class": "KafkaStorageError", "errno": number, "file": f"{home}/t-0",
                "cause": "OSError", "code": OFFLINE if number == errno.EIO else "io",
                "text": f"[Errno {number}] {text}: {os.strerror(number)}: '{home}/t-0'"}
        if number == errno.EIO:
            wait_for(lambda: not manager.is_log_dir_online(home))
        else:
            assert manager.is_log_dir_online(home) and manager.get_log(key) is not None


@pytest.mark.parametrize("step", ["delete", "replace"])
def test_a_snapshot_that_a_start_cannot_change_leaves_the_log_to_the_loader(
        home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """It says why, or finds that it works again."""
    (home / MARKER).unlink()
    if step == "delete":
        (home / "t-0" / f"{300:020d}.snapshot").write_bytes(b"")
    other = copy(home, tmp_path / "other" / "k")
    owner, name = ((os, "unlink") if step == "delete" else (clean_loading.RealDisk, "replace"))
    real, calls = getattr(owner, name), list[str]()

    def broken(*args: Any, **how: Any) -> Any:
        if not calls and str(args[step == "replace"]).endswith(".snapshot"):
            calls.append(step)
            raise OSError(errno.EIO, "Input/output error")
        return real(*args, **how)

    opened, files = [], []
    for root, fails in ((home, True), (other, False)):
        with monkeypatch.context() as patch:
            if fails:
                patch.setattr(owner, name, broken)
            with seglog.LogManager(root, log_config=SETTINGS,
                                   time=MockTime(current_time_ms=NOW_MS)) as manager:
                opened.append({log.topic_partition for log in manager._state.table.opened()})
                assert manager.live_log_dirs == [str(root)]
        files.append(snapshot(root))
    assert calls and files[0] == files[1]
    assert len(opened[0]) == len(opened[1]) + 1 and opened[0] > opened[1]
