"""Logs that lost nothing in a crash and became rows, beside Kafka's loader: nothing may differ.

More cases: SEGLOG_IDLE_SEED=N SEGLOG_IDLE_CASES=N.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import (
    AllLogDirsFailedError, InvalidTopicPartitionError, LogLoadError, SeglogError,
)
from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import read_offset_checkpoint, write_offset_checkpoint
from seglog.storage.producer_state import decode_snapshot, encode_snapshot
from tests.differential.cases import Case, plan
from tests.differential.judge import Judge
from tests.differential.ours import EXPIRATION_MS, files
from tests.differential.sources import Source, Sources
from tests.manager.records import batch
from tests.support.effort import how_many

SEED = int(os.environ.get("SEGLOG_IDLE_SEED", "12"))
CASES = how_many("SEGLOG_IDLE_CASES", 60, 12)
CLEAN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
EMPTY_SNAPSHOT = len(encode_snapshot([]))


class IdleCase(Case):
    """A source after a start and a shutdown, without the marker. A third gets one damage too, and a
    third loses the producers of its last snapshot. Half of them were written to since the last
    flush."""

    def build(self, sources: Sources, root: Path, only: set[int] | None = None) -> list[str]:
        if self.source.home == "drawn":
            draw(root, self.source, dict(self.config))
        else:
            sources.copy(self.source, root)
        for _ in range(2):  # the second start recovers what the first one has loaded
            try:
                with started(root, dict(self.config)):
                    pass
                (root / CLEAN).unlink()
            except (SeglogError, FileNotFoundError):
                return []
        if self.number % 2:
            unflush(root, random.Random(f"unflushed/{self.seed}/{self.number}"))
        if self.number % 3 == 1:
            return [*self.damage(root, {0}), "idle"]
        snapshots = sorted(root.glob("*/*.snapshot"))
        if self.number % 3 == 2 and snapshots:
            kept = decode_snapshot(snapshots[-1].read_bytes())[::2]
            snapshots[-1].write_bytes(encode_snapshot(kept))
        return ["idle"]


def started(root: Path, config: Mapping[str, str]) -> seglog.LogManager:
    return seglog.LogManager(
        [root], log_config=LogConfig.from_properties(config),
        config=BrokerConfig.from_properties({"producer.id.expiration.ms": str(EXPIRATION_MS)}))


def load_rows(root: Path, config: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What the partitions say that were rows, and their files when they are opened and closed.
    Other tests compare what the loader takes."""
    found: dict[str, dict[str, Any]] = {}
    try:
        with started(root, config) as manager:
            for key in list(manager._state.table.unopened_keys()):
                log = manager.get_log(key)
                assert log is not None
                state = log.state()
                state.pop("last_stable_offset", None)  # a manager knows a high watermark
                if "error" in state:  # of a damaged segment that no load reads
                    state = {}
                found[str(key)] = {**state, "files_loaded": files(Path(log.path))}
    except (AllLogDirsFailedError, LogLoadError, InvalidTopicPartitionError):
        return {}
    return {name: {**state, "files_closed": files(root / name)} for name, state in found.items()}


def unflush(root: Path, rng: random.Random) -> None:
    """A recovery point in the last segment, and what a process that dies does not write: a snapshot
    at the log's end, maybe one before it, and the last index entries, if any."""
    points = dict(read_offset_checkpoint(root / RECOVERY_POINTS))
    for key, end in points.items():
        path = root / str(key)
        base = max(int(log.stem) for log in path.glob("*.log"))
        points[key] = rng.choice((base, end, rng.randint(base, end), rng.randint(base, end)))
        snapshot = path / f"{end:020d}.snapshot"
        if rng.random() < .7 and snapshot.exists() and end > base + 1:
            snapshot.rename(snapshot.with_stem(f"{rng.randrange(base + 1, end):020d}"))
        elif rng.random() < .7:
            snapshot.unlink(missing_ok=True)
        for suffix, width in (("index", 8), ("timeindex", 12)):
            index = path / f"{base:020d}.{suffix}"
            data = index.read_bytes()
            kept = width * rng.randint(0, len(data) // width)
            index.write_bytes(rng.choice((
                data, data + bytes(1000 * width), data[:kept] + bytes(1000 * width - kept), b"",
                rng.randbytes(len(data)))))
    write_offset_checkpoint(root / RECOVERY_POINTS, points)


def draw(root: Path, source: Source, config: Mapping[str, str]) -> None:
    """A log of producers with sequences, in several segments; some have expired since."""
    rng = random.Random(f"drawn/{source.seed}")
    root.mkdir(parents=True)
    producers = {rng.choice((rng.randrange(40), rng.getrandbits(62))): 0
                 for _ in range(rng.choice((1, 2, 8, 40)))}
    now_ms = time.time_ns() // 1_000_000
    with started(root, config) as manager:
        log = manager.get_or_create_log(TopicPartition("drawn", 0))
        for _ in range(rng.choice((5, 40, 120))):
            if rng.random() < .08:
                log.roll()
            count, producer = rng.randrange(1, 4), rng.choice([*producers, -1])
            age_ms = rng.choice((0, 1, 10, 100)) * 24 * 3600 * 1000
            sequence = producers.get(producer, -1)
            log.append_as_leader(batch(count, timestamp=now_ms - age_ms, producer_id=producer,
                                       sequence=sequence), 0)
            if producer >= 0:
                producers[producer] = sequence + count


def idle_case(sources: Sources, number: int) -> IdleCase:
    """Case `number`, from the sources whose logs are rows at all."""
    rng = random.Random(f"idle/{SEED}/{number}")
    names = [(home, name) for home in ("clean", "unclean") for name in sources.names[home]
             if name.startswith(("plain", "txn", "idempotent", "__consumer", "big", "empty"))]
    source = (Source(*rng.choice(names)) if rng.random() < .4 else
              Source("drawn", "drawn-0", number))
    planned = plan(sources, SEED, number)
    return IdleCase(SEED, number, source, planned.damages, tuple(sorted(
        sources.config(source).items())))


@pytest.fixture(scope="module")
def row_judge(kafka_lib: Path, golden: Path) -> Iterator[Judge]:
    """Kafka's loader, and our rows."""
    with Judge(golden, load_rows, partial=True) as running:
        yield running


def test_rows_are_what_kafka_loads(row_judge: Judge) -> None:
    rows, with_producers, unflushed, wrong = 0, 0, 0, []
    for number in range(CASES):
        verdict = row_judge.judge_case(idle_case(row_judge.sources, number))
        if verdict is None:
            continue
        rows += len(verdict.ours)
        with_producers += any(file["size"] > EMPTY_SNAPSHOT for state in verdict.ours.values()
                              for name, file in state["files_loaded"].items()
                              if name.endswith(".snapshot"))
        unflushed += any(state["recovery_point"] < state["log_end_offset"]
                         for state in verdict.ours.values() if "recovery_point" in state)
        if verdict.wrong:
            wrong.append(str(verdict))
    assert not wrong, f"{len(wrong)} of {rows} differ\n" + "\n".join(wrong)
    assert rows > CASES // 4 and with_producers > CASES // 20 and unflushed > CASES // 20
