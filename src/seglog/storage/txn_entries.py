"""Entries of a transaction index as values and as bytes (Kafka: TransactionIndex).

`_native.index.read_aborted` reads a file, `_native.scan.check_segments` checks it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from seglog.model import AbortedTxn

__all__ = ["encode_entries", "to_aborted_txns"]

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


def to_aborted_txns(entries: npt.NDArray[np.void]) -> list[AbortedTxn]:
    """The entries of `read_aborted` as values."""
    return list(map(AbortedTxn._make, entries[list(AbortedTxn._fields)].tolist()))


def encode_entries(entries: Iterable[AbortedTxn]) -> bytes:
    """The bytes of a transaction index, 34 an entry."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
