"""`seglog dump` next to kafka-dump-log: both write the lines of one large log to a file.

Each runs as a separate process, and the files must be identical. The first ratio is of whole
processes, including their start; the second subtracts each tool's time for an empty log.
"""

from __future__ import annotations

import filecmp
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.data import Log, write_log
from bench.harness import Against, Compare, Row, Timed, pick
from bench.peers import kafka
from tests.kafka.harness import required

RECORDS = pick(5_000, 400_000, 2_000_000)


@pytest.fixture(scope="module")
def log(scratch: Path) -> Log:
    """16 KiB batches of 100 B values."""
    return write_log(scratch / "dump-0", RECORDS)


def kafka_command(path: Path, option: str) -> list[str]:
    """The command line of kafka-run-class.sh, with the same heap and compilers."""
    return kafka.java("org.apache.kafka.tools.DumpLogSegments", "--files", str(path), option,
                      heap="256m")


def own_command(path: Path, option: str) -> list[str]:
    return [sys.executable, "-m", "seglog", "dump", "--files", str(path), option]


def written(command: list[str], out: Path) -> Timed:
    """The seconds of a process that writes to a file."""
    with open(out, "wb") as file:
        start = time.perf_counter()
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
        return Timed(time.perf_counter() - start, out)


@pytest.mark.parametrize("option", ["--deep-iteration", "--print-data-log"])
def test_dump(compare: Compare, log: Log, tmp_path: Path, option: str) -> None:
    """Goal: ten times kafka-dump-log's rate, including the start."""
    with required():
        theirs = kafka_command(log.path, option)
    empty = tmp_path / "empty" / log.path.name
    empty.parent.mkdir()
    empty.touch()
    taken: dict[str, list[float]] = {"kafka": [], "own": []}

    def keep(name: str, command: list[str]) -> Timed:
        done = written(command, tmp_path / name)
        taken[name].append(done.seconds)
        return done

    def same(out: Path) -> None:
        assert filecmp.cmp(out, tmp_path / "kafka", shallow=False)

    compare(f"dump {option} to a file", lambda: keep("own", own_command(log.path, option)),
            [Against("kafka-dump-log", lambda: keep("kafka", theirs), goal=10.0, once=True,
                     work=log.records / 1e6)],
            work=log.records / 1e6, unit="Mrecords", check=same, rounds=3)
    rates = {}
    for name, command in (("kafka", kafka_command), ("own", own_command)):
        start = min(written(command(empty, option), tmp_path / "nothing").seconds
                    for _ in range(2))
        rates[name] = log.records / 1e6 / max(min(taken[name]) - start, 1e-9)
    compare.add(Row(f"dump {option}, without the start", "Mrecords", rates["own"],
                    "kafka-dump-log", rates["kafka"], rates["own"] / rates["kafka"]))
    for name in taken:
        (tmp_path / name).unlink()
