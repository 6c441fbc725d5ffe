"""A process that takes a line of JSON and answers with one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.support.source_files import ROOT


class Answering:
    """Starts the command when it is first asked, and again after `most` questions; `with` ends
    it."""

    def __init__(self, command: Callable[[], list[str]], most: int) -> None:
        self._command, self._most, self._asked = command, most, 0
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, question: dict[str, Any]) -> None:
        """Asks; the answer will be the next line of its output."""
        if self._process is not None and self._asked >= self._most:
            self.close()
        if self._process is None:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"}, cwd=ROOT)
            self._asked = 0
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        self._asked += 1

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was asked."""
        assert self._process is not None
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
