"""Producer state while a log is loaded (Kafka: ProducerStateManager, rebuildProducerState)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from seglog.model import ProducerStateEntry, TopicPartition
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.recovery.snapshot_files import Snapshots
from seglog.recovery.next_offset import opened_log, whole_headers
from seglog.recovery.producer_folding import replay_batches
from seglog.storage.producer_state import ProducerState, is_expired

__all__ = ["LoadingProducers", "rebuild_producers"]

_logger = logging.getLogger("seglog.UnifiedLog")


class LoadingProducers:
    """Producer state with its snapshots on disk. `last_snapshot` is the offset of the newest known
    snapshot; new ones are only taken above it. `clock` (ms) decides which producers were idle for
    `expiration_ms` (None: none)."""

    def __init__(self, topic_partition: TopicPartition, snapshots: Snapshots,
                 expiration_ms: int | None, clock: Callable[[], int]) -> None:
        self.topic_partition, self.snapshots = topic_partition, snapshots
        self.expiration_ms, self.clock = expiration_ms, clock
        self.state = ProducerState(topic_partition)
        self.last_snapshot = 0

    @property
    def is_empty(self) -> bool:
        """Whether there are neither producers nor completed transactions that are not
        replicated."""
        return not len(self.state.table) and self.state.first_unstable_offset is None

    def take_snapshot(self, *, sync: bool = False) -> str | None:
        """Writes a snapshot at the state's end, unless there is one. Returns its name if it was
        written."""
        end = self.state.map_end_offset
        if end <= self.last_snapshot:
            return None
        self.snapshots.write(end, self.state, sync=sync)
        self.last_snapshot = end
        return self.snapshots.names[end]

    def truncate_and_reload(self, start: int, end: int) -> None:
        """Deletes the snapshots outside of (start, end] and loads the newest valid one."""
        self.snapshots.delete_outside(start, end)
        if end != self.state.map_end_offset:
            self._restart(*self.snapshots.newest(start))
        else:
            self.on_log_start_offset_incremented(start)

    def _restart(self, offset: int, entries: Sequence[ProducerStateEntry]) -> None:
        """Continues with a snapshot at `offset`, without the producers that have expired."""
        now, idle = self.clock(), self.expiration_ms
        self.state.restart(offset, [
            entry for entry in entries if idle is None
            or entry.current_txn_first_offset is not None
            or not is_expired(entry.last_timestamp, now, idle)])
        self.last_snapshot = offset

    def on_log_start_offset_incremented(self, start: int) -> None:
        """Drops the completed transactions below the log's new start, at which the state begins at
        the earliest. Producers stay."""
        self.state.table.replicated(start)
        self.state.map_end_offset = max(self.state.map_end_offset, start)
        self.last_snapshot = self.snapshots.latest(start)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops all state and starts at `offset`."""
        self.state.restart(offset)
        self.last_snapshot = 0
        self.snapshots.delete_known()


def rebuild_producers(producers: LoadingProducers, segments: LoadedSegments, start: int, end: int,
                      *, clean: bool = False, limit: int | None = None) -> None:
    """Advances the state to `end` (Kafka: rebuildProducerState), over the segments below `limit`.

    Starts from the newest valid snapshot and applies batch headers, without CRCs. After a clean
    shutdown a log without snapshots is not read, and gets empty ones. Raises LoaderFailure where
    Kafka abandons the log.
    """
    count = len(segments) if limit is None else segments.floor_row(limit - 1) + 1
    marks = [*segments.bases(range(max(count - 2, 0), count)), end]
    prefix = f"[LogLoader partition={producers.topic_partition}, dir={segments.parent}] "
    _logger.info("%sLoading producer state till offset %s", prefix, end)
    if clean and not producers.snapshots.offsets:
        for mark in marks:
            producers.state.map_end_offset = mark
            producers.take_snapshot()
        return
    _logger.info("%sReloading from producer snapshot and rebuilding producer state from offset %s",
                 prefix, end)
    was_empty = producers.is_empty and producers.state.map_end_offset >= end
    producers.truncate_and_reload(start, end)
    if end > producers.state.map_end_offset and not was_empty:
        rows = segments.rows(producers.state.map_end_offset, end)
        floor = min(segments.floor_row(end), count - 1)
        for row in range(rows.start, min(rows.stop, count)):
            base = int(segments.base_offsets[row])
            first = max(base, producers.state.map_end_offset, start)
            producers.state.map_end_offset = first
            if base in marks:
                producers.take_snapshot()
            segment = segments.get(base)
            _replay(segment, first, end if row == floor else None, producers.state)
            segments.release(segment)
    producers.state.map_end_offset = end
    producers.take_snapshot()


def _replay(segment: SegmentFiles, start: int, end: int | None, state: ProducerState) -> None:
    """Applies one segment from the batch of offset `start` up to that of `end`."""
    stop = segment.size
    if end is not None:
        found = segment.translate(end)
        stop = segment.size if found is None else found
    position = segment.translate(start)
    if position is None:
        return
    if stop < position:
        raise LoaderFailure("IllegalArgumentException", f"Invalid size: {stop - position} in read "
                            f"from {segment.log_path}", file=segment.log_name)
    extent = segment.extent
    with opened_log(extent.path) as fd:
        replay_batches(state, whole_headers(fd, segment.log_path, extent.start + position,
                                            extent.start + stop, is_slice=True), fd,
                       segment.log_name)
