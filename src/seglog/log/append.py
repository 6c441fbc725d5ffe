"""One append, step by step (Kafka: UnifiedLog.append).

This is the authority; a native append (`ordinary`) does the ordinary ones alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seglog.errors import (
    IllegalArgumentError, RecordBatchTooLargeError, RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from seglog.log import rolling, watermarks
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.deep_records import record_offsets
from seglog.log.segment import Records
from seglog.log.validation import ValidationResult
from seglog.log.validator import (
    analyze_and_validate_records, mark_rejected, validate_messages_and_assign_offsets,
)
from seglog.log.verification import VerificationGuard

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["append"]

_MAGIC_V2 = 2
_SHOWN_OFFSETS = 10
#: Where a log ends that holds the last offset of all. Kafka writes a record there, and its log's
#: end then wraps: it throws "High watermark offset should be non-negative"
#: (UnifiedLog.setHighWatermark), and its next load deletes all segments. Here nothing is written.
_OFFSET_MAX = 2**63 - 1


def append(log: UnifiedLog, records: Records, origin: AppendOrigin, leader_epoch: int, *,
           assign_offsets: bool, ignore_record_size: bool = False,
           verification_guard: VerificationGuard | None = None,
           transaction_version: int = -1) -> LogAppendInfo:
    """See UnifiedLog.append_as_leader and append_as_follower."""
    log.flush_metadata()  # no record is there before the topic's id is
    info, batches = analyze_and_validate_records(
        records, topic_partition=log.topic_partition, origin=origin, leader_epoch=leader_epoch,
        max_message_bytes=log.config.max_message_bytes, ignore_record_size=ignore_record_size,
        requires_offset_assignment=assign_offsets, stats=log.stats)
    if info.valid_bytes <= 0:
        return info
    given = len(memoryview(records).cast("B"))
    valid = memoryview(records).cast("B")[:info.valid_bytes]
    with log.lock, log.guarded(f"Error while appending records to {log.topic_partition}"):
        log.check_current()
        if assign_offsets:
            result = _assign(log, valid, batches, info, origin, leader_epoch, ignore_record_size,
                             given)
            valid, batches = memoryview(result.records), result.batches
        elif info.first_or_last_offset_of_first_batch < log.log_end_offset:
            raise _unexpected_offset(log, info, memoryview(records).cast("B"))
        else:
            _check_last(log, info.last_offset)
        info.log_start_offset = log.log_start_offset
        _assign_epochs(log, batches)
        if len(valid) > log.config.segment_size:
            raise RecordBatchTooLargeError(
                f"Message batch size is {len(valid)} bytes in append to partition "
                f"{log.topic_partition}, which exceeds the maximum configured segment size of "
                f"{log.config.segment_size}.")
        rolling.maybe_roll(log, len(valid), info)
        _write(log, valid, batches, info, origin, verification_guard, transaction_version)
        if assign_offsets:
            messages = info.last_offset - info.first_offset + 1
            log.messages_in += messages
            log.bytes_in += given
            log.messages_converted += messages if result.message_size_maybe_changed else 0
        elif origin is AppendOrigin.REPLICATION:
            log.replication_bytes_in += given
    return info


def _assign(log: UnifiedLog, valid: memoryview, batches: npt.NDArray[np.void],
            info: LogAppendInfo, origin: AppendOrigin, leader_epoch: int,
            ignore_record_size: bool, given: int) -> ValidationResult:
    """The batches with the next offsets; `info` says what they are."""
    config = log.config
    info.first_offset = log.log_end_offset
    result = validate_messages_and_assign_offsets(
        valid, batches, topic_partition=log.topic_partition, origin=origin,
        next_offset=log.log_end_offset, now_ms=log.now_ms(), leader_epoch=leader_epoch,
        config=config, stats=log.stats)
    _check_last(log, result.next_offset - 1)
    info.max_timestamp = result.max_timestamp
    info.last_offset = result.next_offset - 1
    if config.message_timestamp_type == "LogAppendTime":
        info.log_append_time = result.log_append_time_ms
    if result.message_size_maybe_changed and not ignore_record_size:
        for size in result.batches["size"].tolist():
            if size > config.max_message_bytes:
                if log.stats is not None:
                    mark_rejected(log.stats, log.topic_partition, given)
                raise RecordTooLargeError(
                    f"Message batch size is {size} bytes in append topartition "
                    f"{log.topic_partition} which exceeds the maximum configured size of "
                    f"{config.max_message_bytes}.")
    return result


def _check_last(log: UnifiedLog, last_offset: int) -> None:
    if last_offset >= _OFFSET_MAX:
        raise IllegalArgumentError(
            f"The last offset {last_offset} of an append to {log.topic_partition} is beyond "
            f"{_OFFSET_MAX - 1}, the largest that a record may have")


def _unexpected_offset(log: UnifiedLog, info: LogAppendInfo,
                       records: memoryview) -> UnexpectedAppendOffsetError:
    first = info.first_or_last_offset_of_first_batch
    what = "First offset" if info.first_offset >= 0 else "Last offset of the first batch"
    shown = ", ".join(map(str, record_offsets(records, _SHOWN_OFFSETS)))
    return UnexpectedAppendOffsetError(
        f"Unexpected offset in append to {log.topic_partition}. {what} {first} is less than the "
        f"next offset {log.log_end_offset}. First 10 offsets in append: {shown}, last offset in "
        f"append: {info.last_offset}. Log start offset = {log.log_start_offset}",
        first, info.last_offset)


def _assign_epochs(log: UnifiedLog, batches: npt.NDArray[np.void]) -> None:
    """What the leader stamped onto the batches; old formats say nothing, and void what is known."""
    for magic, epoch, offset in zip(
            batches["magic"].tolist(), batches["partition_leader_epoch"].tolist(),
            batches["base_offset"].tolist(), strict=True):
        if magic >= _MAGIC_V2:
            watermarks.assign_epoch(log, epoch, offset)
        elif len(log.leader_epochs):
            watermarks.clear_epochs(log, magic)


def _write(log: UnifiedLog, valid: memoryview, batches: npt.NDArray[np.void], info: LogAppendInfo,
           origin: AppendOrigin, verification_guard: VerificationGuard | None,
           transaction_version: int) -> None:
    """From the producers' state to the flush that is due (UnifiedLog.append)."""
    producers, active = log.producer_manager, log.active
    analysis = producers.analyze(
        batches, valid, origin=origin, segment_base_offset=active.base_offset,
        position=active.size, transaction_version=transaction_version,
        verification_guard=verification_guard)
    if analysis.duplicate is not None:
        again = analysis.duplicate
        info.first_offset, info.last_offset = again.first_offset, again.last_offset
        info.log_append_time, info.log_start_offset = again.timestamp, log.log_start_offset
        return
    # The end moves with the write: an error in what follows reuses no offset.
    active.append(info.last_offset, valid, batches)
    log.set_log_end(info.last_offset + 1)
    watermarks.follow_log_end(log)
    producers.update(analysis)
    for ended in analysis.completed_txns:
        if ended.is_aborted:
            active.append_aborted(ended.to_aborted(producers.last_stable_offset(ended)))
        producers.complete_txn(ended)
    producers.update_map_end_offset(info.last_offset + 1)
    watermarks.update_first_unstable_offset(log)
    if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
        log.flush()
