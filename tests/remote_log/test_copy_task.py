"""What a leader copies to remote storage, and what it announces of it."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from seglog.errors import RemoteStorageError, RetriableRemoteStorageError
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.tiered import RemoteLogSegmentState as S
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import ID_KEY, KEY, TASK_MS, Make, contents
from tests.remote_log.tiering import make as make  # the fixture


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


@pytest.mark.parametrize("write", ["add_remote_log_segment_metadata",
                                   "update_remote_log_segment_metadata"])
def test_a_metadata_topic_that_takes_no_writes_is_noticed(
        make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
        write: str) -> None:
    """Its client says that the write may succeed later; Kafka's future wraps that."""
    one = make()
    one.append(12)

    def fails(_: object) -> Future[None]:
        done: Future[None] = Future()
        done.set_exception(RetriableRemoteStorageError("Message timed out"))
        return done

    with monkeypatch.context() as patched:
        patched.setattr(one.tiering.metadata, write, fails)
        one.copy()
    assert one.gauge("RemoteCopyErrorsPerSec") == 1
    assert [record.levelname for record in caplog.records
            if "Message timed out" in str(record.exc_info)] == ["ERROR"]
    one.copy()
    assert one.states().count(S.COPY_SEGMENT_FINISHED) == len(one.bases()) - 1


def test_records_before_the_first_leader_epoch_count_as_copied(make: Make) -> None:
    """Without an epoch they are not found in the metadata, and cannot be copied a second time."""
    one = make()
    one.append(12)
    one.copy()
    highest = one.log.highest_offset_in_remote_storage
    one.append(1, epoch=1)
    one.append(4)  # of an older leader: all earlier epochs go
    one.log.update_high_watermark(8)  # the log's start cannot move to the first epoch yet
    assert one.log.leader_epochs.earliest is not None
    assert one.log.leader_epochs.earliest.start_offset > highest > 0
    one.tiering.on_leadership_change([], [KEY])
    one.tiering.on_leadership_change([KEY])
    one.copy()
    assert one.gauge("RemoteCopyErrorsPerSec") == 0
    assert one.log.highest_offset_in_remote_storage == highest
    one.log.update_high_watermark(one.log.log_end_offset)
    one.copy()
    assert one.log.log_start_offset == one.log.leader_epochs.earliest.start_offset
    assert one.gauge("RemoteCopyErrorsPerSec") == 0


def test_custom_metadata_is_kept(make: Make) -> None:
    one = make()
    one.append(12)
    one.storage.custom = b"where it is"
    one.copy()
    assert {found.custom_metadata for found in one.segments()} == {b"where it is"}


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


def test_a_missing_snapshot_is_named(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's task ends with a null pointer each time, after it announced a copy."""
    one = make()
    one.append(12)
    with one.log.lock:
        one.log.producer_manager.snapshots.delete_outside(one.bases()[1], 2**63 - 1)
    one.copy()
    assert "no producer snapshot at offset" in caplog.text and one.segments() == []
