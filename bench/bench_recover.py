"""Recovery after an unclean shutdown, rebuilding every index, next to CRC over pread and Kafka."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.data import NUMBER_DIGITS, Log, write_log
from bench.floors import Floors
from bench.harness import Against, Compare, Timed, opened, pick
from bench.peers.kafka import java, told_by
from seglog.config import LogConfig
from seglog.model import TopicPartition
from seglog.recovery.loaded import LoadedLog
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.open_log import load_log
from seglog.recovery.segment_recovery import recover_extent
from seglog.recovery.scans import Extent, SegmentScans
from seglog.storage.producer_state import ProducerState
from tests.kafka.harness import KafkaUnavailable

#: 0.007, 1.1 and 1.8 GB: a segment is 1 GiB, and with smaller ones fsync dominates.
RECORDS = pick(60_000, 10_000_000, 16_000_000)
BATCH_BYTES = 18 * 1024
SEGMENTS = 16
KAFKA_ROUNDS = pick(1, 4, 4)


class Partition(NamedTuple):
    """A partition directory and the expected result of its recovery."""

    path: Path
    size: int
    batches: int
    end_offset: int
    segments: int


def partition_of(folder: Path, log: Log, segments: int) -> Partition:
    """A new directory with the batches of `log`, in equal segments."""
    path = folder / "recover-0"
    path.mkdir(parents=True)
    batch, each = log.size // log.batches, log.records // log.batches
    assert batch * log.batches == log.size
    bounds = [log.batches * n // segments for n in range(segments + 1)]
    with open(log.path, "rb") as source:
        for first, last in zip(bounds, bounds[1:], strict=False):
            name = f"{first * each:0{NUMBER_DIGITS}d}.log"
            with open(path / name, "wb") as target:
                for _ in range(first, last):
                    target.write(source.read(batch))
    return Partition(path, log.size, log.batches, log.records, segments)


def twin_of(partition: Partition, folder: Path) -> Partition:
    """Another directory with the same logs, because recovery only reads an undamaged log."""
    path = folder / "recover-0"
    path.mkdir(parents=True)
    for source in partition.path.glob("*.log"):
        os.link(source, path / source.name)
    return partition._replace(path=path)


@pytest.fixture(scope="module")
def log(scratch: Path) -> Log:
    """The batches, in one file."""
    return write_log(scratch / "recover", RECORDS, plain_bytes=BATCH_BYTES)


@pytest.fixture(scope="module", params=[1, SEGMENTS], ids=["1 segment", f"{SEGMENTS} segments"])
def partition(request: pytest.FixtureRequest, scratch: Path, log: Log) -> Partition:
    return partition_of(scratch / f"recover-{request.param}", log, request.param)


def recover(partition: Partition, pool: ThreadPoolExecutor | None = None,
            threads: int = 1) -> Callable[[], Timed]:
    """A whole load from recovery point 0, which rebuilds and writes every index. Emptying the
    indexes before and closing the log afterwards are not timed."""
    inputs = LoadInputs(TopicPartition("recover", 0), clean_shutdown=False, log_start_offset=0,
                        recovery_point=0, config=LogConfig())

    def run() -> Timed:
        for index in partition.path.glob("*index"):
            os.truncate(index, 0)
        start = time.perf_counter()
        with SegmentScans(pool, threads) as scans:
            loaded: LoadedLog = load_log(str(partition.path), inputs, scans=scans)
        seconds = time.perf_counter() - start
        loaded.close()
        return Timed(seconds, loaded.log_end_offset)

    return run


def ends_at(partition: Partition, *, written: bool = True) -> Callable[[Any], None]:
    """Asserts that the log is complete and every batch but a segment's first has an index entry."""
    def check(found: Any) -> None:
        assert (found.result if isinstance(found, Timed) else found) == partition.end_offset
        entries = sum(os.path.getsize(path) // 8 for path in partition.path.glob("*.index"))
        assert not written or entries == partition.batches - partition.segments

    return check


def test_recover_by_one_thread(compare: Compare, floors: Floors, log: Log, scratch: Path,
                               partition: Partition) -> None:
    """Goals: 60% of the floor, and 4 times Kafka in a warm JVM."""
    with opened(log.path) as fd:
        others = [Against("CRC over pread in C", lambda: floors.crc_pread(fd, log.size), goal=0.6)]
        try:
            java("Recover")
        except KafkaUnavailable:
            pass
        else:
            own = twin_of(partition, scratch / f"kafka-{partition.segments}")
            others.append(Against("Kafka's UnifiedLog, warm", lambda: kafka(own.path), goal=4.0,
                                  once=True, check=ends_at(own)))
        compare(f"recover, {segments_text(partition)}, 1 thread", recover(partition), others,
                work=log.size / 1e9, unit="GB", check=ends_at(partition))


def segments_text(partition: Partition) -> str:
    """The number of segments as text."""
    return "1 segment" if partition.segments == 1 else f"{partition.segments} segments"


def kafka(path: Path) -> Timed:
    """The end offset after Kafka's recovery, which times itself."""
    told = told_by(java("Recover", str(path), str(KAFKA_ROUNDS)))
    return Timed(told["seconds"], told["end_offset"])


def test_recover_by_two_threads(compare: Compare, log: Log, partition: Partition) -> None:
    """Goal: 1.8 times one thread, also for a single segment."""
    with ThreadPoolExecutor(2) as pool:
        compare(f"recover, {segments_text(partition)}, 2 threads",
                recover(partition, pool, 2),
                [Against("1 thread", recover(partition), goal=1.8, check=ends_at(partition))],
                work=log.size / 1e9, unit="GB", check=ends_at(partition), rounds=7)


def rebuild(partition: Partition, pool: ThreadPoolExecutor | None = None,
            threads: int = 1) -> Callable[[], int]:
    """Only the scans and the fold: writes no file and waits for no disk."""
    logs = sorted(partition.path.glob("*.log"))
    extents = [Extent(str(path), 0, path.stat().st_size) for path in logs]

    def run() -> int:
        producers, entries = ProducerState(TopicPartition("recover", 0)), 0
        with SegmentScans(pool, threads) as scans:
            scans.expect(extents)
            for path, extent in zip(logs, extents, strict=True):
                found = recover_extent(int(path.name[:NUMBER_DIGITS]), extent, LogConfig(),
                                       producers, scans=scans)
                entries += len(found.offset_index) // 8
        assert entries == partition.batches - partition.segments
        return found.next_offset

    return run


def test_rebuild(compare: Compare, floors: Floors, log: Log, partition: Partition) -> None:
    """Goals: 60% of the floor, and two threads 1.8 times one."""
    with opened(log.path) as fd:
        compare(f"scan and rebuild in memory, {segments_text(partition)}, 1 thread",
                rebuild(partition),
                [Against("CRC over pread in C", lambda: floors.crc_pread(fd, log.size),
                         goal=0.6)],
                work=log.size / 1e9, unit="GB", check=ends_at(partition, written=False), rounds=7)


def test_rebuild_by_two_threads(compare: Compare, log: Log, partition: Partition) -> None:
    """Goal: 1.8 times one thread."""
    with ThreadPoolExecutor(2) as pool:
        compare(f"scan and rebuild in memory, {segments_text(partition)}, 2 threads",
                rebuild(partition, pool, 2),
                [Against("1 thread", rebuild(partition), goal=1.8)],
                work=log.size / 1e9, unit="GB", check=ends_at(partition, written=False), rounds=7)
