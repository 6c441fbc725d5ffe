"""The interface of a manager of remote log metadata (Kafka: RemoteLogMetadataManager)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from seglog.tiered.remote_records import (
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata,
    TopicIdPartition,
)

__all__ = ["BrokerReadyCallback", "RemoteLogMetadataManager"]


@runtime_checkable
class BrokerReadyCallback(Protocol):
    """Is called when the broker serves requests (KIP-1197)."""

    def on_broker_ready(self) -> None:
        """The broker serves requests."""


class RemoteLogMetadataManager(Protocol):
    """Stores and finds the metadata of remote segments (KIP-405, Kafka: RemoteLogMetadataManager).

    The future of a write completes when every later lookup sees the write. Calls raise
    RemoteStorageError, and RetriableRemoteStorageError or ReplicaNotAvailableError if the same call
    may succeed later.
    """

    def configure(self, properties: Mapping[str, object]) -> None:
        """Sets the settings, without their prefix, including `broker.id` and `cluster.id`."""

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        """Writes the first event of a segment. Raises IllegalArgumentError for a state other than
        COPY_SEGMENT_STARTED."""

    def update_remote_log_segment_metadata(
            self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        """Writes a later event of a segment. Raises IllegalArgumentError for
        COPY_SEGMENT_STARTED."""

    def put_remote_partition_delete_metadata(
            self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        """Writes an event of the deletion of a partition."""

    def remote_log_segment_metadata(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """The copied segment that holds an offset of a leader epoch."""

    def next_segment_with_txn_index(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment of an epoch from an offset on that may have aborted transactions."""

    def highest_offset_for_epoch(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> int | None:
        """The greatest offset of an epoch that was ever copied."""

    def list_all_remote_log_segments(self, partition: TopicIdPartition
                                     ) -> list[RemoteLogSegmentMetadata]:
        """Every segment that is not deleted, unordered."""

    def list_remote_log_segments(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> list[RemoteLogSegmentMetadata]:
        """The segments of an epoch by start offset, including those that are being copied or
        deleted."""

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """Bytes of the segments of an epoch."""

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether the metadata of a partition is complete."""

    def on_partition_leadership_changes(self, leaders: Collection[TopicIdPartition],
                                        followers: Collection[TopicIdPartition]) -> None:
        """Follows these partitions from now on."""

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """Stops following them."""

    def close(self) -> None:
        """Ends everything. A second call does nothing."""
