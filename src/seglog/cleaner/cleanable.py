"""Which offsets of a log a round may clean, and their size in bytes (Kafka: LogCleanerManager,
LogToClean)."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import NamedTuple

from seglog.errors import CorruptRecordError, IllegalArgumentError
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.recovery.loader_failures import CorruptRecord, reading_error
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.next_offset import opened_log, whole_headers
from seglog.storage.segment_table import total_bytes

__all__ = ["LogToClean", "OffsetsToClean", "cleanable_offsets", "log_segments",
           "max_compaction_delay"]

_logger = logging.getLogger("seglog.LogCleaner")


class OffsetsToClean(NamedTuple):
    """[first_dirty_offset, first_uncleanable_dirty_offset) of a log.

    `force_update_checkpoint`: the offset of the checkpoint was outside of the log.
    """

    first_dirty_offset: int
    first_uncleanable_dirty_offset: int
    force_update_checkpoint: bool


def log_segments(log: UnifiedLog, start: int, end: int) -> list[int]:
    """Base offsets of the segments from the one that holds `start` to the last that begins below
    `end` (Kafka: LogSegments.values). The caller holds the log's lock. Raises
    IllegalArgumentError."""
    if end < start:
        raise IllegalArgumentError(
            f"Invalid log segment range: requested segments in {log.topic_partition} from offset "
            f"{start} which is greater than limit offset {end}")
    return log.segments.bases(log.segments.rows(start, end))


def _reading(log: UnifiedLog) -> AbstractContextManager[None]:
    return log.guarded(f"Error while reading {log.topic_partition} for its cleaning", reads=True)


def _non_active_from(log: UnifiedLog, start: int) -> list[int]:
    active = log.active.base_offset
    return [] if start > active else log_segments(log, start, active)


def _size(log: UnifiedLog, start: int, end: int) -> int:
    rows = log.segments.rows(start, end)
    return total_bytes(log.segments.log_size[rows.start:rows.stop])


def cleanable_offsets(log: UnifiedLog, last_clean_offset: int | None = None,
                      now_ms: int | None = None) -> OffsetsToClean:
    """The range that a round may clean now (Kafka: LogCleanerManager.cleanableOffsets).

    `last_clean_offset` is where the previous round ended, None for a log that was never cleaned; an
    offset outside of the log counts as the log's start. `now_ms` defaults to the log's clock. The
    range ends at the last stable offset, the active segment, and the first segment with a record
    younger than `min.compaction.lag.ms`.
    """
    with log.lock, _reading(log):
        log.check_open()
        log.update_files()
        first, is_reset = _first_dirty(log, last_clean_offset)
        bounds = [log.last_stable_offset, log.active.base_offset]
        lag = max(log.config.min_compaction_lag_ms, 0)
        if lag > 0:
            young = (log.now_ms() if now_ms is None else now_ms) - lag
            bounds += _first_younger(log, first, young)
        return OffsetsToClean(first, max(first, min(bounds)), is_reset)


def _first_dirty(log: UnifiedLog, checkpoint: int | None) -> tuple[int, bool]:
    start, end = log.log_start_offset, log.log_end_offset
    if checkpoint is None:
        return start, False
    if checkpoint < start:
        if not (log.config.compact and log.config.delete):
            _logger.warning(
                "Resetting first dirty offset of %s to log start offset %s since the checkpointed "
                "offset %s is invalid.", log.topic_partition, start, checkpoint)
        return start, True
    if checkpoint > end:
        _logger.warning(
            "The last checkpoint dirty offset for partition %s is %s, which is larger than the log "
            "end offset %s. Resetting to the log start offset %s.", log.topic_partition, checkpoint,
            end, start)
        return start, True
    return checkpoint, False


def _first_younger(log: UnifiedLog, start: int, timestamp_ms: int) -> list[int]:
    for base in _non_active_from(log, start):
        segment = log.segments.get(base)
        largest = segment.largest_timestamp()
        log.segments.release(segment)
        if largest > timestamp_ms:
            return [base]
    return []


def max_compaction_delay(log: UnifiedLog, first_dirty_offset: int, now_ms: int,
                         seen: dict[tuple[int, int, int], int]) -> int:
    """For how many ms a dirty record has been due by `max.compaction.lag.ms`, 0 if none is.

    The age of a segment is that of its first batch. `seen` keeps it, by the base offset and bytes
    of a segment and the log's truncations, for the next call (Kafka:
    LogSegment.getFirstBatchTimestamp). Raises CorruptRecordError where a segment does not begin
    with a batch.
    """
    due = now_ms - max(log.config.max_compaction_lag_ms, 0)
    with log.lock, _reading(log):
        log.check_open()
        log.update_files()
        found = {}
        for base in _non_active_from(log, first_dirty_offset):
            segment = log.segments.get(base)
            key = base, segment.extent.size, log.segment_truncations
            found[key] = seen[key] if key in seen else _first_batch_timestamp(segment)
            log.segments.release(segment)
        seen.clear()
        seen.update(found)
    return due - min([one for one in found.values() if one > 0] + [due])


def _first_batch_timestamp(segment: SegmentFiles) -> int:
    """The first batch's largest timestamp; -1 for a segment without batches."""
    extent = segment.extent
    if not extent.size:
        return -1
    try:
        with opened_log(extent.path) as fd:
            first = next(whole_headers(fd, extent.path, extent.start, extent.end, most=1), None)
    except CorruptRecord as failure:
        error = reading_error(failure, extent.path)
        error.batch_at = extent.path, extent.start
        raise error from None
    return -1 if first is None else int(first["max_timestamp"][0])


class LogToClean:
    """A log with the range of a round, which ends at a segment's base offset (Kafka: LogToClean).

    `first_uncleanable_offset` is the base of the segment that holds the given offset, or of the
    active one. `clean_bytes` are the bytes of segments up to the dirty offset, `cleanable_bytes`
    those of segments in the range; a segment with the dirty offset inside counts in both.
    `needs_compaction_now`: a record is older than `max.compaction.lag.ms`. `truncations` are the
    log's `segment_truncations`: after another one the range is not that of the log any more.
    """

    __slots__ = ("clean_bytes", "cleanable_bytes", "first_dirty_offset",
                 "first_uncleanable_offset", "log", "needs_compaction_now", "total_bytes",
                 "truncations")

    def __init__(self, log: UnifiedLog, first_dirty_offset: int, uncleanable_offset: int,
                 needs_compaction_now: bool = False) -> None:
        self.log, self.first_dirty_offset = log, first_dirty_offset
        self.needs_compaction_now = needs_compaction_now
        with log.lock:
            log.check_open()
            log.update_files()
            self.truncations = log.segment_truncations
            self.clean_bytes = _size(log, -1, first_dirty_offset)
            bases = _non_active_from(log, uncleanable_offset)
            end = bases[0] if bases else log.active.base_offset
            self.first_uncleanable_offset = end
            self.cleanable_bytes = _size(log, min(first_dirty_offset, end), end)
        self.total_bytes = self.clean_bytes + self.cleanable_bytes

    @classmethod
    def of(cls, log: UnifiedLog, last_clean_offset: int | None = None,
           now_ms: int | None = None) -> LogToClean:
        """The result of `cleanable_offsets` for the log."""
        offsets = cleanable_offsets(log, last_clean_offset, now_ms)
        return cls(log, offsets.first_dirty_offset, offsets.first_uncleanable_dirty_offset)

    def segments_until(self, end: int) -> list[int]:
        """Base offsets of the segments of a round that ends before `end`. The caller holds the
        log's lock.

        Raises CorruptRecordError if that includes the active segment: a damaged batch in the range
        has an offset beyond it. (Kafka replaces the active segment then, and loses what is in it.)
        """
        log = self.log
        bases = log_segments(log, 0, end)
        if (bases and bases[-1] >= log.active.base_offset
                and log.segment_truncations == self.truncations):
            raise CorruptRecordError(
                f"Log segments of {log.topic_partition} before {self.first_uncleanable_offset} may "
                f"be corrupt: a batch has the offset {end - 1}",
                expected=self.first_uncleanable_offset - 1, found=end - 1, code="batch_offset")
        return bases

    @property
    def cleanable_ratio(self) -> float:
        """The dirty share of the bytes that a round would rewrite; 0 for an empty log."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def topic_partition(self) -> TopicPartition:
        """The log's partition."""
        return self.log.topic_partition

    @property
    def is_due(self) -> bool:
        """Whether the log is dirty enough for a round, or a record in it old enough."""
        return ((self.needs_compaction_now and self.cleanable_bytes > 0)
                or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio)
