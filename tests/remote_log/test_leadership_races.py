"""Tasks of a tiered partition beside changes of its leadership, its deletion and its creation under
the same name, and the end of all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from seglog.errors import RemoteMetadataTimeoutError, RemoteStorageError
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.partition_tasks import PartitionTasks
from seglog.remote_log.remote_task import FollowerTask, RemoteLogTask
from seglog.tiered.remote_records import (
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, TopicIdPartition,
)
from seglog.tiered.segment_states import RemoteLogSegmentState
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import ID_KEY, KEY, TASK_MS, Tiering
from tests.support.waiting import PATIENCE, wait_for

OTHER_ID = uuid.UUID(int=7)
TOPIC = {"local.retention.bytes": -1, "local.retention.ms": -1}


@pytest.fixture
def tiering(tmp_path: Path) -> Iterator[Tiering]:
    made = Tiering(tmp_path, topic=TOPIC)
    yield made
    made.close()


def create_again(tiering: Tiering) -> None:
    """The topic is deleted, and created with another id; nobody has said so to the tasks."""
    tiering.manager.async_delete(KEY)
    tiering.log = tiering.manager.get_or_create_log(KEY, is_new=True, topic_id=OTHER_ID)
    tiering.append(40)


def registered(tiering: Tiering, name: str) -> list[str]:
    return [one for one in tiering.manager.metrics.snapshot() if f"name={name}," in one
            and "topic=orders" in one and not one.startswith("kafka.log:")]


@pytest.mark.parametrize("kind", [CopyTask, FollowerTask, ExpirationTask])
def test_the_tasks_of_a_topic_leave_the_next_one_of_its_name_alone(
        tiering: Tiering, kind: type[RemoteLogTask]) -> None:
    """They copied the new log's segments under the old id, moved its start to the old one's, and
    local retention deleted segments that were never copied."""
    tiering.append(30)
    tiering.copy()
    before = tiering.storage.starts()
    create_again(tiering)
    tiering.manager.update_topic_config("orders", {
        "remote.storage.enable": "true", "internal.segment.bytes": 850, "index.interval.bytes": 0,
        "retention.ms": 1, "local.retention.ms": 1})
    tiering.clock.set_current_time_ms(NOW_MS + 10)
    context = tiering.tiering._tasks._context
    task = (CopyTask(context, ID_KEY, tiering.tiering.copy_quota)
            if kind is CopyTask else kind(context, ID_KEY))
    task.run()
    log = tiering.log
    assert (log.highest_offset_in_remote_storage, log.log_start_offset) == (-1, 0)
    assert tiering.storage.starts() == before


def test_a_topic_that_is_created_again_is_tiered_under_its_new_id(tiering: Tiering) -> None:
    tiering.append(30)
    tiering.copy()
    old = len(tiering.storage.starts())
    create_again(tiering)
    with pytest.raises(RemoteStorageError, match="No topic id registered for topic partition: "
                                                 "orders-0"):
        tiering.tiering.async_read(KEY, 0, 1000)
    tiering.tiering.on_leadership_change([KEY])
    assert not tiering.tiering._tasks.of(ID_KEY)
    wait_for(lambda: tiering.tiering.is_partition_ready(KEY))
    tiering.clock.sleep(TASK_MS)
    assert len(tiering.storage.starts()) == old + len(tiering.bases()) - 1
    assert not tiering.tiering.metadata.is_ready(ID_KEY)


def test_a_partition_that_is_led_again_while_it_is_stopped(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tiered in the end, because that came last: never without its topic id, with tasks that
    wait for metadata for ever."""
    stop, leading = PartitionTasks.stop, Thread(
        target=tiering.tiering.on_leadership_change, args=([KEY],))

    def stop_then_lead(self: PartitionTasks, key: TopicIdPartition, *, waits: bool) -> None:
        monkeypatch.undo()
        stop(self, key, waits=waits)
        leading.start()
        leading.join(.5)

    monkeypatch.setattr(PartitionTasks, "stop", stop_then_lead)
    tiering.tiering.stop_partitions([KEY])
    leading.join(PATIENCE)
    assert set(tiering.tiering._tasks.of(ID_KEY)) == {CopyTask, ExpirationTask}
    wait_for(lambda: tiering.tiering.is_partition_ready(KEY))


def test_other_settings_make_no_leader(tmp_path: Path) -> None:
    """Two brokers would copy the same segments."""
    tiering = Tiering(tmp_path, topic=TOPIC, is_leader=False)
    tiering.manager.update_topic_config("orders", {
        **TOPIC, "remote.storage.enable": "true", "retention.ms": -1})
    tiering.tiering.on_config_change("orders")
    assert set(tiering.tiering._tasks.of(ID_KEY)) == {FollowerTask}
    tiering.close()


def test_other_settings_lead_no_partition_that_was_stopped(tiering: Tiering) -> None:
    tiering.tiering.stop_partitions([KEY])
    tiering.tiering.on_config_change("orders")
    assert not tiering.tiering._tasks.of(ID_KEY)


@pytest.mark.parametrize("is_leader", [True, False])
def test_tiering_that_is_switched_on_later(tmp_path: Path, is_leader: bool) -> None:
    """A follower follows. It became a leader."""
    tiering = Tiering(tmp_path, topic=TOPIC)
    tiering.tiering.stop_partitions([KEY])
    tiering.manager.update_topic_config("orders", {"remote.log.delete.on.disable": "true"})
    leaders, followers = ([KEY], []) if is_leader else ([], [KEY])
    tiering.tiering.on_leadership_change(leaders, followers)
    assert not tiering.tiering._tasks.of(ID_KEY)
    tiering.manager.update_topic_config("orders", {"remote.storage.enable": "true"})
    tiering.tiering.on_config_change("orders")
    assert set(tiering.tiering._tasks.of(ID_KEY)) == (
        {CopyTask, ExpirationTask} if is_leader else {FollowerTask})
    tiering.close()


def test_tiering_that_a_follower_switches_off(tiering: Tiering) -> None:
    """Its leader may still serve the remote segments: they are the leader's to delete."""
    tiering.append(30)
    tiering.copy()
    before = tiering.storage.starts()
    tiering.tiering.on_leadership_change([], [KEY])
    for settings in ({"remote.storage.enable": "true", "remote.log.copy.disable": "true"},
                     {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}):
        tiering.manager.update_topic_config("orders", settings)
    tiering.tiering.on_config_change("orders")
    assert tiering.storage.starts() == before != []
    assert not tiering.tiering._tasks.of(ID_KEY) and not tiering.tiering.is_partition_ready(KEY)
    assert tiering.log.highest_offset_in_remote_storage == -1


def test_tiering_that_is_switched_on_again(tiering: Tiering) -> None:
    """Its segments were deleted when it was switched off: those that are local are copied once
    more, before local retention deletes them. (Kafka takes them for copied.)"""
    def switch(**settings: object) -> None:
        tiering.manager.update_topic_config("orders", {
            "internal.segment.bytes": 850, "index.interval.bytes": 0, "retention.ms": -1,
            "file.delete.delay.ms": 0, **{
                key.replace("_", "."): value for key, value in settings.items()}})

    tiering.append(30)
    tiering.copy()
    bases = tiering.bases()
    assert tiering.storage.starts() == bases[:-1]
    switch(remote_storage_enable="true", remote_log_copy_disable="true")
    switch(remote_storage_enable="false", remote_log_delete_on_disable="true")
    tiering.tiering.on_config_change("orders")
    assert tiering.storage.starts() == [] and tiering.bases() == bases
    switch(remote_storage_enable="true", local_retention_bytes=1)
    tiering.tiering.on_config_change("orders")
    wait_for(lambda: tiering.tiering.is_partition_ready(KEY))
    for _ in range(2):
        tiering.log.delete_old_segments()
        tiering.copy()
        assert tiering.storage.starts() == bases[:-1]
    assert len(tiering.bases()) == 1
    assert tiering.tiering.read(KEY, 0, 1).fetch_offset_metadata.message_offset == 0


# ---- gauges --------------------------------------------------------------------------------------


def test_gauges_of_a_task_that_is_cancelled_as_it_begins(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    register = ExpirationTask._register

    def cancel_then_register(self: ExpirationTask) -> None:
        tiering.tiering.stop_partitions([KEY])
        register(self)

    monkeypatch.setattr(ExpirationTask, "_register", cancel_then_register)
    tiering.expire()
    assert not registered(tiering, "RetentionSizeInPercent")


def test_gauges_of_a_task_that_is_cancelled_as_it_runs(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition's shares do not come back."""
    tiering.append(30)
    tiering.copy()
    tiering.expire()
    names = "RetentionSizeInPercent", "RemoteLogMetadataCount", "RemoteDeleteLagBytes"
    assert all(registered(tiering, name) for name in names)
    metadata = tiering.tiering.metadata
    every = metadata.list_all_remote_log_segments

    def stop_after(key: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        found = every(key)
        monkeypatch.undo()
        tiering.tiering.stop_partitions([KEY])
        return found

    monkeypatch.setattr(metadata, "list_all_remote_log_segments", stop_after)
    tiering.expire()
    assert not any(registered(tiering, name) for name in (*names, "RemoteLogSizeBytes"))


# ---- the end -------------------------------------------------------------------------------------


def test_a_copy_that_is_under_way_at_the_end(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is closed after it, also if another scheduler runs it."""
    tiering.append(12)
    copy, began, goes_on, events = (
        tiering.storage.copy_log_segment_data, Event(), Event(), list[str]())

    def slowly(*arguments: object) -> object:
        began.set()
        assert goes_on.wait(PATIENCE)
        found = copy(*arguments)
        events.append("copied")
        return found

    monkeypatch.setattr(tiering.storage, "copy_log_segment_data", slowly)
    monkeypatch.setattr(tiering.storage, "close", lambda: events.append("closed"))
    copying = Thread(target=tiering.clock.sleep, args=(TASK_MS,))
    copying.start()
    assert began.wait(PATIENCE)
    Timer(.3, goes_on.set).start()
    tiering.tiering.close()
    copying.join(PATIENCE)
    assert events == ["copied", "closed"]


# ---- metadata that is late -----------------------------------------------------------------------


class _LateEvents:
    """Updates that are published when the test says so."""

    def __init__(self, tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
        self._metadata = tiering.tiering.metadata
        self._update = self._metadata.update_remote_log_segment_metadata
        self.began, self.goes_on = Event(), Event()
        monkeypatch.setattr(self._metadata, "update_remote_log_segment_metadata", self._later)

    def _later(self, event: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        done: Future[None] = Future()

        def publish() -> None:
            assert self.goes_on.wait(PATIENCE)
            try:
                done.set_result(self._update(event).result(PATIENCE))
            except Exception as error:
                done.set_exception(error)

        Thread(target=publish).start()
        self.began.set()
        return done


def test_a_cancelled_copy_whose_last_event_is_late(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next leader epoch of this process waits for it: it uploaded the segment again."""
    tiering.append(12)
    late = _LateEvents(tiering, monkeypatch)
    copying = Thread(target=tiering.clock.sleep, args=(TASK_MS,))
    copying.start()
    assert late.began.wait(PATIENCE)
    tiering.tiering.on_leadership_change([], [KEY])
    copying.join(PATIENCE)
    Timer(.5, late.goes_on.set).start()
    tiering.tiering.on_leadership_change([KEY])
    tiering.copy()
    assert tiering.storage.starts() == tiering.bases()[:-1]
    assert [one.start_offset for one in tiering.segments()] == tiering.bases()[:-1]


def test_a_cancelled_copy_whose_last_event_fails(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment counts as not copied, and the copies go on."""
    tiering.append(12)
    metadata, failing = tiering.tiering.metadata, Future[None]()
    with monkeypatch.context() as patched:
        patched.setattr(metadata, "update_remote_log_segment_metadata", lambda _: failing)
        copying = Thread(target=tiering.copy)
        copying.start()
        wait_for(lambda: tiering.storage.starts())
        tiering.tiering.on_leadership_change([], [KEY])
        copying.join(PATIENCE)
    assert not copying.is_alive()
    failing.set_exception(RemoteStorageError("not written"))
    tiering.tiering.on_leadership_change([KEY])
    tiering.copy()
    finished = [one.start_offset for one in tiering.segments()
                if one.state == RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    assert finished == tiering.bases()[:-1]


def failed(error: Exception) -> Future[None]:
    done: Future[None] = Future()
    done.set_exception(error)
    return done


@contextmanager
def late_events(tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No event is read back in time."""
    with monkeypatch.context() as patched:
        patched.setattr(tiering.tiering.metadata, "update_remote_log_segment_metadata",
                        lambda _: failed(RemoteMetadataTimeoutError("late")))
        yield


def test_a_copy_whose_last_event_is_not_read_back_in_time(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run announces the end of the copy again. (Kafka uploads the segment again.)"""
    tiering.append(12)
    with late_events(tiering, monkeypatch):
        for _ in range(2):
            tiering.copy()
            assert tiering.storage.starts() == tiering.bases()[:1]
    assert tiering.log.highest_offset_in_remote_storage == -1
    tiering.copy()
    assert tiering.storage.starts() == tiering.bases()[:-1]
    assert {one.state for one in tiering.segments()} == {
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
    assert tiering.log.highest_offset_in_remote_storage == tiering.bases()[-1] - 1
    assert tiering.gauge("RemoteCopyBytesPerSec", topic="orders") == sum(
        one.segment_size_in_bytes for one in tiering.segments())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_late_event_of_a_copy_is_announced_by_the_next_task(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool) -> None:
    """That of the next leader epoch too, whether the event was late before it or is so now."""
    tiering.append(12)
    event, late = Future[None](), RemoteMetadataTimeoutError("late")
    with monkeypatch.context() as patched:
        patched.setattr(tiering.tiering.metadata, "update_remote_log_segment_metadata",
                        lambda _: event)
        copying = Thread(target=tiering.copy)
        copying.start()
        wait_for(tiering.storage.starts)
        if not is_cancelled:
            event.set_exception(late)
            copying.join(PATIENCE)
        tiering.tiering.on_leadership_change([], [KEY])
        copying.join(PATIENCE)
    if is_cancelled:
        event.set_exception(late)
    tiering.tiering.on_leadership_change([KEY])
    tiering.copy()
    assert tiering.storage.starts() == tiering.bases()[:-1]
    assert {one.state for one in tiering.segments()} == {
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
    assert tiering.log.highest_offset_in_remote_storage == tiering.bases()[-1] - 1


def test_a_copy_whose_last_event_is_late_and_whose_segment_is_deleted(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count as copied, and local retention keeps its records."""
    tiering.append(12)
    with late_events(tiering, monkeypatch):
        tiering.copy()
    deleted, = tiering.segments()
    assert tiering.task(ExpirationTask).delete_segment(deleted)
    tiering.copy()
    assert tiering.storage.starts() == tiering.bases()[:-1]


def test_a_copy_whose_last_event_is_late_and_whose_remote_log_is_deleted(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later task does not announce it."""
    tiering.append(12)
    metadata = tiering.tiering.metadata
    with late_events(tiering, monkeypatch):
        tiering.copy()
    deleted, = tiering.segments()
    tiering.tiering.stop_partitions([KEY], delete_remote_log=True)
    events, update = list[RemoteLogSegmentMetadataUpdate](), (
        metadata.update_remote_log_segment_metadata)

    def record(event: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        events.append(event)
        return update(event)

    monkeypatch.setattr(metadata, "update_remote_log_segment_metadata", record)
    tiering.tiering.on_leadership_change([KEY])
    wait_for(lambda: tiering.tiering.is_partition_ready(KEY))
    tiering.copy()
    assert tiering.storage.starts() == tiering.bases()[:-1]
    assert deleted.remote_log_segment_id not in [one.remote_log_segment_id for one in events]


def test_a_copy_whose_last_event_fails_the_second_time(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells whether it will ever be read back: the segment is copied again."""
    tiering.append(12)
    for error in (RemoteMetadataTimeoutError("late"), RemoteStorageError("not written")):
        with monkeypatch.context() as patched:
            patched.setattr(tiering.tiering.metadata, "update_remote_log_segment_metadata",
                            lambda _, error=error: failed(error))
            tiering.copy()
    assert tiering.storage.starts() == tiering.bases()[:1]
    tiering.copy()
    assert tiering.storage.starts() == [tiering.bases()[0], *tiering.bases()[:-1]]
