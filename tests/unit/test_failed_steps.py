"""What a step leaves that fails in the middle: no open file, no lock, and the old content."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.manager import directories
from seglog.manager.directories import LogDirectory
from seglog.storage import ownership, textfile
from seglog.storage.checkpoint_files import write_checkpoint
from seglog.storage.lock import FileLock
from seglog.storage.lock_holder import HELD, find_holder
from seglog.storage.log_store import ListedDirectory
from seglog.storage.textfile import read_small_file, replace_file, sync_path, write_file
from tests.support.facts import facts_of
from tests.support.held import open_files

#: The user of no test.
STRANGER = 54321


@pytest.fixture(autouse=True)
def nothing_stays_open(tmp_path: Path) -> Iterator[None]:
    yield
    assert open_files(tmp_path) == []


def failing(patch: pytest.MonkeyPatch, owner: Any, name: str, at: int = 1,
            number: int = errno.EIO) -> None:
    """The call number `at` of a function ends with an error of the system."""
    real, calls = getattr(owner, name), [0]

    def call(*args: Any, **how: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise OSError(number, os.strerror(number))
        return real(*args, **how)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize(("owner", "name", "at"), [
    (fcntl, "lockf", 1), (os, "fstat", 1), (os, "stat", 1), (os, "stat", 2)])
def test_a_lock_that_fails_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any,
                                       name: str, at: int) -> None:
    lock = FileLock(str(tmp_path / ".lock"))
    (tmp_path / ".lock").touch()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output error"):
        failing(patch, owner, name, at)
        lock.lock()
    assert not lock.is_locked and find_holder(str(tmp_path)) is None and not open_files(tmp_path)
    assert lock.try_lock() and lock.is_locked
    status = os.stat(tmp_path / ".lock")
    assert status in HELD
    lock.destroy()
    lock.destroy()
    assert not lock.is_locked and not (tmp_path / ".lock").exists()
    assert status not in HELD, "another process may get its inode for a lock"


@pytest.mark.parametrize("how", ["gone", "replaced", "cannot be made"])
@pytest.mark.parametrize("times", [1, 99, 100])
def test_a_lock_file_that_its_holder_deletes_meanwhile(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, times: int) -> None:
    """It is tried again, a hundred times at most."""
    path, tried = tmp_path / ".lock", [0]
    name, owner = ("open", os) if how == "cannot be made" else ("lockf", fcntl)
    real = getattr(owner, name)

    def meanwhile(*args: Any, **kept: Any) -> Any:
        if name == "open" and str(args[0]) != str(path):
            return real(*args, **kept)
        tried[0] += 1
        if tried[0] <= times:
            if name == "open":
                raise FileNotFoundError(errno.ENOENT, "gone", str(path))
            path.unlink()
            if how == "replaced":
                path.touch()
        return real(*args, **kept)

    lock = FileLock(str(path))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, meanwhile)
        if times < 100:
            assert lock.try_lock()
            lock.destroy()
        else:
            with pytest.raises(OSError) as caught:
                lock.try_lock()
            assert facts_of(caught.value) == {
                "class": "BlockingIOError", "errno": errno.EAGAIN, "file": str(path), "text":
                f"[Errno {errno.EAGAIN}] the lock file is replaced again and again: '{path}'"}
    assert tried[0] == min(times + 1, 100)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_file_that_another_process_has_locked_is_closed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    lock = FileLock(str(tmp_path / ".lock"))
    failing(monkeypatch, fcntl, "lockf", number=number)
    assert not lock.try_lock() and not lock.is_locked and not open_files(tmp_path)
    assert lock.try_lock()
    lock.destroy()


def test_a_lock_in_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(str(tmp_path / "none" / ".lock")).try_lock()


def test_a_directory_whose_commit_cannot_be_finished_is_not_locked(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = LogDirectory(str(tmp_path), None, LogDirFailureChannel())
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        failing(patch, directories, "finish_commit")
        directory.lock()
    assert not directory.is_locked and not (tmp_path / ".lock").exists()
    directory.lock()
    assert directory.is_locked
    directory.unlock()


@pytest.mark.parametrize(("owner", "name", "at", "is_there"), [
    (os, "fsync", 1, True), (os, "replace", 1, True), (os, "fsync", 2, False),
    (textfile, "create_file", 1, False), (textfile, "sync_path", 1, False)])
def test_a_small_file_that_cannot_be_replaced(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int,
        is_there: bool) -> None:
    """The old content stays until the rename; the error says which file, and nothing is open."""
    path = tmp_path / "checkpoint"
    path.write_text("old")
    with monkeypatch.context() as patch, pytest.raises(KafkaStorageError) as caught:
        failing(patch, owner, name, at, errno.ENOSPC)
        replace_file(path, b"new", tmp_path / "checkpoint.tmp")
    assert facts_of(caught.value) == {
        "class": "KafkaStorageError", "code": "io", "errno": errno.ENOSPC, "file": str(path),
        "cause": "OSError", "text": "[Errno 28] Error while writing to checkpoint file "
        f"{path}: No space left on device: '{path}'"}
    renamed = owner is os and (name, at) == ("fsync", 2) or name == "sync_path"
    assert path.read_text() == ("new" if renamed else "old")
    assert (tmp_path / "checkpoint.tmp").exists() is is_there


def test_a_file_that_an_interrupted_write_left_is_written_again(tmp_path: Path) -> None:
    path, temporary = tmp_path / "epochs", tmp_path / "epochs.tmp"
    write_checkpoint(path, ["1 0"], spare_same=True)
    before = path.stat().st_ino
    write_checkpoint(path, ["1 0"], spare_same=True)
    assert path.stat().st_ino == before
    write_checkpoint(path, ["1 0"])
    assert path.stat().st_ino != before
    before = path.stat().st_ino
    temporary.touch()
    write_checkpoint(path, ["1 0"], spare_same=True)
    assert path.stat().st_ino != before and not temporary.exists()
    write_checkpoint(path, ["2 0"], spare_same=True)
    assert path.read_text() == "0\n1\n2 0\n"


@pytest.mark.parametrize("size", [9, 10, 11])
def test_a_small_file_has_a_largest_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"x" * size)
    if size <= 10:
        assert read_small_file(path, 10) == b"x" * size
        return
    with pytest.raises(MalformedCheckpointError) as caught:
        read_small_file(path, 10)
    assert facts_of(caught.value) == {
        "class": "MalformedCheckpointError", "code": "checkpoint_too_large", "expected": 10,
        "found": 11, "file": str(path), "text": f"{path}: 11 bytes, at most 10 are read"}


def test_reads_and_syncs_that_fail_close_their_files(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").write_bytes(b"x")
    for call, owner, name in ((lambda: read_small_file(tmp_path / "small", 9),
                               textfile.native_file, "read_at"),
                              (lambda: sync_path(tmp_path), os, "fsync"),
                              (lambda: write_file(tmp_path / "new", b""), os, "fsync")):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
            failing(patch, owner, name)
            call()
        assert open_files(tmp_path) == []


# ---- files of another user, who is not known to be one

@pytest.mark.parametrize(("make", "name"), [
    (lambda path: ownership.open_file(path, os.O_WRONLY), "_give"),
    (lambda path: ownership.open_file(path, os.O_WRONLY), "_mode_beside"),
    (lambda path: ownership.create_file(path, path.parent), "_adopt")])
def test_a_file_that_cannot_be_given_away_is_closed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], int],
        name: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    failing(monkeypatch, ownership, name)
    with pytest.raises(OSError, match="Input/output"):
        make(tmp_path / "new")


def test_a_directory_that_cannot_be_given_away_is_closed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    status = os.fstat

    def theirs(descriptor: int) -> os.stat_result:
        found = list(status(descriptor))
        found[stat.ST_UID] = STRANGER
        return os.stat_result(found)

    def give(descriptor: int, path: str, *rest: object) -> None:
        given.append(path)
        if path.endswith("b"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    monkeypatch.setattr(os, "fstat", theirs)
    monkeypatch.setattr(ownership, "_give", give)
    with pytest.raises(OSError, match="Input/output"):
        ownership.make_directories(tmp_path / "a" / "b")
    assert given == [str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert not ownership.make_directories(tmp_path / "a" / "b")


def test_a_file_of_another_directory_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / "f").touch()
    place = ListedDirectory(str(folder))
    place.open_log(str(folder / "f")).close()
    folder.rename(tmp_path / "aside")
    place.open_log(str(tmp_path / "aside" / "f")).close()
    folder.mkdir()
    (folder / "f").touch()
    with pytest.raises(KafkaStorageError) as caught:
        place.open_log(str(folder / "f"))
    assert facts_of(caught.value) == {
        "class": "KafkaStorageError", "code": "io", "errno": errno.ENOENT,
        "file": str(folder / "f"), "text": "[Errno 2] another directory took the place of the one "
        f"that was listed: '{folder}/f'"}
