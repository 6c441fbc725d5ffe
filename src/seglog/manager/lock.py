"""The lock of a data directory: a POSIX record lock, as a JVM's FileChannel.tryLock takes it.

Such a lock belongs to a process, not to a descriptor. So a second manager of the same process is
told apart by a table of what this process holds, and asked for before the file is opened: closing
any descriptor of the file would give up the lock that another part of the process has.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading

__all__ = ["FileLock"]

# struct flock, with the padding that C puts behind it.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi0q")
_ATTEMPTS = 100

_held: set[tuple[int, int]] = set()  # device and inode of the locked files of this process
_held_guard = threading.Lock()


def _pack_whole_file() -> bytes:
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _unpack(raw: bytes) -> tuple[int, int]:
    """(type, process id) of a struct flock."""
    fields = _FLOCK.unpack(raw)
    return (fields[3], fields[2]) if sys.platform == "darwin" else (fields[0], fields[4])


class FileLock:
    """An exclusive lock on a whole file (Kafka: FileLock). The file is created where it is missing.

    Safe from any thread. A forked child holds nothing, and destroys nothing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: Who holds the lock when `try_lock` was refused; None where the system does not say.
        self.holder_pid: int | None = None
        self._descriptor = -1
        self._key: tuple[int, int] | None = None
        self._owner_pid = 0

    def try_lock(self) -> bool:
        """Whether the lock was had; never waits. OSError where the file cannot be opened."""
        with _held_guard:
            for _ in range(_ATTEMPTS):
                if self._is_ours_already():
                    self.holder_pid = os.getpid()
                    return False
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    taken = self._take(descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                if taken is not None:
                    return taken
                os.close(descriptor)
        raise OSError(errno.EAGAIN, "the lock file is replaced again and again", self.path)

    def _is_ours_already(self) -> bool:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) in _held

    def _take(self, descriptor: int) -> bool | None:
        """Locks an open file. None: its owner deleted it meanwhile, as owners do when they end."""
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            self.holder_pid = self._ask_holder(descriptor)
            os.close(descriptor)
            return False
        here = os.fstat(descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return None
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            return None
        self._descriptor, self._key = descriptor, (here.st_dev, here.st_ino)
        self._owner_pid = os.getpid()
        _held.add(self._key)
        return True

    @staticmethod
    def _ask_holder(descriptor: int) -> int | None:
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _pack_whole_file())
        except OSError:
            return None
        kind, pid = _unpack(answer)
        # 0 is a process of another container, -1 a lock without a process.
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the lock."""
        return self._key is not None and self._owner_pid == os.getpid()

    def destroy(self) -> None:
        """Deletes the file and gives up the lock; errors are nobody's concern any more."""
        with _held_guard:
            if not self.is_locked:
                return
            assert self._key is not None
            # Deleted while it is still locked: whoever opens it now sees that it is gone.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            _held.discard(self._key)
            self._key, self._descriptor = None, -1
