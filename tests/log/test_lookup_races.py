"""Lookups by time and reads race with everything that takes segments away: no answer is wrong, no
error but the documented ones, and no healthy data directory goes offline."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seglog.config import LogConfig
from seglog.errors import KafkaStorageError, OffsetOutOfRangeError
from seglog.log import offsets_by_timestamp, readers
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.local_log import LocalLog
from seglog.log.log_dir_failures import CLOSED
from seglog.storage.handles import shared_cache
from seglog.storage.isolation import ISOLATIONS
from seglog.log.scheduler import Scheduler
from seglog.log.following import RangeTail, SpanTail, TailSpan
from seglog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.recovery.index_files import TxnIndexFile
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.markers import ControlType
from seglog.storage.paths import FileKind, FileState, file_name
from seglog.storage.stream import DecodeOptions, Plan, RecordBatchStream
from tests.support.effort import IS_QUICK
from tests.support.waiting import PATIENCE, wait_for

NOW = 1_700_000_000_000
SECONDS = 0.5 if IS_QUICK else 1.5
RECORDS = 3


def batch(offset: int, count: int = RECORDS, producer: int | None = None) -> bytes:
    """Records whose timestamps are NOW plus their offsets, and whose values say their offsets."""
    whose = {} if producer is None else {"producer_id": producer, "producer_epoch": 0,
                                         "base_sequence": 0, "is_transactional": True}
    builder = RecordBatchBuilder(**whose)
    for n in range(offset, offset + count):
        builder.append(NOW + n, None, b"%08d" % n)
    return builder.build()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[UnifiedLog]:
    scheduler = Scheduler(1)
    scheduler.startup()
    config = LogConfig.from_properties({
        "internal.segment.bytes": "1000", "index.interval.bytes": "100", "retention.ms": "-1",
        "segment.jitter.ms": "0", "file.delete.delay.ms": "0",
        "message.timestamp.after.max.ms": "9223372036854775807"})
    made = UnifiedLog.create(tmp_path / "data" / "t-0", config, scheduler=scheduler)
    yield made
    scheduler.shutdown()
    made.close_handlers()


def append(log: UnifiedLog) -> None:
    with log.lock:
        log.append_as_leader(batch(log.log_end_offset), 0)
        log.update_high_watermark(log.log_end_offset)


def abort_one(log: UnifiedLog, producer: int = 7) -> None:
    """An aborted transaction in a segment with a successor."""
    log.append_as_leader(batch(0, producer=producer), 0)
    log.append_as_leader(end_transaction_marker(producer, 0, ControlType.ABORT, timestamp=NOW), 0,
                         origin=AppendOrigin.COORDINATOR, transaction_version=0)
    append(log)
    log.roll()
    append(log)


# ---- what takes segments away ------------------------------------------------------------------


def delete_before(log: UnifiedLog) -> None:
    log.maybe_increment_log_start_offset(max(log.high_watermark - 60, 0),
                                         StartOffsetReason.CLIENT_RECORD_DELETION)
    log.delete_old_segments()


def roll(log: UnifiedLog) -> None:
    log.roll()
    delete_before(log)


def truncate(log: UnifiedLog) -> None:
    log.truncate_to(max(log.log_end_offset - 40, log.log_start_offset))


def truncate_fully(log: UnifiedLog) -> None:
    log.truncate_fully_and_start_at(log.log_end_offset)


def rename(log: UnifiedLog) -> None:
    name = os.path.basename(log.path)
    log.rename_dir("t-0" if name != "t-0" else f"t-0.{'0' * 32}-future")
    delete_before(log)


def replace(log: UnifiedLog) -> None:
    """A sealed segment by a copy of itself, as compaction does."""
    with log.lock:
        if log.number_of_segments < 3:
            return
        base = int(log.segments.base_offsets[log.number_of_segments // 2])
        source = os.path.join(log.path, file_name(base, FileKind.LOG))
        shutil.copyfile(source, source + FileState.CLEANED.value)
        made = SegmentFiles(log.disk, base, log.config, FileState.CLEANED)
        log.replace_segments([made], [base])
    delete_before(log)


CHANGES = [delete_before, roll, truncate, truncate_fully, rename, replace]


# ---- lookups -------------------------------------------------------------------------------------


def look_up(log: UnifiedLog) -> None:
    end = log.log_end_offset
    for wanted in (log.log_start_offset, (log.log_start_offset + end) // 2, end - 1):
        found = log.offset_for_timestamp(NOW + wanted)
        if found is not None:
            assert found.timestamp == NOW + found.offset
            assert found.offset >= wanted
    for special in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP):
        found = log.offset_for_timestamp(special)
        if found is not None and special == MAX_TIMESTAMP:
            assert found.timestamp == NOW + found.offset


def fetch(log: UnifiedLog) -> None:
    for isolation in ISOLATIONS:
        try:
            found = log.read(log.log_start_offset, 10_000, isolation)
        except OffsetOutOfRangeError:
            continue
        if found.records:
            assert b"%08d" % found.fetch_offset_metadata.message_offset in found.records


def run_together(log: UnifiedLog, *jobs: Callable[[UnifiedLog], None],
                 seconds: float = SECONDS) -> None:
    """Repeats each job in a thread of its own; the first error of any ends all."""
    errors: list[BaseException] = []
    until = time.monotonic() + seconds

    def run(job: Callable[[UnifiedLog], None]) -> None:
        try:
            job(log)  # once, however late the thread begins
            while time.monotonic() < until and not errors:
                job(log)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
    assert not log.context.failures.failed


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_lookups_while_segments_go(log: UnifiedLog, change: Callable[[UnifiedLog], None]) -> None:
    for _ in range(100):
        append(log)
    run_together(log, look_up, look_up, fetch, change, append)
    log.close()


@pytest.mark.parametrize("end", ["close", "close_handlers", "delete"])
def test_lookups_while_the_log_ends(log: UnifiedLog, end: str) -> None:
    """Lookups then say that the log is closed, and nothing else."""
    for _ in range(100):
        append(log)
    ended = threading.Event()

    def until_closed(job: Callable[[UnifiedLog], None]) -> Callable[[UnifiedLog], None]:
        def run(log: UnifiedLog) -> None:
            try:
                job(log)
            except KafkaStorageError as error:
                assert error.code == CLOSED
                assert ended.wait(PATIENCE)

        return run

    def end_it(log: UnifiedLog) -> None:
        time.sleep(.2)
        if not ended.is_set():
            ended.set()
            getattr(log, end)()

    run_together(log, until_closed(look_up), until_closed(look_up), until_closed(fetch), end_it,
                 seconds=.5)
    with pytest.raises(KafkaStorageError) as caught:
        log.offset_for_timestamp(NOW)
    assert caught.value.code == CLOSED


# ---- one at a time -------------------------------------------------------------------------------


def test_the_directory_of_a_deleted_log_while_a_task_deletes_segments(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """`delete-file` may take a file away that the delete of the log has just listed."""
    for _ in range(50):
        append(log)
    remove, raced = os.unlink, []

    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        if not raced and str(path).endswith("leader-epoch-checkpoint"):
            raced.append(path)
            remove(path, dir_fd=dir_fd)  # by the other thread
        remove(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    log.delete()
    assert raced and not os.path.exists(log.path)
    assert not log.context.failures.failed


def test_committed_readers_know_of_transactions_of_retired_segments(log: UnifiedLog) -> None:
    """A segment that goes takes its transaction index along: a follower that has it open never
    takes aborted records for committed ones."""
    abort_one(log)
    tail = RangeTail(log, 0, isolation="read_committed", timeout=0.0)
    base, segment = 0, log.readers.segment(log.readers.view(), 0)
    assert segment.base_offset == base
    log.maybe_increment_log_start_offset(log.high_watermark - 1,
                                         StartOffsetReason.SEGMENT_DELETION)
    assert log.delete_old_segments() == 1
    with pytest.raises(OffsetOutOfRangeError):
        next(tail)


@pytest.mark.parametrize("tail_of", [RangeTail, SpanTail])
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "only-remote-now"])
def test_committed_readers_of_segments_that_go_while_they_are_read(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, tail_of: type[RangeTail | SpanTail],
        is_deleted: bool) -> None:
    """The log was moved to another directory and deleted here, or retention left the segment to
    remote storage: then the log's start stays."""
    abort_one(log)
    tail = tail_of(log, 0, isolation="read_committed", timeout=0.0)
    find = tail._next_place

    def find_and_lose() -> object:
        place = find()
        if is_deleted:
            log.delete()
        else:
            with log.lock:
                log._local.remove_segments([0], lambda _: None)
        return place

    monkeypatch.setattr(tail, "_next_place", find_and_lose)
    with pytest.raises(StopIteration if is_deleted else OffsetOutOfRangeError):
        next(tail)


@pytest.mark.parametrize("ask", [lambda log: log.read(0, 100),
                                 lambda log: log.read(0, 100, "read_committed"),
                                 lambda log: log.collect_aborted_transactions(0, 100)],
                         ids=["read", "read_committed", "transactions"])
def test_readers_wait_for_a_deletion_that_took_the_segments_away(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch,
        ask: Callable[[UnifiedLog], object]) -> None:
    """They say that the log is closed, not that it has no such offset or no transactions."""
    abort_one(log)
    delete, goes_on, removed = os.unlink, threading.Event(), threading.Event()

    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        removed.set()
        assert goes_on.wait(PATIENCE)
        delete(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    deleting = threading.Thread(target=log.delete)
    deleting.start()
    assert removed.wait(PATIENCE) and not log.is_closed
    threading.Timer(.2, goes_on.set).start()
    with pytest.raises(KafkaStorageError) as caught:
        ask(log)
    assert caught.value.code == CLOSED
    deleting.join(PATIENCE)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOENT])
def test_transactions_that_cannot_be_read(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(index: TxnIndexFile) -> None:
        raise KafkaStorageError(number, os.strerror(number), index.name)

    abort_one(log)
    monkeypatch.setattr(TxnIndexFile, "read", fail)
    for ask in log.collect_aborted_transactions, partial(log.read, isolation="read_committed"):
        with pytest.raises(KafkaStorageError) as caught:
            ask(0, 100)
        assert caught.value.errno == number


@pytest.mark.parametrize("error", [None, KafkaStorageError(errno.ENOENT, "No such file", "x")])
def test_transactions_of_a_segment_that_goes_while_they_are_read(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """No answer has those of later segments alone."""
    abort_one(log)
    abort_one(log, 8)
    assert [one.first_offset for one in log.collect_aborted_transactions(0, 100)] == [0, 10]
    log.readers.close()
    log.readers.segment(log.readers.view(), 0)
    read = TxnIndexFile.read

    def late(index: TxnIndexFile) -> Any:
        monkeypatch.undo()
        log.maybe_increment_log_start_offset(10, StartOffsetReason.SEGMENT_DELETION)
        assert log.delete_old_segments() == 1
        if error is not None:
            raise error
        return read(index)

    monkeypatch.setattr(TxnIndexFile, "read", late)
    assert log.collect_aborted_transactions(0, 100) == []


@pytest.mark.parametrize("change", [None, rename, replace])
def test_transactions_of_a_segment_that_had_none(
        log: UnifiedLog, change: Callable[[UnifiedLog], None] | None) -> None:
    """It is written to again after a truncation."""
    for _ in range(3):
        append(log)
        log.roll()
    assert log.collect_aborted_transactions(0, 3) == []
    if change is not None:
        change(log)
        assert log.collect_aborted_transactions(0, 3) == []
    log.truncate_to(2)
    abort_one(log)
    assert [one.producer_id for one in log.collect_aborted_transactions(0, 4)] == [7]


def test_a_stream_decodes_what_was_open(log: UnifiedLog) -> None:
    """The file of a range may have another name, or none, when its records are decoded."""
    for _ in range(20):
        append(log)
    tail = RangeTail(log, 0, timeout=0.0, stop_offset=log.log_end_offset)
    plan = Plan(iter([next(tail)]), tail.opened, tail.check_unchanged)
    stream = RecordBatchStream(lambda: plan, DecodeOptions(("offset",), batch_rows=1))
    found = next(stream).to_pylists()["offset"]
    delete_before(log)
    log.rename_dir(f"t-0.{'0' * 32}-future")
    for columns in stream:
        found += columns.to_pylists()["offset"]
    assert found == list(range(len(found))) and len(found) > 3


def test_a_stream_says_that_its_records_were_truncated(log: UnifiedLog) -> None:
    for _ in range(4):
        append(log)
    tail = RangeTail(log, 0, timeout=0.0, stop_offset=log.log_end_offset)
    plan = Plan(tail, tail.opened, tail.check_unchanged)
    stream = RecordBatchStream(lambda: plan, DecodeOptions(("offset",), batch_rows=1))
    next(stream)
    log.truncate_to(3)
    with pytest.raises(OffsetOutOfRangeError, match="was truncated to offset 3"):
        for _ in range(20):
            next(stream)


def test_a_stream_says_so_also_if_their_bytes_are_gone(log: UnifiedLog) -> None:
    append(log)
    tail = RangeTail(log, 0, timeout=0.0, stop_offset=log.log_end_offset)
    plan = Plan(iter([next(tail)]), tail.opened, tail.check_unchanged)
    stream = RecordBatchStream(lambda: plan, DecodeOptions())
    log.truncate_to(0)
    with pytest.raises(OffsetOutOfRangeError, match="was truncated to offset 0"):
        next(stream)


def test_a_follower_of_a_deleted_log_ends(log: UnifiedLog) -> None:
    for _ in range(20):
        append(log)
    tail = SpanTail(log, 0, timeout=3600.0, max_bytes=1)
    next(tail)
    log.delete()
    found: list[TailSpan] = []
    ending = threading.Thread(target=lambda: found.extend(tail), daemon=True)
    ending.start()
    ending.join(PATIENCE)
    assert not ending.is_alive() and len(found) < 20


@pytest.mark.parametrize("end", [UnifiedLog.close, UnifiedLog.close_handlers, UnifiedLog.delete])
def test_a_follower_that_waits_ends_with_its_log(log: UnifiedLog,
                                                 end: Callable[[UnifiedLog], None]) -> None:
    append(log)
    tail = SpanTail(log, log.log_end_offset, timeout=3600.0)
    waiting = threading.Thread(target=lambda: list(tail), daemon=True)
    waiting.start()
    wait_for(lambda: bool(log.followers.waiting))
    end(log)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_too_many_open_files_in_a_read_are_no_failed_disk(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        append(log)
    def refuse(*_: object, **__: object) -> None:
        raise KafkaStorageError(errno.EMFILE, "Too many open files", "x")

    with monkeypatch.context() as patched:
        patched.setattr(readers, "SegmentReader", refuse)
        log.readers.close()
        for read in (lambda: log.read(0, 100), lambda: log.offset_for_timestamp(NOW)):
            with pytest.raises(KafkaStorageError) as caught:
                read()
            assert caught.value.errno == errno.EMFILE
    assert not log.context.failures.failed
    assert log.read(0, 100).records


def test_an_open_without_free_descriptors_closes_the_files_of_all_logs(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """And tries again."""
    for _ in range(100):
        append(log)
    assert log.read(log.log_start_offset, 100).records
    held, real, cache = [], readers.SegmentReader, shared_cache()
    with cache.pin((cache.new_owner(), os.devnull), open):
        pass
    file = Path(log.path, f"{int(log.segments.base_offsets[0]):020d}")

    def refuse_once(*given: Any, **options: Any) -> Any:
        held.append((len(readers._shared._ring), len(cache)))
        if len(held) == 1:
            raise KafkaStorageError(errno.EMFILE, "Too many open files", "x")
        return real(*given, **options)

    monkeypatch.setattr(readers, "SegmentReader", refuse_once)
    readers._open_reader(f"{file}.log", f"{file}.index", int(file.name), 0)
    assert min(held[0]) > 0 and held[1:] == [(0, 0)]


def test_no_lookup_writes_down_what_it_knows_of_a_closed_log(log: UnifiedLog) -> None:
    """Tasks of a closed log do not touch files that belong to another log now."""
    append(log)
    log.assign_epoch_start_offset(3, log.log_end_offset)
    path = Path(log.path) / "leader-epoch-checkpoint"
    with log.lock:
        log.truncate_to(log.log_end_offset)  # forgets the epoch, and writes it down later
        log.close()
        path.write_text("0\n0\n")
    time.sleep(.2)
    assert path.read_text() == "0\n0\n"


@pytest.mark.parametrize(("timestamp", "offset"), [(NOW + 120, 120), (MAX_TIMESTAMP, 149)])
def test_a_lookup_by_time_passes_over_segments_that_went(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, timestamp: int, offset: int) -> None:
    """Retention takes them after the lookup chose the segments that it looks into."""
    while log.log_end_offset < 150:
        append(log)
    files, went = offsets_by_timestamp._files, list[int]()

    def late(local: LocalLog, base: int) -> Any:
        if not went:
            delete_before(log)
        went.append(base)
        return files(local, base)

    monkeypatch.setattr(offsets_by_timestamp, "_files", late)
    found = log.offset_for_timestamp(timestamp)
    assert found is not None and found.offset == offset
    assert went[0] == 0 and log.log_start_offset > 0 and len(went) > 2
