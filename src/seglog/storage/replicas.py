"""Chooses which of several directories of one partition to read: copies of several brokers' disks.

Chooses the log that Kafka would make the leader's: the one with the newest leader epoch, and among
those the longest (KIP-101: a log of an older epoch is truncated to where the newer epoch began,
whatever follows). Epochs are those of the record batches. `leader-epoch-checkpoint` counts for an
epoch that began at the log's end and has no batch yet.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seglog.errors import CorruptDataError, InconsistentTopicIdError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.storage.discover import FoundDirectory
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import DirectoryKind

__all__ = ["Replica", "ReplicaChoice", "choose_replica"]

_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Replica:
    """One directory of a partition. `leader_epoch` is the newest, -1 if unknown; `size` is bytes of
    log files. `error` is why it cannot be read, None if it can."""

    path: str
    kind: DirectoryKind
    leader_epoch: int = _NO_EPOCH
    log_start_offset: int = 0
    log_end_offset: int = 0
    size: int = 0
    topic_id: str | None = None
    error: CorruptDataError | KafkaStorageError | None = None

    @property
    def rank(self) -> tuple[bool, bool, int, int, int, int]:
        """Greater is better: readable, in place, leader epoch, end, start, bytes."""
        return (self.error is None, self.kind is DirectoryKind.LIVE, self.leader_epoch,
                self.log_end_offset, -self.log_start_offset, self.size)


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """All directories of a partition, the chosen one first, and why it was chosen."""

    topic_partition: TopicPartition
    replicas: tuple[Replica, ...]
    reason: str

    @property
    def chosen(self) -> Replica:
        """The replica to read."""
        return self.replicas[0]

    @property
    def is_plain(self) -> bool:
        """Whether any other replica would have returned the same offsets."""
        return all(other.rank[:5] == self.chosen.rank[:5] for other in self.replicas)

    def __str__(self) -> str:
        others = ", ".join(replica.path for replica in self.replicas[1:])
        return f"{self.topic_partition}: read from {self.chosen.path}, not {others}: {self.reason}"


def choose_replica(tp: TopicPartition, directories: Sequence[FoundDirectory],
                   storage_options: Mapping[str, str] | None = None) -> ReplicaChoice:
    """Chooses the most complete directory of one partition; among equals the first.

    A directory that cannot be read loses to any that can. Raises InconsistentTopicIdError if two
    belong to different topics of the same name, and the errors of opening if none can be read.
    """
    replicas = [_examine(tp, one, storage_options) for one in directories]
    _check_topic_ids(tp, replicas)
    ranked = sorted(replicas, key=lambda replica: replica.rank, reverse=True)
    best = ranked[0]
    if best.error is not None:
        raise best.error
    return ReplicaChoice(tp, tuple(ranked), _reason(ranked))


def _examine(tp: TopicPartition, found: FoundDirectory,
             storage_options: Mapping[str, str] | None) -> Replica:
    try:
        with PartitionLog.open(found.path, topic_partition=tp,
                               storage_options=storage_options) as log:
            return Replica(found.path, found.kind, _newest_epoch(log), log.log_start_offset,
                           log.log_end_offset, log.segments.size, _topic_id(log))
    except (CorruptDataError, KafkaStorageError) as error:
        if isinstance(error, KafkaStorageError) and error.errno == errno.ENOENT:
            raise  # it existed a moment ago: the caller lists again
        return Replica(found.path, found.kind, error=error)


def _newest_epoch(log: PartitionLog) -> int:
    written = _last_batch_epoch(log)
    try:
        entry = log.checkpointed_epochs.latest
    except CorruptDataError:
        return written
    if entry is not None and entry.start_offset == log.log_end_offset:
        return max(written, entry.epoch)
    return written


def _last_batch_epoch(log: PartitionLog) -> int:
    """The leader epoch of the last readable batch; messages of old formats have none."""
    end = log.log_end_offset
    for segment in reversed(log.segments):
        found = segment.scan(segment.locate_last(), collect=True)
        batches = found.batches[found.batches["last_offset"] < end]
        if len(batches):
            return int(batches["partition_leader_epoch"][-1])
    return _NO_EPOCH


def _topic_id(log: PartitionLog) -> str | None:
    try:
        return log.topic_id
    except CorruptDataError:
        return None


def _check_topic_ids(tp: TopicPartition, replicas: Sequence[Replica]) -> None:
    known = [replica for replica in replicas if replica.topic_id is not None]
    for other in known[1:]:
        if other.topic_id != known[0].topic_id:
            raise InconsistentTopicIdError(
                f"{tp} is of two topics: {known[0].path} has the topic id {known[0].topic_id}, "
                f"{other.path} has {other.topic_id}. One was deleted and created again, or these "
                "are two clusters; give only the paths of one.")


def _reason(ranked: Sequence[Replica]) -> str:
    """Why the first ranks above the second."""
    first = ranked[0]
    if len(ranked) == 1:
        return "it is the only one"
    second = ranked[1]
    if second.error is not None:
        return f"the other cannot be read ({second.error})"
    if first.kind is not second.kind:
        return f"the other is a {second.kind.name.lower()} directory"
    if first.leader_epoch != second.leader_epoch:
        return (f"its leader epoch {first.leader_epoch} is newer than {second.leader_epoch} "
                f"(log end offsets {first.log_end_offset} and {second.log_end_offset})")
    if first.log_end_offset != second.log_end_offset:
        return (f"of leader epoch {first.leader_epoch} its log end offset {first.log_end_offset} "
                f"is the highest, before {second.log_end_offset}")
    same = f"of leader epoch {first.leader_epoch} and log end offset {first.log_end_offset}"
    if first.log_start_offset != second.log_start_offset:
        return (f"{same} its log start offset {first.log_start_offset} is the lowest, before "
                f"{second.log_start_offset}")
    if first.size != second.size:
        return f"{same} it has the most bytes, {first.size} before {second.size}"
    return f"{same} they are alike, and it comes first"
