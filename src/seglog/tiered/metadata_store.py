"""The remote segments of many partitions (KIP-405, Kafka: RemotePartitionMetadataStore)."""

from __future__ import annotations

import logging

from seglog.errors import (
    IllegalArgumentError, IllegalStateError, RemoteResourceNotFoundError, ReplicaNotAvailableError,
)
from seglog.tiered.metadata_cache import RemoteLogMetadataCache
from seglog.tiered.remote_records import (
    RemoteLogMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition,
)
from seglog.tiered.segment_states import RemotePartitionDeleteState

__all__ = ["RemotePartitionMetadataStore"]

_logger = logging.getLogger("seglog.RemotePartitionMetadataStore")

_WAIT_SECONDS = 0.1


class RemotePartitionMetadataStore:
    """One cache a partition, and the events of all (KIP-405, Kafka: RemotePartitionMetadataStore).

    Call `maybe_load_partition` before the first event of a partition. Lookups raise
    RemoteResourceNotFoundError if the partition is not loaded, and ReplicaNotAvailableError (which
    is retriable) if it is not initialized within 100 ms.
    """

    def __init__(self) -> None:
        self._caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}

    # ---- events

    def handle_remote_log_metadata(self, metadata: RemoteLogMetadata) -> None:
        """Applies one record of the metadata topic.

        Raises IllegalStateError for a segment of a partition that is not loaded, and
        IllegalArgumentError for a snapshot and for events that the cache refuses. The update of an
        unknown segment is logged and dropped, as in Kafka.
        """
        if isinstance(metadata, RemoteLogSegmentMetadata):
            self._loaded(metadata.topic_id_partition).add_copy_in_progress_segment(metadata)
        elif isinstance(metadata, RemoteLogSegmentMetadataUpdate):
            cache = self._loaded(metadata.topic_id_partition)
            try:
                cache.update_remote_log_segment_metadata(metadata)
            except RemoteResourceNotFoundError as error:
                _logger.warning("Error occurred while updating the remote log segment. %s", error)
        elif isinstance(metadata, RemotePartitionDeleteMetadata):
            if metadata.state == RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
                self._caches.pop(metadata.topic_id_partition, None)
        else:
            raise IllegalArgumentError(f"remoteLogMetadata: {metadata} is not supported.")

    def maybe_load_partition(self, partition: TopicIdPartition) -> None:
        """Creates an empty cache unless the partition has one."""
        if partition not in self._caches:
            self._caches.setdefault(partition, RemoteLogMetadataCache(partition))

    def clear_topic_partition(self, partition: TopicIdPartition) -> None:
        """Drops the cache of a partition."""
        self._caches.pop(partition, None)

    def mark_initialized(self, partition: TopicIdPartition) -> None:
        """Marks a partition as complete. Raises IllegalStateError if it is not loaded."""
        self._loaded(partition).mark_initialized()

    def is_initialized(self, partition: TopicIdPartition) -> bool:
        """Whether every event of a partition is known."""
        cache = self._caches.get(partition)
        return cache is not None and cache.is_initialized

    def _loaded(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        cache = self._caches.get(partition)
        if cache is None:
            raise IllegalStateError(f"No partition metadata found for : {partition}")
        return cache

    # ---- answers

    @property
    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """The loaded partitions, in order of their topic ids."""
        return tuple(sorted(self._caches))

    def remote_log_segment_metadata(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """The copied segment that holds an offset of a leader epoch."""
        return self._ready(partition).remote_log_segment_metadata(leader_epoch, offset)

    def next_segment_with_txn_index(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment of an epoch from an offset on that may have aborted transactions."""
        return self._ready(partition).next_segment_with_txn_index(leader_epoch, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> int | None:
        """The greatest offset of an epoch that was ever copied."""
        return self._ready(partition).highest_offset_for_epoch(leader_epoch)

    def list_all_remote_log_segments(self, partition: TopicIdPartition
                                     ) -> list[RemoteLogSegmentMetadata]:
        """Every segment of a partition that is not deleted, in no order."""
        return self._ready(partition).list_all_remote_log_segments()

    def list_remote_log_segments(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> list[RemoteLogSegmentMetadata]:
        """The segments of an epoch by start offset, including those that are being copied or
        deleted.

        Raises RemoteResourceNotFoundError also if one of them is known by its id alone.
        """
        return self._ready(partition).list_remote_log_segments(leader_epoch)

    def _ready(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        cache = self._caches.get(partition)
        if cache is None:
            raise RemoteResourceNotFoundError(f"No resource found for partition: {partition}")
        if not cache.await_initialized(_WAIT_SECONDS):
            raise ReplicaNotAvailableError("Remote log metadata cache is not initialized for "
                                           f"partition: {partition}")
        return cache
