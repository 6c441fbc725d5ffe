"""Rounds of cleaning: what stays, when the rest goes, and what a round that fails leaves."""

from __future__ import annotations

import os
import shutil
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner import Cleaner, LogToClean, OffsetMap, cleanable_offsets
from seglog.config import LogConfig
from seglog.errors import IllegalArgumentError, LogCleaningAbortedError, SeglogError
from seglog.log.scheduler import MockScheduler, MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.recovery.index_files import TxnIndexFile
from seglog.storage.producer_state import read_snapshot
from tests.cleaner.support import (
    COLLIDING, NOW, SLOT, append, batch, batches, end_transaction, leftovers, opened, records, roll,
)
from tests.log.test_replace import dies
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record


def clean(log: UnifiedLog, last: int | None = None, **how: Any) -> int:
    return Cleaner(offset_map=OffsetMap(1 << 16), **how).clean(LogToClean.of(log, last))[0]


def three_batches(path: Path, **config: Any) -> UnifiedLog:
    log = opened(path / "t-0", **config)
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", b"2")])
    append(log, [(b"c", None), (b"d", b"1")])
    roll(log)
    return log


def test_the_last_of_each_key_stays(tmp_path: Path) -> None:
    log = three_batches(tmp_path)
    kept = (tmp_path / "t-0/00000000000000000000.log").stat().st_mtime_ns // 1_000_000
    end, stats = Cleaner(offset_map=OffsetMap(1 << 16)).clean(LogToClean.of(log))
    assert end == 5
    assert (stats.map_messages_read, stats.messages_read, stats.messages_written) == (5, 5, 4)
    assert stats.bytes_read > stats.bytes_written > 0
    assert [(one.offset, one.key, one.value) for one in records(log)] == [
        (1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", None), (4, b"d", b"1")]
    log_file = tmp_path / "t-0/00000000000000000000.log"
    assert log_file.stat().st_mtime_ns == kept * 1_000_000
    assert not leftovers(log)
    assert log.read(0, 1 << 20).records == log_file.read_bytes()
    log.close()
    again = opened(tmp_path / "t-0")
    assert [one.offset for one in records(again)] == [1, 2, 3, 4]


def test_transaction_indexes_are_not_read_for_each_segment(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment asks all later ones for transactions that were aborted there."""
    log, reads, read = opened(tmp_path / "t-0", internal_segment_bytes=150), 0, TxnIndexFile.read

    def counted(self: TxnIndexFile) -> Any:
        nonlocal reads
        reads += 1
        return read(self)

    for number in range(50):
        append(log, [(b"key %d" % number, bytes(60))])
        roll(log)
    monkeypatch.setattr(TxnIndexFile, "read", counted)
    assert clean(log) == 50 and len(log.segments) == 51
    assert reads <= 3 * 51


def test_keys_with_one_hash_are_one_key(tmp_path: Path) -> None:
    """As in Kafka, which compares MD5 alone (SkimpyOffsetMap)."""
    first, second = COLLIDING
    assert first != second and md5(first).digest() == md5(second).digest()
    log = opened(tmp_path / "t-0")
    append(log, [(first, b"lost"), (b"other", b"kept"), (second, b"kept")])
    roll(log)
    clean(log)
    assert [(one.key, one.value) for one in records(log)] == [
        (b"other", b"kept"), (second, b"kept")]


def test_tombstones_that_stay_for_ever(tmp_path: Path) -> None:
    """The sum of now and the longest `delete.retention.ms` is no time, and so no horizon."""
    log = opened(tmp_path / "t-0", delete_retention_ms=2**63 - 1)
    append(log, [(b"a", b"1"), (b"b", None), (b"c", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"d", b"1")], producer=7, sequence=0, transactional=True)
    end_transaction(log, 7, commit=True)
    append(log, [(b"d", b"2")])
    roll(log)
    for _ in range(2):
        assert clean(log) == 7
        assert [one.key for one in records(log) if one.value is None] == [b"b", b"a"]
        assert not any(one.has_delete_horizon for one in batches(log))


def test_a_tombstone_goes_at_its_horizon(tmp_path: Path) -> None:
    log, cleaner, end = three_batches(tmp_path), Cleaner(offset_map=OffsetMap(1 << 16)), None
    for now, has_tombstone in ((NOW, True), (NOW + 49_999, True), (NOW + 50_000, False)):
        end, _ = cleaner.do_clean(LogToClean.of(log, end), now)
        assert (3 in [one.offset for one in records(log)]) == has_tombstone
        append(log, [(b"more", b"v")])
        roll(log)
    last = [one for one in batches(log) if one.last_offset == 4][0]
    assert last.has_delete_horizon and last.base_timestamp == NOW + 50_000


def test_a_map_that_is_full_ends_the_round(tmp_path: Path) -> None:
    log, end = three_batches(tmp_path), 0
    cleaner = Cleaner(offset_map=OffsetMap(SLOT), load_factor=1)  # a map of one key
    seen = []
    while end < 5:
        end = cleaner.clean(LogToClean.of(log, end))[0]
        seen.append(end)
    assert seen == [1, 2, 3, 4, 5]  # each round takes one key, inside of a batch if need be
    assert [one.offset for one in records(log)] == [1, 2, 3, 4]


def test_transactions_over_rounds(tmp_path: Path) -> None:
    """Kafka's LogCleanerTest.testMultiPassSegmentCleaningWithAbortedTransactions."""
    log = opened(tmp_path / "t-0")
    sequences = {1: 0, 2: 0}

    def write(producer: int, *keys: int) -> None:
        append(log, [(b"%d" % key, b"v") for key in keys], producer=producer,
               sequence=sequences[producer], transactional=True)
        sequences[producer] += len(keys)

    write(1, 1, 2)
    write(2, 2, 3)
    write(1, 3, 4)
    end_transaction(log, 1, commit=True)
    end_transaction(log, 2, commit=True)
    write(1, 2, 3)
    end_transaction(log, 1, commit=False)
    write(2, 4, 5)
    write(1, 5, 6)
    end_transaction(log, 1, commit=True)
    end_transaction(log, 2, commit=False)
    write(2, 6, 7)
    end_transaction(log, 2, commit=True)
    roll(log)
    index = tmp_path / "t-0/00000000000000000000.txnindex"
    before = index.read_bytes()
    cleaner = Cleaner(offset_map=OffsetMap(4 * SLOT), load_factor=.75)
    assert cleaner.do_clean(LogToClean.of(log), NOW)[0] == 4
    assert [one.base_offset for one in batches(log)] == [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert [one.offset for one in records(log)] == [0, 2, 3, 4, 5, 6, 7, 10, *range(13, 20)]
    assert index.read_bytes() == before
    assert cleaner.do_clean(LogToClean.of(log, 4), NOW)[0] == 14
    assert [one.offset for one in records(log)] == [0, 2, 4, 5, 6, 7, 10, *range(13, 20)]
    assert not index.exists()
    assert cleaner.do_clean(LogToClean.of(log, 14), NOW + 50_000)[0] == 20
    assert [one.base_offset for one in batches(log)] == [0, 2, 4, 6, 7, 13, 15, 17, 19]
    assert [one.offset for one in records(log)] == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]


def test_a_producer_is_known_by_an_empty_batch(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    append(log, [(b"a", b"1")], producer=7, sequence=0)
    append(log, [(b"a", b"2")])
    roll(log)
    clean(log)
    empty = next(batches(log))
    assert (empty.records, empty.producer_id, empty.base_sequence) == ([], 7, 0)
    log.close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    again = opened(tmp_path / "t-0", clean=False)
    found = again.append_as_leader(batch([(b"a", b"1")], producer=7, sequence=0), 0)
    assert (found.first_offset, found.last_offset) == (0, 0)  # a duplicate, known as such
    again.close()
    assert [one.producer_id for one in read_snapshot(
        sorted((tmp_path / "t-0").glob("*.snapshot"))[-1])] == [7]


def test_segments_are_merged(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0")
    for number in range(6):
        append(log, [(b"key %d" % number, b"v")])
        log.roll()
    roll(log)
    assert clean(log) == 6
    assert log.segments.base_offsets.tolist() == [0, 6]
    assert [one.offset for one in records(log)] == list(range(6))


def test_a_batch_that_is_larger_than_the_buffer(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", max_message_bytes=20_000)
    append(log, [(b"a", bytes(15_000))])
    append(log, [(b"b", bytes(100))])
    roll(log)
    log.update_config(log.config)
    assert clean(log, io_buffer_size=64, max_io_buffer_size=100) == 2
    assert [one.offset for one in records(log)] == [0, 1]


def damaged(path: Path) -> UnifiedLog:
    """A log with a second segment that does not parse."""
    log = three_batches(path)
    append(log, [(b"e", b"1")])
    roll(log)
    with (path / "t-0/00000000000000000005.log").open("r+b") as file:
        file.seek(8)
        file.write(b"\0\0\0\x05")
    return log


def test_a_round_that_fails_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = damaged(tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    with pytest.raises(SeglogError) as caught:
        clean(log)
    assert caught.value.kafka_name == "CorruptRecordException"
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == before


def test_a_round_that_is_aborted(tmp_path: Path) -> None:
    """At each of its reads; then it is tried again."""
    log, calls = three_batches(tmp_path), 0

    def check_done(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == stop:
            raise LogCleaningAbortedError("stopped")

    for stop in (1, 2):
        calls = 0
        with pytest.raises(LogCleaningAbortedError, match="stopped"):
            clean(log, check_done=check_done)
        assert len(records(log)) == 5 and not leftovers(log)
    assert clean(log, check_done=check_done) == 5


@pytest.mark.parametrize("how", ["truncate_fully", "start_offset"])
def test_segments_that_go_meanwhile(tmp_path: Path, how: str) -> None:
    """The round ends, and nothing that went comes back."""
    log, reads = three_batches(tmp_path), 0

    def check_done(_: object) -> None:
        nonlocal reads
        reads += 1
        if reads == 2:  # the second pass
            if how == "truncate_fully":
                log.truncate_fully_and_start_at(0)
                append(log, [(b"new", b"1")])
            else:
                log.maybe_increment_log_start_offset(5, StartOffsetReason.CLIENT_RECORD_DELETION)
                log.delete_old_segments()

    with pytest.raises(LogCleaningAbortedError):
        clean(log, check_done=check_done)
    assert not leftovers(log)
    assert [one.key for one in records(log)] == ([b"new"] if how == "truncate_fully" else [])


def test_what_may_be_cleaned(tmp_path: Path) -> None:
    log = three_batches(tmp_path, min_compaction_lag_ms=1000)
    assert cleanable_offsets(log, now_ms=NOW + 999) == (0, 0, False)
    assert cleanable_offsets(log, now_ms=NOW + 1000) == (0, 5, False)
    assert cleanable_offsets(log, 99, NOW + 1000) == (0, 5, True)
    append(log, [(b"x", b"1")], producer=3, sequence=0, transactional=True)
    roll(log)
    assert cleanable_offsets(log, 2, NOW + 1000) == (2, 5, False)
    what = LogToClean(log, 2, 5)
    size = (tmp_path / "t-0/00000000000000000000.log").stat().st_size
    assert (what.clean_bytes, what.cleanable_bytes, what.total_bytes) == (size, size, 2 * size)
    assert (what.first_uncleanable_offset, what.cleanable_ratio) == (5, .5)
    with pytest.raises(IllegalArgumentError, match="Invalid log segment range"):
        Cleaner(offset_map=OffsetMap(SLOT)).clean(LogToClean(log, 6, 5))


def test_a_crash_at_every_step(tmp_path: Path) -> None:
    """Whatever step was the last, the next load has the log as it was, or cleaned."""
    step, seen = 0, []
    while True:
        path = tmp_path / str(step)
        log = opened(path / "t-0")
        for number in range(3):
            append(log, [(b"a", b"%d" % number), (b"b%d" % number, b"1")])
            log.roll()
        roll(log)
        if not dies(log, step, partial(clean, log)):
            break
        end = log.log_end_offset
        log.close_handlers()
        again = opened(path / "t-0", clean=False, recovery_point=end)
        found = [one.offset for one in records(again)]
        assert found in ([0, 1, 2, 3, 4, 5], [1, 3, 4, 5]), step
        assert not leftovers(again) and again.log_end_offset == 6
        seen.append(len(found))
        again.close()
        shutil.rmtree(path)
        step += 1
    assert step > 20 and set(seen) == {4, 6}
    assert sorted(seen, reverse=True) == seen  # from one step on it is cleaned


def test_a_full_disk(tmp_path: Path) -> None:
    """The error says so, and the log is as it was."""
    log = three_batches(tmp_path)
    before = (tmp_path / "t-0/00000000000000000000.log").read_bytes()
    disk: Any = log.disk
    real = disk.create

    def full(name: str, size: int = 0) -> None:
        if name.endswith(".index.cleaned"):
            raise OSError(28, os.strerror(28), name)
        real(name, size)

    disk.create = full
    with pytest.raises(OSError) as caught:
        clean(log)
    assert caught.value.errno == 28
    assert (tmp_path / "t-0/00000000000000000000.log").read_bytes() == before
    assert not leftovers(log)


def test_bad_records_leave_the_log_as_it_was(tmp_path: Path) -> None:
    """Timestamps below -1 and offsets that go backwards, when a batch has to be encoded again."""
    for number, records_ in enumerate((
            [Record(0, -7, b"a", b"1"), Record(1, NOW, b"b", b"1")],
            [Record(1, NOW, b"b", b"1"), Record(0, NOW, b"a", b"1"), Record(2, NOW, b"c", b"1")])):
        path = tmp_path / str(number) / "t-0"
        log = opened(path)
        append(log, [(b"x", b"1"), (b"x", b"1"), (b"x", b"1")])
        append(log, [(b"c" if number else b"b", b"2")])
        roll(log)
        log.close()
        data = (path / "00000000000000000000.log").read_bytes()
        bad = v2.encode(Batch(0, 2, records_, base_timestamp=NOW, max_timestamp=NOW))
        first = 12 + int.from_bytes(data[8:12], "big")
        (path / "00000000000000000000.log").write_bytes(bad + data[first:])
        log = opened(path)
        log.update_high_watermark(log.log_end_offset)
        before = {one.name: one.read_bytes() for one in path.iterdir()}
        with pytest.raises(IllegalArgumentError, match=(
                "Illegal offset 0 following previous offset 1" if number
                else "Invalid negative timestamp -7")):
            clean(log)
        assert {one.name: one.read_bytes() for one in path.iterdir()} == before


class Idle(MockScheduler):
    """Never gets to the flush of a rolled segment."""

    def tick(self) -> None:
        pass


def test_what_replaces_a_record_is_durable_before_it_goes(tmp_path: Path) -> None:
    """The segments of a round are swapped in one group after the other. A power cut in between must
    not find that an old value is gone and that the new one was never synced."""
    clock = MockTime(current_time_ms=NOW)
    log = UnifiedLog.create(
        tmp_path / "t-0", LogConfig.from_properties({"cleanup.policy": "compact",
                                                     "internal.segment.bytes": "120"}),
        scheduler=Idle(clock), time=clock)
    for number in range(4):
        append(log, [(b"a", b"%d" % number), (b"own %d" % number, b"1")])
        roll(log)
    disk: Any = log.disk
    events: list[str] = []
    sync, rename = disk.open_for_sync, disk.rename
    disk.open_for_sync = lambda names: events.extend(found := list(names)) or sync(found)
    disk.rename = lambda name, new_name: events.append(new_name) or rename(name, new_name)
    assert log.recovery_point == 0 and clean(log) == 8
    first_swap = next(at for at, name in enumerate(events) if name.endswith(".swap"))
    assert sum(name.endswith(".log.swap") for name in events) == 4
    assert {f"{base:020d}.log" for base in (0, 2, 4, 6)} <= set(events[:first_swap])
    assert log.recovery_point == 0  # as Kafka leaves it
