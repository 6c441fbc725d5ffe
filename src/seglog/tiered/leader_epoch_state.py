"""The remote segments of one leader epoch (KIP-405, Kafka: RemoteLogLeaderEpochState)."""

from __future__ import annotations

from functools import partial

from seglog._native.remote_segments import SegmentsByOffset, segment_epoch_end
from seglog.tiered.remote_records import ID_BYTES

__all__ = ["RemoteLogLeaderEpochState"]


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
