"""Rounds of the log cleaner beside Kafka's Cleaner.doClean in a warm JVM, over copies of one log.

Of records of about 120 B with keys drawn at random 60% are superseded: all batches are written
anew. A second round finds one more record in the log, drops nothing and copies the rest. Files are
in the page cache; both sides sync what they wrote, and so do the floors. Where no bytes of a
codec's library are in between, the log files of both sides are the same.

A cleaner's thread keeps its map for all rounds: ours was used by the round that warms up, and a JVM
zeroes the memory of Kafka's before its round.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import seglog
from bench.floors import Floors
from bench.harness import Against, Compare, Row, Timed, equals, pick
from bench.peers.kafka import java, told_by
from seglog.cleaner import Cleaner, CleanerStats, LogToClean, OffsetMap
from seglog.config import LogConfig
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.scheduler import Scheduler, Time
from seglog.log.unified_log import UnifiedLog
from seglog.storage import codecs
from tests.kafka.harness import KafkaUnavailable

RECORDS = pick(20_000, 1_000_000, 4_500_000)
KAFKA_ROUNDS = pick(1, 3, 3)
ROUNDS = pick(1, 3, 5)
_VALUE_BYTES, _CHUNK = 100, 1 << 18
_MAP_BYTES, _MEMORY_MORE = 128 << 20, 4 << 20
_FLOOR = "a C loop over the records with the same map"
_START_MS = 1_700_000_000_000
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20),
           "max.message.bytes": str(10 << 20), "file.delete.delay.ms": "0"}


@dataclass(frozen=True)
class Load:
    """A codec, and the ratio to Kafka that its round shall reach."""

    codec: str
    goal: float


LOADS = [Load("none", 10), Load("lz4", 6), Load("zstd", 4)]


def write(path: Path, codec: str) -> None:
    """The log, its last segment empty."""
    random = np.random.default_rng(7)
    noise = np.frombuffer(b"abcdefghijklmnop", np.uint8)[random.integers(0, 16, 1 << 20)]
    config = {**_CONFIG, "min.cleanable.dirty.ratio": "1",
              "compression.type": "producer" if codec == "none" else codec}
    with seglog.open(path, batch_bytes=18_000, config=config) as log:
        for first in range(0, RECORDS, _CHUNK):
            count = min(_CHUNK, RECORDS - first)
            at = random.integers(0, len(noise) - _VALUE_BYTES, count)
            values = noise[at[:, None] + np.arange(_VALUE_BYTES)]
            keys = random.integers(0, int(RECORDS * .445), count)
            log.append_columns({
                "key": pa.array([b"key-%d" % one for one in keys.tolist()]),
                "value": pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(_VALUE_BYTES), count, [None, pa.py_buffer(values)]),
                "timestamp": _START_MS + np.arange(first, first + count)})
        log.log.roll()


@pytest.fixture(scope="module", params=LOADS, ids=lambda load: load.codec)
def given(request: pytest.FixtureRequest, scratch: Path) -> Any:
    """A load, its log, and a folder for copies."""
    folder = scratch / f"clean-{request.param.codec}"
    (folder / "source").mkdir(parents=True)
    write(folder / "source" / "t-0", request.param.codec)
    yield request.param, folder
    shutil.rmtree(folder)


_numbers = itertools.count()
_schedulers: dict[str, Scheduler] = {}


def opened(folder: Path) -> UnifiedLog:
    """A copy of the log. Its scheduler's thread deletes what was replaced, as in Kafka."""
    scheduler = Scheduler()
    scheduler.startup()
    path = folder / f"ours{next(_numbers)}-0"
    shutil.copytree(folder / "source" / "t-0", path)
    log = UnifiedLog.create(path, LogConfig.from_properties(_CONFIG), clean_shutdown=True,
                            scheduler=scheduler, time=Time())
    log.update_high_watermark(log.log_end_offset)
    _schedulers[log.path] = scheduler
    return log


def closed(log: UnifiedLog) -> None:
    log.close()
    _schedulers.pop(log.path).shutdown()
    shutil.rmtree(log.path)


def cleaner(threads: int = 1) -> Cleaner:
    return Cleaner(offset_map=OffsetMap(_MAP_BYTES), io_buffer_size=512 << 10,
                   max_io_buffer_size=10 << 20, threads=threads)


def cleaned(log: UnifiedLog, by: Cleaner, start: int = 0) -> tuple[float, int, CleanerStats]:
    """Seconds of a round, where it ended, and what it did."""
    what = LogToClean.of(log, start)
    began = time.perf_counter()
    end, stats = by.clean(what)
    return time.perf_counter() - began, end, stats


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    for one in sorted(Path(path).glob("*.log")):
        digest.update(one.read_bytes())
    return digest.hexdigest()


def a_round(folder: Path, threads: int = 1) -> Callable[[], Timed]:
    by = cleaner(threads)

    def run() -> Timed:
        log = opened(folder)
        seconds, _, stats = cleaned(log, by)
        found = stats.messages_read, stats.messages_written, sha256(log.path)
        closed(log)
        return Timed(seconds, found)

    return run


def a_map(folder: Path) -> Callable[[], Timed]:
    by = cleaner()

    def run() -> Timed:
        log = opened(folder)
        what = LogToClean.of(log)
        began = time.perf_counter()
        by.begin(what, log.now_ms())
        seconds = time.perf_counter() - began
        closed(log)
        return Timed(seconds, len(by.offset_map))

    return run


def a_copy(folder: Path) -> Callable[[], Timed]:
    """A round over a clean log, after one that is not counted."""
    by = cleaner()

    def run() -> Timed:
        log = opened(folder)
        _, end, _ = cleaned(log, by)
        builder = RecordBatchBuilder()
        builder.append(_START_MS, b"one-more", b"\0")
        log.append_as_leader(builder.build(), 0)
        log.update_high_watermark(log.log_end_offset)
        log.roll()
        seconds, _, stats = cleaned(log, by, end)
        assert stats.messages_read == stats.messages_written
        closed(log)
        return Timed(seconds, stats.bytes_read)

    return run


def copy_floor(folder: Path) -> Callable[[], Timed]:
    """The clean log's files copied and synced: copy_file_range, or read and write."""
    log = opened(folder)
    cleaned(log, cleaner())
    log.close()
    files = [one for one in sorted(Path(log.path).glob("*.log")) if one.stat().st_size]

    def run() -> Timed:
        began, done = time.perf_counter(), 0
        for one in files:
            done += _copied(one, folder / "floor")
        return Timed(time.perf_counter() - began, done)

    return run


def _copied(source: Path, target: Path) -> int:
    size = source.stat().st_size
    with source.open("rb") as reads, target.open("wb") as writes:
        left = size
        while left:
            try:
                left -= os.copy_file_range(reads.fileno(), writes.fileno(), left)
            except OSError:
                reads.seek(0)
                shutil.copyfileobj(reads, writes, 1 << 20)
                writes.flush()
                left = 0
        os.fsync(writes.fileno())
    target.unlink()
    return size


def round_floor(folder: Path, floors: Floors, *, writes: bool = True) -> Callable[[], Timed]:
    """Both passes, or the first, in a C loop with the cleaner's map and no checks."""
    logs = [one for one in sorted((folder / "source" / "t-0").glob("*.log")) if one.stat().st_size]
    target = folder / "floor"

    def run() -> Timed:
        began = time.perf_counter()
        keys, written = floors.clean(logs, RECORDS, OffsetMap(_MAP_BYTES).slots,
                                     target if writes else None)
        seconds = time.perf_counter() - began
        target.unlink(missing_ok=True)
        assert .35 < keys / RECORDS < .45 and (written > 0) == writes
        return Timed(seconds, keys)

    return run


def codec_alone(load: Load, folder: Path) -> Callable[[], Timed]:
    """What no round can do without: each batch decompressed twice, 40% of it compressed."""
    codec = codecs.CODEC_NAMES.index(load.codec)
    data = min((folder / "source" / "t-0").glob("*.log")).read_bytes()
    payloads, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8:at + 12], "big")
        payloads.append(data[at + 61:at + size])
        at += size

    def run() -> Timed:
        room, done = bytearray(1 << 20), 0
        began = time.perf_counter()
        for one in payloads:
            codecs.decompress(codec, 2, one, room)
            plain = codecs.decompress(codec, 2, one, room)
            codecs.compress(codec, plain[:len(plain) * 2 // 5])
            done += len(one)
        return Timed(time.perf_counter() - began, done)

    return run


def kafka(load: Load, folder: Path) -> dict[str, Any] | None:
    """What one JVM says of its last round; None without Kafka."""
    try:
        command = java("Clean", str(folder / "source" / "t-0"), str(folder),
                       str(KAFKA_ROUNDS), heap="4g")
    except KafkaUnavailable:
        return None
    return told_by(command)


def test_rounds(compare: Compare, given: Any, floors: Floors) -> None:
    """A round, its offset map, and a round that only copies, each as often as Kafka's."""
    load, folder = given
    told = kafka(load, folder)

    def against(name: str, goal: float | None, work: float | None = None) -> list[Against]:
        if told is None:
            return []
        return [Against("Kafka's Cleaner", lambda: Timed(told[name]), goal=goal, work=work,
                        once=True)]

    def is_kafkas(found: Any) -> None:
        assert found[0] == RECORDS and .35 < found[1] / RECORDS < .45
        if told is not None:
            assert found[:2] == (told["messages_read"], told["messages_written"])
            assert load.codec == "zstd" or found[2] == told["sha256"], "not the bytes of Kafka's"

    others = against("seconds", load.goal)
    if load.codec != "none":
        alone = codec_alone(load, folder)
        whole = sum(one.stat().st_size for one in (folder / "source" / "t-0").glob("*.log"))
        part = alone().result / whole
        others.append(Against(f"{load.codec} alone, without a cleaner", alone,
                              work=RECORDS * part))
    else:
        others.append(Against(_FLOOR, round_floor(folder, floors)))
    compare(f"a round, {load.codec}", a_round(folder), others, work=RECORDS, unit="records",
            check=is_kafkas, rounds=ROUNDS)

    def has_keys(found: Any) -> None:
        assert .35 < found / RECORDS < .45

    if load.codec == "none":
        others = against("map_seconds", 6)
        others.append(Against(_FLOOR, round_floor(folder, floors, writes=False)))
        compare.again("its offset map alone", a_map(folder), others, work=RECORDS, unit="keys",
                      check=has_keys, rounds=ROUNDS)
    size: int = a_copy(folder)().result
    copied: list[int] = []
    others = against("copy_seconds", 10 if load.codec == "none" else None)
    if load.codec == "none":
        others.append(Against("copy_file_range and sync", copy_floor(folder), goal=.5))
    compare.again(f"a round that only copies, {load.codec}", a_copy(folder), others,
                  work=size / 1e9, unit="GB", check=copied.append, rounds=ROUNDS)
    assert set(copied) == {size}


_PROCESS = """
import sys
from pathlib import Path
from bench.bench_clean import cleaned, cleaner, closed, opened
folder, by = Path(sys.argv[1]), cleaner()
log = opened(folder)
cleaned(log, by)
closed(log)
log = opened(folder)
print("ready", flush=True)
sys.stdin.readline()
cleaned(log, by)
print("done", flush=True)
closed(log)
"""


def two_processes(folder: Path) -> Callable[[], Timed]:
    """What the machine allows: two rounds that share nothing but its caches and memory."""
    def run() -> Timed:
        # The names of their copies count from 0 in each.
        folders = [folder / f"process{number}" for number in range(2)]
        for one in folders:
            one.mkdir()
            (one / "source").symlink_to(folder / "source")
        running = [subprocess.Popen([sys.executable, "-c", _PROCESS, str(one)], text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                   for one in folders]

        def told(wanted: str) -> None:
            for one in running:
                assert one.stdout is not None and one.stdout.readline() == wanted

        told("ready\n")
        began = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told("done\n")
        seconds = time.perf_counter() - began
        for process in running:
            process.communicate()
            assert process.returncode == 0
        for one in folders:
            shutil.rmtree(one)
        return Timed(seconds)

    return run


def test_two_logs(compare: Compare, given: Any) -> None:
    """Two logs by two threads, beside one log by one, and beside two processes."""
    load, folder = given
    if load.codec != "none":
        pytest.skip("compressed batches wait for their codec's library alike")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one CPU")

    cleaners = [cleaner() for _ in range(2)]

    def two() -> Timed:
        logs = [opened(folder) for _ in range(2)]
        threads = [threading.Thread(target=cleaned, args=(log, by))
                   for log, by in zip(logs, cleaners, strict=True)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        found = [sha256(log.path) for log in logs]
        for log in logs:
            closed(log)
        return Timed(seconds, found)

    one = a_round(folder)
    wanted = one().result[2]

    others = [Against("one log, one thread", one, goal=1.8, work=RECORDS),
              Against("two logs, two processes", two_processes(folder))]
    compare("two logs, two threads", two, others, work=2 * RECORDS, unit="records",
            check=equals([wanted, wanted]), rounds=ROUNDS)


def test_one_log(compare: Compare, given: Any) -> None:
    """One log by two threads, beside one."""
    load, folder = given
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one CPU")
    one = a_round(folder)
    compare(f"one log, two threads, {load.codec}", a_round(folder, 2),
            [Against("one log, one thread", one, work=RECORDS)],
            work=RECORDS, unit="records", check=equals(one().result), rounds=ROUNDS)


_MEMORY = """
import sys, resource
from pathlib import Path
from bench.bench_clean import cleaned, cleaner, closed, opened
folder = Path(sys.argv[1])
log = opened(folder)
closed(log)
log = opened(folder)
def now(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
Path("/proc/self/clear_refs").write_text("5")
before = now("VmRSS:")
cleaned(log, cleaner())
print(now("VmHWM:") - before)
"""


def test_memory(compare: Compare, given: Any) -> None:
    """The most that a round takes, beside the map's 128 MiB and 4 MiB."""
    load, folder = given
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process cannot be set back here")

    def run() -> int:
        return int(subprocess.run([sys.executable, "-c", _MEMORY, str(folder)], check=True,
                                  capture_output=True, text=True).stdout)

    peak, allowed = compare.run_once(run), _MAP_BYTES + _MEMORY_MORE
    assert isinstance(peak, int)
    assert peak > 0
    compare.add(Row(f"memory of a round, {load.codec}", "B each", peak, "the map and 4 MiB",
                    allowed, peak / allowed, goal=1, at_most=True))
