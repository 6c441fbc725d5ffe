"""The producers of a writable log: Hypothesis against the slow rules, and the cases of a user of
the state. tests/kafka/test_producers_in_kafka.py compares them with Kafka's."""

from __future__ import annotations

import os
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seglog._native.batch import scan
from seglog.errors import (
    CorruptDataError, IllegalArgumentError, InvalidProducerEpochError, InvalidTxnStateError,
    OutOfOrderSequenceError, SeglogError, TransactionCoordinatorFencedError, UncheckedError,
)
from seglog.log.append_info import AppendOrigin
from seglog.log.producer_state_manager import (
    LATE_TRANSACTION_BUFFER_MS, ProducerAnalysis, ProducerStateManager, ProducerStateManagerConfig,
)
from seglog.log.verification_guard import VerificationGuard
from seglog.model import AbortedTxn, CompletedTxn, TopicPartition
from seglog.recovery.disk import RealDisk
from seglog.recovery.snapshot_files import SnapshotNames, Snapshots
from seglog.storage.paths import snapshot_name
from tests.log.test_fast_path import batch, open_log
from tests.oracle import batch as v2
from tests.oracle.batch import Batch
from tests.oracle.producers import Refused, SlowAppends
from tests.support.effort import examples

CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
EXPIRATION_MS = 1000


def manager_in(path: Path | str, *, verification: bool = False) -> ProducerStateManager:
    snapshots = Snapshots(RealDisk(os.fspath(path)), SnapshotNames(), SnapshotNames(),
                          lambda finding: None)
    snapshots.adopt()
    return ProducerStateManager(
        TopicPartition("t", 0), snapshots,
        ProducerStateManagerConfig(EXPIRATION_MS, verification), lambda: 0)


def data(offset: int, producer_id: int = 1, epoch: int = 0, sequence: int = 0, *, count: int = 1,
         transactional: bool = False, timestamp: int = 7) -> Batch:
    return Batch(offset, count - 1, [], base_timestamp=timestamp, max_timestamp=timestamp,
                 producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                 is_transactional=transactional)


def marker(offset: int, producer_id: int = 1, epoch: int = 0, kind: int = v2.ABORT,
           **how: Any) -> Batch:
    return v2.marker(offset, producer_id, epoch, kind, 9, **how)


def analyze(manager: ProducerStateManager, *batches: Batch, origin: AppendOrigin = CLIENT,
            version: int = 0, guard: VerificationGuard | None = None,
            position: int = 0) -> ProducerAnalysis:
    records = b"".join(map(v2.encode, batches))
    return manager.analyze(scan(records).batches, records, origin=origin, segment_base_offset=0,
                           position=position, transaction_version=version,
                           verification_guard=guard)


def append(manager: ProducerStateManager, *batches: Batch, **how: Any) -> list[AbortedTxn]:
    """As a log does it; the transactions that ended."""
    analysis = analyze(manager, *batches, **how)
    assert analysis.duplicate is None
    manager.update(analysis)
    ended = []
    for txn in analysis.completed_txns:
        ended.append(txn.to_aborted(manager.last_stable_offset(txn)))
        manager.complete_txn(txn)
    manager.update_map_end_offset(batches[-1].last_offset + 1)
    return ended


# ---- against the slow rules --------------------------------------------------------------------

ids = st.integers(0, 2)
epochs = st.integers(0, 3) | st.just(32767)
sequences = st.integers(0, 8) | st.sampled_from([v2.MAX_SEQUENCE, v2.MAX_SEQUENCE - 1])


@dataclass
class Verify:
    producer_id: int
    sequence: int
    epoch: int
    bump: bool


@dataclass
class Append:
    origin: str
    version: int
    use_guard: bool
    batches: list[tuple[Any, ...]]


batches = st.tuples(st.just("data"), ids, epochs, sequences, st.integers(1, 3), st.booleans()) \
    | st.tuples(st.just("marker"), ids, epochs, st.integers(0, 1), st.integers(0, 2)) \
    | st.tuples(st.just("empty"), ids, epochs)
operations = st.builds(Verify, ids, sequences, epochs, st.booleans()) | st.builds(
    Append, st.sampled_from(["CLIENT", "CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER"]),
    st.sampled_from([0, 1, 2, -1]), st.booleans(), st.lists(batches, min_size=1, max_size=4))


def made(offset: int, drawn: tuple[Any, ...]) -> Batch:
    kind, producer_id, epoch, *rest = drawn
    if kind == "data":
        sequence, count, transactional = rest
        return data(offset, producer_id, epoch, sequence, count=count, transactional=transactional)
    batch = marker(offset, producer_id, epoch, rest[0] if rest else 0,
                   coordinator_epoch=rest[1] if rest else 0)
    if kind == "empty":
        batch.records = []
    return batch


class Pair:
    """The native state and the slow one."""

    def __init__(self, path: Path, verification: bool) -> None:
        self.fast = manager_in(path, verification=verification)
        self.slow = SlowAppends(verification)
        self.offset = 0
        self.guards: dict[int, tuple[VerificationGuard, int]] = {}

    def verify(self, op: Verify) -> None:
        number = len(self.guards) + 1
        try:
            slow: int | str = self.slow.verify(op.producer_id, number, op.sequence, op.epoch,
                                               op.bump)
        except Refused as refused:
            slow = refused.args[0]
        try:
            guard = self.fast.maybe_start_transaction_verification(
                op.producer_id, op.sequence, op.epoch, op.bump)
        except InvalidProducerEpochError:
            assert slow == "InvalidProducerEpoch"
            return
        assert isinstance(slow, int) and (slow == 0) is (guard is VerificationGuard.SENTINEL)
        if slow:
            known = self.guards.setdefault(slow, (guard, op.producer_id))
            assert known == (guard, op.producer_id), "one entry has one guard"

    def append(self, op: Append) -> None:
        made_batches = []
        for drawn in op.batches:
            made_batches.append(made(self.offset, drawn))
            self.offset = made_batches[-1].last_offset + 1
        number, guard = next(((number, guard) for number, (guard, one) in reversed(
            self.guards.items()) if one == op.batches[0][1]), (0, None))
        if not op.use_guard:
            number, guard = 0, None
        try:
            slow: Any = self.slow.append(made_batches, op.origin, op.version, number)
        except Refused as refused:
            slow = refused
        try:
            analysis = analyze(self.fast, *made_batches, origin=AppendOrigin[op.origin],
                               version=op.version, guard=guard)
        except SeglogError as error:
            assert isinstance(slow, Refused), f"only seglog refuses: {error}"
            assert error.kafka_name == slow.args[0] + "Exception"
            assert slow.args[1] is None or str(slow.args[1]) in str(error)
            return
        assert not isinstance(slow, Refused), f"seglog takes what is {slow}"
        if analysis.duplicate is not None:
            assert slow == (analysis.duplicate.first_offset, analysis.duplicate.last_offset)
            return
        self.fast.update(analysis)
        ended = []
        for txn in analysis.completed_txns:
            ended.append(txn.to_aborted(self.fast.last_stable_offset(txn)))
            self.fast.complete_txn(txn)
        assert ended == slow

    def check(self) -> None:
        assert list(self.fast.active_producers.values()) == self.slow.entries
        unstable = self.fast.first_unstable_offset
        assert (None if unstable is None else unstable.message_offset) \
            == self.slow.first_unstable_offset
        assert {one for one in range(3) if self.fast.verification_state_entry(one)} \
            == set(self.slow.verifications)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(st.booleans(), st.lists(operations, max_size=12))
def test_appends_are_judged_by_the_slow_rules(
        tmp_path_factory: pytest.TempPathFactory, verification: bool,
        ops: list[Verify | Append]) -> None:
    pair = Pair(tmp_path_factory.getbasetemp(), verification)
    for op in ops:
        if isinstance(op, Verify):
            pair.verify(op)
        else:
            pair.append(op)
        pair.check()


# ---- one by one --------------------------------------------------------------------------------


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return manager_in(tmp_path)


def test_the_last_five_batches_are_known_again(manager: ProducerStateManager) -> None:
    for number in range(7):
        append(manager, data(number, sequence=number))
    for number in range(7):
        if number < 2:
            with pytest.raises(OutOfOrderSequenceError, match="6 .current end sequence number"):
                analyze(manager, data(7, sequence=number))
        else:
            found = analyze(manager, data(7, sequence=number)).duplicate
            assert found is not None and found.first_offset == number
    entry = manager.last_entry(1)
    assert entry is not None and len(entry.batches) == 5


def test_sequences_wrap(manager: ProducerStateManager) -> None:
    append(manager, data(0, sequence=v2.MAX_SEQUENCE - 1, count=3))
    found = analyze(manager, data(3, sequence=v2.MAX_SEQUENCE - 1, count=3)).duplicate
    assert found is not None and (found.first_sequence, found.last_sequence) == (
        v2.MAX_SEQUENCE - 1, 0)
    append(manager, data(3, sequence=1))


def test_a_refused_append_changes_nothing(manager: ProducerStateManager) -> None:
    append(manager, data(0), data(1, sequence=1, transactional=True))
    before = manager.active_producers, str(manager.first_unstable_offset)
    with pytest.raises(InvalidTxnStateError, match=r"offset \(offset=3, segment=\[-1:-1\]\)") as e:
        analyze(manager, data(2, sequence=2, transactional=True), data(3, sequence=3))
    assert not isinstance(e.value, CorruptDataError), "no bytes on disk are wrong"
    with pytest.raises(InvalidProducerEpochError, match="smaller than the last seen epoch 0"):
        analyze(manager, data(2, epoch=-1, transactional=True))
    with pytest.raises(TransactionCoordinatorFencedError, match="-1 .zombie., 0 .current."):
        append(manager, marker(2), origin=COORDINATOR)
        analyze(manager, marker(3, coordinator_epoch=-1), origin=COORDINATOR)
    assert manager.first_unstable_offset is not None and before[1] == "(offset=1, segment=[0:61])"


def test_an_analysis_is_good_once(manager: ProducerStateManager) -> None:
    first, second = analyze(manager, data(0)), analyze(manager, data(0))
    with pytest.raises(ValueError, match="until the next one"):
        manager.update(first)
    manager.update(second)
    with pytest.raises(ValueError, match="until the next one"):
        manager.update(second)


def test_where_a_transaction_begins_is_known(manager: ProducerStateManager) -> None:
    append(manager, data(0), data(1, 2, transactional=True), position=500)
    assert str(manager.first_unstable_offset) == "(offset=1, segment=[0:561])"
    assert append(manager, marker(2, 2, kind=v2.COMMIT), origin=COORDINATOR) == [
        AbortedTxn(2, 1, 2, 3)]
    assert str(manager.first_unstable_offset) == "(offset=1, segment=[0:561])"
    manager.on_high_watermark_updated(2)
    assert manager.first_unstable_offset is not None, "the marker is not replicated"
    manager.on_high_watermark_updated(3)
    assert manager.first_unstable_offset is None


def test_many_transactions_that_nobody_replicates(manager: ProducerStateManager) -> None:
    """The first unstable offset is at hand, however many transactions wait for a high watermark."""
    for number in range(0, 6000, 2):
        append(manager, data(number, sequence=number // 2 % 2**31, transactional=True))
        append(manager, marker(number + 1), origin=COORDINATOR)
        assert manager.first_unstable_offset is not None
    manager.on_high_watermark_updated(3001)
    assert manager.first_unstable_offset.message_offset == 3000
    manager.on_high_watermark_updated(6000)
    assert manager.first_unstable_offset is None


def test_a_marker_of_what_nobody_began(manager: ProducerStateManager) -> None:
    assert append(manager, marker(0), origin=COORDINATOR) == []
    with pytest.raises(IllegalArgumentError, match="lastOffset=5, isAborted=true. on partition"):
        manager.complete_txn(CompletedTxn(1, 3, 5, True))
    with pytest.raises(IllegalArgumentError, match="TV_UNKNOWN for origin COORDINATOR"):
        analyze(manager, marker(1), origin=COORDINATOR, version=-1)


@pytest.mark.parametrize(("field", "name", "message"), [
    ({"key": None}, "NullPointerException", '"key" is null'),
    ({"value": b"\0"}, "BufferUnderflowException", "null"),
    ({"key": b"\0\0\0\2"}, "IllegalArgumentException", "LEADER_CHANGE"),
    ({"key": b"\0"}, "InvalidRecordException", "at least 4 bytes"),
])
def test_a_control_batch_that_is_no_marker(manager: ProducerStateManager, field: dict[str, Any],
                                           name: str, message: str) -> None:
    batch = marker(0)
    for key, value in field.items():
        setattr(batch.records[0], key, value and struct.pack(">h", 0)[:0] + value.decode(
            "unicode_escape").encode("latin-1"))
    with pytest.raises(SeglogError, match=message) as caught:
        analyze(manager, batch, origin=AppendOrigin.REPLICATION)
    assert caught.value.kafka_name == name
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.kafka_name, str(again)) == (name, str(caught.value))
    assert isinstance(caught.value, UncheckedError) is (name in {
        "NullPointerException", "BufferUnderflowException"})


def test_bytes_that_are_not_there(manager: ProducerStateManager) -> None:
    """Wrong positions of a marker's bytes never lead to reads outside of the buffer."""
    records = v2.encode(marker(0))
    rows = scan(records).batches
    for position, size in ((0, 2**31 - 1), (2**40, 78), (-1, 78), (40, 78), (0, 60), (78, 78)):
        lying = rows.copy()
        lying["position"], lying["size"] = position, size
        with pytest.raises((SeglogError, ValueError)):
            manager.analyze(lying, records, origin=AppendOrigin.REPLICATION)
    with pytest.raises(ValueError, match="rows of BATCH_DTYPE"):
        manager.analyze(np.zeros(1), records, origin=CLIENT)


def test_a_verified_transaction(tmp_path: Path) -> None:
    manager = manager_in(tmp_path, verification=True)
    with pytest.raises(InvalidTxnStateError, match="not part of an ongoing transaction"):
        analyze(manager, data(0, transactional=True))
    guard = manager.maybe_start_transaction_verification(1, 0, 0, True)
    assert guard == manager.verification_guard(1) != VerificationGuard.SENTINEL
    assert guard == manager.maybe_start_transaction_verification(1, 3, 0, True)
    assert guard.verify(guard) and not VerificationGuard.SENTINEL.verify(VerificationGuard.SENTINEL)
    for other in (None, VerificationGuard.SENTINEL, VerificationGuard(guard.value + 1)):
        assert other is None or not guard.verify(other)
        with pytest.raises(InvalidTxnStateError):
            analyze(manager, data(0, transactional=True), guard=other)
    append(manager, data(0, transactional=True), guard=guard)
    assert manager.verification_guard(1) is VerificationGuard.SENTINEL, "it has served"
    assert manager.maybe_start_transaction_verification(1, 1, 0, True) \
        is VerificationGuard.SENTINEL, "the transaction is open"
    append(manager, data(1, sequence=1, transactional=True))
    append(manager, marker(2, epoch=1), origin=COORDINATOR, version=2)
    with pytest.raises(InvalidProducerEpochError, match="smaller than the last seen epoch 1"):
        manager.maybe_start_transaction_verification(1, 0, 0, True)
    manager.maybe_start_transaction_verification(1, 0, 1, True)
    manager.remove_expired(EXPIRATION_MS - 1)
    assert manager.verification_state_entry(1) is not None
    manager.remove_expired(EXPIRATION_MS)
    assert manager.verification_state_entry(1) is None


def test_late_transactions(manager: ProducerStateManager) -> None:
    late = 900_000 + LATE_TRANSACTION_BUFFER_MS
    assert not manager.has_late_transaction(2**62)
    append(manager, data(0, 1, transactional=True, timestamp=50))
    append(manager, data(1, 2, transactional=True, timestamp=40))
    assert not manager.has_late_transaction(50 + late)
    assert manager.has_late_transaction(51 + late)
    append(manager, marker(2), origin=COORDINATOR)
    assert manager.has_late_transaction(41 + late), "the other one is the earliest now"
    manager.truncate_fully_and_start_at(0)
    assert not manager.has_late_transaction(2**62)
    append(manager, data(0, 1, transactional=True, timestamp=0))
    assert not manager.has_late_transaction(2**62), "in Kafka 0 is no time"


def test_snapshots(manager: ProducerStateManager, tmp_path: Path) -> None:
    def files() -> list[int]:
        return sorted(int(path.stem) for path in tmp_path.glob("*.snapshot"))

    assert manager.take_snapshot() is None, "there is nothing new at offset 0"
    for number in range(4):
        append(manager, data(number, sequence=number, timestamp=number))
        name = manager.take_snapshot(sync=number == 0)
        assert name == f"{number + 1:020}.snapshot" and manager.take_snapshot() is None
    assert (manager.oldest_snapshot_offset, manager.latest_snapshot_offset) == (1, 4)
    assert manager.fetch_snapshot(2) == str(tmp_path / f"{2:020}.snapshot")
    assert manager.fetch_snapshot(5) is None
    manager.truncate_and_reload(0, 3)
    entry = manager.last_entry(1)
    assert entry is not None and entry.last_sequence == 2 and len(entry.batches) == 1
    assert files() == [1, 2, 3] and manager.map_end_offset == 3
    manager.snapshots.delete_outside(1, 2**63 - 1)
    assert files() == [2, 3]
    assert manager.snapshots.retire([2, 9]) == [f"{2:020}.snapshot.deleted"]
    manager.on_log_start_offset_incremented(10)
    assert manager.map_end_offset == 10 and manager.take_snapshot() is not None
    manager.snapshots.remove_stray(np.array([5], np.int64))
    assert files() == [10]
    manager.truncate_fully_and_start_at(2)
    assert files() == [] and manager.map_end_offset == 2 and not manager.active_producers
    assert manager.take_snapshot() == f"{2:020}.snapshot"


def test_a_snapshot_that_is_asked_for_is_durable(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a roll is synced later, with its segment."""
    stored: list[tuple[str, bool]] = []
    replace = RealDisk.replace

    def noted(disk: RealDisk, name: str, data: bytes, *, sync: bool = True) -> None:
        stored.append((name, sync))
        replace(disk, name, data, sync=sync)

    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(producer=7, sequence=0), 0)
    monkeypatch.setattr(RealDisk, "replace", noted)
    log.take_producer_snapshot()
    log.append_as_leader(batch(producer=7, sequence=1), 0)
    log.roll()
    assert [one for one in stored if one[0].endswith(".snapshot")] == [
        (snapshot_name(1), True), (snapshot_name(2), False)]
    log.close()
