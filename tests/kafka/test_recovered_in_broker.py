"""kill -9, `seglog load --recover`, and a broker that has nothing left to recover."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.paths import RECOVERY_POINT_CHECKPOINT
from tests.kafka import workload
from tests.kafka.harness import Broker, Client

pytestmark = pytest.mark.judge

ISOLATIONS = ("read_uncommitted", "read_committed")
Rows = dict[tuple[str, str], list[dict[str, Any]]]


def consume(client: Client) -> Rows:
    """What consumers of both kinds get from every topic."""
    return {(topic, isolation): client.consume(topic, isolation=isolation)
            for topic in workload.TOPICS for isolation in ISOLATIONS}


def recover(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """`seglog load --recover` as an operator runs it."""
    return subprocess.run([sys.executable, "-m", "seglog", "load", "--recover",
                           *map(str, args)], capture_output=True, text=True, check=False)


def tear(data_dir: Path) -> None:
    """What a crash of the machine adds to kill -9: half a batch, half an index, none at all."""
    log = max((data_dir / "mix-0").glob("*.log"))
    with open(log, "ab") as stream:
        stream.write(log.read_bytes()[:40])
    index = max((data_dir / "append-time-0").glob("*.index"))
    index.write_bytes(index.read_bytes()[:5])
    min((data_dir / "txn-0").glob("*.timeindex")).unlink()


@pytest.fixture(scope="module")
def killed(kafka_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Broker, Rows]:
    """A broker after kill -9, and what consumers got from it before."""
    rng = random.Random(29)
    with Broker(tmp_path_factory.mktemp("recovered")) as broker, \
            Client(broker.bootstrap) as client:
        for topic, config in workload.TOPICS.items():
            client.create_topic(topic, config=config)
        workload.produce_mix(client, rng, 15)
        workload.produce_transactions(client, rng, 12, leave_open=True)
        truth = consume(client)
        refused = recover(broker.data_dir)
        assert refused.returncode == 2 and refused.stdout == ""
        assert len(refused.stderr.splitlines()) == 1 and str(broker.data_dir) in refused.stderr
        assert "lock" in refused.stderr and str(broker.pid) in refused.stderr
        broker.kill()
    tear(broker.data_dir)
    return broker, truth


def test_a_broker_starts_on_it_with_nothing_to_recover(killed: tuple[Broker, Rows]) -> None:
    broker, truth = killed
    done = recover("--states", broker.data_dir)
    assert done.returncode == 1, done.stdout + done.stderr  # half a batch is lost
    states = json.loads(done.stdout)
    points = read_offset_checkpoint(broker.data_dir / RECOVERY_POINT_CHECKPOINT)
    for topic in workload.TOPICS:
        end = states[f"{topic}-0"]["log_end_offset"]
        assert points[TopicPartition(topic, 0)] == end
        assert end > truth[topic, "read_uncommitted"][-1]["offset"]
    # Once more: it is clean now, and nothing changes.
    again = recover("--states", broker.data_dir)
    assert again.returncode == 0, again.stdout + again.stderr
    for name, state in json.loads(again.stdout).items():
        assert {**state, "findings": [], "recovery_point": 0} == \
            {**states[name], "findings": [], "recovery_point": 0}

    with broker, Client(broker.bootstrap) as client:
        log = (broker.home / "broker.log").read_text(errors="replace")
        assert re.search(r"Skipping recovery of \d+ logs from \S+ since clean shutdown file was "
                         r"found", log)
        assert not broker.rebuilt()
        for (topic, isolation), rows in consume(client).items():
            # The open transaction may time out meanwhile, and let a consumer see what is behind.
            before = truth[topic, isolation]
            assert rows[:len(before)] == before, (topic, isolation)
            assert isolation == "read_committed" or len(rows) == len(before)
        # New records follow the recovered ones.
        offsets = client.produce("mix", workload.records(random.Random(1), 3))
        assert offsets[0] == states["mix-0"]["log_end_offset"]
