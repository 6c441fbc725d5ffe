"""Truncations below what was copied, as after an unclean election: the new records are copied too,
and stay on the disk until then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.offsets_by_timestamp import LATEST_TIERED_TIMESTAMP
from seglog.remote_log.lineage import find_highest_remote_offset
from seglog.storage.markers import ControlType
from seglog.tiered import RemoteLogSegmentMetadataUpdate
from tests.remote_log.support import NOW_MS
from tests.remote_log.tiering import KEY, Make, Tiering, contents
from tests.remote_log.tiering import make as make  # the fixture

COUNT = 30


@pytest.fixture
def one(make: Make) -> Tiering:
    made = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000})
    made.append(COUNT)
    return made


def as_follower(one: Tiering, offset: int) -> None:
    one.tiering.on_leadership_change([], [KEY])
    one.manager.truncate_to({KEY: offset})
    one.tiering.on_leadership_change([KEY])


def as_leader(one: Tiering, offset: int) -> None:
    one.log.truncate_to(offset)


def assert_all_is_kept(one: Tiering, offset: int) -> None:
    """Writes records of another epoch at `offset`, which local retention may only delete later."""
    one.append(COUNT - offset, epoch=1, value=b"n" * 100)
    one.log.delete_old_segments()
    assert one.log.local_log_start_offset <= offset
    records = contents(one, one.log.local_log_start_offset)
    one.copy()
    assert one.log.highest_offset_in_remote_storage == one.bases()[-1] - 1
    one.log.delete_old_segments()
    assert one.bases() == [one.log.local_log_start_offset] and one.log.log_start_offset == 0
    assert contents(one)[-len(records):] == records


@pytest.mark.parametrize("truncate", [as_follower, as_leader])
def test_what_is_written_again_is_copied_again(
        one: Tiering, truncate: Callable[[Tiering, int], None]) -> None:
    one.copy()
    offset = one.bases()[2]
    truncate(one, offset)
    assert one.log.highest_offset_in_remote_storage == offset - 1
    assert one.log.offset_for_timestamp(LATEST_TIERED_TIMESTAMP).offset == offset - 1
    assert_all_is_kept(one, offset)


def test_everything_is_written_again(one: Tiering) -> None:
    one.copy()
    one.log.truncate_fully_and_start_at(0)
    assert one.log.highest_offset_in_remote_storage == -1
    assert_all_is_kept(one, 0)


def test_a_truncation_during_a_copy(one: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, offset = one.storage.copy_log_segment_data, one.bases()[1] + 1

    def copy_and_truncate(*arguments: object) -> bytes | None:
        done: bytes | None = upload(*arguments)
        if arguments[0].start_offset == one.bases()[1]:  # type: ignore[attr-defined]
            one.log.truncate_to(offset)
        return done

    monkeypatch.setattr(one.storage, "copy_log_segment_data", copy_and_truncate)
    one.copy()
    monkeypatch.undo()
    assert one.log.highest_offset_in_remote_storage == one.bases()[1] - 1
    assert one.storage.starts() == one.bases()[:1]
    assert_all_is_kept(one, offset)


def test_a_truncation_while_the_end_of_a_copy_is_announced(
        one: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment counted as copied, and the records that took its offsets too."""
    metadata, offset = one.tiering.metadata, one.bases()[1] + 1
    announce, second = metadata.update_remote_log_segment_metadata, one.bases()[1]

    def truncate_and_announce(update: RemoteLogSegmentMetadataUpdate) -> object:
        if any(found.remote_log_segment_id == update.remote_log_segment_id
               and found.start_offset == second for found in one.segments()):
            monkeypatch.undo()
            one.log.truncate_to(offset)
        return announce(update)

    monkeypatch.setattr(metadata, "update_remote_log_segment_metadata", truncate_and_announce)
    one.copy()
    assert one.log.highest_offset_in_remote_storage < offset
    assert_all_is_kept(one, offset)


def test_a_truncation_while_a_new_leader_looks_for_what_was_copied(
        one: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    one.copy()
    offset = one.bases()[2]

    def find_and_truncate(*arguments: object) -> tuple[int, int]:
        found = find_highest_remote_offset(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        one.log.truncate_to(offset)
        return found

    look = "seglog.remote_log.remote_task.find_highest_remote_offset"
    monkeypatch.setattr(look, find_and_truncate)
    one.tiering.on_leadership_change([], [KEY])
    one.follow()
    assert one.log.highest_offset_in_remote_storage < offset
    offset -= 2
    monkeypatch.setattr(look, find_and_truncate)
    one.tiering.on_leadership_change([KEY])
    one.copy()
    assert one.log.log_end_offset == offset
    assert one.log.highest_offset_in_remote_storage < offset
    assert_all_is_kept(one, offset)


def test_what_was_lost_does_not_count_for_retention_by_size(make: Make) -> None:
    """Segments of other records than the log's were counted once all had been the log's."""
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 7000})
    one.append(COUNT)
    one.copy()
    one.manager.update_topic_config("orders", {
        "remote.storage.enable": "true", "internal.segment.bytes": 850, "index.interval.bytes": 0,
        "file.delete.delay.ms": 0, "local.retention.bytes": 1, "retention.ms": -1,
        "retention.bytes": one.log.size - 1})  # less than a segment is too much
    one.expire()
    assert one.log.log_start_offset == 0
    offset = one.bases()[2]
    one.log.truncate_to(offset)
    one.expire()
    assert one.log.log_start_offset == 0
    one.append(COUNT - offset, epoch=1)
    one.expire()
    assert one.log.log_start_offset == 0
    one.copy()
    one.expire()
    assert one.log.log_start_offset == 0 and len(contents(one)) == COUNT


def test_times_of_a_segment_whose_end_was_lost(one: Tiering) -> None:
    """The records before that are found by their time, as reads find them."""
    one.copy()
    first = one.bases()[1]
    as_follower(one, first + 2)
    one.log.roll()
    assert_all_is_kept(one, first + 2)
    for offset in range(COUNT):
        found = one.tiering.offset_for_timestamp(KEY, NOW_MS + offset)
        assert found is not None and found.offset == offset


def test_reads_end_where_the_log_has_other_records(one: Tiering) -> None:
    one.copy()
    before, first = contents(one), one.bases()[1]
    as_follower(one, first + 2)
    one.log.roll()
    assert one.log.log_end_offset == first + 2, "and nothing is written again yet"
    info = one.tiering.async_read(KEY, first, 10_000).result()
    assert info.records == b"".join(before[first:first + 2])
    assert_all_is_kept(one, first + 2)
    found = contents(one)
    assert len(found) == COUNT and found[:first + 2] == before[:first + 2]
    for offset in (first, first + 1):
        info = one.tiering.read(KEY, offset, 10_000)
        assert info.records == b"".join(found[offset:first + 2])
    assert one.tiering.read(KEY, first + 2, 10_000).records.startswith(found[first + 2])


def test_a_transaction_that_only_the_lost_records_abort(make: Make) -> None:
    one = make(topic={"local.retention.bytes": 1, "retention.bytes": 100_000},
               settings={"transaction.partition.verification.enable": "false"})
    one.append(5)
    builder = RecordBatchBuilder(is_transactional=True, producer_id=7, producer_epoch=0,
                                 base_sequence=0)
    builder.append(NOW_MS, None, b"committed at last")
    one.log.append_as_leader(builder.build(), 0)

    def end(kind: ControlType, epoch: int) -> None:
        one.log.append_as_leader(end_transaction_marker(7, 0, kind, timestamp=NOW_MS), epoch,
                                 origin=AppendOrigin.COORDINATOR, transaction_version=1)
        one.log.roll()
        one.append(5, epoch=epoch)
        one.copy()

    end(ControlType.ABORT, 0)
    assert [found.last_offset for found in one.tiering.read(
        KEY, 5, 10_000, "read_committed").aborted_transactions] == [6]
    as_follower(one, 6)
    one.log.roll()
    end(ControlType.COMMIT, 1)
    one.log.delete_old_segments()
    assert one.log.local_log_start_offset > 7
    info = one.tiering.read(KEY, 5, 10_000, "read_committed")
    assert b"committed at last" in info.records and info.aborted_transactions == []
