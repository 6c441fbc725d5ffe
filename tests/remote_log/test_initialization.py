"""When the metadata manager begins to work (KIP-1197), by a clock that stands still."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.errors import (
    ConfigError, IllegalStateError, RemoteStorageError, RetriableRemoteStorageError,
)
from seglog.log.scheduler import MockTime
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.remote_log.embedded_topic import EmbeddedMetadataTopic
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.remote_log.topic_based_manager import TopicBasedRemoteLogMetadataManager
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from tests.remote_log.support import (
    NOW_MS, ORDERS, RLMM, LateTopic, metadata_manager, running_manager, segment,
)
from tests.support.held import threads_since
from tests.support.waiting import wait_for

TIMEOUT_MS = 120_000
START_UP_MS = 150_000


@pytest.fixture
def clock() -> MockTime:
    return MockTime(current_time_ms=NOW_MS)


@pytest.fixture
def logs(tmp_path: Path, clock: MockTime) -> Iterator[LogManager]:
    with running_manager(tmp_path / "data", clock) as manager:
        yield manager


def made(logs: LogManager, clock: MockTime, serves_from_ms: int, **settings: object
         ) -> tuple[TopicBasedRemoteLogMetadataManager, list[LateTopic]]:
    """A configured manager, and the topics that it made."""
    topics: list[LateTopic] = []

    def transport(config: TopicBasedRemoteLogMetadataManagerConfig) -> LateTopic:
        topics.append(LateTopic(logs, config, clock, serves_from_ms))
        return topics[-1]

    manager = TopicBasedRemoteLogMetadataManager(transport, time=clock, scheduler=clock.scheduler)
    manager.configure({**RLMM, **settings})
    return manager, topics


def metadata_logs(logs: LogManager) -> list[TopicPartition]:
    return [key for key in logs.current_logs if key.topic == REMOTE_LOG_METADATA_TOPIC]


def run_until(clock: MockTime, end_ms: int) -> None:
    while clock.milliseconds() < end_ms:
        clock.sleep(50)


def test_a_long_start_up_fails_if_the_timeout_counts_from_configure(
        logs: LogManager, clock: MockTime) -> None:
    """Kafka before KIP-1197: the initialization began with `configure`, so that a start-up of
    more than two minutes was its end."""
    manager, topics = made(logs, clock, NOW_MS + START_UP_MS)
    manager.on_broker_ready()  # where the older broker began
    run_until(clock, NOW_MS + START_UP_MS)
    assert not manager.is_initialized
    assert str(manager.initialization_failure) == (
        f"Timed out to initialize the resources within {TIMEOUT_MS} ms.")
    assert len(topics[0].asked) == TIMEOUT_MS // 100 + 1
    with pytest.raises(RemoteStorageError, match="Timed out") as caught:
        manager.list_all_remote_log_segments(ORDERS)
    assert not isinstance(caught.value, RetriableRemoteStorageError)
    manager.close()


def test_a_long_start_up_is_no_failure(tmp_path: Path, clock: MockTime) -> None:
    """The callback of the LogManager comes at the end of its start-up, and the timeout counts from
    there."""
    manager_logs = LogManager([tmp_path / "data"], time=clock, scheduler=clock.scheduler)
    manager, topics = made(manager_logs, clock, NOW_MS + START_UP_MS)
    manager.on_partition_leadership_changes([ORDERS], [])
    manager_logs.register_startup_callback(manager.on_broker_ready)
    run_until(clock, NOW_MS + START_UP_MS)  # so long do other parts of the broker need
    assert not topics, "nothing touches the topic before the callback"
    with pytest.raises(RetriableRemoteStorageError, match="the broker is not ready yet"):
        manager.add_remote_log_segment_metadata(segment(0, 9))
    with manager_logs:
        assert manager.is_initialized and manager.initialization_failure is None
        assert len(metadata_logs(manager_logs)) == 3
        wait_for(lambda: manager.is_ready(ORDERS))
        manager.close()


def test_retries_at_the_interval_until_the_broker_serves(
        logs: LogManager, clock: MockTime) -> None:
    manager, topics = made(logs, clock, NOW_MS + 60_000,
                           **{"remote.log.metadata.initialization.retry.interval.ms": 250})
    manager.on_broker_ready()
    with pytest.raises(RetriableRemoteStorageError, match="is under way"):
        manager.highest_offset_for_epoch(ORDERS, 0)
    assert not metadata_logs(logs)
    run_until(clock, NOW_MS + 60_000)
    assert manager.is_initialized
    assert topics[0].asked[:-1] == [NOW_MS + at for at in range(0, 60_001, 250)]
    manager.close()


def test_failure_stops_nothing_else(logs: LogManager, clock: MockTime,
                                    caplog: pytest.LogCaptureFixture) -> None:
    for partition in range(4):
        logs.get_or_create_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition))
    manager, _ = made(logs, clock, 0)
    with caplog.at_level(logging.ERROR):
        manager.on_broker_ready()
    assert "Existing topic partition count 4 is not same as the expected partition count 3" in \
        caplog.text
    assert "count 4" in str(manager.initialization_failure)
    with pytest.raises(RemoteStorageError, match="count 4"):
        manager.add_remote_log_segment_metadata(segment(0, 9))
    manager.on_partition_leadership_changes([ORDERS], [])  # leadership changes still work
    assert not manager.is_ready(ORDERS)
    assert logs.is_running and not clock.scheduler.pending_tasks.count("rlmm-initialization")
    manager.close()


def test_settings_that_lose_metadata_are_refused(logs: LogManager, clock: MockTime) -> None:
    logs.update_topic_config(REMOTE_LOG_METADATA_TOPIC, {"cleanup.policy": "compact"})
    manager, _ = made(logs, clock, 0)
    manager.on_broker_ready()
    assert "cleanup.policy=compact" in str(manager.initialization_failure)
    assert not metadata_logs(logs)
    manager.close()


def test_the_topic_gets_kafkas_settings(logs: LogManager, clock: MockTime) -> None:
    manager, _ = made(logs, clock, 0)
    manager.on_broker_ready()
    config = logs.topic_config(REMOTE_LOG_METADATA_TOPIC)
    assert (config.retention_ms, config.cleanup_policy, config.remote_storage_enable,
            config.min_insync_replicas) == (-1, ("delete",), False, 2)
    assert config.overridden_configs == {"retention.ms", "cleanup.policy",
                                         "remote.storage.enable", "min.insync.replicas"}
    assert len({logs.current_logs[key].topic_id for key in metadata_logs(logs)}) == 1
    manager.close()


def test_a_creation_that_broke_off_is_completed(logs: LogManager, clock: MockTime) -> None:
    first = logs.get_or_create_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0))
    manager, _ = made(logs, clock, 0)
    manager.on_broker_ready()
    assert manager.is_initialized and len(metadata_logs(logs)) == 3
    assert logs.current_logs[first.topic_partition] is first
    manager.close()


def test_twice_is_harmless(logs: LogManager, clock: MockTime) -> None:
    before = set(threading.enumerate())
    manager, topics = made(logs, clock, NOW_MS + 1000)
    manager.on_broker_ready()
    clock.sleep(50)
    manager.on_broker_ready()
    run_until(clock, NOW_MS + 2000)
    manager.on_broker_ready()
    manager.configure({"broker.id": 9})
    assert manager.is_initialized and len(topics) == 1
    assert [one.name for one in threads_since(before)] == ["RLMMConsumerTask"]
    manager.close()
    manager.close()
    manager.on_broker_ready()
    assert not threads_since(before)


def test_before_configure(logs: LogManager, clock: MockTime) -> None:
    manager = TopicBasedRemoteLogMetadataManager(
        lambda config: EmbeddedMetadataTopic(logs, config, clock), time=clock)
    with pytest.raises(IllegalStateError, match="not configured"):
        manager.on_broker_ready()
    with pytest.raises(ConfigError, match="retention.ms"):
        manager.configure({"remote.log.metadata.topic.retention.ms": 0})
    manager.close()  # joins no thread that never ran


def test_closing_while_it_waits_for_the_next_attempt(tmp_path: Path) -> None:
    """With the real clock, and an hour between the attempts."""
    interval = {"remote.log.metadata.initialization.retry.interval.ms": 3_600_000}
    with running_manager(tmp_path / "data") as logs:
        logs.get_or_create_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0))
        logs.handle_log_dir_failure(tmp_path / "data")
        with metadata_manager(logs, interval, ready=False) as manager:
            manager.on_broker_ready()
            wait_for(lambda: manager._scheduler.pending_tasks)
            closing = threading.Thread(target=manager.close, daemon=True)
            closing.start()
            closing.join(60)
            assert not closing.is_alive()
            with pytest.raises(IllegalStateError, match="close: true"):
                manager.list_all_remote_log_segments(ORDERS)
            with pytest.raises(IllegalStateError, match="closing state"):
                manager.on_stop_partitions([ORDERS])
