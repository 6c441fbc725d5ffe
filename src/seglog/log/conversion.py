"""Encodes records again before an append, because the topic has a codec of its own, or because they
are older than magic 2 (Kafka: LogValidator's conversions).
"""

from __future__ import annotations

from collections.abc import Iterator

from seglog._native.batch import (
    ATTRIBUTE_CODEC, ATTRIBUTE_LOG_APPEND_TIME, ATTRIBUTE_TRANSACTIONAL,
)
from seglog._native.validate import RecordSource, RecordWalk, Refusal, frames
from seglog.errors import CorruptRecordError, UncheckedError, UnsupportedOperationError
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.deep_records import legacy_records, touch_records
from seglog.log.refusals import of_record
from seglog.log.validation import (
    Append, RecordErrors, ValidationResult, check_batch, check_first_batch,
)
from seglog.storage.legacy_records import LegacyRecord

__all__ = ["convert", "convert_compressed", "rebuild"]


def _builder(append: Append) -> RecordBatchBuilder:
    """A builder for one batch with the first batch's producer and the topic's codec."""
    first, config = append.batches[0], append.config
    return RecordBatchBuilder(
        base_offset=append.next_offset, codec=append.target_codec, level=config.compression_level,
        log_append_time=append.now_ms if append.has_append_time else None,
        producer_id=int(first["producer_id"]), producer_epoch=int(first["producer_epoch"]),
        base_sequence=int(first["base_sequence"]),
        is_transactional=bool(first["attributes"] & ATTRIBUTE_TRANSACTIONAL)
        and first["magic"] >= 2,
        partition_leader_epoch=append.leader_epoch)


def _built(append: Append, builder: RecordBatchBuilder) -> ValidationResult:
    records = builder.build()
    if append.has_append_time and not builder.num_records:
        # Kafka's builder reads the last offset of an empty batch.
        raise UncheckedError('Cannot invoke "java.lang.Long.longValue()" because "this.lastOffset" '
                             "is null", "NullPointerException")
    return ValidationResult(records, frames(records).batches,
                            append.next_offset + builder.num_records, append.now_ms,
                            builder.info.max_timestamp, True)


def rebuild(append: Append, plain: memoryview, source: RecordSource) -> ValidationResult:
    """Encodes the valid records of a batch of magic 2 again.

    Raises UnsupportedOperationError where Kafka detects too late that it has to: it has skipped the
    keys by then.
    """
    if source is RecordSource.SKIP:
        raise UnsupportedOperationError("key is skipped in PartialDefaultRecord")
    builder = _builder(append)
    walk = RecordWalk(append.batches, 0, plain, source=source)
    refusal = builder.append_all(walk)
    if refusal != Refusal.NO_MORE:
        raise of_record(refusal, walk)
    return _built(append, builder)


def convert(append: Append) -> ValidationResult:
    """Converts messages of magic 0 or 1 into one uncompressed batch."""
    touch_records(append.records)  # Kafka sums their sizes first
    check_first_batch(append)
    builder = _builder(append)
    for row in range(len(append.batches)):
        check_batch(append, row)
        errors = RecordErrors(append)
        for message in _checked(append, row, errors):
            builder.append(message.timestamp, message.key, message.value)
        errors.raise_if_any()
    return _built(append, builder)


def convert_compressed(append: Append) -> ValidationResult:
    """Converts messages of magic 0 or 1, compressed or to be compressed, into one batch."""
    messages: list[LegacyRecord] = []
    for row in range(len(append.batches)):
        check_batch(append, row)
        errors = RecordErrors(append)
        messages += _checked(append, row, errors)
        errors.raise_if_any()
    for message in messages:
        message.touch()
    builder = _builder(append)
    for message in messages:
        builder.append(message.timestamp, message.key, message.value)
    return _built(append, builder)


def _checked(append: Append, row: int, errors: RecordErrors) -> Iterator[LegacyRecord]:
    """Yields the messages of an entry up to the first that the topic's rules refuse."""
    attributes = int(append.batches["attributes"][row])
    magic = int(append.batches["magic"][row])
    has_append_time = magic > 0 and bool(attributes & ATTRIBUTE_LOG_APPEND_TIME)
    for index, message in enumerate(legacy_records(append.records, append.batches, row)):
        _check(append, errors, index, message, magic, has_append_time,
               is_compressed=bool(attributes & ATTRIBUTE_CODEC))
        if not errors:
            yield message


def _check(append: Append, errors: RecordErrors, index: int, message: LegacyRecord, magic: int,
           has_append_time: bool, *, is_compressed: bool) -> None:
    """Kafka's validateRecord for an old message; adds what the topic's rules refuse."""
    config, now = append.config, append.now_ms
    if message.magic != magic:
        errors.magic(index, str(message), magic)
        return
    if is_compressed:
        try:
            message.ensure_valid()
        except CorruptRecordError:
            append.mark("InvalidMessageCrcRecordsPerSec")
            raise
    if config.compact and message.key_size < 0:
        errors.no_key(index)
        return
    timestamp = message.timestamp
    if not append.has_append_time and timestamp != -1:
        age = now - timestamp
        if (age > config.message_timestamp_before_max_ms
                or -age > config.message_timestamp_after_max_ms):
            errors.timestamp(index, timestamp, message.offset)
    elif has_append_time:
        errors.timestamp_type(index, str(message))
