"""Loading a partition of many segments, beside the system calls it cannot do without.

Each ratio is taken in one run: floor and seglog take turns, and the median of the turns counts.
`SEGLOG_BENCH_SEGMENTS` (5,000; 100,000 for the figures of the README) is the number of segments,
`SEGLOG_BENCH_CACHE` where the directory is made, `SEGLOG_BENCH_DROP_CACHES=1` adds the cold cache
(it writes /proc/sys/vm/drop_caches, so it needs root). Results are asserted, times are not.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog

SEGMENTS = int(os.environ.get("SEGLOG_BENCH_SEGMENTS", "5000"))
ROUNDS = int(os.environ.get("SEGLOG_BENCH_ROUNDS", "5"))
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
SPACING = 1000


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """One partition of small segments; removed at the end."""
    parent = os.environ.get("SEGLOG_BENCH_CACHE")
    root = Path(tempfile.mkdtemp(prefix="seglog-load-", dir=parent))
    partition = root / "load-0"
    partition.mkdir()
    (root / ".kafka_cleanshutdown").touch()
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w")
    index = b"".join(struct.pack(">ii", n * 10 + 9, n * 500 + 100) for n in range(6))
    times = b"".join(struct.pack(">qi", 1_700_000_000_000 + n, n * 10 + 9) for n in range(4))
    here = os.open(partition, os.O_RDONLY)
    try:
        for number in range(SEGMENTS):
            for suffix, content in (("log", b""), ("index", index), ("timeindex", times)):
                fd = os.open(f"{number * SPACING:020d}.{suffix}", os.O_CREAT | os.O_WRONLY,
                             dir_fd=here)
                if content:
                    os.write(fd, content)
                else:
                    os.truncate(fd, 4096)  # sparse: only its size is looked at
                os.close(fd)
        # The active segment is empty, so that no load depends on a log's bytes.
        os.truncate(f"{partition}/{(SEGMENTS - 1) * SPACING:020d}.log", 0)
        for suffix in ("index", "timeindex"):
            os.truncate(f"{partition}/{(SEGMENTS - 1) * SPACING:020d}.{suffix}", 0)
    finally:
        os.close(here)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C floors, built for this run."""
    program = tmp_path_factory.mktemp("floor") / "floor_load"
    source = Path(__file__).with_name("floor_load.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, source], check=True)
    return program


def run_floor(program: Path, mode: str, data: Path, processes: int = 1) -> float:
    """Seconds, over all processes together."""
    started = time.perf_counter()
    running = [subprocess.Popen([program, mode, data / "load-0", str(processes), str(part)],
                                stdout=subprocess.PIPE, text=True) for part in range(processes)]
    told = [one.communicate()[0].split() for one in running]
    assert sum(int(segments) for segments, *_ in told) == SEGMENTS
    if processes == 1:
        return float(told[0][1])
    return time.perf_counter() - started


def load(data: Path, level: Any, threads: int) -> float:
    """Seconds of a whole load: both phases, report included."""
    started = time.perf_counter()
    with seglog.open_data_dir(data, level=level, num_segment_loading_threads=threads) as loaded:
        seconds = time.perf_counter() - started
        assert loaded.report.segments == sum(loaded.report.thread_segments) == SEGMENTS
        assert set(loaded.report.counts) == {"meta-properties-missing"}
    return seconds


def turns(*runs: Callable[[], float], before: Callable[[], None] | None = None) -> list[float]:
    """The median seconds of each, taken in turns."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for row, one in zip(seconds, runs, strict=True):
            if before is not None:
                before()
            row.append(one())
    return [statistics.median(row) for row in seconds]


def note(benchmark: Any, **figures: float) -> None:
    """Figures beside the benchmark's own timing, and on the screen."""
    benchmark.extra_info.update({"segments": SEGMENTS, **figures})
    print("\n" + ", ".join(f"{name} {value:,.2f}" for name, value in figures.items()))


def test_load_with_kafkas_checks(benchmark: Any, data: Path, floor: Path) -> None:
    """Goal: 60% of the scan-and-stat floor, one thread."""
    least, taken = turns(lambda: run_floor(floor, "scan", data), lambda: load(data, "kafka", 1))
    benchmark.pedantic(load, (data, "kafka", 1), rounds=1)
    note(benchmark, of_floor=least / taken, floor_segments_per_second=SEGMENTS / least,
         segments_per_second=SEGMENTS / taken)


def test_load_with_full_checks(benchmark: Any, data: Path, floor: Path) -> None:
    """Goals: 70% of the open-fstat-pread-close floor, and two threads 1.7 times one."""
    least, one, two, least_two = turns(
        lambda: run_floor(floor, "open", data), lambda: load(data, "full", 1),
        lambda: load(data, "full", 2), lambda: run_floor(floor, "open", data, processes=2))
    benchmark.pedantic(load, (data, "full", 1), rounds=1)
    note(benchmark, of_floor=least / one, two_threads=one / two, floor_two=least / least_two,
         floor_segments_per_second=SEGMENTS / least, segments_per_second=SEGMENTS / one)


@pytest.mark.skipif(os.environ.get("SEGLOG_BENCH_DROP_CACHES") != "1",
                    reason="SEGLOG_BENCH_DROP_CACHES=1 measures the cold cache")
def test_load_with_full_checks_cold(benchmark: Any, data: Path) -> None:
    """Goal: 32 threads three times one."""

    def cold() -> None:
        os.sync()
        DROP_CACHES.write_text("3\n")

    one, many = turns(lambda: load(data, "full", 1), lambda: load(data, "full", 32), before=cold)
    benchmark.pedantic(load, (data, "full", 32), setup=cold, rounds=1)
    note(benchmark, threads_32=one / many, one_segments_per_second=SEGMENTS / one,
         many_segments_per_second=SEGMENTS / many)


def test_memory_of_loaded_segments(benchmark: Any, data: Path) -> None:
    """Goal: under 300 bytes a segment."""
    with seglog.open_data_dir(data) as loaded:
        bytes_each = loaded.segments("load-0").nbytes / SEGMENTS
    benchmark.pedantic(load, (data, "kafka", 1), rounds=1)
    assert bytes_each < 300
    note(benchmark, bytes_per_segment=bytes_each)
