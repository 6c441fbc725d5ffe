"""Remote log metadata against Kafka's own serde, cache, store and partitioner (KIP-405)."""

from __future__ import annotations

import logging
import random
import subprocess
from collections.abc import Sequence

import pytest

from seglog.tiered import serialize
from tests.kafka import harness
from tests.support.effort import how_many
from tests.tiered.remote_events import (
    Generator, Seglog, damaged, random_record, random_value, in_order_of_starts,
)

#: More by hand: SEGLOG_REMOTE_SEQUENCES=50000.
SEQUENCES = how_many("SEGLOG_REMOTE_SEQUENCES", 1000, 150)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of thousands of lookups find nothing, and each of them is logged."""
    caplog.set_level(logging.CRITICAL, logger="seglog")


def in_kafka(lines: Sequence[str]) -> list[str]:
    """What RemoteMetadata.java answers to each line, by one JVM."""
    done = subprocess.run(
        harness.command("RemoteMetadata", options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]),
        input="".join(f"{line}\n" for line in lines).encode(), capture_output=True, check=False,
        timeout=max(60, SEQUENCES))
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.decode().split("\n")[:-1]


def differences(lines: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Commands that seglog answers otherwise."""
    ours = Seglog().answers(lines)
    return [f"line {number} {line[:300]}\nseglog: {mine}\nKafka:  {kafkas}"
            for number, (line, mine, kafkas) in enumerate(zip(lines, ours, theirs, strict=True))
            if in_order_of_starts(mine) != in_order_of_starts(kafkas)]


@pytest.mark.usefixtures("kafka_lib")
def test_records_both_ways() -> None:
    """Kafka reads what seglog writes and writes the same bytes; what Kafka does not read, seglog
    refuses with the same exception and text."""
    rng = random.Random(405)
    written = [serialize(random_record(rng)) for _ in range(3 * SEQUENCES)]
    values = [random_value(rng) for _ in range(9 * SEQUENCES)]
    values += [damaged(serialize(random_record(rng)), rng) for _ in range(3 * SEQUENCES)]
    lines = [f"serde {value.hex()}" for value in written + values]
    theirs = in_kafka(lines)
    wrong = differences(lines, theirs)
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:10])
    for value, answer in zip(written, theirs, strict=False):
        assert answer.split(" ")[:2] == ["ok", value.hex()]
    refused = [answer for answer in theirs if answer.startswith("error")]
    assert 0.2 < len(refused) / len(theirs) < 0.7
    assert {answer.split(" ")[1] for answer in refused} == {
        "MetadataParseException", "IllegalArgumentException", "NullPointerException"}


@pytest.mark.usefixtures("kafka_lib")
def test_partitions() -> None:
    rng = random.Random(50)
    lines = [f"partition {rng.choice([1, 3, 50, 1000, 2**31 - 1])} {rng.randbytes(16).hex()} "
             f"{rng.choice([0, 1, 2, 999, 2**31 - 1])}" for _ in range(2000)]
    wrong = differences(lines, in_kafka(lines))
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.usefixtures("kafka_lib")
def test_sequences_of_events() -> None:
    """The same events give the same answers for every epoch and offset, and the same errors."""
    lines = [line for seed in range(SEQUENCES) for line in Generator(seed).commands()]
    theirs = in_kafka(lines)
    wrong = differences(lines, theirs)
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:5])
    assert {answer.split(" ")[1] for answer in theirs if answer.startswith("error")} == {
        "IllegalArgumentException", "IllegalStateException", "RemoteResourceNotFoundException"}
    asked = [answer for answer in theirs if answer.startswith("[")]
    assert len(asked) > 2 * SEQUENCES
    assert any("RemoteResourceNotFoundException" in answer for answer in asked)


@pytest.mark.usefixtures("kafka_lib")
def test_questions_before_a_partition_is_initialized() -> None:
    generator = next(found for found in map(Generator, range(99)) if found.is_store)
    lines = [" ".join([*line.split(" ")[:2], "0", "5"]) if line.startswith("ask") else line
             for line in generator.commands() if not line.startswith("init")]
    theirs = in_kafka(lines)
    wrong = differences(lines, theirs)
    assert not wrong, "\n".join(wrong[:5])
    assert any("ReplicaNotAvailableException" in answer for answer in theirs)
