"""Decides which remote segments belong to a log, by its leader epochs (Kafka: RemoteLogManager)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import zip_longest

from seglog.log.unified_log import UnifiedLog
from seglog.remote_log.metadata_manager import RemoteLogMetadataManager
from seglog.storage.epochs import LeaderEpochs
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["Lineage", "end_in_lineage", "epochs_of", "epochs_with_records",
           "find_highest_remote_offset", "find_log_start_offset", "has_lost_epochs",
           "is_within_leader_epochs"]

#: (epoch, its first offset), by epoch.
Lineage = tuple[tuple[int, int], ...]


def epochs_of(log: UnifiedLog) -> LeaderEpochs:
    """A copy of a log's leader epochs."""
    with log.lock:
        return log.leader_epochs.copy()


def has_lost_epochs(epochs: LeaderEpochs, log_start_offset: int) -> bool:
    """Whether a log does not know who wrote its first records: their leader epochs left the disk
    with `leader-epoch-checkpoint`. Without them no remote segment is known to be another log's."""
    first = epochs.earliest
    return first is None or first.start_offset > log_start_offset


def epochs_with_records(epochs: Iterable[tuple[int, int]]) -> Lineage:
    """The epochs without those that ended where they began (buildFilteredLeaderEpochMap)."""
    found = list(epochs)
    return tuple(one for one, following in zip_longest(found, found[1:])
                 if following is None or one[1] != following[1])


def is_within_leader_epochs(segment: RemoteLogSegmentMetadata, log_end_offset: int,
                            lineage: Lineage) -> bool:
    """Whether a log with this lineage has written the segment, or would read it as its own
    (isRemoteSegmentWithinLeaderEpochs)."""
    own = epochs_with_records(segment.segment_leader_epochs)
    if not lineage:
        return False
    epochs, starts = [epoch for epoch, _ in lineage], dict(lineage)
    last = own[-1][0]
    if not epochs[0] <= last <= epochs[-1]:
        return False
    relevant = [at for at, (epoch, _) in enumerate(own) if epoch >= epochs[0]]
    for at in relevant:
        epoch, offset = own[at]
        row = bisect_left(epochs, epoch)
        if row == len(epochs) or epochs[row] != epoch:
            return False
        if at == relevant[0] and row > 0 and offset < starts[epoch]:
            return False
        following = lineage[row + 1] if row + 1 < len(lineage) else None
        if epoch == last:
            if following is not None and segment.end_offset > following[1] - 1:
                return False
        elif following != own[at + 1]:
            return False
    return segment.end_offset < log_end_offset


def end_in_lineage(segment: RemoteLogSegmentMetadata, log: UnifiedLog) -> int:
    """The last offset up to which the log has a segment's records; after an unclean election it may
    have others in the place of the rest."""
    own = epochs_with_records(segment.segment_leader_epochs)
    following = (*(start for _, start in own[1:]), segment.end_offset + 1)
    with log.lock:
        for (epoch, _), offset in zip(own, following, strict=True):
            _, end = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
            if end < offset:
                return end - 1
    return segment.end_offset


def find_highest_remote_offset(metadata: RemoteLogMetadataManager, key: TopicIdPartition,
                               log: UnifiedLog) -> tuple[int, int]:
    """(last offset of the log that is in remote storage, its epoch); (-1, -1) for none.

    From the first local offset up to it everything is there: segments that were copied once may
    have been deleted since, when tiering was disabled. (Kafka copies none of those again, and then
    its local retention deletes them.) Records before the first leader epoch do not count: without
    one they can neither be found nor copied.
    """
    epochs = epochs_of(log)
    highest, epoch = _highest_ever(metadata, key, epochs, log.log_end_offset)
    earliest = epochs.earliest
    first = max(log.log_start_offset, log.local_log_start_offset,
                0 if earliest is None else earliest.start_offset)
    while first <= highest:
        at = epochs.epoch_for_offset(first)
        found = None if at is None else metadata.remote_log_segment_metadata(key, at, first)
        if found is not None and found.end_offset >= first:
            first = found.end_offset + 1
        elif first < log.log_start_offset:  # retention has deleted it meanwhile
            first = log.log_start_offset
        else:
            before = epochs.epoch_for_offset(first - 1)
            return first - 1, -1 if before is None else before
    return highest, epoch


def _highest_ever(metadata: RemoteLogMetadataManager, key: TopicIdPartition, epochs: LeaderEpochs,
                  end: int) -> tuple[int, int]:
    """The same for what was ever copied (Kafka: findHighestRemoteOffset)."""
    for entry in reversed(list(epochs)):
        highest = metadata.highest_offset_for_epoch(key, entry.epoch)
        if highest is not None:
            requested, epoch_end = epochs.end_offset_for(entry.epoch, end)
            return (epoch_end - 1, requested) if epoch_end <= highest else (highest, entry.epoch)
    return -1, -1


def find_log_start_offset(metadata: RemoteLogMetadataManager, key: TopicIdPartition,
                          log: UnifiedLog) -> int:
    """The start of the first remote segment of the lowest epoch that has any, else the start of the
    local segments.

    Not below the start of that epoch, before which nothing can be read: a crash may have lost the
    checkpoint of the log's start, but not that of the epochs. (Kafka takes the segment's start.)
    If the epochs are lost, the log's start as it is. (Kafka takes that of the local segments, and
    deletes all before it.)
    """
    epochs = epochs_of(log)
    for entry in epochs:
        segments = metadata.list_remote_log_segments(key, entry.epoch)
        if segments:
            return max(segments[0].start_offset, entry.start_offset)
    start = log.log_start_offset
    return start if has_lost_epochs(epochs, start) else log.local_log_start_offset
