"""Plain values that every part of seglog uses, named as in Kafka. Offsets are int64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = [
    "EARLIEST_LOCAL_TIMESTAMP", "EARLIEST_PENDING_UPLOAD_TIMESTAMP", "EARLIEST_TIMESTAMP",
    "LATEST_TIERED_TIMESTAMP", "LATEST_TIMESTAMP", "MAX_TIMESTAMP",
    "AbortedTxn", "BatchMetadata", "CompletedTxn", "EpochEntry",
    "OpenTransaction", "ProducerStateEntry", "TimestampOffset", "TopicPartition",
]

#: Kafka's special values of `offset_for_timestamp` (ListOffsetsRequest).
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; sorts by topic, then by partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampOffset(NamedTuple):
    """A record's timestamp in ms (-1 for a special value) and its offset, and the leader epoch in
    which it was written; None where the epoch is unknown."""

    timestamp: int
    offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int

    def __str__(self) -> str:
        return f"EpochEntry[epoch={self.epoch}, startOffset={self.start_offset}]"


class AbortedTxn(NamedTuple):
    """An aborted transaction, as a transaction index has it (Kafka: AbortedTxn).

    `last_offset` is the offset of the abort marker. `last_stable_offset` is the first offset of
    the earliest transaction of another producer that was open then, or `last_offset` + 1.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def __str__(self) -> str:
        return self.described(0)

    def described(self, version: int) -> str:
        """Kafka's text of an entry of this version."""
        return (f"AbortedTxn(version={version}, producerId={self.producer_id}, "
                f"firstOffset={self.first_offset}, lastOffset={self.last_offset}, "
                f"lastStableOffset={self.last_stable_offset})")


@dataclass(frozen=True, slots=True)
class CompletedTxn:
    """A transaction that ends with the marker at `last_offset` (Kafka: CompletedTxn)."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool

    def to_aborted(self, last_stable_offset: int) -> AbortedTxn:
        """The transaction's entry in a transaction index, given the last stable offset."""
        return AbortedTxn(self.producer_id, self.first_offset, self.last_offset,
                          last_stable_offset)

    def __str__(self) -> str:
        return (f"CompletedTxn[producerId={self.producer_id}, firstOffset={self.first_offset}, "
                f"lastOffset={self.last_offset}, isAborted={str(self.is_aborted).lower()}]")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker yet: all the producer's records since `first_offset`."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """One of a producer's latest batches. `offset_delta` is last offset - base offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """Base offset of the batch."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Base sequence of the batch. Sequences wrap from 2^31 - 1 to 0."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + (1 << 31)


@dataclass(frozen=True, slots=True)
class ProducerStateEntry:
    """The state of one producer id in a partition (Kafka: ProducerStateEntry).

    `batches` holds up to five batches, oldest first; a snapshot keeps only the last.
    `current_txn_first_offset` is None if no transaction is open.
    """

    producer_id: int
    producer_epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    current_txn_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record of the last batch, or -1 if there is no batch."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_data_offset(self) -> int:
        """Offset of the last record of the last batch, or -1 if there is no batch."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        """Last offset - base offset of the last batch, or 0 if there is no batch."""
        return self.batches[-1].offset_delta if self.batches else 0
