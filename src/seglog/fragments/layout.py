"""The partitions of a topic in a data directory, and their number for new records."""

from __future__ import annotations

import os

from seglog.errors import IllegalArgumentError
from seglog.storage.paths import (
    CLUSTER_METADATA_TOPIC, DirectoryKind, check_topic, directory_name_or_none,
)

__all__ = ["partition_count", "partitions_of"]


def partitions_of(data_dir: str, topic: str) -> list[int]:
    """The partitions of a topic in this directory, ascending. Raises OSError."""
    found = []
    with os.scandir(data_dir) as entries:
        for entry in entries:
            if not entry.name.startswith(topic) or not entry.is_dir():
                continue
            name = directory_name_or_none(entry.path)
            if name is not None and name.kind is DirectoryKind.LIVE \
                    and name.topic_partition.topic == topic:
                found.append(name.topic_partition.partition)
    return sorted(found)


def partition_count(data_dir: str, topic: str, for_new: int | None) -> int:
    """The number of partitions of the topic; `for_new` (default 1) for a new topic.

    Raises InvalidTopicError for a name that Kafka refuses. Raises IllegalArgumentError if the
    directory has only some of the topic's partitions and `for_new` is not given.
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
            f"{found[-1]}); set num.partitions to the topic's number of partitions")
    return for_new
