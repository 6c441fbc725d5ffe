"""What goes into the checkpoints of a data directory (OffsetCheckpointFile)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from seglog.errors import KafkaStorageError
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from seglog.manager.live import LiveDirectories
from seglog.manager.table import LogTable
from seglog.storage.paths import (
    HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
)

__all__ = [
    "Checkpoints", "write_high_watermarks", "write_log_start_offsets", "write_recovery_points",
]

_log = logging.getLogger(__name__)


def write_recovery_points(directory: LogDirectory, logs: Iterable[UnifiedLog]) -> None:
    """Of every log of the directory. KafkaStorageError."""
    directory.write_checkpoint(RECOVERY_POINT_CHECKPOINT, {
        log.topic_partition: log.recovery_point for log in logs})


def write_log_start_offsets(directory: LogDirectory, logs: Iterable[UnifiedLog]) -> None:
    """Only of logs that start behind the base of their first segment. KafkaStorageError."""
    starts = {}
    for log in logs:
        bases = log.segments.base_offsets  # none of a log that is being deleted
        if len(bases) and log.log_start_offset > bases[0]:
            starts[log.topic_partition] = log.log_start_offset
    directory.write_checkpoint(LOG_START_OFFSET_CHECKPOINT, starts)


def write_high_watermarks(directory: LogDirectory, logs: Iterable[UnifiedLog]) -> None:
    """Of every log of the directory (Kafka: ReplicaManager). KafkaStorageError."""
    directory.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, {
        log.topic_partition: log.high_watermark for log in logs})


class Checkpoints:
    """Writes the checkpoints of directories that work; of one, or of all.

    A directory that cannot be written goes offline, and the others are written.
    """

    def __init__(self, directories: LiveDirectories, table: LogTable) -> None:
        self._directories, self._table = directories, table

    def recovery_offsets(self, log_dir: str | None = None) -> None:
        """`recovery-point-offset-checkpoint`."""
        self._write("recovery offsets", write_recovery_points, log_dir)

    def log_start_offsets(self, log_dir: str | None = None) -> None:
        """`log-start-offset-checkpoint`."""
        self._write("log start offsets", write_log_start_offsets, log_dir)

    def high_watermarks(self) -> None:
        """`replication-offset-checkpoint`, of directories that have logs."""
        for log_dir in self._table.by_dir():
            self._write("high watermarks", write_high_watermarks, log_dir)

    def offsets(self, log_dir: str) -> None:
        """Both of the manager's own, of a directory that a log has come to or gone from."""
        self.recovery_offsets(log_dir)
        self.log_start_offsets(log_dir)

    def _write(self, what: str, write: Callable[[LogDirectory, Iterable[UnifiedLog]], None],
               log_dir: str | None) -> None:
        logs = self._table.by_dir()
        for directory in self._directories.all():
            if log_dir in (None, directory.path):
                try:
                    write(directory, logs.get(directory.path, ()))
                except KafkaStorageError as error:
                    _log.error("Disk error while writing %s checkpoint in directory %s: %s", what,
                               directory.path, error)
