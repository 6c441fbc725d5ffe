"""What a transaction index says about a fetch (Kafka: TransactionIndex).

The entries of a file are read by `_native.index.read_aborted`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from seglog.errors import CorruptIndexError
from seglog.model import AbortedTxn

__all__ = ["TXN_ENTRY_BYTES", "check_entries", "collect", "encode_entries", "to_aborted_txns"]

_ENTRY = struct.Struct(">hqqqq")
TXN_ENTRY_BYTES: Final = _ENTRY.size
_VERSION = 0


def to_aborted_txns(entries: npt.NDArray[np.void]) -> list[AbortedTxn]:
    """The entries of `read_aborted` as values."""
    return [AbortedTxn(*fields) for fields in zip(
        entries["producer_id"].tolist(), entries["first_offset"].tolist(),
        entries["last_offset"].tolist(), entries["last_stable_offset"].tolist(), strict=True)]


def encode_entries(entries: Iterable[AbortedTxn]) -> bytes:
    """The bytes of a transaction index, 34 an entry."""
    return b"".join(_ENTRY.pack(_VERSION, entry.producer_id, entry.first_offset,
                                entry.last_offset, entry.last_stable_offset) for entry in entries)


def collect(entries: npt.NDArray[np.void], fetch_offset: int,
            upper_bound: int) -> tuple[npt.NDArray[np.void], bool]:
    """(aborted transactions of [fetch_offset, upper_bound), whether no later index has more).

    `entries` are those of one segment's index (ABORTED_TXN_DTYPE). Kafka reads up to and with the
    first entry whose last stable offset reaches the upper bound, and is complete there; otherwise
    the next segment's index must be asked too.
    """
    reached = np.flatnonzero(entries["last_stable_offset"] >= upper_bound)
    if len(reached):
        entries = entries[:reached[0] + 1]
    wanted = (entries["last_offset"] >= fetch_offset) & (entries["first_offset"] < upper_bound)
    return entries[wanted], bool(len(reached))


def check_entries(entries: npt.NDArray[np.void], base_offset: int, file: str) -> None:
    """Raises CorruptIndexError (`txn_offset`) for an entry that ended below the segment.

    Kafka's sanityCheck, in its words.
    """
    below = np.flatnonzero(entries["last_offset"] < base_offset)
    if len(below):
        number = int(below[0])
        found, = to_aborted_txns(entries[number:number + 1])
        raise CorruptIndexError(
            f"Last offset of aborted transaction {found} in index {file} is less than start "
            f"offset {base_offset}", file=file, position=number * TXN_ENTRY_BYTES,
            expected=base_offset, found=found.last_offset, code="txn_offset")
