"""Producer state the slow way: Kafka's rules batch by batch (reference 5.1 to 5.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from seglog.errors import CorruptTxnStateError
from seglog.model import AbortedTxn, BatchMetadata, OpenTransaction, ProducerStateEntry
from seglog.storage.markers import EndTransactionMarker, read_marker
from tests.oracle import batch as v2

TRANSACTIONAL, CONTROL = v2.TRANSACTIONAL, v2.CONTROL


class _Producer:
    """The changeable form of ProducerStateEntry."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self) -> None:
        self.epoch = self.coordinator_epoch = self.last_timestamp = -1
        self.txn_first_offset: int | None = None
        self.batches: deque[tuple[int, int, int, int]] = deque(maxlen=5)

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class SlowProducers:
    """Kafka's ProducerStateManager as far as loading needs it, batch by batch."""

    def __init__(self, entries: Iterable[ProducerStateEntry] = ()) -> None:
        self._producers: dict[int, _Producer] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        for entry in entries:
            self._load(entry)

    def _load(self, entry: ProducerStateEntry) -> None:
        producer = self._producers[entry.producer_id] = _Producer()
        producer.epoch, producer.coordinator_epoch = entry.producer_epoch, entry.coordinator_epoch
        producer.last_timestamp = entry.last_timestamp
        producer.batches.extend((batch.last_sequence, batch.last_offset, batch.offset_delta,
                                 batch.timestamp) for batch in entry.batches)
        producer.txn_first_offset = entry.current_txn_first_offset
        if entry.current_txn_first_offset is not None:
            self._open(entry.producer_id, entry.current_txn_first_offset)

    def _open(self, producer_id: int, first_offset: int) -> None:
        self._ongoing[first_offset] = producer_id

    @property
    def producer_ids(self) -> list[int]:
        """Of all producers, in the order in which they came."""
        return list(self._producers)

    @property
    def entries(self) -> list[ProducerStateEntry]:
        """The state of every producer, by producer id."""
        return [ProducerStateEntry(producer_id, producer.epoch, producer.coordinator_epoch,
                                   producer.last_timestamp, producer.txn_first_offset,
                                   tuple(BatchMetadata(*batch) for batch in producer.batches))
                for producer_id, producer in sorted(self._producers.items())]

    @property
    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions without a marker so far, by first offset."""
        found = [OpenTransaction(producer_id, producer.txn_first_offset)
                 for producer_id, producer in self._producers.items()
                 if producer.txn_first_offset is not None]
        return sorted(found, key=lambda transaction: transaction.first_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not yet replicated."""
        starts = sorted(self._ongoing)[:1]
        if self._unreplicated:
            starts = [*starts, min(self._unreplicated)]
        return min(starts, default=None)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forgets the completed transactions whose marker is below the high watermark."""
        self._unreplicated = {first: last for first, last in self._unreplicated.items()
                              if last >= high_watermark}

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drops producers without a transaction that were idle for `producer.id.expiration.ms`."""
        self._producers = {
            producer_id: producer for producer_id, producer in self._producers.items()
            if producer.txn_first_offset is not None
            or now_ms - producer.last_timestamp < expiration_ms}

    def apply(self, batches: npt.NDArray[np.void],
              read: Callable[[int, int], bytes]) -> list[AbortedTxn]:
        """Applies rows of BATCH_DTYPE one by one; what came before an error is applied."""
        aborted: list[AbortedTxn] = []
        rows = batches[batches["producer_id"] > -1]
        fields = ("base_offset", "last_offset", "max_timestamp", "producer_id", "producer_epoch",
                  "base_sequence", "attributes", "position", "size")
        for (base_offset, last_offset, max_timestamp, producer_id, epoch, sequence, attributes,
             position, size) in zip(*(rows[name].tolist() for name in fields), strict=True):
            if not attributes & CONTROL:
                self.append_data(producer_id, epoch, sequence, base_offset, last_offset,
                                 max_timestamp, bool(attributes & TRANSACTIONAL))
                continue
            marker = read_marker(read, position, size)
            if marker is None:
                self._producers.setdefault(producer_id, _Producer())
                continue
            ended = self.end_transaction(producer_id, epoch, base_offset, marker)
            if ended is not None and marker.is_abort:
                aborted.append(ended)
        return aborted

    def append_data(self, producer_id: int, epoch: int, base_sequence: int, base_offset: int,
                    last_offset: int, max_timestamp: int, is_transactional: bool) -> None:
        producer = self._producers.get(producer_id) or _Producer()
        if producer.txn_first_offset is not None and not is_transactional:
            raise CorruptTxnStateError("plain inside a transaction", code="txn_state")
        self._producers.setdefault(producer_id, producer)
        producer.take_epoch(epoch)
        delta = (last_offset - base_offset + 2**31) % 2**32 - 2**31
        last_sequence = -1 if base_sequence == -1 else v2.add_sequence(base_sequence, delta)
        producer.batches.append((last_sequence, last_offset, delta, max_timestamp))
        producer.last_timestamp = max_timestamp
        if is_transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = base_offset
            self._open(producer_id, base_offset)

    def end_transaction(self, producer_id: int, epoch: int, offset: int,
                        marker: EndTransactionMarker) -> AbortedTxn | None:
        producer = self._producers.setdefault(producer_id, _Producer())
        first_offset = producer.txn_first_offset
        if first_offset is not None and first_offset not in self._ongoing:
            raise CorruptTxnStateError("not started", code="txn_not_started")
        producer.take_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        producer.txn_first_offset = None
        if first_offset is None:
            return None
        stable = next((start for start in sorted(self._ongoing)
                       if self._ongoing[start] != producer_id), offset + 1)
        del self._ongoing[first_offset]
        self._unreplicated[first_offset] = offset
        return AbortedTxn(producer_id, first_offset, offset, stable)
