"""Followers of a log: nothing is missed, nothing comes twice, and every end is a clean one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog._native.batch import scan
from seglog.config import LogConfig
from seglog.errors import CorruptDataError, OffsetOutOfRangeError
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.storage.isolation import Isolation
from seglog.log.scheduler import MockTime
from seglog.log.following import AsyncSpanTail, RangeTail, SpanTail, TailSpan
from seglog.log.readers import _CUTS_KEPT
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.storage.markers import ControlType
from tests.support.waiting import wait_for

SECONDS = 120.0  # for what takes milliseconds


def batch(count: int = 1, size: int = 50, producer: int | None = None) -> bytes:
    whose = {} if producer is None else {"producer_id": producer, "producer_epoch": 0,
                                         "base_sequence": 0, "is_transactional": True}
    builder = RecordBatchBuilder(**whose)
    for _ in range(count):
        builder.append(1_700_000_000_000, None, bytes(size))
    return builder.build()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[UnifiedLog]:
    clock = MockTime(current_time_ms=1_700_000_000_000)
    config = LogConfig.from_properties({"internal.segment.bytes": "20000", "retention.ms": "-1",
                                        "file.delete.delay.ms": "0"})
    found = UnifiedLog.create(tmp_path / "t-0", config, scheduler=clock.scheduler, time=clock)
    yield found
    if not found.is_closed:
        found.close()


def offsets_of(spans: list[TailSpan]) -> list[int]:
    found: list[int] = []
    for span in spans:
        rows = scan(span.records).batches
        assert len(span.records) == int(rows["size"].sum())  # whole batches, no rest
        assert span.next_offset == int(rows["last_offset"][-1]) + 1
        for first, last in zip(rows["base_offset"].tolist(), rows["last_offset"].tolist(),
                               strict=True):
            found += range(max(first, span.start_offset), last + 1)
    return found


def test_four_readers_follow_one_writer(log: UnifiedLog) -> None:
    """Through many rolls, from different offsets, with limits that cut spans."""
    log.append_as_leader(batch(30), 0)
    count = 600
    found: dict[int, list[TailSpan]] = {n: [] for n in range(4)}
    tails = [SpanTail(log, n * 7, stop_offset=30 + 3 * count, max_bytes=(1, 300, 5000, 10**6)[n],
                      linger=0.001 * n) for n in range(4)]
    threads = [threading.Thread(target=lambda n=n: found[n].extend(tails[n])) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(count):
        log.append_as_leader(batch(3, 200), 0)
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert log.number_of_segments > 10
    for n in range(4):
        assert offsets_of(found[n]) == list(range(n * 7, 30 + 3 * count))
    assert not log.followers.waiting and not log.followers._reading


def test_a_quiet_log_wakes_its_reader_at_once(log: UnifiedLog) -> None:
    tail, came = SpanTail(log, 0), threading.Event()
    found: list[TailSpan] = []

    def follow() -> None:
        for span in tail:
            found.append(span)
            came.set()

    thread = threading.Thread(target=follow)
    thread.start()
    for _ in range(3):
        wait_for(lambda: len(log.followers.waiting) == 1)
        came.clear()
        log.append_as_leader(batch(), 0)
        assert came.wait(SECONDS)
    tail.close()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert offsets_of(found) == [0, 1, 2]


def test_ends(log: UnifiedLog) -> None:
    log.append_as_leader(batch(5), 0)
    assert offsets_of(list(SpanTail(log, 0, timeout=0.0))) == [0, 1, 2, 3, 4]
    assert list(SpanTail(log, 5, timeout=0.05)) == []
    assert list(SpanTail(log, 3, stop_offset=3)) == []
    ended = threading.Thread(target=lambda: list(SpanTail(log, 0)))
    ended.start()
    wait_for(lambda: log.followers.waiting)
    log.close()
    ended.join(SECONDS)
    assert not ended.is_alive()


def test_the_timeout_ends_a_pause(log: UnifiedLog) -> None:
    async def run() -> list[TailSpan]:
        return [span async for span in AsyncSpanTail(log, 0, timeout=0.05, linger=3)]

    log.append_as_leader(batch(5), 0)
    began = time.monotonic()
    assert offsets_of(list(SpanTail(log, 0, timeout=0.05, linger=3))) == [0, 1, 2, 3, 4]
    assert offsets_of(asyncio.run(run())) == [0, 1, 2, 3, 4]
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("is_async", [False, True])
def test_records_of_a_pause_come_together(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        for _ in range(2):
            log.append_as_leader(batch(), 0)

    async def pause_task(seconds: float) -> None:
        pause(seconds)

    async def read() -> list[TailSpan]:
        tail = AsyncSpanTail(log, 0, timeout=1, linger=3)
        return [await anext(tail), await anext(tail)]

    log.append_as_leader(batch(), 0)
    monkeypatch.setattr(asyncio, "sleep", pause_task)
    monkeypatch.setattr(time, "sleep", pause)
    tail = SpanTail(log, 0, timeout=1, linger=3)
    spans = asyncio.run(read()) if is_async else [next(tail), next(tail)]
    assert [offsets_of([span]) for span in spans] == [[0], [1, 2]]
    assert pauses == [pytest.approx(1, abs=.5)]


@pytest.mark.parametrize("start", [-1, 6])
def test_starts_outside_of_the_log(log: UnifiedLog, start: int) -> None:
    log.append_as_leader(batch(5), 0)
    with pytest.raises(OffsetOutOfRangeError, match=f"for offset {start} "):
        SpanTail(log, start)


def test_the_high_watermark_holds_a_reader_back(log: UnifiedLog) -> None:
    for _ in range(3):
        log.append_as_leader(batch(5), 0)
    tail = SpanTail(log, 0, isolation="read_uncommitted", timeout=0.0)
    assert list(tail) == []
    log.update_high_watermark(10)
    assert offsets_of(list(tail)) == list(range(10))
    log.update_high_watermark(13)  # inside of a batch: no further than where that begins
    assert list(tail) == []
    log.update_high_watermark(15)
    assert offsets_of(list(tail)) == list(range(10, 15))


def test_the_high_watermark_wakes_a_reader(log: UnifiedLog) -> None:
    log.append_as_leader(batch(5), 0)
    got: list[TailSpan] = []
    tail = SpanTail(log, 0, isolation="read_uncommitted", stop_offset=5)
    thread = threading.Thread(target=lambda: got.extend(tail), daemon=True)
    thread.start()
    wait_for(lambda: log.followers.waiting)
    log.update_high_watermark(5)
    thread.join(SECONDS)
    assert offsets_of(got) == [0, 1, 2, 3, 4]


def test_committed_readers_wait_for_the_marker(log: UnifiedLog) -> None:
    def raise_watermark() -> None:
        log.update_high_watermark(log.log_end_offset)

    log.append_as_leader(batch(2), 0)
    log.append_as_leader(batch(3, producer=7), 0)
    log.append_as_leader(batch(2), 0)
    raise_watermark()
    tail = SpanTail(log, 0, isolation="read_committed", timeout=0.0)
    assert offsets_of(list(tail)) == [0, 1]
    got: list[TailSpan] = []
    waiting = SpanTail(log, tail.next_offset, isolation="read_committed",
                       stop_offset=8)
    thread = threading.Thread(target=lambda: got.extend(waiting))
    thread.start()
    wait_for(lambda: log.followers.waiting)
    assert not got
    log.append_as_leader(
        end_transaction_marker(7, 0, ControlType.ABORT, timestamp=1_700_000_000_000), 0,
        origin=AppendOrigin.COORDINATOR, transaction_version=0)
    raise_watermark()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert offsets_of(got) == [2, 3, 4, 5, 6, 7]
    aborted = [txn for span in got for txn in span.aborted_transactions or ()]
    assert {(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted} == {(7, 2, 7)}


def test_a_truncation_below_what_was_read_is_told(log: UnifiedLog) -> None:
    for _ in range(10):
        log.append_as_leader(batch(5), 0)
    ahead, behind = SpanTail(log, 0, timeout=0.0), SpanTail(log, 0, timeout=0.0, max_bytes=1)
    assert offsets_of(list(ahead))[-1] == 49
    first = [next(behind), next(behind)]
    log.truncate_to(20)
    for _ in range(10):
        log.append_as_leader(batch(5, 77), 0)  # other records at the same offsets
    log.truncate_to(60)  # the lower one counts
    with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 20"):
        list(ahead)
    rest = list(behind)
    assert offsets_of(first + rest) == list(range(60))
    assert len(scan(rest[-1].records).batches) and len(rest[-1].records) > len(first[0].records)


def test_a_read_that_a_truncation_broke_is_repeated(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(place: object) -> Any:
        monkeypatch.undo()
        log.truncate_to(2)
        raise CorruptDataError("no batch is there any more")

    for _ in range(3):
        log.append_as_leader(batch(), 0)
    tail = SpanTail(log, 0, timeout=0.0)
    monkeypatch.setattr(tail, "_take", torn)
    assert offsets_of(list(tail)) == [0, 1]


def test_old_truncations_end_no_new_reader(log: UnifiedLog) -> None:
    """As many as are remembered, all before its first record was read."""
    for _ in range(300):
        log.append_as_leader(batch(1, 1), 0)
    for _ in range(_CUTS_KEPT):
        log.truncate_to(299)
        log.append_as_leader(batch(1, 1), 0)
    tail = SpanTail(log, 0, timeout=0.0, max_bytes=1)
    first = next(tail)
    log.truncate_to(299)
    assert offsets_of([first, *tail]) == list(range(299))


def test_more_truncations_than_are_remembered(log: UnifiedLog) -> None:
    """One of them may have taken what a reader has seen."""
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    begins, ahead = (SpanTail(log, start, timeout=0.0) for start in (0, 1))
    for _ in range(_CUTS_KEPT + 1):
        log.truncate_to(2)
        log.append_as_leader(batch(), 0)
    assert offsets_of(list(begins)) == [0, 1, 2]
    with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 0"):
        list(ahead)


def test_retention_takes_what_a_reader_has_not_seen(log: UnifiedLog) -> None:
    for _ in range(300):
        log.append_as_leader(batch(1, 200), 0)
    tail = SpanTail(log, 0, timeout=0.0, max_bytes=1)
    next(tail)
    log.update_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(200, StartOffsetReason.CLIENT_RECORD_DELETION)
    assert log.delete_old_segments() > 0
    with pytest.raises(OffsetOutOfRangeError, match="starting from offset: 200"):
        list(tail)


def test_records_that_are_deleted_meanwhile_are_not_read(log: UnifiedLog) -> None:
    """They stay in their segment, which the reader has open."""
    for _ in range(10):
        log.append_as_leader(batch(), 0)
    tail = SpanTail(log, 0, timeout=0.0, max_bytes=1)
    next(tail)
    log.update_high_watermark(10)
    log.maybe_increment_log_start_offset(5, StartOffsetReason.CLIENT_RECORD_DELETION)
    with pytest.raises(OffsetOutOfRangeError, match="starting from offset: 5"):
        list(tail)


def test_deleted_segments_are_read_to_their_end(log: UnifiedLog) -> None:
    """A reader that has a segment open reads on when its files are gone."""
    for _ in range(300):
        log.append_as_leader(batch(1, 200), 0)
    tail = SpanTail(log, 290, timeout=0.0, max_bytes=1)
    found = [next(tail)]
    log.roll()
    for _ in range(5):
        log.append_as_leader(batch(1, 200), 0)
    assert offsets_of(found + list(tail)) == list(range(290, 305))


def test_ranges_are_for_decoders(log: UnifiedLog) -> None:
    for _ in range(300):
        log.append_as_leader(batch(1, 200), 0)
    ranges = list(RangeTail(log, 17, timeout=0.0, stop_offset=250))
    assert len(ranges) > 1
    assert ranges[0].start_offset == 17
    assert {one.end_offset for one in ranges} == {250}
    assert all(one.end == one.segment_end == one.sound_end for one in ranges)


def test_async_readers_follow_a_writer_in_another_thread(log: UnifiedLog) -> None:
    count = 200

    def write() -> None:
        for number in range(count):
            log.append_as_leader(batch(3), 0)
            if number % 20 == 0:
                time.sleep(0.003)

    async def follow(start: int) -> list[TailSpan]:
        async with AsyncSpanTail(log, start, stop_offset=3 * count) as tail:
            return [span async for span in tail]

    async def run() -> list[list[TailSpan]]:
        writer = asyncio.get_running_loop().run_in_executor(None, write)
        found = await asyncio.wait_for(asyncio.gather(follow(0), follow(0)), SECONDS)
        await writer
        return found

    for spans in asyncio.run(run()):
        assert offsets_of(spans) == list(range(3 * count))


def test_async_ends(log: UnifiedLog) -> None:
    async def run() -> None:
        tail = AsyncSpanTail(log, 0, timeout=0.05)
        assert [span async for span in tail] == []
        endless = AsyncSpanTail(log, 0)
        asyncio.get_running_loop().call_later(0.05, endless.close)
        assert [span async for span in endless] == []
        columns = log.follow_async()
        asyncio.get_running_loop().call_later(0.05, columns.close)
        assert [one async for one in columns] == []
        closing = AsyncSpanTail(log, 0)
        asyncio.get_running_loop().call_later(0.05, log.close)
        assert [span async for span in closing] == []

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_an_error_of_an_asynchronous_reader(log: UnifiedLog) -> None:
    async def run() -> None:
        tail = AsyncSpanTail(log, 0)
        await anext(tail)
        log.truncate_to(0)
        with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 0"):
            await anext(tail)

    log.append_as_leader(batch(), 0)
    asyncio.run(asyncio.wait_for(run(), SECONDS))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_reader_without_a_pause_waits_at_once(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    async def read() -> list[TailSpan]:
        return [span async for span in AsyncSpanTail(log, 0, timeout=.05, linger=0)]

    log.append_as_leader(batch(), 0)
    for module in asyncio, time:
        monkeypatch.setattr(module, "sleep", lambda *_: pytest.fail("it pauses"))
    found = asyncio.run(read()) if is_async else list(SpanTail(log, 0, timeout=.05, linger=0))
    assert offsets_of(found) == [0]


def test_a_reader_that_waits_does_not_poll(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    tail, polls = SpanTail(log, 0, timeout=.05), list[bool]()
    monkeypatch.setattr(tail, "_poll", lambda: polls.append(True))
    assert list(tail) == [] and len(polls) < 5
    assert not log.followers.waiting


def test_an_append_just_before_the_wait_ends_it(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """No later append would wake the reader."""
    def append_late(now: float) -> float:
        log.append_as_leader(batch(), 0)
        return 0.0

    tail = SpanTail(log, 0, timeout=5.0)
    monkeypatch.setattr(tail, "_rest", append_late)
    began = time.monotonic()
    assert offsets_of([next(tail)]) == [0]
    assert time.monotonic() - began < 5


def test_readers_of_one_position_have_their_own_bounds(log: UnifiedLog) -> None:
    """They share what is read only as far as the high watermark allows."""
    for _ in range(4):
        log.append_as_leader(batch(), 0)
    log.update_high_watermark(2)
    assert offsets_of(list(SpanTail(log, 1, timeout=0.0))) == [1, 2, 3]
    assert offsets_of(list(SpanTail(log, 1, isolation="read_uncommitted", timeout=0.0))) == [1]


def test_readers_of_one_position_read_once(log: UnifiedLog) -> None:
    log.append_as_leader(batch(), 0)
    one, other = (SpanTail(log, 0, timeout=.05, linger=0) for _ in range(2))
    assert next(one).records is next(other).records
    assert list(one) == [] and not log.followers._recent, "a quiet log keeps no bytes"


def test_a_task_waits_for_a_late_record(log: UnifiedLog) -> None:
    async def run() -> None:
        async with AsyncSpanTail(log, 0, timeout=1) as tail:
            asyncio.get_running_loop().call_later(0.05, log.append_as_leader, batch(2), 0)
            assert offsets_of([await anext(tail)]) == [0, 1]
        log.append_as_leader(batch(), 0)
        assert await anext(tail, None) is None, "its context ended"

    asyncio.run(run())


def test_truncations_under_a_reader(log: UnifiedLog) -> None:
    """A reader sees offsets in order, or is told that there was a truncation; never bytes that do
    not begin and end at batches."""
    done = threading.Event()
    problems: list[BaseException] = []
    followed: list[int] = []

    def follow() -> None:
        while not done.is_set():
            seen: list[TailSpan] = []
            try:
                seen += SpanTail(log, log.log_start_offset, timeout=0.0, max_bytes=2000)
            except OffsetOutOfRangeError:
                pass
            except BaseException as error:
                problems.append(error)
                return
            try:
                offsets = offsets_of(seen)
                assert offsets == list(range(len(offsets)))
                followed.extend(offsets[-1:])
            except BaseException as error:
                problems.append(error)
                return

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(150):
            for _ in range(4):
                log.append_as_leader(batch(2, 100 + number), 0)
            log.truncate_to(log.log_end_offset - 6)
        wait_for(lambda: followed or problems)
    finally:
        done.set()
        for thread in threads:
            thread.join(SECONDS)
    assert not problems, problems
    assert not any(thread.is_alive() for thread in threads)


def test_a_truncation_right_after_the_bound_was_read(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment of the bound is gone, and that of the reader is the last one again."""
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    log.roll()
    log.append_as_leader(batch(), 0)
    upper_bound, asked = log.upper_bound, 0

    def then_truncate(isolation: Isolation) -> Any:
        nonlocal asked
        asked += 1
        assert asked < 100, "the reader asks for ever"
        found = upper_bound(isolation)
        if asked == 1:
            log.truncate_to(2)
        return found

    monkeypatch.setattr(log, "upper_bound", then_truncate)
    found: list[TailSpan] = []
    tail = SpanTail(log, 0, timeout=0.0)
    thread = threading.Thread(target=lambda: found.extend(tail), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive() and offsets_of(found) == [0, 1] and asked > 1
