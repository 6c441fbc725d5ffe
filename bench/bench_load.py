"""Loading a data directory, beside the system calls that it cannot do without and Kafka itself."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import seglog
from bench.data import write_segments
from bench.floors import Floors
from bench.harness import Against, Compare, Row, Timed, pick, size
from bench.peers import kafka
from tests.kafka.harness import KafkaUnavailable

SEGMENTS = pick(500, 10_000, 100_000)
COLD_SEGMENTS = pick(500, 5_000, 50_000)
MEMORY_SEGMENTS = pick(500, 50_000, 1_000_000)
#: Kafka holds a descriptor of every segment, so it gets no more than those.
KAFKA_SEGMENTS = min(pick(500, 5_000, 15_000), resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
Level = Literal["kafka", "full"]


@pytest.fixture(scope="module")
def data(scratch: Path) -> Path:
    """One partition of small segments."""
    return write_segments(scratch / "load", SEGMENTS)


def load(root: Path, level: Level, threads: int) -> Callable[[], Any]:
    """A whole load: both phases and the report."""
    def run() -> Any:
        with seglog.open_data_dir(root, level=level, num_segment_loading_threads=threads) as found:
            return found.report

    return run


def sound(segments: int) -> Callable[[Any], None]:
    """Every segment was loaded, and nothing is wrong."""
    def check(report: Any) -> None:
        assert report.segments == sum(report.thread_segments) == segments
        assert report.counts == {}, report.counts

    return check


def counted(segments: int) -> Callable[[int], None]:
    def check(found: int) -> None:
        assert found == segments

    return check


def test_load_with_kafkas_checks(compare: Compare, floors: Floors, data: Path) -> None:
    """Goal: 60% of the scan-and-stat floor, warm, one thread."""
    compare(f"load, Kafka's checks, {SEGMENTS:,} segments", load(data, "kafka", 1),
            [Against("readdir and fstatat in C", lambda: floors.load(
                data / "load-0", indexes=False), goal=0.6, check=counted(SEGMENTS))],
            work=SEGMENTS, unit="segments", check=sound(SEGMENTS), rounds=7)


def test_load_beside_kafka(compare: Compare, scratch: Path) -> None:
    """Kafka's LogManager on a directory of its own, which it changes."""
    try:
        manager = kafka.log_manager()
    except KafkaUnavailable as error:
        pytest.skip(f"no real Kafka: {error}")
    own = write_segments(scratch / "kafka", KAFKA_SEGMENTS)
    root = write_segments(scratch / "beside", KAFKA_SEGMENTS)
    compare(f"load, Kafka's checks, {KAFKA_SEGMENTS:,} segments", load(root, "kafka", 1),
            [Against("Kafka's LogManager, warm, 1 thread", lambda: manager(own), once=True,
                     check=counted(KAFKA_SEGMENTS))],
            work=KAFKA_SEGMENTS, unit="segments", check=sound(KAFKA_SEGMENTS))


def test_load_with_full_checks(compare: Compare, floors: Floors, data: Path) -> None:
    """Goals: 70% of the open-fstat-pread-close floor; two threads 1.7 times one."""
    compare(f"load, full checks, {SEGMENTS:,} segments", load(data, "full", 1),
            [Against("open, fstat, pread, close in C", lambda: floors.load(
                data / "load-0", indexes=True), goal=0.7, check=counted(SEGMENTS))],
            work=SEGMENTS, unit="segments", check=sound(SEGMENTS))


def test_load_by_two_threads(compare: Compare, data: Path) -> None:
    """Goal: two threads 1.7 times one."""
    compare("load, full checks, 2 threads", load(data, "full", 2),
            [Against("1 thread", load(data, "full", 1), goal=1.7, check=sound(SEGMENTS))],
            work=SEGMENTS, unit="segments", check=sound(SEGMENTS), rounds=7)


def drop_caches() -> None:
    """Forgets every cached page, name and inode of this machine."""
    os.sync()
    DROP_CACHES.write_text("3\n")


def test_load_cold(compare: Compare, scratch: Path) -> None:
    """Goal: 32 threads three times one, when nothing is in the page cache."""
    if not os.access(DROP_CACHES, os.W_OK):
        pytest.skip(f"a cold cache needs to write {DROP_CACHES}: run as root on Linux")
    root = write_segments(scratch / "cold", COLD_SEGMENTS)
    compare(f"load, full checks, cold, 32 threads, {COLD_SEGMENTS:,} segments",
            load(root, "full", 32),
            [Against("1 thread", load(root, "full", 1), goal=3.0, check=sound(COLD_SEGMENTS))],
            work=COLD_SEGMENTS, unit="segments", check=sound(COLD_SEGMENTS), rounds=3,
            before=drop_caches)


# Runs alone in a fresh process, so that memory which an earlier load gave back to the allocator
# does not hide what this one keeps.
_MEASURE = """
import gc, json, sys, tracemalloc, seglog
def resident():
    pages = open("/proc/self/statm").read().split()[1]
    return int(pages) * __import__("resource").getpagesize()
with seglog.open_data_dir(sys.argv[2]) as warm:
    assert warm.report.segments
traced = sys.argv[3] == "traced"
gc.collect()
if traced:
    tracemalloc.start()
before = tracemalloc.get_traced_memory()[0] if traced else resident()
found = seglog.open_data_dir(sys.argv[1])
gc.collect()
after = tracemalloc.get_traced_memory()[0] if traced else resident()
assert found.report.counts == {}, found.report.counts
print(json.dumps([found.report.segments, after - before]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory: Linux only")
def test_memory(compare: Compare, scratch: Path) -> None:
    """Goal: a million loaded segments under 300 bytes each, by the system and by Python."""
    root = write_segments(scratch / "memory", MEMORY_SEGMENTS, indexed=False)
    warm = write_segments(scratch / "warm", 100)
    command = [sys.executable, "-c", _MEASURE, str(root), str(warm)]
    for kind, name in (("resident", "resident memory"), ("traced", "tracemalloc")):
        told = compare.run_once if kind == "resident" else (lambda run: run())
        segments, kept = json.loads(str(told(lambda kind=kind: subprocess.run(
            [*command, kind], capture_output=True, text=True, check=True).stdout)))
        assert segments == MEMORY_SEGMENTS
        compare.add(Row(f"memory of {MEMORY_SEGMENTS:,} loaded segments", "B each",
                        kept / segments, f"{name}, goal", 300.0, kept / segments / 300, goal=1.0,
                        at_most=True))
