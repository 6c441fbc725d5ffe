"""One moment of a partition directory, shared by all readers of a `PartitionLog`.

The end of the log and its transactions are costly to find, so they are computed on first use and
kept.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

from seglog._native.status import Status
from seglog.arguments import int64
from seglog.errors import CorruptDataError, KafkaStorageError, OffsetOutOfRangeError
from seglog.forks import SurvivesFork
from seglog.model import TimestampOffset
from seglog.storage.batches import FetchData, header_columns, read_batches
from seglog.storage.partition_files import read_directory
from seglog.storage.log_store import Files, small_file
from seglog.storage.handles import HandleCache
from seglog.storage.isolation import Damage, TransactionState, read_transactions
from seglog.storage.paths import snapshot_name
from seglog.storage.producer_state import SNAPSHOT_BYTES_MAX, decode_snapshot
from seglog.storage.ranges import (
    WHOLE_SEGMENT, LogGap, LogRange, plan_for_skipping, plan_ranges, upper_offset,
)
from seglog.storage.salvage import SegmentExtent, Salvage, Surveys
from seglog.storage.segment import LogSegment
from seglog.storage.log_tail import LogTail, read_tail
from seglog.storage.timestamps import (
    find_past_damage_by_timestamp, find_past_damage_max_timestamp,
)

__all__ = ["LogView"]


class LogView(SurvivesFork):
    """The segments of a log in one listing, and the size of the last one then.

    For any thread. `name` is the partition's name in errors.
    """

    def __init__(self, path: str, handles: HandleCache, log_start_offset: int | None,
                 name: str, where: Files) -> None:
        files = read_directory(path, handles, where)
        self.path, self.name, self.where = path, name, where
        self.segments, self.snapshots = files.segments, files.snapshots
        first = int(self.segments.base_offsets[0]) if len(self.segments) else 0
        self.log_start_offset = max(first, log_start_offset or 0)
        last = self.segments.last
        # Later appends of a broker belong to a later view.
        self._last = None if last is None else last.limited_to(last.size)
        self._tail: LogTail | None = None
        self._transactions: TransactionState | None = None
        self._salvaged: SalvagedView | None = None

    # ---- where the log ends

    @property
    def tail(self) -> LogTail:
        """Where the log ends, and how."""
        with self._lock:
            if self._tail is None:
                self._tail = self._read_tail()
            return self._tail

    def _read_tail(self) -> LogTail:
        if self._last is None:
            return LogTail(self.log_start_offset, 0, Status.END)
        tail = read_tail(self._last)
        if tail.log_end_offset < self.log_start_offset:
            # Kafka deletes every segment of such a log, and continues at its log start offset.
            return LogTail(self.log_start_offset, tail.end, tail.status)
        return tail

    @property
    def log_end_offset(self) -> int:
        """The offset after the last sound batch."""
        return self.tail.log_end_offset

    @property
    def transactions(self) -> TransactionState:
        """The open and the aborted transactions."""
        end = self.tail.end
        with self._lock:
            if self._transactions is None:
                self._transactions = read_transactions(self.segments, self._snapshots(), end)
            return self._transactions

    @property
    def last_stable_offset(self) -> int:
        """The first undecided offset, or the log end offset."""
        return self.transactions.last_stable_offset(self.log_start_offset, self.log_end_offset)

    def _snapshots(self) -> Iterator[tuple[int, dict[int, int]]]:
        """Usable producer snapshots, newest first (ProducerStateManager.loadFromSnapshot)."""
        assert self._tail is not None
        for offset in self.snapshots[::-1].tolist():
            if not self.log_start_offset < offset <= self._tail.log_end_offset:
                continue
            try:
                path = os.path.join(self.path, snapshot_name(offset))
                content = small_file(self.where, path, SNAPSHOT_BYTES_MAX)
                if content is None:
                    continue
                entries = decode_snapshot(content, file=path)
            except (CorruptDataError, KafkaStorageError):
                continue
            yield offset, {entry.producer_id: entry.current_txn_first_offset for entry in entries
                           if entry.current_txn_first_offset is not None}

    # ---- reading

    def read_segments(self, start_offset: int) -> Iterator[LogSegment]:
        """The segments from the one that holds `start_offset` on, each with its end for readers."""
        end = self.tail.end
        for segment in self.segments.values(start_offset):
            last = segment.next_base_offset is None
            yield segment.limited_to(end) if last else segment

    def check_start(self, offset: int) -> None:
        """Raises OffsetOutOfRangeError, with Kafka's text, unless a read may begin there."""
        if self.log_start_offset <= offset <= self.log_end_offset:
            return
        limit = f"starting from offset: {self.log_start_offset}" \
            if offset < self.log_start_offset else f"upto {self.log_end_offset}"
        raise OffsetOutOfRangeError(
            f"Received request for offset {offset} for partition {self.name}, but we only have "
            f"log segments {limit}. A read may start at {self.log_start_offset} (the log start "
            f"offset) to {self.log_end_offset} (the log end offset).")

    def bounds(self, start_offset: int | None, end_offset: int | None, committed: bool
               ) -> tuple[int, int]:
        """The offsets that a read covers: from the log start or `start_offset` to the end."""
        start = self.log_start_offset if start_offset is None else int64("start_offset",
                                                                         start_offset)
        if end_offset is not None:
            int64("end_offset", end_offset)
        self.check_start(start)
        limit = self.last_stable_offset if committed else self.log_end_offset
        end = limit if end_offset is None else min(end_offset, limit)
        return start, max(start, end)

    def plan(self, start_offset: int, end_offset: int | None, target_bytes: int, committed: bool,
             on_gap: Callable[[LogGap], None]) -> Iterator[LogRange]:
        """Plans the byte ranges of `[start_offset, end_offset)`, in order, on demand. None: to the
        end of the log."""
        # Bytes bound what follows the last offset, so that a reader fails at a corrupt tail, and a
        # batch with a damaged offset beyond the end does not look like the end.
        to_end = end_offset == self.log_end_offset
        aborted = self.transactions.aborted_ranges if committed else None
        return plan_ranges(self.segments, start_offset, None if to_end else end_offset,
                           target_bytes, self.tail, aborted, on_gap)

    def hidden_damage(self, end_offset: int | None) -> Damage | None:
        """The damage that a read_committed reader encounters before a requested end; None if every
        transaction before that end is decided.

        Damage may hide the marker of a transaction, so nothing after it is stable. A reader that
        stopped there without an error would report the end of the log.
        """
        state = self.transactions
        if state.damage is None or (end_offset is not None
                                    and end_offset <= self.last_stable_offset):
            return None
        return state.damage

    def fetch(self, start_offset: int, max_bytes: int, committed: bool) -> FetchData:
        """Whole batches from `start_offset`: see PartitionLog.fetch."""
        self.check_start(start_offset)
        stable = self.last_stable_offset if committed else None
        upper = self.log_end_offset if stable is None else stable
        facts = (self.log_start_offset, self.log_end_offset, stable)
        nothing = FetchData(start_offset, start_offset, b"", *facts, () if committed else None)
        if start_offset >= upper:
            if committed and (damage := self.hidden_damage(None)) is not None:
                raise damage
            if not committed:
                self._check_tail(start_offset)
            return nothing
        for segment in self.read_segments(start_offset):
            found = read_batches(segment, start_offset, max_bytes, upper)
            if found is not None:
                aborted = self.transactions.aborted_between(start_offset, found.next_offset) \
                    if committed else None
                return FetchData(start_offset, found.next_offset, found.data, *facts, aborted,
                                 found.base_offset, segment.base_offset, found.position)
        # Compaction removed everything up to the end.
        return FetchData(start_offset, upper, b"", *facts, nothing.aborted_transactions)

    def _check_tail(self, end: int) -> None:
        """Raises the error of corrupt bytes after the last sound batch, with which streams end,
        too."""
        if self.tail.status.is_error:
            for planned in self.plan(end, end, WHOLE_SEGMENT, False, lambda gap: None):
                deque(header_columns(planned, self.segments.opened, check_crcs=True), maxlen=0)

    # ---- reading what damage left

    @property
    def salvaged(self) -> SalvagedView:
        """The same log for readers that skip damage. If its last segment cannot be opened, it ends
        there."""
        try:
            end, snapshots = self.tail.log_end_offset, self._snapshots()
        except KafkaStorageError:
            end = max(self.log_start_offset, int(self.segments.base_offsets[-1]))
            snapshots = iter(())
        with self._lock:
            if self._salvaged is None:
                self._salvaged = SalvagedView(self, self._last, end, snapshots)
            return self._salvaged


class SalvagedView(SurvivesFork):
    """A log for readers that skip damage: its end, and its transactions. For any thread."""

    def __init__(self, view: LogView, last: LogSegment | None, end: int,
                 snapshots: Iterator[tuple[int, dict[int, int]]]) -> None:
        self._view, self._last, self._snapshots = view, last, snapshots
        self.surveys = Surveys()
        self._transactions: TransactionState | None = None
        self._end = end

    def _survey(self, segment: LogSegment) -> Salvage:
        upper, segments = None, self._view.segments
        if segment.next_base_offset is not None:
            upper = upper_offset(segments, segments.floor_row(segment.base_offset))
        elif self._last is not None:
            segment = self._last
        extent = SegmentExtent(segment.files.log, segment.base_offset, segment.size, upper)
        with segment.opened() as handle:
            return self.surveys.of(handle, extent, checked=True)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last sound batch, whatever damage lies before it, also if the length
        of a damaged batch hides it."""
        if self._last is None:
            return self._end
        try:
            return max(self._end, self._survey(self._last).next_offset)
        except KafkaStorageError:
            return self._end

    @property
    def transactions(self) -> TransactionState:
        """As `LogView.transactions`, across all damage."""
        with self._lock:
            if self._transactions is None:
                self._transactions = read_transactions(
                    self._view.segments, self._snapshots, 0, self._survey)
            return self._transactions

    def bounds(self, start_offset: int | None, end_offset: int | None, committed: bool
               ) -> tuple[int, int | None]:
        """The offsets of a read; the end is None for all records."""
        start = self._view.log_start_offset if start_offset is None else int64("start_offset",
                                                                               start_offset)
        if end_offset is not None:
            int64("end_offset", end_offset)
        if start < self._view.log_start_offset or (
                start > self._end and start > self.log_end_offset):
            self._view.check_start(start)
        end = end_offset if end_offset is None else max(start, end_offset)
        if committed:
            stable = self.end_offset(committed)
            if stable < self.log_end_offset:
                end = max(start, stable if end is None else min(end, stable))
        return start, end

    def end_offset(self, committed: bool) -> int:
        """The offset after the last record that a reader may get."""
        last = self.log_end_offset
        if not committed:
            return last
        return self.transactions.last_stable_offset(self._view.log_start_offset, last)

    def offset_for_timestamp(self, timestamp_ms: int | None) -> TimestampOffset | None:
        """The first record at or after a time; for None, the first with the largest timestamp."""
        start = self._view.log_start_offset
        segments = self._view.segments.values(start)
        if timestamp_ms is None:
            return find_past_damage_max_timestamp(segments, start, self._survey)
        return find_past_damage_by_timestamp(segments, timestamp_ms, start, self._survey)

    def plan(self, start_offset: int, end_offset: int | None, target_bytes: int, committed: bool,
             on_gap: Callable[[LogGap], None]) -> Iterator[LogRange]:
        """The ranges of a read."""
        aborted = None
        if committed:
            aborted = self.transactions.aborted_ranges
            for gap in self.transactions.gaps(self._view.path):
                if end_offset is None or (gap.first_offset or 0) < end_offset:
                    on_gap(gap)
        return plan_for_skipping(
            self._view.segments, start_offset, end_offset, target_bytes,
            0 if self._last is None else self._last.size, aborted, on_gap)
