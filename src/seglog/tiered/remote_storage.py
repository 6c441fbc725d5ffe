"""The interface of remote storage (KIP-405, Kafka: RemoteStorageManager)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from seglog.tiered.remote_records import RemoteLogSegmentMetadata

__all__ = ["IndexType", "LogSegmentData", "RemoteStorageManager"]


class IndexType(enum.Enum):
    """What is stored beside the log of a segment (Kafka: RemoteStorageManager.IndexType)."""

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
    """Stores segments and gives them back (KIP-405, Kafka: of the same name).

    Calls raise RemoteStorageError, RetriableRemoteStorageError where the same call may succeed
    later, and RemoteResourceNotFoundError for what is not there. Any thread may call.
    """

    def configure(self, properties: Mapping[str, object]) -> None:
        """Takes the settings, without their prefix; `broker.id` is among them."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata,
                              data: LogSegmentData) -> bytes | None:
        """Stores a segment. Returns custom metadata for the metadata topic, or None. A repeated
        call replaces what an earlier one left."""

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> BinaryIO:
        """The log from a byte to another one, inclusive, or to its end."""

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """An index. RemoteResourceNotFoundError for a transaction index that is absent."""

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Deletes a segment; one that is not there is success."""

    def close(self) -> None:
        """Releases everything."""
