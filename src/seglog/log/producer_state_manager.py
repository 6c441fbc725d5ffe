"""Producer state of a writable log (Kafka: ProducerStateManager, ProducerAppendInfo).

C validates an append (csrc/include/seglog/producers.h, the span), on the same table that a load
fills from the log. This module turns its verdicts into Kafka's exceptions. The caller holds the
lock of the log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CONTROL
from seglog._native.fetch import LogOffsetMetadata
from seglog._native.producers import Origin, Verdict
from seglog.errors import (
    IllegalArgumentError, InvalidProducerEpochError, InvalidTxnStateError,
    OutOfOrderSequenceError, SeglogError, TransactionCoordinatorFencedError,
)
from seglog.log.append_info import AppendOrigin
from seglog.log.verification_guard import VerificationGuard, VerificationStateEntry, next_guard
from seglog.model import BatchMetadata, CompletedTxn, ProducerStateEntry, TopicPartition
from seglog.recovery.loading_producers import LoadingProducers
from seglog.recovery.snapshot_files import Snapshots
from seglog.storage.codecs import Buffer
from seglog.storage.markers import EndTransactionMarker, as_thrown, parse_marker
from seglog.storage.producer_state import expected_transactional, not_started

__all__ = [
    "LATE_TRANSACTION_BUFFER_MS", "TV_UNKNOWN", "ProducerAnalysis", "ProducerStateManager",
    "ProducerStateManagerConfig",
]

#: A transaction is late if it is open for longer than its timeout plus this.
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
#: The transaction version of an append that does not give one.
TV_UNKNOWN: Final = -1

_logger = logging.getLogger("seglog.ProducerStateManager")


@dataclass(frozen=True, slots=True)
class ProducerStateManagerConfig:
    """Settings of all logs of a broker."""

    #: `producer.id.expiration.ms`; None keeps idle producers for ever
    producer_id_expiration_ms: int | None = 86_400_000
    #: `transaction.partition.verification.enable`
    transaction_verification_enabled: bool = True
    #: `transaction.max.timeout.ms`
    max_transaction_timeout_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class ProducerAnalysis:
    """The changes that an append would make to the producers' state; `ProducerStateManager.update`
    makes them.

    `completed_txns` are in the order of their markers. If there is a `duplicate`, the batch is
    already in the log and must not be written.
    """

    completed_txns: tuple[CompletedTxn, ...] = ()
    duplicate: BatchMetadata | None = None
    span: int = 0


class ProducerStateManager(LoadingProducers):
    """The producers of a partition, their transactions, and the snapshots of both on disk."""

    def __init__(self, topic_partition: TopicPartition, snapshots: Snapshots,
                 config: ProducerStateManagerConfig, clock: Callable[[], int]) -> None:
        super().__init__(topic_partition, snapshots, config.producer_id_expiration_ms, clock)
        self.config = config

    @classmethod
    def after_load(cls, loaded: LoadingProducers, config: ProducerStateManagerConfig,
                   clock: Callable[[], int]) -> ProducerStateManager:
        """Takes over the state after a load; the other object must not be used any more."""
        loaded.snapshots.adopt()
        made = cls(loaded.topic_partition, loaded.snapshots, config, clock)
        made.state, made.last_snapshot = loaded.state, loaded.last_snapshot
        return made

    # ---- what is known ------------------------------------------------------------------------

    @property
    def map_end_offset(self) -> int:
        """The end of the part of the log that the state describes."""
        return self.state.map_end_offset

    def update_map_end_offset(self, offset: int) -> None:
        """Sets the end, also after an append without producers: a snapshot has that offset."""
        self.state.map_end_offset = offset

    @property
    def producer_id_count(self) -> int:
        """The number of known producers."""
        return len(self.state.table)

    @property
    def active_producers(self) -> dict[int, ProducerStateEntry]:
        """All producers by their ids."""
        return {entry.producer_id: entry for entry in self.state.entries}

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        """The state of one producer; None if it is unknown."""
        return self.state.find(producer_id)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of exactly this epoch is open."""
        entry = self.last_entry(producer_id)
        return (entry is not None and entry.current_txn_first_offset is not None
                and entry.producer_epoch == producer_epoch)

    @property
    def first_unstable_offset(self) -> LogOffsetMetadata | None:
        """The first offset of the earliest transaction that is open, or ended and is not replicated
        yet."""
        found = self.state.table.first_unstable()
        return None if found is None else LogOffsetMetadata(*found)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Marks ended transactions as replicated whose marker is below the high watermark."""
        self.state.table.replicated(high_watermark)

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the earliest open transaction was last written to longer ago than any transaction
        may take: it probably hangs. Needs no lock."""
        last = self.state.table.oldest_txn_timestamp()
        return last > 0 and (now_ms - last > self.config.max_transaction_timeout_ms
                             + LATE_TRANSACTION_BUFFER_MS)

    def remove_expired(self, now_ms: int) -> None:
        """Removes producers without an open transaction, and verifications, that are older than
        `producer.id.expiration.ms`."""
        if self.expiration_ms is not None:
            self.state.table.expire(now_ms, self.expiration_ms)

    # ---- verification of transactions ---------------------------------------------------------

    def maybe_start_transaction_verification(
            self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool,
            ) -> VerificationGuard:
        """The guard of a transaction that has to be verified before its first batch; the sentinel
        if it is open already. Raises InvalidProducerEpochError."""
        entry = self.last_entry(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise stale_epoch(producer_id, epoch, entry.producer_epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return VerificationGuard.SENTINEL
        # The entry records the lowest sequence of the highest epoch.
        return _verification(self.state.table.verify(
            producer_id, self.clock(), next_guard(), sequence, epoch, supports_epoch_bump,
            )).verification_guard

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """The guard of a producer's entry, the sentinel if there is none."""
        entry = self.verification_state_entry(producer_id)
        return VerificationGuard.SENTINEL if entry is None else entry.verification_guard

    def verification_state_entry(self, producer_id: int) -> VerificationStateEntry | None:
        """The entry of a producer, if there is one."""
        found = self.state.table.verification(producer_id)
        return None if found is None else _verification(found)

    # ---- appends ------------------------------------------------------------------------------

    def analyze(self, batches: npt.NDArray[np.void], records: Buffer, *, origin: AppendOrigin,
                segment_base_offset: int = -1, position: int = -1,
                transaction_version: int = TV_UNKNOWN,
                verification_guard: VerificationGuard | None = None,
                ) -> ProducerAnalysis:
        """Validates batches that are about to be appended (Kafka: analyzeAndValidateProducerState).

        `batches` are rows of BATCH_DTYPE with their final offsets and timestamps. Their `position`
        counts from the beginning of `records`, their bytes, which will be written at byte
        `position` of the segment `segment_base_offset`. Changes only verifications: the first batch
        of their transaction uses them up, even if a later one is refused.

        Raises InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError,
        TransactionCoordinatorFencedError, IllegalArgumentError (a marker without transaction
        version), and for an invalid control batch InvalidRecordError, IllegalArgumentError or
        UncheckedError.
        """
        data = memoryview(records).cast("B")
        batches = np.ascontiguousarray(batches)
        table, number = self.state.table, Origin[origin.name]
        guard = -1
        if self.config.transaction_verification_enabled:
            guard = (verification_guard or VerificationGuard.SENTINEL).value
        span = table.begin()
        verdict = int(Verdict.MARKER)
        try:
            while verdict == Verdict.MARKER:
                row, verdict, known, coordinator_epoch = table.check(
                    batches, data, number, transaction_version, guard, segment_base_offset,
                    position)
                if verdict == Verdict.MARKER:
                    marker = _parse(batches[row], data)
                    row, verdict, known, coordinator_epoch = table.check_marker(
                        batches, number, transaction_version,
                        *((0, 0, False, True) if marker is None else
                          (marker.coordinator_epoch, marker.timestamp, marker.is_abort)))
                    verdict = Verdict.MARKER if verdict == Verdict.OK else verdict
        finally:
            table.drop_verified()
            self._tell(batches, transaction_version)
        if verdict == Verdict.DUPLICATE:
            return ProducerAnalysis(duplicate=BatchMetadata(*table.duplicate()))
        if verdict != Verdict.OK:
            raise self._refusal(Verdict(verdict), batches[row], known, coordinator_epoch, origin,
                                transaction_version)
        return ProducerAnalysis(tuple(CompletedTxn(*txn) for txn in table.completed()), span=span)

    def is_due(self, analysis: ProducerAnalysis) -> bool:
        """Whether `update` can still apply an append."""
        return analysis.span == self.state.table.spans

    def update(self, analysis: ProducerAnalysis) -> None:
        """Applies an append to the producers, once it is written. Transactions that it ends stay
        open until `complete_txn`."""
        if not self.is_due(analysis):
            raise ValueError("an analysis is good until the next one, and once")
        self.state.table.commit()

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """The last stable offset after this transaction ends, which the transaction index
        records."""
        return self.state.table.last_stable_offset(completed.producer_id, completed.last_offset)

    def complete_txn(self, completed: CompletedTxn) -> None:
        """Ends a transaction; it counts as unstable until the high watermark has passed it.

        Raises IllegalArgumentError if it is not open.
        """
        if not self.state.table.complete_txn(completed.first_offset, completed.last_offset):
            raise IllegalArgumentError(not_started(self.topic_partition, completed))

    def _epoch_text(self, batch: np.void, known: int, version: int) -> str:
        is_marker = bool(batch["attributes"] & ATTRIBUTE_CONTROL)
        version = max(version, 0) if is_marker else TV_UNKNOWN
        return (f"Epoch of producer {batch['producer_id']} at offset {batch['base_offset']} in "
                f"{self.topic_partition} is {batch['producer_epoch']}, which is "
                f"{'<=' if version >= 2 else '<'} the last seen epoch {known} (TV{version})")

    def _tell(self, batches: npt.NDArray[np.void], transaction_version: int) -> None:
        """Logs what Kafka logs about batches that it accepts."""
        for row, verdict, known, coordinator_epoch in self.state.table.notes():
            batch = batches[row]
            if verdict == Verdict.EPOCH:
                _logger.warning("%s", self._epoch_text(batch, known, transaction_version))
            elif verdict == Verdict.COORDINATOR_EPOCH:
                _logger.info("Detected invalid coordinator epoch for producerId %s at offset %s in "
                             "partition %s: %s is older than previously known coordinator epoch %s",
                             batch["producer_id"], batch["base_offset"], self.topic_partition,
                             coordinator_epoch, known)
            else:
                _logger.info("Idempotent transaction marker retry detected for producer %s epoch "
                             "%s. Transaction already completed, allowing duplicate marker write.",
                             batch["producer_id"], batch["producer_epoch"])

    def _refusal(self, verdict: Verdict, batch: np.void, known: int, coordinator_epoch: int,
                 origin: AppendOrigin, transaction_version: int) -> SeglogError:
        producer_id, epoch = batch["producer_id"], batch["producer_epoch"]
        where = f"at offset {batch['base_offset']} in partition {self.topic_partition}"
        if verdict is Verdict.TXN_EPOCH:
            return stale_epoch(producer_id, epoch, known)
        if verdict is Verdict.EPOCH:
            return InvalidProducerEpochError(self._epoch_text(batch, known, transaction_version))
        if verdict is Verdict.UNVERIFIED:
            return InvalidTxnStateError("Record was not part of an ongoing transaction")
        if verdict is Verdict.TXN_STATE:
            return InvalidTxnStateError(expected_transactional(self.topic_partition, batch))
        if verdict is Verdict.TXN_VERSION:
            return IllegalArgumentError(
                "transactionVersion must be explicitly specified, cannot use default value "
                f"TV_UNKNOWN for origin {origin.value}")
        if verdict is Verdict.COORDINATOR_EPOCH:
            return TransactionCoordinatorFencedError(
                f"Invalid coordinator epoch for producerId {producer_id} {where}: "
                f"{coordinator_epoch} (zombie), {known} (current)")
        sequence = batch["base_sequence"]
        if verdict is Verdict.SEQUENCE_EPOCH:
            return OutOfOrderSequenceError(  # the missing blank is Kafka's
                f"Invalid sequence number for new epoch of producer {producer_id}{where}: {epoch} "
                f"(request epoch), {sequence} (seq. number), {known} (current producer epoch)")
        if verdict is Verdict.SEQUENCE_FIRST:
            return OutOfOrderSequenceError(
                f"Invalid sequence number for producer {producer_id} {where}: {sequence} (incoming "
                "seq. number). Expected sequence 0 for transactions v2 idempotent producer with no "
                "existing state.")
        last = ("current end sequence number" if verdict is Verdict.SEQUENCE
                else "earliest seen sequence")
        return OutOfOrderSequenceError(
            f"Out of order sequence number for producer {producer_id} {where}: {sequence} "
            f"(incoming seq. number), {known} ({last})")

    # ---- snapshots ----------------------------------------------------------------------------

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Writes the state at its end to disk, unless that snapshot exists. Returns the file's name
        if it was written; without `sync` it may be lost. Raises KafkaStorageError."""
        return super().take_snapshot(sync=sync)

    @property
    def latest_snapshot_offset(self) -> int | None:
        """The offset of the newest snapshot on disk."""
        return self.snapshots.offsets[-1] if self.snapshots.offsets else None

    @property
    def oldest_snapshot_offset(self) -> int | None:
        """The offset of the oldest snapshot on disk."""
        return self.snapshots.offsets[0] if self.snapshots.offsets else None

    def fetch_snapshot(self, offset: int) -> str | None:
        """The path of the snapshot at an offset."""
        if offset not in self.snapshots.names:
            return None
        return os.path.join(self.snapshots.disk.path, self.snapshots.names[offset])

    def restart_with(self, offset: int, snapshot: bytes, entries: Sequence[ProducerStateEntry]
                     ) -> None:
        """Continues with a snapshot of another replica, which is stored, at its `offset`. Producers
        that have expired are left out, as at a load. Raises KafkaStorageError."""
        self.snapshots.adopt_content(offset, snapshot)
        self._restart(offset, entries)


def stale_epoch(producer_id: int, epoch: int, known: int) -> InvalidProducerEpochError:
    """The error for a producer of an older epoch that would begin a transaction."""
    return InvalidProducerEpochError(f"Epoch of producer {producer_id} is {epoch}, which is "
                                     f"smaller than the last seen epoch {known}")


def _verification(fields: tuple[int, int, int, int, bool]) -> VerificationStateEntry:
    timestamp, guard, lowest_sequence, epoch, supports_epoch_bump = fields
    return VerificationStateEntry(timestamp, VerificationGuard(guard), lowest_sequence, epoch,
                                  supports_epoch_bump)


def _parse(batch: np.void, data: memoryview) -> EndTransactionMarker | None:
    """Parses a marker that differs from the form in which Kafka writes them."""
    position, size = int(batch["position"]), int(batch["size"])
    if not 0 <= position <= position + size <= len(data):
        raise ValueError("a batch that is not within the records")
    with as_thrown():
        return parse_marker(data[position:position + size])
