"""Entries of a transaction index as values and as bytes (Kafka: TransactionIndex).

`_native.index.read_aborted` reads a file, `_native.scan.check_segments` checks it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from seglog.model import AbortedTxn

__all__ = ["encode_entries", "ends_search", "search_ends", "to_aborted_txns"]

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


def to_aborted_txns(entries: npt.NDArray[np.void]) -> list[AbortedTxn]:
    """The entries of `read_aborted` as values."""
    return list(map(AbortedTxn._make, entries[list(AbortedTxn._fields)].tolist()))


def ends_search(aborted: AbortedTxn, end_offset: int) -> bool:
    """Whether no later entry is of a transaction with records below `end_offset`.

    A follower appends many batches at once, and computes `last_stable_offset` after all of them: a
    later transaction of the same producer does not count there, but begins after this marker.
    TransactionIndex.collectAbortedTxns does not ask for that, and misses it.
    """
    return aborted.last_stable_offset >= end_offset and aborted.last_offset >= end_offset - 1


def search_ends(entries: npt.NDArray[np.void], end_offset: int) -> npt.NDArray[np.bool_]:
    """`ends_search` of each entry of `read_aborted`."""
    found: npt.NDArray[np.bool_] = ((entries["last_stable_offset"] >= end_offset)
                                    & (entries["last_offset"] >= end_offset - 1))
    return found


def encode_entries(entries: Iterable[AbortedTxn]) -> bytes:
    """The bytes of a transaction index, 34 an entry."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
