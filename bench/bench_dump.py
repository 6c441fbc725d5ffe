"""`seglog dump` against kafka-dump-log: both write the lines of one large log to a file.

    python -m pytest bench/bench_dump.py --benchmark-only
    python -m bench.bench_dump                              (the same as a table of rates)

Both are processes of their own, run one after the other, and their files must be equal. A rate is
records a second of wall time, start included; "net" leaves out what the same tool takes for an
empty log. The log is 16 KiB batches of 100 B values, repeated, with offsets that go on.
"""

from __future__ import annotations

import filecmp
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import harness
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

RECORDS = int(os.environ.get("SEGLOG_BENCH_RECORDS", 1_000_000))
RECORDS_PER_BATCH = 140
NAME = "00000000000000000000.log"
OPTIONS = ("--deep-iteration", "--print-data-log")
GOAL = 10.0


def make_log(folder: Path, records: int) -> Path:
    """A log of whole batches; only their base offsets differ, which no CRC covers."""
    rng, start = random.Random(1), 1_700_000_000_000
    letters = b"abcdefghijklmnopqrstuvwxyz0123456789"
    one = [Record(offset=n, timestamp=start + n, value=bytes(rng.choices(letters, k=100)))
           for n in range(RECORDS_PER_BATCH)]
    data = bytearray(v2.encode(Batch(
        base_offset=0, last_offset_delta=len(one) - 1, records=one, base_timestamp=start,
        max_timestamp=start + len(one) - 1)))
    path = folder / NAME
    with open(path, "wb") as out:
        for first in range(0, records, len(one)):
            struct.pack_into(">q", data, 0, first)
            out.write(data)
    return path


def kafka(path: Path, option: str) -> list[str]:
    # The JVM of kafka-run-class.sh: both compilers, a heap of 256 MB.
    return [harness.java_command(), "-Xmx256m", "-cp", f"{harness.library()}/*",
            "org.apache.kafka.tools.DumpLogSegments", "--files", str(path), option]


def seglog(path: Path, option: str) -> list[str]:
    return [sys.executable, "-m", "seglog.cli.main", "dump", "--files", str(path), option]


def seconds(command: Sequence[str], out: Path) -> float:
    with open(out, "wb") as file:
        start = time.perf_counter()
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start


def measure(folder: Path, option: str, records: int = RECORDS) -> dict[str, float]:
    """Rates of both, in records a second, gross and net of their start."""
    records -= records % RECORDS_PER_BATCH
    log, empty = make_log(folder, records), folder / "empty" / NAME
    empty.parent.mkdir()
    empty.touch()
    rates: dict[str, float] = {}
    tools: dict[str, Callable[[Path, str], list[str]]] = {"kafka": kafka, "seglog": seglog}
    for name, command in tools.items():
        log.read_bytes()  # into the page cache
        start = min(seconds(command(empty, option), folder / "nothing") for _ in range(2))
        rounds = 3 if name == "seglog" else 1
        took = min(seconds(command(log, option), folder / name) for _ in range(rounds))
        rates[name], rates[f"{name}_net"] = records / took, records / max(took - start, 1e-9)
    assert filecmp.cmp(folder / "kafka", folder / "seglog", shallow=False)
    return rates


@pytest.mark.parametrize("option", OPTIONS)
def test_dump(option: str, tmp_path: Path, benchmark: Any) -> None:
    """The goal of the project's first issue: at least ten times kafka-dump-log's rate."""
    try:
        rates = measure(tmp_path, option)
    except harness.KafkaUnavailable as error:
        pytest.skip(f"no real Kafka: {error}")
    benchmark.extra_info.update(rates)
    benchmark.pedantic(seconds, (seglog(tmp_path / NAME, option), tmp_path / "again"), rounds=1)
    assert rates["seglog"] / rates["kafka"] >= GOAL


def main() -> None:
    """Prints the table."""
    for option in OPTIONS:
        with tempfile.TemporaryDirectory() as folder:
            rates = measure(Path(folder), option)
        print(f"{option:18} kafka-dump-log {rates['kafka'] / 1e6:6.3f} Mrec/s "
              f"(net {rates['kafka_net'] / 1e6:6.3f})   seglog {rates['seglog'] / 1e6:6.3f} "
              f"(net {rates['seglog_net'] / 1e6:6.3f})   "
              f"ratio {rates['seglog'] / rates['kafka']:5.1f} "
              f"(net {rates['seglog_net'] / rates['kafka_net']:5.1f})")


if __name__ == "__main__":
    main()
