"""Appends to a log (Kafka: UnifiedLog.append).

`append` is the reference path, step by step. `append_fast` does the same for a plain batch of a
client in one native call (`_native.append`), and arms the log's `FastPath`, to which the next ones
go without any Python (`fast_path_first`). It declines everything else before it changes
anything: compressed and control batches, the first batch of a transaction, old formats, a new
leader epoch, a roll, and any invalid batch. tests/log/test_fast_path.py compares the two.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt

from seglog.errors import (
    IllegalArgumentError, RecordBatchTooLargeError, RecordTooLargeError, SeglogError,
    UnexpectedAppendOffsetError,
)
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.deep_records import record_offsets
from seglog.log.leader_epoch_cache import LeaderEpochCache
from seglog.log.local_log import LocalLog
from seglog.log.topic_id import LogTopicId
from seglog.log.producer_state_manager import ProducerAnalysis, ProducerStateManager
from seglog.log.rolling import Rolling
from seglog.log.active_segment import Records
from seglog.log.validation import ValidationResult
from seglog.log.validator import (
    analyze_and_validate_records, mark_rejected, validate_messages_and_assign_offsets,
)
from seglog.log.verification_guard import VerificationGuard
from seglog.log.watermarks import Watermarks

__all__ = ["Appends"]

_PREFIX: Final = struct.Struct(">8xi")
_MAGIC_V2: Final = 2
_SHOWN_OFFSETS: Final = 10
_UNKNOWN_OFFSET: Final = -1
#: The log end after a record with the last possible offset. Kafka writes such a record, and its log
#: end then wraps: it throws "High watermark offset should be non-negative"
#: (UnifiedLog.setHighWatermark), and its next load deletes all segments. Here nothing is written.
_OFFSET_MAX: Final = 2**63 - 1


class Appends:
    """Appends, with counters since the log was opened: records and bytes as leader, those records
    that were encoded again, and bytes as follower."""

    def __init__(self, local: LocalLog, watermarks: Watermarks, epochs: LeaderEpochCache,
                 producers: ProducerStateManager, metadata: LogTopicId,
                 rolling: Rolling) -> None:
        self._local, self._watermarks, self._epochs = local, watermarks, epochs
        self._producers, self._metadata, self._rolling = producers, metadata, rolling
        self._stats = local.context.stats
        self._messages_in = self._bytes_in = 0
        self.messages_converted = self.replication_bytes_in = 0

    @property
    def messages_in(self) -> int:
        """Records appended as leader."""
        return self._messages_in + self._local.fast_path.messages_in

    @property
    def bytes_in(self) -> int:
        """Bytes appended as leader."""
        return self._bytes_in + self._local.fast_path.bytes_in

    # ---- the fast path ------------------------------------------------------------------------

    def append_fast(self, records: Records, leader_epoch: int, *,
                    is_span: bool = False) -> LogAppendInfo | None:
        """Appends a client's batch; with `is_span`, all leading plain batches, each as if it came
        alone. Arms the native fast path for the next ones.

        Returns None if the first batch is not plain. `valid_bytes` is the number of appended bytes.
        """
        local, table = self._local, self._producers.state.table
        if type(records) is not bytes:
            # Before the end is read, and to the end of the call: an object that gives its bytes may
            # run Python, and append.
            records = memoryview(records)
        with local.lock:
            config, end = local.config, local.end.offset
            writer = local.active.writer(config)
            if (writer is None or local.files.is_closed or local.retired is not None
                    or self._metadata.is_dirty or self._rolling.is_running
                    or local.parent_dir in local.context.failures.failed
                    or not self._epochs.epochs.is_latest(leader_epoch, end)):
                return None
            start = self._watermarks.log_start_offset
            local.fast_path.arm(writer, table, leader_epoch=leader_epoch, log_start_offset=start,
                                flush_at=local.flush_due_at())
            try:
                info = writer.append_as_leader(records, table, leader_epoch, end, local.now_ms(),
                                               start, is_span, local.end)
            except OSError as error:
                local.append_failed(error)
            if info is None:
                return None
            local.set_end(info.last_offset + 1)
            self._producers.update_map_end_offset(info.last_offset + 1)
            self._messages_in += info.last_offset + 1 - end
            self._bytes_in += info.valid_bytes
            local.flush_if_due()
            return info

    def append_each(self, records: Records, leader_epoch: int) -> LogAppendInfo:
        """See UnifiedLog.append_each_as_leader."""
        rest = memoryview(records).cast("B")
        whole: LogAppendInfo | None = None
        while rest:
            try:
                # The native fast path appends a single batch, the usual case.
                info = ((self._local.fast_path.append(rest, leader_epoch) if whole is None
                         else None)
                        or self.append_fast(rest, leader_epoch, is_span=True))
                if info is None:
                    info = self.append(rest[:_batch_bytes(rest)], AppendOrigin.CLIENT,
                                       leader_epoch, assign_offsets=True)
            except SeglogError as error:
                error.appended = whole or LogAppendInfo()
                raise
            if info.valid_bytes <= 0:
                break
            rest = rest[info.valid_bytes:]
            whole = info if whole is None else _together(whole, info)
        return whole or LogAppendInfo()

    # ---- the reference path -------------------------------------------------------------------

    def append(self, records: Records, origin: AppendOrigin, leader_epoch: int, *,
               assign_offsets: bool, ignore_record_size: bool = False,
               verification_guard: VerificationGuard | None = None,
               transaction_version: int = -1) -> LogAppendInfo:
        """See UnifiedLog.append_as_leader and append_as_follower."""
        local, records = self._local, memoryview(records).cast("B")
        self._metadata.flush()  # the topic's id is written before the first record
        info, batches = analyze_and_validate_records(
            records, topic_partition=local.topic_partition, origin=origin,
            leader_epoch=leader_epoch, max_message_bytes=local.config.max_message_bytes,
            ignore_record_size=ignore_record_size, requires_offset_assignment=assign_offsets,
            stats=self._stats)
        if info.valid_bytes <= 0:
            return info
        given, valid = len(records), records[:info.valid_bytes]
        with (local.lock,
              local.guarded(f"Error while appending records to {local.topic_partition}")):
            local.check_current()
            self._rolling.check_idle()
            end, is_converted = local.log_end_offset, False
            if assign_offsets:
                result = self._assign(valid, batches, info, origin, leader_epoch, given)
                valid, batches = memoryview(result.records), result.batches
                is_converted = result.message_size_maybe_changed
            elif info.first_or_last_offset_of_first_batch < local.log_end_offset:
                raise self._unexpected_offset(info, records)
            else:
                self._check_last(info.last_offset)
            info.log_start_offset = self._watermarks.log_start_offset
            self._assign_epochs(batches)
            if len(valid) > local.config.segment_size:
                raise RecordBatchTooLargeError(
                    f"Message batch size is {len(valid)} bytes in append to partition "
                    f"{local.topic_partition}, which exceeds the maximum configured segment size "
                    f"of {local.config.segment_size}.")
            self._rolling.maybe_roll(len(valid), info)
            self._write(valid, batches, info, origin, verification_guard, transaction_version)
            if assign_offsets:
                messages = info.last_offset - info.first_offset + 1
                self._messages_in += messages
                self._bytes_in += given
                self.messages_converted += messages if is_converted else 0
            elif origin is AppendOrigin.REPLICATION:
                self.replication_bytes_in += given
                if local.active.base_offset > end:
                    local.keep_gap()
        return info

    def _assign(self, valid: memoryview, batches: npt.NDArray[np.void], info: LogAppendInfo,
                origin: AppendOrigin, leader_epoch: int, given: int) -> ValidationResult:
        """The batches with their new offsets; `info` describes them."""
        local = self._local
        config = local.config
        info.first_offset = local.log_end_offset
        result = validate_messages_and_assign_offsets(
            valid, batches, topic_partition=local.topic_partition, origin=origin,
            next_offset=local.log_end_offset, now_ms=local.now_ms(), leader_epoch=leader_epoch,
            config=config, source_compression=info.source_compression, stats=self._stats)
        self._check_last(result.next_offset - 1)
        info.max_timestamp = result.max_timestamp
        info.last_offset = result.next_offset - 1
        if config.message_timestamp_type == "LogAppendTime":
            info.log_append_time = result.log_append_time_ms
        if result.message_size_maybe_changed:
            for size in result.batches["size"].tolist():
                if size > config.max_message_bytes:
                    if self._stats is not None:
                        mark_rejected(self._stats, local.topic_partition, given)
                    raise RecordTooLargeError(
                        f"Message batch size is {size} bytes in append topartition "
                        f"{local.topic_partition} which exceeds the maximum configured size of "
                        f"{config.max_message_bytes}.")
        return result

    def _check_last(self, last_offset: int) -> None:
        if last_offset >= _OFFSET_MAX:
            raise IllegalArgumentError(
                f"The last offset {last_offset} of an append to {self._local.topic_partition} is "
                f"beyond {_OFFSET_MAX - 1}, the largest that a record may have")

    def _unexpected_offset(self, info: LogAppendInfo, records: memoryview
                           ) -> UnexpectedAppendOffsetError:
        local, offsets = self._local, record_offsets(records, _SHOWN_OFFSETS)
        is_known = info.first_offset != _UNKNOWN_OFFSET
        what = "First offset" if is_known else "Last offset of the first batch"
        return UnexpectedAppendOffsetError(
            f"Unexpected offset in append to {local.topic_partition}. {what} "
            f"{info.first_or_last_offset_of_first_batch} is less than the next offset "
            f"{local.log_end_offset}. First 10 offsets in append: {', '.join(map(str, offsets))}, "
            f"last offset in append: {info.last_offset}. Log start offset = "
            f"{self._watermarks.log_start_offset}",
            info.first_offset if is_known else next(iter(offsets), _UNKNOWN_OFFSET),
            info.last_offset)

    def _assign_epochs(self, batches: npt.NDArray[np.void]) -> None:
        """Records the epochs of the batches. Old formats have none, which clears all known
        epochs."""
        for magic, epoch, offset in zip(
                batches["magic"].tolist(), batches["partition_leader_epoch"].tolist(),
                batches["base_offset"].tolist(), strict=True):
            if magic >= _MAGIC_V2:
                self._epochs.assign(epoch, offset)
            else:
                self._epochs.clear_for_old_format(magic)

    def _write(self, valid: memoryview, batches: npt.NDArray[np.void], info: LogAppendInfo,
               origin: AppendOrigin, verification_guard: VerificationGuard | None,
               transaction_version: int) -> None:
        """From the producers' state to the flush that is due (UnifiedLog.append)."""
        local, producers, active = self._local, self._producers, self._local.active
        analysis = producers.analyze(
            batches, valid, origin=origin, segment_base_offset=active.base_offset,
            position=active.size, transaction_version=transaction_version,
            verification_guard=verification_guard)
        if analysis.duplicate is not None:
            again = analysis.duplicate
            info.first_offset, info.last_offset = again.first_offset, again.last_offset
            info.log_append_time = again.timestamp
            info.log_start_offset = self._watermarks.log_start_offset
            return
        end = local.log_end_offset
        try:
            # The end moves with the write, so that no later error leads to a reuse of offsets, and
            # no signal that interrupts here.
            active.append(info.last_offset, valid, batches, local.end,
                          info.first_or_last_offset_of_first_batch)
            local.set_end(info.last_offset + 1)
            self._update_producers(analysis)
        except SeglogError:
            raise
        except BaseException:
            if local.log_end_offset > max(end, producers.map_end_offset):
                active.files.txn_index.truncate_to(end)
                self._update_producers(analysis, is_again=True)
            raise
        local.flush_if_due()

    def _update_producers(self, analysis: ProducerAnalysis, *, is_again: bool = False) -> None:
        """Takes an append, once it is written, into the producers' state and the transaction index.

        `is_again`: a signal's handler interrupted it. Without its end, the producer's next batch
        would be refused or written twice, and an aborted transaction would look committed.
        """
        local, producers = self._local, self._producers
        if not is_again or producers.is_due(analysis):
            producers.update(analysis)
        for ended in analysis.completed_txns:
            if ended.is_aborted:
                local.active.files.txn_index.append(
                    [ended.to_aborted(producers.last_stable_offset(ended))])
            try:
                producers.complete_txn(ended)
            except IllegalArgumentError:
                if not is_again:
                    raise
        producers.update_map_end_offset(local.log_end_offset)
        self._watermarks.update_first_unstable_offset()


def _batch_bytes(records: memoryview) -> int:
    """The size in the first batch's header, which may be too large; all of the bytes if there is
    none."""
    length: int = _PREFIX.unpack_from(records)[0] if len(records) >= _PREFIX.size else -1
    return length + _PREFIX.size if length >= 0 else len(records)


def _together(first: LogAppendInfo, then: LogAppendInfo) -> LogAppendInfo:
    """The combined result of two consecutive appends. A duplicate, whose offsets are old, wrote
    nothing."""
    return LogAppendInfo(
        min(first.first_offset, then.first_offset), max(first.last_offset, then.last_offset),
        then.last_leader_epoch, max(first.max_timestamp, then.max_timestamp),
        then.log_append_time, then.log_start_offset, then.source_compression,
        first.valid_bytes + then.valid_bytes, first.last_offset_of_first_batch,
        then.record_errors)
