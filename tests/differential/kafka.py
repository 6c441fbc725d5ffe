"""Apache Kafka's answers: one JVM that loads directory after directory (Oracle.java)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kafka import harness
from tests.kafka.answering import Answering
from tests.support.transcript import JVM_OPTIONS

#: Room for the largest array that a damaged length asks for: what Kafka does about one shall not
#: depend on the heap.
_OPTIONS = ["-Xmx4g", *JVM_OPTIONS]
#: A log that failed to load keeps its maps until a collection; a fresh JVM is cheaper.
_LOADS_PER_JVM = 3000

State = dict[str, Any]


class Oracle(Answering):
    """Kafka's UnifiedLog as a process; `with` ends it."""

    def __init__(self) -> None:
        super().__init__(lambda: harness.command("Oracle", "-", options=_OPTIONS), _LOADS_PER_JVM)

    def ask(self, root: Path, config: Mapping[str, str]) -> None:
        """Begins to load every partition of `root`, which it changes; `answer` waits for it."""
        self.send({"root": str(root), "config": dict(config)})

    def answer(self) -> dict[str, State]:
        """{partition directory: state} of the requested directories."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"Oracle.java ended with {self.process.wait()}")
        found: dict[str, State] = json.loads(line)
        return found

    def load(self, root: Path, config: Mapping[str, str]) -> dict[str, State]:
        """Both."""
        self.ask(root, config)
        return self.answer()
