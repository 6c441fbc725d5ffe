"""Reads of a log by offset (Kafka: UnifiedLog.read).

Results are Kafka's, with bytes instead of a file region. CRCs are left to the consumer.
"""

from __future__ import annotations

from typing import Final

from seglog._native.fetch import FetchDataInfo, LogOffsetMetadata
from seglog.errors import OffsetOutOfRangeError, SeglogError
from seglog.log.local_log import LocalLog
from seglog.log.local_reads import LocalReads
from seglog.log.readers import SegmentView
from seglog.log.watermarks import Watermarks
from seglog.storage.isolation import Isolation, check_isolation

__all__ = ["FetchDataInfo", "LogReads"]

_NOWHERE: Final = (-1, -1, -1)


class LogReads:
    """Reads up to the bound of an isolation. Takes no lock, unless files are being changed."""

    def __init__(self, local: LocalLog, reads: LocalReads, watermarks: Watermarks) -> None:
        self._local, self._reads, self._watermarks = local, reads, watermarks
        self._files, self._readers = local.files, local.readers
        self._failures = local.context.failures

    def read(self, start_offset: int, max_length: int, isolation: Isolation = "log_end",
             min_one_message: bool = True) -> FetchDataInfo:
        """See UnifiedLog.read."""
        # A fast path for nearly all reads: of an open segment, below the bound, while no thread
        # changes files. `_read_any` handles all others.
        local, readers, watermarks = self._local, self._readers, self._watermarks
        end = local.end.fields
        generation, view = readers.generation, readers.current_view
        # The first offset after the bound, its segment (-1 of a bare offset) and its position.
        if isolation == "log_end":
            bound, last, bound_position = end
        elif isolation == "read_uncommitted":
            mark = watermarks.high_watermark_metadata
            bound, last = mark.message_offset, mark.segment_base_offset
            bound_position = mark.relative_position_in_segment
        else:
            bound, last, bound_position = _NOWHERE
        if (watermarks.log_start_offset <= start_offset < bound and max_length >= 0
                and not self._files.is_closed and not self._failures.failed):
            base = view.active_base
            if start_offset < base:
                base = view.floor(start_offset)
            segment = view.opened.get(base)
            if segment is not None and base <= last:
                size, entries = segment.size, segment.entries
                if size is None and base == end[1]:
                    size, entries = local.active_extent(base, end[2])
                if size is not None and entries is not None:
                    try:
                        found = segment.reader.fetch(
                            start_offset, size, entries, max_length,
                            size if base < last else bound_position, min_one_message)
                    except (SeglogError, OSError, OverflowError):
                        found = None
                    if (found is not None and generation == readers.generation
                            and not generation & 1
                            and view.base_offsets is local.segments.base_offsets):
                        segment.was_used = True
                        return found
        return self._read_any(start_offset, max_length, isolation, min_one_message)

    def _read_any(self, start_offset: int, max_length: int, isolation: Isolation,
                  min_one_message: bool) -> FetchDataInfo:
        """`read` without the fast path."""
        local = self._local
        text = f"Exception while reading from {local.topic_partition}"
        if self._files.is_closed or self._failures.is_any_offline:
            with local.guarded(text):
                local.check_open()

        def read(view: SegmentView) -> FetchDataInfo:
            log_start_offset = self._watermarks.log_start_offset
            if start_offset < log_start_offset:
                raise OffsetOutOfRangeError(
                    f"Received request for offset {start_offset} for partition "
                    f"{local.topic_partition}, but we only have log segments starting from offset: "
                    f"{log_start_offset}.")
            return self._reads.read_up_to(
                view, start_offset, max_length, min_one_message, self.upper_bound(isolation),
                [] if isolation == "read_committed" else None)

        try:
            return self._readers.read_steadily(read, self._readers.is_current)
        except OffsetOutOfRangeError:
            local.check_open()
            raise
        except OSError:
            with local.guarded(text, reads=True):
                raise

    def upper_bound(self, isolation: Isolation) -> LogOffsetMetadata:
        """The end of what a read with this isolation returns."""
        if isolation == "log_end":
            return self._local.end_metadata
        if check_isolation(isolation):
            return self._watermarks.fetch_last_stable_offset_metadata()
        known = self._watermarks.high_watermark_metadata
        return (self._watermarks.fetch_high_watermark_metadata() if known.message_offset_only
                else known)
