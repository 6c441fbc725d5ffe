"""Directories of a broker of today: read while it writes, after kill -9, after a clean stop."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kafka import workload
from tests.kafka.harness import Broker, Client
from tests.oracle import log
from tests.oracle.batch import Row

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
ISOLATIONS = ("read_uncommitted", "read_committed")
Truth = dict[tuple[str, str], list[Row]]


@pytest.fixture(scope="module")
def killed(kafka_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """A data directory after kill -9, and what consumers got before."""
    rng = random.Random(11)
    with Broker(tmp_path_factory.mktemp("killed")) as broker, Client(broker.bootstrap) as client:
        for topic, config in workload.TOPICS.items():
            client.create_topic(topic, config=config)
        workload.produce_mix(client, rng, 10)
        workload.produce_transactions(client, rng, 15, leave_open=True)
        truth = {(topic, isolation): client.consume(topic, isolation=isolation)
                 for topic in workload.TOPICS for isolation in ISOLATIONS}
        broker.kill()
    return broker.data_dir, truth


def _default(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in COLUMNS} for row in rows]


def test_the_oracle_reads_what_consumers_got(killed: tuple[Path, Truth]) -> None:
    data_dir, truth = killed
    for topic in workload.TOPICS:
        found = log.read(data_dir / f"{topic}-0")
        assert found.error is None
        assert _default(log.data(found.rows)) == truth[topic, "read_uncommitted"]
        replay = log.transactions(data_dir / f"{topic}-0")
        assert _default(log.committed(log.data(found.rows), replay)) == \
            truth[topic, "read_committed"]
    assert log.transactions(data_dir / "txn-0").open
    active = max((data_dir / "preallocated-0").glob("*.log"))
    assert active.stat().st_size == 16384 and active.read_bytes().endswith(bytes(18))
