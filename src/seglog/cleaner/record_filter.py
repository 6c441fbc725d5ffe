"""Decides which batches and records a round keeps, and encodes them (Kafka: MemoryRecords.filterTo,
Cleaner.checkBatchRetention, Cleaner.shouldRetainRecord)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from seglog._native.batch import ATTRIBUTE_LOG_APPEND_TIME
from seglog._native.clean import BatchCleaner, OffsetMap, Retained, retain
from seglog._native.crc32c import crc32c
from seglog._native.validate import RecordSource, RecordWalk, Refusal
from seglog.cleaner.chunks import Chunk
from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.cleaner.transaction_metadata import CleanedTransactionMetadata
from seglog.errors import IllegalArgumentError, IllegalStateError, SeglogError
from seglog.java.numbers import wrap_int64
from seglog.log.batch_builder import (
    NO_TIMESTAMP, RecordBatchBuilder, RecordsInfo, attributes_of,
)
from seglog.log.deep_records import (
    HEADER_BYTES, legacy_records, plain_or_readable, refused_record,
)
from seglog.log.readable_log import LastRecord
from seglog.log.refusals import of_stream
from seglog.storage import codecs
from seglog.storage.batches import BatchHeader
from seglog.storage.legacy_records import LegacyRecord

__all__ = ["RecordFilter", "Rules", "batch_cleaner", "read_records"]

_PREFIX = struct.Struct(">qiibI")       # base offset, length, leader epoch, magic, CRC
_FIELDS = struct.Struct(">hiqqqhii")    # attributes to record count, which the CRC covers
_LENGTH_OF_EMPTY: Final = 49
_NO_PRODUCER_ID: Final = -1
_REMAINING = "Error checking for remaining bytes after reading batch"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for the records of one segment. Times are ms.

    `retains_legacy_deletes`: tombstones of magic 0 and 1 stay. A batch that ends at `upper_bound`
    stays, if necessary empty, because the log's end is known from it.
    """

    now_ms: int
    delete_retention_ms: int
    retains_legacy_deletes: bool
    last_records: Mapping[int, LastRecord]
    upper_bound: int


def read_records(chunk: Chunk, row: int, batch: BatchHeader, read: Callable[[RecordWalk], int]
                 ) -> memoryview:
    """Runs `read` over the records of a batch of magic 2. Returns the records, decompressed.

    `read` returns what ended it. Raises the exceptions of Kafka's reader for records that cannot be
    parsed or decompressed.
    """
    failure = None
    if batch.codec:
        plain, failure = plain_or_readable(chunk.data, chunk.rows, row)
    else:
        plain = chunk.data[batch.position + HEADER_BYTES:batch.position + batch.size]
    walk = _walk(chunk, row, batch, plain)
    refusal = read(walk)
    if failure is not None and walk.index == batch.record_count:
        raise of_stream(failure, _REMAINING)
    if refusal != Refusal.NO_MORE:
        raise refused_record(refusal, walk, chunk.rows, row, plain, _source(batch), failure)
    return plain


def _source(batch: BatchHeader) -> RecordSource:
    return RecordSource.STREAM if batch.codec else RecordSource.BUFFER


def _walk(chunk: Chunk, row: int, batch: BatchHeader, plain: memoryview) -> RecordWalk:
    return RecordWalk(chunk.rows, row, plain, source=_source(batch))


def batch_cleaner(offset_map: OffsetMap, transactions: CleanedTransactionMetadata
                  ) -> BatchCleaner:
    """The fast path over whole batches."""
    return BatchCleaner(offset_map, transactions=transactions, direct=codecs.DIRECT,
                        compress=codecs.compress)


class RecordFilter:
    """Filters one segment after another, in their order."""

    def __init__(self, offset_map: OffsetMap, transactions: CleanedTransactionMetadata,
                 stats: CleanerStats) -> None:
        self.offset_map, self.transactions, self.stats = offset_map, transactions, stats
        self.rules = Rules(0, 0, True, {}, 0)
        self._batches = batch_cleaner(offset_map, transactions)

    def begin(self, rules: Rules) -> None:
        """Starts the next segment."""
        self._batches.begin(b"", uses_marks=False)  # the last one's buffer is released
        self.rules = rules
        producers = sorted(rules.last_records)
        last = [rules.last_records[one].last_data_offset for one in producers]
        self._batches.rule(
            now_ms=rules.now_ms, new_horizon=self._new_horizon(),
            upper_bound=rules.upper_bound, producers=producers,
            last_offsets=[-1 if one is None else one for one in last])

    def filter(self, chunk: Chunk, *, is_mapped: bool) -> tuple[int, memoryview]:
        """The retained batches of a chunk, unchanged or encoded again, and the largest offset of a
        retained record; valid until the next call.

        Native code handles the batches, many per call; unusual ones are handled here. `is_mapped`:
        the offset map was built from all of the chunk.
        """
        batches, row = self._batches, 0
        before = batches.counts
        batches.begin(chunk.data, uses_marks=is_mapped)
        while (row := batches.filter(chunk.rows, row)) < len(chunk.rows):
            batch = chunk.batch(row)
            self.stats.bytes_read += batch.size
            try:
                if batch.magic < 2:
                    self._filter_legacy(chunk, row, batch)
                else:
                    self._filter_batch(chunk, row, batch)
            except SeglogError as error:
                error.batch_at = chunk.place(batch)
                raise
            row += 1
        data = batches.end()
        size, read, invalid, kept = (
            now - then for now, then in zip(batches.counts, before, strict=True))
        self.stats.bytes_read += size
        self.stats.messages_read += read
        self.stats.invalid_messages_read += invalid
        self.stats.messages_written += kept
        self.stats.bytes_written += len(data)
        return batches.max_offset, data

    # ---- magic 2 ------------------------------------------------------------------------------

    def _filter_batch(self, chunk: Chunk, row: int, batch: BatchHeader) -> None:
        rules, horizon = self.rules, batch.delete_horizon_ms
        if batch.is_control:
            can_discard = self.transactions.on_control_batch(
                batch.producer_id, batch.last_offset, chunk.control_type(batch))
            discards = can_discard and horizon is not None and horizon <= rules.now_ms
        else:
            discards = can_discard = self.transactions.on_batch(
                batch.producer_id, batch.last_offset, batch.is_transactional)
        retains_empty = self._is_last_of_producer(batch) or self._ends_round(batch)
        if discards and not retains_empty:
            return
        found, plain = self._retain(chunk, row, batch, keeps_none=discards)
        self.stats.messages_read += found.read_count
        self.stats.invalid_messages_read += found.invalid_count
        self.stats.messages_written += found.kept_count
        if found.kept_count:
            sets_horizon = horizon is None and (
                found.has_tombstone or (can_discard and batch.is_control))
            if found.kept_count == found.read_count and not sets_horizon:
                _check_kept(RecordsInfo(batch.max_timestamp, batch.last_offset), batch.last_offset)
                self._batches.keep(batch.position, batch.size, batch.last_offset)
                return
            if sets_horizon:
                horizon = self._new_horizon()
            built = self._rebuild(batch, _walk(chunk, row, batch, plain), found, horizon)
            self._batches.write(built, found.max_offset)
        elif retains_empty:
            _check_kept(RecordsInfo(batch.max_timestamp, batch.last_offset), batch.last_offset)
            self._batches.write(_empty(batch), batch.last_offset)

    def _new_horizon(self) -> int:
        """Negative, and then none, if it is beyond Java's long."""
        return wrap_int64(self.rules.now_ms + self.rules.delete_retention_ms)

    def _is_last_of_producer(self, batch: BatchHeader) -> bool:
        """Whether the producer's state is in this batch: its last data, or for a producer without
        data a marker of its epoch, which fences older ones."""
        if batch.producer_id <= _NO_PRODUCER_ID:
            return False
        last = self.rules.last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _ends_round(self, batch: BatchHeader) -> bool:
        return batch.last_offset + 1 == self.rules.upper_bound

    def _retain(self, chunk: Chunk, row: int, batch: BatchHeader, *, keeps_none: bool
                ) -> tuple[Retained, memoryview]:
        """Which records stay, and all of them, decompressed."""
        horizon = batch.delete_horizon_ms
        found: list[Retained] = []

        def read(walk: RecordWalk) -> int:
            found.append(retain(
                walk, self.offset_map, keeps_none=keeps_none, keeps_all=batch.is_control,
                keeps_tombstones=horizon is None or self.rules.now_ms < horizon))
            return found[0].refusal

        plain = read_records(chunk, row, batch, read)
        return found[0], plain

    def _rebuild(self, batch: BatchHeader, walk: RecordWalk, found: Retained,
                 horizon: int | None) -> bytes:
        builder = RecordBatchBuilder(
            base_offset=batch.base_offset, codec=batch.codec,
            log_append_time=_append_time(batch), producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch, base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional, is_control_batch=batch.is_control,
            partition_leader_epoch=batch.partition_leader_epoch,
            delete_horizon_ms=NO_TIMESTAMP if horizon is None else horizon, rewritten=True)
        builder.append_kept(walk, found.kept)
        builder.override_last_offset(batch.last_offset)
        built = builder.build()
        _check_kept(builder.info, found.max_offset)
        return built

    # ---- magic 0 and 1 ------------------------------------------------------------------------

    def _filter_legacy(self, chunk: Chunk, row: int, batch: BatchHeader) -> None:
        self.transactions.on_batch(_NO_PRODUCER_ID, batch.last_offset, False)
        kept: list[LegacyRecord] = []
        for record in legacy_records(chunk.data, chunk.rows, row):
            self.stats.messages_read += 1
            if self._keeps_legacy(record):
                kept.append(record)
        self.stats.messages_written += len(kept)
        if kept:
            has_tombstone = any(record.value is None for record in kept)
            builder = RecordBatchBuilder(
                base_offset=kept[0].offset, codec=batch.codec,
                log_append_time=_append_time(batch) if batch.magic else None,
                delete_horizon_ms=self._new_horizon() if has_tombstone else NO_TIMESTAMP,
                rewritten=True)
            for record in kept:
                builder.append_with_offset(record.offset, record.timestamp, record.key,
                                           record.value)
            built, max_offset = builder.build(), max(record.offset for record in kept)
            _check_kept(builder.info, max_offset)
            self._batches.write(built, max_offset)
        elif self._ends_round(batch):
            raise IllegalStateError("Empty batches are only supported for magic v2 and above")

    def _keeps_legacy(self, record: LegacyRecord) -> bool:
        if record.offset > self.offset_map.latest_offset:
            return True
        key = record.key
        if key is None:
            self.stats.invalid_messages_read += 1
            return False
        return record.offset >= self.offset_map.get(key) and (
            record.value is not None or self.rules.retains_legacy_deletes)


def _check_kept(info: RecordsInfo, max_offset: int) -> None:
    """Refuses negative offsets, which only damage gives a batch (Kafka:
    FilterResult.validateBatchMetadata)."""
    if info.max_timestamp != NO_TIMESTAMP and info.shallow_offset_of_max_timestamp < 0:
        raise IllegalArgumentError(
            f"shallowOffset undefined for maximum timestamp {info.max_timestamp}")
    if max_offset < 0:
        raise IllegalArgumentError("maxOffset undefined")


def _append_time(batch: BatchHeader) -> int | None:
    return batch.max_timestamp if batch.attributes & ATTRIBUTE_LOG_APPEND_TIME else None


def _empty(batch: BatchHeader) -> bytes:
    """The batch without records, which keeps its producer's state and its offsets (Kafka:
    DefaultRecordBatch.writeEmptyHeader)."""
    attributes = attributes_of(
        codecs.NONE, is_log_append_time=_append_time(batch) is not None,
        is_transactional=batch.is_transactional, is_control=batch.is_control)
    fields = _FIELDS.pack(
        attributes, batch.last_offset - batch.base_offset, NO_TIMESTAMP, batch.max_timestamp,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, 0)
    return _PREFIX.pack(batch.base_offset, _LENGTH_OF_EMPTY, batch.partition_leader_epoch, 2,
                        crc32c(fields)) + fields
