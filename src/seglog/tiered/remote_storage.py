"""The interface of remote storage (KIP-405, Kafka: RemoteStorageManager)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from seglog.tiered.remote_records import RemoteLogSegmentMetadata

__all__ = ["IndexType", "LogSegmentData", "RemoteStorageManager"]


class IndexType(enum.Enum):
    """The files that are stored beside the log of a segment (Kafka:
    RemoteStorageManager.IndexType)."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leaderEpoch"


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """Paths of the files of a segment, and its leader epochs as a checkpoint's text (Kafka:
    LogSegmentData). `transaction_index` may be absent."""

    log_segment: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot_index: str
    leader_epoch_index: bytes


class RemoteStorageManager(Protocol):
    """Stores and returns segments (KIP-405, Kafka: RemoteStorageManager).

    Calls raise RemoteStorageError, RetriableRemoteStorageError if the same call may succeed later,
    and RemoteResourceNotFoundError for missing objects. Safe from any thread.
    """

    def configure(self, properties: Mapping[str, object]) -> None:
        """Sets the settings, without their prefix; `broker.id` is among them."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata,
                              data: LogSegmentData) -> bytes | None:
        """Stores a segment. Returns custom metadata for the metadata topic, or None. A repeated
        call replaces an earlier one's objects."""

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> BinaryIO:
        """The log from one byte to another, inclusive, or to its end."""

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """An index. Raises RemoteResourceNotFoundError for a transaction index that is absent."""

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Deletes a segment. Succeeds if it does not exist."""

    def close(self) -> None:
        """Releases everything."""
