"""Tracks aborted transactions while a cleaner walks over a log (Kafka:
CleanedTransactionMetadata)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from seglog.model import AbortedTxn
from seglog.storage.markers import ControlType

__all__ = ["CleanedTransactionMetadata"]


class CleanedTransactionMetadata:
    """The transactions up to the last batch that was passed in.

    `retained` is called with each aborted transaction that a reader still needs: its entry belongs
    in the new transaction index.
    """

    def __init__(self, retained: Callable[[AbortedTxn], None] | None = None) -> None:
        self.retained = retained
        self._ongoing_committed: set[int] = set()
        # By producer: the transaction, and whether a batch of it was seen.
        self._ongoing_aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        self._aborted: list[tuple[int, int, AbortedTxn]] = []

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open and no aborted one is still to come."""
        return not (self._ongoing_committed or self._ongoing_aborted or self._aborted)

    def go_on_from(self, other: CleanedTransactionMetadata) -> None:
        """Takes over the state of another, which began idle at this one's position."""
        self._ongoing_committed, self._ongoing_aborted, self._aborted = (
            other._ongoing_committed, other._ongoing_aborted, other._aborted)

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Adds transactions of later batches. The same one may come with each of its segments."""
        for one in transactions:
            heapq.heappush(self._aborted, (one.first_offset, one.producer_id, one))

    def on_control_batch(self, producer_id: int, last_offset: int,
                         control_type: ControlType | None) -> bool:
        """Handles a control batch, whose first record has this type (None: it is empty). Returns
        whether it can be removed, because no batch of its transaction is left."""
        self.pass_over(last_offset)
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            ended = self._ongoing_aborted.pop(producer_id, None)
            if ended is None or not ended[1]:
                return True
            if self.retained is not None:
                self.retained(ended[0])
            return False
        if control_type is ControlType.COMMIT:
            is_seen = producer_id in self._ongoing_committed
            self._ongoing_committed.discard(producer_id)
            return not is_seen
        return False

    def on_batch(self, producer_id: int, last_offset: int, is_transactional: bool) -> bool:
        """Handles any other batch. Returns whether it is part of an aborted transaction."""
        self.pass_over(last_offset)
        if not is_transactional:
            return False
        aborted = self._ongoing_aborted.get(producer_id)
        if aborted is None:
            self._ongoing_committed.add(producer_id)
            return False
        self._ongoing_aborted[producer_id] = (aborted[0], True)
        return True

    def pass_over(self, offset: int) -> None:
        """Passes over batches up to this offset, none of which is part of a transaction."""
        while self._aborted and self._aborted[0][0] <= offset:
            one = heapq.heappop(self._aborted)[2]
            self._ongoing_aborted.setdefault(one.producer_id, (one, False))
