"""The partition of __remote_log_metadata that holds a partition's records (KIP-405)."""

from __future__ import annotations

import struct

from seglog._native.murmur2 import murmur2
from seglog.errors import IllegalArgumentError
from seglog.tiered.remote_records import TopicIdPartition, check_id

__all__ = ["RemoteLogMetadataTopicPartitioner"]

_MASK = 0xFFFFFFFF


class RemoteLogMetadataTopicPartitioner:
    """The metadata partition of every user partition (KIP-405, Kafka:
    RemoteLogMetadataTopicPartitioner).

    Raises IllegalArgumentError for less than one partition of the metadata topic.
    """

    def __init__(self, num_metadata_topic_partitions: int) -> None:
        if num_metadata_topic_partitions < 1:
            raise IllegalArgumentError(f"{num_metadata_topic_partitions} partitions of the "
                                       "metadata topic, at least 1 is needed")
        self._count = num_metadata_topic_partitions

    def metadata_partition(self, topic_id_partition: TopicIdPartition) -> int:
        """The number of the metadata partition; does not depend on the topic's name.

        Raises IllegalArgumentError for a topic id that does not have 16 bytes.
        """
        high, low = struct.unpack(">QQ", check_id(topic_id_partition.topic_id))
        value = 1
        for part in (low ^ low >> 32, high ^ high >> 32, topic_id_partition.partition):
            value = 31 * value + part & _MASK  # Java's Objects.hash
        return (murmur2(value.to_bytes(4, "big")) & 0x7FFFFFFF) % self._count
