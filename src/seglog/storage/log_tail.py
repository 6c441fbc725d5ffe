"""Where a log ends: the last sound batch of its active segment."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from seglog._native.status import Status
from seglog.errors import CorruptDataError
from seglog.storage.segment import LogSegment

__all__ = ["LogTail", "read_tail"]

#: A broker that writes into a preallocated file briefly shows half a batch before zeros.
_READS_MOST, _SECONDS_BETWEEN_READS = 4, 0.002


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: offset after the last sound batch, and byte of the last segment.

    `status` says what follows: nothing (END), an incomplete batch (TORN_TAIL), zeros (ZERO_TAIL),
    or corrupt bytes. For corrupt bytes `end` is the size of the file, so that readers fail with
    them.
    """

    log_end_offset: int
    end: int
    status: Status


def read_tail(segment: LogSegment) -> LogTail:
    """Walks from the last valid index entry to the end, and checks every CRC.

    After a clean shutdown of Kafka this is its log end offset (readNextOffset, without the CRC).
    Otherwise it is the log end offset after recovery, if only this part is damaged.
    """
    start = segment.locate_last()
    tail = _walk(segment, start, segment.base_offset)
    if (tail.status.is_error or tail.status == Status.TORN_TAIL) and \
            segment.is_inside_a_batch(start):
        tail = _walk(segment, 0, segment.base_offset)
    for _ in range(_READS_MOST):
        if not tail.status.is_error:
            break
        time.sleep(_SECONDS_BETWEEN_READS)
        tail = _walk(segment, tail.end, tail.log_end_offset)
    if tail.status.is_error:
        return LogTail(tail.log_end_offset, segment.size, tail.status)
    return tail


def _walk(segment: LogSegment, start: int, next_offset: int) -> LogTail:
    for found in segment.walk_in_order(start):
        if len(found.batches):
            next_offset = int(found.batches["last_offset"][-1]) + 1
        if found.error is not None and not isinstance(found.error, CorruptDataError):
            if found.status == Status.FILE_SHRANK and _ends_at(segment, found.position):
                return LogTail(next_offset, found.position, Status.END)
            raise found.error
    return LogTail(next_offset, found.position, found.status)


def _ends_at(segment: LogSegment, position: int) -> bool:
    """Whether the log file has this size now: a broker that rolls trims a preallocated segment."""
    with closing(segment.where.open_log(segment.files.log, segment.files.version)) as file:
        return file.size == position
