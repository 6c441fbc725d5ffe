"""What this process holds: open files and threads.

Tests ask for the files below their own directory and for the threads that began since they did:
numbers of the whole process also fall when the garbage of an earlier test goes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest


def open_files(directory: str | Path) -> list[str]:
    """The files below a directory that this process has open, one for each descriptor, sorted;
    with the directory itself. Skips the test where the system does not tell."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("counts open files in /proc, which only Linux has")
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of this listing
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    root = os.path.realpath(directory)
    return sorted(path for path in found if path == root or path.startswith(f"{root}/"))


def threads_since(before: set[threading.Thread]) -> set[threading.Thread]:
    """The running threads that are not among these, which `threading.enumerate` gave."""
    return set(threading.enumerate()) - before
