"""What a log goes through in a broker that tiers: restarts, transactions, retention, a
replica that was behind and became leader, a disk that was lost. With the consumers' truth."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seglog.storage.isolation import Isolation
from seglog.tiered import RemoteLogSegmentState, read_metadata_topic
from tests.kafka import harness, workload
from tests.kafka.tiering_broker import TOPIC, tiering
from tests.support.waiting import wait_for

ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
_RETENTION_BYTES = 20_000
#: Each with its number of partitions and its settings.
TOPICS: dict[str, tuple[int, Mapping[str, str]]] = {
    "many": (3, TOPIC), "txn": (2, TOPIC), "appended": (1, {
        **TOPIC, "message.timestamp.type": "LogAppendTime"}),
    "rolled-back": (1, TOPIC), "emptied": (1, TOPIC), "cut": (1, TOPIC),
    "expired": (1, {**TOPIC, "retention.bytes": str(_RETENTION_BYTES)}),
}
#: Its segments have left the local disk, but for the active one.
PARTITIONS = [(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)]
#: The times of records go back and forth within these.
_TIMES = range(1_600_000_000_000, 1_600_000_100_000)


@dataclass(frozen=True)
class Truth:
    """What consumers got of a partition, and what the broker answers to lookups by time."""

    start: int
    end: int
    rows: Mapping[Isolation, list[dict[str, Any]]]
    times: Mapping[int, tuple[int, int] | None]


@dataclass(frozen=True)
class History:
    """A broker's directories after a clean end."""

    home: Path
    truth: Mapping[tuple[str, int], Truth]

    @property
    def data(self) -> Path:
        """The broker's log directory."""
        return self.home / "data"

    @property
    def remote(self) -> Path:
        """What LocalTieredStorage holds."""
        return self.home / "remote"


class _Life:
    """The broker, and who writes to it."""

    def __init__(self, home: Path, seed: int) -> None:
        self.broker, self.rng = tiering(home), random.Random(seed)
        self.data = home / "data"

    @contextmanager
    def running(self) -> Iterator[harness.Client]:
        """The broker from its start to its stop. (After a kill Kafka 4.3.1 cannot recover a
        segment whose index is full: OffsetIndex.append throws.)"""
        with self.broker:
            with harness.Client(self.broker.bootstrap) as client:
                yield client
            self.broker.stop()

    def write(self, client: harness.Client, topic: str, partition: int, rounds: int) -> None:
        """Batches of every codec and size, at times that go back and forth."""
        for number in range(rounds):
            codec = workload.CODECS[(number + partition) % len(workload.CODECS)]
            for _ in range(3):
                rows = workload.records(self.rng, self.rng.randint(1, 9))
                for row in rows:
                    row["timestamp"] = self.rng.choice(_TIMES)
                client.produce(topic, rows, partition=partition, producer=codec, config={
                    "compression.type": codec, "linger.ms": "5"})

    def transactions(self, client: harness.Client, rounds: int) -> None:
        """Of two producers and over two partitions; each stays open across several segments."""
        for _ in range(rounds):
            for _ in range(self.rng.randint(1, 8)):
                for name in ("a", "b"):
                    client.produce(
                        "txn", workload.records(self.rng, self.rng.randint(1, 4)),
                        partition=self.rng.randrange(2), producer=name,
                        config={"transactional.id": name})
            for name in ("a", "b"):
                client.end_transaction(name, commit=self.rng.random() < 0.5)

    def local_segments(self, topic: str, partition: int) -> int:
        """The segments on the local disk."""
        return len(list((self.data / f"{topic}-{partition}").glob("*.log")))

    def tiered(self) -> bool:
        """Whether only the active segments are on the local disk."""
        return all(self.local_segments(*key) == 1 for key in PARTITIONS)

    def expired(self) -> bool:
        """Whether no deletion is due (Kafka: RLMExpirationTask). A copy that a stop interrupted
        stays as it is."""
        store = read_metadata_topic(self.data).store
        found = [one for key in store.partitions
                 for one in store.list_all_remote_log_segments(key)]
        if any(one.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED for one in found):
            return False
        sizes = [one.segment_size_in_bytes for one in sorted(
            (one for one in found if one.topic_id_partition.topic == "expired"),
            key=lambda one: one.start_offset)]
        local, = (self.data / "expired-0").glob("*.log")
        return sum(sizes) + local.stat().st_size - _RETENTION_BYTES < sizes[0]


def live(home: Path, seed: int) -> History:
    """Lives through all of it."""
    life = _Life(home, seed)
    with life.running() as client:
        for topic, (count, config) in TOPICS.items():
            client.create_topic(topic, count, config)
        for key in PARTITIONS:
            life.write(client, *key, 6)
        life.transactions(client, 6)
    older = home / "older"
    shutil.copytree(life.data / "rolled-back-0", older)
    with life.running() as client:
        for key in PARTITIONS:
            life.write(client, *key, 6)
        life.transactions(client, 4)
        client.ask("delete_records", topic="cut", partition=0, before=70)
        wait_for(life.tiered, 600)
    shutil.rmtree(life.data / "rolled-back-0")
    shutil.move(older, life.data / "rolled-back-0")
    shutil.rmtree(life.data / "emptied-0")
    with life.running() as client:
        for key in PARTITIONS:
            life.write(client, *key, 4)
        life.transactions(client, 3)
    with life.running() as client:
        for key in PARTITIONS:
            life.write(client, *key, 3)
        life.transactions(client, 1)
        wait_for(life.tiered, 600)
        wait_for(life.expired, 600)
        truth = {key: _truth(client, *key) for key in PARTITIONS}
    return History(home, truth)


def _truth(client: harness.Client, topic: str, partition: int) -> Truth:
    answers = {isolation: client.ask("consume", topic=topic, partition=partition,
                                     isolation=isolation) for isolation in ISOLATIONS}
    rows = {isolation: harness.as_rows(answer["rows"]) for isolation, answer in answers.items()}
    stamps = sorted({row["timestamp"] for row in rows["read_uncommitted"]})
    asked = [0, *stamps[::7], stamps[-1], stamps[-1] + 1]
    return Truth(answers["read_uncommitted"]["start"], answers["read_uncommitted"]["end"], rows,
                 dict(zip(asked, client.offsets_for_times(topic, partition, asked), strict=True)))
