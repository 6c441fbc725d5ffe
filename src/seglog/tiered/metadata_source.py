"""The metadata topic of one broker, read again only after it changed."""

from __future__ import annotations

import os
from typing import Any

from seglog.errors import UnknownTopicOrPartitionError
from seglog.forks import SurvivesFork
from seglog.model import TopicPartition
from seglog.tiered.metadata_topic import (
    REMOTE_LOG_METADATA_TOPIC, MetadataTopic, read_metadata_topic,
)
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, TopicIdPartition
from seglog.tiered.segment_selection import TierFinding

__all__ = ["MetadataSource"]


class MetadataSource(SurvivesFork):
    """The metadata of partitions from `__remote_log_metadata` in data directories. For any
    thread."""

    def __init__(self, *data_dirs: str) -> None:
        self.data_dirs = data_dirs
        self._read: tuple[object, MetadataTopic | None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickling reads the topic again."""
        return type(self), self.data_dirs

    @property
    def topic(self) -> MetadataTopic | None:
        """The current topic; None if the directories hold none of its partitions.

        Raises KafkaStorageError.
        """
        stamp = self._stamp()
        with self._lock:
            if self._read is None or self._read[0] != stamp:
                try:
                    self._read = stamp, read_metadata_topic(*self.data_dirs)
                except UnknownTopicOrPartitionError:
                    self._read = stamp, None
            return self._read[1]

    def announced(self, topic_partition: TopicPartition, topic_id: bytes | None
                  ) -> tuple[list[RemoteLogSegmentMetadata] | None, tuple[TierFinding, ...]]:
        """The segments of a partition that are not deleted, by start offset, and the skipped
        records. None if this topic has no record of the partition: its metadata may be on another
        broker's disk."""
        topic = self.topic
        if topic is None:
            return None, ()
        skipped = tuple(TierFinding("metadata_record", str(one)) for one in topic.skipped)
        for partition in _partitions(topic, topic_partition):
            if topic_id is None or partition.topic_id == topic_id:
                return sorted(topic.store.list_all_remote_log_segments(partition),
                              key=lambda one: one.start_offset), skipped
        return None, skipped

    def partitions(self, topic_partition: TopicPartition) -> list[TopicIdPartition]:
        """The topic ids under which a partition was ever tiered."""
        topic = self.topic
        return [] if topic is None else _partitions(topic, topic_partition)

    def _stamp(self) -> object:
        found = []
        for data_dir in self.data_dirs:
            try:
                for entry in sorted(os.listdir(data_dir)):
                    if entry.startswith(f"{REMOTE_LOG_METADATA_TOPIC}-"):
                        with os.scandir(os.path.join(data_dir, entry)) as files:
                            found += [(file.path, file.stat().st_size, file.stat().st_mtime_ns)
                                      for file in files]
            except OSError:
                continue  # the read reports the error
        return tuple(sorted(found))


def _partitions(topic: MetadataTopic, topic_partition: TopicPartition) -> list[TopicIdPartition]:
    """Of one state of the topic, which another look may find changed."""
    return [one for one in topic.store.partitions
            if (one.topic, one.partition) == (topic_partition.topic, topic_partition.partition)]
