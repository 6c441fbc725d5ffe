"""Tiered storage (KIP-405): remote segments, and Kafka's metadata about them.

    topic = seglog.tiered.read_metadata_topic("/var/lib/kafka/data")
    for partition in topic.store.partitions:
        print(partition, len(topic.store.list_all_remote_log_segments(partition)))

    log = seglog.tiered.open_bucket("s3://bucket/tiered").log("orders", 0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog import forks

if TYPE_CHECKING:
    from seglog.tiered.aiven_layout import AivenLayout
    from seglog.tiered.aiven_writer import AivenWriter
    from seglog.tiered.bucket import Bucket, open_bucket
    from seglog.tiered.metadata_cache import RemoteLogMetadataCache
    from seglog.tiered.metadata_finding import MetadataFinding
    from seglog.tiered.metadata_lint import MetadataLint, lint_metadata
    from seglog.tiered.metadata_serde import deserialize, serialize
    from seglog.tiered.metadata_store import RemotePartitionMetadataStore
    from seglog.tiered.metadata_topic import (
        MetadataTopic, SkippedMetadata, read_metadata_events, read_metadata_topic,
    )
    from seglog.tiered.partitioner import RemoteLogMetadataTopicPartitioner
    from seglog.tiered.plain_layout import LOCAL_TIERED_STORAGE, PINTEREST, PlainLayout
    from seglog.tiered.remote_records import (
        RemoteLogMetadata, RemoteLogSegmentId, RemoteLogSegmentMetadata,
        RemoteLogSegmentMetadataSnapshot, RemoteLogSegmentMetadataUpdate,
        RemotePartitionDeleteMetadata, TopicIdPartition,
    )
    from seglog.tiered.remote_storage import IndexType, LogSegmentData, RemoteStorageManager
    from seglog.tiered.remote_tree import RemoteTree
    from seglog.tiered.segment_selection import TierFinding
    from seglog.tiered.segment_states import RemoteLogSegmentState, RemotePartitionDeleteState
    from seglog.tiered.storage_manager import LayoutStorageManager

# Imported at their first use: a dump needs the records, but no readers of logs.
__getattr__, __dir__ = forks.imported_at_use(__name__, {
    "aiven_layout": ("AivenLayout",),
    "aiven_writer": ("AivenWriter",),
    "bucket": ("Bucket", "open_bucket"),
    "plain_layout": ("LOCAL_TIERED_STORAGE", "PINTEREST", "PlainLayout"),
    "remote_storage": ("IndexType", "LogSegmentData", "RemoteStorageManager"),
    "remote_tree": ("RemoteTree",),
    "segment_selection": ("TierFinding",),
    "storage_manager": ("LayoutStorageManager",),
    "metadata_cache": ("RemoteLogMetadataCache",),
    "metadata_finding": ("MetadataFinding",),
    "metadata_lint": ("MetadataLint", "lint_metadata"),
    "metadata_serde": ("deserialize", "serialize"),
    "metadata_store": ("RemotePartitionMetadataStore",),
    "metadata_topic": ("MetadataTopic", "SkippedMetadata", "read_metadata_events",
                       "read_metadata_topic"),
    "partitioner": ("RemoteLogMetadataTopicPartitioner",),
    "remote_records": ("RemoteLogMetadata", "RemoteLogSegmentId", "RemoteLogSegmentMetadata",
                       "RemoteLogSegmentMetadataSnapshot", "RemoteLogSegmentMetadataUpdate",
                       "RemotePartitionDeleteMetadata", "TopicIdPartition"),
    "segment_states": ("RemoteLogSegmentState", "RemotePartitionDeleteState"),
})

__all__ = [
    "LOCAL_TIERED_STORAGE", "PINTEREST", "AivenLayout", "AivenWriter", "Bucket", "IndexType",
    "LayoutStorageManager", "LogSegmentData", "MetadataFinding", "MetadataLint", "MetadataTopic",
    "PlainLayout",
    "RemoteLogMetadata", "RemoteLogMetadataCache", "RemoteLogMetadataTopicPartitioner",
    "RemoteLogSegmentId", "RemoteLogSegmentMetadata", "RemoteLogSegmentMetadataSnapshot",
    "RemoteLogSegmentMetadataUpdate", "RemoteLogSegmentState", "RemotePartitionDeleteMetadata",
    "RemotePartitionDeleteState", "RemotePartitionMetadataStore", "RemoteStorageManager",
    "RemoteTree", "SkippedMetadata", "TierFinding", "TopicIdPartition", "deserialize",
    "lint_metadata", "open_bucket", "read_metadata_events", "read_metadata_topic", "serialize",
]
