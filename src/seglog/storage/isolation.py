"""What a read_committed consumer may see of a log that no broker serves.

Kafka knows its open transactions from the producer state that it rebuilds when it starts: the
newest snapshot, and the batches behind it. Aborted transactions are in the transaction indexes,
which it rebuilds for segments whose offset index is missing or whose transaction index is unsound.
Both are done here in memory. Reference 4.7, 5.3, 5.6, 5.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from seglog._native.file import read_at
from seglog._native.index import read_aborted
from seglog._native.scan import HAS_INDEX
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import OpenTransaction
from seglog.storage.markers import EndTransactionMarker, read_marker
from seglog.storage.segment import LogSegment
from seglog.storage.segments import Segments

__all__ = [
    "AbortedTransaction", "Damage", "Isolation", "TransactionState", "check_isolation",
    "read_transactions",
]

#: What can keep a reader from knowing how a transaction ended.
Damage = CorruptDataError | KafkaStorageError

Isolation = Literal["read_uncommitted", "read_committed"]


def check_isolation(isolation: str) -> bool:
    """Whether only committed records are wanted; ValueError for an unknown level."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"isolation {isolation!r} is neither read_uncommitted nor read_committed")
    return isolation == "read_committed"


class AbortedTransaction(NamedTuple):
    """Records of the producer within these offsets were aborted; the last is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The transactions of a log.

    `open_transactions` by first offset; `aborted` is int64 (n, 3) of producer id, first offset and
    last offset (the marker's), sorted. `damage` is what stopped the walk, at or behind
    `known_until`: no record from there on is known to be committed.
    """

    open_transactions: tuple[OpenTransaction, ...]
    aborted: npt.NDArray[np.int64]
    known_until: int | None = None
    damage: Damage | None = None

    def last_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """The first offset whose transaction is undecided, or the log end offset."""
        stable = log_end_offset
        if self.open_transactions:
            stable = min(stable, self.open_transactions[0].first_offset)
        if self.known_until is not None:
            stable = min(stable, self.known_until)
        return max(stable, log_start_offset)

    def aborted_between(self, start_offset: int, end_offset: int
                        ) -> tuple[AbortedTransaction, ...]:
        """Those that may concern records of `[start_offset, end_offset)`."""
        rows = (self.aborted[:, 2] >= start_offset) & (self.aborted[:, 1] < end_offset)
        return tuple(AbortedTransaction(*row) for row in self.aborted[rows].tolist())


def read_transactions(segments: Segments, snapshots: Iterable[tuple[int, dict[int, int]]],
                      last_end: int) -> TransactionState:
    """The state at the end of the log.

    `snapshots` yields (offset, first offset of the open transaction by producer id) of the usable
    producer snapshots, newest first; it is asked for no more than needed.
    """
    aborted, first_distrusted = _read_indexes(segments)
    walk = _Walk()
    start = int(segments.base_offsets[0]) if len(segments) else 0
    for offset, open_transactions in snapshots:
        if first_distrusted is None or offset <= first_distrusted:
            start, walk.open = offset, dict(open_transactions)
            break
    walk.run(segments, start, last_end)
    found = np.array(walk.aborted, np.int64).reshape(-1, 3)
    return TransactionState(
        tuple(sorted((OpenTransaction(producer, first) for producer, first in walk.open.items()),
                     key=lambda transaction: transaction.first_offset)),
        np.unique(np.concatenate([aborted, found]), axis=0), walk.known_until, walk.damage)


def _read_indexes(segments: Segments) -> tuple[npt.NDArray[np.int64], int | None]:
    """Entries of all sound transaction indexes, and the first segment that Kafka would rebuild."""
    parts = [np.empty((0, 3), np.int64)]
    unindexed = np.flatnonzero(~(segments.flags & HAS_INDEX).astype(bool))
    first_distrusted = int(segments.base_offsets[unindexed[0]]) if len(unindexed) else None
    for segment in segments.with_txn_index():
        found = _sound_entries(segment)
        if found is not None:
            parts.append(found)
        elif first_distrusted is None or segment.base_offset < first_distrusted:
            first_distrusted = segment.base_offset
    return np.concatenate(parts), first_distrusted


def _sound_entries(segment: LogSegment) -> npt.NDArray[np.int64] | None:
    """None if an entry cannot be true: the marker it names would lie outside the segment."""
    assert segment.files.txn_index is not None
    try:
        entries = read_aborted(segment.files.txn_index)
    except (CorruptDataError, KafkaStorageError):
        return None
    rows = np.stack([entries["producer_id"], entries["first_offset"], entries["last_offset"]],
                    axis=1)
    sound = (rows[:, 2] >= segment.base_offset) & (rows[:, 1] <= rows[:, 2]) & (rows[:, 1] >= 0)
    if segment.next_base_offset is not None:
        sound &= rows[:, 2] < segment.next_base_offset
    return rows if sound.all() else None


@dataclass(slots=True)
class _Walk:
    """Replays transactional batches and markers."""

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    known_until: int | None = None
    damage: Damage | None = None

    def run(self, segments: Segments, start_offset: int, last_end: int) -> None:
        for segment in segments.values(start_offset):
            if segment.next_base_offset is None:
                segment = segment.limited_to(last_end)
            next_offset = segment.base_offset
            begin = segment.locate(start_offset)
            for found in segment.walk_in_order(begin):
                try:
                    for batch in _of_transactions(found.batches, start_offset):
                        next_offset = batch[1]
                        self._apply(segment, *batch)
                    if len(found.batches):
                        next_offset = int(found.batches["last_offset"][-1]) + 1
                    if found.error is not None:
                        raise found.error
                except (CorruptDataError, KafkaStorageError) as error:
                    self.known_until, self.damage = next_offset, error
                    return

    def _apply(self, segment: LogSegment, producer: int, base_offset: int, last_offset: int,
               attributes: int, position: int, size: int) -> None:
        if not attributes & ATTRIBUTE_CONTROL:
            self.open.setdefault(producer, base_offset)
            return
        marker = _read_marker(segment, position, size)
        if marker is None:
            return
        first = self.open.pop(producer, None)
        if marker.is_abort and first is not None:
            self.aborted.append((producer, first, last_offset))


_FIELDS = ("producer_id", "base_offset", "last_offset", "attributes", "position", "size")


def _of_transactions(batches: npt.NDArray[np.void], start_offset: int) -> Iterator[tuple[int, ...]]:
    """_FIELDS of the transactional batches and of the markers at or above an offset."""
    marked = batches["attributes"] & (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
    wanted = (marked != 0) & (batches["magic"] >= 2) & (batches["producer_id"] >= 0) & (
        batches["last_offset"] >= start_offset)
    return zip(*(batches[name][wanted].tolist() for name in _FIELDS), strict=True)


def _read_marker(segment: LogSegment, position: int, size: int) -> EndTransactionMarker | None:
    file = segment.files.log
    with segment.opened() as handle:
        return read_marker(lambda at, length: read_at(handle.fd, length, at, file=file),
                           position, size, file=file)
