"""Reads in several steps, and what may happen between two of them."""

from __future__ import annotations

import errno
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from seglog._native.fetch import FetchDataInfo, LogOffsetMetadata
from seglog.errors import CorruptDataError, KafkaStorageError, SeglogError
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.following import RangeTail, SpanTail
from seglog.log.local_reads import LocalReads
from seglog.log.unified_log import UnifiedLog
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.isolation import Isolation
from seglog.storage.markers import ControlType
from seglog.storage.paths import FileKind, FileState, file_name
from seglog.storage.stream import DecodeOptions, Plan, RecordBatchStream
from tests.log.test_lookup_races import NOW, abort_one, log
from tests.support.held import open_files
from tests.support.waiting import PATIENCE

__all__ = ["log"]


def append(log: UnifiedLog, count: int = 1, **header: int) -> None:
    for _ in range(count):
        builder = RecordBatchBuilder(**header)  # type: ignore[arg-type]
        builder.append(NOW, None, b"%08d" % log.log_end_offset)
        log.append_as_leader(builder.build(), 0)
    log.update_high_watermark(log.log_end_offset)


def compact(log: UnifiedLog, first: int, second: int) -> None:
    """Merges two sealed segments, of whose first one only the last record is left."""
    sources = [Path(log.path) / file_name(base, FileKind.LOG) for base in (first, second)]
    content = sources[0].read_bytes()
    kept = content[-len(content) // (second - first):]
    with log.lock:
        Path(str(sources[0]) + FileState.CLEANED.value).write_bytes(kept + sources[1].read_bytes())
        log.replace_segments([SegmentFiles(log.disk, first, log.config, FileState.CLEANED)],
                             [first, second])


def test_a_stream_decodes_ranges_of_segments_that_were_compacted(log: UnifiedLog) -> None:
    """The merged segment has the name of its first one, which a thread may not have decoded when
    another one plans the next range."""
    append(log, 60)
    bases = log.segments.base_offsets.tolist()
    assert len(bases) > 3
    tail = RangeTail(log, 0, timeout=0.0, stop_offset=log.log_end_offset, ranges_kept=2)
    ranges = [next(tail)]
    assert tail.next_offset == bases[1]
    compact(log, bases[0], bases[1])
    ranges.append(next(tail))
    assert ranges[0].file == ranges[1].file
    plan = Plan(iter(ranges), tail.opened, tail.check_unchanged)
    stream = RecordBatchStream(lambda: plan, DecodeOptions(("offset",)))
    assert [offset for columns in stream for offset in columns.to_pylists()["offset"]] \
        == list(range(bases[2]))


@pytest.mark.parametrize("isolation", ["log_end", "read_uncommitted", "read_committed"])
def test_a_fetch_skips_nothing_that_follows_a_truncation(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, isolation: Isolation) -> None:
    append(log, 20)
    bound_of = log.upper_bound

    def bound_before(isolation: Isolation) -> LogOffsetMetadata:
        found = bound_of(isolation)
        monkeypatch.setattr(log, "upper_bound", bound_of)
        log.truncate_to(12)
        return found

    monkeypatch.setattr(log, "upper_bound", bound_before)
    assert log.fetch(12, 1000, isolation).next_offset == 12


def test_a_read_after_a_truncation_that_its_bound_does_not_know(log: UnifiedLog) -> None:
    """It would end inside of a batch."""
    append(log, 2)
    segment = log.readers.segment(log.readers.view(), 0)

    class Late:
        def fetch(self, *given: int) -> FetchDataInfo | None:
            log.truncate_to(1)
            builder = RecordBatchBuilder()
            builder.append(NOW, None, bytes(200))
            log.append_as_leader(builder.build(), 0)
            return reader.fetch(*given)

    reader, segment.reader = segment.reader, Late()  # type: ignore[assignment]
    found = log.read(0, 1000)
    assert found.records == Path(reader.path).read_bytes() and len(found.records) > 300


def test_a_read_that_a_truncation_follows_begins_anew(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other records have its offsets by then, in the same segment."""
    append(log, 2)
    size, read = log.size, LocalReads.read_up_to

    def read_and_truncate(*given: Any) -> FetchDataInfo:
        found = read(*given)
        monkeypatch.undo()
        log.truncate_to(0)
        append(log, 3, partition_leader_epoch=1)
        return found

    monkeypatch.setattr(LocalReads, "read_up_to", read_and_truncate)
    found = log.read(0, 1000, "read_committed").records
    assert len(found) == log.size > size


def test_a_tail_keeps_few_files_open(log: UnifiedLog) -> None:
    append(log, 60)
    tail = RangeTail(log, 0, timeout=0.0, ranges_kept=2)
    assert len(list(tail)) > 3
    log.close()
    assert sum(path.endswith(".log") for path in open_files(log.path)) == 2


def test_a_read_waits_for_the_end_of_a_change(log: UnifiedLog) -> None:
    append(log)
    found: list[FetchDataInfo] = []
    reader = threading.Thread(target=lambda: found.append(log.read(0, 1)))
    before = log.readers.segment(log.readers.view(), 0)
    with log.lock, log.readers.changing():
        held = log.readers.segment(log.readers.view(), 0)  # the change itself reads
        assert held is not before
        reader.start()
        reader.join(.1)
        assert not found
    reader.join(PATIENCE)
    assert found[0].records
    assert log.readers.segment(log.readers.view(), 0) is not held, "its size may be another"


def test_a_log_that_is_closed_during_a_lookup_is_searched_no_more(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files may be another process's then."""
    append(log)
    largest = SegmentFiles.largest_timestamp

    def then_close(files: SegmentFiles) -> int:
        monkeypatch.undo()
        log.close()
        return largest(files)

    monkeypatch.setattr(SegmentFiles, "largest_timestamp", then_close)
    with pytest.raises(KafkaStorageError, match="is closed"):
        log.offset_for_timestamp(NOW)


def test_a_stream_waits_for_no_records(log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a truncation took before they were read do not come again."""
    while log.number_of_segments < 3:
        append(log)
    second = int(log.segments.base_offsets[1])
    stream = log.to_arrow(columns=("offset",))
    monkeypatch.setattr(RangeTail, "_wait", lambda *_: pytest.fail("it waits"))
    found = next(stream).to_pylists()["offset"]
    log.truncate_to(second)
    assert found == list(range(second)) and list(stream) == []


def test_a_fetch_that_begins_within_a_truncation_skips_nothing(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, 20)
    bound_of, change = log.upper_bound, log.readers.changing(12)

    def bound_before(isolation: Isolation) -> LogOffsetMetadata:
        found = bound_of(isolation)
        monkeypatch.undo()
        log._local.truncate_to(12, lambda _: None)
        change.__exit__(None, None, None)
        return found

    monkeypatch.setattr(log, "upper_bound", bound_before)
    with log.lock:
        change.__enter__()
        assert log.fetch(12, 1000, "log_end").next_offset == 12


def test_a_tail_that_begins_with_the_marker_of_a_transaction(log: UnifiedLog) -> None:
    """As a fetch there (TransactionIndex.collectAbortedTxns)."""
    abort_one(log)
    [ended] = log.collect_aborted_transactions(0, 100)
    tail = SpanTail(log, ended.last_offset, isolation="read_committed", timeout=0.0)
    assert next(tail).aborted_transactions == [ended]


@pytest.mark.parametrize("is_open", [True, False])
def test_the_transactions_of_a_closed_log(log: UnifiedLog, is_open: bool) -> None:
    abort_one(log)
    log.close()
    if is_open:
        log.readers.segment(log.readers.view(), 0)
    assert [one.producer_id for one in log.collect_aborted_transactions(0, 100)] == [7]


@pytest.mark.parametrize("tail_of", [RangeTail, SpanTail])
@pytest.mark.parametrize("is_open", [True, False])
def test_the_transactions_of_a_closed_log_whose_segments_another_one_deleted(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, tail_of: type[RangeTail | SpanTail],
        is_open: bool) -> None:
    """A follower reads on from files that it has open, but their transaction indexes are gone."""
    append(log, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(end_transaction_marker(7, 0, ControlType.ABORT, timestamp=NOW), 0,
                         origin=AppendOrigin.COORDINATOR, transaction_version=0)
    append(log)
    log.roll()
    append(log)
    tail = tail_of(log, 0, isolation="read_committed", timeout=0.0)
    find = tail._next_place

    def find_and_close() -> object:
        place = find()
        log.close()
        if is_open:  # in the view of the closed log
            log.readers.segment(log.readers.view(), 0)
        for kind in FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX:
            (Path(log.path) / file_name(0, kind)).unlink()
        return place

    monkeypatch.setattr(tail, "_next_place", find_and_close)
    with pytest.raises(StopIteration):
        next(tail)


@pytest.mark.parametrize(("ends_with_log", "closes", "error", "ends"), [
    (True, True, KafkaStorageError(errno.ENOENT, "No such file"), True),
    (False, True, KafkaStorageError(errno.ENOENT, "No such file"), False),
    (True, False, KafkaStorageError(errno.EIO, "Input/output error"), False),
    (True, True, CorruptDataError("no batch"), False)])
def test_a_follower_ends_at_what_its_closed_log_cannot_read(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, ends_with_log: bool, closes: bool,
        error: SeglogError, ends: bool) -> None:
    def fail(place: object) -> None:
        if closes:
            log.close()
        raise error

    append(log)
    tail = RangeTail(log, 0, timeout=0.0, ends_with_log=ends_with_log)
    monkeypatch.setattr(tail, "_take", fail)
    with nullcontext() if ends else pytest.raises(type(error)):
        assert list(tail) == []


def test_what_a_change_overlapped_is_read_again(log: UnifiedLog) -> None:
    results, verdicts = iter((1, 2, 3)), iter((False, True))
    assert log.readers.read_steadily(lambda _: next(results), lambda *_: next(verdicts)) == 2


def test_spans_end_at_multiples_of_their_size_where_batches_do(log: UnifiedLog) -> None:
    """Readers that began elsewhere read the same spans from then on."""
    append(log, 60)
    size = log.size // 60
    for start in (0, 3):
        found = list(SpanTail(log, start, timeout=0.0, stop_offset=8, max_bytes=4 * size))
        assert [(one.next_offset, len(one.records)) for one in found] == [
            (4, (4 - start) * size), (8, 4 * size)]


def test_nothing_is_kept_for_readers_while_all_of_them_wait(log: UnifiedLog) -> None:
    append(log)
    tail = SpanTail(log, 0, timeout=0.0)
    next(tail)
    assert log.followers._recent
    with tail._registered(lambda: None) as must_wait:
        assert must_wait and not log.followers._recent
