"""Jobs that write to a data directory, and the cleanup after dead jobs.

A job has a small file at the top of the data directory that names its driver process. All its other
files carry its id. They are left over once that file or that process is gone. A file or process
that cannot be checked is not gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Final, Self

from seglog.arguments import shown
from seglog.errors import KafkaStorageError, storage_errors
from seglog.fragments.checked_json import CheckedJson
from seglog.storage.paths import JOB_FILE_PREFIX, UNFINISHED_COMMIT
from seglog.storage.textfile import write_file

__all__ = ["Job", "sweep"]

# Another machine's driver cannot be checked, nor can a damaged job file: the job dies of age.
_UNKNOWN_SECONDS_MAX: Final = 7 * 86400
_CONTENT: Final = CheckedJson("job file", "delete it if its job is dead",
                              {"machine": str, "pid": int, "started": str}, 1 << 16)
_PID_MAX: Final = 2**31 - 1
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
        return cls(_machine(), pid, _started(pid) or "")

    @classmethod
    def read(cls, path: str) -> Self | None:
        """The driver in a job file; None if there is no file. Raises KafkaStorageError."""
        found = _CONTENT.read(path)
        if found is not None and not 0 < found["pid"] <= _PID_MAX:
            raise _CONTENT.damaged(path, f"process {shown(found['pid'])}", expected="a process id",
                                   found=found["pid"])
        return None if found is None else cls(**found)

    def is_alive(self) -> bool | None:
        """Whether the process lives; None if that is unknown, as for a process of another machine
        or container."""
        if self.machine != _machine():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        if not self.started:  # This system does not tell.
            return True
        started = _started(self.pid)
        return None if started is None else started == self.started


def _machine() -> str:
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as stream:
            parts.append(stream.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _started(pid: int) -> str | None:
    """The start time of a process, in the system's own unit; "" for a zombie, None if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
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
            with storage_errors(path):
                write_file(path, _CONTENT.encode(path, asdict(_Driver.of(driver_pid))))
        except KafkaStorageError:
            job.end()
            raise
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
        try:
            os.lstat(os.path.join(self.data_dir, UNFINISHED_COMMIT))
        except FileNotFoundError:
            _delete(self.data_dir, {self.id})
        except OSError:
            pass


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
    """Whether the job of a job file may still run. Raises no error."""
    try:
        age = time.time() - os.lstat(path).st_mtime
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        driver = _Driver.read(path)
        alive = False if driver is None else driver.is_alive()
    except OSError:  # It cannot be read, or is no job file: a crash may have truncated it.
        alive = None
    return age < _UNKNOWN_SECONDS_MAX if alive is None else alive


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
