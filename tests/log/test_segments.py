"""Roll, preallocation, flush, retention and deletion of segments.

That the files are Kafka's byte for byte is tests/sequences' to say; here is what Kafka's driver
cannot see: when, in which order, and with which words.
"""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog._native.batch import scan
from seglog.config import LogConfig
from seglog.errors import (
    IllegalArgumentError, InconsistentTopicIdError, KafkaStorageError, RecordBatchTooLargeError,
    RecordTooLargeError, SeglogError,
)
from seglog.log.scheduler import MockTime
from seglog.log.active_segment import ActiveSegment
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.model import EpochEntry
from seglog.recovery.disk import RealDisk
from tests.log.test_fast_path import NOW, batch
from tests.oracle import legacy

WEEK_MS = 7 * 24 * 3600 * 1000


class Logged:
    """A log under a clock that the test moves."""

    def __init__(self, path: Path, **config: Any) -> None:
        self.path, self.config = path / "t-0", {
            key.replace("_", "."): str(value) for key, value in config.items()}
        self.time = MockTime(current_time_ms=NOW)
        self.log = self.open()

    def open(self, clean: bool = True, recovery_point: int = 0, start: int = 0) -> UnifiedLog:
        return UnifiedLog.create(
            self.path, LogConfig.from_properties(self.config), scheduler=self.time.scheduler,
            time=self.time, clean_shutdown=clean, recovery_point=recovery_point,
            log_start_offset=start)

    def append(self, count: int = 1, **how: Any) -> int:
        how.setdefault("timestamp", self.time.milliseconds())
        return self.log.append_as_leader(batch(count, **how), 0).last_offset

    def names(self, suffix: str = "") -> list[str]:
        return sorted(path.name for path in self.path.iterdir() if path.name.endswith(suffix))

    @property
    def bases(self) -> list[int]:
        found: list[int] = self.log.segments.base_offsets.tolist()
        return found


def messages(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


# ---- roll -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_a_segment_may_be_exactly_full(tmp_path: Path, count: int) -> None:
    made = Logged(tmp_path, internal_segment_bytes=count * len(batch()))
    for _ in range(count + 1):
        made.append()
    assert made.bases == [0, count]
    assert (made.path / "00000000000000000000.log").stat().st_size == count * len(batch())


def test_time_runs_from_the_first_batch(tmp_path: Path) -> None:
    made = Logged(tmp_path, segment_ms=1000)
    made.append(timestamp=NOW)
    made.time.sleep(WEEK_MS)  # the clock does not count, timestamps do
    made.append(timestamp=NOW + 1000)
    assert made.bases == [0]
    made.append(timestamp=NOW + 1001)
    assert made.bases == [0, 2]


def test_without_timestamps_the_clock_counts(tmp_path: Path) -> None:
    made = Logged(tmp_path, segment_ms=1000)
    made.log.append_as_leader(batch(timestamp=-1), 0)
    made.time.sleep(1000)
    made.log.append_as_leader(batch(timestamp=-1), 0)
    assert made.bases == [0]
    made.time.sleep(1)
    made.log.append_as_leader(batch(timestamp=-1), 0)
    assert made.bases == [0, 2]


def test_compaction_lag_shortens_the_life_of_a_segment(tmp_path: Path) -> None:
    made = Logged(tmp_path, cleanup_policy="compact", max_compaction_lag_ms=10)
    made.append(timestamp=NOW)
    made.append(timestamp=NOW + 11)
    assert made.bases == [0, 1]


def test_jitter_only_shortens(tmp_path: Path) -> None:
    made = Logged(tmp_path, segment_ms=1000, segment_jitter_ms=5000)
    jitters = {ActiveSegment(made.log.active.files).jitter_ms for _ in range(200)}
    assert len(jitters) > 50 and min(jitters) >= 0 and max(jitters) < 1000


@pytest.mark.parametrize("index_bytes", [24, 36])
def test_a_full_index_ends_a_segment(tmp_path: Path, index_bytes: int) -> None:
    """24 bytes are three offset entries and two time entries, one of which is kept for the end."""
    made = Logged(tmp_path, index_interval_bytes=0, segment_index_bytes=index_bytes)
    for step in range(6):
        made.append(timestamp=NOW + step)
    entries = index_bytes // 12 - 1
    assert made.bases[1] == entries + 1
    assert (made.path / "00000000000000000000.timeindex").stat().st_size == 12 * entries


def test_an_offset_too_far_from_the_base(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    follower = batch()
    far = (2**31).to_bytes(8, "big") + follower[8:12] + (0).to_bytes(4, "big") + follower[16:]
    near = (0).to_bytes(8, "big") + far[8:]
    made.log.append_as_follower(near, 0)
    made.log.append_as_follower(far, 0)
    assert made.bases == [0, 2**31]
    made.log.truncate_to(2**31)
    assert made.log.log_end_offset == 2**31


def test_an_old_format_far_from_the_base(tmp_path: Path) -> None:
    """Its first offset is unknown, so the segment begins as far below the last as may be."""
    made = Logged(tmp_path)
    made.append()
    last = 2**31 + 9
    made.log.append_as_follower(legacy.encode(legacy.Message(last, 1, b"k", b"v", NOW)), 0)
    assert made.bases == [0, last - (2**31 - 1)]
    assert made.log.log_end_offset == last + 1


def test_roll_refuses_what_is_there(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    made.append(3)
    assert made.log.roll(10) == 10
    with pytest.raises(SeglogError, match="lower than start offset of the active segment"):
        made.log.roll(5)
    made.log.append_as_follower(
        (10).to_bytes(8, "big") + batch()[8:12] + bytes(4) + batch()[16:], 0)
    made.log.active.update_files()
    assert made.log.roll() == 11


def test_what_no_segment_holds(tmp_path: Path) -> None:
    made = Logged(tmp_path, internal_segment_bytes=200)
    with pytest.raises(RecordBatchTooLargeError, match="maximum configured segment size of 200"):
        made.append(size=200)
    assert made.log.log_end_offset == 0 and made.append() == 0


def test_a_batch_that_the_log_compresses_may_be_exactly_as_large_as_allowed(tmp_path: Path
                                                                            ) -> None:
    """Small records grow; what is stored counts."""
    given = batch(size=5)
    made = Logged(tmp_path / "any", compression_type="gzip")
    made.log.append_as_leader(given, 0)
    stored = made.log.size
    assert stored > len(given)
    made = Logged(tmp_path / "exact", compression_type="gzip", max_message_bytes=stored)
    made.log.append_as_leader(given, 0)
    made = Logged(tmp_path / "less", compression_type="gzip", max_message_bytes=stored - 1)
    with pytest.raises(RecordTooLargeError, match=f"Message batch size is {stored} bytes"):
        made.log.append_as_leader(given, 0)
    assert made.log.log_end_offset == 0


def test_old_files_of_a_base_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Logged(tmp_path)
    made.append()
    (made.path / "00000000000000000001.txnindex").write_bytes(b"left over")
    made.log.roll()
    assert "already exists; deleting it first" in messages(caplog)
    assert not (made.path / "00000000000000000001.txnindex").exists()


# ---- preallocation (KIP-20) -------------------------------------------------------------------


def test_preallocated(tmp_path: Path) -> None:
    made = Logged(tmp_path, preallocate="true", internal_segment_bytes=1 << 20)
    first = made.path / "00000000000000000000.log"
    assert first.stat().st_size == 1 << 20 and first.stat().st_blocks * 512 >= 1 << 20
    made.append(5)
    assert made.log.size == len(batch(5))
    made.log.roll()
    assert first.stat().st_size == len(batch(5))
    made.append()
    second = made.path / "00000000000000000005.log"
    assert second.stat().st_size == 1 << 20
    made.log.close()
    assert second.stat().st_size == len(batch())


def test_preallocated_after_a_crash(tmp_path: Path) -> None:
    made = Logged(tmp_path, preallocate="true", internal_segment_bytes=1 << 16)
    made.append(3)
    made.log.close_handlers()
    log = made.log = made.open(clean=False)
    assert log.log_end_offset == 3 and log.size == len(batch(3))
    made.append(2)
    assert [one.last_offset for one in _batches(log)] == [2, 4]


def _batches(log: UnifiedLog) -> list[Any]:
    rows = scan(log.read(log.log_start_offset, 1 << 30).records).batches
    return list(rows.view(np.recarray))


# ---- flush ------------------------------------------------------------------------------------


def test_what_a_flush_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Logged(tmp_path)
    synced: list[str] = []
    monkeypatch.setattr("seglog.recovery.log_files.sync",
                        lambda fd, **how: synced.append(os.path.basename(how["file"])))
    monkeypatch.setattr(made.log.disk, "sync_directory", lambda: synced.append("the directory"))
    made.append()
    made.log.flush()
    files = [f"00000000000000000000{kind}" for kind in (".log", ".index", ".timeindex")]
    assert synced == [*files, "the directory"] and made.log.recovery_point == 1
    made.append()
    synced.clear()
    made.log.flush()
    assert synced == files  # its name is durable
    synced.clear()
    made.log.flush()
    assert not synced


def test_what_a_truncation_or_a_recovery_took_stays_gone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names are off the medium before other records get the offsets."""
    made = Logged(tmp_path)
    synced: list[list[str]] = []
    monkeypatch.setattr(RealDisk, "sync_directory", lambda disk: synced.append(
        [name for name in made.names() if name.endswith((".log", ".snapshot"))]))
    first, second, snapshot = (f"{base:020}{kind}" for base, kind in
                               ((0, ".log"), (1, ".log"), (1, ".snapshot")))
    for _ in range(3):
        made.append()
        made.log.roll()
    synced.clear()
    made.log.truncate_to(1)
    assert sum(".log" in it for it in synced.pop(0)) == 2 and synced == [[first, second, snapshot]]
    made.append()
    made.log.close_handlers()
    os.truncate(made.path / first, len(batch()) - 1)
    synced.clear()
    made.log = made.open(clean=False)
    assert synced[-1] == [first]
    made.append(2)
    made.log.truncate_fully_and_start_at(1)
    assert synced[-1] == [second]


def test_flush_messages(tmp_path: Path) -> None:
    made = Logged(tmp_path, flush_messages=3)
    made.append(2)
    assert made.log.recovery_point == 0
    made.append(2)
    assert made.log.recovery_point == 4


def test_a_roll_flushes_what_is_behind_it(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    made.append(2)
    made.log.roll()
    assert made.log.recovery_point == 2  # the task ran: the mock's run at once


# ---- retention --------------------------------------------------------------------------------


def _filled(made: Logged, segments: int = 4) -> None:
    for _ in range(segments - 1):
        made.append(2)
        made.log.roll()
        made.time.sleep(1000)
    made.append(2)
    made.log.update_high_watermark(made.log.log_end_offset)


def test_retention_by_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = len(batch(2))
    made = Logged(tmp_path, retention_bytes=2 * size)
    _filled(made)
    caplog.set_level(logging.INFO)
    assert made.log.retention_size_in_percent == 0 and made.log.delete_old_segments() == 2
    assert made.bases == [4, 6] and made.log.log_start_offset == 4
    assert (f"due to log retention size {2 * size} breach. Log size after deletion will be "
            f"{2 * size}.") in messages(caplog)
    assert "Incremented log start offset to 4 due to segment deletion" in messages(caplog)
    assert made.log.retention_size_in_percent == 100


def test_retention_by_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Logged(tmp_path, retention_ms=2000)
    _filled(made)
    caplog.set_level(logging.INFO)
    made.time.sleep(1)  # the first is 3001 ms old but for its second record, the second 2000
    assert made.log.delete_old_segments() == 1
    assert "due to log retention time 2000ms breach based on the largest record timestamp in the " \
           "segment" in messages(caplog)
    made.time.sleep(WEEK_MS)
    assert made.log.delete_old_segments() == 3
    assert made.bases == [8] and made.log.log_start_offset == made.log.log_end_offset == 8


def test_retention_stops_at_the_high_watermark(tmp_path: Path) -> None:
    made = Logged(tmp_path, retention_ms=0)
    _filled(made)
    made.log.update_high_watermark(3)
    made.time.sleep(WEEK_MS)
    assert made.log.delete_old_segments() == 1 and made.bases == [2, 4, 6]


def test_retention_by_start_offset_of_a_compacted_log(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Logged(tmp_path, cleanup_policy="compact", retention_ms=0)
    _filled(made)
    made.log.maybe_increment_log_start_offset(5, StartOffsetReason.CLIENT_RECORD_DELETION)
    caplog.set_level(logging.INFO)
    assert made.log.delete_old_segments() == 2 and made.bases == [4, 6]
    assert "Deleting segments due to log start offset 5 breach: LogSegment(baseOffset=0" \
        in messages(caplog)


def test_a_timestamp_from_the_future(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Logged(tmp_path, retention_ms=0, message_timestamp_after_max_ms=10**12)
    made.append(timestamp=NOW + 10**9)
    made.log.update_high_watermark(1)
    assert made.log.delete_old_segments() == 0
    assert "contains future timestamp(s), making it ineligible to be deleted" in messages(caplog)


def test_negative_limits_keep_everything(tmp_path: Path) -> None:
    made = Logged(tmp_path, retention_bytes=-1, retention_ms=-1)
    _filled(made)
    made.time.sleep(WEEK_MS)
    assert made.log.delete_old_segments() == 0 and made.bases == [0, 2, 4, 6]


# ---- deletion ---------------------------------------------------------------------------------


def test_files_go_after_their_delay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Logged(tmp_path, retention_bytes=0, file_delete_delay_ms=5000)
    _filled(made, 2)
    caplog.set_level(logging.INFO)
    made.log.delete_old_segments()
    gone = made.names(".deleted")
    assert "00000000000000000000.log.deleted" in gone
    assert "00000000000000000002.snapshot.deleted" in gone
    made.time.sleep(4999)
    assert made.names(".deleted") == gone
    made.time.sleep(1)
    assert not made.names(".deleted")
    assert f"Deleted log {made.path}/00000000000000000000.log.deleted." in messages(caplog)
    assert "because it does not exist" not in messages(caplog), "few have a transaction index"


def test_a_reader_keeps_what_it_reads(tmp_path: Path) -> None:
    made = Logged(tmp_path, retention_bytes=0, file_delete_delay_ms=0)
    made.append(2)
    made.log.update_high_watermark(2)
    found = made.log.read(0, 1 << 20)
    made.log.delete_old_segments()
    assert len(found.records) == len(batch(2))
    with pytest.raises(SeglogError, match="we only have log segments starting from offset: 2"):
        made.log.read(0, 1 << 20)


def test_delete(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    _filled(made, 3)
    made.log.delete()
    assert not made.path.exists()
    with pytest.raises(KafkaStorageError, match="The log of t-0 in .* is closed"):
        made.append()


def test_a_closed_log(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    made.append()
    made.log.close()
    made.log.close()
    for operation in (made.append, made.log.roll, lambda: made.log.truncate_to(0)):
        with pytest.raises(KafkaStorageError, match="The log of t-0 in .* is closed"):
            operation()
    assert not made.log.context.failures.has_offline_log_dir(str(tmp_path))
    made.log = made.open()
    assert made.append() == 1


# ---- truncation, name, topic id ---------------------------------------------------------------


def test_truncation_in_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Logged(tmp_path)
    made.append(3)
    made.append(3)
    made.log.update_high_watermark(6)
    caplog.set_level(logging.INFO)
    with pytest.raises(IllegalArgumentError, match="to a negative offset \\(-1\\)"):
        made.log.truncate_to(-1)
    assert made.log.truncate_to(4)
    assert "Truncating t-0 to offset 4 below high watermark 6" in messages(caplog)
    assert (made.log.log_end_offset, made.log.size) == (4, len(batch(3)))  # the batch goes whole
    assert not made.log.truncate_to(9)
    assert "Truncating to 9 has no effect as the largest offset in the log is 3" in messages(caplog)


def test_rename(tmp_path: Path) -> None:
    made = Logged(tmp_path, retention_bytes=0)
    _filled(made, 2)
    made.log.delete_old_segments()
    made.log.rename_dir("t-0.0123-delete", reinitialize=False)
    made.path = tmp_path / "t-0.0123-delete"
    assert made.names(".deleted") and not len(made.log.leader_epochs)
    made.time.sleep(60_000)
    assert not made.names(".deleted")  # under the new name


def test_topic_id(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    mine, other = uuid.UUID(int=5), uuid.UUID(int=6)
    made.log.assign_topic_id(mine)
    assert (made.path / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ")
    made.append()
    with pytest.raises(InconsistentTopicIdError, match="t-0, but log already contained topic ID"):
        made.log.assign_topic_id(other)
    made.log.close()
    assert made.open().topic_id == mine


def test_what_a_recovery_removed_goes_after_its_delay(tmp_path: Path) -> None:
    made = Logged(tmp_path, file_delete_delay_ms=5000)
    for _ in range(3):
        made.append()
        made.log.roll()
    made.log.close_handlers()
    os.truncate(made.path / f"{0:020}.log", len(batch()) - 1)
    made.log = made.open(clean=False)
    assert made.bases == [0]
    gone = made.names(".deleted")
    assert {f"{base:020}.log.deleted" for base in (1, 2, 3)} <= {*gone}
    made.time.sleep(4999)
    assert made.names(".deleted") == gone
    made.time.sleep(1)
    assert not made.names(".deleted")


def test_a_roll_leaves_the_new_segment_to_later_flushes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Logged(tmp_path)
    synced: list[str] = []
    monkeypatch.setattr("seglog.recovery.log_files.sync",
                        lambda fd, **how: synced.append(os.path.basename(how["file"])))
    made.append()
    made.log.roll()
    assert synced.count(f"{0:020}.log") == synced.count(f"{1:020}.snapshot") == 1
    assert f"{1:020}.log" not in synced
    made.log.flush(force_flush_active_segment=True)
    assert f"{1:020}.log" in synced


def test_an_old_format_clears_the_leader_epochs(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                ) -> None:
    """A follower gets it from a leader that was downgraded (UnifiedLog.append)."""
    made = Logged(tmp_path)
    made.log.append_as_follower(batch(), 0)
    assert made.log.leader_epochs.latest == EpochEntry(0, 0)
    made.log.append_as_follower(legacy.encode(legacy.Message(1, 1, b"k", b"v", NOW)), 0)
    assert not len(made.log.leader_epochs)
    assert (made.path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"
    assert "unexpected append with message format v1" in caplog.text


def test_a_deleted_log_without_files_begins_at_zero(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    made.path = tmp_path / f"t-0.{'0' * 32}-delete"
    log = made.open()
    assert (log.segments.base_offsets.tolist(), log.log_end_offset) == ([0], 0)
