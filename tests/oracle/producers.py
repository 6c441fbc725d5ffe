"""Producer state the slow way: Kafka's rules batch by batch.

`SlowProducers` applies a log (ProducerAppendInfo); `SlowAppends` validates batches before an append
(UnifiedLog.analyzeAndValidateProducerState).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy

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


class Refused(Exception):
    """Kafka's exception by the beginning of its name, and a number that its text bears."""


class _Verification:
    """A transaction that is verified before its first batch."""

    def __init__(self, guard: int, sequence: int, epoch: int, bump: bool) -> None:
        self.guard, self.lowest, self.epoch, self.bump = guard, sequence, epoch, bump


class SlowAppends(SlowProducers):
    """Kafka's producer state of a live log; batches are those of tests.oracle.batch."""

    def __init__(self, verification: bool = False) -> None:
        super().__init__()
        self.verification = verification
        self.verifications: dict[int, _Verification] = {}

    def verify(self, producer_id: int, guard: int, sequence: int, epoch: int, bump: bool) -> int:
        """maybeStartTransactionVerification: the guard, 0 where there is nothing to verify."""
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise Refused("InvalidProducerEpoch", known.epoch)
        if known is not None and known.txn_first_offset is not None and known.epoch == epoch:
            return 0
        entry = self.verifications.setdefault(
            producer_id, _Verification(guard, sequence, epoch, bump))
        if epoch == entry.epoch:
            entry.lowest = min(entry.lowest, sequence)
        elif epoch > entry.epoch:
            entry.epoch, entry.lowest = epoch, sequence
        return entry.guard

    def append(self, batches: list[v2.Batch], origin: str, version: int, guard: int,
               ) -> tuple[int, int] | list[AbortedTxn]:
        """The offsets of the batch that the append repeats, or the transactions that it ended, each
        as the transaction index would have it; Refused changes nothing but verifications."""
        captured = dict(self.verifications)
        ended: list[tuple[int, int, int, bool]] = []
        changed: dict[int, _Producer] = {}
        for batch in batches:
            known = self._producers.get(batch.producer_id)
            if batch.producer_id < 0:
                continue
            if origin == "CLIENT" and known is not None:
                repeated = self._repeated(known, batch)
                if repeated is not None:
                    return repeated
            if origin in ("CLIENT", "COORDINATOR") and batch.is_transactional:
                self._check_begin(known, batch, guard)
            if batch.producer_id not in changed:
                changed[batch.producer_id] = made = deepcopy(known) or _Producer()
                made.batches.clear()
            producer = changed[batch.producer_id]
            if not batch.is_control:
                self._check_data(batch, known or _Producer(), producer, origin,
                                 captured.get(batch.producer_id))
            elif batch.records:
                done = self._check_marker(batch, producer, origin, version)
                ended += [done] if done else []
            entry = self.verifications.get(batch.producer_id)
            if batch.is_transactional and entry is not None and not (
                    entry.bump and batch.is_control and batch.producer_epoch == entry.epoch):
                del self.verifications[batch.producer_id]
        return self._take(changed, ended)

    @staticmethod
    def _repeated(known: _Producer, batch: v2.Batch) -> tuple[int, int] | None:
        last = v2.add_sequence(batch.base_sequence, batch.last_offset_delta)
        for sequence, offset, delta, _ in known.batches:
            first = (sequence - delta) % 2**31
            if known.epoch == batch.producer_epoch and (first, sequence) == (
                    batch.base_sequence, last):
                return offset - delta, offset
        return None

    def _check_begin(self, known: _Producer | None, batch: v2.Batch, guard: int) -> None:
        if known is not None and known.txn_first_offset is not None \
                and known.epoch == batch.producer_epoch:
            return
        if known is not None and batch.producer_epoch < known.epoch:
            raise Refused("InvalidProducerEpoch", known.epoch)
        entry = self.verifications.get(batch.producer_id)
        if self.verification and not batch.is_control and not (
                guard and entry is not None and entry.guard == guard):
            raise Refused("InvalidTxnState", None)

    def _check_data(self, batch: v2.Batch, known: _Producer, producer: _Producer, origin: str,
                    verified: _Verification | None) -> None:
        epoch, sequence = batch.producer_epoch, batch.base_sequence
        if epoch < producer.epoch and origin != "REPLICATION":
            raise Refused("InvalidProducerEpoch", producer.epoch)
        if origin == "CLIENT":
            if verified and verified.bump and sequence and not known.batches:
                raise Refused("OutOfOrderSequence", sequence)
            if verified and sequence > verified.lowest:
                raise Refused("OutOfOrderSequence", verified.lowest)
            if epoch != producer.epoch:
                if sequence and producer.epoch != -1:
                    raise Refused("OutOfOrderSequence", producer.epoch)
            elif known.epoch != -1:
                seen = producer.batches or (known.batches if epoch == known.epoch else ())
                last = seen[-1][0] if seen else -1
                if sequence != last + 1 and not (sequence == 0 and last == v2.MAX_SEQUENCE):
                    raise Refused("OutOfOrderSequence", last)
        if producer.txn_first_offset is not None and not batch.is_transactional:
            raise Refused("InvalidTxnState", batch.base_offset)
        producer.take_epoch(epoch)
        producer.batches.append((
            -1 if sequence == -1 else v2.add_sequence(sequence, batch.last_offset_delta),
            batch.last_offset, batch.last_offset_delta, batch.max_timestamp))
        producer.last_timestamp = batch.max_timestamp
        if batch.is_transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = batch.base_offset

    @staticmethod
    def _check_marker(batch: v2.Batch, producer: _Producer, origin: str,
                      version: int) -> tuple[int, int, int, bool] | None:
        marker = read_marker(lambda position, size: v2.encode(batch), 0, 2**20)
        assert marker is not None
        epoch, first = batch.producer_epoch, producer.txn_first_offset
        if version < 0 and origin != "REPLICATION":
            raise Refused("IllegalArgument", None)
        is_old = epoch <= producer.epoch if version >= 2 else epoch < producer.epoch
        is_again = version >= 2 and epoch == producer.epoch and (first is None or epoch == 32767)
        if origin != "REPLICATION":
            if is_old and not is_again:
                raise Refused("InvalidProducerEpoch", producer.epoch)
            if marker.coordinator_epoch < producer.coordinator_epoch:
                raise Refused("TransactionCoordinatorFenced", producer.coordinator_epoch)
        producer.take_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp, producer.txn_first_offset = marker.timestamp, None
        return None if first is None else (
            batch.producer_id, first, batch.base_offset, marker.is_abort)

    def _take(self, changed: dict[int, _Producer],
              ended: list[tuple[int, int, int, bool]]) -> list[AbortedTxn]:
        for producer_id, made in changed.items():
            producer = self._producers.setdefault(producer_id, _Producer())
            producer.take_epoch(made.epoch)
            producer.batches.extend(made.batches)
            producer.coordinator_epoch = made.coordinator_epoch
            producer.last_timestamp = made.last_timestamp
            producer.txn_first_offset = made.txn_first_offset
            # A transaction that began and ended in this append was open, too.
            for first in [done[1] for done in ended if done[0] == producer_id]:
                self._open(producer_id, first)
            if made.txn_first_offset is not None:
                self._open(producer_id, made.txn_first_offset)
        answer = []
        for producer_id, first, marker_offset, _ in ended:
            stable = next((start for start in sorted(self._ongoing)
                           if self._ongoing[start] != producer_id), marker_offset + 1)
            del self._ongoing[first]
            self._unreplicated[first] = marker_offset
            answer.append(AbortedTxn(producer_id, first, marker_offset, stable))
        return answer
