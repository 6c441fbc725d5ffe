"""A remote segment's metadata as packed bytes, which need a quarter of an object's memory."""

from __future__ import annotations

from struct import Struct, error as StructError

from seglog.errors import IllegalArgumentError
from seglog.tiered.remote_records import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    SegmentLeaderEpochs, TopicIdPartition,
)
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["pack_segment", "packed_state", "unpack_segment", "update_packed"]

# start, end, max timestamp, event timestamp, broker, size, state, txn_idx_empty, size of the custom
# metadata (-1: none), first epoch and its offset. Further epochs and the custom metadata follow.
_HEAD = Struct("<qqqqiiB?iiq")
_STATE_AT = Struct("<qqqqii").size
_EPOCH = Struct("<iq")
_STATES = tuple(RemoteLogSegmentState)


def pack_segment(metadata: RemoteLogSegmentMetadata) -> bytes:
    """Packs everything but the id. Raises IllegalArgumentError for numbers that do not fit."""
    (_, start, end, max_timestamp, broker_id, event_timestamp, size, epochs, custom, state,
     txn_idx_empty) = metadata
    try:
        head = _HEAD.pack(start, end, max_timestamp, event_timestamp, broker_id, size, state,
                          txn_idx_empty, -1 if custom is None else len(custom), *epochs[0])
        if len(epochs) == 1 and not custom:
            return head
        return b"".join((head, *(_EPOCH.pack(*entry) for entry in epochs[1:]), custom or b""))
    except StructError as error:
        raise IllegalArgumentError(f"{metadata} does not fit its fields: {error}") from None


def unpack_segment(partition: TopicIdPartition, segment_id: bytes,
                   packed: bytes) -> RemoteLogSegmentMetadata:
    """Unpacks the metadata."""
    (start, end, max_timestamp, event_timestamp, broker_id, size, state, txn_idx_empty, length,
     epoch, offset) = _HEAD.unpack_from(packed)
    epochs: SegmentLeaderEpochs = ((epoch, offset),)
    custom = None if length < 0 else b""
    if len(packed) > _HEAD.size:
        split = len(packed) - max(length, 0)
        epochs += _further_epochs(packed, split)
        custom = None if length < 0 else packed[split:]
    # The constructors of named tuples take longer than all of the above.
    return tuple.__new__(RemoteLogSegmentMetadata, (
        tuple.__new__(RemoteLogSegmentId, (partition, segment_id)), start, end, max_timestamp,
        broker_id, event_timestamp, size, epochs, custom, _STATES[state], txn_idx_empty))


def packed_state(packed: bytes) -> RemoteLogSegmentState:
    """The state alone."""
    return _STATES[packed[_STATE_AT]]


def update_packed(packed: bytes, update: RemoteLogSegmentMetadataUpdate
                  ) -> tuple[bytes, SegmentLeaderEpochs, int]:
    """Applies the update's broker, time, state and custom metadata, as
    `RemoteLogSegmentMetadata.create_with_updates`. Also returns the leader epochs and the end
    offset.

    Raises IllegalArgumentError for numbers that do not fit.
    """
    start, end, max_timestamp, _, _, size, _, txn_idx_empty, length, epoch, offset = \
        _HEAD.unpack_from(packed)
    _, event_timestamp, custom, state, broker_id = update
    try:
        head = _HEAD.pack(start, end, max_timestamp, event_timestamp, broker_id, size, state,
                          txn_idx_empty, -1 if custom is None else len(custom), epoch, offset)
    except StructError as error:
        raise IllegalArgumentError(f"{update} does not fit its fields: {error}") from None
    epochs: SegmentLeaderEpochs = ((epoch, offset),)
    if len(packed) == _HEAD.size and not custom:
        return head, epochs, end
    split = len(packed) - max(length, 0)
    epochs += _further_epochs(packed, split)
    return head + packed[_HEAD.size:split] + (custom or b""), epochs, end


def _further_epochs(packed: bytes, end: int) -> SegmentLeaderEpochs:
    return tuple((epoch, offset) for epoch, offset in _EPOCH.iter_unpack(packed[_HEAD.size:end]))
