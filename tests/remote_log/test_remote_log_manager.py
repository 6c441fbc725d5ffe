"""A tiered log: reads of both parts, restarts, followers, settings and the end of tiering."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seglog.errors import ConfigError, OffsetOutOfRangeError, RetriableRemoteStorageError
from seglog.log.offsets_by_timestamp import EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.manager import LogManager
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_log_manager import RemoteLogManager
from seglog.remote_log.remote_task import FollowerTask
from seglog.storage.paths import LOG_START_OFFSET_CHECKPOINT
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import ID_KEY, KEY, TASK_MS, Make, Tiering, contents
from tests.remote_log.tiering import make as make  # the fixture
from tests.support.waiting import wait_for


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


def test_lost_leader_epochs_delete_nothing(tmp_path: Path) -> None:
    """All copied segments counted as another log's; their records were nowhere else."""
    topic = {"local.retention.bytes": 1, "retention.bytes": 100_000}
    one = Tiering(tmp_path, topic=topic)
    one.append(30)
    one.copy()
    one.log.delete_old_segments()
    copied, checkpoint = one.storage.starts(), Path(one.log.path, "leader-epoch-checkpoint")
    one.close()
    kept = checkpoint.read_bytes()
    checkpoint.unlink()
    one = Tiering(tmp_path, topic=topic)
    try:
        for epoch in (1, 2):
            one.append(1, epoch=epoch)
            one.copy()
            one.expire()
            assert (one.log.log_start_offset, one.storage.starts()) == (0, copied)
    finally:
        one.close()
    checkpoint.write_bytes(kept.replace(b"\n1\n", b"\n3\n") + b"1 30\n2 31\n")
    one = Tiering(tmp_path, topic=topic)
    try:
        one.copy()
        one.expire()
        assert len(contents(one)) == 32
    finally:
        one.close()


def test_a_crash_before_the_start_is_checkpointed(tmp_path: Path) -> None:
    """The leader epochs begin at the new start, so that nothing before it can be read."""
    topic = {"local.retention.bytes": 1, "retention.bytes": 100_000}
    one = Tiering(tmp_path, topic=topic)
    one.append(30)
    one.copy()
    one.log.delete_old_segments()
    start = one.segments()[1].start_offset + 1
    one.log.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
    one.close()
    (tmp_path / "data" / LOG_START_OFFSET_CHECKPOINT).unlink()
    one = Tiering(tmp_path, topic=topic)
    try:
        assert one.log.log_start_offset == 0
        one.copy()
        assert one.log.log_start_offset == start
        assert len(contents(one, start)) == 30 - start
    finally:
        one.close()


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
