"""Deletes a whole log at once (Kafka: LocalLog.deleteAllSegments, deleteEmptyDir)."""

from __future__ import annotations

import contextlib
import os
import shutil

from seglog.log.local_log import LocalLog
from seglog.log.producer_state_manager import ProducerStateManager

__all__ = ["delete_log"]


def delete_log(local: LocalLog, producers: ProducerStateManager) -> None:
    """Deletes the segments, the snapshots and the directory. No operation works from then on."""
    bases = local.all_bases
    local.active.end()
    with local.guarded(f"Error while deleting all segments for {local.topic_partition}"):
        local.remove_segments(bases, local.reason(
            "Deleting segments as the log has been deleted: %s"), at_once=True)
    local.close_handlers()
    local.release_readers()
    local.delete_snapshots(producers.snapshots.retire(bases), at_once=True)
    _delete_directory(local)


def _delete_directory(local: LocalLog) -> None:
    """Deletes the directory with its content, also while a `delete-file` task deletes files. Of a
    link only itself, as Kafka does."""
    with local.guarded(f"Error while deleting dir for {local.topic_partition}"):
        while os.path.lexists(path := local.path):
            with contextlib.suppress(FileNotFoundError):
                (os.unlink if os.path.islink(path) else shutil.rmtree)(path)
