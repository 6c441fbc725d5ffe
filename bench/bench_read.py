"""Reads of a log that is open for writing: random lookups by offset, and readers that follow the
writer. The lock of the data directory is held, as by each program that writes."""

from __future__ import annotations

import itertools
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bench.data import producer_batch
from bench.floors import Floors
from bench.harness import Against, Compare, Timed, equals, opened, pick
from seglog.config import LogConfig
from seglog.log.scheduler import MockTime, Time
from seglog.log.following import SpanTail
from seglog.log.unified_log import UnifiedLog
from seglog.storage.isolation import Isolation
from seglog.storage.lock import FileLock
from seglog.storage.paths import LOCK_FILE

LOG_BYTES = pick(2 << 20, 128 << 20, 900 << 20)
LOOKUPS = pick(500, 20_000, 100_000)
FOLLOWED_BYTES = pick(1 << 20, 64 << 20, 512 << 20)
FOLLOWED_APPENDS_MAX = pick(1000, 50_000, 500_000)
READERS = 4


@dataclass(frozen=True)
class Load:
    """Batches of one size."""

    name: str
    records: int


LOADS = [Load("17 KiB", 150), Load("1 KiB", 8)]


def create(path: Path) -> UnifiedLog:
    """An empty log, whose scheduler runs nothing during the measurement."""
    return UnifiedLog.create(path, LogConfig(), scheduler=MockTime().scheduler, time=Time())


@pytest.fixture(scope="module")
def data_dir(scratch: Path) -> Iterator[Path]:
    """A data directory whose lock is held, without which an index must not be mapped."""
    path = scratch / "read"
    path.mkdir()
    lock = FileLock(str(path / LOCK_FILE))
    assert lock.try_lock()
    yield path
    lock.destroy()


@pytest.fixture(params=LOADS, ids=lambda load: load.name)
def log(request: pytest.FixtureRequest, data_dir: Path) -> Iterator[tuple[Load, UnifiedLog]]:
    path = data_dir / f"read{request.param.records}-0"
    made, batch = create(path), producer_batch(request.param.records)
    span = batch * (1_000_000 // len(batch))
    while made.size < LOG_BYTES:
        made.append_each_as_leader(span, 0)
    yield request.param, made
    made.close()
    shutil.rmtree(path)


def test_random_lookup(compare: Compare, floors: Floors, log: tuple[Load, UnifiedLog]) -> None:
    """Reads one batch by an offset in it, from the page cache. The floor reads at the index entry's
    position, not at the batch's."""
    load, made = log
    size = len(producer_batch(load.records))
    offsets = random.Random(1).choices(range(made.log_end_offset), k=LOOKUPS)
    made.update_files()
    made.flush()
    segment = Path(made.path) / f"{0:020d}"
    assert made.readers.segment(made.readers.view(), 0).reader.index.mapped_bytes
    entries = segment.with_suffix(".index").read_bytes()[:made.active.index_entries * 8]
    targets = np.array(offsets, np.int64)
    isolation: Isolation = "log_end"

    def ours() -> int:
        read, total = made.read, 0
        for offset in offsets:
            total += len(read(offset, 1, isolation, True).records)
        return total

    check = equals(LOOKUPS * size)
    with opened(segment.with_suffix(".log")) as fd:
        compare(f"read by offset, batches of {load.name}", ours,
                [Against("bisect and pread in C", lambda: floors.pread(fd, entries, targets, size),
                         goal=1 / 3, check=check)],
                work=LOOKUPS, unit="lookups", check=check)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_tailing(compare: Compare, data_dir: Path, load: Load) -> None:
    """Measures how much following readers slow the writer's appends. After each round the readers
    catch up to the end of the log, which is not counted."""
    batch = producer_batch(load.records)
    appends = min(FOLLOWED_BYTES // len(batch), FOLLOWED_APPENDS_MAX)
    numbers = itertools.count()

    def followed_by(readers: int) -> Callable[[], Timed]:
        def run() -> Timed:
            path = data_dir / f"tail{next(numbers)}-0"
            made, got = create(path), [0] * readers
            end = appends * load.records

            def follow(number: int) -> None:
                for span in SpanTail(made, 0, stop_offset=end):
                    got[number] += len(span.records)

            threads = [threading.Thread(target=follow, args=(number,)) for number in range(readers)]
            for thread in threads:
                thread.start()
            start = time.perf_counter()
            append = made.append_as_leader
            for _ in range(appends):
                append(batch, 0)
            seconds = time.perf_counter() - start
            for thread in threads:
                thread.join()
            made.close()
            shutil.rmtree(path)
            return Timed(seconds, got)

        return run

    def check(got: list[int]) -> None:
        assert got == [appends * len(batch)] * len(got)

    compare(f"append with {READERS} readers tailing, batches of {load.name}", followed_by(READERS),
            [Against("the writer alone", followed_by(0), goal=1 / 1.2, check=check)],
            work=appends * len(batch) / 1e9, unit="GB", check=check)
