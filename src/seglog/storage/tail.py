"""Where a log ends: the last sound batch of its active segment."""

from __future__ import annotations

import time
from dataclasses import dataclass

from seglog._native.status import Status
from seglog.storage.segment import LogSegment

__all__ = ["LogTail", "read_tail"]

#: A broker that writes into a preallocated file shows half a batch before zeros for a moment.
_LOOKS, _SECONDS_BETWEEN_LOOKS = 4, 0.002


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: offset after the last sound batch, and byte of the last segment.

    `status` says what follows: nothing (END), an incomplete batch (TORN_TAIL), zeros (ZERO_TAIL),
    or corrupt bytes; then `end` is the size of the file, so that a reader meets them.
    """

    log_end_offset: int
    end: int
    status: Status


def read_tail(segment: LogSegment) -> LogTail:
    """Walks from the last good index entry to the end, and checks every CRC on the way.

    Where Kafka shut down cleanly this is its log end offset (readNextOffset, without the CRC).
    Otherwise it is the one at which recovery would arrive, if the damage is in this part.
    """
    start = segment.locate_last()
    found = segment.scan(start, check_crcs=True)
    last_offset, batch_count = found.last_offset, found.batch_count
    for _ in range(_LOOKS):
        if not Status(found.status).is_error:
            break
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        found = segment.scan(found.position, check_crcs=True)
        if found.batch_count:
            last_offset, batch_count = found.last_offset, batch_count + found.batch_count
    status = Status(found.status)
    if status >= Status.IO:
        found.raise_for_status(segment.files.log)
    return LogTail(last_offset + 1 if batch_count else segment.base_offset,
                   segment.size if status.is_error else found.position, status)

