"""Transactions through a whole log: verification, listing, late ones, and what survives of open
ones when the log is truncated, closed and opened again, cleanly or not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seglog.config import LogConfig
from seglog.errors import (
    IllegalArgumentError, InvalidProducerEpochError, InvalidTxnStateError, OutOfOrderSequenceError,
)
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.scheduler import MockTime
from seglog.log.readable_log import LastRecord
from seglog.log.unified_log import UnifiedLog
from seglog.log.verification_guard import VerificationGuard
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.waiting import PATIENCE

START_MS = 1_700_000_000_000


class Log:
    """A log, its clock, and what a producer and a coordinator send to it."""

    def __init__(self, path: Path, *, verification: bool = False, segment_bytes: int = 2**20,
                 **how: int | bool) -> None:
        self.time = MockTime(current_time_ms=START_MS)
        self.log = UnifiedLog.create(
            path, LogConfig.from_properties({"internal.segment.bytes": str(segment_bytes)}),
            scheduler=self.time.scheduler, time=self.time, transaction_verification=verification,
            producer_id_expiration_ms=1000, **how)  # type: ignore[arg-type]

    def send(self, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1,
             transactional: bool = True, guard: VerificationGuard | None = None) -> LogAppendInfo:
        now = self.time.milliseconds()
        records = [Record(n, now, b"k", b"v") for n in range(count)]
        batch = Batch(0, count - 1, records, base_timestamp=now, max_timestamp=now,
                      producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                      partition_leader_epoch=-1, is_transactional=transactional)
        return self.log.append_as_leader(v2.encode(batch), 0, verification_guard=guard)

    def end(self, producer_id: int, *, epoch: int = 0, kind: int = v2.ABORT,
            version: int = 0) -> LogAppendInfo:
        batch = v2.marker(0, producer_id, epoch, kind, self.time.milliseconds())
        return self.log.append_as_leader(v2.encode(batch), 0, origin=AppendOrigin.COORDINATOR,
                                         transaction_version=version)

    def replicate(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)

    def committed(self) -> tuple[int, list[tuple[int, int]]]:
        """How many bytes a consumer of committed records gets, and which transactions it drops."""
        found = self.log.read(self.log.log_start_offset, 2**20, "read_committed", True)
        return len(found.records), [(one.producer_id, one.first_offset)
                                    for one in found.aborted_transactions or []]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def test_a_transaction(path: Path) -> None:
    one = Log(path)
    one.send(1, 0, count=3)
    one.send(2, 0)
    one.replicate()
    assert one.log.last_stable_offset == 0 and one.committed() == (0, [])
    assert one.end(1).first_offset == 4
    assert one.log.last_stable_offset == 0, "the marker is not replicated"
    one.replicate()
    assert one.log.last_stable_offset == 3, "the other one is open"
    one.end(2, kind=v2.COMMIT)
    one.replicate()
    assert one.log.last_stable_offset == 6 and one.committed()[1] == [(1, 0)]
    one.log.close()


def test_verification(path: Path) -> None:
    one = Log(path, verification=True)
    with pytest.raises(InvalidTxnStateError, match="not part of an ongoing transaction"):
        one.send(1, 0)
    guard = one.log.maybe_start_transaction_verification(1, 0, 0, True)
    assert one.log.verification_guard(1) == guard
    with pytest.raises(OutOfOrderSequenceError, match="no existing state"):
        one.send(1, 5, guard=guard)
    assert one.send(1, 0, guard=guard).first_offset == 0
    assert one.log.has_ongoing_transaction(1, 0) and not one.log.has_ongoing_transaction(1, 1)
    assert one.log.maybe_start_transaction_verification(1, 1, 0, True) \
        is VerificationGuard.SENTINEL
    assert one.send(1, 1).first_offset == 1
    with pytest.raises(IllegalArgumentError, match="TV_UNKNOWN for origin COORDINATOR"):
        one.end(1, version=-1)
    one.end(1, epoch=1, version=2)
    with pytest.raises(InvalidProducerEpochError, match="is 0, which is smaller than"):
        one.log.maybe_start_transaction_verification(1, 2, 0, True)
    with pytest.raises(InvalidProducerEpochError, match="is 0, which is smaller than"):
        one.send(1, 2)
    # A marker between the question and the answer voids the guard.
    guard = one.log.maybe_start_transaction_verification(1, 0, 1, False)
    one.end(1, epoch=1, version=1)
    with pytest.raises(InvalidTxnStateError):
        one.send(1, 0, epoch=1, guard=guard)
    one.log.close()


def test_listing(path: Path) -> None:
    one = Log(path)
    one.end(3, epoch=7, kind=v2.COMMIT)
    one.send(1, 4, count=2, transactional=False)
    one.send(2, 0)
    assert one.log.active_producers_with_last_sequence() == {1: 5, 2: 0, 3: -1}
    assert one.log.last_records_of_active_producers() == {
        1: LastRecord(2, 0), 2: LastRecord(3, 0), 3: LastRecord(None, 7)}
    assert [(entry.producer_id, entry.current_txn_first_offset)
            for entry in one.log.active_producers()] == [(1, None), (2, 3), (3, None)]
    assert one.log.producer_id_count == 3
    one.time.sleep(1000)
    one.log.remove_expired_producers(one.time.milliseconds())
    assert set(one.log.active_producers_with_last_sequence()) == {2}, "its transaction is open"
    one.log.close()


def test_late_transactions_are_seen_without_the_lock(path: Path) -> None:
    one = Log(path)
    late = START_MS + 900_000 + 300_000
    assert not one.log.has_late_transaction(2**62)
    one.send(1, 0)
    with one.log.lock:
        answers: list[bool] = []
        asking = threading.Thread(target=lambda: answers.extend(
            one.log.has_late_transaction(now) for now in (late, late + 1)))
        asking.start()
        asking.join(120)
    assert answers == [False, True]
    one.log.truncate_to(0)
    assert not one.log.has_late_transaction(2**62)
    one.send(1, 0)
    one.end(1)
    assert not one.log.has_late_transaction(2**62)
    one.log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_survive(path: Path, clean: bool) -> None:
    one = Log(path, segment_bytes=300)
    for number in range(3):
        one.send(1, number)
        one.send(2, number)
    one.end(2)
    one.send(2, 3)
    one.replicate()
    before = one.log.active_producers(), one.log.first_unstable_offset
    if clean:
        one.log.close()
    else:
        one.log.close_handlers()
    again = Log(path, segment_bytes=300, clean_shutdown=clean)
    assert [(entry.producer_id, entry.current_txn_first_offset, entry.last_sequence)
            for entry in again.log.active_producers()] == [(1, 0, 2), (2, 7, 3)]
    assert again.log.first_unstable_offset == before[1] == 0
    assert again.log.has_late_transaction(START_MS + 1_200_001)
    found = again.send(2, 3)
    assert (found.first_offset, found.last_offset) == (7, 7), "it is known again"
    again.end(1)
    again.end(2)
    again.replicate()
    assert again.log.last_stable_offset == 10 and again.log.first_unstable_offset is None
    assert sorted(again.committed()[1]) == [(1, 0), (2, 1)], "of what the first segment holds"
    again.log.close()


def test_a_truncation_takes_back_what_was_ended(path: Path) -> None:
    one = Log(path, segment_bytes=300)
    one.send(1, 0)
    one.send(2, 0)
    one.end(1)
    one.send(1, 1)
    one.replicate()
    one.log.truncate_to(2)
    assert [(entry.producer_id, entry.current_txn_first_offset)
            for entry in one.log.active_producers()] == [(1, 0), (2, 1)]
    one.end(1, kind=v2.COMMIT)
    one.replicate()
    assert one.log.last_stable_offset == 1
    one.log.truncate_fully_and_start_at(50)
    assert one.log.active_producers() == [] and one.log.last_stable_offset == 50
    assert one.log.latest_producer_snapshot_offset is None
    one.log.close()


def test_a_log_that_was_opened_with_a_transaction_and_emptied(path: Path) -> None:
    one = Log(path)
    one.send(1, 0)
    one.log.close()
    again = Log(path)
    again.log.truncate_fully_and_start_at(15)
    again.send(2, 0, transactional=False)
    again.replicate()
    assert again.log.last_stable_offset == 16
    again.log.close()


def test_a_snapshot_on_demand(path: Path) -> None:
    one = Log(path)
    one.send(1, 0)
    assert one.log.latest_producer_snapshot_offset is None
    one.log.take_producer_snapshot()
    assert one.log.latest_producer_snapshot_offset == one.log.oldest_producer_snapshot_offset == 1
    assert one.log.latest_producer_state_end_offset == 1
    assert (path / f"{1:020}.snapshot").stat().st_size == 56
    one.log.close()


def test_a_rebuild_takes_a_segment_as_a_whole(path: Path) -> None:
    """As Kafka's: what a snapshot knew of an epoch that comes back at the segment's end stays."""
    one = Log(path)
    for offset, epoch, sequence in [(0, 0, 0), (1, 1, 0), (2, 0, 0), (3, 0, 1)]:
        if offset == 1:
            one.log.roll()
        batch = Batch(offset, 0, [Record(offset, START_MS)], base_timestamp=START_MS,
                      max_timestamp=START_MS, producer_id=1, producer_epoch=epoch,
                      base_sequence=sequence)
        one.log.append_as_follower(v2.encode(batch), 0)
    assert [entry.first_offset for entry in one.log.active_producers()[0].batches] == [2, 3]
    one.log.truncate_to(3)
    assert [entry.first_offset for entry in one.log.active_producers()[0].batches] == [0, 2]
    one.log.close()


def test_a_follower_that_gets_transactions_of_one_producer_at_once(path: Path) -> None:
    """The index says of the first that nothing was open below the start of the other producer's,
    as in Kafka; readers find the second all the same."""
    leader = Log(path)
    for sequence in (0, 2):
        leader.send(1, sequence, count=2)
        leader.end(1)
    leader.send(2, 0)
    leader.replicate()
    follower = Log(path.with_name("t-1"))
    follower.log.append_as_follower(leader.log.read(0, 2**20, "log_end", True).records, 0)
    follower.replicate()
    assert [(one.first_offset, one.last_offset, one.last_stable_offset)
            for one in follower.log.collect_aborted_transactions(0, 100)] == [(0, 2, 6), (3, 5, 6)]
    assert [one.first_offset for one in follower.log.collect_aborted_transactions(0, 4)] == [0, 3]
    assert follower.committed()[1] == leader.committed()[1] == [(1, 0), (1, 3)]
    leader.log.close()
    follower.log.close()


def test_the_state_of_producers_waits_for_an_append(tmp_path: Path) -> None:
    """An append moves them in memory without the GIL."""
    log, told = Log(tmp_path / "t-0").log, threading.Event()

    def ask() -> None:
        log.state_without_files()
        told.set()

    asking = threading.Thread(target=ask, daemon=True)
    with log.lock:
        asking.start()
        assert not told.wait(.2)
    assert told.wait(PATIENCE)
