"""Both sides as processes that take a sequence a line and answer with a line: Kafka's UnifiedLog
(tests/kafka/Driver.java, one JVM for many) and seglog's (tests/kafka/drive.py)."""

from __future__ import annotations

import json
import selectors
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kafka import harness
from tests.kafka.answering import Answering
from tests.kafka.jars import cramjams_zstd
from tests.support.transcript import JVM_OPTIONS

#: Memory for the largest chunk that snappy allocates for a wrong 4-byte size; otherwise the answer
#: depends on the heap.
_OPTIONS = ["-Xmx1600m", *JVM_OPTIONS]
#: Maps of removed indexes stay until a collection; a fresh JVM is cheaper than many of them.
_SEQUENCES_PER_PROCESS = 500
_SECONDS = 600.0

Answer = dict[str, Any]


class Side(Answering):
    """A process that leaves its logs in `home`; `with` ends it."""

    def __init__(self, home: Path, command: Callable[[Path], list[str]]) -> None:
        super().__init__(lambda: command(home), _SEQUENCES_PER_PROCESS)
        self.home = home

    def ask(self, sequence: dict[str, Any]) -> None:
        """Begins to run a sequence; `answer` waits for it."""
        self.send(sequence)

    def answer(self) -> Answer | str:
        """The requested answer, or how the process ended instead."""
        process = self.process
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(_SECONDS):
                self.close()
                return f"no answer in {_SECONDS:.0f} s"
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            code = process.wait()
            self.close()
            return f"the process ended with {code}"
        found: Answer = json.loads(line)
        return found


def kafka(home: Path) -> list[str]:
    """The command of Kafka's side, with our libzstd: two versions write different bytes."""
    return harness.command("Driver", str(home), options=_OPTIONS, before=[cramjams_zstd()])


def kafka_as_released(home: Path) -> list[str]:
    """The same with the libzstd that Kafka comes with."""
    return harness.command("Driver", str(home), options=_OPTIONS)


def ours(home: Path) -> list[str]:
    """The command of our side, as anybody runs it."""
    return [sys.executable, "-m", "tests.kafka.drive", str(home)]
