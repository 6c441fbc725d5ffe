"""Jobs that write to a data directory, and the cleanup after dead jobs.

A job has a small file at the top of the data directory that names its driver process. All its other
files carry its id. They are left over once that file or that process is gone.
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

# Another machine's driver cannot be checked, so its job dies of age.
_FOREIGN_SECONDS_MAX: Final = 7 * 86400
_ID: Final = r"seglog[0-9a-f]{32}"
_JOB_FILE: Final = re.compile(rf"{re.escape(JOB_FILE_PREFIX)}job-({_ID})")
_OF_JOB: Final = re.compile(rf"{re.escape(JOB_FILE_PREFIX)}[a-z]+-({_ID})|.*\.({_ID})-delete")


@dataclass(frozen=True, slots=True)
class _Driver:
    """A process, distinguished from later ones that reuse its pid."""

    machine: str
    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Self:
        return cls(_machine(), pid, _started(pid))

    def is_alive(self) -> bool | None:
        """Whether the process lives; None for a process of another machine or container."""
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
    """The start time of a process, in the system's own unit; "" if it is dead or unknown."""
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
        """Starts a job driven by the process `driver_pid`. Raises KafkaStorageError."""
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
        """The path of the file that `name` names."""
        return os.path.join(self.data_dir, self.name(kind, rest))

    @property
    def is_over(self) -> bool:
        """Whether the job was committed or aborted, so that further writes are too late."""
        return not os.path.exists(self.path("job"))

    def end(self) -> None:
        """Deletes the remaining files of the job, its job file first."""
        with contextlib.suppress(OSError):
            os.unlink(self.path("job"))
        # An unfinished commit still needs these files; a later sweep deletes them.
        if not os.path.lexists(os.path.join(self.data_dir, UNFINISHED_COMMIT)):
            _delete(self.data_dir, {self.id})


def sweep(data_dir: str) -> int:
    """Deletes the files of dead jobs at the top of a data directory; returns their number.

    The caller holds the lock of the data directory and has finished every commit.
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
        return False  # A crash truncated it before any task started.
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
