"""One append under LogValidator: the data that its checks share (Kafka: LogValidator)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seglog._native.validate import Refusal, check_client_header
from seglog.config import LogConfig
from seglog.errors import (
    InvalidRecordError, InvalidTimestampError, RecordValidationError, SeglogError,
)
from seglog.log.append_info import AppendOrigin, RecordError
from seglog.log.stats import BrokerTopicStats
from seglog.model import TopicPartition
from seglog.java.numbers import wrap_int64
from seglog.storage import codecs

__all__ = ["Append", "Batches", "Buffer", "RecordErrors", "ValidationResult", "check_batch",
           "check_first_batch"]

Buffer = bytes | bytearray | memoryview
Batches = NDArray[np.void]


@dataclass(slots=True)
class ValidationResult:
    """Records that are ready to be written, and their batches.

    `records` is a separate buffer. `next_offset` is the offset after the last record.
    `log_append_time_ms` is when they were validated. `max_timestamp` is the largest timestamp of
    the records, or that time for a topic with LogAppendTime; ms. If `message_size_maybe_changed`,
    the caller checks the sizes of batches again.
    """

    records: Buffer
    batches: Batches
    next_offset: int
    log_append_time_ms: int
    max_timestamp: int
    message_size_maybe_changed: bool


@dataclass(slots=True)
class Append:
    """One append, for all functions that check or convert a part of it."""

    records: memoryview
    batches: Batches
    topic_partition: TopicPartition
    origin: AppendOrigin
    next_offset: int
    now_ms: int
    leader_epoch: int
    config: LogConfig
    source_codec: int
    stats: BrokerTopicStats | None

    @property
    def has_append_time(self) -> bool:
        """Whether the topic uses LogAppendTime."""
        return self.config.message_timestamp_type == "LogAppendTime"

    def mark(self, meter: str) -> None:
        """Counts one refusal in a meter of all topics."""
        if self.stats is not None:
            self.stats.all_topics_stats.meter(meter).mark()

    @property
    def target_codec(self) -> int:
        """The codec of `compression.type`; the producer's own unless the topic has one."""
        name = self.config.compression_type
        if name == "producer":
            return self.source_codec
        return codecs.codec_id("none" if name == "uncompressed" else name)


def check_first_batch(append: Append) -> None:
    """Allows several batches only for uncompressed old messages."""
    if not len(append.batches):
        raise InvalidRecordError("Record batch has no batches at all")
    if (len(append.batches) > 1
            and (append.batches["magic"][0] >= 2 or append.source_codec != codecs.NONE)):
        raise InvalidRecordError("Compressed outer record has more than one batch")


def check_batch(append: Append, row: int) -> None:
    """Kafka's validateBatch."""
    batches, where = append.batches, append.topic_partition
    magic, first = int(batches["magic"][row]), int(batches["magic"][0])
    if magic != first:
        append.mark("InvalidMagicNumberRecordsPerSec")
        raise InvalidRecordError(
            f"Batch magic {magic} is not the same as the first batch's magic byte {first} in "
            f"topic partition {where}", expected=first, found=magic)
    if append.origin is not AppendOrigin.CLIENT or magic < 2:
        return
    refusal = check_client_header(batches, row)
    if refusal == Refusal.ACCEPTED:
        return
    append.mark("InvalidOffsetOrSequenceRecordsPerSec")
    base, last, count, sequence, producer = (int(batches[name][row]) for name in (
        "base_offset", "last_offset", "record_count", "base_sequence", "producer_id"))
    raise InvalidRecordError({
        Refusal.RANGE: f"Batch has an invalid offset range: [{base}, {last}] in topic partition "
                       f"{where}",
        Refusal.COUNT: f"Invalid reported count for record batch: {count} in topic partition "
                       f"{where}",
        Refusal.COUNT_OF_RANGE: f"Inconsistent batch offset range [{base}, {last}] and count of "
                                f"records {count} in topic partition {where}",
        Refusal.CONTROL: "Clients are not allowed to write control records in topic partition "
                         f"{where}",
        Refusal.SEQUENCE: f"Invalid sequence number {sequence} in record batch with producerId "
                          f"{producer} in topic partition {where}",
    }[Refusal(refusal)])


class RecordErrors:
    """The records of one batch that a topic's rules refuse."""

    __slots__ = ("_append", "_found", "_has_timestamp")

    def __init__(self, append: Append) -> None:
        self._append = append
        self._found: list[RecordError] = []
        self._has_timestamp = False

    def __bool__(self) -> bool:
        return bool(self._found)

    def no_key(self, index: int) -> None:
        """A record without a key in a compacted topic."""
        self._append.mark("NoKeyCompactedTopicRecordsPerSec")
        self._add(index, "Compacted topic cannot accept message without key in topic partition "
                        f"{self._append.topic_partition}")

    def magic(self, index: int, record: str, outer_magic: int) -> None:
        """A message of another format than its wrapper."""
        self._append.mark("InvalidMagicNumberRecordsPerSec")
        self._add(index, f"Record {record}'s magic does not match outer magic {outer_magic} in "
                         f"topic partition {self._append.topic_partition}")

    def timestamp(self, index: int, timestamp: int, offset: int) -> None:
        """A timestamp too far from now. The bounds wrap, as in Kafka."""
        now, config = self._append.now_ms, self._append.config
        self._has_timestamp = True
        self._add(index, f"Timestamp {timestamp} of message with offset {offset} is out of range. "
                        "The timestamp should be within "
                        f"[{wrap_int64(now - config.message_timestamp_before_max_ms)}, "
                        f"{wrap_int64(now + config.message_timestamp_after_max_ms)}]")

    def timestamp_type(self, index: int, record: str) -> None:
        """A record whose producer set LogAppendTime."""
        self._has_timestamp = True
        self._add(index, f"Invalid timestamp type in message {record}. Producer should not set "
                        "timestamp type to LogAppendTime.")

    def _add(self, index: int, message: str) -> None:
        self._found.append(RecordError(index, message))

    def raise_if_any(self) -> None:
        """Raises one RecordValidationError for all of them."""
        if not self._found:
            return
        cause: SeglogError
        if self._has_timestamp:
            cause = InvalidTimestampError(
                "One or more records have been rejected due to invalid timestamp")
        else:
            shown = ", ".join(
                f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
                for error in self._found[:3])
            cause = InvalidRecordError(
                f"One or more records have been rejected due to {len(self._found)} record errors "
                f"in total, and only showing the first three errors at most: [{shown}]")
        raise RecordValidationError(cause, self._found)
