"""Apache Kafka's own classes as peers; tests/kafka/harness.py finds Java and the jars."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bench.harness import Timed, pick
from tests.kafka import harness

HERE = Path(__file__).resolve().parent
What = Literal["manager", "shutdown", "segments", "crashed"]


#: Both compilers, as in kafka-run-class.sh; where no times count, what costs least.
_SPEED = pick(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"], [], [])


def java(main: str, *arguments: str, heap: str = "512m") -> list[str]:
    """The command line of a program beside this file, compiled before, or of a class of Kafka."""
    paths = [f"{harness.library()}/*"]
    if (HERE / f"{main}.java").is_file():
        paths.insert(0, str(harness.compiled(main, HERE)))
    return [harness.java_command(), f"-Xmx{heap}", *_SPEED, "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", os.pathsep.join(paths), main, *arguments]


def told_by(command: list[str]) -> dict[str, Any]:
    """The last line of a program's output, which is JSON."""
    told: dict[str, Any] = json.loads(subprocess.run(
        command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    return told


def loader(what: What, threads: int = 1, *, warm_up: Path | None = None
           ) -> Callable[[Path], Timed]:
    """Loads a data directory with Kafka in a warm JVM; returns segments and times itself.

    `what` is its LogManager, or only opening every segment (Load.java). With `warm_up`, a directory
    to warm up with, the cache is dropped before each counted load. Raises KafkaUnavailable.
    """
    command = java("Load", what)

    def run(root: Path) -> Timed:
        told = told_by([*command, str(root), str(threads),
                        *([] if warm_up is None else [str(warm_up)])])
        return Timed(told["seconds"], told["segments"])

    return run
