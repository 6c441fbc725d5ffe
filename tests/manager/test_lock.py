"""The lock of a data directory, within a process and between processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.errors import LogDirLockedError
from seglog.storage.lock import FileLock
from tests.processes.children import fork

HOLD = """
import sys
from seglog.storage.lock import FileLock
lock = FileLock(sys.argv[1])
print(lock.try_lock(), flush=True)
sys.stdin.readline()
lock.destroy()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process of ours that holds the lock until its stdin ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    return process


def test_a_lock_is_had_once_per_process(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    first, second = FileLock(path), FileLock(path)
    assert first.try_lock()
    assert not second.try_lock()
    assert second.holder_pid == os.getpid()
    first.destroy()
    assert not os.path.exists(path)
    assert second.try_lock()
    second.destroy()


def test_the_refused_try_does_not_give_up_the_first_ones_lock(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops a process's record locks on it."""
    path = tmp_path / ".lock"
    first = FileLock(str(path))
    assert first.try_lock()
    assert not FileLock(str(path)).try_lock()
    other = subprocess.run([sys.executable, "-c", HOLD, str(path)], input="\n",
                           capture_output=True, text=True, check=True)
    assert other.stdout == "False\n"
    first.destroy()


def test_another_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    process = hold(path)
    try:
        lock = FileLock(str(path))
        assert not lock.try_lock()
        assert lock.holder_pid == process.pid
        assert path.exists() and path.read_bytes() == b""
    finally:
        process.communicate("\n")
    assert not path.exists()
    assert lock.try_lock()
    lock.destroy()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    process = hold(path)
    process.kill()
    process.communicate()
    assert path.exists()
    lock = FileLock(str(path))
    assert lock.try_lock()
    lock.destroy()


def test_a_forked_child_holds_and_destroys_nothing(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = FileLock(str(path))
    assert lock.try_lock()
    pid = fork()
    if pid == 0:
        held = lock.is_locked
        lock.destroy()
        os._exit(1 if held else 0)
    assert os.waitpid(pid, 0)[1] == 0
    assert lock.is_locked and path.exists()
    lock.destroy()


def test_a_file_that_cannot_be_opened_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(IsADirectoryError):
        FileLock(str(tmp_path / ".lock")).try_lock()


def test_the_error_is_one_sentence_with_the_holder_and_survives_a_pickle() -> None:
    error = LogDirLockedError("/data/k1", 4242)
    assert str(error) == (
        "Failed to acquire lock on file .lock in /data/k1. A Kafka instance in another process or "
        "thread is using this directory (process 4242).")
    again = pickle.loads(pickle.dumps(error))
    assert (again.log_dir, again.holder_pid, str(again)) == ("/data/k1", 4242, str(error))
    # With its program the process is named after Kafka's sentence, and only there.
    assert str(LogDirLockedError("/data/k1", 4242, "java kafka.Kafka")) == (
        "Failed to acquire lock on file .lock in /data/k1. A Kafka instance in another process or "
        "thread is using this directory. It is in use by process 4242 (java kafka.Kafka).")
