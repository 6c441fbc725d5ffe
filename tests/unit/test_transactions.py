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
