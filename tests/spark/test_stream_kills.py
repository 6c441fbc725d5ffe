"""Exactly once: the driver, the source's process and the executors' workers are killed while a
stream reads growing logs, and every record is in the output once.

SEGLOG_STREAM_KILLS is the number of kills (5), SEGLOG_STREAM_SEED the seed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import seglog

KILLS = int(os.environ.get("SEGLOG_STREAM_KILLS", "5"))
SEED = int(os.environ.get("SEGLOG_STREAM_SEED", "11"))
JOB = Path(__file__).with_name("stream_job.py")

pytestmark = [
    pytest.mark.judge,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds processes in /proc"),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a JDK of at least 17"),
]


class Job:
    """The query's driver program and its child processes."""

    def __init__(self, home: Path, spark_home: Path) -> None:
        source = str(Path(__file__).resolve().parents[2] / "src")
        environment = {**os.environ, "SPARK_HOME": str(spark_home),
                       "PYSPARK_PYTHON": sys.executable}
        if os.environ.get("SEGLOG_INSTALLED") != "1":
            environment["PYTHONPATH"] = source
        self.log = home / "log"
        self.begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as written:
            self.process = subprocess.Popen(
                [sys.executable, str(JOB), *(str(home / name) for name in (
                    "data", "checkpoint", "out", "stop"))],
                stdout=written, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                env=environment, start_new_session=True)

    def said(self) -> str:
        """The driver's output so far."""
        with self.log.open() as written:
            written.seek(self.begin)
            return written.read()

    def below(self) -> Iterator[tuple[int, str]]:
        """(process id, command line) of every process below the driver."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with suppress(OSError, IndexError, ValueError):
                    stat = Path("/proc", entry, "stat").read_text()
                    children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(
                        int(entry))
        waiting = [self.process.pid]
        while waiting:
            for child in children.get(waiting.pop(), ()):
                waiting.append(child)
                with suppress(OSError):
                    yield child, Path("/proc", str(child), "cmdline").read_text()

    def kill_one(self, rng: random.Random, program: str) -> bool:
        """Kills a Python process that runs `program`."""
        found = [number for number, command in self.below() if program in command]
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
        return True

    def kill(self) -> None:
        """Kills the driver and all processes below it at once, as a power cut would."""
        numbers = [number for number, _ in self.below()]
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait()


@contextmanager
def writers(data: Path) -> Iterator[dict[int, int]]:
    """Two growing logs; returns the end of each when they are closed."""
    stop, ends = threading.Event(), dict.fromkeys(range(2), 0)

    def write(partition: int) -> None:
        config = {"internal.segment.bytes": 100_000}
        with seglog.open(data / f"t-{partition}", config=config) as log:
            while not stop.is_set():
                log.append_many([b"v" * 50] * 20)
                time.sleep(.05)
            ends[partition] = log.log_end_offset
    threads = [threading.Thread(target=write, args=(number,)) for number in ends]
    for thread in threads:
        thread.start()
    try:
        while not all(list(data.glob(f"t-{number}/*.log")) for number in ends):
            time.sleep(.05)
        yield ends
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_every_record_once(tmp_path: Path, spark_home: Path) -> None:
    rng = random.Random(SEED)
    for name in ("data", "out"):
        (tmp_path / name).mkdir()
    kills, job = Counter[str](), None
    try:
        with writers(tmp_path / "data") as ends:
            while sum(kills.values()) < KILLS:
                job = job or Job(tmp_path, spark_home)
                deadline = time.monotonic() + 240
                while "batch" not in job.said() and time.monotonic() < deadline \
                        and job.process.poll() is None:
                    time.sleep(.1)
                time.sleep(rng.random() * 3)
                kind = rng.choice(["driver", "source", "worker", "worker"])
                if kind == "driver":
                    job.kill()
                    job = None
                elif not job.kill_one(rng, {"source": "python_streaming_source_runner",
                                            "worker": "pyspark.daemon"}[kind]):
                    continue
                kills[kind] += 1
                print(f"killed {kind}, {sum(kills.values())} of {KILLS}", flush=True)
        (tmp_path / "stop").touch()
        job = job or Job(tmp_path, spark_home)
        assert job.process.wait(timeout=600) == 0, job.said()
        assert "done" in job.said()
    finally:
        if job is not None:
            job.kill()
    found = Counter((partition, offset) for file in (tmp_path / "out").glob("*.json")
                    for _, partition, offset in json.loads(file.read_text()))
    assert not [place for place, times in found.items() if times > 1]
    assert found.keys() == {(partition, offset) for partition, end in ends.items()
                            for offset in range(end)}
    print(f"{dict(kills)} kills, {len(list((tmp_path / 'out').glob('*.json')))} batches, "
          f"{len(found)} records")
