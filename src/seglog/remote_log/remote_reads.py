"""Reads of remote segments (Kafka: RemoteLogManager.read, findOffsetByTimestamp)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from seglog._native.batch import scan
from seglog._native.fetch import FetchDataInfo, LogOffsetMetadata
from seglog.arrow.batch_bytes import decode_chunk
from seglog.errors import (
    CorruptRecordError, OffsetOutOfRangeError, RemoteResourceNotFoundError,
)
from seglog.log.unified_log import UnifiedLog
from seglog.model import AbortedTxn, TimestampOffset
from seglog.remote_log.index_cache import RemoteIndexCache
from seglog.remote_log.lineage import (
    Lineage, end_in_lineage, epochs_of, epochs_with_records, is_within_leader_epochs,
)
from seglog.remote_log.metadata_manager import RemoteLogMetadataManager
from seglog.storage.stream import DecodeOptions
from seglog.tiered.remote_records import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition,
)
from seglog.tiered.remote_storage import RemoteStorageManager
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["RemoteReads"]

_HEAD = struct.Struct(">qiiBIhiqq")  # up to the largest timestamp of a batch of magic 2
_PREFIX_BYTES, _MAGIC_AT = 12, 16
_COLUMNS = DecodeOptions(columns=("offset", "timestamp"), include_control=True)


class _Batch(NamedTuple):
    """A batch of a remote segment."""

    data: bytes
    last_offset: int
    max_timestamp: int

    @property
    def base_offset(self) -> int:
        """The offset with which it begins."""
        return int.from_bytes(self.data[:8], "big", signed=True)


class RemoteReads:
    """Finds and reads batches in remote storage. Safe from any thread."""

    def __init__(self, metadata: RemoteLogMetadataManager, storage: RemoteStorageManager,
                 indexes: RemoteIndexCache) -> None:
        self._metadata, self._storage, self._indexes = metadata, storage, indexes

    # ---- by offset

    def read(self, key: TopicIdPartition, log: UnifiedLog, offset: int, max_bytes: int, *,
             min_one_message: bool = True, committed: bool = False) -> FetchDataInfo:
        """Up to `max_bytes` from the batch that holds `offset`, all of one segment; with
        `min_one_message` at least that whole batch. The last batch may be incomplete. Where the
        log has other records than the segment, after an unclean election, the records end. (Kafka
        returns those of the segment.) If the remote segments have no record from `offset` on,
        because they were compacted before tiering, these are the first local ones. (Kafka returns
        none, for ever.)

        `committed` adds the aborted transactions. Raises OffsetOutOfRangeError for an offset that
        is not in remote storage, and the exceptions of the storage.
        """
        segment: RemoteLogSegmentMetadata | None = self._first_segment(key, log, offset)
        following, is_whole = offset, True
        while segment is not None or is_whole and following >= log.local_log_start_offset:
            if segment is None:
                local = _read_local(log, following, max_bytes, min_one_message, committed)
                if local is not None:
                    return local
                segment = self._first_segment(key, log, following)  # it left the disk meanwhile
            try:
                last = _end_of(segment, log, offset)
                found = self._read_segment(segment, offset, last, max_bytes, min_one_message)
                if committed and not isinstance(found, int):
                    self._add_aborted(key, log, segment, found)
            except RemoteResourceNotFoundError:
                self._first_segment(key, log, offset)  # retention has deleted it meanwhile
                raise
            if not isinstance(found, int):
                if committed:
                    # Retention deletes the oldest segment first. As long as this one is there, so
                    # were those in which its transactions ended.
                    self._first_segment(key, log, offset)
                return found
            following, is_whole = segment.end_offset + 1, found == segment.segment_size_in_bytes
            segment = self._segment_of(key, log, following)
        return FetchDataInfo(LogOffsetMetadata(offset), b"", False, [] if committed else None)

    def _first_segment(self, key: TopicIdPartition, log: UnifiedLog,
                       offset: int) -> RemoteLogSegmentMetadata:
        """Raises OffsetOutOfRangeError for an offset that is not in remote storage."""
        found = self._segment_of(key, log, offset)
        if found is None:
            epoch = epochs_of(log).epoch_for_offset(offset)
            raise OffsetOutOfRangeError(
                f"Received request for offset {offset} for leader epoch "
                f"{'NOT AVAILABLE' if epoch is None else epoch} and partition "
                f"{log.topic_partition} which does not exist in remote tier.")
        return found

    def _segment_of(self, key: TopicIdPartition, log: UnifiedLog,
                    offset: int) -> RemoteLogSegmentMetadata | None:
        """None also for a segment that ends before the offset: one whose epochs begin after its
        end. The search after it would find it again, without end."""
        epoch = epochs_of(log).epoch_for_offset(offset)
        found = None if epoch is None else self._metadata.remote_log_segment_metadata(
            key, epoch, offset)
        return None if found is None or found.end_offset < offset else found

    def _read_segment(self, segment: RemoteLogSegmentMetadata, offset: int, last: int,
                      max_bytes: int, min_one_message: bool) -> FetchDataInfo | int:
        """The batches that begin at or below `last`. If no batch reaches `offset`, because the
        segment was compacted before tiering or is not whole, the byte at which they end."""
        with self._opened_at(segment, offset) as (stream, position, batch):
            while batch is not None and batch.last_offset < offset:
                position += len(batch.data)
                batch = _next_batch(stream, segment, position)
            if batch is None:
                return position
            if len(batch.data) > max_bytes and not min_one_message:
                return FetchDataInfo(LogOffsetMetadata(offset))
            size = min(max_bytes, segment.segment_size_in_bytes)
            rest = _read_fully(stream, max(size - len(batch.data), 0))
        data = batch.data + rest
        if last < segment.end_offset:
            rows = scan(data, check_crcs=False).batches
            data = data[:next(iter(rows["position"][rows["base_offset"] > last]), None)]
        return FetchDataInfo(LogOffsetMetadata(batch.base_offset, segment.start_offset, position),
                             data)

    @contextmanager
    def _opened_at(self, segment: RemoteLogSegmentMetadata, offset: int
                   ) -> Iterator[tuple[BinaryIO, int, _Batch | None]]:
        """A segment's log, and position and content of its first batch in a search for an offset;
        what follows the batch is in the stream. A stored index that leads beyond the offset is not
        used. (Kafka returns later records.)"""
        position = self._indexes.get(segment).position_of(offset)
        while True:
            with self._storage.fetch_log_segment(segment, position) as stream:
                try:
                    batch = _next_batch(stream, segment, position)
                except CorruptRecordError:
                    if position == 0:
                        raise
                    batch = None
                if position == 0 or batch is not None and batch.base_offset <= offset:
                    yield stream, position, batch
                    return
            position = 0

    # ---- aborted transactions

    def _add_aborted(self, key: TopicIdPartition, log: UnifiedLog,
                     segment: RemoteLogSegmentMetadata, found: FetchDataInfo) -> None:
        if not found.records:  # the first batch is too large
            found.aborted_transactions = []
            return
        start = found.fetch_offset_metadata.message_offset
        end = found.fetch_offset_metadata.relative_position_in_segment + len(found.records)
        entry = self._indexes.get(segment).offsets.upper_bound(end)
        upper = segment.end_offset + 1 if entry is None else entry[0]
        # A stored index that leads too far names an offset before the end of the records.
        upper = max(upper, scan(found.records, check_crcs=False).last_offset + 1)
        aborted: dict[tuple[int, int], AbortedTxn] = {}
        last = _end_of(segment, log, start)
        is_complete = not segment.txn_idx_empty and self._select(segment, last, start, upper,
                                                                 aborted)
        following, first_local = last + 1, -1
        # A segment that was still local during the first search, and is only remote during the
        # second, is searched for again.
        while not is_complete and first_local != log.local_log_start_offset:
            first_local = log.local_log_start_offset
            while not is_complete and (
                    one := self._next_with_txn_index(key, log, following)) is not None:
                last = _end_of(one, log, following)
                is_complete = self._select(one, last, start, upper, aborted)
                following = last + 1
            if not is_complete:
                aborted.update(_by_producer(
                    one for one in log.collect_aborted_transactions(max(first_local, start), upper)
                    if one.last_offset >= start))
        found.aborted_transactions = list(aborted.values())

    def _select(self, segment: RemoteLogSegmentMetadata, last: int, start: int, upper: int,
                into: dict[tuple[int, int], AbortedTxn]) -> bool:
        """Adds the transactions of a segment's index with records in [start, upper), of those that
        ended at or below `last`. Returns whether no later segment has any."""
        found, is_complete = self._indexes.get(segment).aborted_between(start, upper)
        into.update(_by_producer(one for one in found if one.last_offset <= last))
        return is_complete and last == segment.end_offset

    def _next_with_txn_index(self, key: TopicIdPartition, log: UnifiedLog,
                             offset: int) -> RemoteLogSegmentMetadata | None:
        epochs = epochs_of(log)
        first = epochs.epoch_for_offset(offset)
        for entry in epochs if first is not None else ():
            if first is not None and entry.epoch >= first:
                found = self._metadata.next_segment_with_txn_index(
                    key, entry.epoch, max(entry.start_offset, offset))
                if found is not None and found.end_offset >= offset:
                    return found
        return None

    # ---- by time

    def find_offset_by_timestamp(self, key: TopicIdPartition, log: UnifiedLog, timestamp_ms: int,
                                 start_offset: int) -> TimestampOffset | None:
        """The first record at or after a time and an offset, in remote segments that begin below
        the local ones; None if the search has to continue in local segments."""
        while True:
            try:
                return self._find_offset_by_timestamp(key, log, timestamp_ms, start_offset)
            except RemoteResourceNotFoundError:
                # Retention moves the log's start before it deletes a segment.
                before, start_offset = start_offset, max(start_offset, log.log_start_offset)
                if before == start_offset:
                    raise

    def _find_offset_by_timestamp(self, key: TopicIdPartition, log: UnifiedLog, timestamp_ms: int,
                                  start_offset: int) -> TimestampOffset | None:
        epochs = epochs_of(log)
        # Read after the epochs, which begin at the log's start: one that moved since the caller
        # looked has none at the old one.
        start_offset = max(start_offset, log.log_start_offset)
        lineage = epochs_with_records((one.epoch, one.start_offset) for one in epochs)
        epoch, searched = epochs.epoch_for_offset(start_offset), set[RemoteLogSegmentId]()
        while epoch is not None:
            for segment in self._metadata.list_remote_log_segments(key, epoch):
                if (segment.max_timestamp_ms >= timestamp_ms
                        and segment.end_offset >= start_offset
                        and segment.remote_log_segment_id not in searched
                        and segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                        and (last := self._last_of(key, log, segment, start_offset, lineage))
                        is not None):
                    if segment.start_offset >= _first_local(log):
                        return None
                    found = self._find_in_segment(segment, timestamp_ms, start_offset, last)
                    if found is not None:
                        return found
                    searched.add(segment.remote_log_segment_id)
            epoch = epochs.next_epoch(epoch)
        return None

    def _last_of(self, key: TopicIdPartition, log: UnifiedLog, segment: RemoteLogSegmentMetadata,
                 start_offset: int, lineage: Lineage) -> int | None:
        """The last offset up to which the log has a segment's records from an offset on; None if it
        has none. (Kafka has none of a segment whose end was lost.)"""
        if is_within_leader_epochs(segment, log.log_end_offset, lineage):
            return segment.end_offset
        offset = max(segment.start_offset, start_offset)
        read = self._segment_of(key, log, offset)
        if read is None or read.remote_log_segment_id != segment.remote_log_segment_id:
            return None
        return _end_of(segment, log, offset)

    def _find_in_segment(self, segment: RemoteLogSegmentMetadata, timestamp_ms: int,
                         start_offset: int, last: int) -> TimestampOffset | None:
        """The first such record up to offset `last`; None for none, as where the latest record is
        before `start_offset`. (Kafka continues on the disk then.)"""
        offset = self._indexes.get(segment).offset_at(timestamp_ms, start_offset)
        with self._opened_at(segment, offset) as (stream, position, batch):
            while batch is not None and batch.base_offset <= last:
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    for columns in decode_chunk(batch.data, _COLUMNS, name=str(
                            segment.remote_log_segment_id)):
                        rows = columns.to_pylists()
                        for offset, timestamp in zip(rows["offset"], rows["timestamp"],
                                                     strict=True):
                            if timestamp >= timestamp_ms and offset >= start_offset:
                                return TimestampOffset(timestamp, offset, _epoch_of(batch.data))
                position += len(batch.data)
                batch = _next_batch(stream, segment, position)
        return None


def _end_of(segment: RemoteLogSegmentMetadata, log: UnifiedLog, offset: int) -> int:
    """The last offset of a segment that the log has; `offset` is one of both."""
    last = end_in_lineage(segment, log)
    return last if last >= offset else segment.end_offset


def _read_local(log: UnifiedLog, offset: int, max_bytes: int, min_one_message: bool,
                committed: bool) -> FetchDataInfo | None:
    """None for an offset that has left the disk."""
    try:
        return log.read(offset, max_bytes, "read_committed" if committed else "read_uncommitted",
                        min_one_message)
    except OffsetOutOfRangeError:
        if offset >= log.local_log_start_offset:
            raise
        return None


def _by_producer(transactions: Iterable[AbortedTxn]) -> dict[tuple[int, int], AbortedTxn]:
    return {(one.producer_id, one.first_offset): one for one in transactions}


def _first_local(log: UnifiedLog) -> int:
    """Raises KafkaStorageError for a log that was deleted."""
    with log.lock:
        log.check_open()
        return int(log.segments.base_offsets[0])


def _epoch_of(batch: bytes) -> int | None:
    epoch = int.from_bytes(batch[12:16], "big", signed=True)
    return epoch if batch[_MAGIC_AT] >= 2 and epoch >= 0 else None


def _next_batch(stream: BinaryIO, segment: RemoteLogSegmentMetadata,
                position: int) -> _Batch | None:
    """The next whole batch; None at the end of the segment, where one may be truncated.

    Raises CorruptRecordError for a length that no batch has.
    """
    head = _read_fully(stream, _PREFIX_BYTES)
    if len(head) < _PREFIX_BYTES:
        return None
    base, length = struct.unpack(">qi", head)
    if not 14 <= length <= segment.segment_size_in_bytes:
        raise CorruptRecordError(
            f"{segment.remote_log_segment_id}: byte {position}: a batch of {length} bytes, "
            f"expected 14 to {segment.segment_size_in_bytes}",
            file=str(segment.remote_log_segment_id), position=position,
            expected=segment.segment_size_in_bytes, found=length)
    data = head + _read_fully(stream, length)
    if len(data) < _PREFIX_BYTES + length:
        return None
    if data[_MAGIC_AT] < 2:
        timestamp = int.from_bytes(data[18:26], "big", signed=True) if data[_MAGIC_AT] else -1
        return _Batch(data, base, timestamp)
    if len(data) < _HEAD.size:
        raise CorruptRecordError(
            f"{segment.remote_log_segment_id}: byte {position}: a batch of {len(data)} bytes, "
            f"its header has {_HEAD.size}", file=str(segment.remote_log_segment_id),
            position=position, expected=_HEAD.size, found=len(data))
    fields = _HEAD.unpack_from(data)
    return _Batch(data, base + fields[6], fields[8])


def _read_fully(stream: BinaryIO, size: int) -> bytes:
    """`size` bytes, or those up to the end: a store may return fewer at a time."""
    found = bytearray()
    while len(found) < size and (piece := stream.read(size - len(found))):
        found += piece
    return bytes(found)
