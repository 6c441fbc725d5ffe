"""What a manager does by itself: tasks by name and time, retention, checkpoints, settings."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import ConfigError, InvalidRecordError, KafkaStorageError
from seglog.log.scheduler import MockTime, Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.directories import LogDirectory
from seglog.model import TopicPartition
from seglog.storage.producer_state import ProducerState
from tests.manager.records import NOW_MS, fill
from tests.manager.support import entries, make_dir
from tests.oracle import legacy
from tests.support.waiting import wait_for

N0, N1 = TopicPartition("new", 0), TopicPartition("new", 1)
RECOVERY, STARTS, WATERMARKS = (f"{name}-offset-checkpoint" for name in (
    "recovery-point", "log-start", "replication"))
SMALL = LogConfig(internal_segment_bytes=1_000, file_delete_delay_ms=500)
DELAY = 30_000  # log.initial.task.delay.ms


def manager_of(root: Path, settings: LogConfig = SMALL, properties: dict[str, str] | None = None,
               **how: Any) -> tuple[seglog.LogManager, MockTime]:
    time = MockTime(current_time_ms=NOW_MS)
    config = BrokerConfig.from_properties({"log.dirs": str(root), **(properties or {})})
    return seglog.LogManager(config=config, scheduler=time.scheduler, time=time,
                             log_config=settings, **how), time


def test_names_and_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        manager, time = manager_of(tmp_path / "k", properties={"log.initial.task.delay.ms": "7"})
        assert not time.scheduler.pending_tasks
        with manager:
            assert sorted(time.scheduler.pending_tasks) == [
                "highwatermark-checkpoint", "kafka-delete-logs", "kafka-log-flusher",
                "kafka-log-retention", "kafka-log-start-offset-checkpoint",
                "kafka-recovery-point-checkpoint"]
            assert "Starting log cleanup with a period of 300000 ms." in caplog.messages
            assert ("Starting log flusher with a default period of 9223372036854775807 ms."
                    in caplog.messages)
        time.sleep(1_000_000)
        assert not time.scheduler.pending_tasks, "nothing is left of a manager that is closed"


def test_without_a_scheduler_nothing_goes_by_itself(tmp_path: Path) -> None:
    time = MockTime(current_time_ms=NOW_MS)
    with seglog.LogManager(tmp_path / "k", log_config=SMALL, time=time) as manager:
        log = manager.get_or_create_log(N0)
        fill(log, 9)
        manager.async_delete(N0)
        time.sleep(10**12)
        assert manager.logs_to_be_deleted == [log]


def test_retention(tmp_path: Path) -> None:
    settings = LogConfig(internal_segment_bytes=1_000, retention_bytes=2_500, retention_ms=-1,
                         file_delete_delay_ms=500)
    manager, time = manager_of(tmp_path / "k", settings)
    with manager:
        log = manager.get_or_create_log(N0)
        end = fill(log, 20)
        gauge = "kafka.log:type=Log,name={},topic=new,partition=0"
        before = log.size
        assert manager.metrics.snapshot()[gauge.format("Size")]["Value"] == before
        time.sleep(DELAY)
        assert log.log_start_offset == 0, "nothing above the high watermark goes"
        log.update_high_watermark(end)
        time.sleep(300_000)
        assert 2_500 <= log.size < 3_500 and log.log_start_offset > 0
        values = manager.metrics.snapshot()
        assert values[gauge.format("Size")]["Value"] == log.size
        assert values[gauge.format("LogStartOffset")]["Value"] == log.log_start_offset
        assert values[gauge.format("LogEndOffset")]["Value"] == end
        assert values[gauge.format("NumLogSegments")]["Value"] == len(log.segments)
        assert values[gauge.format("RetentionSizeInPercent")]["Value"] == log.size * 100 // 2_500
        gone = list(Path(log.path).glob("*.deleted"))
        assert gone
        time.sleep(500)
        assert not list(Path(log.path).glob("*.deleted"))
        start = log.log_start_offset
        time.sleep(60_000)
        # The start is that of the first segment: no line is needed to find it again.
        assert entries(tmp_path / "k" / STARTS) == {}
    with manager_of(tmp_path / "k", settings)[0] as manager:
        again = manager.get_log(N0)
        assert again is not None and again.log_start_offset == start


def test_retention_opens_the_logs_of_which_it_deletes_something(tmp_path: Path) -> None:
    settings = LogConfig(internal_segment_bytes=1_000, retention_bytes=2_500, retention_ms=-1)
    with manager_of(tmp_path / "k")[0] as manager:
        for key, batches in ((N0, 20), (N1, 2)):
            log = manager.get_or_create_log(key)
            log.update_high_watermark(fill(log, batches))
    manager, time = manager_of(tmp_path / "k", settings)
    with manager:
        assert not manager._state.table.opened()
        time.sleep(DELAY)
        log, = manager._state.table.opened()
        assert log.topic_partition == N0 and log.log_start_offset > 0


def test_compacted_logs_are_not_retained(tmp_path: Path) -> None:
    settings = LogConfig(internal_segment_bytes=1_000, retention_bytes=1,
                         cleanup_policy=("compact", "delete"))
    manager, time = manager_of(tmp_path / "k", settings, {"log.cleaner.enable": "false"})
    with manager:
        log = manager.get_or_create_log(N0)
        log.update_high_watermark(fill(log, 9))
        time.sleep(10 * DELAY)
        assert log.log_start_offset == 0


def test_one_log_that_fails_ends_a_run_and_not_the_task(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    manager, time = manager_of(tmp_path / "k")
    runs = []

    def broken(log: UnifiedLog) -> int:
        runs.append(log.topic_partition)
        raise KafkaStorageError("no luck")

    with manager:
        manager.get_or_create_log(N0)
        monkeypatch.setattr(UnifiedLog, "delete_old_segments", broken)
        time.sleep(DELAY)
        time.sleep(300_000)
        assert runs == [N0, N0]
        assert caplog.messages.count(
            "Uncaught exception in scheduled task 'kafka-log-retention'") == 2


def test_the_flusher(tmp_path: Path) -> None:
    manager, time = manager_of(tmp_path / "k", LogConfig(flush_ms=5_000),
                               {"log.flush.scheduler.interval.ms": "1000"})
    with manager:
        log = manager.get_or_create_log(N0)
        end = fill(log, 3)
        time.sleep(4_999)
        assert log.recovery_point == 0
        time.sleep(DELAY)
        assert log.recovery_point == end
        flushes = manager.metrics.snapshot()[
            "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"]["Count"]
        assert flushes == 1
        time.sleep(60_000)
        assert entries(tmp_path / "k" / RECOVERY) == {N0: end}


def test_a_flush_that_fails_keeps_no_other(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    manager, time = manager_of(tmp_path / "k", LogConfig(flush_ms=1),
                               {"log.flush.scheduler.interval.ms": "1000"})
    flush = UnifiedLog.flush

    def broken(log: UnifiedLog, force: bool = False) -> None:
        if log.topic_partition == N0 and not force:
            raise KafkaStorageError("no luck")
        flush(log, force)

    with manager:
        first, second = (manager.get_or_create_log(key) for key in (N0, N1))
        fill(first, 1)
        end = fill(second, 1)
        monkeypatch.setattr(UnifiedLog, "flush", broken)
        time.sleep(DELAY)
        assert first.recovery_point == 0 and second.recovery_point == end
        assert "Error flushing topic new" in caplog.messages


def test_checkpoints_are_written_at_their_times(tmp_path: Path) -> None:
    manager, time = manager_of(tmp_path / "k")
    root = tmp_path / "k"
    with manager:
        log = manager.get_or_create_log(N0)
        end = fill(log, 2)
        log.update_high_watermark(end)
        log.flush(True)
        log.maybe_increment_log_start_offset(2, StartOffsetReason.CLIENT_RECORD_DELETION)
        assert not (root / WATERMARKS).exists()
        time.sleep(5_000)
        assert entries(root / WATERMARKS) == {N0: end}
        assert (root / RECOVERY).read_bytes() == b"" == (root / STARTS).read_bytes()
        time.sleep(DELAY)
        assert entries(root / RECOVERY) == {N0: end} and entries(root / STARTS) == {N0: 2}


def test_starts_have_a_time_of_their_own(tmp_path: Path) -> None:
    manager, time = manager_of(tmp_path / "k", properties={
        "log.flush.start.offset.checkpoint.interval.ms": "1000"})
    with manager:
        log = manager.get_or_create_log(N0)
        log.update_high_watermark(fill(log, 2))
        log.maybe_increment_log_start_offset(2, StartOffsetReason.CLIENT_RECORD_DELETION)
        time.sleep(DELAY)
        written = entries(tmp_path / "k" / RECOVERY)
        log.maybe_increment_log_start_offset(3, StartOffsetReason.CLIENT_RECORD_DELETION)
        log.flush(True)
        time.sleep(1_000)
        assert entries(tmp_path / "k" / STARTS) == {N0: 3}
        assert entries(tmp_path / "k" / RECOVERY) == written


def test_a_start_is_on_the_disk_before_the_recovery_point_that_it_lifts(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = LogDirectory.write_checkpoint

    def noted(self: LogDirectory, name: str, offsets: dict[TopicPartition, int]) -> None:
        written.append((name, dict(offsets)))
        write(self, name, offsets)

    manager, _ = manager_of(tmp_path / "k")
    with manager:
        log = manager.get_or_create_log(N0)
        end = fill(log, 4)
        log.update_high_watermark(end)
        log.maybe_increment_log_start_offset(8, StartOffsetReason.CLIENT_RECORD_DELETION)
        monkeypatch.setattr(LogDirectory, "write_checkpoint", noted)
        manager.checkpoint_log_recovery_offsets()
        assert log.recovery_point == 8
        assert written == [(STARTS, {N0: 8}), (RECOVERY, {N0: 8})]


def test_a_crash_leaves_what_the_checkpoints_say(tmp_path: Path) -> None:
    manager, time = manager_of(tmp_path / "k")
    with manager:
        log = manager.get_or_create_log(N0)
        end = fill(log, 4)
        log.update_high_watermark(end - 3)
        time.sleep(DELAY)
        shutil.copytree(tmp_path / "k", tmp_path / "crashed")  # what a process that dies leaves
    with manager_of(tmp_path / "crashed")[0] as again:
        found = again.get_log(N0)
        assert found is not None and found.log_end_offset == end
        assert found.high_watermark == end - 3


def test_settings_of_a_topic(tmp_path: Path) -> None:
    manager, _ = manager_of(tmp_path / "k")
    with manager:
        log, other = manager.get_or_create_log(N0), manager.get_or_create_log(
            TopicPartition("other", 0))
        manager.update_topic_config("new", {"retention.ms": "77", "flush.messages": 1})
        assert (log.config.retention_ms, log.config.flush_messages) == (77, 1)
        assert log.config.internal_segment_bytes == 1_000
        assert other.config is manager.current_default_config
        end = fill(log, 1)
        assert log.recovery_point == end, "flush.messages counts at once"
        with pytest.raises(ConfigError):
            manager.update_topic_config("new", {"retention.ms": "-5"})
        with pytest.raises(ConfigError, match="remote.storage.enable"):
            manager.update_topic_config("new", {"remote.storage.enable": "true"})
        assert manager.topic_config("new") is log.config
        assert manager.get_or_create_log(N1).config is log.config
        # A topic keeps what it has set itself, whatever the defaults become.
        manager.reconfigure_default_log_config(LogConfig(retention_ms=1, index_interval_bytes=5))
        assert (log.config.retention_ms, log.config.index_interval_bytes) == (77, 5)
        assert other.config.retention_ms == 1
        manager.update_topic_config("new", {})
        assert log.config is other.config is manager.current_default_config


def test_settings_that_change_while_a_log_is_loaded(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    manager, _ = manager_of(root)
    load = seglog.manager.loading.load_unified_log

    def slow(*args: Any, **how: Any) -> UnifiedLog:
        log = load(*args, **how)
        manager.update_topic_config("a", {"retention.ms": "42"})
        return log

    monkeypatch.setattr(seglog.manager.loading, "load_unified_log", slow)
    with manager:
        log = manager.get_log(TopicPartition("a", 0))
        assert log is not None and log.config.retention_ms == 42


def test_metrics_of_logs_come_and_go_with_them(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "b-0"])
    other = make_dir(tmp_path / "k2", ["c-0"])
    manager = seglog.LogManager([root, other])

    def topics() -> set[str]:
        return {name.split("topic=")[1].split(",")[0] for name in manager.metrics.snapshot()
                if name.startswith("kafka.log:type=Log,")}

    manager.startup()
    assert topics() == {"a", "b", "c"}
    assert manager.metrics.snapshot()[
        "kafka.server:type=ReplicaManager,name=ProducerIdCount"]["Value"] == sum(
        len(log.producers.entries) for log in manager.current_logs.values())
    manager.async_delete(TopicPartition("a", 0))
    assert topics() == {"b", "c"}
    log = manager.get_or_create_log(N0)
    assert topics() == {"b", "c", "new"}
    fill(log, 5)
    appended = "kafka.server:type=BrokerTopicMetrics,name={}PerSec,topic=new"
    values = manager.metrics.snapshot()
    assert values[appended.format("MessagesIn")]["Count"] == log.log_end_offset == 15
    assert values[appended.format("BytesIn")]["Count"] == log.size
    assert values[appended.format("ProduceMessageConversions")]["Count"] == 0
    mixed = b"".join(legacy.encode(legacy.Message(n, n, value=b"v", timestamp=5)) for n in (0, 1))
    with pytest.raises(InvalidRecordError, match="not the same as the first batch's magic byte"):
        log.append_as_leader(mixed, 0)
    assert manager.metrics.snapshot()[
        "kafka.server:type=BrokerTopicMetrics,name=InvalidMagicNumberRecordsPerSec"]["Count"] == 1
    manager.update_topic_config("new", {"compression.type": "gzip"})
    fill(log, 2)
    follower = manager.get_or_create_log(N1)
    copied = log.read(0, 1 << 20).records
    follower.append_as_follower(copied, 0)
    values = manager.metrics.snapshot()
    assert values[appended.format("ProduceMessageConversions")]["Count"] == 6
    assert values[appended.format("MessagesIn")]["Count"] == 21
    assert values["kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec"][
        "Count"] == len(copied) == follower.size
    manager.handle_log_dir_failure(other)
    wait_for(lambda: "c" not in topics())
    assert not manager.is_log_dir_online(other)
    manager.shutdown()


def test_gauges_of_directories_and_their_values(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / name, []) for name in ("k1", "k2", "k3")]
    manager = seglog.LogManager(roots)

    def gauges() -> dict[str, object]:
        found = {name.partition("type=LogManager,name=")[2]: values["Value"]
                 for name, values in manager.metrics.snapshot().items() if "LogManager," in name}
        return {name.replace(f"{tmp_path}/", ""): value for name, value in found.items()}

    def expected(offline: list[int], cordoned: list[int]) -> dict[str, object]:
        return {"OfflineLogDirectoryCount": sum(offline),
                "CordonedLogDirectoryCount": sum(cordoned)} | {
            f'LogDirectory{what},logDirectory="k{number}"': value
            for what, values in (("Offline", offline), ("Cordoned", cordoned))
            for number, value in enumerate(values, 1)}

    assert gauges() == expected([0, 0, 0], [0, 0, 0])
    with manager:
        manager.update_cordoned_log_dirs(roots[1:])
        manager.handle_log_dir_failure(roots[2])
        wait_for(lambda: not manager.is_log_dir_online(roots[2]))
        assert gauges() == expected([0, 0, 1], [0, 1, 1])
        manager.update_cordoned_log_dirs(["*"])
        assert gauges() == expected([0, 0, 1], [1, 1, 1])
        log = manager.get_or_create_log(N0, is_new=True)
        for producer in (7, 8):
            fill(log, 1, producer_id=producer, sequence=0)
        producers = "kafka.server:type=ReplicaManager,name=ProducerIdCount"
        assert manager.metrics.snapshot()[producers]["Value"] == 2
    assert gauges() == {} and producers not in manager.metrics.snapshot()


def test_producers_are_counted_without_reading_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append moves them in memory without the GIL, and a metric does not wait for its lock."""
    manager, _ = manager_of(tmp_path / "k")
    with manager:
        fill(manager.get_or_create_log(N0), 1, producer_id=7, sequence=0)
        monkeypatch.setattr(ProducerState, "entries", None)
        assert manager.metrics.snapshot()[
            "kafka.server:type=ReplicaManager,name=ProducerIdCount"]["Value"] == 1


def test_threads_of_a_manager_end_with_it(tmp_path: Path) -> None:
    scheduler = Scheduler(3)
    config = BrokerConfig.from_properties({
        "log.dirs": str(tmp_path / "k"), "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "1", "log.flush.scheduler.interval.ms": "1",
        "log.flush.offset.checkpoint.interval.ms": "1",
        "log.flush.start.offset.checkpoint.interval.ms": "1",
        "replica.high.watermark.checkpoint.interval.ms": "1"})
    with seglog.LogManager(config=config, scheduler=scheduler,
                           log_config=LogConfig(flush_ms=0, internal_segment_bytes=1_000,
                                                file_delete_delay_ms=1)) as manager:
        for number in range(20):
            log = manager.get_or_create_log(TopicPartition("new", number % 3))
            fill(log, 3)
            if number % 4 == 3:
                manager.async_delete(log.topic_partition)
        ends = {key: log.log_end_offset for key, log in manager.current_logs.items()}
    assert not scheduler.is_started
    assert entries(tmp_path / "k" / RECOVERY) == ends
    with seglog.LogManager(tmp_path / "k") as manager:
        assert {key: log.log_end_offset for key, log in manager.current_logs.items()} == ends


def test_managers_that_share_a_scheduler(tmp_path: Path) -> None:
    """The first one starts it, and shuts it down."""
    scheduler = Scheduler()
    first, second = (seglog.LogManager(tmp_path / name, scheduler=scheduler)
                     for name in ("k1", "k2"))
    with first:
        with second:
            assert second.is_running
        assert scheduler.is_started and "kafka-log-retention" in scheduler.pending_tasks
        seglog.LogManager(tmp_path / "k3", scheduler=scheduler).shutdown()
        assert scheduler.is_started, "also after one that never started"
    assert not scheduler.is_started
