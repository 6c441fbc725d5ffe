"""Segments that go: renamed at once, deleted later (Kafka: LocalLog.removeAndDeleteSegments)."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from seglog.log import rolling
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.paths import FileState

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["Reason", "delete_log", "delete_producer_snapshots", "delete_segment_files", "reason",
           "remove_segments", "replace_active"]

#: Says why these segments go.
Reason: TypeAlias = Callable[[Sequence[SegmentFiles]], None]

_logger = logging.getLogger("seglog.LocalLog")


def reason(log: UnifiedLog, message: str, separator: str = ", ") -> Reason:
    """A line with all of them, in the place of %s."""
    return lambda segments: _logger.info(
        log.log_text(message), separator.join(one.describe() for one in segments))


def remove_segments(log: UnifiedLog, bases: Sequence[int], why: Reason, *,
                    at_once: bool = False) -> None:
    """Takes segments out of the log and deletes their files, later or `at_once`."""
    if not bases:
        return
    segments = [log.segments.get(base) for base in bases]
    why(segments)
    log.segments.remove(bases)
    log.forget_deferred(bases)
    delete_segment_files(log, segments, at_once=at_once)


def replace_active(log: UnifiedLog, base_offset: int, why: Reason) -> None:
    """A new, empty segment at `base_offset` in the place of the last one, so that there is one at
    every moment."""
    with log.readers.changing():
        _replace_active(log, base_offset, why)


def _replace_active(log: UnifiedLog, base_offset: int, why: Reason) -> None:
    log.settle()
    log.active.close_handles()
    old = log.active.files
    if base_offset == old.base_offset:
        old.rename(FileState.LIVE, FileState.DELETED)
    log.segments.pinned = None
    rolling.open_segment(log, base_offset)
    why([old])
    log.forget_deferred([old.base_offset])
    if base_offset != old.base_offset:
        log.segments.remove([old.base_offset])
        old.rename(FileState.LIVE, FileState.DELETED)
    _schedule_delete(log, [old])


def delete_segment_files(log: UnifiedLog, segments: Sequence[SegmentFiles], *,
                         at_once: bool = False) -> None:
    """Renames the files of segments that are no longer in the log, and deletes them later."""
    for segment in segments:
        segment.rename(FileState.LIVE, FileState.DELETED)
    if at_once:
        _delete_files(log, segments)
    else:
        _schedule_delete(log, segments)


def _schedule_delete(log: UnifiedLog, segments: Sequence[SegmentFiles]) -> None:
    log.context.scheduler.schedule_once("delete-file", partial(_delete_files, log, segments),
                                        log.config.file_delete_delay_ms)


def _delete_files(log: UnifiedLog, segments: Sequence[SegmentFiles]) -> None:
    _logger.info(log.log_text("Deleting segment files %s"),
                 ", ".join(one.describe() for one in segments))
    with log.guarded(f"Error while deleting segments for {log.topic_partition}"):
        for segment in segments:
            for name, what in zip(segment.names(FileState.DELETED), _KINDS, strict=True):
                path = os.path.join(log.path, name)
                if log.disk.delete(name):
                    _logger.info("Deleted %s %s.", what, path)
                elif what != "transaction index":
                    _logger.info("Failed to delete %s %s because it does not exist.", what, path)


_KINDS = ("log", "offset index", "time index", "transaction index")


def delete_producer_snapshots(log: UnifiedLog, bases: Sequence[int], *,
                              at_once: bool = False) -> None:
    """The producer snapshots at the bases of segments that go."""
    names = log.producer_manager.snapshots.retire(bases)

    def delete() -> None:
        with log.guarded("Error while deleting producer state snapshots for "
                         f"{log.topic_partition}"):
            for name in names:
                log.disk.delete(name)

    if at_once:
        delete()
    else:
        log.context.scheduler.schedule_once("delete-producer-snapshot", delete,
                                            log.config.file_delete_delay_ms)


def delete_log(log: UnifiedLog) -> None:
    """All segments, the snapshots and the directory, at once."""
    with log.lock, log.guarded(f"Error while deleting log for {log.topic_partition}"):
        log.check_open()
        log.settle()
        log.stop_tasks()
        log.leader_epochs.clear()
        bases = log.segments.bases(range(len(log.segments)))
        log.active.close_handles()
        log.segments.pinned = None
        with log.guarded(f"Error while deleting all segments for {log.topic_partition}"):
            remove_segments(log, bases, reason(
                log, "Deleting segments as the log has been deleted: %s"), at_once=True)
        log.mark_deleted()
        delete_producer_snapshots(log, bases, at_once=True)
        with log.guarded(f"Error while deleting dir for {log.topic_partition}"):
            _delete_tree(log.path)


def _delete_tree(path: str) -> None:
    """Deletes a directory and all in it, also while a `delete-file` task takes files away."""
    while os.path.lexists(path):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
