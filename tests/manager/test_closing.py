"""Changes of the logs that come while a manager closes: they are waited for, or refused."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seglog
from seglog.errors import KafkaStorageError, LogManagerStateError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.unified_log import UnifiedLog
from seglog.manager import creation
from seglog.manager.directories import LogDirectory
from seglog.manager.offset_checkpoints import (
    write_high_watermarks, write_log_start_offsets, write_recovery_points,
)
from tests.manager.moving import N0, begin, manager_of, new_log
from tests.manager.records import fill
from tests.manager.support import make_dir, snapshot

RECOVERY = "recovery-point-offset-checkpoint"


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / name, []) for name in ("k1", "k2")]


def test_a_shutdown_waits_for_a_log_that_is_being_created(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed like the others: it was left open in a directory that was marked clean."""
    real, begun, ended = creation.load_unified_log, threading.Event(), threading.Event()
    made: list[UnifiedLog] = []

    def slow(*args: Any, **how: Any) -> UnifiedLog:
        begun.set()
        ended.wait(.3)
        return real(*args, **how)

    manager = seglog.LogManager(roots)
    manager.startup()
    monkeypatch.setattr(creation, "load_unified_log", slow)
    creating = threading.Thread(target=lambda: made.append(manager.get_or_create_log(N0)))
    creating.start()
    begun.wait()
    manager.shutdown()
    ended.set()
    creating.join()
    assert made[0].is_closed
    with pytest.raises(KafkaStorageError, match="The log of new-0 .* is closed"):
        fill(made[0], 1)


def test_threads_that_close_logs_have_the_name_of_kafkas(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    names, close = set[str](), UnifiedLog.close
    monkeypatch.setattr(UnifiedLog, "close", lambda log: (
        names.add(threading.current_thread().name), close(log)))
    with seglog.LogManager(roots) as manager:
        new_log(manager, roots[0])
    assert names == {f"log-closing-{roots[0]}"}


#: Changes that began just before the end, and come to the lock after it.
LATE: dict[str, Callable[[Any], object]] = {
    "create": lambda manager: manager._creation.get_or_create(N0, True, False, None, None),
    "delete": lambda manager: manager._deletion.async_delete(N0),
    "move": lambda manager: manager._moves.alter_log_dir(N0, manager.log_dirs[0]),
    "resume": lambda manager: manager._moves.resume(N0),
    "promote": lambda manager: manager._moves.promote_if_caught_up(
        manager.get_log(N0), manager.get_log(N0, is_future=True), lambda: True),
    "replace": lambda manager: manager._moves.replace_current_with_future_log(N0),
    "recover": lambda manager: manager._moves.recover_abandoned(lambda *_: None)}


@pytest.mark.parametrize("name", LATE)
def test_changes_after_the_end_are_refused(roots: list[Path], name: str) -> None:
    with manager_of(roots)[0] as manager:
        new_log(manager, roots[0])
        begin(manager, roots[1])
    before = [snapshot(root) for root in roots]
    with pytest.raises(LogManagerStateError, match="the log manager is closed, not running"):
        LATE[name](manager)
    assert [snapshot(root) for root in roots] == before


def test_no_checkpoint_is_written_after_the_end(roots: list[Path]) -> None:
    """As by a deletion that began before: another process may have the directory by now."""
    with manager_of(roots)[0] as manager:
        new_log(manager, roots[0])
    for root in roots:
        (root / RECOVERY).unlink()
    manager._state.checkpoints.recovery_offsets()
    assert not any((root / RECOVERY).exists() for root in roots)
    assert manager.live_log_dirs == list(map(str, roots))


@pytest.mark.parametrize("write", [
    write_recovery_points, write_log_start_offsets, write_high_watermarks])
def test_no_checkpoint_loses_the_logs_of_a_directory_that_fails_meanwhile(
        tmp_path: Path, write: Callable[[LogDirectory, Any], None]) -> None:
    """They have left the table by then."""
    channel = LogDirFailureChannel()
    directory = LogDirectory(str(tmp_path), None, channel)
    directory.lock()

    def opened(path: str) -> list[UnifiedLog]:
        channel.maybe_add_offline_log_dir(path, "it fails", OSError(errno.EIO, "x"))
        return []

    with pytest.raises(KafkaStorageError):
        write(directory, SimpleNamespace(unopened=lambda path: [], opened=opened))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    directory.unlock()
