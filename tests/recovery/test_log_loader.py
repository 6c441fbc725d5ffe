"""The steps of a loader: what a cut, a split and a rebuilt index leave of a log."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from seglog._native.scan import PROBLEM_DTYPE, FileClass, PartitionListing
from seglog._native.status import Status
from seglog.config import LogConfig
from seglog.errors import KafkaStorageError, LogLoadError
from seglog.model import AbortedTxn, TopicPartition
from seglog.recovery import log_loader
from seglog.recovery.disk import RealDisk
from seglog.recovery.inputs import OFFSET_MAX, LoadInputs, wall_clock_ms
from seglog.recovery.loaded import LoadedLog
from seglog.recovery.open_log import load_log
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.partition_plan import PartitionPlan, check_listing
from seglog.recovery.scans import Extent, SegmentScans
from seglog.storage.producer_state import encode_snapshot
from seglog.storage.txn_entries import encode_entries
from tests.log.test_fast_path import batch
from tests.recovery.test_disks import Ears
from tests.recovery.test_load import codes, data_dir, name
from tests.support.synced import syncs

FAR = (1 << 31) + 1  # beyond what an index entry holds, also from one below
CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=1200)


def at(offset: int, *, size: int = 10, timestamp: int = 5) -> bytes:
    return offset.to_bytes(8, "big") + batch(size=size, timestamp=timestamp)[8:]


def written(path: Path, logs: dict[int, bytes]) -> Path:
    """A partition of these segments, with empty indexes."""
    path.mkdir()
    for base, data in logs.items():
        (path / name(base, ".log")).write_bytes(data)
        for suffix in (".index", ".timeindex"):
            (path / name(base, suffix)).touch()
    return path


def inputs(*, clean: bool = False, config: LogConfig = CONFIG) -> LoadInputs:
    return LoadInputs(TopicPartition("t", 0), clean, 0, 0, config)


def load(path: Path, **how: Any) -> LoadedLog:
    return load_log(str(path), inputs(), **how)


def names(path: Path, *suffixes: str) -> list[str]:
    return sorted(one.name for one in path.iterdir() if one.name.endswith(suffixes))


@pytest.mark.parametrize("first", [9, 10, 11])
def test_a_split_replaces_the_segment_by_those_of_its_batches(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, first: int) -> None:
    """LogLoader.recoverLog; the old segment stays only where a new one has its base offset."""
    path = written(tmp_path / "t-0", {10: at(first) + at(first + FAR)})
    (path / name(10, ".snapshot")).write_bytes(encode_snapshot([]))
    log = load(path)
    bases = [first, first + FAR]
    assert log.segments.base_offsets.tolist() == bases
    assert names(path, ".log") == [name(base, ".log") for base in bases]
    assert [(path / name(base, ".log")).read_bytes() for base in bases] == [at(one)
                                                                           for one in bases]
    assert names(path, ".log.deleted") == [name(10, ".log.deleted")]
    with caplog.at_level("INFO", "seglog.UnifiedLog"):
        log.delete_removed()
    assert sorted(caplog.messages) == [  # Kafka does not tell snapshots
        f"Deleted {what} {path / name(10, suffix)}.deleted." for suffix, what in (
            (".log", "log"), (".index", "offset index"), (".timeindex", "time index"))]
    assert not names(path, ".deleted") and log.log_end_offset == first + FAR + 1
    log.close()


def test_the_transactions_of_a_segment_without_index_are_durable_before_its_split(
        tmp_path: Path) -> None:
    """The new segment of that base has its index; no later load would rebuild them."""
    path = written(tmp_path / "t-0", {0: at(0) + at(FAR)})
    (path / name(0, ".index")).unlink()
    (path / name(0, ".txnindex")).write_bytes(encode_entries([AbortedTxn(7, 0, 1, 2)]))
    with syncs() as synced:
        log = load_log(str(path), inputs(clean=True))
    assert log.segments.base_offsets.tolist() == [0, FAR]
    done = [file.name for file, _ in synced if file.name.startswith(name(0, ""))]
    assert done[0].startswith(name(0, ".txnindex")) and name(0, ".log.cleaned") in done


def test_a_cut_leaves_no_segment_to_recover(tmp_path: Path) -> None:
    """`remaining` says so at once, so that a gauge does not keep the removed ones."""
    path, left = written(tmp_path / "t-0", {
        0: at(0), 1: at(1) + b"x", 2: at(2), 3: at(3)}), list[int]()
    log = load(path, remaining=left.append)
    assert left == [4, 3, 0] and [one.base_offset for one in log.segments.held] == [1]
    log.recovery_point = 0
    log.flush()
    assert [one.base_offset for one in log.segments.held] == [1]
    log.close()
    assert names(path, ".log") == [name(0, ".log"), name(1, ".log")]


def test_what_a_recovery_cut_before_its_last_entry_failed_is_reported(tmp_path: Path) -> None:
    """LogSegment.recover truncates the log before it adds the last entry of the time index."""
    path, ears = written(tmp_path / "t-0", {0: at(0) + b"x"}), Ears()
    (path / name(0, ".index")).write_bytes(bytes(16))
    with pytest.raises(LogLoadError) as caught:
        load_log(str(path), inputs(config=LogConfig(segment_index_bytes=8)), listener=ears,
                 quarantine=str(tmp_path / "kept"))
    assert caught.value.kafka_name == "BufferOverflowException"
    assert [(one.code, one.position, one.bytes) for one in ears.found] == [
        ("log-truncated", len(at(0)), 1)]
    assert (path / name(0, ".log")).read_bytes() == at(0)
    assert (path / name(0, ".index")).read_bytes() == b""
    assert [one.read_bytes() for one in (tmp_path / "kept").iterdir()] == [b"x"]


class FullDisk(RealDisk):
    """Refuses to replace the files of an index after the first ones."""

    def __init__(self, path: str, left: int) -> None:
        super().__init__(path)
        self.left = left

    def replace(self, name: str, data: bytes, *, sync: bool = False) -> None:
        """See Disk."""
        self.left -= 1
        if self.left < 0:
            raise KafkaStorageError(28, "No space left on device", f"{self.path}/{name}")
        super().replace(name, data, sync=sync)


@pytest.mark.parametrize("done", [0, 1])
def test_a_missing_index_is_missing_until_the_others_are_whole(tmp_path: Path, done: int) -> None:
    """The next load finds out by it that the segment is to be recovered."""
    data = b"".join(at(offset, size=200, timestamp=5 + offset) for offset in range(4))
    path = written(tmp_path / "t-0", {0: data, 4: at(4)})
    (path / name(0, ".index")).unlink()
    with pytest.raises(KafkaStorageError):
        load_log(str(path), inputs(clean=True), disk=FullDisk(str(path), done))
    assert name(0, ".index") not in names(path, ".index")
    load_log(str(path), inputs(clean=True)).close()
    assert [(path / name(0, suffix)).stat().st_size for suffix in (".index", ".timeindex")] == [
        3 * 8, 3 * 12]


def test_a_cut_is_durable_before_the_index_that_was_missing(tmp_path: Path) -> None:
    """A power cut that undid the cut alone left the bad bytes where no start looks for them."""
    path = written(tmp_path / "t-0", {0: at(0) + b"x", 1: at(1)})
    (path / name(0, ".index")).unlink()
    with syncs() as synced:
        log = load_log(str(path), inputs(clean=True))
    files = [file.name.removesuffix(".new.deleted") for file, _ in synced]
    assert (path / name(0, ".log"), at(0)) in synced
    assert files.index(name(0, ".log")) < files.index(name(0, ".index"))
    log.close()


@pytest.mark.parametrize(("first", "start"), [(at(0) + b"x", 0), (at(0), 50)])
def test_a_dry_run_removes_an_empty_segment_like_any_other(
        tmp_path: Path, first: bytes, start: int) -> None:
    """The last one of a log that was just rolled. (It was a file that vanished meanwhile.)"""
    path, found = written(tmp_path / "t-0", {0: first, 1: b""}), []
    how = replace(inputs(), log_start_offset=start)
    for disk in (OverlayDisk(str(path)), RealDisk(str(path))):
        ears = Ears()
        log = load_log(str(path), how, disk=disk, listener=ears)
        found.append((log.log_end_offset, ears.found))
    assert found[0] == found[1]
    assert found[0][0] == (start or 1)


class Told(RealDisk):
    """Notes which logs there are at a sync of the directory, and which are cut."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.told: list[tuple[str, object]] = []

    def sync_directory(self) -> None:
        """See Disk."""
        self.told.append(("logs", names(Path(self.path), ".log")))
        super().sync_directory()

    def resize(self, name: str, size: int) -> None:
        """See Disk."""
        if name.endswith(".log"):
            self.told.append((name, size))
        super().resize(name, size)


@pytest.mark.parametrize("bad", [
    at(1) + b"x", at(2, size=200) + at(3, size=200) + at(1, size=200)])
def test_segments_behind_a_cut_are_durably_gone_before_it(tmp_path: Path, bad: bytes) -> None:
    """After a power cut they were behind the cut again, and the next start loaded them. `bad` ends
    with a byte too many, or with an offset that goes backwards."""
    path = written(tmp_path / "t-0", {0: at(0), 1: bad, 2: at(2), 3: at(3)})
    disk = Told(str(path))
    load(path, disk=disk).close()
    assert disk.told[0] == ("logs", [name(0, ".log"), name(1, ".log")])
    assert name(1, ".log") in dict(disk.told[1:])


@pytest.mark.parametrize(("point", "how", "row"), [
    (25, {}, 1), (20, {}, 1), (5, {}, 0), (99, {}, 2), (25, {"clean_shutdown": True}, 3),
    (25, {"is_deleted": True}, 3), (OFFSET_MAX, {}, 3)])
def test_a_start_scans_from_the_segment_of_the_recovery_point(
        point: int, how: dict[str, Any], row: int) -> None:
    """LogLoader.recoverLog; a clean log is not scanned."""
    given = replace(inputs(), recovery_point=point, **how)
    assert given.first_scanned(np.array([10, 20, 30])) == row


def test_a_file_that_cannot_be_checked_ends_a_load(tmp_path: Path) -> None:
    """That a read of it failed says nothing about its bytes."""
    path = written(tmp_path / "t-0", {0: at(0)})

    def failing(listing: PartitionListing) -> PartitionPlan:
        problems = np.zeros(1, PROBLEM_DTYPE)
        problems["status"], problems["file"] = int(Status.IO), int(FileClass.INDEX)
        problems["sys_errno"] = errno.EIO
        return replace(check_listing(listing), problems=problems)

    with pytest.raises(KafkaStorageError) as caught:
        load(path, check=failing)
    assert (caught.value.errno, caught.value.filename) == (
        errno.EIO, str(path / name(0, ".index")))


def test_a_log_that_is_marked_for_deletion_ends_at_0(tmp_path: Path) -> None:
    """As in LogLoader.load, which neither recovers nor reads it."""
    path = written(tmp_path / f"t-0.{'0' * 32}-delete", {0: at(0) + at(1)})
    log = load_log(str(path), replace(inputs(), is_deleted=True))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)


def test_a_high_watermark_stays_within_the_log(tmp_path: Path) -> None:
    path = written(tmp_path / "t-0", {10: at(10) + at(11) + at(12)})
    log = load_log(str(path), replace(inputs(), log_start_offset=11))
    assert [log.update_high_watermark(offset) for offset in (12, 99, 5)] == [12, 13, 11]
    log.close()


def test_a_log_is_renamed_and_abandoned(tmp_path: Path) -> None:
    """As a manager does that only recovers."""
    log = load(written(tmp_path / "t-0", {0: at(0)}))
    log.rename_dir("u-0")
    before = names(tmp_path / "u-0", "")
    log.producers.map_end_offset += 1
    log.close_handlers()
    log.close()
    assert log.is_closed and names(tmp_path / "u-0", "") == before, "no snapshot was written"


def test_a_log_that_is_closed_has_a_snapshot_at_its_end(tmp_path: Path) -> None:
    """UnifiedLog.close."""
    path = written(tmp_path / "t-0", {0: at(0)})
    log = load(path)
    log.producers.map_end_offset += 1
    with syncs() as synced:
        log.close()
    assert log.segments.held == []
    assert name(2, ".snapshot") in {file.name for file, _ in synced} & {*names(path, ".snapshot")}


def test_a_segment_that_is_recovered_later_tells_its_leader_epochs(tmp_path: Path) -> None:
    data = [(base).to_bytes(8, "big") + batch(partition_leader_epoch=base + 3)[8:]
            for base in (0, 1)]
    path = written(tmp_path / "t-0", dict(enumerate(data)))
    log = load_log(str(path), inputs(clean=True))
    (path / name(0, ".index")).unlink()
    log.recover_segments([0])
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"
    log.close()


def test_the_last_two_segments_have_a_snapshot(tmp_path: Path) -> None:
    """UnifiedLog.rebuildProducerState, after a clean shutdown without any snapshot."""
    path = written(tmp_path / "t-0", {base: at(base) for base in range(4)})
    load_log(str(path), inputs(clean=True)).close()
    assert names(path, ".snapshot") == [name(offset, ".snapshot") for offset in (2, 3, 4)]


def test_an_idle_producer_is_forgotten_unless_its_transaction_is_open(tmp_path: Path) -> None:
    """ProducerStateManager.loadFromSnapshot."""
    def sent(offset: int, producer: int, sequence: int, *, txn: bool = False) -> bytes:
        return offset.to_bytes(8, "big") + batch(
            timestamp=1000, producer=producer, sequence=sequence, is_transactional=txn)[8:]

    path = written(tmp_path / "t-0", {
        0: sent(0, 8, 0), 1: sent(1, 7, 0, txn=True) + sent(2, 7, 1, txn=True)})
    load_log(str(path), replace(inputs(), producer_id_expiration_ms=None)).close()
    for idle, kept in ((999, [7]), (5000, [7, 8])):
        again = load_log(str(path), replace(inputs(clean=True), producer_id_expiration_ms=idle,
                                            clock=lambda: 2500))
        assert sorted(one["producer_id"] for one in again.state()["producers"]) == kept
        again.close()
    (path / name(3, ".snapshot")).unlink()
    again = load_log(str(path), replace(inputs(clean=True), clock=lambda: 2500))
    [found] = [one for one in again.state()["producers"] if one["producer_id"] == 7]
    assert (found["first_data_offset"], found["last_data_offset"]) == (1, 2)
    again.close()


def test_a_recovery_says_what_it_is_about_to_scan(tmp_path: Path) -> None:
    """So that other threads scan ahead."""
    class Noting(SegmentScans):
        expected: list[str] = []

        def expect(self, extents: Iterable[Extent]) -> None:
            self.expected += [Path(one.path).name for one in extents]

    with Noting() as scans:
        load(written(tmp_path / "t-0", {0: at(0), 1: at(1)}), scans=scans)
    assert scans.expected == [name(base, ".log") for base in (0, 1)]


@pytest.mark.parametrize("force", [False, True])
def test_a_flush_moves_the_recovery_point_to_the_end(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    """Twice; only a shutdown syncs a segment without records again."""
    log = load(written(tmp_path / "t-0", {0: at(0), 1: at(1)}))
    log.recovery_point = 0
    flushed: list[tuple[int, int]] = []
    monkeypatch.setattr(log._files, "flush", lambda start, end: flushed.append((start, end)))
    for _ in range(2):
        log.flush(force)
        assert log.recovery_point == log.log_end_offset == 2
    assert flushed == ([(0, 3), (2, 3)] if force else [(0, 2)])


@pytest.mark.parametrize("clean", [True, False])
def test_segments_that_a_swap_replaces_leave_the_table(tmp_path: Path, clean: bool) -> None:
    """Phase one has checked them."""
    path = written(tmp_path / "t-0", {base: at(base) for base in (0, 1, 2, 3, 4)})
    (path / (name(1, ".log") + ".swap")).write_bytes(at(1) + at(3))
    log = load_log(str(path), inputs(clean=clean))
    assert log.segments.base_offsets.tolist() == [0, 1, 4]
    assert [log.segments.get(base).size for base in (0, 1, 4)] == [
        len(at(0)), 2 * len(at(1)), len(at(4))]
    log.close()


def test_an_index_whose_log_is_a_directory_is_no_orphan(tmp_path: Path) -> None:
    """LogLoader.loadSegmentFiles asks whether the log exists, not whether it is a file."""
    path = written(tmp_path / "t-0", {0: at(0), 1: at(1), 2: at(2)})
    (path / name(1, ".log")).unlink()
    (path / name(1, ".log")).mkdir()
    (path / name(1, ".index")).rename(path / name(1, ".index.swap"))
    load(path).close()
    assert names(path, "1.index", "1.timeindex") == [name(1, ".index"), name(1, ".timeindex")]


@pytest.mark.parametrize("ending", [".deleted", ".cleaned", ".swap"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_directory_under_a_temporary_name_of_an_index(tmp_path: Path, suffix: str,
                                                        ending: str) -> None:
    """LogLoader ignores what is no file in every pass, and opens only the index itself."""
    path = written(tmp_path / "t-0", {0: at(0), 1: at(1)})
    (path / (name(0, suffix) + ending)).mkdir()
    load(path).close()
    assert (path / (name(0, suffix) + ending)).is_dir()


def test_an_index_whose_log_is_swapped_in_is_no_orphan(tmp_path: Path) -> None:
    path = written(data_dir(tmp_path / "data") / "t-0", {0: at(0), 5: b""})
    (path / name(5, ".log")).rename(path / name(5, ".log.swap"))
    with seglog.open_data_dir(path.parent, level="full") as data:
        assert codes(data.report).isdisjoint({"orphan-index", "index-missing"})
    load_log(str(path), inputs(clean=True)).close()
    assert name(5, ".index") in names(path, ".index")


@pytest.mark.parametrize("is_missing", [True, False])
def test_transactions_that_a_recovery_does_not_find_leave_a_segment_that_is_split(
        tmp_path: Path, is_missing: bool) -> None:
    """Durably: an offset index that was missing comes after it."""
    path = written(tmp_path / "t-0", {10: at(10) + at(10 + FAR)})
    (path / name(10, ".txnindex")).write_bytes(bytes(34))
    if is_missing:
        (path / name(10, ".index")).unlink()
    with syncs() as synced:
        log = load_log(str(path), inputs(clean=True))
    assert log.segments.base_offsets.tolist() == [10, 10 + FAR]
    assert not (path / name(10, ".txnindex")).read_bytes()
    files = [one.name for one, _ in synced]
    [emptied] = [row for row, file in enumerate(files) if ".txnindex" in file]
    [split] = [row for row, file in enumerate(files) if file == name(10, ".log.cleaned")]
    assert (emptied < split) is is_missing
    log.close()


@pytest.mark.parametrize("more", [0, 1])
def test_a_log_may_be_as_large_as_an_int_tells(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """FileRecords; the segment is opened because its index is missing."""
    path = written(tmp_path / "t-0", {0: at(0)})
    (path / name(0, ".index")).unlink()
    monkeypatch.setattr(log_loader, "_LOG_BYTES_MAX", len(at(0)) - more)
    if more:
        with pytest.raises(LogLoadError, match="larger than the maximum allowed segment size"):
            load(path)
    else:
        load(path).close()


def test_a_load_creates_time_indexes_and_deletes_indexes_without_a_log(tmp_path: Path) -> None:
    """LogSegment.sanityCheck, LogLoader.loadSegmentFiles."""
    path = written(tmp_path / "t-0", {0: at(0), 1: at(1)})
    (path / name(0, ".timeindex")).unlink()
    (path / name(5, ".index")).touch()
    load_log(str(path), inputs(clean=True)).close()
    assert (path / name(0, ".timeindex")).read_bytes() == b""
    assert names(path, ".log", ".index") == sorted(
        name(base, suffix) for base in (0, 1) for suffix in (".log", ".index"))


@pytest.mark.parametrize(("base", "file", "end"), [
    (0, ".timeindex", 2), (1, ".timeindex", 2), (0, ".index", 2), (1, ".index", None),
    (0, ".txnindex", 2), (1, ".txnindex", None)])
def test_where_a_log_ends_is_known_without_a_scan_unless_its_last_segment_needs_one(
        tmp_path: Path, base: int, file: str, end: int | None) -> None:
    """Of segments without this file, or with a wrong one."""
    path = written(data_dir(tmp_path / "data") / "t-0", {0: at(0), 1: at(1)})
    if file == ".txnindex":
        (path / name(base, file)).write_bytes(encode_entries([AbortedTxn(7, -9, -8, -7)]))
    else:
        (path / name(base, file)).unlink()
    with seglog.open_data_dir(path.parent) as data:
        assert [one.log_end_offset for one in data.report.partitions] == [end]


def test_an_index_that_was_used_is_closed_without_half_an_entry(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AbstractIndex.close trims it. Whole ones stay as they are."""
    path = written(tmp_path / "t-0", {base: at(base) for base in range(3)})
    for base in (0, 1):
        (path / name(base, ".index")).write_bytes(bytes(8 + base))
    log, resized = load_log(str(path), inputs(clean=True)), list[str]()
    for base in (0, 1):
        segment = log.segments.get(base)
        segment.open_indexes()
        log.segments.release(segment)
    resize = log.disk.resize

    def noting(file: str, size: int) -> None:
        resized.append(file)
        resize(file, size)

    monkeypatch.setattr(log.disk, "resize", noting)
    log.close()
    assert [file for file in resized if not file.startswith(name(2, ""))] == [name(1, ".index")]
    assert [(path / name(base, ".index")).stat().st_size for base in (0, 1)] == [8, 8]


def test_the_clock_of_a_load_counts_milliseconds() -> None:
    assert abs(wall_clock_ms() - time.time() * 1000) < 60_000


@pytest.mark.parametrize("clean", [True, False])
def test_only_an_unclean_log_is_recovered(tmp_path: Path, clean: bool) -> None:
    """LogLoader.recoverLog reads the batches of no other one."""
    damaged = bytearray(at(1))
    damaged[-1] ^= 1
    path = written(tmp_path / "t-0", {0: at(0) + damaged})
    load_log(str(path), inputs(clean=clean)).close()
    assert (path / name(0, ".log")).stat().st_size == len(at(0)) + clean * len(damaged)


def test_a_segment_at_the_largest_offset_is_not_recovered(tmp_path: Path) -> None:
    """LogLoader.recoverLog asks for those below Long.MAX_VALUE."""
    path = written(tmp_path / "t-0", {0: at(0), OFFSET_MAX: at(1) + b"x"})
    load(path).close()
    assert (path / name(OFFSET_MAX, ".log")).read_bytes() == at(1) + b"x"


def test_a_segment_whose_name_comes_first_is_recovered_without_those_below_it(
        tmp_path: Path) -> None:
    """LogLoader.loadSegmentFiles goes by names: a read of the others would make their missing
    indexes, as files of zeros that nothing rebuilds."""
    path = written(tmp_path / "t-0", {0: b"".join(at(n, size=100) for n in range(3)), 3: b""})
    (path / name(3, ".log")).rename(path / "+3.log")
    for base in (0, 3):
        (path / name(base, ".index")).unlink()
    log = load_log(str(path), inputs(clean=True))
    assert names(path, ".log") == ["+3.log", name(0, ".log"), name(3, ".log")]
    assert [log.segments.get(base).offset_index.entries for base in (0, 3)] == [2, 0]
    log.close()
