"""Producer snapshots and the fold of a log, held to what Kafka's own loader arrived at."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog._native.batch import BATCH_DTYPE, scan
from seglog._native.crc32c import crc32c
from seglog._native.index import read_aborted
from seglog.errors import (
    CorruptDataError, CorruptSnapshotError, CorruptTxnStateError, KafkaStorageError,
)
from seglog.model import (
    AbortedTxn, BatchMetadata, OpenTransaction, ProducerStateEntry, TopicPartition,
)
from seglog.storage import paths, producer_state, txn_entries
from seglog.storage.producer_state import ProducerState
from tests.oracle import batch as oracle

TP = TopicPartition("t", 1)
ENTRY = struct.pack(">qhiqiqiq", 1, 2, 1, 2, 3, -1, 3, 100)
INVALID = "Snapshot failed schema validation: "


def sealed(body: bytes, version: int = 1, crc: int | None = None) -> bytes:
    return struct.pack(">hI", version, crc32c(body) if crc is None else crc) + body


def count(number: int) -> bytes:
    return struct.pack(">i", number)


def test_known_snapshots() -> None:
    assert producer_state.encode_snapshot([]).hex() == "000148674bc700000000"
    entry = ProducerStateEntry(1, 2, 3, -1, 100, (BatchMetadata(1, 2, 3, -1),))
    assert producer_state.encode_snapshot([entry]).hex() == "00015b83e05700000001" + ENTRY.hex()
    assert producer_state.decode_snapshot(sealed(count(1) + ENTRY)) == [entry]
    # Bytes behind the entries pass when the CRC covers them.
    assert producer_state.decode_snapshot(sealed(count(1) + ENTRY + b"x")) == [entry]
    bare = struct.pack(">qhiqiqiq", 1, 2, -1, -7, 0, 5, 3, -9)
    assert producer_state.decode_snapshot(sealed(count(1) + bare)) == [
        ProducerStateEntry(1, 2, 3, 5)]


@pytest.mark.parametrize(("data", "code", "message"), [
    (b"", "snapshot_size", INVALID + "null"),
    (b"\0", "snapshot_size", INVALID + "null"),
    (b"\0\1", "snapshot_size", INVALID + "null"),
    (b"\0\1" + bytes(7), "snapshot_size", INVALID + "null"),
    (b"\2\0", "snapshot_version", INVALID + "Snapshot contained an unknown file version 512"),
    (sealed(count(0), -1), "snapshot_version",
     INVALID + "Snapshot contained an unknown file version -1"),
    (sealed(count(-1)), "snapshot_count",
     INVALID + "non-nullable field producerEntries was serialized as null"),
    (sealed(count(50)), "snapshot_count", INVALID + "Tried to allocate a collection of size 50, "
     "but there are only 0 bytes remaining."),
    (sealed(count(2**31 - 1) + ENTRY), "snapshot_count", INVALID + "Tried to allocate a collection "
     "of size 2147483647, but there are only 46 bytes remaining."),
    (sealed(count(46) + ENTRY), "snapshot_size", INVALID + "null"),
    (sealed(count(1) + ENTRY[:-1]), "snapshot_size", INVALID + "null"),
    (sealed(count(1) + ENTRY, crc=5), "snapshot_crc", "Snapshot is corrupt (CRC is no longer "
     "valid). Stored crc: 5. Computed crc: 1535369303"),
])
def test_corrupt_snapshots(tmp_path: Path, data: bytes, code: str, message: str) -> None:
    path = tmp_path / paths.snapshot_name(7)
    path.write_bytes(data)
    with pytest.raises(CorruptSnapshotError) as caught:
        producer_state.read_snapshot(path)
    error = caught.value
    assert (error.code, str(error), error.file) == (code, message, str(path))
    assert error.position is not None


@pytest.mark.parametrize(("data", "position", "expected", "found"), [
    (b"\0", 0, 10, 1), (b"\0\1" + bytes(7), 9, 10, 9),
    (sealed(count(46) + ENTRY), 10 + len(ENTRY), 10 + 46 * len(ENTRY), 10 + len(ENTRY)),
    (sealed(count(1) + ENTRY[:-1]), 9 + len(ENTRY), 10 + len(ENTRY), 9 + len(ENTRY)),
    (b"\2\0", 0, 1, 512), (sealed(count(-1)), 6, 0, -1), (sealed(count(50)), 6, 0, 50),
    (sealed(count(47) + ENTRY), 6, 46, 47),
    (sealed(count(1) + ENTRY, crc=5), 2, 5, 1535369303)])
def test_where_a_snapshot_is_corrupt(data: bytes, position: int, expected: int, found: int
                                     ) -> None:
    with pytest.raises(CorruptSnapshotError) as caught:
        producer_state.decode_snapshot(data)
    error = caught.value
    assert (error.position, error.expected, error.found) == (position, expected, found)


def test_a_missing_snapshot(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(KafkaStorageError):
            producer_state.read_snapshot(path)


@given(st.binary(max_size=200) | st.binary(max_size=120).map(lambda body: sealed(count(1) + body)))
def test_snapshot_noise(data: bytes) -> None:
    try:
        producer_state.decode_snapshot(data)
    except CorruptSnapshotError as error:
        assert error.code.startswith("snapshot_")


int64, int32, int16 = (st.integers(-1, 2**bits - 1) for bits in (63, 31, 15))


@given(st.lists(st.builds(
    ProducerStateEntry, st.integers(0, 2**63 - 1), int16, int32, int64,
    st.none() | st.integers(0, 2**63 - 1),
    st.just(()) | st.tuples(st.builds(BatchMetadata, int32, st.integers(0, 2**63 - 1),
                                      st.integers(0, 2**31 - 1), int64))), max_size=6))
def test_snapshots_go_round(entries: list[ProducerStateEntry]) -> None:
    # A snapshot holds one timestamp, the producer's, and the batch takes it over.
    expected = [dataclasses.replace(entry, batches=tuple(
        dataclasses.replace(batch, timestamp=entry.last_timestamp) for batch in entry.batches))
        for entry in entries]
    assert producer_state.decode_snapshot(producer_state.encode_snapshot(entries)) == expected


def rows(batches: Iterable[oracle.Batch]) -> tuple[np.ndarray[Any, Any], bytes]:
    data = b"".join(map(oracle.encode, batches))
    return scan(data).batches, data


def fold(state: ProducerState, *batches: oracle.Batch) -> list[AbortedTxn]:
    found, data = rows(batches)
    return state.apply(found, lambda position, size: data[position:position + size])


def data(offset: int, producer_id: int = 7, epoch: int = 0, sequence: int = 0, records: int = 1,
         transactional: bool = False, timestamp: int = 1000) -> oracle.Batch:
    return oracle.Batch(
        offset, records - 1, [oracle.Record(offset + n, timestamp, b"k", b"v")
                              for n in range(records)], base_timestamp=timestamp,
        max_timestamp=timestamp, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, is_transactional=transactional)


def marker(offset: int, producer_id: int = 7, epoch: int = 0, kind: int = oracle.ABORT,
           timestamp: int = 2000) -> oracle.Batch:
    return oracle.marker(offset, producer_id, epoch, kind, timestamp)


def test_the_batch_queue() -> None:
    state = ProducerState(TP)
    fold(state, *(data(2 * n, sequence=2 * n, records=2, timestamp=n) for n in range(7)))
    entry, = state.entries
    assert entry.batches == tuple(BatchMetadata(2 * n + 1, 2 * n + 1, 1, n) for n in range(2, 7))
    assert (entry.last_sequence, entry.last_data_offset, entry.last_timestamp) == (13, 13, 6)
    assert (entry.batches[0].first_sequence, entry.batches[0].first_offset) == (4, 4)
    assert state.map_end_offset == 14
    fold(state, data(14, epoch=1))  # a new epoch begins a new queue
    entry, = state.entries
    assert (len(entry.batches), entry.producer_epoch) == (1, 1)
    fold(state, data(15, producer_id=-1))
    assert len(state.entries) == 1 and state.map_end_offset == 16


def test_sequences_wrap() -> None:
    state = ProducerState(TP)
    fold(state, data(0, sequence=2**31 - 2, records=4))
    batch, = state.entries[0].batches
    assert (batch.last_sequence, batch.first_sequence) == (1, 2**31 - 2)


def test_transactions() -> None:
    state = ProducerState(TP)
    assert fold(state, data(0, 1, transactional=True), data(1, 2, transactional=True),
                data(2, 1, sequence=1, transactional=True)) == []
    assert state.open_transactions == [OpenTransaction(1, 0), OpenTransaction(2, 1)]
    assert state.first_unstable_offset == 0
    assert fold(state, marker(3, 1)) == [AbortedTxn(1, 0, 3, 1)]
    assert state.open_transactions == [OpenTransaction(2, 1)]
    assert state.first_unstable_offset == 0  # until the marker is replicated
    state.table.replicated(3)
    assert state.first_unstable_offset == 0
    state.table.replicated(4)
    assert state.first_unstable_offset == 1
    assert fold(state, marker(4, 2, kind=oracle.COMMIT)) == []  # committed: no index entry
    state.table.replicated(5)
    assert state.first_unstable_offset is None and state.open_transactions == []
    assert fold(state, data(5, 2, sequence=1, transactional=True), marker(6, 2)) == [
        AbortedTxn(2, 5, 6, 7)]
    assert state.map_end_offset == 7


def test_a_marker_without_a_transaction() -> None:
    state = ProducerState(TP)
    assert fold(state, marker(0, 9, epoch=3, timestamp=77)) == []
    entry, = state.entries
    assert entry == ProducerStateEntry(9, 3, entry.coordinator_epoch, 77)
    assert entry.coordinator_epoch >= 0 and state.first_unstable_offset is None


def test_a_marker_of_the_next_epoch_clears_the_queue() -> None:
    state = ProducerState(TP)
    fold(state, data(0, transactional=True), marker(1, epoch=0, kind=oracle.COMMIT))
    assert len(state.entries[0].batches) == 1
    fold(state, data(2, sequence=1, transactional=True), marker(3, epoch=1, kind=oracle.COMMIT))
    entry, = state.entries
    assert (entry.batches, entry.producer_epoch, entry.last_sequence) == ((), 1, -1)
    assert entry.last_timestamp == 2000


def test_epochs_may_go_backwards() -> None:
    state = ProducerState(TP)
    fold(state, data(0, epoch=5), data(1, epoch=4))
    assert state.entries[0].producer_epoch == 4


def test_a_plain_batch_inside_a_transaction() -> None:
    state = ProducerState(TP)
    with pytest.raises(CorruptTxnStateError) as caught:
        fold(state, data(0, transactional=True), data(1, sequence=1), data(2, 8))
    assert str(caught.value) == ("Expected transactional write from producer 7 at offset (offset=1,"
                                 " segment=[-1:-1]) in partition t-1")
    assert caught.value.kafka_name == "InvalidTxnStateException"
    assert caught.value.position and state.map_end_offset == 1


def test_a_snapshot_is_where_it_goes_on() -> None:
    whole, first = ProducerState(TP), ProducerState(TP)
    batches = [data(0, 1, transactional=True), data(1, 2), data(2, 3, transactional=True),
               marker(3, 3), data(4, 1, sequence=1, transactional=True), marker(5, 1)]
    aborted = fold(whole, *batches)
    before = fold(first, *batches[:3])
    entries = producer_state.decode_snapshot(producer_state.encode_snapshot(first.entries))
    second = ProducerState(TP, first.map_end_offset, entries)
    assert second.open_transactions == first.open_transactions
    assert before + fold(second, *batches[3:]) == aborted == [
        AbortedTxn(3, 2, 3, 0), AbortedTxn(1, 0, 5, 6)]
    assert second.map_end_offset == whole.map_end_offset
    assert [entry.last_data_offset for entry in second.entries] == [
        entry.last_data_offset for entry in whole.entries]


def test_expiry() -> None:
    state = ProducerState(TP)
    fold(state, data(0, 1, timestamp=100), data(1, 2, timestamp=200),
         data(2, 3, timestamp=1, transactional=True))
    state.table.expire(1100, 1000)
    assert [entry.producer_id for entry in state.entries] == [2, 3]


@given(st.lists(st.tuples(st.sampled_from("dtac"), st.integers(0, 3), st.integers(0, 2)),
                max_size=30))
def test_against_a_slow_model(steps: list[tuple[str, int, int]]) -> None:
    state, opened = ProducerState(TP), dict[int, int]()
    expected: list[AbortedTxn] = []
    found: list[AbortedTxn] = []
    for offset, (step, producer_id, epoch) in enumerate(steps):
        if step == "d" and producer_id in opened:
            step = "t"
        if step in "dt":
            if step == "t":
                opened.setdefault(producer_id, offset)
            found += fold(state, data(offset, producer_id, epoch, transactional=step == "t"))
        else:
            first = opened.pop(producer_id, None)
            if first is not None and step == "a":
                expected.append(AbortedTxn(producer_id, first, offset,
                                           min(opened.values(), default=offset + 1)))
            found += fold(state, marker(offset, producer_id, epoch,
                                        oracle.ABORT if step == "a" else oracle.COMMIT))
        assert state.open_transactions == sorted(
            (OpenTransaction(*item) for item in opened.items()), key=lambda t: t.first_offset)
        assert state.map_end_offset == offset + 1
    assert found == expected


def fold_log(state: ProducerState, partition: Path) -> list[list[AbortedTxn]]:
    """The aborted transactions of every segment of a partition directory."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        found.append(state.apply(scan(data).batches, lambda at, size, data=data: data[at:at + size],
                                 file=str(path)))
    return found


def facts(entry: ProducerStateEntry) -> dict[str, Any]:
    return {"producer_id": entry.producer_id, "epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch, "last_seq": entry.last_sequence,
            "last_data_offset": entry.last_data_offset, "last_timestamp": entry.last_timestamp,
            "current_txn_first_offset": entry.current_txn_first_offset}


def wanted(state: dict[str, Any]) -> list[dict[str, Any]]:
    keys = facts(ProducerStateEntry(0))
    return [{key: entry[key] for key in keys} for entry in state["producers"]]


@pytest.mark.parametrize("kind", ["clean", "unclean"])
def test_golden_logs_fold_to_kafkas_state(golden: Path, kind: str) -> None:
    """Unclean: as Kafka loads it. Clean: newest snapshot, and the log from its first batch."""
    loaded = json.loads((golden / "real/loaded.json").read_text())[kind]
    seen_aborted = seen_producers = 0
    for name, state in loaded.items():
        partition = golden / "real" / kind / name
        found = ProducerState(paths.parse_directory_name(name).topic_partition)
        aborted = fold_log(found, partition)
        if not name.startswith(("compacted",)):
            assert [facts(entry) for entry in found.entries] == wanted(state), name
            seen_producers += len(found.entries)
        for path, entries in zip(sorted(partition.glob("*.log")), aborted, strict=True):
            stored = read_aborted(path.with_suffix(".txnindex"))
            if name.startswith("compacted"):
                continue
            # A crash may leave an index behind its log, never before it.
            assert txn_entries.to_aborted_txns(stored) == entries[:len(stored)], path
            assert kind == "unclean" or len(stored) == len(entries), path
            seen_aborted += len(stored)
        if kind == "clean":
            snapshots = sorted(partition.glob("*.snapshot"))
            if snapshots and state["producers"]:
                kept = sorted(producer_state.read_snapshot(snapshots[-1]),
                              key=lambda entry: entry.producer_id)
                assert [facts(entry) for entry in kept] == wanted(state)
    assert seen_aborted > 10 and seen_producers > 3


@given(st.binary(max_size=100), st.integers(0, 40))
def test_a_damaged_marker_is_one_typed_error(noise: bytes, at: int) -> None:
    whole = bytearray(oracle.encode(marker(0)))
    whole[21 + at:21 + at + len(noise)] = noise
    row = np.zeros(1, BATCH_DTYPE)
    row["producer_id"], row["attributes"], row["size"] = 7, 0x30, len(whole)
    try:
        ProducerState(TP).apply(row, lambda position, size: bytes(whole[position:position + size]))
    except CorruptDataError as error:
        assert error.code != "corrupt"


def test_a_compacted_marker_makes_its_producer_known() -> None:
    emptied = oracle.Batch(3, 0, [], producer_id=7, producer_epoch=1, is_transactional=True,
                           is_control=True, max_timestamp=5)
    state = ProducerState(TP)
    assert fold(state, data(2, 1), emptied) == []
    assert state.entries[1] == ProducerStateEntry(7)
    assert state.map_end_offset == 4


def test_a_snapshot_has_the_order_of_a_hash_table() -> None:
    """16 buckets: ids 17 and 1 share one, in the order in which they came."""
    state = ProducerState(TP)
    fold(state, *(data(n, producer_id) for n, producer_id in enumerate((17, 3, 1, 2**32))))
    assert state.producer_ids == [17, 3, 1, 2**32]
    order = [entry.producer_id for entry in producer_state.decode_snapshot(state.to_snapshot())]
    assert order == [17, 1, 2**32, 3]
    by_id = {entry.producer_id: entry for entry in state.entries}
    assert state.to_snapshot() == producer_state.encode_snapshot(by_id[one] for one in order)
    assert ProducerState(TP).to_snapshot().hex() == "000148674bc700000000"


def test_two_transactions_with_one_first_offset() -> None:
    shared = [ProducerStateEntry(number, current_txn_first_offset=3) for number in (1, 2)]
    state = ProducerState(TP, 4, shared)
    assert [one.producer_id for one in state.open_transactions] == [1, 2]
    fold(state, marker(4, 1))
    with pytest.raises(CorruptTxnStateError) as caught:
        fold(state, marker(5, 2))
    assert caught.value.code == "txn_not_started"
    assert str(caught.value) == (
        "Attempted to complete transaction CompletedTxn[producerId=2, firstOffset=3, lastOffset=5, "
        "isAborted=true] on partition t-1 which was not started")


def test_a_producer_expires_by_its_idle_time_in_javas_arithmetic() -> None:
    assert [producer_state.is_expired(100, now, 50) for now in (99, 149, 150, 151)] == [
        False, False, True, True]
    assert producer_state.is_expired(-1, 49, 50) and not producer_state.is_expired(0, 49, 50)
    assert producer_state.is_expired(0, 2**63 - 1, 50)
    assert not producer_state.is_expired(-1, 2**63 - 1, 50), "the difference overflows"
    assert producer_state.is_expired(-(2**63), -1, 50)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("kind", [oracle.ABORT, oracle.COMMIT])
def test_a_rebuild_applies_markers_of_any_form(kind: int, codec: int) -> None:
    """One that a compaction emptied, and one that Kafka would not have compressed."""
    emptied = oracle.Batch(4, 0, [], producer_id=8, producer_epoch=1, is_transactional=True,
                           is_control=True, max_timestamp=5)
    ended = dataclasses.replace(marker(3, kind=kind), codec=codec)
    found, stored = rows([data(2, transactional=True), ended, emptied])
    def read(position: int, size: int) -> bytes:
        return stored[position:position + size]

    states = [ProducerState(TP) for _ in range(3)]
    states[0].apply(found, read)
    states[1].replay([found], read)
    states[2].replay([found[:1], found[1:]], read)
    assert states[0].entries == states[1].entries == states[2].entries
    assert states[2].first_unstable_offset == 2
    assert [one.coordinator_epoch for one in states[1].entries] == [0, -1]
    assert states[1].open_transactions == [] and states[1].first_unstable_offset == 2
