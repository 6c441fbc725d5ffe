"""Runs Spark in a separate process pinned to CPUs: `python -m bench.pinned 0,1 PATH [SETTINGS]`.

For each line of input it reads all of PATH into `noop` and prints the seconds. The JVM and its
Python workers inherit the CPUs, which no Spark setting can do. SETTINGS are Spark's, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import SPARK_JVM, Timed


class PinnedSpark:
    """The parent's handle of one such process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read_all(self) -> Timed:
        """Reads all columns once; returns the number of rows with the seconds of the process."""
        ask, answers = self._process.stdin, self._process.stdout
        assert ask is not None and answers is not None
        ask.write("read\n")
        ask.flush()
        seconds, rows = answers.readline().split()
        return Timed(float(seconds), int(rows))


@contextmanager
def pinned_spark(cpus: Collection[int], path: Path, **settings: str) -> Iterator[PinnedSpark]:
    """Starts Spark with a task slot on each of `cpus`, and stops it at the end. Setting names use
    `_` for `.`."""
    conf = {name.replace("_", "."): value for name, value in settings.items()}
    command = [sys.executable, "-m", "bench.pinned", ",".join(map(str, cpus)), str(path),
               json.dumps(conf)]
    root = str(Path(__file__).resolve().parents[1])
    search = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          cwd=root, env=os.environ | {"PYTHONPATH": search}) as process:
        yield PinnedSpark(process)
        process.communicate()


def main(cpus: str, path: str, settings: str = "{}") -> None:
    """Answers every line of standard input."""
    chosen = {int(cpu) for cpu in cpus.split(",")}
    os.sched_setaffinity(0, chosen)
    import seglog.spark

    spark = seglog.spark.session(f"local[{len(chosen)}]", conf={
        "spark.ui.enabled": False, "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": SPARK_JVM, **json.loads(settings)})
    frame = spark.read.format("seglog").load(path)
    rows = seglog.spark.count(spark, path).records
    for _ in sys.stdin:
        start = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        print(time.perf_counter() - start, rows, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
