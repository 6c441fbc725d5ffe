"""The rules of retention at their edges, where Kafka's UnifiedLog compares the same."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from seglog.config import LogConfig
from seglog.log import retention
from seglog.model import TimestampOffset

NONE, SAME_AS_LOG = -1, -2


@dataclass(frozen=True)
class Segment:
    """What a rule asks of a segment."""

    size: int = 0
    timestamp: int = NONE
    modified: int = 0

    def describe(self) -> str:
        """The segment in a message."""
        return f"<{self.size}>"

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp of a record, or -1."""
        return TimestampOffset(self.timestamp, 0)

    def largest_timestamp(self) -> int:
        """The same, or the file's time."""
        return self.timestamp if self.timestamp >= 0 else self.modified


def deletable(rule: retention.Rule, segments: list[Segment], following: list[int | None]
              ) -> list[bool]:
    found: Any = [rule.check(one, next_one)  # type: ignore[arg-type]
                  for one, next_one in zip(segments, following, strict=True)]
    return [may for may, _ in found]


def test_the_start_offset_deletes_what_ends_at_it_or_before() -> None:
    rule = retention.by_start_offset(10, "log", "logStartOffset")
    assert deletable(rule, [Segment()] * 4, [9, 10, 11, None]) == [True, True, False, False]
    assert rule.check(Segment(), 10)[1] == (  # type: ignore[arg-type]
        "nextSegmentOpt=10, logStartOffset=10")
    assert rule.reasons([Segment(1), Segment(2)], 0) == [  # type: ignore[list-item]
        "Deleting segments due to log start offset 10 breach: <1>,<2>"]


@pytest.mark.parametrize(("size", "limit", "expected"), [
    (30, 20, [True, False, False]),  # exactly the limit is left
    (29, 20, [False, False, False]),
    (31, 20, [True, False, False]),
    (30, 10, [True, True, False]),
    (30, 0, [True, True, True]),
    (30, 30, [False, False, False]),
    (20, 30, [False, False, False])])
def test_the_size_deletes_the_oldest_down_to_the_limit(size: int, limit: int,
                                                       expected: list[bool]) -> None:
    rule = retention.by_size(limit, size, "log")
    assert deletable(rule, [Segment(10)] * 3, [1, 2, None]) == expected


def test_the_size_skips_a_large_segment_and_goes_on() -> None:
    rule = retention.by_size(100, 110, "log")
    segments = [Segment(20), Segment(10), Segment(0)]
    found: Any = [rule.check(one, 1) for one in segments]  # type: ignore[arg-type]
    assert found == [
        (False, "log size before delete segment=10, after delete segment=-10"),
        (True, "log size before delete segment=10, after delete segment=0"),
        (True, "log size before delete segment=0, after delete segment=0")]
    assert rule.reasons([Segment(20), Segment(10)], 110) == [  # type: ignore[list-item]
        "Deleting segment <20> due to log retention size 100 breach. Log size after deletion will "
        "be 90.",
        "Deleting segment <10> due to log retention size 100 breach. Log size after deletion will "
        "be 80."]


def test_the_time_deletes_what_is_older_than_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    rule = retention.by_time(50, 1000, "log", "t-0: {}".format)
    ages = [Segment(timestamp=949), Segment(timestamp=950), Segment(timestamp=1000),
            Segment(modified=949), Segment(modified=950)]
    with caplog.at_level(logging.WARNING):
        assert deletable(rule, ages, [1] * 5) == [True, False, False, True, False]
        assert not caplog.messages
        assert deletable(rule, [Segment(timestamp=1001)], [1]) == [False]
    assert caplog.messages == ["t-0: <0> contains future timestamp(s), making it ineligible to be "
                               "deleted"]
    assert rule.check(ages[0], 1)[1] == "startMs=1000, retentionMs=50"  # type: ignore[arg-type]
    assert rule.reasons([Segment(timestamp=0), Segment(1)], 0) == [  # type: ignore[list-item]
        "Deleting segment <0> due to log retention time 50ms breach based on the largest record "
        "timestamp in the segment",
        "Deleting segment <1> due to log retention time 50ms breach based on the last modified "
        "time of the segment"]


@pytest.mark.parametrize("local", [7, 0, NONE])
def test_a_local_limit_counts_where_the_log_is_local(local: int) -> None:
    config = LogConfig.from_properties({
        "retention.bytes": "100", "retention.ms": "1000", "local.retention.bytes": str(local),
        "local.retention.ms": str(local)})
    assert retention.retention_bytes(config, is_local=False) == 100
    assert retention.retention_ms(config, is_local=False) == 1000
    assert retention.retention_bytes(config, is_local=True) == local
    assert retention.retention_ms(config, is_local=True) == local


def test_a_local_limit_is_the_logs_by_default() -> None:
    config = LogConfig.from_properties({"retention.bytes": "100", "retention.ms": "1000"})
    assert config.local_retention_bytes == config.local_retention_ms == SAME_AS_LOG
    assert retention.retention_bytes(config, is_local=True) == 100
    assert retention.retention_ms(config, is_local=True) == 1000


@pytest.mark.parametrize(("size", "limit", "is_local", "expected"), [
    (50, 100, False, 50), (99, 200, False, 49), (300, 100, False, 300), (50, 100, True, 0),
    (50, -1, False, 0), (50, 0, False, 0), (1, 1, False, 100)])
def test_the_size_in_percent(size: int, limit: int, is_local: bool, expected: int) -> None:
    config = LogConfig(retention_bytes=limit)
    assert retention.size_in_percent(size, config, is_local=is_local) == expected
