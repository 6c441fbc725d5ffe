"""High watermark, last stable offset and log start offset at their edges (Kafka: UnifiedLog)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog._native.fetch import LogOffsetMetadata
from seglog.config import LogConfig
from seglog.errors import (
    IllegalArgumentError, KafkaStorageError, OffsetOutOfRangeError, SeglogError,
)
from seglog.log.context import LogContext
from seglog.log.old_segments import OldSegments
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.log.watermarks import StartOffsetReason
from seglog.model import (
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, LATEST_TIERED_TIMESTAMP,
    EpochEntry, TimestampOffset, TopicPartition,
)
from seglog.recovery.disk import RealDisk
from seglog.recovery.inputs import LoadInputs
from tests.log.test_fast_path import NOW, batch

DELETION = StartOffsetReason.CLIENT_RECORD_DELETION


def open_log(path: Path, *, tiered: bool = False, **config: str) -> UnifiedLog:
    """A log of its own; `tiered` where a broker copies its segments."""
    time = MockTime(current_time_ms=NOW)
    settings = LogConfig.from_properties({
        "remote.storage.enable": str(tiered).lower(),
        **{key.replace("_", "."): value for key, value in config.items()}})
    context = LogContext(time.scheduler, time, remote_storage=True)
    path.mkdir(exist_ok=True)
    return load_unified_log(str(path), LoadInputs(TopicPartition("t", 0), True, 0, 0, settings,
                                                  is_remote=tiered, clock=time.milliseconds),
                            context=context, topic_id=None)


def filled(path: Path, segments: int = 4, *, tiered: bool = False, **config: str) -> UnifiedLog:
    """Segments of two records; the last one is active. All are below the high watermark."""
    log = open_log(path, tiered=tiered, **config)
    for number in range(segments):
        if number:
            log.roll()
        log.append_as_leader(batch(2), 0)
    log.update_high_watermark(log.log_end_offset)
    return log


def bases(log: UnifiedLog) -> list[int]:
    found: list[int] = log.segments.base_offsets.tolist()
    return found


def place(found: LogOffsetMetadata) -> tuple[int, int, int]:
    return (found.message_offset, found.segment_base_offset, found.relative_position_in_segment)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def test_the_high_watermark_stays_within_the_log(path: Path) -> None:
    log, size = filled(path, 2), len(batch(2))
    log.maybe_increment_log_start_offset(1, DELETION)
    assert [log.update_high_watermark(offset) for offset in (-5, 0, 1, 2, 3, 4, 5, 99)] == [
        1, 1, 1, 2, 3, 4, 4, 4]
    # At the log's end the position is known, elsewhere it is looked up.
    assert place(log._watermarks.high_watermark_metadata) == (4, 2, size)
    log.update_high_watermark(4)
    assert place(log._watermarks.high_watermark_metadata) == (4, 2, size)
    log.update_high_watermark(2)
    assert place(log._watermarks.high_watermark_metadata) == (2, -1, -1)
    assert place(log.fetch_high_watermark_metadata()) == (2, 2, 0)


def test_a_followers_update_says_whether_the_high_watermark_moved(path: Path) -> None:
    log = filled(path, 2)
    assert [log.maybe_update_high_watermark(offset) for offset in (4, 9, 2, 2, -1, 0, 9)] == [
        None, None, 2, None, 0, None, 4]
    assert log.high_watermark == 4


def test_a_high_watermark_that_goes_down_is_logged(
        path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(path, 1)
    log.update_high_watermark(2)
    assert not caplog.messages
    log.update_high_watermark(1)
    assert len(caplog.messages) == 1 and "Non-monotonic update" in caplog.messages[0]


def test_the_high_watermark_only_rises_to_what_a_follower_has(path: Path) -> None:
    log = filled(path, 2)
    log.update_high_watermark(2)
    size = len(batch(2))
    assert log.maybe_increment_high_watermark(LogOffsetMetadata(1, 0, 0)) is None
    # The same offset at the end of the segment before is not newer.
    assert log.maybe_increment_high_watermark(LogOffsetMetadata(2, 0, size)) is None
    assert log.maybe_increment_high_watermark(LogOffsetMetadata(2, 2, 0)) is None
    assert log.high_watermark == 2
    with pytest.raises(IllegalArgumentError, match="exceeds current log end offset"):
        log.maybe_increment_high_watermark(LogOffsetMetadata(5, 2, size))
    before = log.maybe_increment_high_watermark(LogOffsetMetadata(4, 2, size))
    assert before is not None and before.message_offset == 2 and log.high_watermark == 4
    # A roll begins a segment: then the same offset is in a newer one.
    log.roll()
    assert place(log._watermarks.high_watermark_metadata) == (4, 4, 0)
    log._watermarks.high_watermark_metadata = LogOffsetMetadata(4, 2, size)
    assert log.maybe_increment_high_watermark(LogOffsetMetadata(4, 4, 0)) is not None
    assert place(log._watermarks.high_watermark_metadata) == (4, 4, 0)


def test_the_high_watermark_follows_the_end_down(path: Path) -> None:
    log = filled(path, 3)
    log.update_high_watermark(4)
    log.truncate_to(4)
    assert place(log._watermarks.high_watermark_metadata) == (4, 4, 0)
    log.truncate_to(1)
    assert place(log._watermarks.high_watermark_metadata) == (1, 0, 0)


def test_the_start_moves_up_to_the_high_watermark_and_never_down(
        path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(path, 2)
    log.update_high_watermark(3)
    with pytest.raises(OffsetOutOfRangeError, match="larger than the high watermark 3"):
        log.maybe_increment_log_start_offset(4, DELETION)
    assert log.maybe_increment_log_start_offset(3, DELETION)
    assert not log.maybe_increment_log_start_offset(3, DELETION)
    assert not log.maybe_increment_log_start_offset(2, DELETION)
    assert (log.log_start_offset, log.recovery_point) == (3, 3)
    assert log.truncate_to(2) and log.log_start_offset == 2
    log.truncate_fully_and_start_at(9)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 9, 9)


def test_a_new_start_wakes_those_who_wait(path: Path) -> None:
    """What they wait for may be below it."""
    log, starts = filled(path, 2), list[int]()

    def woken() -> None:
        starts.append(log.log_start_offset)

    log.followers.waiting.append(woken)
    assert not log.maybe_increment_log_start_offset(0, DELETION) and not starts
    assert log.maybe_increment_log_start_offset(1, DELETION) and starts == [1]


def test_consumers_read_below_the_high_watermark(path: Path) -> None:
    """The first read opens the segment, the second one finds it open."""
    log, size = filled(path, 2), len(batch(2))
    log.append_as_leader(batch(2), 0)
    for high in (3, 4, 6):
        log.update_high_watermark(high)
        log.fetch_high_watermark_metadata()
        for _ in range(2):
            assert len(log.read(0, 1 << 20, "read_uncommitted").records) == size
            assert len(log.read(2, 1 << 20, "read_uncommitted").records) == (
                {3: 0, 4: size, 6: 2 * size}[high])
            assert len(log.read(2, 1 << 20, "log_end").records) == 2 * size


def transactional(sequence: int, producer: int = 5) -> bytes:
    return batch(1, producer=producer, sequence=sequence, is_transactional=True)


def test_what_is_stable_ends_at_the_first_open_transaction(path: Path) -> None:
    log = filled(path, 1)
    log.append_as_leader(transactional(0), 0)
    log.append_as_leader(transactional(0, 6), 0)
    log.append_as_leader(batch(1), 0)
    assert log.update_high_watermark(2) == log.last_stable_offset == 2
    assert log.first_unstable_offset == 2
    log.update_high_watermark(5)
    assert log.last_stable_offset == 2
    assert place(log.fetch_last_stable_offset_metadata()) == (2, 0, len(batch(2)))
    # Records are deleted up to within the transaction: it counts from there.
    log.maybe_increment_log_start_offset(3, DELETION)
    assert log.first_unstable_offset == log.last_stable_offset == 3
    log.maybe_increment_log_start_offset(5, DELETION)
    assert log.first_unstable_offset == log.last_stable_offset == 5
    # No batch is there yet; the next one may begin a segment.
    log.roll()
    log.append_as_leader(batch(1), 0)
    log.update_high_watermark(6)
    assert place(log.fetch_last_stable_offset_metadata()) == (5, 5, 0)


def test_a_log_that_starts_with_the_state_of_another(
        path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's, whose records up to there are in remote storage only."""
    source = filled(path.with_name("t-1"), 1)
    source.append_as_leader(transactional(0), 0)
    base = source.roll()
    snapshot = Path(source.path, f"{base:020d}.snapshot").read_bytes()
    log = filled(path)
    synced: list[dict[str, bytes]] = []
    monkeypatch.setattr(RealDisk, "sync_directory", lambda _: synced.append(
        {one.name: one.read_bytes() for one in path.glob("*9.*")}))
    log.start_with_state(9, 4, [EpochEntry(1, 4), EpochEntry(2, 7)], snapshot)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, bases(log)) == (
        4, 9, 9, [9])
    assert list(log.leader_epochs) == [EpochEntry(1, 4), EpochEntry(2, 7)]
    assert {*log.producer_manager.active_producers} == {5}
    assert log.first_unstable_offset is not None
    assert (path / f"{9:020d}.snapshot").read_bytes() == snapshot
    assert synced[-1][f"{9:020d}.snapshot"] == snapshot and f"{9:020d}.log" in synced[-1]


# ---- with remote storage ----------------------------------------------------------------------


@pytest.mark.parametrize(("copied", "expected"), [(-1, [0, 2, 4, 6]), (2, [2, 4, 6]),
                                                  (3, [4, 6]), (1, [2, 4, 6]), (0, [0, 2, 4, 6])])
def test_local_segments_go_once_they_are_copied(path: Path, copied: int, expected: list[int]
                                                ) -> None:
    log = filled(path, tiered=True, local_retention_bytes="1", retention_bytes="100000")
    log.update_highest_offset_in_remote_storage(copied)
    assert log.delete_old_segments() == 4 - len(expected)
    assert bases(log) == expected
    assert (log.log_start_offset, log.local_log_start_offset) == (0, expected[0])


def test_a_copied_segment_of_the_first_record_goes(
        path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = open_log(path, tiered=True, local_retention_bytes="1", retention_bytes="100000")
    log.append_as_leader(batch(1), 0)
    log.roll()
    log.append_as_leader(batch(1), 0)
    log.update_high_watermark(2)
    assert log.delete_old_segments() == 0
    log.update_highest_offset_in_remote_storage(0)
    assert log.delete_old_segments() == 1 and bases(log) == [1]
    assert ("Incremented local log start offset to 1 due to reason segment deletion"
            in caplog.text)


def test_what_is_copied_only_grows(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(path, tiered=True)
    for offset, expected in ((3, 3), (2, 2 + 1), (3, 3), (4, 4)):
        log.update_highest_offset_in_remote_storage(offset)
        assert log.highest_offset_in_remote_storage == expected
    assert not caplog.messages
    log = filled(path.with_name("t-1"))
    log.update_highest_offset_in_remote_storage(3)
    assert log.highest_offset_in_remote_storage == -1
    assert "since remote storage is not enabled" in caplog.text


def test_the_offsets_of_a_closed_log(path: Path) -> None:
    """Its start stays, and nobody waits for its watermarks."""
    log = filled(path)
    log.close()
    with pytest.raises(KafkaStorageError, match="is closed"):
        log.maybe_increment_log_start_offset(3, DELETION)
    assert log.log_start_offset == 0
    for fetch in (log.fetch_high_watermark_metadata, log.fetch_last_stable_offset_metadata):
        with pytest.raises(KafkaStorageError, match="is closed"):
            fetch()


def test_a_log_that_is_closed_inside_of_its_retention_keeps_its_segments(
        path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a handler of SIGTERM: they may be another process's then."""
    log = filled(path, tiered=True, local_retention_bytes="1", retention_bytes="100000")
    log.update_highest_offset_in_remote_storage(5)
    deletable = OldSegments._deletable

    def then_close(*given: Any) -> list[int]:
        found = deletable(*given)
        if found:
            log.close()
        return found

    monkeypatch.setattr(OldSegments, "_deletable", then_close)
    with pytest.raises(KafkaStorageError, match="is closed"):
        log.delete_old_segments()
    assert len(list(path.glob("*.log"))) == len(bases(log)) == 4


def test_segments_below_the_logs_start_go_uncopied(path: Path) -> None:
    log = filled(path, tiered=True)
    assert log.maybe_increment_log_start_offset(3, DELETION)
    assert log.local_log_start_offset == 3
    assert log.delete_old_segments() == 1 and bases(log) == [2, 4, 6]
    log.maybe_increment_log_start_offset(4, DELETION)
    assert log.delete_old_segments() == 1 and bases(log) == [4, 6]


def test_the_start_of_the_remote_segments_is_the_logs(
        path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(path, tiered=True, local_retention_bytes="1", retention_bytes="100000")
    log.update_highest_offset_in_remote_storage(5)
    log.delete_old_segments()
    assert (log.log_start_offset, log.local_log_start_offset, bases(log)) == (0, 6, [6])
    assert log.offset_for_timestamp(EARLIEST_LOCAL_TIMESTAMP) == TimestampOffset(-1, 6, 0)
    log.update_log_start_offset_from_remote_tier(2)
    assert (log.log_start_offset, log.local_log_start_offset) == (2, 6)
    log.start_at_local_segments()
    assert (log.log_start_offset, log.highest_offset_in_remote_storage) == (6, -1)
    log.truncate_fully_and_start_at(20, 10)
    assert (log.log_start_offset, log.local_log_start_offset) == (10, 20)
    caplog.set_level(logging.ERROR)
    log = filled(path.with_name("t-1"))
    log.update_log_start_offset_from_remote_tier(2)
    assert log.log_start_offset == 0
    assert "Ignoring the call as the remote log storage is disabled" in caplog.text


def test_a_copied_active_segment_is_rolled_before_it_goes(
        path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A later run deletes it, once it is copied."""
    caplog.set_level(logging.INFO)
    log = filled(path, 2, tiered=True, local_retention_ms="0", retention_ms="100000")
    log.context.time.sleep(10_000)
    log.update_highest_offset_in_remote_storage(1)
    assert log.delete_old_segments() == 1
    assert bases(log) == [2, 4] and log.local_log_start_offset == 2
    assert caplog.text.count("Rolling the active segment to make it eligible for deletion") == 1
    log.update_highest_offset_in_remote_storage(3)
    assert log.delete_old_segments() == 1
    assert bases(log) == [4], "an empty active segment is not rolled again"
    assert log.delete_old_segments() == 0 and bases(log) == [4]


def test_the_active_segment_stays_with_one_that_is_not_copied(path: Path) -> None:
    log = filled(path, tiered=True, local_retention_ms="0", retention_ms="100000")
    log.context.time.sleep(10_000)
    log.update_highest_offset_in_remote_storage(3)
    assert log.delete_old_segments() == 2 and bases(log) == [4, 6]


@pytest.mark.parametrize("truncate", [
    UnifiedLog.truncate_to, UnifiedLog.truncate_fully_and_start_at])
def test_no_record_after_a_truncation_is_copied(
        path: Path, truncate: Callable[[UnifiedLog, int], object]) -> None:
    log = filled(path, tiered=True)
    log.update_highest_offset_in_remote_storage(5)
    truncate(log, 4)
    assert log.highest_offset_in_remote_storage == 3


def test_nothing_below_the_local_segments_waits_for_replication(path: Path) -> None:
    """UnifiedLog.updateLocalLogStartOffset."""
    log = filled(path, tiered=True, local_retention_bytes="1", retention_bytes="100000")
    log.update_highest_offset_in_remote_storage(5)
    log.delete_old_segments()
    log.close()
    log = open_log(path, tiered=True)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 6)
    assert log.high_watermark == 6


def test_remote_segments_are_searched_first(path: Path) -> None:
    log, remote = filled(path, tiered=True), TimestampOffset(NOW, 1, 0)
    with pytest.raises(SeglogError, match="^RemoteLogManager is empty even though"):
        log.offset_for_timestamp(NOW)
    log.context.remote.offset_by_timestamp = lambda partition, timestamp, start: (
        remote if (partition, timestamp, start) == (log.topic_partition, NOW, 0) else None)
    assert log.offset_for_timestamp(NOW) is remote
    found = log.offset_for_timestamp(NOW - 1)
    assert found is not None and found.offset == 0


def test_a_transaction_is_unstable_from_its_first_append(path: Path) -> None:
    log = open_log(path)
    log.append_as_leader(batch(2, producer=5, sequence=0, is_transactional=True), 0)
    assert log.high_watermark == log.first_unstable_offset == 0


def test_segments_that_become_remote_during_a_search_are_searched_for_again(path: Path) -> None:
    log = filled(path, tiered=True, local_retention_bytes="1", retention_bytes="100000")
    remote, searches = TimestampOffset(NOW, 1, 0), list[int]()

    def search(partition: TopicPartition, timestamp: int, start: int) -> TimestampOffset | None:
        searches.append(timestamp)
        log.update_highest_offset_in_remote_storage(5)
        return None if log.delete_old_segments() else remote

    log.context.remote.offset_by_timestamp = search
    assert log.offset_for_timestamp(NOW) is remote and len(searches) == 2


def test_what_is_stable_does_not_stay_in_a_segment_that_goes(path: Path) -> None:
    """A transaction counts from the log's start, as far as a batch holds that: the batch of offset
    1, which is inside it, leaves the disk."""
    log = open_log(path, tiered=True, local_retention_ms="0", retention_ms="100000")
    log.append_as_leader(batch(2, producer=5, sequence=0, is_transactional=True), 0)
    log.update_high_watermark(2)
    log.update_log_start_offset_from_remote_tier(1)
    assert log.last_stable_offset == 0
    log.context.time.sleep(10_000)
    log.update_highest_offset_in_remote_storage(1)
    assert log.delete_old_segments() == 1 and bases(log) == [2]
    log.update_high_watermark(2)
    assert log.last_stable_offset == log.log_start_offset == 1


@pytest.mark.parametrize(("copied", "count", "pending"), [
    (-1, 4, 0), (1, 3, 2), (2, 3, 3), (3, 2, 4), (6, 1, 7), (7, 0, 8)])
def test_what_is_not_copied_yet(path: Path, copied: int, count: int, pending: int) -> None:
    """UnifiedLog.onlyLocalLogSegmentsCount, fetchEarliestPendingUploadOffset, and
    fetchLatestTieredOffset."""
    log = filled(path, tiered=True)
    log.update_highest_offset_in_remote_storage(copied)
    size = count * len(batch(2))
    assert log.only_local_segments() == (count, size)
    log.append_as_leader(batch(), 0)
    assert log.only_local_segments() == (count, size + len(batch()) * (count > 0))
    found = log.offset_for_timestamp(EARLIEST_PENDING_UPLOAD_TIMESTAMP)
    assert found is not None and found.offset == pending
    found = log.offset_for_timestamp(LATEST_TIERED_TIMESTAMP)
    assert found is not None and (found.offset, found.leader_epoch) == (copied, min(copied, 0))
    log.close()


def test_the_last_stable_offset_gets_the_position_that_it_lacks(path: Path) -> None:
    log = filled(path)
    for known in (LogOffsetMetadata(3), log.convert_to_offset_metadata(4)):
        log._watermarks._first_unstable = known
        stable = log._watermarks.fetch_last_stable_offset_metadata()
        assert not stable.message_offset_only
        assert (stable is known) == (not known.message_offset_only)
        assert log._watermarks.fetch_last_stable_offset_metadata() is stable
    log.close()
