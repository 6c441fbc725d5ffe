"""The native fold of producers, held to Kafka's rules applied batch by batch in Python."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.batch import BATCH_DTYPE, scan
from seglog._native.producers import PRODUCER_DTYPE, ProducerTable
from seglog._native.status import Status
from seglog.errors import CorruptDataError
from seglog.model import AbortedTxn, TopicPartition
from seglog.storage.producer_state import ProducerState
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Record
from tests.oracle.producers import SlowProducers
from tests.support.effort import examples, quick_first

TP = TopicPartition("t", 0)


def data(offset: int, producer_id: int, epoch: int, transactional: bool, sequence: int = 0,
         count: int = 1, timestamp: int = 7) -> bytes:
    return v2.seal(offset, 0, v2.TRANSACTIONAL * transactional, count - 1, timestamp, timestamp,
                   producer_id, epoch, sequence, 0, b"")


def marker(offset: int, producer_id: int, epoch: int, kind: int, coordinator_epoch: int = 3,
           **fields: Any) -> bytes:
    batch = v2.marker(offset, producer_id, epoch, kind, 99, coordinator_epoch=coordinator_epoch)
    for name, value in fields.items():
        setattr(batch, name, value)
    return v2.encode(batch)


class Log:
    """Bytes of a log, also in a file, and the facts of its batches."""

    def __init__(self, batches: list[bytes]) -> None:
        self.data = b"".join(batches)
        self.rows = scan(self.data).batches
        assert len(self.rows) == len(batches)
        self.file = tempfile.TemporaryFile()
        self.file.write(self.data)
        self.file.flush()

    def read(self, position: int, size: int) -> bytes:
        return self.data[position:position + size]

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def facts(state: ProducerState | SlowProducers) -> tuple[Any, ...]:
    return (state.entries, state.producer_ids, state.open_transactions,
            state.first_unstable_offset)


def folded(apply: Callable[[], list[AbortedTxn]]) -> list[AbortedTxn] | str:
    try:
        return apply()
    except CorruptDataError as error:
        return error.code


def compare(log: Log, pieces: list[int], with_file: bool) -> None:
    """The whole log by the slow model, and in pieces by the native one."""
    slow, fast = SlowProducers(), ProducerState(TP)
    expected = folded(lambda: slow.apply(log.rows, log.read))
    found: list[AbortedTxn] = []
    fd = log.file.fileno() if with_file else -1
    bounds = [0, *sorted(min(piece, len(log.rows)) for piece in pieces), len(log.rows)]
    outcome: list[AbortedTxn] | str = found
    for low, high in zip(bounds, bounds[1:], strict=False):
        part = folded(lambda low=low, high=high: fast.apply(  # type: ignore[misc]
            log.rows[low:high], log.read, fd=fd, on_aborted=lambda _, one: found.append(one)))
        if isinstance(part, str):
            outcome = part
            break
    assert outcome == expected
    assert facts(fast) == facts(slow)


ids, epochs = st.integers(-1, 4), st.integers(0, 2)
steps = st.tuples(st.sampled_from("ddttttaacceo"), ids, epochs, st.sampled_from(
    [-1, 0, 1, 5, 2**31 - 2]), st.integers(1, 4))


def build(steps: list[tuple[str, int, int, int, int]]) -> list[bytes]:
    batches, offset = [], 0
    for kind, producer_id, epoch, sequence, count in steps:
        if kind in "dt":
            batches.append(data(offset, producer_id, epoch, kind == "t", sequence, count))
        elif kind == "e":
            batches.append(v2.encode(Batch(
                offset, count - 1, [], producer_id=producer_id, producer_epoch=epoch,
                is_transactional=True, is_control=True)))
        elif kind == "o":
            batches.append(legacy.encode(legacy.Message(offset, 1, None, b"v", 5)))
        else:
            batches.append(marker(offset, producer_id, epoch,
                                  v2.ABORT if kind == "a" else v2.COMMIT))
        offset += count
    return batches


@settings(max_examples=examples(400))
@given(st.lists(steps, max_size=40), st.lists(st.integers(0, 40), max_size=3), st.booleans())
def test_against_the_slow_model(steps: list[tuple[str, int, int, int, int]], pieces: list[int],
                                with_file: bool) -> None:
    with Log(build(steps)) as log:
        compare(log, pieces, with_file)


def test_long_random_logs_against_the_slow_model() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        opened: set[int] = set()
        chosen = []
        for _ in range(400):
            producer_id = rng.choice([-1, *range(rng.choice([3, 60]))])
            kind = rng.choice("dttttaceo")
            if kind == "d" and producer_id in opened:
                kind = "t"
            if kind == "t":
                opened.add(producer_id)
            elif kind in "ac":
                opened.discard(producer_id)
            chosen.append((kind, producer_id, rng.randint(0, 1), rng.choice([-1, 0, 9]),
                           rng.randint(1, 3)))
        with Log(build(chosen)) as log:
            compare(log, [rng.randrange(400) for _ in range(4)], bool(seed % 2))


def test_more_aborts_than_one_call_into_c_takes() -> None:
    chosen = [(kind, n % 7, 0, -1, 1) for n in range(700) for kind in "ta"]
    with Log(build(chosen)) as log:
        compare(log, [], True)
        assert len(ProducerState(TP).apply(log.rows, log.read, fd=log.file.fileno())) == 700


@pytest.mark.parametrize("fields", [
    {"codec": 1}, {"codec": 4}, {"timestamp_type": 1, "max_timestamp": 1234},
    {"records": [Record(0, 99, b"\0\0\0\1", b"\0\0\0\0\0\5extra")]},
    {"records": [Record(0, 99, b"\0\0\0\1more", b"\0\0\0\0\0\5")]},
    {"records": [Record(0, 99, b"\0\7\0\0", b"\0\7\0\0\0\5")]},
    {"records": [Record(0, 99, b"\0\0\0\1", b"\0\0\0\0\0\5", [(b"h", None)])]},
    {"records": [Record(0, 99, b"\0\0\0\1", b"\0\0\0\0\0\5" + bytes(400))]},
    {"records": [Record(0, 99, b"\0\0\0\0", b"\0\0\0\0\0\5"),
                 Record(0, 98, b"\0\0\0\1", b"\0\0\0\0\0\6")]},
])
def test_unusual_markers_are_the_same_markers(fields: dict[str, Any]) -> None:
    with Log([data(0, 1, 0, True), marker(1, 1, 0, v2.COMMIT, **fields)]) as log:
        compare(log, [], True)
        state = ProducerState(TP)
        state.apply(log.rows, log.read, fd=log.file.fileno())
        assert state.open_transactions == [] and state.entries[0].coordinator_epoch == 5 - 2 * (
            "records" not in fields)


@pytest.mark.parametrize(("record", "code"), [
    (Record(0, 99, b"\0\0\0\2", b"\0\0\0\0\0\5"), "control_type"),
    (Record(0, 99, b"\0\0\0", b"\0\0\0\0\0\5"), "control_key"),
    (Record(0, 99, b"\xff\0\0\1", b"\0\0\0\0\0\5"), "control_key"),
    (Record(0, 99, b"\0\0\0\1", b"\0\0\0\0\0"), "control_marker_short"),
    (Record(0, 99, b"\0\0\0\1", None), "control_marker_null"),
    (Record(0, 99, b"\0\0\0\1", b"\xff\0\0\0\0\5"), "control_marker")])
def test_refused_markers(record: Record, code: str) -> None:
    with Log([data(0, 1, 0, True), marker(1, 1, 0, v2.COMMIT, records=[record]),
              data(2, 2, 0, False)]) as log:
        state = ProducerState(TP)
        assert folded(lambda: state.apply(log.rows, log.read, fd=log.file.fileno())) == code
        assert state.map_end_offset == 1 and state.producer_ids == [1]


def test_a_file_that_cannot_be_read_is_asked_again_by_the_caller() -> None:
    with Log([data(0, 1, 0, True), marker(1, 1, 0, v2.ABORT)]) as log:
        shut = os.dup(log.file.fileno())
        os.close(shut)
        state = ProducerState(TP)
        assert state.apply(log.rows, log.read, fd=shut) == [AbortedTxn(1, 0, 1, 2)]


def test_the_table_alone() -> None:
    table = ProducerTable()
    with Log([data(0, 1, 0, True), data(1, 2, 0, True), marker(2, 2, 0, v2.ABORT),
              data(3, 1, 0, False)]) as log:
        assert table.apply(log.rows) == (2, Status.MORE, [])
        assert table.end_transaction(2, 0, 2, 0, 5) == (1, 0, True)
        assert table.apply(log.rows, 3) == (3, Status.TXN_STATE, [])
        assert len(table) == 2 and table.first_unstable_offset() == 0
        position = int(log.rows["position"][2])
        again = ProducerTable()
        assert again.apply(log.rows, fd=log.file.fileno()) == (
            3, Status.TXN_STATE, [(2, 1, 2, 0, position)])
    table.load(table.to_numpy())
    assert len(table) == 2
    shared = ProducerTable()  # two producers, one first offset: Kafka knows one transaction
    shared.load(np.concatenate([_open(1, 5), _open(2, 5)]))
    assert shared.end_transaction(2, 0, 10, 0, 5) == (5, 11, True)
    before = shared.to_numpy()
    assert shared.end_transaction(1, 0, 11, 0, 5) == (5, 12, False)
    assert np.array_equal(shared.to_numpy(), before)
    with pytest.raises(ValueError, match="rows of BATCH_DTYPE"):
        table.apply(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="behind"):
        table.apply(np.zeros(2, BATCH_DTYPE), 3)
    bad = np.zeros(1, PRODUCER_DTYPE)
    bad["batch_count"] = 6
    with pytest.raises(ValueError, match="0 to 5"):
        table.load(bad)


def _open(producer_id: int, first_offset: int) -> Any:
    row = np.zeros(1, PRODUCER_DTYPE)
    row["producer_id"], row["in_txn"], row["txn_first_offset"] = producer_id, 1, first_offset
    return row


@pytest.mark.parametrize("order", quick_first(["first", "last", "random"], 1))
def test_many_open_transactions_are_not_quadratic(order: str) -> None:
    count, table = 100_000, ProducerTable()
    rows = np.zeros(count, BATCH_DTYPE)
    rows["producer_id"] = rows["base_offset"] = rows["last_offset"] = np.arange(count)
    rows["magic"], rows["attributes"] = 2, v2.TRANSACTIONAL
    assert table.apply(rows) == (count, Status.OK, [])
    ending = list(range(count))
    if order == "last":
        ending.reverse()
    elif order == "random":
        random.Random(1).shuffle(ending)
    started = time.process_time()
    for n, producer_id in enumerate(ending):
        ended = table.end_transaction(producer_id, 0, count + n, 0, 1)
        assert ended is not None and ended[0] == producer_id and ended[2]
        stable = ended[1]
        assert order != "first" or stable == (producer_id + 1 if n < count - 1 else count + n + 1)
    assert table.first_unstable_offset() == 0
    table.replicated(2 * count)
    assert table.first_unstable_offset() is None
    assert time.process_time() - started < 2


def test_open_transactions_of_a_snapshot_are_not_quadratic() -> None:
    """A snapshot has the order of a hash map, not that of the transactions."""
    count, table = 100_000, ProducerTable()
    rows = np.zeros(count, PRODUCER_DTYPE)
    rows["producer_id"], rows["in_txn"] = np.arange(count), 1
    rows["txn_first_offset"] = np.arange(count)[::-1]
    started = time.process_time()
    table.load(rows)
    assert time.process_time() - started < 1
    assert table.first_unstable_offset() == 0
    assert table.end_transaction(count - 1, 0, count, 0, 1) == (0, 1, True)
    assert table.first_unstable_offset() == 0
    table.replicated(count + 1)
    assert table.first_unstable_offset() == 1
    assert np.array_equal(table.to_numpy()["producer_id"], rows["producer_id"])


def test_ids_that_would_share_a_slot_are_not_quadratic() -> None:
    """Multiples of the inverse of the hash's factor have products below 2**32."""
    inverse = pow(0x9e3779b97f4a7c15, -1, 1 << 64)
    ids = [one for n in range(200_000) if (one := n * inverse % (1 << 64)) < 1 << 63][:80_000]
    rows = np.zeros(len(ids), BATCH_DTYPE)
    rows["producer_id"], rows["magic"] = ids, 2
    rows["base_offset"] = rows["last_offset"] = np.arange(len(ids))
    table, started = ProducerTable(), time.process_time()
    assert table.apply(rows) == (len(ids), Status.OK, [])
    assert time.process_time() - started < 1
    assert table.to_numpy()["producer_id"].tolist() == ids


def test_expiry() -> None:
    table = ProducerTable()
    rows = np.zeros(1000, BATCH_DTYPE)
    rows["producer_id"] = np.arange(1000)
    rows["magic"], rows["max_timestamp"] = 2, np.arange(1000)
    rows["attributes"][::10] = v2.TRANSACTIONAL
    table.apply(rows)
    table.expire(1500, 1000)
    left = set(table.to_numpy()["producer_id"].tolist())
    assert left == {*range(501, 1000), *range(0, 1000, 10)}
    table.apply(rows[:5])
    assert len(table) == len(left) + 4
