"""The remote segments of one leader epoch (KIP-405, Kafka: RemoteLogLeaderEpochState)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["RemoteLogLeaderEpochState"]

_CHUNK = 1024


class _OffsetMap:
    """A sorted map of offsets to segment ids, in chunks, so that no change moves a long array.

    Needs 16 bytes an entry if offsets arrive in order, without the ids.
    """

    __slots__ = ("_firsts", "_ids", "_offsets")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # the first offset of each chunk
        self._offsets: list[array[int]] = []
        self._ids: list[list[bytes]] = []

    def floor(self, offset: int) -> bytes | None:
        """The id at the greatest key up to `offset`."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return None
        return self._ids[at][bisect_right(self._offsets[at], offset) - 1]

    def last(self) -> tuple[int, bytes] | None:
        """The greatest key and its id."""
        return (self._offsets[-1][-1], self._ids[-1][-1]) if self._firsts else None

    def put(self, offset: int, segment_id: bytes) -> None:
        """Adds an entry, or replaces that of the same offset."""
        at = max(bisect_right(self._firsts, offset) - 1, 0)
        if not self._firsts or (at == len(self._firsts) - 1 and len(self._offsets[at]) >= _CHUNK
                                and offset > self._offsets[at][-1]):
            self._firsts.append(offset)
            self._offsets.append(array("q", (offset,)))
            self._ids.append([segment_id])
            return
        offsets, ids = self._offsets[at], self._ids[at]
        row = bisect_left(offsets, offset)
        if row < len(offsets) and offsets[row] == offset:
            ids[row] = segment_id
            return
        offsets.insert(row, offset)
        ids.insert(row, segment_id)
        self._firsts[at] = offsets[0]
        if len(offsets) > _CHUNK:
            half = len(offsets) // 2
            self._firsts.insert(at + 1, offsets[half])
            self._offsets.insert(at + 1, offsets[half:])
            self._ids.insert(at + 1, ids[half:])
            del offsets[half:], ids[half:]

    def remove(self, offset: int, segment_id: bytes) -> None:
        """Removes the entry of an offset if it has this id."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0:
            return
        offsets, ids = self._offsets[at], self._ids[at]
        row = bisect_left(offsets, offset)
        if row == len(offsets) or offsets[row] != offset or ids[row] != segment_id:
            return
        del offsets[row], ids[row]
        if offsets:
            self._firsts[at] = offsets[0]
        else:
            del self._firsts[at], self._offsets[at], self._ids[at]

    def __iter__(self) -> Iterator[bytes]:
        """The ids by offset."""
        for ids in self._ids:
            yield from ids


class RemoteLogLeaderEpochState:
    """Which segment holds an offset of one leader epoch (KIP-405, Kafka:
    RemoteLogLeaderEpochState). Segments are named by the 16 bytes of their ids.

    `referenced` are copied segments by their first offset in the epoch. `unreferenced` (a set in
    order of arrival) are those that are being copied or deleted, or that a longer copy replaced.
    """

    __slots__ = ("floor", "highest_log_offset", "referenced", "unreferenced")

    def __init__(self) -> None:
        self.referenced = _OffsetMap()
        self.unreferenced: dict[bytes, None] = {}
        #: The greatest offset that was ever copied; a deletion does not lower it.
        self.highest_log_offset: int | None = None
        self.floor = self.referenced.floor

    def handle_copy_started(self, segment_id: bytes) -> None:
        """A copy began."""
        self.unreferenced[segment_id] = None

    def handle_copy_finished(self, start_offset: int, segment_id: bytes, end_offset: int) -> None:
        """A copy of `[start_offset, end_offset]` of this epoch ended.

        After an unclean election two leaders copy the same offsets. A copy that reaches as far as
        any before it replaces those that begin at or after its start.
        """
        highest = self.highest_log_offset
        if highest is None or highest <= end_offset:
            while (last := self.referenced.last()) is not None and last[0] >= start_offset:
                self.referenced.remove(*last)
                self.unreferenced[last[1]] = None
            self.highest_log_offset = end_offset
        self.referenced.put(start_offset, segment_id)
        self.unreferenced.pop(segment_id, None)

    def handle_delete_started(self, start_offset: int, segment_id: bytes) -> None:
        """A deletion began: the segment is still listed, but no longer found by offset."""
        self.referenced.remove(start_offset, segment_id)
        self.unreferenced[segment_id] = None

    def handle_delete_finished(self, segment_id: bytes) -> None:
        """The segment is gone."""
        self.unreferenced.pop(segment_id, None)
