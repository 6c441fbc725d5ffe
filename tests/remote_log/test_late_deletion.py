"""Deletions of remote logs that cannot be done yet: they fail, and the caller tries again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.errors import RemoteStorageError, RetriableRemoteStorageError
from seglog.model import TopicPartition
from seglog.tiered import RemoteLogSegmentMetadata
from tests.remote_log.tiering import ID_KEY, KEY, Tiering
from tests.support.waiting import wait_for

SETTINGS = {"remote.storage.enable": "true", "internal.segment.bytes": 850,
            "index.interval.bytes": 0, "file.delete.delay.ms": 0, "retention.ms": -1}


@pytest.fixture
def tiering(tmp_path: Path) -> Iterator[Tiering]:
    made = Tiering(tmp_path)
    made.append(12)
    made.copy()
    assert made.storage.starts()
    yield made
    made.close()


def delete(tiering: Tiering) -> None:
    tiering.tiering.stop_partitions([KEY], delete_remote_log=True)


def assert_deleted(tiering: Tiering) -> None:
    assert tiering.storage.starts() == [] and not tiering.tiering.is_partition_ready(KEY)
    assert tiering.tiering._key_of(KEY) is None


def test_metadata_that_has_not_caught_up(tiering: Tiering) -> None:
    """The partition stays known, without tasks, and another call deletes the segments."""
    cache = tiering.tiering.metadata._store._caches[ID_KEY]  # type: ignore[attr-defined]
    cache._initialized.clear()
    with pytest.raises(RetriableRemoteStorageError, match="orders-0"):
        delete(tiering)
    assert tiering.storage.starts() and not tiering.tiering._tasks.of(ID_KEY)
    cache.mark_initialized()
    delete(tiering)
    assert_deleted(tiering)


def test_a_store_that_fails_in_the_middle(tiering: Tiering, monkeypatch: pytest.MonkeyPatch
                                          ) -> None:
    """The next call deletes the rest."""
    remove, calls = tiering.storage.delete_log_segment_data, list[int]()

    def fail_second(segment: RemoteLogSegmentMetadata) -> None:
        calls.append(segment.start_offset)
        if len(calls) == 2:
            raise RemoteStorageError("no such bucket")
        remove(segment)

    monkeypatch.setattr(tiering.storage, "delete_log_segment_data", fail_second)
    with pytest.raises(RemoteStorageError, match="no such bucket") as caught:
        delete(tiering)
    assert not isinstance(caught.value, RetriableRemoteStorageError)
    assert tiering.storage.starts()
    delete(tiering)
    assert_deleted(tiering)


def test_switching_tiering_off_too_early(tiering: Tiering, monkeypatch: pytest.MonkeyPatch
                                         ) -> None:
    def not_ready(*_: object) -> object:
        raise RetriableRemoteStorageError("not yet")

    tiering.manager.update_topic_config("orders", {
        **SETTINGS, "remote.log.copy.disable": "true"})
    tiering.manager.update_topic_config("orders", {
        **SETTINGS, "remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
    with monkeypatch.context() as patched:
        patched.setattr(tiering.tiering.metadata, "list_all_remote_log_segments", not_ready)
        with pytest.raises(RetriableRemoteStorageError, match="not yet"):
            tiering.tiering.on_config_change("orders")
    tiering.tiering.on_config_change("orders")
    assert_deleted(tiering)


def test_a_partition_that_is_led_again_after_a_deletion_failed(
        tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ready(*_: object) -> object:
        raise RetriableRemoteStorageError("not yet")

    before = tiering.storage.starts()
    with monkeypatch.context() as patched:
        patched.setattr(tiering.tiering.metadata, "list_all_remote_log_segments", not_ready)
        with pytest.raises(RetriableRemoteStorageError):
            delete(tiering)
    tiering.tiering.on_leadership_change([KEY])
    wait_for(lambda: tiering.tiering.is_partition_ready(KEY))
    tiering.copy()
    assert tiering.storage.starts() == before


def test_a_partition_that_was_not_led(tiering: Tiering) -> None:
    """Its log tells the topic id, and the call can be repeated until the metadata is read."""
    def is_done() -> bool:
        try:
            delete(tiering)
        except RetriableRemoteStorageError as error:
            assert "metadata is not ready" in str(error) and tiering.storage.starts()
            assert not tiering.tiering._tasks.of(ID_KEY)
            return False
        return True

    tiering.tiering.stop_partitions([KEY])
    wait_for(lambda: not tiering.tiering.metadata.is_ready(ID_KEY))  # dropped
    wait_for(is_done)
    assert_deleted(tiering)


def test_a_partition_without_a_log_that_was_not_led(tiering: Tiering) -> None:
    """Nothing tells its topic id. The partitions after it are deleted all the same."""
    gone, before = TopicPartition("gone", 0), tiering.storage.starts()
    with pytest.raises(RemoteStorageError, match="gone-0.*on_leadership_change before") as told:
        tiering.tiering.stop_partitions([gone, KEY], delete_remote_log=True)
    assert before and not isinstance(told.value, RetriableRemoteStorageError)
    assert_deleted(tiering)


def test_a_log_that_is_not_tiered_has_no_remote_log(
        tiering: Tiering, caplog: pytest.LogCaptureFixture) -> None:
    plain = TopicPartition("plain", 0)
    tiering.manager.get_or_create_log(plain)
    tiering.tiering.stop_partitions([plain], delete_remote_log=True)
    assert "StopPartition call is not expected for partition: plain-0" in caplog.text
