"""What a read_committed consumer may see of a log that no broker serves.

When Kafka starts, it rebuilds its open transactions from the newest producer snapshot and the
batches after it. It rebuilds the transaction indexes of segments whose offset index is missing or
whose transaction index is invalid. This module does both in memory (Kafka: LogLoader,
ProducerStateManager, TransactionIndex).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from seglog._native.scan import HAS_INDEX
from seglog.arguments import shown
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import AbortedTxn, OpenTransaction
from seglog.storage.markers import EndTransactionMarker, read_marker
from seglog.storage.ranges import LogGap
from seglog.storage.salvage import Salvage
from seglog.storage.segment import LogSegment
from seglog.storage.segments import Segments

__all__ = [
    "ISOLATIONS", "Damage", "Isolation", "TransactionState", "check_isolation",
    "read_transactions",
]

#: Damage that may hide the end of a transaction.
Damage = CorruptDataError | KafkaStorageError

#: The end of a transaction that is left out up to the end of the log.
_OFFSET_MAX = 2**63 - 1

#: Up to which offset a read goes. Consumers: "read_uncommitted" ends at the high watermark,
#: "read_committed" at the last stable offset, without aborted records. Replicas: "log_end". A
#: directory without its broker, and a log inside a program, use the log end as high watermark.
Isolation = Literal["read_uncommitted", "read_committed", "log_end"]
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)


def check_isolation(isolation: str) -> bool:
    """Whether only committed records are requested. Raises ValueError for an unknown level."""
    if isolation not in ISOLATIONS:
        raise ValueError(f"isolation {shown(isolation)} is neither read_uncommitted nor "
                         "read_committed, nor log_end")
    return isolation == "read_committed"


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The transactions of a log.

    `open_transactions` are sorted by first offset. `aborted` has the fields of AbortedTxn, int64
    (n, 4), sorted by last offset. `damage` stopped the walk at or after `known_until`; no record
    after that offset is known to be committed.

    A reader that skips damage has no `damage` but `in_doubt`: transactions that were open when
    their marker may have been lost, and whose producer wrote no other marker. They count as
    aborted.
    """

    open_transactions: tuple[OpenTransaction, ...]
    aborted: npt.NDArray[np.int64]
    known_until: int | None = None
    damage: Damage | None = None
    in_doubt: tuple[OpenTransaction, ...] = ()

    def gaps(self, path: str) -> Iterator[LogGap]:
        """The gaps that the transactions in doubt leave in directory `path`."""
        for transaction in self.in_doubt:
            yield LogGap(
                "transaction_in_doubt", path, 0, 0, first_offset=transaction.first_offset,
                cause=f"the end of a transaction of producer {transaction.producer_id} may be "
                      f"among the damaged batches; its records are left out")

    def last_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """The first offset whose transaction is undecided, or the log end offset."""
        stable = log_end_offset
        if self.open_transactions:
            stable = min(stable, self.open_transactions[0].first_offset)
        if self.known_until is not None:
            stable = min(stable, self.known_until)
        return max(stable, log_start_offset)

    def aborted_between(self, start_offset: int, end_offset: int
                        ) -> tuple[AbortedTxn, ...]:
        """The aborted transactions that may have records in `[start_offset, end_offset)`."""
        return tuple(map(AbortedTxn._make, self._between(start_offset, end_offset).tolist()))

    def aborted_ranges(self, start_offset: int, end_offset: int
                       ) -> tuple[tuple[int, int, int], ...]:
        """The same for a LogRange: (producer id, first offset, last offset)."""
        return tuple(map(tuple, self._between(start_offset, end_offset)[:, :3].tolist()))

    def _between(self, start_offset: int, end_offset: int) -> npt.NDArray[np.int64]:
        return self.aborted[(self.aborted[:, 2] >= start_offset)
                            & (self.aborted[:, 1] < end_offset)]


def read_transactions(segments: Segments, snapshots: Iterable[tuple[int, dict[int, int]]],
                      last_end: int, survey: Callable[[LogSegment], Salvage] | None = None
                      ) -> TransactionState:
    """The state at the end of the log.

    `snapshots` yields (offset, first offset of the open transaction by producer id) of the usable
    producer snapshots, newest first; only as many as needed are read. `survey` finds the sound
    batches of a segment, to skip the rest.
    """
    aborted, first_distrusted = _read_indexes(segments)
    walk, start = _Walk(), 0
    for offset, open_transactions in snapshots:
        if first_distrusted is None or offset <= first_distrusted:
            start, walk.open = offset, dict(open_transactions)
            break
    if survey is None:
        walk.run(segments, start, last_end)
    else:
        walk.run_over_damage(segments, start, survey, aborted)
    in_doubt = tuple(OpenTransaction(producer, walk.open.pop(producer))
                     for producer in sorted(walk.doubtful & walk.open.keys()))
    walk.aborted += [(transaction.producer_id, transaction.first_offset, _OFFSET_MAX, _OFFSET_MAX)
                     for transaction in in_doubt]
    found = np.concatenate([aborted, np.array(walk.aborted, np.int64).reshape(-1, 4)])
    _, rows = np.unique(found[:, :3], axis=0, return_index=True)  # both may yield an entry
    found = found[rows]
    return TransactionState(
        tuple(sorted((OpenTransaction(producer, first) for producer, first in walk.open.items()),
                     key=lambda transaction: transaction.first_offset)),
        found[found[:, 2].argsort(kind="stable")], walk.known_until, walk.damage, in_doubt)


def _read_indexes(segments: Segments) -> tuple[npt.NDArray[np.int64], int | None]:
    """Entries of all valid transaction indexes, and the first segment that Kafka would rebuild."""
    parts = [np.empty((0, 4), np.int64)]
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
    """None if an entry is impossible: its marker would lie outside of the segment."""
    assert segment.files.txn_index is not None
    try:
        entries = segment.where.aborted(segment.files.txn_index)
    except (CorruptDataError, KafkaStorageError):
        return None
    rows = np.stack([entries[name] for name in AbortedTxn._fields], axis=1)
    sound = (rows[:, 2] >= segment.base_offset) & (rows[:, 1] <= rows[:, 2]) & (rows[:, 1] >= 0)
    if segment.next_base_offset is not None:
        sound &= rows[:, 2] < segment.next_base_offset
    return rows if sound.all() else None


@dataclass(slots=True)
class _Walk:
    """Replays transactional batches and markers."""

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    known_until: int | None = None
    damage: Damage | None = None
    doubtful: set[int] = field(default_factory=set)

    def run_over_damage(self, segments: Segments, start_offset: int,
                        survey: Callable[[LogSegment], Salvage],
                        known: npt.NDArray[np.int64]) -> None:
        """As `run`, across every gap. `known` are the aborted transactions of the indexes."""
        for segment in segments.values(start_offset):
            try:
                found = survey(segment)
            except KafkaStorageError:
                following = segment.next_base_offset
                self._doubt(segment.base_offset,
                            None if following is None else following - 1, known)
                continue
            gaps = [gap for gap in found.gaps
                    if gap.last_offset is None or gap.last_offset >= start_offset]
            for start, end in found.spans:
                while gaps and gaps[0].position < start:
                    gap = gaps.pop(0)
                    self._doubt(gap.first_offset, gap.last_offset, known)
                self._run_span(segment, start, end, start_offset, known)
            for gap in gaps:
                self._doubt(gap.first_offset, gap.last_offset, known)

    def _run_span(self, segment: LogSegment, start: int, end: int, start_offset: int,
                  known: npt.NDArray[np.int64]) -> None:
        for found in segment.walk(start, end):
            for batch in _of_transactions(found.batches, start_offset):
                try:
                    self._apply(segment, *batch)
                except (CorruptDataError, KafkaStorageError):
                    self._doubt(batch[1], batch[2], known)

    def _doubt(self, first_offset: int | None, last_offset: int | None,
               known: npt.NDArray[np.int64]) -> None:
        """Puts open transactions in doubt whose marker may be among these offsets, unless it is
        known."""
        lost = known[:, 2] >= (first_offset or 0)
        if last_offset is not None:
            lost &= known[:, 2] <= last_offset
        for producer in known[lost][:, 0].tolist():
            self.open.pop(producer, None)
        self.doubtful |= self.open.keys()

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
        self.doubtful.discard(producer)
        if marker.is_abort and first is not None:
            stable = min(self.open.values(), default=min(last_offset, _OFFSET_MAX - 1) + 1)
            self.aborted.append((producer, first, last_offset, stable))


_FIELDS = ("producer_id", "base_offset", "last_offset", "attributes", "position", "size")


def _of_transactions(batches: npt.NDArray[np.void], start_offset: int) -> Iterator[tuple[int, ...]]:
    """Yields _FIELDS of the transactional batches and of the markers at or above an offset."""
    marked = batches["attributes"] & (ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
    wanted = (marked != 0) & (batches["magic"] >= 2) & (batches["producer_id"] >= 0) & (
        batches["last_offset"] >= start_offset)
    return zip(*(batches[name][wanted].tolist() for name in _FIELDS), strict=True)


def _read_marker(segment: LogSegment, position: int, size: int) -> EndTransactionMarker | None:
    file = segment.files.log
    with segment.opened() as handle:
        return read_marker(lambda at, length: handle.read(length, at), position, size, file=file)
