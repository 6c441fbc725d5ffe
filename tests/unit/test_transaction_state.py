"""What a read_committed reader sees of transactions, at the edges of offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.model import AbortedTxn, OpenTransaction
from seglog.storage.isolation import ISOLATIONS, TransactionState, check_isolation
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from tests.oracle.batch import Batch, Record, encode

#: producer id, first offset, last offset, last stable offset
ABORTED = [(7, 10, 19, 20), (8, 15, 29, 30)]


def state(*open_offsets: int, known_until: int | None = None) -> TransactionState:
    return TransactionState(
        tuple(OpenTransaction(number, first) for number, first in enumerate(open_offsets)),
        np.array(ABORTED, np.int64), known_until)


def test_levels() -> None:
    assert ISOLATIONS == ("read_uncommitted", "read_committed", "log_end")
    assert [check_isolation(one) for one in ISOLATIONS] == [False, True, False]
    with pytest.raises(ValueError, match="isolation 'committed' is neither read_uncommitted nor"):
        check_isolation("committed")


@pytest.mark.parametrize(("found", "start", "end", "expected"), [
    (state(), 0, 50, 50), (state(), 60, 50, 60),
    (state(40, 45), 0, 50, 40), (state(40), 41, 50, 41), (state(0), 0, 50, 0),
    (state(known_until=30), 0, 50, 30), (state(known_until=0), 0, 50, 0),
    (state(40, known_until=30), 0, 50, 30), (state(20, known_until=30), 0, 50, 20),
    (state(60, known_until=70), 0, 50, 50)])
def test_the_last_stable_offset(found: TransactionState, start: int, end: int, expected: int
                                ) -> None:
    assert found.last_stable_offset(start, end) == expected


@pytest.mark.parametrize(("start", "end", "expected"), [
    (0, 100, ABORTED), (19, 20, ABORTED), (20, 21, ABORTED[1:]), (29, 30, ABORTED[1:]),
    (30, 40, []), (0, 10, []), (0, 11, ABORTED[:1]), (0, 15, ABORTED[:1]), (0, 16, ABORTED)])
def test_aborted_transactions_between_offsets(start: int, end: int,
                                              expected: list[tuple[int, ...]]) -> None:
    assert state().aborted_between(start, end) == tuple(AbortedTxn(*one) for one in expected)
    assert state().aborted_ranges(start, end) == tuple(one[:3] for one in expected)


def test_transactions_in_doubt_are_gaps() -> None:
    assert not list(state(1).gaps("t-0"))
    found = TransactionState((), np.empty((0, 4), np.int64), in_doubt=(OpenTransaction(9, 4),))
    gap, = found.gaps("t-0")
    assert (gap.kind, gap.file, gap.position, gap.size, gap.first_offset) == (
        "transaction_in_doubt", "t-0", 0, 0, 4)
    assert isinstance(gap, LogGap) and "of producer 9 may be" in str(gap)


@pytest.mark.parametrize("sound", [1, 3])
def test_damage_bounds_what_is_known_to_be_committed(tmp_path: Path, sound: int) -> None:
    """Up to the last sound batch, whole."""
    batches = [bytearray(encode(Batch(2 * n, 1, [Record(2 * n + one, 5, b"k", b"v")
                                                 for one in range(2)],
                                      base_timestamp=5, max_timestamp=5))) for n in range(5)]
    batches[sound][-1] ^= 1
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        assert log.last_stable_offset == 2 * sound


@pytest.mark.parametrize("producer_id", [0, 7])
def test_an_open_transaction_bounds_what_is_stable(tmp_path: Path, producer_id: int) -> None:
    """0 is the id of a producer, too."""
    batches = [encode(Batch(n, 0, [Record(n, 5, b"k", b"v")], base_timestamp=5, max_timestamp=5,
                            producer_id=producer_id if n else -1, producer_epoch=0 if n else -1,
                            base_sequence=n - 1, is_transactional=n > 0)) for n in range(3)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        assert log.last_stable_offset == 1
        assert log.open_transactions == (OpenTransaction(producer_id, 1),)
