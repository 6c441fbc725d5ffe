"""The contents of a data directory's checkpoints (OffsetCheckpointFile)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from seglog.errors import KafkaStorageError
from seglog.manager.directories import LogDirectory
from seglog.manager.live import LiveDirectories
from seglog.manager.table import LogTable
from seglog.model import TopicPartition
from seglog.storage.paths import HIGH_WATERMARK_CHECKPOINT

__all__ = [
    "Checkpoints", "write_high_watermarks", "write_log_start_offsets", "write_recovery_points",
]

_log = logging.getLogger(__name__)


# A log that is opened between the two steps of each function is in both, and counts with its
# current offsets. The logs of a directory that fails leave the table: so whether it works is asked
# after the offsets are read, else its files would lose their lines.

def write_recovery_points(directory: LogDirectory, table: LogTable) -> None:
    """Writes the recovery point of every log of the directory, after the log start offsets. Raises
    KafkaStorageError."""
    directory.write_manager_checkpoints(lambda: _log_start_offsets(directory, table),
                                        lambda: _recovery_points(directory, table))


def write_log_start_offsets(directory: LogDirectory, table: LogTable) -> None:
    """Writes the start offsets of logs that start after the base of their first segment, and of
    tiered ones. Raises KafkaStorageError."""
    directory.write_manager_checkpoints(lambda: _log_start_offsets(directory, table))


def _recovery_points(directory: LogDirectory, table: LogTable) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for unopened in table.unopened(directory.path):
        offsets |= unopened.recovery_points()
    offsets |= {log.topic_partition: log.recovery_point for log in table.opened(directory.path)}
    directory.check_works()
    return offsets


def _log_start_offsets(directory: LogDirectory, table: LogTable) -> dict[TopicPartition, int]:
    starts: dict[TopicPartition, int] = {}
    for unopened in table.unopened(directory.path):
        starts |= unopened.log_start_offsets()
    for log in table.opened(directory.path):
        starts.pop(log.topic_partition, None)
        bases = log.segments.base_offsets  # none for a log that is being deleted
        if len(bases) and (log.remote_log_enabled or log.log_start_offset > bases[0]):
            starts[log.topic_partition] = log.log_start_offset
    directory.check_works()
    return starts


def write_high_watermarks(directory: LogDirectory, table: LogTable) -> None:
    """Writes the high watermark of every log of the directory (Kafka: ReplicaManager). Raises
    KafkaStorageError."""
    offsets: dict[TopicPartition, int] = {}
    for unopened in table.unopened(directory.path):
        offsets |= unopened.high_watermarks()
    offsets |= {log.topic_partition: log.high_watermark for log in table.opened(directory.path)}
    directory.check_works()
    directory.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, offsets)


class Checkpoints:
    """Writes the checkpoints of all working directories, or of one.

    A directory that cannot be written goes offline; the others are still written.
    """

    def __init__(self, directories: LiveDirectories, table: LogTable) -> None:
        self._directories, self._table = directories, table

    def recovery_offsets(self, log_dir: str | None = None) -> None:
        """Writes `log-start-offset-checkpoint` and `recovery-point-offset-checkpoint`."""
        self._write("recovery offsets", write_recovery_points, log_dir)

    def log_start_offsets(self, log_dir: str | None = None) -> None:
        """Writes `log-start-offset-checkpoint`."""
        self._write("log start offsets", write_log_start_offsets, log_dir)

    def high_watermarks(self) -> None:
        """Writes `replication-offset-checkpoint` of directories that have logs."""
        for log_dir in self._table.counts():
            self._write("high watermarks", write_high_watermarks, log_dir)

    def _write(self, what: str, write: Callable[[LogDirectory, LogTable], None],
               log_dir: str | None) -> None:
        for directory in self._directories.all():
            if log_dir in (None, directory.path):
                try:
                    write(directory, self._table)
                except KafkaStorageError as error:
                    _log.error("Disk error while writing %s checkpoint in directory %s: %s", what,
                               directory.path, error)
