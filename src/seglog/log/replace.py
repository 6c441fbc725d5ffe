"""Replaces segments (Kafka: LocalLog.replaceSegments): a crash leaves the old ones or the new."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from seglog.errors import IllegalArgumentError
from seglog.log.local_log import LocalLog
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.split import write_split
from seglog.storage.paths import FileState

__all__ = ["replace_segments", "split_overflowed_segment"]

_logger = logging.getLogger("seglog.LocalLog")


def replace_segments(local: LocalLog, producers: ProducerStateManager,
                     new: Sequence[SegmentFiles], old: Sequence[int]) -> None:
    """See UnifiedLog.replace_segments.

    Renames `.cleaned` to `.swap` from the highest base down, so a remaining `.cleaned` file shows
    that the replacement is incomplete. Once none is left, a load completes it.
    """
    local.check_open()
    local.update_files()
    segments = local.segments
    ascending = sorted(new, key=lambda one: one.base_offset)
    going = [segments.get(base) for base in sorted(set(old)) if base in segments]
    bases = {one.base_offset for one in ascending}
    end = segments.higher_base(going[-1].base_offset) if going else None
    for segment in reversed(ascending):
        segment.rename(FileState.CLEANED, FileState.SWAP)
    with local.readers.changing(replaced=[one.base_offset for one in (*going, *ascending)]):
        local.readers.replaced_to = max(local.readers.replaced_to,
                                        local.log_end_offset if end is None else end)
        segments.remove([one.base_offset for one in going])
        local.files.dismiss_checks([one.base_offset for one in (*going, *ascending)])
        for segment in going:
            local.delete_segment_files([segment])
        for segment in ascending:
            segment.rename(FileState.SWAP, FileState.LIVE)
        local.disk.sync_directory()
        for segment in ascending:
            # Kafka uses the machine's clock here, whatever clock the log has. A truncation may
            # leave the time index without the largest timestamp.
            segments.add(SegmentFiles(
                local.disk, segment.base_offset, segment.config,
                created_ms=time.time_ns() // 1_000_000, max_seen=segment.max_seen))
    local.delete_snapshots(producers.snapshots.retire(
        [one.base_offset for one in going if one.base_offset not in bases]))


def split_overflowed_segment(local: LocalLog, producers: ProducerStateManager,
                             base_offset: int) -> list[int]:
    """See UnifiedLog.split_overflowed_segment."""
    local.check_open()
    if base_offset not in local.segments:
        raise IllegalArgumentError(f"no segment of {local.topic_partition} begins at "
                                   f"{base_offset}")
    segment = local.segments.get(base_offset)
    made = write_split(local.disk, local.config, segment, segment.read_next_offset())
    _logger.info(local.log_text(f"Replacing overflowed segment {segment.describe()} with split "
                                f"segments {[one.describe() for one in made]}"))
    replace_segments(local, producers, made, [base_offset])
    return [one.base_offset for one in made]
