"""Apache Kafka's answers: one JVM that loads directory after directory (Oracle.java)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kafka import harness

#: Room for the largest array that a damaged length asks for: what Kafka does about one shall not
#: depend on the heap.
_OPTIONS = ["-Xmx4g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
#: A log that failed to load keeps its maps until a collection; a fresh JVM is cheaper.
_LOADS_PER_JVM = 3000

State = dict[str, Any]


class Oracle:
    """Kafka's UnifiedLog as a process; `with` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._loads = 0

    def ask(self, root: Path, config: Mapping[str, str]) -> None:
        """Begins to load every partition of `root`, which it changes; `answer` waits for it."""
        if self._process is not None and self._loads >= _LOADS_PER_JVM:
            self.close()
        if self._process is None:
            self._process = subprocess.Popen(
                harness.command("Oracle", "-", options=_OPTIONS), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
                env={**os.environ, "LC_ALL": "C.UTF-8"})
            self._loads = 0
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"root": str(root), "config": dict(config)}) + "\n")
        self._process.stdin.flush()
        self._loads += 1

    def answer(self) -> dict[str, State]:
        """{partition directory: state} of the requested directories."""
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Oracle.java ended with {self._process.wait()}")
        found: dict[str, State] = json.loads(line)
        return found

    def load(self, root: Path, config: Mapping[str, str]) -> dict[str, State]:
        """Both."""
        self.ask(root, config)
        return self.answer()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
