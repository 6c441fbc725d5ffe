"""The lock of a data directory, held by a JVM against us and by us against a JVM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import seglog
from seglog.errors import LogDirLockedError
from seglog.storage.lock import FileLock
from tests.kafka import harness
from tests.manager.support import make_dir, snapshot


def start_jvm(path: Path) -> tuple[subprocess.Popen[str], bool]:
    """A JVM that tried for the lock, and whether it has it."""
    process = subprocess.Popen(harness.command("Lock", str(path)), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    assert said in ("true", "false")
    return process, said == "true"


@pytest.mark.usefixtures("kafka_lib")
def test_a_jvm_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    process, had = start_jvm(path)
    try:
        assert had
        lock = FileLock(str(path))
        assert not lock.try_lock()
        assert lock.holder_pid == process.pid
    finally:
        process.communicate("\n")
    assert not path.exists()
    assert lock.try_lock(), "the JVM gave it up"
    lock.destroy()


@pytest.mark.usefixtures("kafka_lib")
def test_we_hold_the_lock_against_a_jvm(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = FileLock(str(path))
    assert lock.try_lock()
    process, had = start_jvm(path)
    # A refused JVM deletes the file as it ends: so does a broker that could not start.
    process.kill()
    process.communicate()
    assert not had
    assert lock.is_locked
    lock.destroy()
    process, had = start_jvm(path)
    process.communicate("\n")
    assert had, "given up, a JVM has it"


@pytest.mark.usefixtures("kafka_lib")
def test_a_manager_is_refused_in_one_sentence_and_touches_nothing(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0"], clean=False)
    process, had = start_jvm(root / ".lock")
    try:
        assert had
        before = snapshot(root)
        with pytest.raises(seglog.SeglogError) as caught:
            seglog.LogManager([root])
        assert isinstance(caught.value, LogDirLockedError)
        assert str(caught.value).startswith(
            f"Failed to acquire lock on file .lock in {root}. A Kafka instance in another process "
            "or thread is using this directory. It is in use by process "
            f"{process.pid} (java ")
        assert snapshot(root) == before
    finally:
        process.communicate("\n")
    with seglog.LogManager([root]):
        process, had = start_jvm(root / ".lock")
        process.kill()
        process.communicate()
        assert not had
