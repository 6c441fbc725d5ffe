"""Reads of a tiered log while its segments leave the disk, or remote storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread, Timer

import pytest

from seglog.errors import (
    KafkaStorageError, OffsetOutOfRangeError, RemoteStorageError, RetriableRemoteStorageError,
)
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.log_dir_failures import CLOSED
from seglog.log.offsets_by_timestamp import OffsetsByTimestamp
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.remote_reads import RemoteReads
from seglog.storage.isolation import Isolation
from seglog.storage.markers import ControlType
from seglog.tiered.remote_records import (
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, TopicIdPartition,
)
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import KEY, TASK_MS, Tiering
from tests.support.waiting import PATIENCE

COMMITTED: Isolation = "read_committed"
PRODUCER = 7


@pytest.fixture
def tiering(tmp_path: Path) -> Iterator[Tiering]:
    made = Tiering(tmp_path, topic={"local.retention.bytes": -1, "local.retention.ms": -1},
                   settings={"transaction.partition.verification.enable": "false"})
    yield made
    made.close()


def drop_local(tiering: Tiering) -> None:
    """Retention leaves only the active segment on this disk."""
    tiering.manager.update_topic_config("orders", {
        "remote.storage.enable": "true", "internal.segment.bytes": 850, "index.interval.bytes": 0,
        "file.delete.delay.ms": 0, "retention.ms": -1, "local.retention.bytes": 1})
    tiering.log.delete_old_segments()


def write_aborted(tiering: Tiering) -> int:
    """One transaction that begins in the first segment and is aborted in the second. Returns the
    offset of its record."""
    log = tiering.log
    builder = RecordBatchBuilder(is_transactional=True, producer_id=PRODUCER, producer_epoch=0,
                                 base_sequence=0)
    builder.append(NOW_MS, None, b"aborted")
    log.append_as_leader(builder.build(), 0)
    log.roll()
    log.append_as_leader(end_transaction_marker(PRODUCER, 0, ControlType.ABORT, timestamp=NOW_MS),
                         0, origin=AppendOrigin.COORDINATOR, transaction_version=1)
    log.roll()
    tiering.append(30)
    return 0


def after_the_search(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Calls `change` after the first search of remote storage for transactions."""
    search = RemoteReads._next_with_txn_index

    def search_then_change(*arguments: object) -> object:
        found = search(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(RemoteReads, "_next_with_txn_index", search)
        change()
        return found

    monkeypatch.setattr(RemoteReads, "_next_with_txn_index", search_then_change)


def test_a_marker_that_leaves_the_disk_between_the_two_searches(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its segment was not in remote storage yet when that was searched, and is not local when the
    disk is."""
    offset = write_aborted(tiering)
    tiering.copy()
    first = tiering.segments()[0]
    every = tiering.tiering.metadata.next_segment_with_txn_index
    assert first.end_offset == offset
    monkeypatch.setattr(tiering.tiering.metadata, "next_segment_with_txn_index",
                        lambda *_: None)  # nothing else is copied yet

    def copied_and_deleted() -> None:
        monkeypatch.setattr(tiering.tiering.metadata, "next_segment_with_txn_index", every)
        drop_local(tiering)

    after_the_search(monkeypatch, copied_and_deleted)
    found = tiering.tiering.async_read(KEY, offset, 10_000, COMMITTED).result(10)
    assert [one.producer_id for one in found.aborted_transactions or ()] == [PRODUCER]


def test_a_marker_that_leaves_remote_storage_before_the_search(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes the segment that was read, and the next ones. The offset is below the log's
    start then."""
    offset = write_aborted(tiering)
    tiering.copy()
    drop_local(tiering)
    read = RemoteReads._read_segment

    def read_then_expire(*arguments: object) -> object:
        found = read(*arguments)  # type: ignore[arg-type]
        tiering.manager.update_topic_config("orders", {
            "remote.storage.enable": "true", "internal.segment.bytes": 850,
            "file.delete.delay.ms": 0, "retention.ms": 1, "local.retention.ms": 1})
        tiering.clock.sleep(1000)
        tiering.expire()
        assert tiering.log.log_start_offset > offset
        return found

    monkeypatch.setattr(RemoteReads, "_read_segment", read_then_expire)
    with pytest.raises(OffsetOutOfRangeError):
        tiering.tiering.async_read(KEY, offset, 10_000, COMMITTED).result(10)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_segment_that_is_deleted_before_it_is_read(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch, isolation: Isolation) -> None:
    """The reader learns that the offset is out of range, as one that comes a moment later."""
    tiering.append(30)
    tiering.copy()
    drop_local(tiering)
    read = RemoteReads._read_segment

    def expire_then_read(*arguments: object) -> object:
        tiering.manager.update_topic_config("orders", {
            "remote.storage.enable": "true", "internal.segment.bytes": 850,
            "file.delete.delay.ms": 0, "retention.ms": 1, "local.retention.ms": 1})
        tiering.clock.sleep(10**6)
        tiering.expire()
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteReads, "_read_segment", expire_then_read)
    with pytest.raises(OffsetOutOfRangeError, match="does not exist in remote tier"):
        tiering.tiering.async_read(KEY, 0, 10_000, isolation).result(10)


def test_a_time_whose_segment_leaves_the_disk_between_the_two_searches(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search leaves it to the second, which does not find it."""
    tiering.append(30)
    tiering.copy()
    look = OffsetsByTimestamp._steadily

    def drop_then_look(*arguments: object) -> object:
        monkeypatch.setattr(OffsetsByTimestamp, "_steadily", look)
        drop_local(tiering)
        return look(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OffsetsByTimestamp, "_steadily", drop_then_look)
    found = tiering.log.offset_for_timestamp(NOW_MS + 2)
    assert found is not None and (found.offset, found.timestamp) == (2, NOW_MS + 2)


def test_a_time_of_a_log_that_is_deleted_during_the_search(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup says that the log is closed."""
    tiering.append(30)
    tiering.copy()
    find = RemoteReads.find_offset_by_timestamp

    def delete_then_find(self: RemoteReads, *arguments: object) -> object:
        log = arguments[1]
        assert isinstance(log, UnifiedLog)
        log.delete()
        # The epochs were copied before.
        return find(self, *arguments)  # type: ignore[arg-type]

    epochs = tiering.log.leader_epochs.copy()
    monkeypatch.setattr("seglog.remote_log.remote_reads.epochs_of", lambda _: epochs)
    monkeypatch.setattr(RemoteReads, "find_offset_by_timestamp", delete_then_find)
    with pytest.raises(KafkaStorageError) as caught:
        tiering.log.offset_for_timestamp(NOW_MS + 2)
    assert caught.value.code == CLOSED


class _SlowCopies:
    """Copies of which each waits until it may go on."""

    def __init__(self, tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
        self._copy = tiering.storage.copy_log_segment_data
        self.began, self.goes_on, self.started = Event(), Event(), list[int]()
        monkeypatch.setattr(tiering.storage, "copy_log_segment_data", self._slowly)

    def _slowly(self, segment: RemoteLogSegmentMetadata, data: object) -> object:
        self.started.append(segment.start_offset)
        self.began.set()
        assert self.goes_on.wait(PATIENCE)
        return self._copy(segment, data)


@pytest.mark.parametrize("before", ["nothing", "following", "following and leading"])
def test_a_copy_that_ends_after_the_deletion_of_its_topic_began(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """The deletion waits for it: nobody would ever delete that segment. Whether the partition is
    led meanwhile does not matter."""
    tiering.append(12)
    slow = _SlowCopies(tiering, monkeypatch)
    copying = Thread(target=tiering.clock.sleep, args=(TASK_MS,))
    copying.start()
    assert slow.began.wait(PATIENCE)
    if before.startswith("following"):
        tiering.tiering.on_leadership_change([], [KEY])
    if before.endswith("leading"):
        tiering.tiering.on_leadership_change([KEY])
    Timer(.3, slow.goes_on.set).start()
    tiering.tiering.stop_partitions([KEY], delete_remote_log=True)
    copying.join(PATIENCE)
    assert slow.started and tiering.storage.starts() == []


def test_a_partition_that_is_led_again_while_a_segment_is_copied(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies go on after that one: no segment is copied twice."""
    tiering.append(12)
    slow = _SlowCopies(tiering, monkeypatch)
    copying = Thread(target=tiering.clock.sleep, args=(TASK_MS,))
    copying.start()
    assert slow.began.wait(PATIENCE)
    tiering.tiering.on_leadership_change([], [KEY])
    tiering.tiering.on_leadership_change([KEY])
    Timer(.3, slow.goes_on.set).start()
    tiering.clock.sleep(TASK_MS)  # the copies that were started now
    copying.join(PATIENCE)
    tiering.clock.sleep(TASK_MS)
    assert slow.started == tiering.storage.starts() == tiering.bases()[:-1]


def test_a_time_of_a_log_whose_topic_is_deleted_during_the_search(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no leader epochs any more, and answers from the segments that it still has."""
    tiering.append(30)
    tiering.copy()
    find = RemoteReads.find_offset_by_timestamp

    def delete_then_find(*arguments: object) -> object:
        tiering.manager.async_delete(KEY)
        return find(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteReads, "find_offset_by_timestamp", delete_then_find)
    found = tiering.log.offset_for_timestamp(NOW_MS + 2)
    assert found is not None and found.offset == 2
    assert not tiering.log.leader_epochs


def test_a_segment_whose_files_are_those_of_another_log_when_they_are_copied(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition moves away while a slow copy opens the files one by one. What was copied is
    deleted, and the log that took its place is copied later."""
    tiering.append(12)
    copy = tiering.storage.copy_log_segment_data

    def copy_while_it_moves(*arguments: object) -> object:
        monkeypatch.undo()
        found = copy(*arguments)
        tiering.log.rename_dir("orders-0." + "0" * 32 + "-delete")
        return found

    monkeypatch.setattr(tiering.storage, "copy_log_segment_data", copy_while_it_moves)
    tiering.copy()
    assert tiering.storage.starts() == [] and not tiering.segments()
    tiering.log.rename_dir("orders-0")
    tiering.copy()
    assert tiering.storage.starts()


def test_a_segment_that_leaves_the_log_while_it_is_copied(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    """Records are deleted: no error, and the copies go on."""
    tiering.append(30)
    copy = tiering.storage.copy_log_segment_data

    def delete_and_copy(*arguments: object) -> object:
        monkeypatch.undo()
        tiering.log.maybe_increment_log_start_offset(
            10, StartOffsetReason.CLIENT_RECORD_DELETION)
        tiering.log.delete_old_segments()
        tiering.clock.sleep(0)  # deletes the files
        try:
            return copy(*arguments)
        except FileNotFoundError as error:
            raise RemoteStorageError(str(error)) from error

    monkeypatch.setattr(tiering.storage, "copy_log_segment_data", delete_and_copy)
    tiering.copy()
    assert "Error occurred while copying" not in caplog.text and not tiering.segments()
    tiering.copy()
    assert tiering.segments()[0].start_offset == tiering.bases()[0] > 0


def test_a_segment_whose_records_are_deleted_before_it_is_copied(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    """The log does not know its leader epochs any more."""
    tiering.append(30)
    copy = CopyTask._copy

    def delete_then_copy(*arguments: object) -> None:
        monkeypatch.undo()
        tiering.log.maybe_increment_log_start_offset(
            20, StartOffsetReason.CLIENT_RECORD_DELETION)
        copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CopyTask, "_copy", delete_then_copy)
    tiering.copy()
    assert "Error occurred while copying" not in caplog.text and not tiering.segments()
    tiering.copy()
    assert tiering.segments()[0].end_offset >= 20


def test_a_time_whose_segment_is_deleted_before_it_is_searched(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next record that is left is the first."""
    tiering.append(30)
    tiering.copy()
    drop_local(tiering)
    find = RemoteReads._find_in_segment

    def expire_then_find(*arguments: object) -> object:
        monkeypatch.undo()
        tiering.manager.update_topic_config("orders", {
            "remote.storage.enable": "true", "internal.segment.bytes": 850,
            "file.delete.delay.ms": 0, "retention.ms": 1, "local.retention.ms": 1})
        tiering.clock.sleep(10)  # 10 ms after the first records' timestamps
        tiering.expire()
        return find(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteReads, "_find_in_segment", expire_then_find)
    found = tiering.log.offset_for_timestamp(NOW_MS)
    start = tiering.log.log_start_offset
    assert 0 < start < tiering.log.local_log_start_offset
    assert found is not None and (found.offset, found.timestamp) == (start, NOW_MS + start)


def test_a_time_while_the_logs_start_moves(tiering: Tiering, monkeypatch: pytest.MonkeyPatch
                                           ) -> None:
    """The leader epochs begin at the new start: the old one, which the search was to begin at, has
    none, and all of remote storage was left out."""
    tiering.append(30)
    tiering.copy()
    drop_local(tiering)
    find = RemoteReads.find_offset_by_timestamp

    def move_then_find(*arguments: object) -> object:
        tiering.log.maybe_increment_log_start_offset(3, StartOffsetReason.CLIENT_RECORD_DELETION)
        return find(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteReads, "find_offset_by_timestamp", move_then_find)
    found = tiering.log.offset_for_timestamp(NOW_MS + 4)
    assert found is not None and found.offset == 4


class _JustInTime(Future[None]):
    """Ends when the wait for it has timed out, and nobody has looked yet."""

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            self.set_result(None)
            raise TimeoutError
        return super().result(timeout)


def test_an_event_that_is_read_back_when_the_wait_for_it_times_out(tiering: Tiering) -> None:
    """It was not in vain: the copy would be made once more."""
    tiering.task(CopyTask).wait(_JustInTime())


def test_a_partition_loses_its_oldest_segment_first(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in retention: a reader that still finds a segment knows where its transactions ended."""
    tiering.append(30)
    tiering.copy()
    starts = {one.remote_log_segment_id: one.start_offset for one in tiering.segments()}
    metadata = tiering.tiering.metadata
    every, update, updated = (metadata.list_all_remote_log_segments,
                              metadata.update_remote_log_segment_metadata, [])

    def listed(key: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        return sorted(every(key), key=lambda one: -one.start_offset)

    def noted(one: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        updated.append(starts[one.remote_log_segment_id])
        return update(one)

    monkeypatch.setattr(metadata, "list_all_remote_log_segments", listed)
    monkeypatch.setattr(metadata, "update_remote_log_segment_metadata", noted)
    tiering.tiering.stop_partitions([KEY], delete_remote_log=True)
    assert len(starts) > 2 and updated == [*sorted(starts.values())] * 2


def test_a_deletion_before_the_metadata_is_ready(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is told, and can try again. The error was only logged and the partition
    forgotten: its segments stayed in remote storage for ever."""
    tiering.append(30)
    tiering.copy()
    assert tiering.storage.starts()
    with monkeypatch.context() as patched:
        patched.setattr(tiering.tiering.metadata, "is_ready", lambda key: False)
        with pytest.raises(RetriableRemoteStorageError, match="orders-0"):
            tiering.tiering.stop_partitions([KEY], delete_remote_log=True)
    assert tiering.storage.starts()
    tiering.tiering.stop_partitions([KEY], delete_remote_log=True)
    assert tiering.storage.starts() == []
