"""Finds the process that has the lock of a data directory, without opening a file for writing.

The lock is a POSIX record lock on the whole of `.lock`, as a JVM takes it. It belongs to a process,
and closing any descriptor of the file releases it. So the files that this process has locked are
kept in a table, and are never opened here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import threading
from dataclasses import dataclass
from typing import Final

from seglog.forks import SurvivesFork
from seglog.storage.paths import LOCK_FILE

__all__ = ["HELD", "HeldFiles", "LockHolder", "ask_holder", "command_of", "find_holder"]

# struct flock, with the padding that C adds at the end.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi0q")
_COMMAND_BYTES_MAX = 64 << 10
_OPTIONS_WITH_VALUE = ("-cp", "-classpath", "--class-path", "-m", "-W", "-X")


class HeldFiles(SurvivesFork):
    """The files that this process has locked, identified by `os.stat`. A forked child holds none of
    its parent's locks."""

    def __init__(self) -> None:
        self._files: set[tuple[int, int, int]] = set()  # process, device, inode

    @property
    def guard(self) -> threading.RLock:
        """A lock to be held from the check whether a file is in the table until the caller has
        acted on it."""
        return self._lock

    def __contains__(self, status: os.stat_result) -> bool:
        return _key(status) in self._files

    def add(self, status: os.stat_result) -> None:
        """Adds a file that this process has locked."""
        self._files.add(_key(status))

    def discard(self, status: os.stat_result) -> None:
        """Removes a file that this process has unlocked."""
        self._files.discard(_key(status))


def _key(status: os.stat_result) -> tuple[int, int, int]:
    return os.getpid(), status.st_dev, status.st_ino


HELD: Final = HeldFiles()


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A process that has a data directory open for writing.

    `pid` is None if the system does not say (a process of another container), `command` is None if
    the process is not visible.
    """

    pid: int | None
    command: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "a process of another container"
        if self.pid == os.getpid():
            return f"this process ({self.pid})"
        return f"process {self.pid}" + (f" ({self.command})" if self.command else "")


def find_holder(data_dir: str) -> LockHolder | None:
    """The process that has the lock of a data directory; None if it is free or cannot be
    queried."""
    path = os.path.join(data_dir, LOCK_FILE)
    with HELD.guard, contextlib.suppress(OSError):
        if os.stat(path) in HELD:
            return LockHolder(os.getpid(), None)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = ask_holder(descriptor)
        finally:
            os.close(descriptor)
        if found is not None:
            return LockHolder(found or None, command_of(found) if found else None)
    return None


def ask_holder(descriptor: int) -> int | None:
    """The pid of the process that has a lock on an open file; 0 if its pid has no meaning here
    (another container); None if no other process has one, or the system does not say."""
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _whole_file())
    except OSError:
        return None
    fields = _FLOCK.unpack(answer)
    kind, pid = (fields[3], fields[2]) if sys.platform == "darwin" else (fields[0], fields[4])
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def _whole_file() -> bytes:
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def command_of(pid: int) -> str | None:
    """A process's program and what it runs, such as `java kafka.Kafka`; None if unknown."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            words = os.fsdecode(stream.read(_COMMAND_BYTES_MAX)).rstrip("\0").split("\0")
    except OSError:
        return None
    program = os.path.basename(words[0])
    if not program.startswith(("java", "python")):
        return program or None
    before = program
    for word in words[1:]:
        if word == "-c":
            break
        if not word.startswith("-") and (before not in _OPTIONS_WITH_VALUE or before == "-m"):
            return f"{program} {os.path.basename(word)}"
        before = word
    return program
