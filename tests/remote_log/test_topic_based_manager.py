"""Events through the metadata topic of a LogManager, and answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import (
    IllegalArgumentError, RemoteMetadataTimeoutError, RemoteResourceNotFoundError,
    RemoteStorageError, RetriableRemoteStorageError,
)
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.remote_log.consumer_task import ConsumerTask
from seglog.remote_log.embedded_topic import EmbeddedMetadataTopic
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.tiered import (
    RemoteLogMetadataTopicPartitioner, RemoteLogSegmentState, RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState, RemotePartitionMetadataStore, TopicIdPartition,
    read_metadata_topic, serialize,
)
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from tests.remote_log.support import (
    NOW_MS, ORDERS, RLMM, metadata_manager, running_manager, segment, update,
)
from tests.support.waiting import wait_for

S = RemoteLogSegmentState
PARTITIONER = RemoteLogMetadataTopicPartitioner(3)


def same_metadata_partition(number: int) -> TopicIdPartition:
    """Another user partition in the same metadata partition as `orders`."""
    wanted = PARTITIONER.metadata_partition(ORDERS)
    found = (TopicIdPartition(bytes([9]) * 16, "others", at) for at in range(1000))
    return next(itertools.islice(
        (one for one in found if PARTITIONER.metadata_partition(one) == wanted), number, None))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    with running_manager(tmp_path / "data") as manager:
        yield manager


def test_a_write_is_in_the_answers_when_its_future_is_done(logs: LogManager) -> None:
    with metadata_manager(logs) as manager:
        manager.on_partition_leadership_changes([ORDERS], [])
        wait_for(lambda: manager.is_ready(ORDERS))
        for start in range(0, 200, 10):
            one = segment(start, start + 9)
            manager.add_remote_log_segment_metadata(one).result(60)
            assert manager.list_all_remote_log_segments(ORDERS)[-1] == one
            assert manager.remote_log_segment_metadata(ORDERS, 0, start) is None
            manager.update_remote_log_segment_metadata(update(one)).result(60)
            found = manager.remote_log_segment_metadata(ORDERS, 0, start + 9)
            assert found == one.create_with_updates(update(one))
            assert manager.highest_offset_for_epoch(ORDERS, 0) == start + 9
        assert manager.remote_log_size(ORDERS, 0) == 20 * 1000
        assert len(manager.list_remote_log_segments(ORDERS, 0)) == 20
        assert manager.next_segment_with_txn_index(ORDERS, 0, 15) is not None
        manager.put_remote_partition_delete_metadata(RemotePartitionDeleteMetadata(
            ORDERS, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, NOW_MS, 1)).result(60)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.list_all_remote_log_segments(ORDERS)


def test_a_restart_reads_everything_again(tmp_path: Path) -> None:
    events = [segment(start, start + 9) for start in range(0, 50, 10)]
    with running_manager(tmp_path / "data") as logs, metadata_manager(logs) as manager:
        manager.on_partition_leadership_changes([ORDERS], [])
        wait_for(lambda: manager.is_ready(ORDERS))
        for one in events:
            manager.add_remote_log_segment_metadata(one).result(60)
        manager.update_remote_log_segment_metadata(update(events[0])).result(60)
    with running_manager(tmp_path / "data") as logs, metadata_manager(logs, ready=False) as manager:
        manager.on_partition_leadership_changes([], [ORDERS])  # kept until it is initialized
        manager.on_broker_ready()
        wait_for(lambda: manager.is_ready(ORDERS))
        assert sorted(one.start_offset for one in manager.list_all_remote_log_segments(ORDERS)
                      ) == [0, 10, 20, 30, 40]
        assert manager.highest_offset_for_epoch(ORDERS, 0) == 9
    # And as any reader of the directory gets it.
    topic = read_metadata_topic(tmp_path / "data")
    assert topic.events == 6 and not topic.skipped
    assert len(topic.store.list_all_remote_log_segments(ORDERS)) == 5


def test_records_have_kafkas_partition_and_no_key(logs: LogManager) -> None:
    with metadata_manager(logs) as manager:
        manager.on_partition_leadership_changes([ORDERS], [])
        wait_for(lambda: manager.is_ready(ORDERS))
        one = segment(0, 9)
        manager.add_remote_log_segment_metadata(one).result(60)
    number = PARTITIONER.metadata_partition(ORDERS)
    with logs.open_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)) as log:
        rows = [columns.to_pylists() for columns in log.to_arrow(columns=["key", "value"])]
    assert rows == [{"key": [None], "value": [serialize(one)]}]


def test_writes_to_a_partition_that_is_not_followed(logs: LogManager) -> None:
    with metadata_manager(logs) as manager:
        with pytest.raises(RemoteStorageError, match="not assigned to the target partition"):
            manager.add_remote_log_segment_metadata(segment(0, 9)).result(60)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.list_all_remote_log_segments(ORDERS)
        assert not manager.is_ready(ORDERS)


def test_states_that_a_write_may_not_have(logs: LogManager) -> None:
    with metadata_manager(logs) as manager:
        with pytest.raises(IllegalArgumentError, match="COPY_SEGMENT_STARTED but it contains"):
            manager.add_remote_log_segment_metadata(
                segment(0, 9)._replace(state=S.COPY_SEGMENT_FINISHED))
        with pytest.raises(IllegalArgumentError, match="should not have the state as"):
            manager.update_remote_log_segment_metadata(
                update(segment(0, 9), S.COPY_SEGMENT_STARTED))


def test_garbage_does_not_end_the_reader(logs: LogManager) -> None:
    """Undecodable values, keys and absent values (KIP-1266), refused events: Kafka's task ends at
    the first of them."""
    with metadata_manager(logs) as manager:
        manager.on_partition_leadership_changes([ORDERS], [])
        wait_for(lambda: manager.is_ready(ORDERS))
        log = logs.get_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC,
                                          PARTITIONER.metadata_partition(ORDERS)))
        assert log is not None
        keyed = segment(100, 109)
        refused = segment(200, 209)._replace(state=S.COPY_SEGMENT_FINISHED)
        for key, value in ((None, b"\x01\x63\x00"), (b"key", None), (b"key", serialize(keyed)),
                           (None, serialize(refused)), (None, b"")):
            builder = RecordBatchBuilder(codec="zstd")
            builder.append(NOW_MS, key, value)
            log.append_as_leader(builder.build(), 0)
        one = segment(0, 9)
        manager.add_remote_log_segment_metadata(one).result(60)
        assert manager.list_all_remote_log_segments(ORDERS) == [keyed, one]
        assert [skipped.offset for skipped in manager.skipped] == [0, 1, 3, 4]
        assert "COPY_SEGMENT_STARTED" in str(manager.skipped[2])


# ---- the consumer's task, step by step

class Stepped:
    """A task without a thread, over logs whose clock stands still."""

    def __init__(self, path: Path) -> None:
        self.clock = MockTime(current_time_ms=NOW_MS)
        self.logs = LogManager([path], time=self.clock, scheduler=self.clock.scheduler)
        self.logs.startup()
        config = TopicBasedRemoteLogMetadataManagerConfig.from_properties(RLMM)
        self.topic = EmbeddedMetadataTopic(self.logs, config, self.clock)
        self.topic.create_topic()
        self.topic.open()
        self.store = RemotePartitionMetadataStore()
        self.task = ConsumerTask(self.store, self.topic, PARTITIONER, self.clock, poll_ms=0)

    def write(self, key: TopicIdPartition, start: int) -> int:
        return self.topic.publish(PARTITIONER.metadata_partition(key),
                                  serialize(segment(start, start + 9, key=key))).result(0)

    def starts(self, key: TopicIdPartition) -> list[int]:
        return [one.start_offset for one in self.store.list_all_remote_log_segments(key)]


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[Stepped]:
    made = Stepped(tmp_path / "data")
    yield made
    made.task.close()
    made.logs.shutdown()


def test_what_a_crash_left_is_durable_before_it_is_visible(stepped: Stepped) -> None:
    """An event that a second crash could take away may not cost local segments."""
    log = stepped.logs.get_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0))
    assert log is not None
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, serialize(segment(0, 9)))
    log.append_as_leader(builder.build(), 0)
    assert (log.recovery_point, log.high_watermark) == (0, 0)
    stepped.topic.open()
    assert (log.recovery_point, log.high_watermark) == (1, 1)


def test_events_of_threads_are_visible_as_they_become_durable(
        stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event does not show one that another thread has written and not synced yet, and does not
    hide one that another thread has synced meanwhile."""
    log = stepped.logs.get_log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, 0))
    assert log is not None
    flush, seen = UnifiedLog.flush, []

    def others(*given: Any) -> None:
        flush(*given)
        seen.append(log.high_watermark)
        if len(seen) == 1:
            stepped.topic.publish(0, serialize(segment(0, 9))).result(0)
        builder = RecordBatchBuilder()
        builder.append(NOW_MS, None, serialize(segment(10, 19)))
        log.append_as_leader(builder.build(), 0)

    monkeypatch.setattr(UnifiedLog, "flush", others)
    assert stepped.topic.publish(0, serialize(segment(20, 29))).result(0) == 0
    assert seen == [0, 0] and log.log_end_offset == 4
    assert log.high_watermark == 2, "the second event, and what is before it"


def test_a_partition_without_events_is_initialized_at_once(stepped: Stepped) -> None:
    stepped.task.add_assignments([ORDERS])
    assert stepped.store.partitions == ()
    stepped.task.step()
    assert stepped.store.partitions == (ORDERS,) and stepped.store.is_initialized(ORDERS)


def test_the_logs_may_be_shut_down_before_the_task(
        stepped: Stepped, caplog: pytest.LogCaptureFixture) -> None:
    stepped.write(ORDERS, 0)
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    stepped.write(ORDERS, 10)
    stepped.logs.shutdown()
    caplog.clear()
    for _ in range(3):
        stepped.task.step()
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]
    assert stepped.task.failure is None and stepped.starts(ORDERS) == [0]


def test_only_assigned_partitions_are_kept(stepped: Stepped) -> None:
    other = same_metadata_partition(0)
    stepped.write(ORDERS, 0)
    stepped.write(other, 10)
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    assert stepped.starts(ORDERS) == [0] and stepped.store.partitions == (ORDERS,)
    # The new one is read from the beginning, and the old one's events are applied once.
    stepped.task.add_assignments([other])
    stepped.write(ORDERS, 20)
    stepped.task.step()
    assert stepped.starts(other) == [10] and stepped.starts(ORDERS) == [0, 20]
    # What was dropped is read again when it comes back.
    stepped.task.remove_assignments([ORDERS])
    stepped.task.step()
    assert stepped.store.partitions == (other,)
    stepped.write(ORDERS, 30)
    stepped.task.step()
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    assert stepped.starts(ORDERS) == [0, 20, 30]


def test_readiness_waits_for_what_was_there_at_the_assignment(
        stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(0, 30, 10):
        stepped.write(ORDERS, start)
    poll, records = stepped.topic.poll, list[object]()
    monkeypatch.setattr(stepped.topic, "poll", lambda timeout: [
        records.pop(0)] if records or records.extend(poll(timeout)) or records else [])
    stepped.task.add_assignments([ORDERS])
    for _ in range(2):
        stepped.task.step()
        assert not stepped.store.is_initialized(ORDERS)
    stepped.task.step()
    assert stepped.store.is_initialized(ORDERS) and stepped.starts(ORDERS) == [0, 10, 20]


def test_a_write_that_is_not_read_back_in_time(stepped: Stepped) -> None:
    number = PARTITIONER.metadata_partition(ORDERS)
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    waiting = stepped.task.wait_until_consumed(number, 0, 5000)
    stepped.clock.sleep(5000)
    stepped.task.step()
    assert not waiting.done()
    stepped.clock.sleep(1)
    stepped.task.step()
    assert isinstance(waiting.exception(0), RemoteMetadataTimeoutError)
    offset = stepped.write(ORDERS, 0)
    waiting = stepped.task.wait_until_consumed(number, offset, 5000)
    assert not waiting.done()
    stepped.task.step()
    assert waiting.result(0) is None
    assert stepped.task.wait_until_consumed(number, offset, 0).result(0) is None


def test_closing_ends_what_waits(stepped: Stepped) -> None:
    stepped.write(ORDERS, 0)
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    waiting = stepped.task.wait_until_consumed(PARTITIONER.metadata_partition(ORDERS), 7, 5000)
    stepped.task.close()
    assert "has ended" in str(waiting.exception(0))
    assert "has ended" in str(stepped.task.wait_until_consumed(0, 0, 0).exception(0))


def test_a_write_whose_partition_is_followed_no_more(stepped: Stepped) -> None:
    """No task reads it back; it waited for ever if no other partition was followed."""
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    waiting = stepped.task.wait_until_consumed(PARTITIONER.metadata_partition(ORDERS), 0, 5000)
    stepped.task.remove_assignments([ORDERS])
    stepped.task.step()
    assert "not assigned to the target partition" in str(waiting.exception(0))


def test_an_assignment_that_has_to_be_repeated(
        stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped.write(ORDERS, 0)

    def fails(_: object) -> None:
        monkeypatch.undo()
        raise RetriableRemoteStorageError("not now")

    monkeypatch.setattr(stepped.topic, "assign", fails)
    stepped.task.add_assignments([ORDERS])
    for _ in range(2):
        stepped.task.step()
    assert stepped.store.is_initialized(ORDERS) and stepped.starts(ORDERS) == [0]


def test_a_partition_that_comes_back_while_it_is_dropped(
        stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read from the beginning into an empty store: no event is refused as one that is known,
    and no deleted segment appears again."""
    stepped.write(ORDERS, 0)
    stepped.task.add_assignments([ORDERS])
    stepped.task.step()
    assign = stepped.topic.assign

    def assign_then_add(positions: Mapping[int, int | None]) -> None:
        monkeypatch.undo()
        assign(positions)
        stepped.task.add_assignments([ORDERS])

    monkeypatch.setattr(stepped.topic, "assign", assign_then_add)
    stepped.task.remove_assignments([ORDERS])
    stepped.task.step()
    assert not stepped.store.is_initialized(ORDERS)
    stepped.task.step()
    assert stepped.store.is_initialized(ORDERS) and stepped.starts(ORDERS) == [0]
    assert not stepped.task.skipped
