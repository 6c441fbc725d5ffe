"""What a transaction index gives for a fetch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog._native.index import ABORTED_TXN_DTYPE, read_aborted
from seglog.errors import CorruptIndexError
from seglog.model import AbortedTxn
from seglog.storage import transactions


def stored(*entries: AbortedTxn) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    return np.array([(e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset, 0)
                     for e in entries], ABORTED_TXN_DTYPE)


# Kafka's TransactionIndexTest.testCollectAbortedTransactions.
FOUR = (AbortedTxn(0, 0, 10, 11), AbortedTxn(1, 5, 15, 13), AbortedTxn(2, 18, 35, 25),
        AbortedTxn(3, 32, 50, 40))


@pytest.mark.parametrize(("fetch", "upper", "found", "complete"), [
    (0, 100, FOUR, False), (0, 32, FOUR[:3], True), (0, 35, FOUR, True),
    (10, 35, FOUR, True), (11, 35, FOUR[1:], True), (20, 41, FOUR[2:], False),
    (51, 100, (), False),
])
def test_collect(fetch: int, upper: int, found: tuple[AbortedTxn, ...], complete: bool) -> None:
    got, done = transactions.collect(stored(*FOUR), fetch, upper)
    assert (tuple(transactions.to_aborted_txns(got)), done) == (found, complete)


offsets = st.integers(0, 30)


@given(st.lists(st.builds(AbortedTxn, offsets, offsets, offsets, offsets), max_size=8), offsets,
       offsets)
def test_collect_against_the_loop(entries: list[AbortedTxn], fetch: int, upper: int) -> None:
    found, complete = [], False
    for entry in entries:
        if entry.last_offset >= fetch and entry.first_offset < upper:
            found.append(entry)
        if entry.last_stable_offset >= upper:
            complete = True
            break
    got, done = transactions.collect(stored(*entries), fetch, upper)
    assert (transactions.to_aborted_txns(got), done) == (found, complete)


def test_known_entry_and_file(tmp_path: Path) -> None:
    entry = AbortedTxn(1, 0, 29, 8)
    data = transactions.encode_entries([entry])
    assert data.hex() == ("0000" "0000000000000001" "0000000000000000" "000000000000001d"
                          "0000000000000008")
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(data * 2 + b"torn")
    assert transactions.to_aborted_txns(read_aborted(path)) == [entry, entry]


def test_check() -> None:
    transactions.check_entries(stored(*FOUR), 10, "f")
    with pytest.raises(CorruptIndexError) as caught:
        transactions.check_entries(stored(*FOUR), 16, "f")
    error = caught.value
    assert str(error) == (
        "Last offset of aborted transaction AbortedTxn(version=0, producerId=0, firstOffset=0, "
        "lastOffset=10, lastStableOffset=11) in index f is less than start offset 16")
    assert (error.code, error.position, error.expected, error.found) == ("txn_offset", 0, 16, 10)
