"""Jobs that write to a data directory, and the sweeping of what dead ones left there.

A job has a small file at the top of the data directory that names the process that drives it. All
its other files carry its id. They are garbage once the file is gone or the process is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Final, Self

from seglog.errors import KafkaStorageError
from seglog.storage.paths import JOB_FILE_PREFIX, UNFINISHED_COMMIT
from seglog.storage.textfile import write_file

__all__ = ["Job", "sweep"]

# A job of another machine cannot be asked whether it lives.
_FOREIGN_SECONDS_MAX: Final = 7 * 86400
_ID: Final = r"seglog[0-9a-f]{32}"
_JOB_FILE: Final = re.compile(rf"{re.escape(JOB_FILE_PREFIX)}job-({_ID})")
_OF_JOB: Final = re.compile(rf"{re.escape(JOB_FILE_PREFIX)}[a-z]+-({_ID})|.*\.({_ID})-delete")


@dataclass(frozen=True, slots=True)
class _Driver:
    """A process, told apart from another that gets its number later."""

    machine: str
    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self:
        return cls(_machine(), pid, _started(pid))

    def is_alive(self) -> bool | None:
        """None for a process of another machine or container."""
        if self.machine != _machine():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return _started(self.pid) == self.started


def _machine() -> str:
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as stream:
            parts.append(stream.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str:
    """When a process began, as far as the system says; "" for a dead one."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


@dataclass(frozen=True, slots=True)
class Job:
    """One write to one data directory, by any number of processes."""

    data_dir: str
    id: str

    @classmethod
    def begin(cls, data_dir: str, driver_pid: int) -> Self:
        """A new job, driven by a process. Raises KafkaStorageError."""
        job = cls(data_dir, f"seglog{uuid.uuid4().hex}")
        path = job.path("job")
        try:
            write_file(path, json.dumps(asdict(_Driver.of(driver_pid))).encode())
        except OSError as error:
            job.end()
            raise KafkaStorageError(error.errno, error.strerror, path) from error
        return job

    def name(self, kind: str, rest: str = "") -> str:
        """The name of a file of this job at the top of the data directory."""
        return f"{JOB_FILE_PREFIX}{kind}-{self.id}{rest}"

    def path(self, kind: str, rest: str = "") -> str:
        """Its path."""
        return os.path.join(self.data_dir, self.name(kind, rest))

    @property
    def is_over(self) -> bool:
        """Whether it was committed or aborted: what a task still writes comes too late."""
        return not os.path.exists(self.path("job"))

    def end(self) -> None:
        """Deletes everything of the job that is still there, its own file first."""
        with contextlib.suppress(OSError):
            os.unlink(self.path("job"))
        # The files of a commit that is not finished are needed still; the next sweep comes later.
        if not os.path.lexists(os.path.join(self.data_dir, UNFINISHED_COMMIT)):
            _delete(self.data_dir, {self.id})


def sweep(data_dir: str) -> int:
    """Deletes what dead jobs left at the top of a data directory; the number of files.

    The caller holds the lock of the data directory, in which no commit is unfinished.
    """
    names = os.listdir(data_dir)
    living = {found[1] for name in names
              if (found := _JOB_FILE.fullmatch(name)) and _lives(os.path.join(data_dir, name))}
    seen = {found[1] or found[2] for name in names if (found := _OF_JOB.match(name))}
    return _delete(data_dir, seen - living)


def _lives(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            driver = _Driver(**json.load(stream))
            age = time.time() - os.fstat(stream.fileno()).st_mtime
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError):
        return False  # A crash cut it short, before any task had begun.
    alive = driver.is_alive()
    return age < _FOREIGN_SECONDS_MAX if alive is None else alive


def _delete(data_dir: str, ids: set[str]) -> int:
    count = 0
    for name in os.listdir(data_dir) if ids else ():
        found = _OF_JOB.match(name)
        if found is None or (found[1] or found[2]) not in ids:
            continue
        path = os.path.join(data_dir, name)
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
            count += 1
    return count
