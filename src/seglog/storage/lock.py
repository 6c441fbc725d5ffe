"""The lock of a data directory: a POSIX record lock, as a JVM's FileChannel.tryLock takes it.

Such a lock belongs to a process, not to a descriptor. A second manager of the same process is
therefore detected by a table of the files that this process has locked. The table is checked before
the file is opened, because closing any descriptor of the file would release the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from seglog.errors import LogDirLockedError
from seglog.storage.lock_holder import HELD, ask_holder, command_of
from seglog.storage.ownership import open_file
from seglog.storage.paths import LOCK_FILE

__all__ = ["FileLock", "holds_lock"]

_ATTEMPTS = 100


def holds_lock(data_dir: str) -> bool:
    """Whether this process has the lock of a data directory: then no other process changes its
    files."""
    try:
        return os.stat(os.path.join(data_dir, LOCK_FILE)) in HELD
    except OSError:
        return False


class FileLock:
    """An exclusive lock on a whole file (Kafka: FileLock). Creates the file if it is missing.

    Safe from any thread. A forked child holds no lock, and its `destroy` does nothing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: The holder of the lock when `try_lock` failed; None if the system does not say.
        self.holder_pid: int | None = None
        self._descriptor = -1
        self._status: os.stat_result | None = None  # of the file that is locked
        self._owner_pid = 0

    def try_lock(self) -> bool:
        """Tries to lock without waiting. Returns whether it did. Raises OSError if the file cannot
        be opened."""
        with HELD.guard:
            for _ in range(_ATTEMPTS):
                if self._is_ours_already():
                    self.holder_pid = os.getpid()
                    return False
                try:
                    descriptor = open_file(self.path, os.O_RDWR)
                except FileNotFoundError:
                    if not os.path.isdir(os.path.dirname(self.path)):
                        raise
                    continue  # the holder deleted it meanwhile
                try:
                    taken = self._take(descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                if taken is not None:
                    return taken
                os.close(descriptor)
        raise OSError(errno.EAGAIN, "the lock file is replaced again and again", self.path)

    def lock(self) -> None:
        """Locks the directory of the file without waiting. Raises LogDirLockedError if another has
        it; OSError."""
        if not self.try_lock():
            pid = self.holder_pid
            raise LogDirLockedError(os.path.dirname(self.path), pid,
                                    command_of(pid) if pid else None)

    def _is_ours_already(self) -> bool:
        try:
            return os.stat(self.path) in HELD
        except FileNotFoundError:
            return False

    def _take(self, descriptor: int) -> bool | None:
        """Locks an open file. None if the holder deleted the file meanwhile, as holders do on
        close."""
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            self.holder_pid = ask_holder(descriptor) or None
            os.close(descriptor)
            return False
        here = os.fstat(descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return None
        if not os.path.samestat(here, there):
            return None
        self._descriptor, self._status = descriptor, here
        self._owner_pid = os.getpid()
        HELD.add(here)
        return True

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the lock."""
        return self._status is not None and self._owner_pid == os.getpid()

    def destroy(self) -> None:
        """Deletes the file and releases the lock. Ignores errors."""
        with HELD.guard:
            if not self.is_locked:
                return
            assert self._status is not None
            # Deleted while it is still locked, so that a process that opens it now sees that it is
            # gone.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            HELD.discard(self._status)
            self._status, self._descriptor = None, -1
