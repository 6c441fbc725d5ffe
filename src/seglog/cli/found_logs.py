"""The partitions that a verb may read: below a path, in a remote tier, or in both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from seglog.model import TopicPartition
from seglog.storage.discover import find_partitions, is_gone
from seglog.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from seglog.tiered.bucket import Bucket

__all__ = ["FoundLog", "found_in", "found_logs"]


class FoundLog(NamedTuple):
    """How to open a partition that is there, and the directory where its files lie."""

    open: Callable[[], PartitionLog]
    directory: str
    is_listed: bool = True  # as a directory, and not only in a tier

    def is_gone(self) -> bool:
        """Whether its directory was listed, and is there no more."""
        return self.is_listed and is_gone(self.directory)


def found_logs(path: str | None, tier: Bucket | None) -> dict[TopicPartition, FoundLog]:
    """The partitions below a path, with their tier if one is given; without a path those of the
    tier alone."""
    if path is None:
        assert tier is not None
        return found_in(tier, None)
    return {key: FoundLog(partial(PartitionLog.open, directory, topic_partition=key, remote=tier),
                          directory)
            for key, directory in find_partitions(path).items()}


def found_in(tier: Bucket, topic_id: bytes | None) -> dict[TopicPartition, FoundLog]:
    """The partitions of a tier, those of one topic if `topic_id` is given."""
    return {TopicPartition(one.topic, one.partition): FoundLog(
                partial(tier.log, one.topic, one.partition, topic_id=topic_id),
                tier.tree.path(one.directory), is_listed=False)
            for one in tier.partitions if topic_id in (None, one.topic_id)}
