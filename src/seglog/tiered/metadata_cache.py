"""The remote segments of one partition by leader epoch and offset (KIP-405, Kafka:
RemoteLogMetadataCache)."""

from __future__ import annotations

import logging
import threading
from functools import partial

from seglog._native.remote_segments import (
    SegmentsByOffset, SegmentUnpacker, pack_segment, segment_epoch_end, segment_epochs,
    segment_state, update_segment,
)
from seglog.errors import IllegalArgumentError, RemoteResourceNotFoundError
from seglog.tiered.remote_records import (
    ID_BYTES, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
)
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["RemoteLogMetadataCache"]

_logger = logging.getLogger("seglog.RemoteLogMetadataCache")

_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = RemoteLogSegmentState
_STATES = tuple(RemoteLogSegmentState)


class RemoteLogLeaderEpochState:
    """Which segment holds an offset of one leader epoch (KIP-405, Kafka:
    RemoteLogLeaderEpochState).

    `referenced` are copied segments, packed, by their first offset in the epoch; `unreferenced`
    (the ids, a set in order of arrival) those that are being copied or deleted, or that a longer
    copy replaced.
    """

    __slots__ = ("epoch", "find", "highest_log_offset", "referenced", "unreferenced")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.referenced = SegmentsByOffset()
        self.unreferenced: dict[bytes, None] = {}
        #: The greatest offset that was ever copied; a deletion does not lower it.
        self.highest_log_offset: int | None = None
        self.find = partial(self.referenced.find, epoch)

    def handle_copy_started(self, segment_id: bytes) -> None:
        """A copy began."""
        self.unreferenced[segment_id] = None

    def handle_copy_finished(self, start_offset: int, segment_id: bytes, packed: bytes) -> None:
        """A copy that begins at `start_offset` in this epoch ended, perhaps not the first time.

        After an unclean election two leaders copy the same offsets. A copy that reaches as far as
        any before it replaces those that begin at or after its start.
        """
        end_offset = segment_epoch_end(packed, self.epoch)
        highest = self.highest_log_offset
        if highest is None or highest <= end_offset:
            for replaced in self.referenced.put_last(start_offset, packed):
                self.unreferenced[replaced[:ID_BYTES]] = None
            self.highest_log_offset = end_offset
        else:
            self.referenced.put(start_offset, packed)
        self.unreferenced.pop(segment_id, None)

    def handle_delete_started(self, start_offset: int, segment_id: bytes) -> None:
        """A deletion began: the segment is still listed, but no longer found by offset."""
        self.referenced.remove(start_offset, segment_id)
        self.unreferenced[segment_id] = None

    def handle_delete_finished(self, segment_id: bytes) -> None:
        """The segment is gone."""
        self.unreferenced.pop(segment_id, None)


class RemoteLogMetadataCache:
    """The remote segments of one partition (KIP-405, Kafka: RemoteLogMetadataCache). Thread-safe.

    It applies the events of the partition in order. Events that a segment's state does not allow
    are logged and dropped, as in Kafka. Before `mark_initialized` an update of an unknown segment
    is dropped silently, because its first event may precede the start of the metadata topic;
    afterwards it raises RemoteResourceNotFoundError.
    """

    def __init__(self, topic_id_partition: TopicIdPartition) -> None:
        self.topic_id_partition = topic_id_partition
        self._segments: dict[bytes, bytes] = {}  # id -> packed, all that are not deleted
        self._epochs: dict[int, RemoteLogLeaderEpochState] = {}
        self._unpacked = SegmentUnpacker(topic_id_partition, RemoteLogSegmentMetadata,
                                         RemoteLogSegmentId, _STATES)
        self._lock = threading.Lock()
        self._initialized = threading.Event()

    def __len__(self) -> int:
        """The number of segments that are not deleted."""
        return len(self._segments)

    # ---- events

    def mark_initialized(self) -> None:
        """Marks the cache as complete: it has every event so far."""
        self._initialized.set()

    @property
    def is_initialized(self) -> bool:
        """Whether `mark_initialized` was called."""
        return self._initialized.is_set()

    def await_initialized(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds. Returns whether the cache is initialized."""
        return self._initialized.wait(timeout)

    def add_copy_in_progress_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Applies the first event of a segment.

        Raises IllegalArgumentError for a state other than COPY_SEGMENT_STARTED, for a segment of
        another partition, and for numbers that do not fit their fields.
        """
        segment_id = metadata.remote_log_segment_id
        if metadata.state != _STARTED:
            raise IllegalArgumentError(
                f"Given remoteLogSegmentMetadata:{metadata} should have state as "
                f"{_STARTED.name} but it contains state as: {metadata.state.name}")
        self._check_partition(segment_id)
        packed = pack_segment(metadata)
        with self._lock:
            existing = self._segments.get(segment_id.id)
            state = None if existing is None else _STATES[segment_state(existing)]
            if not _check_transition(state, _STARTED, segment_id):
                return
            for epoch, _ in metadata.segment_leader_epochs:
                self._epoch(epoch).handle_copy_started(segment_id.id)
            self._segments[segment_id.id] = packed

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Applies a later event of a segment.

        Raises RemoteResourceNotFoundError for an unknown segment once the cache is initialized, and
        IllegalArgumentError for the state COPY_SEGMENT_STARTED where it would be allowed.
        """
        segment_id, target = update.remote_log_segment_id, update.state
        self._check_partition(segment_id)
        with self._lock:
            packed = self._segments.get(segment_id.id)
            if packed is None:
                if not self.is_initialized:
                    _logger.debug("Dropping the event: %s as the base-metadata about the segment "
                                  "was already removed", update)
                    return
                raise RemoteResourceNotFoundError(
                    f"No remote log segment metadata found for :{segment_id}")
            if not _check_transition(_STATES[segment_state(packed)], target, segment_id):
                return
            if target == _STARTED:
                raise IllegalArgumentError(f"metadataUpdate: {update} with state {target.name} "
                                           "can not be updated")
            updated = update_segment(packed, update)
            self._apply(segment_id.id, updated, target)
            if target == _DELETE_FINISHED:
                del self._segments[segment_id.id]
            else:
                self._segments[segment_id.id] = updated

    def _apply(self, segment_id: bytes, packed: bytes, target: RemoteLogSegmentState) -> None:
        # Only copied segments are referenced, and each event of theirs comes by here: what an epoch
        # finds is always the latest.
        for epoch, offset in segment_epochs(packed):
            state = self._epoch(epoch)
            if target == _FINISHED:
                state.handle_copy_finished(offset, segment_id, packed)
            elif target == _DELETE_STARTED:
                state.handle_delete_started(offset, segment_id)
            else:
                state.handle_delete_finished(segment_id)

    # ---- answers

    def remote_log_segment_metadata(self, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """The copied segment that holds an offset of a leader epoch."""
        with self._lock:
            state = self._epochs.get(leader_epoch)
            if state is None:
                return None
            found = state.find(offset)
        if found is None:
            _logger.warning("No remote segment found for leaderEpoch: %d, offset: %d",
                            leader_epoch, offset)
            return None
        return self._unpacked(found) if found else None

    def next_segment_with_txn_index(self, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """The first segment, from the one that holds an offset on, that may have aborted
        transactions; None at the first offset of the epoch that no segment holds.

        Epochs that begin after the end of their segment make Kafka loop forever; here they end the
        search.
        """
        found = self.remote_log_segment_metadata(leader_epoch, offset)
        while found is not None and found.txn_idx_empty:
            if found.end_offset < offset:
                return None
            offset = found.end_offset + 1
            found = self.remote_log_segment_metadata(leader_epoch, offset)
        return found

    def highest_offset_for_epoch(self, leader_epoch: int) -> int | None:
        """The greatest offset of an epoch that was ever copied."""
        with self._lock:
            state = self._epochs.get(leader_epoch)
            return None if state is None else state.highest_log_offset

    def list_all_remote_log_segments(self) -> list[RemoteLogSegmentMetadata]:
        """Every segment that is not deleted, unordered as in Kafka."""
        with self._lock:
            found = list(self._segments.values())
        return [self._unpacked(packed) for packed in found]

    def list_remote_log_segments(self, leader_epoch: int) -> list[RemoteLogSegmentMetadata]:
        """The segments of an epoch by start offset, including those that are being copied or
        deleted.

        Raises RemoteResourceNotFoundError if one of them is known by its id alone.
        """
        with self._lock:
            state = self._epochs.get(leader_epoch)
            if state is None:
                return []
            found = list(state.referenced)
            is_sorted = not state.unreferenced
            for one in state.unreferenced:
                packed = self._segments.get(one)
                if packed is None:
                    raise RemoteResourceNotFoundError(
                        "No remote log segment metadata found for :"
                        f"{RemoteLogSegmentId(self.topic_id_partition, one)}")
                found.append(packed)
        segments = [self._unpacked(packed) for packed in found]
        return segments if is_sorted else sorted(segments, key=lambda item: item.start_offset)

    # ---- parts

    def _epoch(self, epoch: int) -> RemoteLogLeaderEpochState:
        state = self._epochs.get(epoch)
        if state is None:
            state = self._epochs[epoch] = RemoteLogLeaderEpochState(epoch)
        return state

    def _check_partition(self, segment_id: RemoteLogSegmentId) -> None:
        if segment_id.topic_id_partition != self.topic_id_partition:
            raise IllegalArgumentError(f"{segment_id} does not belong to the partition "
                                       f"{self.topic_id_partition} of this cache")


def _check_transition(existing: RemoteLogSegmentState | None, target: RemoteLogSegmentState,
                      segment_id: RemoteLogSegmentId) -> bool:
    if RemoteLogSegmentState.is_valid_transition(existing, target):
        return True
    _logger.error("Current state: %s can not be transitioned to target state: %s, segmentId: %s. "
                  "Dropping the event", "null" if existing is None else existing.name, target.name,
                  segment_id)
    return False
