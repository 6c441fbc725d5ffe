"""The producers of a live log against Kafka's own: what every append is answered, by name and text,
what is known after it, and the snapshots byte for byte."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import harness
from tests.kafka.producers import Generator, Seglog, Sequence
from tests.support.effort import how_many

SEEDS = range(how_many("SEGLOG_PRODUCER_SEEDS", 300, 60))

#: Whatever Kafka throws at appends of producers came up, if this is what came up.
THROWN = {
    "InvalidProducerEpochException", "OutOfOrderSequenceException", "InvalidTxnStateException",
    "TransactionCoordinatorFencedException", "IllegalArgumentException", "InvalidRecordException",
    "NullPointerException", "BufferUnderflowException",
}


def kafka_answers(home: Path, sequences: list[Sequence]) -> list[dict[str, Any]]:
    """What Producers.java prints of each, by one JVM."""
    given = "".join(json.dumps(sequence) + "\n" for sequence in sequences)
    done = subprocess.run(
        harness.command("Producers", str(home),
                        options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]),
        input=given, capture_output=True, text=True, check=True, timeout=1800)
    return [json.loads(line) for line in done.stdout.splitlines()]


def differences(sequence: Sequence, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The first operation that was answered differently, or the files that differ."""
    for number, (op, mine, kafkas) in enumerate(zip(
            sequence["ops"], ours["results"], theirs["results"], strict=True)):
        if mine != kafkas:
            fields = sorted(key for key in {*mine, *kafkas} if mine.get(key) != kafkas.get(key))
            return [f"{sequence['name']} op {number} {op}: "
                    + "; ".join(f"{key} {mine.get(key)!r}, in Kafka {kafkas.get(key)!r}"
                                for key in fields)]
    return [f"{sequence['name']} file {name}: {ours['files'].get(name)}, in Kafka "
            f"{theirs['files'].get(name)}"
            for name in sorted({*ours["files"], *theirs["files"]})
            if ours["files"].get(name) != theirs["files"].get(name)]


@pytest.mark.usefixtures("kafka_lib")
def test_sequences(tmp_path: Path) -> None:
    sequences = [Generator(seed).sequence() for seed in SEEDS]
    theirs = kafka_answers(tmp_path / "kafka", sequences)
    ours = [Seglog(tmp_path / "seglog", sequence).answer() for sequence in sequences]
    wrong = [line for sequence, mine, kafkas in zip(sequences, ours, theirs, strict=True)
             for line in differences(sequence, mine, kafkas)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])
    results = [result for answer in theirs for result in answer["results"]]
    thrown = Counter(result["error"] for result in results if "error" in result)
    assert thrown.keys() >= THROWN, f"the generator does not come to all: {thrown}"
    assert sum("duplicate" in result for result in results) > len(SEEDS) // 15
    assert sum(bool(result.get("completed")) for result in results) > len(SEEDS) // 3
    assert sum(bool(result.get("late")) for result in results) > len(SEEDS) // 60
