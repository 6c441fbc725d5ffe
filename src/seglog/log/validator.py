"""Checks records before an append (Kafka: UnifiedLog.analyzeAndValidateRecords and LogValidator),
and assigns the offsets and timestamps of a leader.

The caller's bytes are never changed. Errors are Kafka's, with Kafka's messages, in Kafka's order.
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np

from seglog._native.batch import ATTRIBUTE_CONTROL
from seglog._native.producers import Origin
from seglog._native.validate import (
    Analysis, RecordSource, RecordWalk, Refusal, analyze, assign,
)
from seglog.config import LogConfig
from seglog.errors import (
    CorruptRecordError, IllegalArgumentError, InvalidRecordError, OffsetsOutOfOrderError,
    RecordTooLargeError, SeglogError,
)
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.conversion import convert, convert_compressed, rebuild
from seglog.log.deep_records import (
    payload, plain_or_readable, record_offsets, refused_record,
)
from seglog.log.refusals import of_frame, of_stream
from seglog.log.stats import BrokerTopicStats
from seglog.log.validation import (
    Append, Batches, Buffer, RecordErrors, ValidationResult, check_batch, check_first_batch,
)
from seglog.model import TopicPartition
from seglog.storage import codecs
from seglog.storage.codec_streams import StreamError

__all__ = ["ValidationResult", "analyze_and_validate_records", "mark_rejected",
           "validate_messages_and_assign_offsets"]

_LOG = logging.getLogger(__name__)
_ANY_SIZE: Final = (1 << 63) - 1


# --- analysis (UnifiedLog.analyzeAndValidateRecords) ---------------------------------------------

def analyze_and_validate_records(
        records: Buffer, *, topic_partition: TopicPartition, origin: AppendOrigin,
        leader_epoch: int, max_message_bytes: int, ignore_record_size: bool,
        requires_offset_assignment: bool, stats: BrokerTopicStats | None = None,
) -> tuple[LogAppendInfo, Batches]:
    """Describes the records and their batches (rows of BATCH_DTYPE; `position` counts from the
    first byte). Bytes after the last whole batch, and batches of a later leader epoch than a
    follower's, are not part of `valid_bytes` and have no row.

    Without `requires_offset_assignment` the batches' own offsets must increase. Raises
    InvalidRecordError, RecordTooLargeError, CorruptRecordError, OffsetsOutOfOrderError,
    IllegalArgumentError or OutOfBoundsError, by Kafka's names.
    """
    found = analyze(
        records, origin=Origin[origin.name], leader_epoch=leader_epoch,
        batch_bytes_max=_ANY_SIZE if ignore_record_size else max_message_bytes,
        needs_order=not requires_offset_assignment)
    for row in found.skipped:
        _LOG.info(
            "Skipping batch with offsets [%d, %d] from an origin of %s because its partition "
            "leader epoch %d is higher than the replica's current leader epoch %d",
            row["base_offset"], row["last_offset"], origin.name, row["partition_leader_epoch"],
            leader_epoch)
    if found.refusal != Refusal.NO_MORE:
        raise _refused_batch(found, records, topic_partition, leader_epoch, max_message_bytes,
                             stats)
    return LogAppendInfo(
        first_offset=found.first_offset, last_offset=found.last_offset,
        last_leader_epoch=found.last_leader_epoch, max_timestamp=found.max_timestamp,
        source_compression=found.codec, valid_bytes=found.valid_bytes,
        last_offset_of_first_batch=found.last_offset_of_first_batch), found.batches


def _refused_batch(found: Analysis, records: Buffer, topic_partition: TopicPartition,
                   leader_epoch: int, max_message_bytes: int,
                   stats: BrokerTopicStats | None) -> SeglogError:
    a = found.a
    match found.refusal:
        case Refusal.RAFT_EPOCH:
            return InvalidRecordError(
                "Append from Raft leader did not set the batch epoch correctly, expected "
                f"{leader_epoch} but the batch has {a}", expected=leader_epoch, found=a)
        case Refusal.BASE_OFFSET:
            return InvalidRecordError(
                f"The baseOffset of the record batch in the append to {topic_partition} should "
                f"be 0, but it is {a}", expected=0, found=a)
        case Refusal.SIZE:
            if stats is not None:
                mark_rejected(stats, topic_partition, len(records))
            return RecordTooLargeError(
                f"The record batch size in the append to {topic_partition} is {a} bytes which "
                f"exceeds the maximum configured value of {max_message_bytes}).")
        case Refusal.CRC:
            if stats is not None:
                stats.all_topics_stats.meter("InvalidMessageCrcRecordsPerSec").mark()
            return CorruptRecordError(
                f"Record is corrupt (stored crc = {a}) in topic partition {topic_partition}.",
                position=found.position, code="batch_crc")
        case Refusal.CODEC:
            return IllegalArgumentError(f"Unknown compression type id: {a}")
        case Refusal.ORDER:
            offsets = ",".join(map(str, record_offsets(memoryview(records))))
            return OffsetsOutOfOrderError(
                f"Out of order offsets found in append to {topic_partition}: {offsets}")
    error = of_frame(found.refusal, a)
    assert error is not None
    return error


def mark_rejected(stats: BrokerTopicStats, topic_partition: TopicPartition, size: int) -> None:
    """Counts `size` rejected bytes, which came with a batch above `max.message.bytes`."""
    for one in (stats.topic_stats(topic_partition.topic), stats.all_topics_stats):
        one.meter("BytesRejectedPerSec").mark(size)


# --- validation and assignment (LogValidator) -----------------------------------------------------

def validate_messages_and_assign_offsets(
        records: Buffer, batches: Batches, *, topic_partition: TopicPartition,
        origin: AppendOrigin, next_offset: int, now_ms: int, leader_epoch: int,
        config: LogConfig, source_compression: int,
        stats: BrokerTopicStats | None = None) -> ValidationResult:
    """Checks every batch and record, and assigns offsets from `next_offset` on.

    `records` are the valid bytes, `batches` their rows and `source_compression` their codec, all
    three from `analyze_and_validate_records`. If possible, offsets, leader epoch and timestamps are
    set in a copy. Records are encoded again if the topic's `compression.type` differs or their
    format is older than magic 2. Raises InvalidRecordError, RecordValidationError and Kafka's other
    exceptions.
    """
    append = Append(memoryview(records), batches, topic_partition, origin, next_offset, now_ms,
                    leader_epoch, config, source_compression, stats)
    if append.source_codec != codecs.NONE or append.target_codec != codecs.NONE:
        return _validate_compressed(append)
    if not np.all(batches["magic"] == 2):
        return convert(append)
    return _assign_in_place(append)


def walk_records(append: Append, row: int, plain: memoryview, source: RecordSource,
                 failure: StreamError | None = None) -> RecordWalk:
    """Walks the records of a batch of magic 2 and raises an exception for invalid ones.

    With a `failure`, `plain` ends where a stream throws it.
    """
    config = append.config
    walk = RecordWalk(append.batches, row, plain, source=source, rules=(
        config.compact, not append.has_append_time, append.now_ms,
        config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms))
    errors = RecordErrors(append)
    while (refusal := walk.run()) != Refusal.NO_MORE:
        match refusal:
            case Refusal.NO_KEY:
                errors.no_key(walk.index - 1)
            case Refusal.TIMESTAMP:
                errors.timestamp(walk.index - 1, walk.timestamp, walk.offset)
            case Refusal.TIMESTAMP_TYPE:
                errors.timestamp_type(walk.index - 1, _described(walk, source))
            case _:
                raise refused_record(refusal, walk, append.batches, row, plain, source, failure)
    if failure is not None and append.batches["record_count"][row]:
        raise of_stream(failure, "Error checking for remaining bytes after reading batch")
    errors.raise_if_any()
    return walk


def _described(walk: RecordWalk, source: RecordSource) -> str:
    if source is RecordSource.SKIP:
        kind, key, value = "PartialDefaultRecord", walk.key_size, walk.value_size
    else:
        kind, key, value = "DefaultRecord", max(0, walk.key_size), max(0, walk.value_size)
    return (f"{kind}(offset={walk.offset}, timestamp={walk.timestamp}, key={key} bytes, "
            f"value={value} bytes)")


def _assign_in_place(append: Append) -> ValidationResult:
    """Handles one batch of magic 2 that stays uncompressed."""
    check_first_batch(append)
    check_batch(append, 0)
    count, max_timestamp = 0, -1
    if append.batches["record_count"][0]:
        walk = walk_records(append, 0, payload(append.records, append.batches, 0),
                            RecordSource.BUFFER)
        count, max_timestamp = walk.index, walk.max_timestamp
    return _assigned(append, count, max_timestamp)


def _assigned(append: Append, count: int, max_timestamp: int) -> ValidationResult:
    """A copy of the batch with its final offsets."""
    if append.has_append_time:
        max_timestamp = append.now_ms
    data = bytearray(append.records)
    batches = append.batches.copy()
    assign(data, batches, 0, next_offset=append.next_offset, count=count,
           leader_epoch=append.leader_epoch, has_append_time=append.has_append_time,
           max_timestamp=max_timestamp)
    return ValidationResult(data, batches, append.next_offset + count, append.now_ms,
                            max_timestamp, False)


def _validate_compressed(append: Append) -> ValidationResult:
    """Handles records that are compressed, or will be."""
    check_first_batch(append)
    batches = append.batches
    if batches["magic"][0] < 2:
        return convert_compressed(append)
    codec = append.source_codec
    in_place = (codec == append.target_codec
                or (codec == codecs.NONE
                    and bool(batches["attributes"][0] & ATTRIBUTE_CONTROL)))
    check_batch(append, 0)
    if codec == codecs.NONE:
        source = RecordSource.BUFFER
    else:
        source = RecordSource.SKIP if in_place else RecordSource.STREAM
    if in_place and not batches["record_count"][0]:
        return _assigned(append, 0, -1)
    plain, failure = plain_or_readable(append.records, batches, 0)
    walk = walk_records(append, 0, plain, source, failure)
    if in_place and walk.is_sequential:
        return _assigned(append, walk.index, walk.max_timestamp)
    return rebuild(append, plain, source)
