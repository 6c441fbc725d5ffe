"""Entries of a transaction index."""

from __future__ import annotations

from pathlib import Path

from seglog._native.index import read_aborted
from seglog.model import AbortedTxn
from seglog.storage import txn_entries


def test_known_entry_and_file(tmp_path: Path) -> None:
    entry = AbortedTxn(1, 0, 29, 8)
    data = txn_entries.encode_entries([entry])
    assert data.hex() == ("0000" "0000000000000001" "0000000000000000" "000000000000001d"
                          "0000000000000008")
    path = tmp_path / "00000000000000000000.txnindex"
    path.write_bytes(data * 2 + b"torn")
    assert txn_entries.to_aborted_txns(read_aborted(path)) == [entry, entry]


def test_the_search_of_columns_ends_where_that_of_values_does(tmp_path: Path) -> None:
    """At the markers and stable offsets around an end, and at the largest offset."""
    largest = (1 << 63) - 1
    offsets = 8, 9, 10, 11, largest
    entries = [AbortedTxn(1, 0, last, stable) for last in offsets for stable in offsets]
    path = tmp_path / "index"
    path.write_bytes(txn_entries.encode_entries(entries))
    for end in (*offsets, 0):
        expected = [min(one.last_stable_offset, one.last_offset + 1) >= end for one in entries]
        assert [txn_entries.ends_search(one, end) for one in entries] == expected
        assert txn_entries.search_ends(read_aborted(path), end).tolist() == expected
