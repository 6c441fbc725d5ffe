"""The reader of a stream, called as Spark's driver calls it: offsets, limits, losses, restarts.

`Driver` replaces MicroBatchExecution: its checkpoint is the offset log, and it may die between any
two calls.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import seglog
from seglog.errors import (
    CorruptDataError, IllegalStateError, OffsetOutOfRangeError, UnknownTopicOrPartitionError,
    UnsupportedOperationError,
)
from seglog.spark.source import SeglogDataSource
from seglog.spark.streaming.limits import BatchDelay, limit_ends
from seglog.spark.streaming.micro_batch import SeglogStreamReader
from seglog.spark.streaming.stream_options import parse_stream_options
from seglog.model import TopicPartition
from tests.support.effort import how_many

Place = tuple[str, int]


class Crash(Exception):
    """The driver dies."""


class Driver:
    """Runs batches as Spark does. `is_old` is Spark 4.0 and 4.1, where `latestOffset()` has no
    arguments. The sink stores a batch under its number, so a repeated batch counts once, and a
    record in two batches twice."""

    def __init__(self, path: Path, *, is_old: bool = False, **options: object) -> None:
        self.path, self.is_old = path, is_old
        self.options = {name.replace("__", "."): str(value) for name, value in options.items()}
        self.options.setdefault("fetchOffset.retryIntervalMs", "1")
        self.offset_log: list[str] = []
        self.committed = 0
        self.sink: dict[int, list[tuple[str, int, int]]] = {}
        self.restart()

    def restart(self) -> None:
        """Starts a new process: a new reader with only the checkpoint."""
        source = SeglogDataSource({"path": str(self.path), **self.options})
        self.reader = source.streamReader(source.schema())
        assert isinstance(self.reader, SeglogStreamReader)
        self.on_executor = cloudpickle.dumps(self.reader)
        if self.is_old and self.offset_log:
            seen = json.loads(self.offset_log[-1])
            assert self.reader.partitions(seen, seen) == []

    @property
    def start(self) -> Any:
        if self.committed:
            return json.loads(self.offset_log[self.committed - 1])
        return json.loads(json.dumps(self.reader.initialOffset()))

    def trigger(self, dies: Any = lambda where: None, limit: Any = None) -> bool:
        """Runs one trigger; returns whether there was a batch. `dies` may raise Crash anywhere."""
        if len(self.offset_log) == self.committed:
            if self.is_old:
                end = self.reader.latestOffset()
            else:
                end = self.reader.latestOffset(self.start, limit or self.reader_limit())
            text = json.dumps(end)
            if self.committed and text == self.offset_log[-1]:
                return False
            dies("before the offset log")
            self.offset_log.append(text)
        dies("before the plan")
        start, end = self.start, json.loads(self.offset_log[-1])
        tasks = self.reader.partitions(start, end)
        dies("before the tasks")
        rows = []
        for task in pickle.loads(pickle.dumps(tasks)):
            for batch in pickle.loads(self.on_executor).read(task):
                rows += zip(*(batch.column(name).to_pylist()
                              for name in ("topic", "partition", "offset")), strict=True)
            dies("between tasks")
        self.sink[self.committed] = rows
        dies("before the commit")
        self.committed += 1
        return True

    def reader_limit(self) -> Any:
        return None

    def drain(self, most: int = 100) -> None:
        for _ in range(most):
            if not self.trigger():
                return
        raise AssertionError(f"still data after {most} triggers")

    def records(self) -> dict[Place, list[int]]:
        """The sink's offsets by partition, sorted; asserts that each occurs once."""
        counted = Counter(row for rows in self.sink.values() for row in rows)
        assert not [row for row, times in counted.items() if times > 1]
        found: dict[Place, list[int]] = {}
        for topic, partition, offset in sorted(counted):
            found.setdefault((topic, partition), []).append(offset)
        return found


class Logs:
    """Logs of one data directory that the test appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[str, seglog.EmbeddedLog] = {}

    def append(self, name: str, count: int) -> None:
        if name not in self._open:
            self._open[name] = seglog.open(self.path / name,
                                           config={"internal.segment.bytes": 4096})
        for number in range(count):
            self._open[name].append(b"value %d" % number)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    made = Logs(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture(params=[False, True], ids=["since-4.2", "before-4.2"])
def is_old(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_offsets_are_those_of_kafkas_source(logs: Logs, is_old: bool) -> None:
    logs.append("b-10", 2)
    logs.append("b-9", 1)
    logs.append("a-0", 3)
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest")
    driver.drain()
    assert json.loads(driver.offset_log[-1]) == {"a": {"0": 3}, "b": {"9": 1, "10": 2}}
    assert driver.offset_log[0] == json.dumps(json.loads(driver.offset_log[0]))
    assert driver.records() == {("a", 0): [0, 1, 2], ("b", 9): [0], ("b", 10): [0, 1]}


def test_where_a_query_starts(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 5)
    for options, first in (({}, 5), ({"startingOffsets": "latest"}, 5),
                           ({"startingOffsets": "earliest"}, 0),
                           ({"startingOffsets": '{"t":{"0":3}}'}, 3),
                           ({"startingOffsets": '{"t":{"0":-1}}'}, 5),
                           ({"startingOffsets": '{"t":{"0":-2}}'}, 0),
                           ({"startingTimestamp": "0"}, 0),
                           ({"startingTimestamp": str(1 << 61),
                             "startingOffsetsByTimestampStrategy": "latest"}, 5)):
        driver = Driver(logs.path, is_old=is_old, **options)
        assert driver.reader.initialOffset() == {"t": {"0": first}}, options


@pytest.mark.parametrize("start", ["latest", '{"t":{"0":-1,"1":-2}}'])
def test_the_latest_offsets_outlive_a_crash_of_the_first_batch(logs: Logs, is_old: bool,
                                                               start: str) -> None:
    logs.append("t-0", 5)
    logs.append("t-1", 5)
    driver = Driver(logs.path, is_old=is_old, startingOffsets=start)

    def dies(where: str) -> None:
        if where == "before the plan":
            raise Crash
    with pytest.raises(Crash):
        driver.trigger(dies)
    logs.append("t-0", 4)
    logs.append("t-2", 1)
    driver.restart()
    driver.drain()
    assert driver.records()["t", 0] == [5, 6, 7, 8]
    assert driver.records()["t", 2] == [0]
    assert driver.records().get(("t", 1), []) == ([] if start == "latest" else list(range(5)))


def test_limits_hold_also_after_a_restart(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 100)
    logs.append("t-1", 20)
    logs.append("t-2", 1)
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    while driver.trigger():
        if driver.committed == 2:
            driver.restart()
        assert len(driver.sink[driver.committed - 1]) <= 31  # a share below one rounds up to one
    assert driver.committed >= 4
    assert {key: len(value) for key, value in driver.records().items()} == {
        ("t", 0): 100, ("t", 1): 20, ("t", 2): 1}


def test_a_small_batch_waits(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 5)
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest", minOffsetsPerTrigger=10)
    assert driver.trigger()  # the first trigger after a start does not wait
    logs.append("t-0", 6)
    assert not driver.trigger()
    logs.append("t-1", 4)
    assert driver.trigger()
    assert sum(map(len, driver.records().values())) == 15


def test_the_arithmetic_of_limits() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert limit_ends(30, {a: 0, b: 0, c: 7}, {a: 100, b: 1, c: 7}) == {a: 29, b: 1, c: 7}
    assert limit_ends(5, {a: 10, b: 0, c: 7}, {a: 12, b: 1, c: 5}) == {a: 12, b: 1, c: 5}
    now = [100.0]
    delay = BatchDelay(10, 900_000, lambda: now[0])
    assert not delay.holds_back({a: 0}, {a: 1})
    assert delay.holds_back({a: 1}, {a: 10})
    now[0] += 899
    assert delay.holds_back({a: 1}, {a: 10})
    now[0] += 1
    assert not delay.holds_back({a: 1}, {a: 10})
    assert not delay.holds_back({a: 1}, {a: 11})


def test_available_now_ends_at_what_was_there(logs: Logs) -> None:
    logs.append("t-0", 10)
    driver = Driver(logs.path, startingOffsets="earliest", maxOffsetsPerTrigger=4,
                    minOffsetsPerTrigger=4)
    driver.reader.prepareForTriggerAvailableNow()
    assert driver.trigger()
    logs.append("t-0", 5)
    logs.append("t-1", 5)
    driver.drain()
    assert driver.records() == {("t", 0): list(range(10))}
    driver.restart()  # and the next run finds the new partition
    driver.reader.prepareForTriggerAvailableNow()
    driver.drain()
    assert driver.records() == {("t", 0): list(range(15)), ("t", 1): list(range(5))}


def test_a_wrapper_that_would_go_back_is_refused(logs: Logs) -> None:
    """Spark 4.0 with triggerAvailableNowWrapper.enabled requests the end before it passes the
    query's position."""
    logs.append("t-0", 10)
    driver = Driver(logs.path, is_old=True, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    driver.trigger()
    driver.trigger()
    restarted = Driver(logs.path, is_old=True, **driver.options)
    restarted.reader.latestOffset()
    seen = json.loads(driver.offset_log[-1])
    with pytest.raises(UnsupportedOperationError, match="needs Spark 4.2"):
        restarted.reader.partitions(seen, seen)


@pytest.mark.parametrize("seed", range(how_many("SEGLOG_STREAM_SEEDS", 8, 2)))
def test_every_record_once_whenever_the_driver_dies(logs: Logs, seed: int, is_old: bool) -> None:
    rng = random.Random(seed)
    options: dict[str, object] = {
        "startingOffsets": rng.choice(["earliest", "latest"])}
    if rng.random() < .5:
        options["maxOffsetsPerTrigger"] = rng.randint(1, 60)
    logs.append("t-0", 30)
    first = 30 if options["startingOffsets"] == "latest" else 0
    driver = Driver(logs.path, is_old=is_old, **options)
    known = driver.reader.initialOffset()  # the query starts before there are more records
    assert known == {"t": {"0": first}}

    def dies(where: str) -> None:
        if rng.random() < .12:
            raise Crash(where)
    is_pinned = False
    for _ in range(40):
        if is_pinned and rng.random() < .5:
            logs.append(f"t-{rng.choice([0, 0, 0, 1, 2])}", rng.randint(1, 30))
        try:
            driver.trigger(dies)
        except Crash:
            driver.restart()
        # Only the offset log survives a crash, also in Spark's Kafka source.
        is_pinned = is_pinned or bool(driver.offset_log)
    driver.drain(1000)
    held = {key: seglog.PartitionLog.open(logs.path / f"{key[0]}-{key[1]}").log_end_offset
            for key in driver.records()}
    assert driver.records() == {
        key: list(range(first if key == ("t", 0) else 0, end)) for key, end in held.items()}


# ---- lost data

def shrink(path: Path, size: int) -> None:
    log, = path.glob("*.log")
    os.truncate(log, size)


def test_truncation_is_lost_data(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 10)
    logs.close()
    for fails in (True, False):
        copy = logs.path.parent / f"copy-{fails}"
        shutil.copytree(logs.path, copy)
        driver = Driver(copy, is_old=is_old, startingOffsets="earliest", failOnDataLoss=fails)
        driver.trigger()
        shrink(copy / "t-0", 300)
        if fails:
            before = list(driver.offset_log)
            with pytest.raises(OffsetOutOfRangeError, match=r"t-0 was read up to offset 10, and its"
                               r" log now ends at \d: .*Set failOnDataLoss to false"):
                driver.trigger()
            assert driver.offset_log == before  # the checkpoint can still be used
        else:
            driver.drain()
            assert json.loads(driver.offset_log[-1])["t"]["0"] < 10


def test_retention_is_lost_data(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 200)
    logs.close()
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    driver.trigger()
    first = sorted((logs.path / "t-0").glob("*.log"))[0]
    start = int(sorted((logs.path / "t-0").glob("*.log"))[1].stem)
    for file in (logs.path / "t-0").glob(f"{first.stem}.*"):
        file.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="t-0 is to be read from offset 5, and its log "
                       f"now starts at {start}"):
        driver.trigger()
    driver.options["failOnDataLoss"] = "false"
    driver.restart()
    driver.drain()
    assert driver.records()["t", 0] == [*range(5), *range(start, 200)]


def test_a_vanished_partition_is_lost_data(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 5)
    logs.append("t-1", 5)
    logs.close()
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest", subscribe="t")
    driver.trigger()
    (logs.path / "t-1").rename(logs.path / "aside")
    with pytest.raises(OffsetOutOfRangeError, match="t-1 is gone: some data may have been lost"):
        driver.trigger()
    (logs.path / "aside").rename(logs.path / "t-1")  # a mount that came back
    assert not driver.trigger()
    shutil.rmtree(logs.path / "t-1")
    driver.options["failOnDataLoss"] = "false"
    driver.restart()
    driver.drain()
    assert json.loads(driver.offset_log[-1]) == {"t": {"0": 5}}


def test_a_partition_that_moves_is_waited_for(logs: Logs, is_old: bool) -> None:
    """A broker that moves a replica to another directory renames it twice."""
    logs.append("t-0", 5)
    logs.close()
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest",
                    fetchOffset__retryIntervalMs="500ms", fetchOffset__numRetries=600)
    driver.trigger()
    (logs.path / "t-0").rename(logs.path / "aside")
    (logs.path / "u-0").mkdir()
    threading.Timer(.2, lambda: (logs.path / "aside").rename(logs.path / "t-0")).start()
    driver.drain()
    assert json.loads(driver.offset_log[-1])["t"] == {"0": 5}


def test_damage_at_the_end_is_not_the_end_for_ever(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 5)
    logs.close()
    log = next((logs.path / "t-0").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[-3] ^= 1
    log.write_bytes(damaged)
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglog.spark.streaming.bounds._QUIET_SECONDS", 3600.0)
        driver.trigger()
    assert driver.records() == {("t", 0): [0, 1]}  # recent: a batch may be half written
    os.utime(log, (1, 1))
    os.utime(logs.path / "t-0", (1, 1))
    with pytest.raises(CorruptDataError, match=str(log)):
        driver.trigger()
    driver.options["failOnDataLoss"] = "false"
    driver.restart()
    driver.drain()
    assert driver.records() == {("t", 0): [0, 1, 2, 3]}


def test_a_torn_tail_and_preallocated_zeros_are_the_end(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 5)
    logs.close()
    log = next((logs.path / "t-0").glob("*.log"))
    torn = (whole := log.read_bytes())[:-20]
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest")
    for content, end in ((torn, 4), (torn + bytes(4096), 4), (whole + bytes(4096), 5)):
        log.write_bytes(content)
        try:
            driver.drain()
        except CorruptDataError:
            assert content == torn + bytes(4096)  # half a batch before zeros
        assert driver.records() == {("t", 0): list(range(end))}


def test_the_high_watermark(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 10)
    logs.append("t-1", 10)
    logs.close()
    mark = logs.path / "replication-offset-checkpoint"
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest", endAt="highWatermark")
    mark.write_text("0\n1\nt 0 4\n")
    driver.trigger()
    assert driver.records() == {("t", 0): [0, 1, 2, 3]}
    mark.write_text("0\n2\nt 0 2\nt 1 99\n")  # a broker's restart may go back a little
    driver.drain()
    assert driver.records() == {("t", 0): [0, 1, 2, 3], ("t", 1): list(range(10))}
    os.replace(mark, mark.with_name("old"))
    assert not driver.trigger()
    mark.write_text("0\n1\nt 0 10\n")
    driver.drain()
    assert driver.records()["t", 0] == list(range(10))


def test_read_committed_waits_for_the_end_of_a_transaction(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 3)
    driver = Driver(logs.path, is_old=is_old, startingOffsets="earliest",
                    kafka__isolation__level="read_committed")
    with logs._open["t-0"].transaction() as transaction:
        transaction.append(b"a")
        transaction.append(b"b")
        logs.append("t-0", 1)
        driver.drain()
        seen = driver.records()
        assert seen["t", 0][:3] == [0, 1, 2] and set(seen["t", 0]) <= {0, 1, 2, 3}
    driver.drain()
    held = seglog.PartitionLog.open(logs.path / "t-0").to_arrow(
        None, None, ["offset"], "read_committed")
    assert driver.records()["t", 0] == pa.table(held).column(0).to_pylist()


# ---- bad input

@pytest.mark.parametrize(("options", "words"), [
    ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
    ({"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
    ({"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
    ({"maxOffsetsPerTrigger": "0"}, "must be a positive number"),
    ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is higher than"),
    ({"maxTriggerDelay": "soon"}, "Failed to parse time string: soon"),
    ({"endAt": "the end"}, "logEnd or highWatermark"),
    ({"startingOffsets": '{"t":{"0":"x"}}'}, "expects e.g."),
    ({"startingOffsets": '{"t":'}, "expects e.g."),
    ({}, "needs a path"),
])
def test_options_that_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_stream_options({"path": "/d"} | options if options else {})


def test_options_of_a_stream() -> None:
    options = parse_stream_options({"path": "/d", "maxTriggerDelay": "2h", "ENDAT": "LOGEND",
                                    "fetchOffset.numRetries": "5",
                                    "fetchOffset.retryIntervalMs": "10"})
    assert options.max_trigger_delay_ms == 7_200_000 and options.end_at == "logEnd"
    assert options.retries == 4 and options.retry_interval_ms == 10
    assert parse_stream_options({"path": "/d"}).max_trigger_delay_ms == 900_000


@pytest.mark.parametrize("found", [5, {"logOffset": 3}, "x", None, [], {"t": {"0": -1}},
                                   {"t": {"zero": 1}}, {"t": {"0": 1.5}}, {"t": {"0": True}}])
def test_a_checkpoint_of_another_source(logs: Logs, found: Any) -> None:
    logs.append("t-0", 1)
    driver = Driver(logs.path)
    sentence = "it belongs to a query of another source. Start this query with a checkpoint"
    with pytest.raises(ValueError, match=sentence):
        driver.reader.partitions(found, found)
    if found is not None:
        with pytest.raises(ValueError, match=sentence):
            driver.reader.latestOffset(found, None)


def test_starts_that_are_refused(logs: Logs, is_old: bool) -> None:
    logs.append("t-0", 5)
    logs.append("t-1", 5)
    for options, kind, words in (
            ({"startingOffsets": '{"t":{"0":6,"1":0}}'}, OffsetOutOfRangeError,
             "t-0: starting offset 6 is outside the log, which holds 0 to 5"),
            ({"startingOffsets": '{"t":{"0":1}}'}, IllegalStateError, "you must specify all"),
            ({"startingTimestamp": str(1 << 61)}, ValueError, "No offset matched"),
            ({"subscribe": "tt"}, UnknownTopicOrPartitionError, "did you mean 't'")):
        with pytest.raises(kind, match=words):
            Driver(logs.path, is_old=is_old, **options).trigger()
