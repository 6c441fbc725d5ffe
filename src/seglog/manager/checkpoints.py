"""What goes into the checkpoints of a data directory (reference 1.5)."""

from __future__ import annotations

from collections.abc import Iterable

from seglog.manager.directories import LogDirectory
from seglog.recovery.loaded import LoadedLog
from seglog.storage.paths import (
    HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
)

__all__ = ["write_high_watermarks", "write_log_start_offsets", "write_recovery_points"]


def write_recovery_points(directory: LogDirectory, logs: Iterable[LoadedLog]) -> None:
    """Of every log of the directory. KafkaStorageError."""
    directory.write_checkpoint(RECOVERY_POINT_CHECKPOINT, {
        log.topic_partition: log.recovery_point for log in logs})


def write_log_start_offsets(directory: LogDirectory, logs: Iterable[LoadedLog]) -> None:
    """Only of logs that start behind the base of their first segment. KafkaStorageError."""
    directory.write_checkpoint(LOG_START_OFFSET_CHECKPOINT, {
        log.topic_partition: log.log_start_offset for log in logs
        if len(log.segments) and log.log_start_offset > log.segments.base_offsets[0]})


def write_high_watermarks(directory: LogDirectory, logs: Iterable[LoadedLog]) -> None:
    """Of every log of the directory (Kafka: ReplicaManager). KafkaStorageError."""
    directory.write_checkpoint(HIGH_WATERMARK_CHECKPOINT, {
        log.topic_partition: log.high_watermark for log in logs})
