"""The ordinary append of a leader, in one native call (`_native.append`).

What it does is what `log.append` would do; whatever is not ordinary it leaves alone, before
anything has changed: compressed and control batches, the first of a transaction, old formats, a
new leader epoch, a roll, a batch that is refused in any way. tests/log/test_ordinary.py holds the
two against each other.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from seglog.errors import SeglogError
from seglog.log.append import append
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.segment import Records

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["append_each", "append_ordinary"]

_PREFIX: Final = struct.Struct(">8xi")


def append_ordinary(log: UnifiedLog, records: Records, leader_epoch: int, *,
                    is_span: bool = False) -> LogAppendInfo | None:
    """Appends a client's batch; with `is_span` as many as are ordinary, each as if it came alone.

    None when the first is not. `valid_bytes` says how many bytes were taken.
    """
    with log.lock:
        config, end = log.config, log.log_end_offset
        writer = log.active.writer(config)
        if (writer is None or log.is_closed or log.retired is not None
                or log.unwritten_topic_id is not None
                or log.parent_dir in log.context.failures.failed
                or not log.leader_epochs.is_latest(leader_epoch, end)):
            return None
        state = log.producer_manager.state
        try:
            info = writer.append_as_leader(records, state.table, leader_epoch, end,
                                           log.context.time.milliseconds(),
                                           log.log_start_offset, is_span)
        except OSError:
            with log.guarded(f"Error while appending records to {log.topic_partition}"):
                raise
        if info is None:
            return None
        first, end = end, info.last_offset + 1
        log.log_end_offset = state.map_end_offset = end
        log.publish_end(end, writer.base_offset, writer.size)
        log.messages_in += end - first
        log.bytes_in += info.valid_bytes
        if end - log.recovery_point >= config.flush_messages:
            log.flush()
        return info


def append_each(log: UnifiedLog, records: Records, leader_epoch: int) -> LogAppendInfo:
    """See UnifiedLog.append_each_as_leader."""
    rest = memoryview(records).cast("B")
    whole: LogAppendInfo | None = None
    while rest:
        try:
            info = append_ordinary(log, rest, leader_epoch, is_span=True)
            if info is None:
                info = append(log, rest[:_batch_bytes(rest)], AppendOrigin.CLIENT, leader_epoch,
                              assign_offsets=True)
        except SeglogError as error:
            error.appended = whole or LogAppendInfo()
            raise
        if info.valid_bytes <= 0:
            break
        rest = rest[info.valid_bytes:]
        whole = info if whole is None else _together(whole, info)
    return whole or LogAppendInfo()


def _batch_bytes(records: memoryview) -> int:
    """How long the first batch says it is; all of the bytes where that cannot be."""
    if len(records) < _PREFIX.size:
        return len(records)
    length: int = _PREFIX.unpack_from(records)[0]
    return length + _PREFIX.size if 0 <= length <= len(records) - _PREFIX.size else len(records)


def _together(first: LogAppendInfo, then: LogAppendInfo) -> LogAppendInfo:
    """What two appends in a row did. A duplicate, whose offsets are old, wrote nothing."""
    offsets = [info for info in (first, then) if info.first_offset >= 0]
    newest = max(offsets, key=lambda info: info.last_offset, default=then)
    return LogAppendInfo(
        min((info.first_offset for info in offsets), default=-1), newest.last_offset,
        then.last_leader_epoch, max(first.max_timestamp, then.max_timestamp),
        then.log_append_time, then.log_start_offset, then.source_compression,
        first.valid_bytes + then.valid_bytes, first.last_offset_of_first_batch,
        then.record_errors)
