"""A broker's records about its remote segments (KIP-405): ids, metadata, updates, deletions.

Values are immutable and compare by their fields. Ids (Kafka: Uuid) are 16 bytes, offsets are int64,
timestamps are ms. `str` of a value is Kafka's text form.
"""

from __future__ import annotations

import os
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from seglog.errors import IllegalArgumentError
from seglog.tiered.segment_states import RemoteLogSegmentState, RemotePartitionDeleteState

__all__ = [
    "ID_BYTES", "RemoteLogMetadata", "RemoteLogSegmentId", "RemoteLogSegmentMetadata",
    "RemoteLogSegmentMetadataSnapshot", "RemoteLogSegmentMetadataUpdate",
    "RemotePartitionDeleteMetadata", "SegmentLeaderEpochs", "TopicIdPartition", "check_id",
    "id_text",
]

ID_BYTES = 16

#: (epoch, its first offset in the segment), by epoch.
SegmentLeaderEpochs = tuple[tuple[int, int], ...]


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id and name (Kafka: TopicIdPartition)."""

    topic_id: bytes
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{id_text(self.topic_id)}:{self.topic}-{self.partition}"

    def is_of(self, topic_id: uuid.UUID | None) -> bool:
        """Whether that is the id of its topic."""
        return topic_id is not None and topic_id.bytes == self.topic_id


class RemoteLogSegmentId(NamedTuple):
    """One upload of one segment; a repeated upload has another id (KIP-405, Kafka:
    RemoteLogSegmentId)."""

    topic_id_partition: TopicIdPartition
    id: bytes

    @classmethod
    def generate_new(cls, topic_id_partition: TopicIdPartition) -> Self:
        """A random id. Like Kafka's, its text form does not begin with a dash."""
        while True:
            raw = bytearray(os.urandom(ID_BYTES))
            raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
            if not id_text(bytes(raw)).startswith("-"):
                return cls(topic_id_partition, bytes(raw))

    def __str__(self) -> str:
        return (f"RemoteLogSegmentId{{topicIdPartition={self.topic_id_partition}, "
                f"id={id_text(self.id)}}}")


class _Segment(NamedTuple):
    remote_log_segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_in_bytes: int
    segment_leader_epochs: SegmentLeaderEpochs
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_idx_empty: bool


class RemoteLogSegmentMetadata(_Segment):
    """A remote segment: its offsets, leader epochs and state (KIP-405, Kafka:
    RemoteLogSegmentMetadata).

    Both offsets are inclusive. `segment_leader_epochs` maps each epoch to its first offset in the
    segment; the attribute is a tuple of pairs by epoch. `custom_metadata` are the bytes that a
    RemoteStorageManager returned, at most 128 by default. `txn_idx_empty` says that no aborted
    transaction ends in the segment.

    Raises IllegalArgumentError for a negative start, an end before the start, and no epochs.
    """

    __slots__ = ()

    def __new__(cls, remote_log_segment_id: RemoteLogSegmentId, start_offset: int, end_offset: int,
                max_timestamp_ms: int, broker_id: int, event_timestamp_ms: int,
                segment_size_in_bytes: int,
                segment_leader_epochs: Mapping[int, int] | Iterable[tuple[int, int]],
                custom_metadata: bytes | None = None,
                state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED,
                txn_idx_empty: bool = False) -> Self:
        if start_offset < 0:
            raise IllegalArgumentError(f"Unexpected start offset = {start_offset}. StartOffset for "
                                       "a remote segment cannot be negative")
        if end_offset < start_offset:
            raise IllegalArgumentError(
                f"Unexpected end offset = {end_offset}. EndOffset for a remote segment cannot be "
                f"less than startOffset = {start_offset}")
        return tuple.__new__(cls, (
            remote_log_segment_id, start_offset, end_offset, max_timestamp_ms, broker_id,
            event_timestamp_ms, segment_size_in_bytes, _sorted_epochs(segment_leader_epochs),
            custom_metadata, state, txn_idx_empty))

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition of the segment."""
        return self.remote_log_segment_id.topic_id_partition

    def create_with_updates(self, update: RemoteLogSegmentMetadataUpdate) -> Self:
        """The metadata with an update's broker, time, state and custom metadata (None clears it).

        Raises IllegalArgumentError for the update of another segment.
        """
        if update.remote_log_segment_id != self.remote_log_segment_id:
            raise IllegalArgumentError(
                "Given rlsmUpdate does not have this instance's remoteLogSegmentId.")
        return self._replace(broker_id=update.broker_id, state=update.state,
                             event_timestamp_ms=update.event_timestamp_ms,
                             custom_metadata=update.custom_metadata)

    def __str__(self) -> str:
        return (f"RemoteLogSegmentMetadata{{remoteLogSegmentId={self.remote_log_segment_id}, "
                f"startOffset={self.start_offset}, endOffset={self.end_offset}, "
                f"brokerId={self.broker_id}, maxTimestampMs={self.max_timestamp_ms}, "
                f"eventTimestampMs={self.event_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs_text(self.segment_leader_epochs)}, "
                f"segmentSizeInBytes={self.segment_size_in_bytes}, "
                f"customMetadata={_custom_text(self.custom_metadata)}, state={self.state.name}, "
                f"txnIdxEmpty={str(self.txn_idx_empty).lower()}}}")


class RemoteLogSegmentMetadataUpdate(NamedTuple):
    """A new state of a remote segment (KIP-405, Kafka: RemoteLogSegmentMetadataUpdate)."""

    remote_log_segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    broker_id: int

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition of the segment."""
        return self.remote_log_segment_id.topic_id_partition

    def __str__(self) -> str:
        return ("RemoteLogSegmentMetadataUpdate{"
                f"remoteLogSegmentId={self.remote_log_segment_id}, "
                f"customMetadata={_custom_text(self.custom_metadata)}, state={self.state.name}, "
                f"eventTimestampMs={self.event_timestamp_ms}, brokerId={self.broker_id}}}")


class RemotePartitionDeleteMetadata(NamedTuple):
    """The progress of the deletion of a remote partition (KIP-405, Kafka:
    RemotePartitionDeleteMetadata)."""

    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int

    def __str__(self) -> str:
        return (f"RemotePartitionDeleteMetadata{{topicPartition={self.topic_id_partition}, "
                f"state={self.state.name}, eventTimestampMs={self.event_timestamp_ms}, "
                f"brokerId={self.broker_id}}}")


class _Snapshot(NamedTuple):
    segment_id: bytes
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_in_bytes: int
    segment_leader_epochs: SegmentLeaderEpochs
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    txn_idx_empty: bool


class RemoteLogSegmentMetadataSnapshot(_Snapshot):
    """A remote segment without its partition, and with offsets that are not checked (Kafka:
    RemoteLogSegmentMetadataSnapshot, which 4.3.1 reads and writes but never publishes).

    Raises IllegalArgumentError for no epochs.
    """

    __slots__ = ()

    def __new__(cls, segment_id: bytes, start_offset: int, end_offset: int, max_timestamp_ms: int,
                broker_id: int, event_timestamp_ms: int, segment_size_in_bytes: int,
                segment_leader_epochs: Mapping[int, int] | Iterable[tuple[int, int]],
                custom_metadata: bytes | None, state: RemoteLogSegmentState,
                txn_idx_empty: bool = False) -> Self:
        return tuple.__new__(cls, (
            segment_id, start_offset, end_offset, max_timestamp_ms, broker_id, event_timestamp_ms,
            segment_size_in_bytes, _sorted_epochs(segment_leader_epochs), custom_metadata, state,
            txn_idx_empty))

    @classmethod
    def create(cls, metadata: RemoteLogSegmentMetadata) -> Self:
        """The snapshot of a segment's metadata."""
        return cls(metadata.remote_log_segment_id.id, *metadata[1:])

    def __str__(self) -> str:
        return (f"RemoteLogSegmentMetadataSnapshot{{segmentId={id_text(self.segment_id)}, "
                f"startOffset={self.start_offset}, endOffset={self.end_offset}, "
                f"maxTimestampMs={self.max_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs_text(self.segment_leader_epochs)}, "
                f"segmentSizeInBytes={self.segment_size_in_bytes}, "
                f"customMetadata={_custom_text(self.custom_metadata)}, state={self.state.name}, "
                f"txnIdxEmpty={str(self.txn_idx_empty).lower()}}}")


#: Every record of the topic __remote_log_metadata.
RemoteLogMetadata = (RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
                     | RemotePartitionDeleteMetadata | RemoteLogSegmentMetadataSnapshot)


def check_id(raw: bytes) -> bytes:
    """Returns the id. Raises IllegalArgumentError if it does not have 16 bytes."""
    if len(raw) != ID_BYTES:
        raise IllegalArgumentError(f"An id has {ID_BYTES} bytes, not {len(raw)}")
    return raw


def _sorted_epochs(epochs: Mapping[int, int] | Iterable[tuple[int, int]]) -> SegmentLeaderEpochs:
    """Sorted by epoch; the last entry of a repeated epoch counts, as in Kafka's map."""
    found = tuple(sorted(dict(epochs).items()))
    if not found:
        raise IllegalArgumentError("segmentLeaderEpochs can not be null or empty")
    return found


def id_text(raw: bytes) -> str:
    """An id as Kafka prints it, and layouts put it into names (Uuid.toString)."""
    return urlsafe_b64encode(raw)[:22].decode()


def _epochs_text(epochs: SegmentLeaderEpochs) -> str:
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in epochs) + "}"


def _custom_text(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"
