"""Which partitions of a topic a data directory has, and where new records of it go."""

from __future__ import annotations

import os

from seglog.errors import IllegalArgumentError, InvalidTopicPartitionError
from seglog.storage.paths import (
    CLUSTER_METADATA_TOPIC, DirectoryKind, check_topic, parse_directory_name,
)

__all__ = ["partition_count", "partitions_of"]


def partitions_of(data_dir: str, topic: str) -> list[int]:
    """The partitions of a topic that are here, ascending. OSError."""
    found = []
    with os.scandir(data_dir) as entries:
        for entry in entries:
            if not entry.name.startswith(topic) or not entry.is_dir():
                continue
            try:
                name = parse_directory_name(entry.path)
            except InvalidTopicPartitionError:
                continue
            if name.kind is DirectoryKind.LIVE and name.topic_partition.topic == topic:
                found.append(name.topic_partition.partition)
    return sorted(found)


def partition_count(data_dir: str, topic: str, for_new: int | None) -> int:
    """How many partitions the topic has; `for_new` (default 1) where it is not there yet.

    Raises InvalidTopicError for a name that Kafka refuses, and IllegalArgumentError where only
    some of its partitions are here and `for_new` does not say how many there are.
    """
    check_topic(topic)
    if topic == CLUSTER_METADATA_TOPIC:
        raise IllegalArgumentError(f"{topic} is written by Kafka's controllers only")
    found = partitions_of(data_dir, topic)
    if not found:
        return for_new or 1
    if found == list(range(len(found))):
        return len(found)
    if for_new is None or for_new <= found[-1]:
        raise IllegalArgumentError(
            f"{data_dir} has only some partitions of topic {topic} ({len(found)}, up to "
            f"{found[-1]}); say with num.partitions how many the topic has")
    return for_new
