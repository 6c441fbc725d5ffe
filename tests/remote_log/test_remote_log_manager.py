"""Segments copied, expired, deleted here and read from there, over a directory store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.errors import (
    ConfigError, OffsetOutOfRangeError, RemoteStorageError, RetriableRemoteStorageError,
)
from seglog.log.offsets_by_timestamp import EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP
from seglog.manager.manager import LogManager
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_log_manager import RemoteLogManager
from seglog.remote_log.remote_task import FollowerTask
from seglog.storage.isolation import Isolation
from seglog.tiered import RemoteLogSegmentState as S
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import ID_KEY, KEY, TASK_MS, Tiering
from tests.support.waiting import wait_for

Make = Callable[..., Tiering]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Tiering] = []

    def one(**how: object) -> Tiering:
        made.append(Tiering(tmp_path, **how))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for tiering in made:
        tiering.close()


def contents(tiering: Tiering, start: int = 0, isolation: Isolation = "read_uncommitted"
             ) -> list[bytes]:
    """Whole batches up to the end, as fetches of a consumer get them."""
    found, offset = [], start
    while offset < tiering.log.high_watermark:
        data = tiering.tiering.read(KEY, offset, 400, isolation).records
        before = offset
        while len(data) >= 12:
            size = int.from_bytes(data[8:12]) + 12
            if size > len(data):
                break
            offset = int.from_bytes(data[:8]) + int.from_bytes(data[23:27]) + 1
            found.append(data[:size])
            data = data[size:]
        assert offset > before
    return found


def test_closed_segments_are_copied(make: Make) -> None:
    one = make()
    one.append(18)
    bases = one.bases()
    one.copy()
    assert [(found.start_offset, found.end_offset) for found in one.segments()] == [
        (base, following - 1) for base, following in zip(bases, bases[1:], strict=False)]
    assert set(one.states()) == {S.COPY_SEGMENT_FINISHED}
    assert one.storage.starts() == bases[:-1], "never the active one"
    assert one.log.highest_offset_in_remote_storage == bases[-1] - 1
    for found in one.segments():
        assert one.storage.path(found, ".log").read_bytes() == Path(
            one.log.path, f"{found.start_offset:020d}.log").read_bytes()
        assert one.storage.path(found, ".snapshot").read_bytes() == Path(
            one.log.path, f"{found.end_offset + 1:020d}.snapshot").read_bytes()
        assert one.storage.path(found, ".leader_epoch_checkpoint").read_text() == "0\n1\n0 0\n"
        assert found.segment_leader_epochs == ((0, found.start_offset),)
        assert found.txn_idx_empty and found.max_timestamp_ms == NOW_MS + found.end_offset
    assert one.gauge("RemoteCopyBytesPerSec") == sum(
        found.segment_size_in_bytes for found in one.segments())
    assert one.gauge("RemoteCopyRequestsPerSec", topic="orders") == len(bases) - 1
    # Kafka's onlyLocalLogSegments begin at the highest remote offset.
    assert (one.gauge("RemoteCopyLagSegments"), one.gauge("RemoteCopyLagBytes")) == (0, 0)


def test_the_scheduler_runs_the_tasks(make: Make) -> None:
    one = make()
    one.append(12)
    one.clock.sleep(TASK_MS)
    assert len(one.segments()) == len(one.bases()) - 1
    one.append(12)
    one.clock.sleep(TASK_MS - 1)
    before = len(one.segments())
    one.clock.sleep(1)
    assert len(one.segments()) == len(one.bases()) - 1 > before


def test_what_is_not_stable_is_not_copied(make: Make) -> None:
    one = make()
    one.append(18)
    one.log.update_high_watermark(7)
    one.copy()
    assert one.storage.starts() == [base for base, following in zip(
        one.bases(), one.bases()[1:], strict=False) if following <= 7]


def test_local_retention_deletes_only_what_is_remote(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(18)
    bases = one.bases()
    assert one.log.delete_old_segments() == 0 and one.bases() == bases
    one.copy()
    assert one.log.delete_old_segments() == len(bases) - 1
    assert one.log.local_log_start_offset == bases[-1] and one.log.log_start_offset == 0
    assert one.log.offset_for_timestamp(EARLIEST_LOCAL_TIMESTAMP).offset == bases[-1]
    assert one.log.offset_for_timestamp(LATEST_TIERED_TIMESTAMP).offset == bases[-1] - 1


def test_the_same_records_before_and_after_local_deletion(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(30)
    before = contents(one)
    assert len(before) == 30
    one.copy()
    one.log.delete_old_segments()
    assert len(one.bases()) == 1
    assert contents(one) == before and contents(one, 13) == before[13:]
    assert contents(one, 0, "read_committed") == before
    assert one.gauge("RemoteFetchRequestsPerSec") > 5
    with pytest.raises(OffsetOutOfRangeError):
        one.tiering.read(KEY, 31, 100)
    found = one.log.offset_for_timestamp(NOW_MS + 13)
    assert found == (NOW_MS + 13, 13, 0)
    assert one.log.offset_for_timestamp(NOW_MS + 29).offset == 29
    assert one.log.offset_for_timestamp(NOW_MS + 30) is None


def test_a_restart_goes_on(tmp_path: Path) -> None:
    topic = {"local.retention.bytes": 1, "retention.bytes": 100_000}
    one = Tiering(tmp_path, topic=topic)
    one.append(30)
    before = contents(one)
    one.copy()
    one.log.delete_old_segments()
    local, copied = one.log.local_log_start_offset, one.storage.starts()
    one.close()
    one = Tiering(tmp_path, topic=topic)
    try:
        assert (one.log.log_start_offset, one.log.local_log_start_offset) == (0, local)
        one.copy()
        assert one.storage.starts() == copied, "nothing is copied twice"
        assert one.log.highest_offset_in_remote_storage == local - 1
        assert contents(one) == before
        one.append(12, epoch=3)
        one.copy()
        assert one.segments()[-1].end_offset == one.bases()[-1] - 1
        assert contents(one)[:30] == before
    finally:
        one.close()


def test_retention_by_time(make: Make) -> None:
    one = make(topic={"retention.ms": 1000, "local.retention.ms": -2})
    one.append(18)
    one.copy()
    bases = one.bases()
    one.clock.sleep(1000 + bases[2])  # so that the newest record below bases[2] is 1,001 ms old
    one.expire()
    assert one.log.log_start_offset == bases[2]
    assert one.storage.starts() == bases[2:-1]
    assert one.gauge("RemoteDeleteRequestsPerSec") == 2
    assert (one.gauge("RemoteDeleteLagSegments"), one.gauge("RemoteDeleteLagBytes")) == (0, 0)


def test_retention_by_size(make: Make) -> None:
    one = make(topic={"retention.bytes": 2000, "local.retention.bytes": 1})
    one.append(30)
    one.copy()
    one.log.delete_old_segments()
    size = sum(found.segment_size_in_bytes for found in one.segments())
    assert size > 4000
    one.expire()
    left = sum(found.segment_size_in_bytes for found in one.segments()) \
        + one.log.only_local_segments()[1]
    assert 2000 <= left < 2000 + 850
    assert one.log.log_start_offset == one.segments()[0].start_offset
    percent = one.manager.metrics.get("kafka.log.remote:type=RemoteLogManager,"
                                      "name=RetentionSizeInPercent,topic=orders,partition=0")
    assert percent is not None and percent.attributes()["Value"] > 200
    one.expire()
    assert percent.attributes()["Value"] == left * 100 // 2000
    assert one.gauge("RemoteLogMetadataCount") == len(one.segments())


def test_records_deleted_by_a_client_go_from_remote_storage(make: Make) -> None:
    from seglog.log.watermarks import StartOffsetReason

    one = make()
    one.append(18)
    one.copy()
    bases = one.bases()
    one.log.maybe_increment_log_start_offset(bases[2] + 1, StartOffsetReason.CLIENT_RECORD_DELETION)
    one.expire()
    assert one.storage.starts() == bases[2:-1]
    assert one.log.log_start_offset == bases[2] + 1


def test_a_copy_that_fails_is_cleaned_up(make: Make) -> None:
    one = make()
    one.append(12)
    bases = one.bases()
    one.storage.fail["copy"] = [RemoteStorageError("the store is full")]
    one.copy()
    assert one.segments() == [] and one.storage.starts() == []
    assert one.gauge("RemoteCopyErrorsPerSec") == 1
    one.copy()
    assert one.storage.starts() == bases[:-1]


def test_a_copy_that_may_be_repeated_is_not(make: Make) -> None:
    """Its STARTED entry stays until the expiration finds it, as in Kafka. The next attempt has an
    id of its own, and so its own objects."""
    one = make(topic={"retention.ms": 1000, "local.retention.ms": -2})
    one.append(12)
    one.storage.fail["copy"] = [RetriableRemoteStorageError("503")]
    one.copy()
    assert one.states() == [S.COPY_SEGMENT_STARTED]
    broken = one.segments()[0].remote_log_segment_id
    assert one.gauge("RemoteCopyErrorsPerSec") == 0
    one.copy()
    assert one.states().count(S.COPY_SEGMENT_FINISHED) == len(one.bases()) - 1
    same = [found for found in one.segments() if found.start_offset == 0]
    assert len({found.remote_log_segment_id for found in same}) == len(same) == 2
    one.clock.sleep(1000 + one.bases()[1])
    one.expire()
    assert broken not in [found.remote_log_segment_id for found in one.segments()]
    assert one.states() == [S.COPY_SEGMENT_FINISHED] * (len(one.bases()) - 2)
    assert one.log.log_start_offset == one.bases()[1]


def test_a_deletion_that_fails_is_tried_again(make: Make) -> None:
    one = make(topic={"retention.ms": 1000, "local.retention.ms": -2})
    one.append(12)
    one.copy()
    count = len(one.segments())
    one.clock.sleep(5000)
    one.storage.fail["delete"] = [RemoteStorageError("refused")]
    one.expire()
    assert one.states() == [S.DELETE_SEGMENT_STARTED] + [S.COPY_SEGMENT_FINISHED] * (count - 1)
    assert one.log.log_start_offset == one.bases()[-1], "before anything is deleted"
    assert one.gauge("RemoteDeleteErrorsPerSec", topic="orders") == 1
    one.expire()
    assert one.segments() == [] and one.storage.starts() == []


def test_too_much_custom_metadata_ends_the_copying(make: Make) -> None:
    one = make(settings={"remote.log.metadata.custom.metadata.max.bytes": "8"})
    one.append(12)
    one.storage.custom = b"123456789"
    one.copy()
    assert one.segments() == [] and one.storage.starts() == []
    assert one.task(CopyTask).is_cancelled and not one.task(ExpirationTask).is_cancelled
    one.storage.custom = None
    one.copy()
    assert one.segments() == []


def test_custom_metadata_is_kept(make: Make) -> None:
    one = make()
    one.append(12)
    one.storage.custom = b"where it is"
    one.copy()
    assert {found.custom_metadata for found in one.segments()} == {b"where it is"}


def test_a_missing_snapshot_is_named(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's task ends with a null pointer each time, after it announced a copy."""
    one = make()
    one.append(12)
    with one.log.lock:
        one.log.producer_manager.snapshots.delete_outside(one.bases()[1], 2**63 - 1)
    one.copy()
    assert "no producer snapshot at offset" in caplog.text and one.segments() == []


def test_epochs_of_a_segment(make: Make) -> None:
    one = make()
    one.append(3, epoch=0)
    one.append(2, epoch=2)
    one.append(12, epoch=5)
    one.copy()
    first = one.segments()[0]
    assert first.segment_leader_epochs[:2] == ((0, 0), (2, 3))
    assert one.tiering.metadata.highest_offset_for_epoch(ID_KEY, 5) == one.bases()[-1] - 1
    assert contents(one) == contents(one, 0)


def test_another_leaders_segments_are_deleted(make: Make) -> None:
    """After an unclean election epochs of the log are gone; what only they wrote goes, too."""
    from tests.remote_log.support import segment

    one = make()
    one.append(12, epoch=7)
    one.copy()
    stray = segment(0, 5, key=ID_KEY, number=99, epochs={3: 0})
    one.tiering.metadata.add_remote_log_segment_metadata(stray).result(60)
    assert len(one.segments()) == len(one.bases())
    one.expire()
    assert stray not in one.segments() and len(one.segments()) == len(one.bases()) - 1


def test_followers(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(12)
    one.copy()
    one.tiering.on_leadership_change([], [KEY])
    assert set(one.tiering._tasks.of(ID_KEY)) == {FollowerTask}
    one.log._watermarks.highest_offset_in_remote_storage = -1
    one.follow()
    assert one.log.highest_offset_in_remote_storage == one.bases()[-1] - 1
    assert one.log.delete_old_segments() == 2
    one.append(12)
    before = one.storage.starts()
    one.clock.sleep(10 * TASK_MS)
    assert one.storage.starts() == before
    one.tiering.on_leadership_change([KEY])
    assert set(one.tiering._tasks.of(ID_KEY)) == {CopyTask, ExpirationTask}
    one.copy()
    assert len(one.storage.starts()) > len(before)


def test_deleting_the_topic(make: Make) -> None:
    one = make()
    one.append(12)
    one.copy()
    contents(one)
    one.tiering.stop_partitions([KEY], delete_remote_log=True)
    assert one.storage.starts() == [] and not one.tiering.is_partition_ready(KEY)
    assert not one.tiering._tasks.of(ID_KEY)
    assert "RemoteCopyLagBytes,topic=orders" not in str(one.manager.metrics.snapshot())
    one.tiering.stop_partitions([KEY])  # not expected, and harmless


def test_switching_copies_and_tiering_off(make: Make) -> None:
    base = {"remote.storage.enable": "true", "internal.segment.bytes": 850,
            "index.interval.bytes": 0, "retention.ms": -1, "file.delete.delay.ms": 0}
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(12)
    one.copy()
    one.log.delete_old_segments()
    one.manager.update_topic_config("orders", {**base, "remote.log.copy.disable": "true"})
    one.tiering.on_config_change("orders")
    assert set(one.tiering._tasks.of(ID_KEY)) == {ExpirationTask}
    one.manager.update_topic_config("orders", {
        **base, "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
    one.tiering.on_config_change("orders")
    assert one.storage.starts() == [] and not one.tiering._tasks.of(ID_KEY)
    assert one.log.log_start_offset == one.bases()[0]
    assert len(contents(one, one.log.log_start_offset)) == 12 - one.bases()[0]


def test_the_copy_quota(make: Make) -> None:
    one = make(settings={"remote.log.manager.copy.max.bytes.per.second": "100"})
    quota = one.tiering.copy_quota
    assert quota.throttle_ms() == 0
    quota.record(1000)
    assert quota.throttle_ms() == 9000
    one.clock.sleep(5000)
    assert quota.throttle_ms() == 5000
    one.clock.sleep(5001)
    assert quota.throttle_ms() == 0
    one.append(12)
    quota.record(1_000_000)
    copying = threading.Thread(target=one.copy, daemon=True)
    copying.start()
    wait_for(one.tiering._tasks._copy_quota._turn.locked)
    assert one.storage.starts() == []
    one.tiering.reconfigure({"remote.log.manager.copy.max.bytes.per.second": 10**9})
    assert quota.throttle_ms() == 0
    copying.join(60)
    assert one.storage.starts() == one.bases()[:-1]


def test_a_copy_that_waits_for_its_quota_is_cancelled(make: Make) -> None:
    one = make(settings={"remote.log.manager.copy.max.bytes.per.second": "1"})
    one.append(12)
    one.tiering.copy_quota.record(1_000_000)
    copying = threading.Thread(target=one.copy, daemon=True)
    copying.start()
    wait_for(one.tiering._tasks._copy_quota._turn.locked)
    one.task(CopyTask).cancel()
    copying.join(60)
    assert not copying.is_alive() and one.storage.starts() == [] and one.segments() == []
    delay = one.tiering.copy_quota.throttle_ms()
    assert delay > 0 and throttled(one, "copy") == [delay, delay]


def throttled(one: Tiering, what: str) -> list[object]:
    """Average and maximum of the delays."""
    gauges = [one.manager.metrics.get(
        f"kafka.server:type=RemoteLogManager,name=remote-{what}-throttle-time-{kind}")
        for kind in ("avg", "max")]
    return [None if gauge is None else gauge.attributes()["Value"] for gauge in gauges]


def test_the_fetch_quota(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(12)
    one.copy()
    one.log.delete_old_segments()
    one.tiering.reconfigure({"remote.log.manager.fetch.max.bytes.per.second": "10"})
    assert one.tiering.read(KEY, 0, 400).records
    assert str(throttled(one, "fetch")) == "[nan, nan]"
    assert one.tiering.read(KEY, 0, 400).records == b"", "no error, and nothing for now"
    delay = one.tiering.fetch_quota.throttle_ms()
    assert delay > 0 and throttled(one, "fetch") == [delay, delay]
    assert one.gauge("RemoteFetchRequestsPerSec") == 1
    one.clock.sleep(20_000)
    assert one.tiering.read(KEY, 0, 400).records
    one.clock.sleep(60_000)
    assert str(throttled(one, "fetch")) == "[nan, nan]"
    with pytest.raises(ConfigError, match="cannot be changed"):
        one.tiering.reconfigure({"remote.log.reader.max.pending.tasks": 1})
    one.tiering.close()
    assert throttled(one, "fetch") == [None, None]


def test_reads_of_remote_storage_that_fail(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    one.append(12)
    one.copy()
    one.log.delete_old_segments()
    one.storage.fail["fetch"] = [RetriableRemoteStorageError("503")]
    with pytest.raises(RetriableRemoteStorageError):
        one.tiering.read(KEY, 0, 400)
    assert one.gauge("RemoteFetchErrorsPerSec") == 1
    assert one.tiering.read(KEY, 0, 400).records
    one.storage.path(one.segments()[0], ".log").write_bytes(bytes(300))
    with pytest.raises(Exception, match="a batch of 0 bytes, expected 14 to"):
        one.tiering.read(KEY, 0, 400)


def test_reads_that_wait(make: Make) -> None:
    """One thread reads, one read may wait, the third is refused."""
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000},
               settings={"remote.log.reader.threads": "1",
                         "remote.log.reader.max.pending.tasks": "1"})
    one.append(12)
    one.copy()
    one.log.delete_old_segments()
    released, fetch = threading.Event(), one.storage.fetch_log_segment

    def slow(*arguments: object) -> object:
        assert released.wait(60)
        return fetch(*arguments)  # type: ignore[arg-type]

    one.storage.fetch_log_segment = slow  # type: ignore[assignment, method-assign]
    reads = [one.tiering.async_read(KEY, 0, 400) for _ in range(2)]
    with pytest.raises(RetriableRemoteStorageError, match="1 reads are pending"):
        one.tiering.async_read(KEY, 0, 400)
    pool = "kafka.log.remote:type=RemoteStorageThreadPool,name=RemoteLogReader"
    gauges = [one.manager.metrics.get(pool + name) for name in ("TaskQueueSize", "AvgIdlePercent")]
    assert [gauge.attributes()["Value"] for gauge in gauges if gauge is not None] == [1, 0]
    released.set()
    assert all(read.result(60).records for read in reads)
    wait_for(lambda: [gauge.attributes()["Value"] for gauge in gauges if gauge] == [0, 1])


def test_without_the_switch_there_is_no_tiering(tmp_path: Path) -> None:
    with LogManager([tmp_path / "data"]) as manager, pytest.raises(
            ConfigError, match="Tiered Storage functionality is disabled"):
        RemoteLogManager(manager, RemoteLogManagerConfig())
