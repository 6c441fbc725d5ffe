"""Phase one of a load (opening and checking segments), next to its system calls and to Kafka."""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import seglog
from bench.data import drop_caches, write_segments
from bench.floors import Floors
from bench.harness import Against, Compare, equals, pick
from bench.peers import kafka
from seglog._native.scan import list_partition
from seglog.recovery.segment_loading import SegmentLoading
from seglog.recovery.partition_plan import LoadLevel
from tests.kafka.harness import required

SEGMENTS = pick(500, 10_000, 100_000)
COLD_SEGMENTS = pick(500, 5_000, 50_000)
#: The limit for Kafka, which holds a descriptor of every segment.
KAFKA_SEGMENTS = min(pick(500, 4_000, 14_000), resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
IN_C = "open, fstat, pread, close in C"


@pytest.fixture(scope="module")
def data(scratch: Path) -> Path:
    """One partition of small segments."""
    return write_segments(scratch / "load", SEGMENTS)


@pytest.fixture(scope="module", params=[1, 4], ids="{} partitions".format)
def divided(request: pytest.FixtureRequest, scratch: Path) -> Path:
    """The same number of segments, divided over partitions. One thread lists each directory."""
    return write_segments(scratch / f"divided-{request.param}", SEGMENTS // request.param,
                          partitions=request.param)


def partitions_of(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir())


def in_partitions(root: Path) -> str:
    count = len(partitions_of(root))
    return f"{count} partition{'s' if count > 1 else ''}"


def load(root: Path, level: LoadLevel, threads: int = 1) -> Callable[[], Any]:
    """A whole read-only load: both phases and the report."""
    def run() -> Any:
        with seglog.open_data_dir(root, level=level, num_segment_loading_threads=threads) as found:
            return found.report

    return run


def phase_one(root: Path, level: LoadLevel, threads: int) -> Callable[[], int]:
    """The first phase of a LogManager: lists each partition and checks its segments with threads.
    """
    def run() -> int:
        loading, segments = SegmentLoading(str(root), threads, level), 0
        try:
            for path in partitions_of(root):
                plan = loading.check(list_partition(str(path)), lambda count, thread: None)
                assert not len(plan.problems), plan.problems[:3]
                segments += len(plan.segments)
        finally:
            loading.close()
        return segments

    return run


def sound(segments: int) -> Callable[[Any], None]:
    """Asserts that every segment was loaded without findings."""
    def check(report: Any) -> None:
        assert report.segments == sum(report.thread_segments) == segments
        assert report.counts == {}, report.counts

    return check


def test_load_with_kafkas_checks(compare: Compare, floors: Floors, data: Path) -> None:
    """Goal: 60% of the scan-and-stat floor, with a warm cache and one thread."""
    compare(f"load, Kafka's checks, {SEGMENTS:,} segments", load(data, LoadLevel.KAFKA),
            [Against("readdir and fstatat in C", lambda: floors.load(
                data / "load-0", indexes=False), goal=0.6, check=equals(SEGMENTS))],
            work=SEGMENTS, unit="segments", check=sound(SEGMENTS), rounds=7)


def test_load_with_full_checks(compare: Compare, floors: Floors, data: Path) -> None:
    """Goal: 70% of the open-fstat-pread-close floor."""
    compare(f"load, full checks, {SEGMENTS:,} segments", load(data, LoadLevel.FULL),
            [Against(IN_C, lambda: floors.load(data / "load-0", indexes=True), goal=0.7,
                     check=equals(SEGMENTS))],
            work=SEGMENTS, unit="segments", check=sound(SEGMENTS))


def test_two_threads(compare: Compare, floors: Floors, divided: Path) -> None:
    """Goal: two threads 1.8 times one. The floor's gain shows what the machine allows."""
    paths, check, where = partitions_of(divided), equals(SEGMENTS), in_partitions(divided)
    compare(f"phase one, full checks, 2 threads, {where}", phase_one(divided, LoadLevel.FULL, 2),
            [Against("1 thread", phase_one(divided, LoadLevel.FULL, 1), goal=1.8, check=check)],
            work=SEGMENTS, unit="segments", check=check, rounds=7)
    compare.again(f"{IN_C}, 2 threads, {where}", lambda: floors.load_by_threads(paths, 2),
                  [Against("1 thread", lambda: floors.load_by_threads(paths, 1), check=check)],
                  work=SEGMENTS, unit="segments", check=check, rounds=7)


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_opening_beside_kafka(compare: Compare, scratch: Path, partitions: int,
                              threads: int) -> None:
    """Goals: 4 times Kafka with its checks, 1.2 times with full checks. Kafka reads no index here.
    """
    with required():
        opening = cache(kafka.loader("segments", threads))
    root = scratch / f"opening-{partitions}"
    if not root.exists():
        write_segments(root, KAFKA_SEGMENTS // partitions, partitions=partitions)
    segments = KAFKA_SEGMENTS // partitions * partitions
    where = f"{threads} thread{'s' if threads > 1 else ''}, {in_partitions(root)}"
    beside = f"LogSegment.open and sanityCheck, {where}"
    for level, name, goal, turn in ((LoadLevel.KAFKA, "Kafka's", 4.0, compare),
                                    (LoadLevel.FULL, "full", 1.2, compare.again)):
        turn(f"phase one, {name} checks, {where}", phase_one(root, level, threads),
             [Against(beside, lambda: opening(root), once=True, goal=goal,
                      check=equals(segments))],
             work=segments, unit="segments", check=equals(segments))


def test_load_cold(compare: Compare, scratch: Path) -> None:
    """Goal: 32 threads three times one, with an empty page cache."""
    if not drop_caches():
        pytest.skip("a cold cache needs to write /proc/sys/vm/drop_caches: run as root on Linux")
    root = write_segments(scratch / "cold", COLD_SEGMENTS)
    compare(f"load, full checks, cold, 32 threads, {COLD_SEGMENTS:,} segments",
            load(root, LoadLevel.FULL, 32),
            [Against("1 thread", load(root, LoadLevel.FULL, 1), goal=3.0,
                     check=sound(COLD_SEGMENTS))],
            work=COLD_SEGMENTS, unit="segments", check=sound(COLD_SEGMENTS), rounds=3,
            before=drop_caches)
