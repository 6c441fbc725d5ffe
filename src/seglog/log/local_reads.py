"""Reads of the segments up to a bound (Kafka: LocalLog.read, LogSegment.read)."""

from __future__ import annotations

import struct
from typing import Final

from seglog._native.fetch import FetchDataInfo, LogOffsetMetadata
from seglog.arguments import int64
from seglog.errors import CorruptDataError, IllegalArgumentError, OffsetOutOfRangeError
from seglog.log.local_log import LocalLog
from seglog.log.readers import OpenSegment, SegmentView
from seglog.model import AbortedTxn
from seglog.recovery.loader_failures import LoaderFailure, reading_error
from seglog.recovery.next_offset import find_offset
from seglog.storage.txn_entries import ends_search

__all__ = ["LocalReads"]

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT, _PREFIX_SIZE = 8, 12
# Statuses at which Kafka's iteration continues where a native walk over headers ends: old messages,
# whose first offset may be inside a compressed payload, and entries shorter than a header.
_KAFKA_DECIDES: Final = ("batch_magic", "batch_size")


class LocalReads:
    """Reads by offset, without watermarks. Any thread may read, through a view whose changes the
    caller watches."""

    def __init__(self, local: LocalLog) -> None:
        self._local, self._readers = local, local.readers

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """The position of the batch that holds `offset`, or of the next one, with that batch's base
        offset. Raises OffsetOutOfRangeError (Kafka: convertToOffsetMetadataOrThrow).

        For the thread that holds the log's lock.
        """
        return self.read_up_to(self._readers.view(), offset, 1, False, self._local.end_metadata,
                               None).fetch_offset_metadata

    def locate(self, offset: int) -> LogOffsetMetadata:
        """The same; only the offset if it is outside of the log."""
        with self._local.guarded(f"Exception while reading from {self._local.topic_partition}"):
            try:
                return self.convert_to_offset_metadata(offset)
            except OffsetOutOfRangeError:
                return LogOffsetMetadata(offset)

    def read_up_to(self, view: SegmentView, start_offset: int, max_length: int,
                   min_one_message: bool, bound: LogOffsetMetadata,
                   none_aborted: list[AbortedTxn] | None) -> FetchDataInfo:
        """LocalLog.read; `none_aborted` is [] if aborted transactions are requested, else None."""
        local, end = self._local, self._local.end_metadata
        floor = view.floor(start_offset)
        if start_offset > end.message_offset or floor < 0:
            raise OffsetOutOfRangeError(
                f"Received request for offset {start_offset} for partition "
                f"{local.topic_partition}, but we only have log segments upto "
                f"{end.message_offset}.")
        if start_offset >= bound.message_offset:
            if start_offset > bound.message_offset:
                bound = self.convert_to_offset_metadata(start_offset)
            return FetchDataInfo(bound, b"", False, none_aborted)
        base: int | None = floor
        while base is not None:
            segment = self._readers.segment(view, base)
            found = self._read_segment(segment, start_offset, max_length, min_one_message, bound,
                                       end)
            if found is not None:
                if none_aborted is not None:
                    self._add_aborted(view, segment, start_offset, found)
                return found
            base = view.higher(base)
        return FetchDataInfo(local.end_metadata)

    def _read_segment(self, segment: OpenSegment, start_offset: int, max_length: int,
                      min_one_message: bool, bound: LogOffsetMetadata, end: LogOffsetMetadata
                      ) -> FetchDataInfo | None:
        if max_length < 0:
            raise IllegalArgumentError(f"Invalid max size {max_length} for log read from segment "
                                       f"{segment.reader.path}")
        base, size, entries = segment.base_offset, segment.size, segment.entries
        if size is None or entries is None:
            size, entries = self._local.active_extent(base, end.relative_position_in_segment)
        if base < bound.segment_base_offset:
            max_position = size
        elif base == bound.segment_base_offset:
            max_position = bound.relative_position_in_segment
        else:
            max_position = -1
        try:
            return segment.reader.fetch(start_offset, size, entries, max_length, max_position,
                                        min_one_message)
        except OverflowError:
            int64("max_length", max_length)
            raise
        except CorruptDataError as error:
            if error.code not in _KAFKA_DECIDES:
                raise
        return _fetch_old_formats(segment, start_offset, size, entries, max_length, max_position,
                                  min_one_message)

    # ---- aborted transactions -----------------------------------------------------------------

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int,
                                     log_start_offset: int) -> list[AbortedTxn]:
        """The aborted transactions of the segment that holds `start_offset` and of later ones, for
        offsets from `log_start_offset` to below `upper_bound_offset`. Raises KafkaStorageError of a
        log that is being deleted."""
        def collect(view: SegmentView) -> list[AbortedTxn]:
            if not len(view):
                self._local.check_open()
            base = view.floor(start_offset)
            return [] if base < 0 else self._aborted(view, base, log_start_offset,
                                                     upper_bound_offset)

        return self._readers.read_steadily(
            collect, lambda generation, _: self._readers.is_unchanged(generation))

    def _add_aborted(self, view: SegmentView, segment: OpenSegment, start_offset: int,
                     found: FetchDataInfo) -> None:
        """Adds the aborted transactions of the records. The offset index bounds the last offset."""
        entries = segment.entries
        if entries is None:
            _, entries = self._local.active_extent(segment.base_offset, 0)
        stop = found.fetch_offset_metadata.relative_position_in_segment + len(found.records)
        entry = segment.reader.index.upper_bound(stop, entries)
        if entry is not None:
            upper_bound = entry[0]
        else:
            higher = view.higher(segment.base_offset)
            upper_bound = self._local.end.offset if higher is None else higher
        found.aborted_transactions = self._aborted(view, segment.base_offset, start_offset,
                                                   upper_bound)

    def _aborted(self, view: SegmentView, first_base: int, start_offset: int, upper_bound: int
                 ) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        for base in view.bases_from(first_base):
            for aborted in self._readers.aborted(view, base):
                if aborted.last_offset >= start_offset and aborted.first_offset < upper_bound:
                    found.append(aborted)
                if ends_search(aborted, upper_bound):
                    return found
        return found


def _fetch_old_formats(segment: OpenSegment, start_offset: int, size: int, entries: int,
                       max_length: int, max_position: int, min_one_message: bool
                       ) -> FetchDataInfo | None:
    """SegmentReader.fetch for a segment with messages of old formats on the way."""
    reader = segment.reader
    position = max(reader.index.lookup(start_offset, entries)[1], 0)
    try:
        found = find_offset(reader.fileno(), reader.path, position, size, start_offset)
    except LoaderFailure as failure:
        raise reading_error(failure, reader.path) from failure
    if found is None:
        return None
    base_offset, position = found
    batch_size = _LENGTH.unpack(reader.read(position + _LENGTH_AT, _LENGTH.size))[0] + _PREFIX_SIZE
    place = LogOffsetMetadata(base_offset, segment.base_offset, position)
    limit = max(max_length, batch_size) if min_one_message else max_length
    if limit == 0 or max_position < 0:
        return FetchDataInfo(place)
    length = min(limit, min(max_position, size) - position)
    if length < 0:
        raise IllegalArgumentError(f"Invalid size: {length} in read from {reader.path}")
    return FetchDataInfo(place, reader.read(position, length), limit < batch_size)
