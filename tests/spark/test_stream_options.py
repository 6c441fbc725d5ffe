"""Options of streams at their extremes: starts that move with the log, huge limits, tables."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import seglog
from seglog.errors import OffsetOutOfRangeError
from seglog.spark.option_values import LONG_MAX
from seglog.spark.source import SeglogDataSource
from seglog.spark.streaming.stream_options import parse_stream_options
from tests.spark.test_stream_reader import Crash, Driver, is_old, logs, Logs  # noqa: F401

HUGE = "9" * 30


def before_the_plan(where: str) -> None:
    if where == "before the plan":
        raise Crash


@pytest.mark.parametrize("stamp", [-1, -3])
def test_a_start_at_the_end_or_the_largest_time_outlives_a_crash_of_the_first_batch(
        logs: Logs, is_old: bool, stamp: int) -> None:  # noqa: F811
    """Kafka's special timestamps name other offsets when more records are there."""
    logs.append("t-0", 5)
    driver = Driver(logs.path, is_old=is_old, startingTimestamp=stamp)
    first = driver.reader.initialOffset()["t"]["0"]
    assert stamp == -3 or first == 5
    with pytest.raises(Crash):
        driver.trigger(before_the_plan)
    logs.append("t-0", 4)
    driver.restart()
    driver.drain()
    assert driver.records() == {("t", 0): list(range(first, 9))}


def test_a_start_by_time_outlives_a_crash_of_the_first_batch(
        logs: Logs, is_old: bool) -> None:  # noqa: F811
    """No record is late enough at first, so the query starts at the log's end. At the restart one
    is, after others that are not."""
    logs.append("t-0", 5)
    logs.close()
    soon = time.time_ns() // 1_000_000 + 600_000
    driver = Driver(logs.path, is_old=is_old, startingTimestamp=soon,
                    startingOffsetsByTimestampStrategy="latest")
    with pytest.raises(Crash):
        driver.trigger(before_the_plan)
    logs.append("t-0", 4)
    logs.close()
    with seglog.open(logs.path / "t-0") as log:
        log.append(b"late", timestamp=soon)
    driver.restart()
    driver.drain()
    assert driver.records() == {("t", 0): [5, 6, 7, 8, 9]}


def test_a_start_by_time_has_records_in_its_first_batch(
        logs: Logs, is_old: bool) -> None:  # noqa: F811
    logs.append("t-0", 5)
    driver = Driver(logs.path, is_old=is_old, startingTimestamp=1,
                    startingOffsetsByTimestampStrategy="latest")
    driver.trigger()
    assert driver.records() == {("t", 0): [0, 1, 2, 3, 4]}


def test_a_start_at_the_end_is_that_of_the_stream(logs: Logs) -> None:  # noqa: F811
    logs.append("t-0", 10)
    logs.close()
    (logs.path / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    for options in ({"startingTimestamp": "-1"}, {"startingOffsets": "latest"}):
        driver = Driver(logs.path, endAt="highWatermark", **options)
        assert driver.reader.initialOffset() == {"t": {"0": 4}}


def test_numbers_of_offsets_are_longs() -> None:
    """As in KafkaMicroBatchStream."""
    options = parse_stream_options({"path": "/d", "maxOffsetsPerTrigger": str(LONG_MAX),
                                    "minOffsetsPerTrigger": "3000000000"})
    assert (options.max_offsets, options.min_offsets) == (LONG_MAX, 3_000_000_000)
    with pytest.raises(ValueError, match="must be a positive number"):
        parse_stream_options({"path": "/d", "maxOffsetsPerTrigger": str(LONG_MAX + 1)})


@pytest.mark.parametrize("name", ["maxTriggerDelay", "fetchOffset.retryIntervalMs"])
@pytest.mark.parametrize("text", [HUGE, "9" * 400 + "us", "9" * 5000])
def test_times_beyond_a_long_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="^Failed to parse time string: 9") as refused:
        parse_stream_options({"path": "/d", name: text})
    assert len(str(refused.value)) < 500


def test_the_longest_times() -> None:
    for text, milliseconds in ((str(LONG_MAX), LONG_MAX), (f"{LONG_MAX}d", LONG_MAX),
                               (f"{LONG_MAX}us", LONG_MAX // 1000), ("1500us", 1)):
        options = parse_stream_options({"path": "/d", "maxTriggerDelay": text})
        assert options.max_trigger_delay_ms == milliseconds


def test_the_longest_wait_for_a_lost_partition(
        logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """time.sleep takes no time that is longer than the system's."""
    logs.append("t-0", 1)
    logs.append("t-1", 1)
    logs.close()
    driver = Driver(logs.path, startingOffsets="earliest", **{
        "fetchOffset.retryIntervalMs": str(LONG_MAX)})
    driver.trigger()
    (logs.path / "t-1").rename(logs.path / "aside")
    slept: list[float] = []
    monkeypatch.setattr("seglog.spark.streaming.micro_batch.time.sleep", slept.append)
    with pytest.raises(OffsetOutOfRangeError, match="t-1 is gone"):
        driver.trigger()
    assert slept and max(slept) < 2**63 / 1e9


def test_a_stream_of_a_table_is_refused(tmp_path: Path) -> None:
    source = SeglogDataSource({"path": str(tmp_path), "table": "segments"})
    reader = source.streamReader(source.schema())
    with pytest.raises(ValueError, match="^Option 'table': a stream reads records; read "
                                         "tables with spark.read.$"):
        reader.initialOffset()
