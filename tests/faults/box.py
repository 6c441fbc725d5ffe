"""What the tests hold of the process in which files fail: jobs to it, answers from it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.oracle.files import decode_snapshot
from tests.support.effort import IS_QUICK

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Every call that changes a directory or makes a change durable.
CHANGES = "create,write,sync,truncate,rename,unlink,time"
#: Every call that only asks.
QUESTIONS = "open,read,list,stat"
#: All points of a sweep instead of some of each case.
FULL = os.environ.get("SEGLOG_FAULTS_FULL", "0") not in ("", "0")
IO, FULL_DISK, DENIED = errno.EIO, errno.ENOSPC, errno.EACCES


@cache
def why_not() -> str | None:
    """Why this machine cannot run the shim."""
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return "the shim is for 64-bit Linux"
    if "glibc" not in " ".join(os.confstr(name) or "" for name in ("CS_GNU_LIBC_VERSION",)
                               if name in os.confstr_names):
        return "the shim is for glibc"
    if shutil.which("cc") is None:
        return "cc is missing: install a C compiler"
    return None


def build_shim(target: Path) -> Path:
    """Compiles the shim; warnings are errors."""
    command = ["cc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror",
               str(HERE / "shim.c"), "-o", str(target), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


class Box:
    """One server; a job at a time."""

    def __init__(self, shim: Path) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server"], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": path})

    def run(self, job: str, *, under: Path | str = "", faults: dict[str, Any] | None = None,
            **arguments: Any) -> dict[str, Any]:
        """Does a job, its files under `under` exposed to `faults` (keys: shim.c, in lower case)."""
        told = {key.upper(): value for key, value in (faults or {}).items()}
        request = {"job": job, "faults": {"UNDER": str(under), **told}, **arguments}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server has died"
        answer: dict[str, Any] = json.loads(line)
        assert "crash" not in answer, answer["crash"]
        assert answer.get("signal") in (None, 9), f"{answer} for {request}"
        return answer

    def close(self) -> None:
        """Ends the server."""
        self._process.communicate()


@dataclass(frozen=True)
class Call:
    """A line of the shim's trace."""

    kind: str
    path: str
    other: str
    offset: int
    length: int
    data: bytes

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)


def read_trace(path: Path) -> list[Call]:
    """What a job changed and made durable, in its order."""
    calls = []
    for line in path.read_text().splitlines():
        kind, name, other, offset, length, data = line.split("\t")
        calls.append(Call(kind, name, other, int(offset), int(length), bytes.fromhex(data)))
    return calls


def snapshot(root: Path) -> dict[str, str]:
    """The hash of every file in a tree, but of those that any next load removes; "directory" for
    a directory."""
    return {str(path.relative_to(root)): content_of(path) if path.is_file() else "directory"
            for path in sorted(root.rglob("*")) if path.suffix != ".deleted"}


def content_of(path: Path) -> str:
    """The hash of a file; what a producer snapshot says, as the order of its entries means nothing
    and tells of the history of a hash table alone."""
    data = path.read_bytes()
    if path.suffix == ".snapshot":
        with contextlib.suppress(ValueError, AssertionError, IndexError, struct.error):
            return repr(sorted(decode_snapshot(data), key=lambda one: one.producer_id))
    return hashlib.sha256(data).hexdigest()


def stamps(root: Path) -> dict[str, tuple[int, int]]:
    """When every file, and the root itself, was last written and changed."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
            for path in [root, *sorted(root.rglob("*"))]}


def points(count: int, most: int) -> Iterator[int]:
    """`most` numbers of 1 to `count` (all of them on request, half as many in a quick run),
    including the first and last; the others are spread evenly."""
    if IS_QUICK and most > 2:
        most = max(2, most // 2)
    if FULL or count <= most or most < 2:
        yield from range(1, count + 1)
    else:
        yield from sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)})
