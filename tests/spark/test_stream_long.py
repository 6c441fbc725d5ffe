"""Long-running streams: thousands of triggers leak nothing and cost little while idle; logs that
grow, roll and are preallocated meanwhile are read once."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.spark.test_stream_reader import Driver
from tests.support.held import open_files, threads_since

pytestmark = pytest.mark.judge

TRIGGERS = int(os.environ.get("SEGLOG_IDLE_TRIGGERS", "2000"))


def test_idle_triggers_leak_nothing_and_open_no_log(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        with seglog.open(tmp_path / f"t-{number}") as log:
            log.append(b"x")
    for directory in tmp_path.glob("t-*"):
        for file in (*directory.iterdir(), directory):
            os.utime(file, (1_000_000, 1_000_000))
    driver = Driver(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    driver.drain()
    opened: list[object] = []
    real = seglog.PartitionLog.open

    def counting(*args: Any, **kwargs: Any) -> seglog.PartitionLog:
        opened.append(args)
        return real(*args, **kwargs)
    monkeypatch.setattr(seglog.PartitionLog, "open", counting)
    for _ in range(100):
        assert not driver.trigger()
    files, threads = open_files(tmp_path), set(threading.enumerate())
    tracemalloc.start()
    try:
        for _ in range(20):
            driver.trigger()
        gc.collect()
        bytes_before = tracemalloc.get_traced_memory()[0]
        for _ in range(TRIGGERS):
            driver.trigger()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - bytes_before
    finally:
        tracemalloc.stop()
    assert open_files(tmp_path) == files and not threads_since(threads)
    assert grown < 32 * 1024
    assert not opened
    assert sorted(os.listdir(tmp_path / "t-0")) == sorted(os.listdir(tmp_path / "t-3"))


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("is_old", [False, True])
def test_logs_that_are_being_written(tmp_path: Path, is_old: bool, preallocate: bool) -> None:
    config = {"internal.segment.bytes": 50_000, "preallocate": preallocate,
              "index.interval.bytes": 400}
    stop = threading.Event()
    ends: dict[tuple[str, int], int] = {}

    def write(partition: int) -> None:
        if partition:
            time.sleep(1)  # a partition that is created later
        with seglog.open(tmp_path / f"t-{partition}", config=config) as log:
            number = 0
            while not stop.is_set():
                log.append_many([b"v" * (number % 700)] * (number % 7 + 1))
                number += 1
                if number % 50 == 0:
                    time.sleep(.002)
            ends["t", partition] = log.log_end_offset
    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        while not list(tmp_path.glob("t-0/*.log")):
            time.sleep(.01)
        driver = Driver(tmp_path, is_old=is_old, startingOffsets="earliest",
                        maxOffsetsPerTrigger=5000)
        before = None
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            driver.trigger()
            if driver.committed == 20:
                driver.restart()
                before = len(open_files(tmp_path))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    driver.drain(1000)
    assert {key: list(range(end)) for key, end in ends.items()} == driver.records()
    assert before is None or len(open_files(tmp_path)) <= before + 30
