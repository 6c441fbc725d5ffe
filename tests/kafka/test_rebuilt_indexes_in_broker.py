"""A broker serves a tier whose indexes seglog rebuilt.

A broker with Kafka's LocalTieredStorage tiers records and stops. The indexes of its bucket are
deleted and damaged, made again from the bytes of the segments, and the broker's own copies of them
are deleted. It starts: its consumers get every record from remote storage, in both isolations, and
it finds offsets by time. tests/tiered/test_index_rebuild.py has the quick tests of the same.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.main import main
from tests.kafka import harness
from tests.kafka.tiering_broker import TOPIC, tiering
from tests.kafka.workload import CODECS
from tests.support.waiting import wait_for

FIRST_MS = 4_000_000_000_000  # later than every transaction marker
STEP_MS = 1000
LATE = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint")
DAMAGES = ("absent", "empty", "cut", "flipped", "swapped")


def produce(client: harness.Client, rng: random.Random) -> int:
    """Transactions, of which some are aborted and some span many segments. Every record is a batch
    or more, a second after the one before. Returns the number of records."""
    at = 0
    for number in range(24):
        names = rng.sample(("t-0", "t-1", "t-2"), rng.randint(1, 2))
        for name in (*names, *names, "", *names):
            records = [{"key": b"%d" % (at + one), "value": rng.randbytes(40),
                        "timestamp": FIRST_MS + STEP_MS * (at + one)} for one in range(3)]
            at += len(records)
            codec = CODECS[number % len(CODECS)]
            config = {"compression.type": codec, "batch.size": "1"}
            client.produce("tiered", records, producer=f"{name}-{codec}",
                           config={**config, "transactional.id": f"{name}-{codec}"} if name
                           else config)
        for name in names:
            client.end_transaction(f"{name}-{CODECS[number % len(CODECS)]}",
                                   commit=rng.random() < .6)
    return at


def damage(remote: Path, rng: random.Random) -> int:
    """Damages most indexes, each in one of the ways. Returns how many."""
    count = 0
    for suffix in SUFFIXES:
        paths = sorted(remote.rglob(f"*{suffix}"))
        assert len(paths) > 10 or suffix == ".txnindex" and paths
        contents = [path.read_bytes() for path in paths]
        for row, path in enumerate(paths):
            how = rng.choice(DAMAGES)
            content = contents[row]
            if how == "absent":
                path.unlink()
            elif how == "empty":
                path.write_bytes(b"")
            elif how == "cut":
                path.write_bytes(content[:-5])
            elif how == "flipped" and content:
                at = rng.randrange(len(content))
                path.write_bytes(content[:at] + bytes((content[at] ^ 0x55,)) + content[at + 1:])
            else:
                path.write_bytes(contents[row - 1])
            count += not path.exists() or path.read_bytes() != content
    return count


def truth(broker: harness.Broker) -> dict[str, Any]:
    """What consumers get, and the offsets by time."""
    with harness.Client(broker.bootstrap) as client:
        found: dict[str, Any] = {isolation: client.consume("tiered", 0, isolation)
                                 for isolation in ("read_uncommitted", "read_committed")}
        rows = found["read_uncommitted"]
        chosen = rows[::len(rows) // 6]
        assert client.offsets_for_times("tiered", 0, [row["timestamp"] for row in chosen]) == [
            (row["offset"], row["timestamp"]) for row in chosen]
    return found


@pytest.mark.judge
@pytest.mark.usefixtures("kafka_lib")
def test_a_broker_reads_by_rebuilt_indexes(tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    home, rng = tmp_path / "broker", random.Random(14)
    with tiering(home) as broker:
        with harness.Client(broker.bootstrap) as client:
            client.create_topic("tiered", 1, {**TOPIC, **LATE})
            written = produce(client, rng)
        local = home / "data" / "tiered-0"
        wait_for(lambda: len(list(local.glob("*.log"))) == 1, 600)
        before = truth(broker)
        assert len(before["read_committed"]) < len(before["read_uncommitted"]) == written
        broker.stop()
    (first,) = local.glob("*.log")
    assert int(first.stem) > written / 2  # the rest is remote
    assert damage(home / "remote", rng) > 40
    shutil.rmtree(home / "data" / "remote-log-index-cache")
    command = ["tier", "rebuild-indexes", str(home / "remote"), "tiered-0", "--metadata",
               str(home / "data"), "--json"]
    assert main(command) == 1
    assert main([*command, "--write"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert row["ok"] and row["written"] > 40
    with tiering(home) as broker:
        assert truth(broker) == before
        broker.stop()
