"""Apache Kafka's own classes as peers; tests/kafka/harness.py finds Java and the jars."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench.harness import Timed
from tests.kafka import harness

HERE = Path(__file__).resolve().parent


def java(*arguments: str, heap: str = "512m") -> list[str]:
    """A command line with Kafka's jars, both compilers on, as kafka-run-class.sh has it."""
    return [harness.java_command(), f"-Xmx{heap}", "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", f"{harness.library()}/*", *arguments]


def log_manager(threads: int = 1) -> Callable[[Path], Timed]:
    """Loads a data directory with Kafka's LogManager, warm: segments, timed by itself."""
    harness.library()

    def run(root: Path) -> Timed:
        told = json.loads(subprocess.run(
            java(str(HERE / "LoadManager.java"), str(root), str(threads)), capture_output=True,
            text=True, check=True).stdout.splitlines()[-1])
        return Timed(told["seconds"], told["segments"])

    return run
