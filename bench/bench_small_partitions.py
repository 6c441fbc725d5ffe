"""2,000 partitions of three segments each, as most brokers have: what surrounds their start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from bench.bench_startup import SMALL_PARTITIONS, counted, start_up, started, written
from bench.data import last_base_offset
from bench.floors import Floors
from bench.harness import Against, Compare, Row, Timed, pick
from bench.peers import kafka
from bench.startup import CLEAN_SHUTDOWN, start
from seglog.log.batch_builder import RecordBatchBuilder
from tests.kafka.harness import required

SEGMENTS = 3
MANY = SMALL_PARTITIONS * 10
#: Partitions that need recovery after a crash.
RECOVERED = 20
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HELP_SECONDS = 0.060
WHAT = f"{SMALL_PARTITIONS:,} partitions of {SEGMENTS} segments"
CHECK = counted(SEGMENTS, SMALL_PARTITIONS)


@pytest.fixture
def small(scratch: Path) -> Path:
    return written(scratch / "startup-small", SEGMENTS, SMALL_PARTITIONS)


def of_process(*args: str) -> Callable[[], Timed]:
    """The seconds of a process of Python, from its start to its end."""
    def run() -> Timed:
        started = time.perf_counter()
        subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL)
        return Timed(time.perf_counter() - started, None)

    return run


def test_beside_the_floor(compare: Compare, small: Path, floors: Floors) -> None:
    """Goal: within 2.5 times a C program that lists the directories and reads both indexes of each
    segment."""
    partitions = sorted(path for path in small.iterdir() if path.is_dir())

    def floor() -> int:
        return sum(floors.load(path, indexes=True) for path in partitions)

    compare(f"start-up, {WHAT}", start_up(small, partitions=SMALL_PARTITIONS),
            [Against("C: list, open, stat and read the indexes", floor, goal=1 / 2.5, check=CHECK)],
            work=SMALL_PARTITIONS * SEGMENTS, unit="segments", check=CHECK)


def test_shutdown(compare: Compare, small: Path) -> None:
    """Nothing was written. Goal: 4 times Kafka's."""
    with required():
        theirs = kafka.loader("shutdown", 1)
    kafkas = written(small.with_name(f"{small.name}-kafka"), SEGMENTS, SMALL_PARTITIONS)

    def run() -> Timed:
        _, manager = start(small)
        started = time.perf_counter()
        manager.shutdown()
        seconds = time.perf_counter() - started
        assert (small / CLEAN_SHUTDOWN).exists()
        return Timed(seconds, SMALL_PARTITIONS * SEGMENTS)

    compare(f"shutdown, nothing written, {WHAT}", run,
            [Against("Kafka's LogManager, warm", lambda: theirs(kafkas), goal=4.0, once=True,
                     check=CHECK)],
            work=SMALL_PARTITIONS, unit="partitions", check=CHECK)


def test_read_only(compare: Compare, small: Path) -> None:
    """Goal: no slower than the manager's start, which has two threads unless it is told."""
    def opened() -> int:
        with seglog.open_data_dir(small, num_segment_loading_threads=2) as data:
            return sum(one.segments for one in data.report.partitions)

    compare(f"open_data_dir, {WHAT}", opened,
            [Against("LogManager's start", start_up(small, partitions=SMALL_PARTITIONS), goal=1.0,
                     check=CHECK)],
            work=SMALL_PARTITIONS, unit="partitions", check=CHECK)


def test_ls(compare: Compare, small: Path) -> None:
    """Goal: no slower than a process that starts a manager and ends it."""
    manager = "import sys, seglog\nwith seglog.LogManager([sys.argv[1]]): pass"
    compare(f"seglog ls, {WHAT}", of_process("-m", "seglog", "ls", str(small)),
            [Against("a process with a LogManager", of_process("-c", manager, str(small)),
                     goal=1.0)],
            work=SMALL_PARTITIONS, unit="partitions")


@pytest.mark.parametrize("verb", ["load --dry-run", "ls --segments"])
def test_verbs(compare: Compare, small: Path, verb: str) -> None:
    """Goal: within twice the time of a load of the same directory."""
    compare(f"seglog {verb}, {WHAT}", of_process("-m", "seglog", *verb.split(), str(small)),
            [Against("seglog load", of_process("-m", "seglog", "load", str(small)), goal=1 / 2)],
            work=SMALL_PARTITIONS, unit="partitions")


def test_help(compare: Compare) -> None:
    """Goal: under 60 ms, the interpreter's own included."""
    compare.run_once(lambda: None)
    run = of_process("-m", "seglog", "--help")
    seconds = min(run().seconds for _ in range(7))
    compare.add(Row("seglog --help", "ms", seconds * 1e3, "goal", HELP_SECONDS * 1e3,
                    seconds / HELP_SECONDS, goal=1.0, at_most=True))


def test_unclean(compare: Compare, small: Path) -> None:
    """Without the marker every active segment is recovered, all empty here. Goal: within 1.3 times
    the clean start."""
    home = Path(shutil.copytree(small, small.with_name("startup-unclean")))
    again = start_up(home, partitions=SMALL_PARTITIONS)

    def run() -> Timed:
        (home / CLEAN_SHUTDOWN).unlink()
        return again()

    compare(f"unclean start, {WHAT}", run,
            [Against("the clean start", start_up(small, partitions=SMALL_PARTITIONS),
                     goal=1 / 1.3, check=CHECK)],
            work=SMALL_PARTITIONS, unit="partitions", check=CHECK)


def died_with_appends(home: Path, partitions: int = RECOVERED) -> Path:
    """Logs that have records after their recovery points, as a process that dies leaves them."""
    builder = RecordBatchBuilder()
    for number in range(100):
        builder.append(1_700_000_000_000 + number, b"key", b"v" * 100)
    record_batch = bytes(builder.build())
    image = home.with_name(f"{home.name}-image")
    if not image.exists():
        with seglog.LogManager(written(home, SEGMENTS, partitions)) as manager:
            for log in manager.all_logs:
                log.append_as_leader(record_batch, 0)
            copy(home, image)
        (image / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        write_recovery_points(image, partitions)
    return image


def copy(source: Path, target: Path) -> None:
    """Copies a data directory; indexes of 10 MiB are full of holes."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-r", "--sparse=auto", source, target], check=True)


def write_recovery_points(home: Path, partitions: int) -> None:
    """Those of the last segments' base offsets: the last roll flushed what was before."""
    with (home / RECOVERY_POINTS).open("w") as file:
        file.write(f"0\n{partitions}\n")
        file.writelines(f"load {number} {last_base_offset(SEGMENTS)}\n"
                        for number in range(partitions))


def crashed_start(home: Path, image: Path, partitions: int) -> Callable[[], Timed]:
    """A start after a crash that left the partitions of `image` to be recovered. It counts the
    segments by the reports, so that it opens no log."""
    def run() -> Timed:
        for partition in image.glob("load-*"):
            shutil.copytree(partition, home / partition.name, dirs_exist_ok=True)
            for path in (home / partition.name).iterdir():
                if not (partition / path.name).exists():
                    path.unlink()
        write_recovery_points(home, partitions)
        (home / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        if pick(False, True, True):
            os.sync()
        seconds, manager = start(home)
        [report] = manager.load_reports.values()
        segments = sum(one.segments for one in report.partitions)
        recovered = sum(one.log_end_offset == last_base_offset(SEGMENTS) + 100
                        for one in report.partitions)
        manager.shutdown()
        assert recovered == RECOVERED, recovered
        return Timed(seconds, segments)

    return run


def test_unclean_with_appends(compare: Compare, small: Path) -> None:
    """Goal: within 1.3 times the clean start and the recovery of the logs that need it."""
    alone = small.with_name("startup-appends")
    image = died_with_appends(alone)
    home = small.with_name("startup-unclean-appends")
    if not home.exists():
        shutil.copytree(small, home)
    crashed = crashed_start(home, image, SMALL_PARTITIONS)
    only = crashed_start(alone, image, RECOVERED)
    clean = start_up(small, partitions=SMALL_PARTITIONS)

    def apart() -> Timed:
        first, second = clean(), only()
        return Timed(first.seconds + second.seconds, first.result)

    compare(f"unclean start, {WHAT}, {RECOVERED} of them with records to recover", crashed,
            [Against(f"the clean start, and the start of those {RECOVERED}", apart, goal=1 / 1.3,
                     check=CHECK)],
            work=SMALL_PARTITIONS, unit="partitions", check=CHECK)


def test_unclean_with_appends_everywhere(compare: Compare, small: Path) -> None:
    """A broker that died: each of its logs has records after its recovery point."""
    with required():
        theirs = kafka.loader("crashed", 1)
    home = small.with_name("startup-died")
    image = died_with_appends(home, SMALL_PARTITIONS)

    def run() -> Timed:
        copy(image, home)
        seconds, manager = start(home)
        [report] = manager.load_reports.values()
        assert all(one.log_end_offset == last_base_offset(SEGMENTS) + 100
                   for one in report.partitions)
        manager.shutdown()
        return Timed(seconds, sum(one.segments for one in report.partitions))

    compare(f"unclean start, {WHAT}, all with records to recover", run,
            [Against("Kafka's LogManager, warm", lambda: theirs(home), once=True, check=CHECK)],
            work=SMALL_PARTITIONS, unit="partitions", check=CHECK)


def test_memory(compare: Compare, small: Path) -> None:
    """Goal: under 2 KiB a partition, as measured by the system."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("resident memory: Linux only")
    compare.run_once(lambda: None)
    many = written(small.with_name("startup-ten-times"), SEGMENTS, MANY)
    told = started(many, small, "manager", "resident")
    assert told["segments"] == MANY * SEGMENTS
    kept = told["kept"] / MANY
    compare.add(Row(f"memory of {MANY:,} partitions of {SEGMENTS} segments, LogManager", "B each",
                    kept, "resident, goal", 2048.0, kept / 2048, goal=1.0, at_most=True))


def test_ten_times_as_many(compare: Compare, small: Path) -> None:
    """Goal: the same for each partition."""
    many = written(small.with_name("startup-ten-times"), SEGMENTS, MANY)
    compare(f"start-up, {MANY:,} partitions of {SEGMENTS} segments",
            start_up(many, partitions=MANY),
            [Against(f"{SMALL_PARTITIONS:,} partitions",
                     start_up(small, partitions=SMALL_PARTITIONS), goal=0.8,
                     work=SMALL_PARTITIONS, check=CHECK)],
            work=MANY, unit="partitions", check=counted(SEGMENTS, MANY), rounds=3)
