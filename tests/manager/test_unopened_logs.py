"""Logs that nobody has opened, as rows of a table: what they report, and which of them retention
has to open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog._native.clean_load import CLEAN_DTYPE
from seglog.config import LogConfig
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.retention import size_in_percent
from seglog.log.stats import BrokerTopicStats
from seglog.log.unified_log import UnifiedLog
from seglog.manager import unopened
from seglog.manager.directories import LogDirectory
from seglog.manager.manager_gauges import UnopenedGauges
from seglog.manager.offset_checkpoints import write_log_start_offsets
from seglog.manager.table import LogTable
from seglog.manager.unopened import UnopenedLogs
from seglog.metrics import Gauge, MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.clean_rows import CleanRows
from seglog.storage.paths import LOG_START_OFFSET_CHECKPOINT
from tests.manager.support import entries

UNKNOWN = np.iinfo(np.int64).min
NOW = 10_000
#: Three segments of 100 bytes at 5, 10 and 15; the log ends at 20.
WHOLE = {"first_base_offset": 5, "second_base_offset": 10, "log_start_offset": 5,
         "log_end_offset": 20, "size": 300, "first_size": 100, "segments": 3}
SINGLE = {"first_base_offset": 5, "second_base_offset": -1, "log_start_offset": 5,
          "log_end_offset": 20, "size": 100, "first_size": 100, "segments": 1}


def made(*rows: dict[str, Any], marks: list[int] | None = None, after_crash: bool = False,
         timestamps: list[int] | None = None, expires: int | None = None) -> UnopenedLogs:
    """The logs t-0, t-1, ... with these facts."""
    files = np.zeros(len(rows), CLEAN_DTYPE)
    for row, facts in enumerate(rows):
        for name, value in facts.items():
            files[name][row] = value
    keys = [TopicPartition("t", number) for number in range(len(rows))]
    zeros = np.zeros(len(rows), np.int64)
    table = CleanRows(keys, files, np.array(marks or [1 << 40] * len(rows), np.int64), zeros, zeros,
                      [], np.array(timestamps or [], np.int64), after_crash)

    def open_log(logs: UnopenedLogs, row: int) -> UnifiedLog:
        raise AssertionError("nobody asked for it")

    return UnopenedLogs("d", table, 1000, open_log, expires, 100)


def swept(logs: UnopenedLogs, largest: int = 0, **config: Any) -> list[int]:
    """The numbers of the logs that retention looks at. `largest` is the largest timestamp of the
    first segments."""
    assert not logs.was_swept
    unopened_timestamps = np.full(len(logs.rows.keys), largest, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unopened, "largest_timestamps", lambda *_: unopened_timestamps)
        found = logs.sweep(NOW, lambda _: LogConfig.from_properties(
            {"retention.ms": "-1", **{key.replace("_", "."): str(value)
                                      for key, value in config.items()}}))
    assert logs.was_swept
    return [key.partition for key in found]


def test_the_start_offset_reaches_the_second_segment() -> None:
    rows = [WHOLE | {"log_start_offset": start} for start in (9, 10, 11)]
    assert swept(made(*rows)) == [1, 2]
    # The last segment is not deleted for its start; compacted logs are the cleaner's.
    assert swept(made(SINGLE | {"log_start_offset": 20})) == []
    assert swept(made(*rows), cleanup_policy="compact") == []


@pytest.mark.parametrize(("limit", "expected"), [
    (0, [0, 1]), (1, [0]), (199, [0]), (200, [0]), (201, []), (-1, [])])
def test_the_size_counts_without_the_first_segment(limit: int, expected: list[int]) -> None:
    empty = SINGLE | {"size": 0, "first_size": 0}
    assert swept(made(WHOLE, SINGLE, empty), retention_bytes=limit) == expected


@pytest.mark.parametrize(("largest", "limit", "expected"), [
    (NOW - 51, 50, [0, 1]), (NOW - 50, 50, []), (NOW, 0, []), (NOW - 1, 0, [0, 1]),
    (NOW - 9999, -1, []), (UNKNOWN, 50, [0, 1]), (NOW + 1, 50, [0, 1, 2])])
def test_the_largest_timestamp_of_the_first_segment_counts(largest: int, limit: int,
                                                           expected: list[int]) -> None:
    """One in the future is logged, of an empty log, too."""
    empty = SINGLE | {"size": 0, "first_size": 0}
    assert swept(made(WHOLE, SINGLE, empty), largest, retention_ms=limit) == expected


def test_segments_above_the_high_watermark_stay() -> None:
    assert swept(made(WHOLE, WHOLE, SINGLE, SINGLE, marks=[9, 10, 19, 20]), retention_ms=0) == [
        1, 3]


def test_what_the_logs_report() -> None:
    rows = [WHOLE, WHOLE | {"log_start_offset": 7, "recovery_point": 3}, SINGLE]
    logs = made(*rows, marks=[11, 12, 13])
    zero, one, two = logs
    assert len(logs) == 3 and one in logs and logs.row(two) == 2
    assert logs.log_start_offsets() == {one: 7}
    assert logs.high_watermarks() == {zero: 11, one: 12, two: 13}
    assert logs.recovery_points() == {zero: 20, one: 20, two: 20} and logs.recovery_point(1) == 20
    assert logs.number(two, "size") == 100
    assert logs.take(one) and not logs.take(one)
    assert logs.log_start_offsets() == {} and logs.row(one) is None and len(logs) == 2
    assert logs.number(one, "size") == 0
    crashed = made(*rows, after_crash=True)
    assert crashed.recovery_points() == {zero: 0, one: 3, two: 0}
    assert crashed.recovery_point(1) == 3


def test_the_checkpoint_of_starts_has_those_of_logs_that_nobody_opened(tmp_path: Path) -> None:
    logs, served = made(WHOLE, WHOLE | {"log_start_offset": 7}), list[object]()
    logs.log_dir = str(tmp_path)
    table = LogTable(lambda: NOW, served.append)
    table.add_unopened(logs)
    directory = LogDirectory(logs.log_dir, None, LogDirFailureChannel())
    directory.lock()
    write_log_start_offsets(directory, table)
    directory.unlock()
    assert entries(tmp_path / LOG_START_OFFSET_CHECKPOINT) == {TopicPartition("t", 1): 7}
    assert not served


def test_a_flush_syncs_what_a_recovery_left_unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the names and indexes, but the logs too."""
    synced: list[tuple[str, list[str], list[int], bool]] = []
    monkeypatch.setattr(unopened, "sync_clean", lambda log_dir, names, rows, *, logs: synced.append(
        (log_dir, names, rows["recovery_point"].tolist(), logs)))
    rows = [WHOLE | {"recovery_point": point} for point in (19, 20, 0)]
    clean = made(*rows)
    clean.flush()
    assert not synced
    crashed = made(*rows, after_crash=True)
    crashed.flush()
    crashed.flush()
    assert synced == [("d", ["t-0", "t-2"], [19, 0], True)]
    assert set(crashed.recovery_points().values()) == {20}


@pytest.mark.parametrize(("now", "expires", "expected"), [
    (1000, 50, 1), (1099, 50, 1), (1100, 50, 0), (1100, 101, 1), (1100, 100, 0), (5000, None, 3),
    (0, 50, 1)])
def test_idle_producers_go_at_the_checks_after_the_load(now: int, expires: int | None,
                                                        expected: int) -> None:
    """The load was at 1000, and checks are 100 ms apart."""
    rows = [WHOLE, WHOLE | {"producers": 2, "producers_at": 1}, SINGLE | {"producers": 1}]
    logs = made(*rows, timestamps=[10, 20, 1000], expires=expires)
    assert logs.producer_count(now) == expected


@pytest.mark.parametrize(("now", "last", "expected"), [
    (1000, 950, 0), (1000, 951, 1), (1099, 951, 1), (999, 950, 0), (999, 951, 1)])
def test_the_load_is_the_first_check_of_producers(now: int, last: int, expected: int) -> None:
    rows = [WHOLE | {"producers": 1}]
    assert made(*rows, timestamps=[last], expires=50).producer_count(now) == expected


def test_the_gauge_of_retention_is_0_until_it_has_looked() -> None:
    logs, config = made(WHOLE), LogConfig(retention_bytes=600)
    gauges = UnopenedGauges(logs, BrokerTopicStats(MetricsRegistry()), lambda _: config)
    gauge = gauges.find("kafka.log:type=Log,name=RetentionSizeInPercent,topic=t,partition=0")
    assert isinstance(gauge, Gauge) and gauge.value == 0
    swept(logs)
    assert gauge.value == 50


def test_the_meters_of_topics_are_there_once_the_gauges_are_counted() -> None:
    stats = BrokerTopicStats(MetricsRegistry())
    before = len(stats.registry)
    gauges = UnopenedGauges(made(SINGLE, SINGLE), stats, lambda _: LogConfig())
    count = len(gauges)
    assert len(stats.registry) > before
    assert count == len(list(gauges.metrics()))


def test_retention_in_percent() -> None:
    assert [size_in_percent(50, LogConfig(retention_bytes=limit), is_local=False)
            for limit in (100, 1, 0, -1)] == [50, 5000, 0, 0]
