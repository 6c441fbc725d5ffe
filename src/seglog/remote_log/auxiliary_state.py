"""A log that begins where its remote segments end (Kafka: TierStateMachine)."""

from __future__ import annotations

from seglog.errors import IllegalArgumentError, IllegalStateError, RemoteStorageError
from seglog.log.unified_log import UnifiedLog
from seglog.remote_log.metadata_manager import RemoteLogMetadataManager
from seglog.storage.epochs import read_leader_epochs
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, TopicIdPartition
from seglog.tiered.remote_storage import IndexType, RemoteStorageManager
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["start_at_remote_end"]


def start_at_remote_end(metadata: RemoteLogMetadataManager, storage: RemoteStorageManager,
                        key: TopicIdPartition, log: UnifiedLog, leader: tuple[int, int] | None,
                        log_start_offset: int | None) -> int:
    """See RemoteLogManager."""
    segment = _newest(metadata, key) if leader is None else \
        metadata.remote_log_segment_metadata(key, *leader)
    if segment is None:
        where = "" if leader is None else f", offset {leader[1]} of epoch {leader[0]}"
        raise RemoteStorageError(
            f"Couldn't build the state from remote store for partition: {key}{where}: the "
            "remote log segment metadata was not found")
    following = segment.end_offset + 1
    if leader is None and log.log_end_offset > following:
        raise IllegalStateError(
            f"{log.path}: the local log ends at {log.log_end_offset}, after the remote "
            f"segments, which end at {following}; they are not lost")

    if log_start_offset is not None and log_start_offset > following:
        raise IllegalArgumentError(
            f"log_start_offset is {log_start_offset}, after {following}, where the log continues")

    def index(kind: IndexType) -> bytes:
        with storage.fetch_index(segment, kind) as stream:
            return stream.read()

    epochs = read_leader_epochs(f"{segment.remote_log_segment_id}: leader epochs",
                                index(IndexType.LEADER_EPOCH))
    snapshot = index(IndexType.PRODUCER_SNAPSHOT)
    if log_start_offset is None:
        # Where the first remote segment of these epochs begins that is not deleted already.
        first = min((one.start_offset for entry in epochs
                     for one in metadata.list_remote_log_segments(key, entry.epoch)
                     if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
                    default=segment.start_offset)
        log_start_offset = min(following, max(log.log_start_offset, first))
    log.start_with_state(following, log_start_offset, epochs, snapshot)
    return following


def _newest(metadata: RemoteLogMetadataManager, key: TopicIdPartition
            ) -> RemoteLogSegmentMetadata | None:
    """The copied segment that reaches furthest in the newest leader epoch."""
    return max((one for one in metadata.list_all_remote_log_segments(key)
                if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
               key=lambda one: (one.segment_leader_epochs[-1][0], one.end_offset), default=None)
