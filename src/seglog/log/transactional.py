"""What a log tells of its producers and their transactions (Kafka: UnifiedLog)."""

from __future__ import annotations

from dataclasses import dataclass

from seglog.arguments import INT32_MIN, int32, int64, integer
from seglog.log.foundation import LogFoundation
from seglog.log.verification import VerificationGuard
from seglog.model import ProducerStateEntry

__all__ = ["LastRecord", "TransactionalLog"]


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The offset of a producer's last record, None where only a marker is known, and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class TransactionalLog(LogFoundation):
    """The part of a writable log that a transaction coordinator, and whoever looks for transactions
    that hang, talks to. Any thread may; times are ms."""

    @property
    def producer_id_count(self) -> int:
        """Producers that are known; waits for no write."""
        return self.producer_manager.producer_id_count

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether a transaction probably hangs: the earliest one that is open was last written to
        more than `transaction.max.timeout.ms` and five minutes ago. Waits for no write."""
        return self.producer_manager.has_late_transaction(int64("now_ms", now_ms))

    def active_producers(self) -> list[ProducerStateEntry]:
        """All producers that are known, by id: what `kafka-transactions.sh describe-producers`
        shows, the first offset of an open transaction included."""
        with self.lock:
            return list(self.producer_manager.active_producers.values())

    def active_producers_with_last_sequence(self) -> dict[int, int]:
        """The last sequence of each producer, -1 where only a marker is known."""
        return {entry.producer_id: entry.last_sequence for entry in self.active_producers()}

    def last_records_of_active_producers(self) -> dict[int, LastRecord]:
        """The last record of each producer."""
        return {entry.producer_id: LastRecord(
            entry.last_data_offset if entry.last_data_offset >= 0 else None, entry.producer_epoch)
            for entry in self.active_producers()}

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction is open that was begun with exactly this epoch."""
        int64("producer_id", producer_id)
        with self.lock:
            return self.producer_manager.has_ongoing_transaction(producer_id, producer_epoch)

    def maybe_start_transaction_verification(self, producer_id: int, sequence: int, epoch: int,
                                             supports_epoch_bump: bool) -> VerificationGuard:
        """Begins to verify a transaction before its first batch, which is at `sequence` (KIP-890).

        With the guard, and after the coordinator has said yes, `append_as_leader` takes the batch;
        the sentinel says that there is nothing to ask. `supports_epoch_bump`: transactions of
        version 2. Raises InvalidProducerEpochError for an epoch that is over.
        """
        int64("producer_id", producer_id)
        int32("sequence", sequence, INT32_MIN)
        integer("epoch", epoch, -1 << 15, (1 << 15) - 1)
        with self.lock:
            return self.producer_manager.maybe_start_transaction_verification(
                producer_id, sequence, epoch, supports_epoch_bump)

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """The guard of a transaction under verification, else the sentinel."""
        int64("producer_id", producer_id)
        with self.lock:
            return self.producer_manager.verification_guard(producer_id)

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forgets producers that were idle for `producer.id.expiration.ms`, and verifications."""
        int64("now_ms", now_ms)
        with self.lock:
            self.producer_manager.remove_expired(now_ms)

    # ---- snapshots ----------------------------------------------------------------------------

    def take_producer_snapshot(self) -> None:
        """Writes the producers' state at the end of the log onto the medium, unless there is a
        snapshot as new. Raises KafkaStorageError."""
        with self.lock:
            self.check_open()
            self.producer_manager.take_snapshot()

    @property
    def latest_producer_snapshot_offset(self) -> int | None:
        """That of the newest snapshot."""
        with self.lock:
            return self.producer_manager.latest_snapshot_offset

    @property
    def oldest_producer_snapshot_offset(self) -> int | None:
        """That of the oldest snapshot."""
        with self.lock:
            return self.producer_manager.oldest_snapshot_offset

    @property
    def latest_producer_state_end_offset(self) -> int:
        """Up to where the producers' state says what the log says."""
        with self.lock:
            return self.producer_manager.map_end_offset
