"""Forked children: what each raised comes back, and one that hangs is a failure."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["CHILD_SECONDS", "contents", "fork", "in_child", "outcome"]

#: Far more than any child here needs; bounds the wait for a lock that is never released.
CHILD_SECONDS = 120.0


def fork() -> int:
    """`os.fork`; Python 3.12 and later warn where there are threads, which is the case here."""
    faulthandler.cancel_dump_traceback_later()  # its thread would be missing in a child of a child
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(act: Callable[[], Any], *, leave: Callable[[], object] | None = None) -> Any:
    """What `act()` gave in a forked child. AssertionError for what it raised, and if it hangs.

    The child ends by `os._exit`, or with `leave` as that does.
    """
    reader, writer = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(reader)
        faulthandler.dump_traceback_later(CHILD_SECONDS - 5, file=sys.__stderr__)
        try:
            answer = (True, act())
        except BaseException:
            answer = (False, traceback.format_exc())
        try:
            os.write(writer, pickle.dumps(answer))
            os.close(writer)
            if leave is not None:
                leave()
        finally:
            if leave is None:
                os._exit(0)
        os._exit(0)
    os.close(writer)
    try:
        data = _read(reader, pid)
    finally:
        os.close(reader)
    _wait(pid)
    is_fine, answer = pickle.loads(data)
    assert is_fine, f"in the child:\n{answer}"
    return answer


def _read(reader: int, pid: int) -> bytes:
    deadline, data = time.monotonic() + CHILD_SECONDS, b""
    while True:
        # Not select.select, which refuses descriptors from 1024 on.
        waiting = select.poll()
        waiting.register(reader, select.POLLIN)
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child hangs: nothing in {CHILD_SECONDS} seconds")
        found = os.read(reader, 1 << 16)
        if not found:
            return data
        data += found


def _wait(pid: int) -> None:
    deadline = time.monotonic() + CHILD_SECONDS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"
            return
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the child hangs at its end")
        time.sleep(0.001)


def outcome(act: Callable[[], object]) -> str:
    """The name of its exception, or "none"."""
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "none"


def contents(directory: Path) -> dict[str, bytes]:
    """All files below a directory except `.lock`: closing a descriptor of it would release the
    lock."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file() and path.name != ".lock"}
