"""A broker stops, `seglog compact` cleans its logs, and the broker continues as if it had."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.paths import CLEANER_OFFSET_CHECKPOINT
from tests.kafka import workload
from tests.kafka.harness import Broker, Client

pytestmark = pytest.mark.judge

KEY = TopicPartition("users", 0)
COMPACT = {**workload.SMALL, "cleanup.policy": "compact", "delete.retention.ms": "86400000"}
Rows = list[dict[str, Any]]


def produce(client: Client, rng: random.Random, rounds: int) -> None:
    """Puts and tombstones of few keys, plain and in transactions, in every codec."""
    def rows() -> Rows:
        return [{"key": b"key %d" % rng.randrange(40),
                 "value": None if rng.random() < .1 else rng.randbytes(rng.randrange(1, 400))}
                for _ in range(rng.randrange(1, 12))]

    for number in range(rounds):
        codec = workload.CODECS[number % len(workload.CODECS)]
        client.produce("users", rows(), producer=f"plain {codec}",
                       config={"compression.type": codec})
        name = f"txn-{number % 3}"
        client.produce("users", rows(), producer=name, config={"transactional.id": name})
        client.end_transaction(name, commit=rng.random() < .6)


def last(rows: Rows) -> dict[bytes, bytes]:
    values = {row["key"]: row["value"] for row in rows}
    return {key: value for key, value in values.items() if value is not None}


def check_both(everything: Rows, committed: Rows, kept: Rows, after: Rows, end: int) -> None:
    """Consumers of both isolations see of each key what they saw last, and nothing else.

    `everything` and `kept` are what a read_uncommitted consumer saw before and after a compaction
    up to `end`, the others what a read_committed one did. Aborted records below `end` are gone,
    those above are still there.
    """
    offsets = {row["offset"]: row for row in everything}
    visible = {row["offset"] for row in committed}
    wanted = {row["key"]: row for row in committed}
    for rows in (kept, after):
        assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})
        assert all(row == offsets[row["offset"]] for row in rows), "as it was written"
        found = {row["key"]: row for row in rows if row["offset"] in visible}
        assert last(list(found.values())) == last(list(wanted.values()))
        below = [row["key"] for row in rows if row["offset"] in visible and row["offset"] < end]
        assert len(below) == len(set(below)), "of each key one record below the end"
    aborted = {row["offset"] for row in everything} - visible
    assert {row["offset"] for row in kept} - visible == {one for one in aborted if one >= end}
    assert {row["offset"] for row in after} <= visible


def compact(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """As an operator runs it."""
    return subprocess.run([sys.executable, "-m", "seglog", "compact", *map(str, args)],
                          capture_output=True, text=True, check=False)


def checkpoint(broker: Broker) -> int:
    return read_offset_checkpoint(
        broker.data_dir / CLEANER_OFFSET_CHECKPOINT).get(KEY, -1)


def test_a_broker_goes_on(kafka_lib: Path, tmp_path: Path) -> None:
    rng = random.Random(41)
    # Its own cleaner cleans nothing: no log is dirtier than wholly.
    broker = Broker(tmp_path, {"log.cleaner.min.cleanable.ratio": "1"})
    with broker:
        with Client(broker.bootstrap) as client:
            client.create_topic("users", config=COMPACT)
            produce(client, rng, 40)
            refused = compact(broker.data_dir)
            assert refused.returncode == 2 and "lock" in refused.stderr
            committed = client.consume("users", isolation="read_committed")
            everything = client.consume("users")
        broker.stop()
        dry = compact(broker.data_dir, "-t", "users", "--config", "cleanup.policy=compact",
                      "--config", "internal.segment.bytes=16384", "--dry-run")
        assert dry.returncode == 0, dry.stderr
        done = compact(broker.data_dir, "-t", "users", "--config", "cleanup.policy=compact",
                       "--config", "internal.segment.bytes=16384")
        assert done.returncode == 0, done.stderr
        assert re.search(r"clean up to offset (\d+) of", done.stdout)
        ours = checkpoint(broker)
        assert 0 < ours

        broker.extra = {"log.cleaner.min.cleanable.ratio": "0", "log.cleaner.backoff.ms": "200"}
        broker.start()
        said = (broker.home / "broker.log").read_text()
        assert "Skipping recovery of" in said and "no clean shutdown file was found" not in said
        assert not [line for line in said.splitlines() if "__cluster_metadata" not in line
                    and ("Recovering unflushed" in line or "rebuilding index" in line)]
        with Client(broker.bootstrap) as client:
            after = client.consume("users", isolation="read_committed")
            kept = client.consume("users")
            assert last(after) == last(committed)
            check_both(everything, committed, kept, after, ours)
            assert len(kept) < len(everything) and len(after) < len(committed)
            assert after[-1]["offset"] == committed[-1]["offset"]
            produce(client, rng, 25)
            later = last(client.consume("users", isolation="read_committed"))
            _wait_for_cleaner(broker, ours)
            assert last(client.consume("users", isolation="read_committed")) == later
        broker.stop()
        said = (broker.home / "broker.log").read_text()
        first = re.search(r"cleaned log users-0 \(dirty section = \[(\d+), ", said)
        assert first is not None and int(first[1]) == ours, "it went on from our checkpoint"
        assert "uncleanable" not in said and checkpoint(broker) > ours


def _wait_for_cleaner(broker: Broker, offset: int) -> None:
    end = time.monotonic() + 300
    while checkpoint(broker) <= offset:
        if time.monotonic() > end:
            pytest.fail("the broker's cleaner did nothing")
        time.sleep(.1)
