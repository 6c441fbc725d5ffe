"""Offsets by timestamp (Kafka: UnifiedLog.fetchOffsetByTimestamp)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from seglog._native.fetch import SegmentReader
from seglog._native.index import IndexReader
from seglog.errors import IllegalArgumentError, SeglogError
from seglog.log.deep_records import stamped_records
from seglog.log.local_log import LocalLog
from seglog.log.readers import SegmentRetired, SegmentView
from seglog.log.watermarks import Watermarks
from seglog.model import (
    EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP, EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, TimestampOffset,
)
from seglog.recovery.loader_failures import LoaderFailure, public_errors, reading_error
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.next_offset import whole_headers
from seglog.storage.epochs import LeaderEpochs

__all__ = ["OffsetsByTimestamp"]

_logger = logging.getLogger("seglog.UnifiedLog")
_NONE: Final = -1
_NO_REMOTE: Final = TimestampOffset(_NONE, _NONE, _NONE)


class OffsetsByTimestamp:
    """Looks up offsets by time. Safe from any thread; takes the log's lock only briefly."""

    def __init__(self, local: LocalLog, watermarks: Watermarks, epochs: LeaderEpochs) -> None:
        self._local, self._watermarks, self._epochs = local, watermarks, epochs
        self._readers = local.readers

    def fetch(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time, None if there is none; or the answer to a special
        value.

        LATEST (-1) is the log's end, EARLIEST (-2) its start, MAX_TIMESTAMP (-3) the first record
        with the largest timestamp, EARLIEST_LOCAL (-4) the start of local segments, LATEST_TIERED
        (-5) and EARLIEST_PENDING_UPLOAD (-6) what is known of remote storage (offset -1 without
        it). A segment without a time index counts with its file's modification time. In a tiered
        log, remote segments are searched first.

        Segments that retention removes meanwhile are skipped: the log then begins after them.
        Raises CorruptRecordError, InvalidRecordError or IllegalArgumentError if damage prevents the
        search, KafkaStorageError, and SeglogError if only remote storage could answer.
        """
        _logger.debug("Searching offset for timestamp %d.", timestamp_ms)
        special = self._SPECIAL.get(timestamp_ms)
        if special is not None:
            return special(self)
        local, watermarks = self._local, self._watermarks
        while True:
            start, first_local = watermarks.log_start_offset, watermarks.local_log_start_offset
            if local.remote_log_enabled and start != local.log_end_offset:
                look = local.context.remote.offset_by_timestamp
                if look is None:
                    raise SeglogError("RemoteLogManager is empty even though the remote log "
                                      "storage is enabled.")
                found = look(local.topic_partition, timestamp_ms, start)
                if found is not None:
                    return found
            found = self._steadily(lambda view: self._first_at(timestamp_ms, view))
            # What left the disk for remote storage alone meanwhile was in neither search.
            if not local.remote_log_enabled or first_local == watermarks.local_log_start_offset:
                return found

    def _steadily(self, look: Callable[[SegmentView], TimestampOffset | None]
                  ) -> TimestampOffset | None:
        # The files in a `_Lookup` stay unchanged when segments are rolled or retired.
        return self._readers.read_steadily(
            look, lambda generation, _: self._readers.is_unchanged(generation))

    def _first_at(self, timestamp_ms: int, view: SegmentView) -> TimestampOffset | None:
        local, start = self._local, self._watermarks.log_start_offset
        for base in view.base_offsets.tolist():
            try:
                with _files(local, base) as files:
                    largest = files.largest_timestamp()
                if largest >= timestamp_ms:
                    return _find_in_segment(_Lookup(local, view, base, by_time=True),
                                            timestamp_ms, start)
            except SegmentRetired:
                continue  # the log begins after it by now, or the lookup starts again
        return None

    # ---- special values -----------------------------------------------------------------------

    def _latest(self) -> TimestampOffset:
        latest = self._epochs.latest
        return TimestampOffset(_NONE, self._local.end.offset,
                               None if latest is None else latest.epoch)

    def _earliest(self) -> TimestampOffset:
        start, first = self._watermarks.log_start_offset, self._epochs.earliest
        return TimestampOffset(_NONE, start, first.epoch if first is not None
                               and first.start_offset <= start else None)

    def _earliest_local(self) -> TimestampOffset:
        if not self._local.remote_log_enabled:
            return self._earliest()
        start = self._watermarks.local_log_start_offset
        return TimestampOffset(_NONE, start, self._epochs.epoch_for_offset(start))

    def _latest_tiered(self) -> TimestampOffset:
        if not self._local.remote_log_enabled:
            return _NO_REMOTE
        highest = self._watermarks.highest_offset_in_remote_storage
        epoch = self._epochs.epoch_for_offset(highest)
        return TimestampOffset(_NONE, highest,
                               _NONE if epoch is None and highest == _NONE else epoch)

    def _earliest_pending_upload(self) -> TimestampOffset:
        if not self._local.remote_log_enabled:
            return _NO_REMOTE
        watermarks = self._watermarks
        highest, start = watermarks.highest_offset_in_remote_storage, watermarks.log_start_offset
        if highest != _NONE:
            pending = max(highest + 1, start)
            return TimestampOffset(_NONE, pending, self._epochs.epoch_for_offset(pending))
        return self._earliest() if watermarks.local_log_start_offset == start else _NO_REMOTE

    def _of_max_timestamp(self) -> TimestampOffset | None:
        return self._steadily(self._first_of_max_timestamp)

    def _first_of_max_timestamp(self, view: SegmentView) -> TimestampOffset | None:
        best: tuple[int, TimestampOffset] | None = None
        for base in view.base_offsets.tolist():
            try:
                with _files(self._local, base) as files:
                    found = files.max_timestamp()
            except SegmentRetired:
                continue
            if best is None or found.timestamp > best[1].timestamp:
                best = base, found
        if best is None:
            return None
        base, largest = best
        lookup = _Lookup(self._local, view, base)
        for batch in lookup.batches(lookup.position_of(largest.offset)):
            if int(batch["max_timestamp"]) == largest.timestamp:
                if batch["magic"] == 0:
                    return None
                return lookup.first_record(
                    batch, lambda timestamp, _: timestamp == largest.timestamp, streaming=True)
        return None

    _SPECIAL: Final[dict[int, Callable[[OffsetsByTimestamp], TimestampOffset | None]]] = {
        LATEST_TIMESTAMP: _latest,
        EARLIEST_TIMESTAMP: _earliest,
        MAX_TIMESTAMP: _of_max_timestamp,
        EARLIEST_LOCAL_TIMESTAMP: _earliest_local,
        LATEST_TIERED_TIMESTAMP: _latest_tiered,
        EARLIEST_PENDING_UPLOAD_TIMESTAMP: _earliest_pending_upload,
    }


# ---- the search -------------------------------------------------------------------------------


@contextmanager
def _files(local: LocalLog, base_offset: int) -> Iterator[SegmentFiles]:
    """The files of a segment of an open log, with its last appends, while this thread holds the
    lock. Raises SegmentRetired, and KafkaStorageError for a closed log."""
    local.files.ensure_checked(base_offset)  # before the lock, for which other checks may wait
    with local.lock, public_errors(local.path):
        local.check_open()
        local.update_files()
        with local.readers.locked_files(base_offset) as files:
            yield files


class _Lookup:
    """One segment at one moment, with its log and indexes open, so that a lookup does not see later
    changes."""

    def __init__(self, local: LocalLog, view: SegmentView, base_offset: int, *,
                 by_time: bool = False) -> None:
        """Raises SegmentRetired, KafkaStorageError."""
        with _files(local, base_offset) as files:
            self._reader: SegmentReader = local.readers.segment(view, base_offset).reader
            # Fetches end at the log's end; lookups also read records that an index refused.
            self._size, self._entries = files.size, files.offset_index.entries
            if by_time:
                files.time_index.open()
                self._time_entries = files.time_index.entries
                self._times = IndexReader(os.path.join(local.path, files.time_index.name),
                                          base_offset, times=True)

    def offset_at(self, timestamp_ms: int) -> int:
        """The offset at which the time index starts a search for this time."""
        return self._times.lookup(timestamp_ms, self._time_entries)[1]

    def position_of(self, offset: int) -> int:
        """The byte of the log at which a search for this offset begins."""
        return max(self._reader.index.lookup(offset, self._entries)[1], 0)

    def batches(self, position: int) -> Iterator[np.void]:
        """Batch headers from a position on, whose largest timestamps Kafka reads.

        Raises CorruptRecordError, and IllegalArgumentError for an unknown magic.
        """
        reader = self._reader
        try:
            for batches in whole_headers(reader.fileno(), reader.path, position, self._size):
                for batch in batches:
                    if batch["magic"] < 0:
                        raise IllegalArgumentError(f"Invalid magic value {batch['magic']}")
                    yield batch
        except LoaderFailure as failure:
            raise reading_error(failure, reader.path) from failure

    def first_record(self, batch: np.void, wanted: Callable[[int, int], bool], *,
                     streaming: bool = False) -> TimestampOffset | None:
        """The first record of a batch whose timestamp and offset satisfy `wanted`."""
        data = os.pread(self._reader.fileno(), int(batch["size"]), int(batch["position"]))
        batches = np.array([batch], dtype=batch.dtype)
        batches["position"], batches["size"] = 0, len(data)
        epoch = int(batch["partition_leader_epoch"]) if batch["magic"] >= 2 else _NONE
        for offset, timestamp in stamped_records(memoryview(data), batches, 0,
                                                 streaming=streaming):
            if wanted(timestamp, offset):
                return TimestampOffset(timestamp, offset, epoch if epoch >= 0 else None)
        return None


def _find_in_segment(lookup: _Lookup, timestamp_ms: int, start_offset: int
                     ) -> TimestampOffset | None:
    offset = lookup.offset_at(timestamp_ms)
    for batch in lookup.batches(lookup.position_of(max(offset, start_offset))):
        if int(batch["max_timestamp"]) >= timestamp_ms:
            found = lookup.first_record(batch, lambda timestamp, offset: (
                timestamp >= timestamp_ms and offset >= start_offset))
            if found is not None:
                return found
    return None
