"""Kafka's whole LogCleaner, threads and all, and ours over the same data directory: the same
checkpoints, the same uncleanable partitions, the same bytes in every file."""

from __future__ import annotations

import random
import shutil
import struct
import time
from pathlib import Path

import pytest

from seglog.cleaner import CleanerConfig, LogCleaner
from seglog.config import LogConfig
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from seglog.model import TopicPartition
from tests.cleaner.support import COLLIDING, NOW, SLOT, append, end_transaction
from tests.cleaner.world import Logs
from tests.kafka import harness

pytestmark = pytest.mark.judge

SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0",
            "segment.ms": "100000000", "internal.segment.bytes": "9000",
            "segment.index.bytes": "2000", "delete.retention.ms": "50000"}
#: So few keys fit a map that a log takes several rounds.
MAP_BYTES = 40 * SLOT
LOGS, DAMAGED = 6, (2, 4)


def fill(log: UnifiedLog, source: random.Random) -> None:
    """Puts and tombstones, plain, compressed, and in transactions; all cleanable. Two keys have
    the same hash."""
    sequences = {7: 0, 8: 0}
    for number in range(50):
        rows = [((b"%d" % source.randrange(60), source.choice(COLLIDING))[source.random() < .1],
                 None if source.random() < .1 else source.randbytes(source.randrange(60)))
                for _ in range(source.choice([1, 4, 20]))]
        if source.random() < .3:
            producer = source.choice([7, 8])
            append(log, rows, producer=producer, sequence=sequences[producer], transactional=True)
            sequences[producer] += len(rows)
            end_transaction(log, producer, commit=source.random() < .5)
        else:
            builder = RecordBatchBuilder(codec=source.choice(["none", "none", "lz4", "gzip"]))
            for key, value in rows:
                builder.append(NOW + number, key, value)
            log.append_as_leader(builder.build(), 0)
        if number % 12 == 11:
            log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.roll()


def opened(path: Path) -> UnifiedLog:
    clock = MockTime(current_time_ms=NOW)
    log = UnifiedLog.create(path, LogConfig.from_properties(SETTINGS), clean_shutdown=True,
                            scheduler=clock.scheduler, time=clock)
    log.update_high_watermark(log.log_end_offset)
    return log


def damage(path: Path, source: random.Random) -> None:
    """A second batch that is longer than its segment, or shorter than a batch."""
    log = min(path.glob("*.log"))
    with log.open("r+b") as file:
        file.seek(8)
        size = 12 + int.from_bytes(file.read(4), "big")
        file.seek(size + 8)
        file.write(struct.pack(">i", source.choice([5, 1 << 20])))


def contents(root: Path) -> dict[str, bytes]:
    return {str(one.relative_to(root)): one.read_bytes() for one in sorted(root.rglob("*"))
            if one.suffix in (".log", ".index", ".timeindex", ".txnindex")}


def clean_with_ours(root: Path, wanted: dict[TopicPartition, int], threads: int) -> str:
    """The answer of Cleaning.java."""
    channel, logs = LogDirFailureChannel(), Logs()
    for key in wanted:
        logs.of[key] = opened(root / str(key))
    directory = LogDirectory(str(root), None, channel)
    cleaner = LogCleaner(
        CleanerConfig(threads=threads, dedupe_buffer_size=MAP_BYTES * threads, backoff_ms=5,
                      io_buffer_size=64 << 10), [directory], logs, channel,
        MockTime(current_time_ms=NOW))
    cleaner.startup()
    end = time.monotonic() + 300
    while cleaner.manager.all_cleaner_checkpoints() != wanted and time.monotonic() < end:
        time.sleep(.005)
    cleaner.shutdown()
    points = {str(key): offset for key, offset in
              cleaner.manager.all_cleaner_checkpoints().items()}
    bad = sorted(map(str, cleaner.manager.uncleanable_partitions(str(root))))
    for log in logs.of.values():
        log.close_handlers()
    return (f"{{{', '.join(f'{key}={points[key]}' for key in sorted(points))}}} "
            f"[{', '.join(bad)}]")


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_leave_the_same(kafka_lib: Path, tmp_path: Path, threads: int) -> None:
    source, ours, theirs = random.Random(threads), tmp_path / "ours", tmp_path / "kafka"
    wanted: dict[TopicPartition, int] = {}
    for number in range(LOGS):
        key = TopicPartition(f"t{number}", 0)
        log = opened(ours / str(key))
        fill(log, source)
        wanted[key] = 0 if number in DAMAGED else log.active.base_offset
        log.close()
        if number in DAMAGED:
            damage(ours / str(key), source)
    shutil.copytree(ours, theirs)
    before = contents(ours)
    given = ",".join(f"{name}={value}" for name, value in SETTINGS.items())
    told = harness.run("Cleaning", str(theirs), str(NOW), str(threads), str(MAP_BYTES * threads),
                       given, *(f"{key}={offset}" for key, offset in wanted.items())
                       ).strip().splitlines()[-1]
    assert clean_with_ours(ours, wanted, threads) == told
    assert told.endswith(f"[{', '.join(f't{number}-0' for number in DAMAGED)}]")
    found, expected = contents(ours), contents(theirs)
    assert sorted(found) == sorted(expected)
    assert not [name for name in found if found[name] != expected[name]]
    for number in range(LOGS):
        own, was = ({name: data for name, data in one.items()
                     if name.startswith(f"t{number}-0/") and name.endswith(".log")}
                    for one in (found, before))
        assert (own == was) == (number in DAMAGED), "as it was, and the others went on"
