"""Replaces segments (LocalLog.replaceSegments): a crash leaves the old ones or the new ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog.errors import IllegalArgumentError
from seglog.log import deletion
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.split import write_split
from seglog.storage.paths import FileState

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["replace_segments", "split_overflowed_segment"]

_logger = logging.getLogger("seglog.LocalLog")


def replace_segments(log: UnifiedLog, new: Sequence[SegmentFiles], old: Sequence[int]) -> None:
    """See UnifiedLog.replace_segments.

    `.cleaned` becomes `.swap` from the highest base down, so that one `.cleaned` file says that the
    replacement never happened; when none is left, a load completes it.
    """
    log.check_open()
    log.settle()
    ascending = sorted(new, key=lambda one: one.base_offset)
    going = [log.segments.get(base) for base in sorted(set(old)) if base in log.segments]
    bases = {one.base_offset for one in ascending}
    for segment in reversed(ascending):
        segment.rename(FileState.CLEANED, FileState.SWAP)
    with log.readers.changing():
        log.segments.remove([one.base_offset for one in going])
        log.forget_deferred([one.base_offset for one in (*going, *ascending)])
        for segment in going:
            deletion.delete_segment_files(log, [segment])
        for segment in ascending:
            segment.rename(FileState.SWAP, FileState.LIVE)
        log.disk.sync_directory()
        for segment in ascending:
            live = SegmentFiles(log.disk, segment.base_offset, segment.config)
            live.max_seen = segment.max_seen  # a truncation may leave the time index without it
            # Kafka takes the machine's clock here, whatever clock the log has.
            live.created_ms = time.time_ns() // 1_000_000
            log.segments.add(live)
    deletion.delete_producer_snapshots(
        log, [one.base_offset for one in going if one.base_offset not in bases])


def split_overflowed_segment(log: UnifiedLog, base_offset: int) -> list[int]:
    """See UnifiedLog.split_overflowed_segment."""
    log.check_open()
    log.settle()
    if base_offset not in log.segments:
        raise IllegalArgumentError(f"no segment of {log.topic_partition} begins at {base_offset}")
    segment = log.segments.get(base_offset)
    made = write_split(log.disk, log.config, segment, segment.read_next_offset())
    _logger.info(log.log_text(f"Replacing overflowed segment {segment.describe()} with split "
                              f"segments {[one.describe() for one in made]}"))
    replace_segments(log, made, [base_offset])
    return [one.base_offset for one in made]
