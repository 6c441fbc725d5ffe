"""Leader appends of ready batches, one by one and in spans, next to CRC plus write in C, Kafka's
UnifiedLog in a warm JVM and krabka-log.

All append the same bytes repeatedly to an empty log and check every CRC and record; the floor
handles neither offsets nor records. Logs are on the disk of temporary files and are not synced.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.data import producer_batch
from bench.floors import Floors
from bench.harness import Against, Compare, Timed, equals, pick
from bench.peers import krabka_append
from bench.peers.kafka import java, told_by
from seglog.config import LogConfig
from seglog.log.scheduler import MockTime, Time
from seglog.log.unified_log import UnifiedLog
from tests.kafka.harness import KafkaUnavailable

#: Bytes appended in a round; a JVM appends as many to warm up.
BYTES = pick(1 << 20, 96 << 20, 512 << 20)
#: Maximum number of appends in a round, for the smallest batches.
APPENDS_MAX = pick(2000, 200_000, 1_000_000)
SPAN_BYTES = 1 << 20
KAFKA_WARM_UP, KAFKA_ROUNDS = pick((0, 1), (2, 3), (2, 3))


@dataclass(frozen=True)
class Load:
    """A batch, and the goals for appends of it one by one and in spans."""

    name: str
    records: int
    value_bytes: int
    floor: float
    floor_span: float | None
    kafka: float
    kafka_span: float
    krabka: float
    krabka_span: float


LOADS = [Load("17 KiB", 150, 100, .6, .6, 4, 4, 1, 1), Load("1 KiB", 8, 100, .6, .6, 2, 5, 1, 1),
         Load("single records", 1, 8, .6, None, .6, 3, 1, 1)]


@dataclass(frozen=True)
class Given:
    """The bytes to append in a round, and the log to append to."""

    load: Load
    batch: bytes
    appends: int
    folder: Path

    @property
    def end_offset(self) -> int:
        return self.appends * self.load.records


@pytest.fixture(params=LOADS, ids=lambda load: load.name)
def given(request: pytest.FixtureRequest, scratch: Path) -> Given:
    folder = scratch / "append"
    folder.mkdir(exist_ok=True)
    batch = producer_batch(request.param.records, request.param.value_bytes)
    appends = min(BYTES // len(batch), APPENDS_MAX)
    return Given(request.param, batch, appends, folder)


def appended(given: Given, together: int) -> Callable[[], Timed]:
    """A round of ours: makes a new log and appends; closing it is not counted."""
    numbers = itertools.count()
    span, spans = given.batch * together, given.appends // together

    def run() -> Timed:
        path = given.folder / f"ours{next(numbers)}-0"
        scheduler = MockTime().scheduler  # excludes later background work from an append
        log = UnifiedLog.create(path, LogConfig(), scheduler=scheduler, time=Time())
        start = time.perf_counter()
        if together == 1:
            append = log.append_as_leader
            for _ in range(spans):
                append(span, 0)
        else:
            for _ in range(spans):
                log.append_each_as_leader(span, 0)
        seconds = time.perf_counter() - start
        end = log.log_end_offset
        log.close()
        shutil.rmtree(path)
        return Timed(seconds, end)

    return run


def floor(given: Given, floors: Floors, together: int) -> Callable[[], Timed]:
    """CRC plus write of the same bytes."""
    data, count = given.batch * together, given.appends // together * together

    def run() -> Timed:
        path = given.folder / "floor"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            start = time.perf_counter()
            written = floors.crc_write(fd, data, together, count)
            return Timed(time.perf_counter() - start, written)
        finally:
            os.close(fd)
            path.unlink()

    return run


def kafka(given: Given) -> Callable[[], Timed]:
    """A JVM that appends batch by batch and reports the median of its own rounds."""
    batch = given.folder / "batch"
    batch.write_bytes(given.batch)
    command = java("Append", str(given.folder), str(batch), str(given.appends),
                   str(KAFKA_WARM_UP), str(KAFKA_ROUNDS))

    def run() -> Timed:
        told = told_by(command)
        return Timed(statistics.median(told["seconds"]), told["end_offset"])

    return run


@pytest.mark.parametrize("in_spans", [False, True], ids=["one by one", "in spans"])
def test_append(compare: Compare, floors: Floors, given: Given, in_spans: bool) -> None:
    """The goals depend on the batch size; see LOADS."""
    load = given.load
    together = max(1, min(SPAN_BYTES // len(given.batch), given.appends)) if in_spans else 1

    others_end = equals(given.end_offset)
    work = given.appends // together * together
    others = [Against("CRC plus write in C", floor(given, floors, together),
                      goal=load.floor_span if in_spans else load.floor)]
    try:
        java("Append")
    except KafkaUnavailable:
        pass
    else:
        others.append(Against(
            "Kafka's UnifiedLog, batch by batch", kafka(given), once=True, check=others_end,
            goal=load.kafka_span if in_spans else load.kafka, work=given.appends))
    peer = krabka_append()
    if peer is not None:
        others.append(Against(
            "krabka-log, batch by batch",
            lambda: peer(given.folder, given.batch, given.appends), once=True, check=others_end,
            goal=load.krabka_span if in_spans else load.krabka, work=given.appends))
    how = "in spans" if in_spans else "one by one"
    compare(f"append of {load.name} batches ({len(given.batch)} B), {how}",
            appended(given, together), others, work=work, unit="batches",
            check=equals(work * load.records))
