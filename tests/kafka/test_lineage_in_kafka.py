"""Which remote segments belong to a log, against Kafka's own RemoteLogManager."""

from __future__ import annotations

import random

import pytest

from seglog.remote_log.lineage import epochs_with_records, is_within_leader_epochs
from seglog.tiered import serialize
from tests.kafka.test_remote_metadata_in_kafka import SEQUENCES, in_kafka
from tests.remote_log.support import segment


def epochs(rng: random.Random) -> list[tuple[int, int]]:
    """Ascending, some without records."""
    numbers = sorted(rng.sample(range(8), rng.randrange(1, 6)))
    return list(zip(numbers, sorted(rng.choices(range(0, 40, 2), k=len(numbers))), strict=True))


@pytest.mark.usefixtures("kafka_lib")
def test_segments_of_a_lineage() -> None:
    rng = random.Random(405)
    cases = []
    for _ in range(20 * SEQUENCES):
        lineage = epochs(rng)
        own = dict(rng.sample(lineage, rng.randrange(1, len(lineage) + 1)))
        if rng.random() < 0.4:
            own |= dict(rng.sample(epochs(rng), 1))
        if rng.random() < 0.7:  # in order, as a log writes them
            own = dict(zip(sorted(own), sorted(own.values()), strict=True))
        start = min(own.values())
        one = segment(start, max([*own.values(), start]) + rng.randrange(10), epochs=own)
        cases.append((one, rng.choice([one.end_offset, one.end_offset + 1, 60]), lineage))
    theirs = in_kafka([
        f"lineage {serialize(one).hex()} {end} "
        + ",".join(f"{epoch}:{offset}" for epoch, offset in lineage)
        for one, end, lineage in cases])
    ours = []
    for one, end, lineage in cases:
        filtered = epochs_with_records(lineage)
        shown = "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in filtered) + "}"
        ours.append(f"{shown} {str(is_within_leader_epochs(one, end, filtered)).lower()}")
    wrong = [f"{case}\nseglog: {mine}\nKafka:  {kafkas}" for case, mine, kafkas in zip(
        cases, ours, theirs, strict=True) if mine != kafkas]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:5])
    assert 0.1 < sum(answer.endswith("true") for answer in theirs) / len(theirs) < 0.9
