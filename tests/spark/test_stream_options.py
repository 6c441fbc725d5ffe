"""Options of streams at their extremes: starts that move with the log, huge limits, tables."""

from __future__ import annotations


import pytest

from tests.spark.test_stream_reader import Crash, Driver, is_old, logs, Logs  # noqa: F401


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


def test_a_start_at_the_end_is_that_of_the_stream(logs: Logs) -> None:  # noqa: F811
    logs.append("t-0", 10)
    logs.close()
    (logs.path / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    for options in ({"startingTimestamp": "-1"}, {"startingOffsets": "latest"}):
        driver = Driver(logs.path, endAt="highWatermark", **options)
        assert driver.reader.initialOffset() == {"t": {"0": 4}}
