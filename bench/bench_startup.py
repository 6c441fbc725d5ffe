"""Start-up and shutdown of a broker: seglog's LogManager next to Kafka's and to krabka-log."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import peers
from bench.data import drop_caches, tmpfs, write_segments
from bench.harness import Against, Compare, Row, Timed, equals, pick
from bench.peers import kafka
from bench.startup import CLEAN_SHUTDOWN, segments_of, start
from seglog.config import LoadConfig
from tests.kafka.harness import required

PARTITIONS = 4
DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
#: Segments of each partition: Kafka holds a descriptor of every segment, krabka-log three.
KAFKA_SEGMENTS = min(pick(100, 1_000, 3_500), DESCRIPTORS * 3 // 4 // PARTITIONS)
KRABKA_SEGMENTS = min(pick(100, 1_000, 1_500), DESCRIPTORS // 4 // PARTITIONS)
#: Partitions of three segments each, like most partitions of a broker.
SMALL_PARTITIONS = pick(50, 500, 2_000)
MANY_SEGMENTS = pick(1_000, 100_000, 1_000_000)
FEW_DESCRIPTORS = 1024


def start_up(root: Path, *, recovery: int = 1, loading: int = 1,
             partitions: int = PARTITIONS) -> Callable[[], Timed]:
    """A start-up, which times itself, and the clean shutdown that the next one needs."""
    config = LoadConfig(num_segment_loading_threads_per_data_dir=loading,
                        num_recovery_threads_per_data_dir=recovery)

    def run() -> Timed:
        seconds, manager = start(root, config)
        segments = segments_of(manager, root, partitions)
        manager.shutdown()
        assert (root / CLEAN_SHUTDOWN).exists()
        return Timed(seconds, segments)

    return run


def counted(segments: int, partitions: int = PARTITIONS) -> Callable[[object], None]:
    return equals(partitions * segments)


def written(root: Path, segments: int, partitions: int = PARTITIONS) -> Path:
    """A directory of `partitions` partitions, reused for every number of threads."""
    return root if root.exists() else write_segments(root, segments, partitions=partitions)


def by_threads(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def beside_kafka(compare: Compare, home: Path, what: str, threads: int, segments: int,
                 partitions: int = PARTITIONS, goal: float | None = None) -> None:
    """Compares our LogManager with Kafka's, each in its own directory."""
    with required():
        manager = kafka.loader("manager", threads)
    root = written(home, segments, partitions)
    kafkas = written(home.with_name(f"{home.name}-kafka"), segments, partitions)
    check = counted(segments, partitions)
    compare(f"start-up, {by_threads(threads)}, {what}",
            start_up(root, recovery=threads, partitions=partitions),
            [Against(f"Kafka's LogManager, warm, {by_threads(threads)}", lambda: manager(kafkas),
                     goal=goal, once=True, check=check)],
            work=partitions * segments, unit="segments", check=check)


@pytest.mark.parametrize("threads", [1, 2])
def test_beside_kafka(compare: Compare, scratch: Path, threads: int) -> None:
    """Goal: 20 times Kafka's LogManager, one thread each."""
    beside_kafka(compare, scratch / "startup", f"{PARTITIONS * KAFKA_SEGMENTS:,} segments", threads,
                 KAFKA_SEGMENTS, goal=20.0 if threads == 1 else None)


@pytest.mark.parametrize("threads", [1, 2])
def test_small_partitions(compare: Compare, scratch: Path, threads: int) -> None:
    """Measures the fixed cost of a partition. Goal: 8 times Kafka's rate."""
    beside_kafka(compare, scratch / "startup-small",
                 f"{SMALL_PARTITIONS:,} partitions of 3 segments", threads, 3, SMALL_PARTITIONS,
                 goal=8.0)


@pytest.mark.parametrize("threads", [1, 2])
def test_beside_krabka(compare: Compare, scratch: Path, threads: int) -> None:
    """Goal: 9 times krabka-log, one thread each."""
    krabka = peers.krabka_load(threads)
    root = written(scratch / "startup-few", KRABKA_SEGMENTS)
    krabkas = written(scratch / "startup-krabka", KRABKA_SEGMENTS)
    compare(f"start-up, {by_threads(threads)}, {PARTITIONS * KRABKA_SEGMENTS:,} segments",
            start_up(root, recovery=threads),
            [Against(f"krabka-log (Rust), {by_threads(threads)}", lambda: krabka(krabkas),
                     goal=9.0 if threads == 1 else None, check=counted(KRABKA_SEGMENTS))],
            work=PARTITIONS * KRABKA_SEGMENTS, unit="segments", check=counted(KRABKA_SEGMENTS))


def test_cold(compare: Compare, scratch: Path) -> None:
    """Goal: 4 times Kafka's LogManager, each with its best number of threads."""
    if not drop_caches():
        pytest.skip("a cold cache needs to write /proc/sys/vm/drop_caches: run as root on Linux")
    warm_up = write_segments(scratch / "startup-warm-up", KAFKA_SEGMENTS // 4,
                             partitions=PARTITIONS)
    root = written(scratch / "startup", KAFKA_SEGMENTS)
    kafkas = written(scratch / "startup-kafka", KAFKA_SEGMENTS)
    theirs: dict[int, float] = {}
    with required():
        for threads in pick((2,), (1, 2, 4), (1, 2, 4)):
            told = kafka.loader("manager", threads, warm_up=warm_up)(kafkas)
            counted(KAFKA_SEGMENTS)(told.result)
            theirs[threads] = told.seconds
    ours = {threads: _best_of(start_up(root, loading=threads)) for threads in (1, 8, 32)}
    compare.run_once(lambda: None)
    segments, fastest = PARTITIONS * KAFKA_SEGMENTS, min(theirs, key=theirs.__getitem__)
    best = min(ours, key=ours.__getitem__)
    for threads, seconds in ours.items():
        compare.add(Row(
            f"start-up, cold, {by_threads(threads)}, {segments:,} segments", "segments",
            segments / seconds, f"Kafka's LogManager, cold, {by_threads(fastest)}, its best",
            segments / theirs[fastest], theirs[fastest] / seconds,
            goal=4.0 if threads == best else None))


def _best_of(load: Callable[[], Timed], rounds: int = 3) -> float:
    """The seconds of the fastest of several cold loads, as Load.java counts them."""
    taken = []
    for _ in range(rounds):
        drop_caches()
        told = load()
        counted(KAFKA_SEGMENTS)(told.result)
        taken.append(told.seconds)
    return min(taken)


@pytest.fixture(scope="module")
def many() -> Iterator[Path]:
    """Two data directories, with many and with few segments, each with a producer snapshot."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("resident memory and descriptors: Linux only")
    try:
        with tmpfs(inodes=4 * MANY_SEGMENTS + 10_000) as root:
            for name, segments in (("many", MANY_SEGMENTS), ("few", 400)):
                write_segments(root / name, segments // PARTITIONS, indexed=False,
                               partitions=PARTITIONS, snapshots=True)
            yield root
    except OSError as error:
        pytest.skip(f"{MANY_SEGMENTS:,} segments need a file system in memory: {error}")


def test_many(compare: Compare, many: Path) -> None:
    """Goals: a start with 1,024 descriptors, and under 300 bytes a segment as measured by the
    system and by Python."""
    compare.run_once(lambda: None)
    told = {(what, memory): started(many / "many", many / "few", what, memory)
            for what in ("manager", "read") for memory in ("resident", "traced")}
    for (what, memory), one in told.items():
        assert one["segments"] == MANY_SEGMENTS
        kept = one["kept"] / MANY_SEGMENTS
        compare.add(Row(
            f"memory of {MANY_SEGMENTS:,} segments, "
            f"{'LogManager' if what == 'manager' else 'open_data_dir'}", "B each", kept,
            f"{'resident' if memory == 'resident' else 'tracemalloc'}, goal", 300.0, kept / 300,
            goal=1.0, at_most=True))
    one, read = told["manager", "resident"], told["read", "resident"]
    compare.add(Row(
        f"descriptors held with {MANY_SEGMENTS:,} segments", "descriptors held",
        one["descriptors"], "ulimit -n", FEW_DESCRIPTORS, one["descriptors"] / FEW_DESCRIPTORS,
        goal=1.0, at_most=True))
    compare.add(Row(
        f"start-up of {MANY_SEGMENTS:,} segments, ulimit -n {FEW_DESCRIPTORS:,}", "segments",
        MANY_SEGMENTS / one["startup_seconds"], "open_data_dir, read-only",
        MANY_SEGMENTS / read["startup_seconds"],
        read["startup_seconds"] / one["startup_seconds"]))


def started(root: Path, warm_up: Path, what: str, memory: str) -> dict[str, float]:
    """One start in a process of its own, as `bench.startup` tells it."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.startup", str(root), str(warm_up), what, memory,
         str(FEW_DESCRIPTORS)], capture_output=True, text=True, check=False,
        cwd=Path(__file__).resolve().parents[1])
    assert not done.returncode, done.stderr
    told: dict[str, float] = json.loads(done.stdout)
    return told
