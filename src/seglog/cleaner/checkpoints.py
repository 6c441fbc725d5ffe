"""Where rounds ended: `cleaner-offset-checkpoint` of each data directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.model import TopicPartition
from seglog.storage.paths import CLEANER_OFFSET_CHECKPOINT

__all__ = ["CheckpointDirectory", "CleanerCheckpoints"]

_logger = logging.getLogger("seglog.LogCleaner")


class CheckpointDirectory(Protocol):
    """A data directory with its checkpoints (`seglog.manager.directories.LogDirectory`)."""

    path: str

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Raises KafkaStorageError, MalformedCheckpointError."""

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises KafkaStorageError."""


class CleanerCheckpoints:
    """The checkpoints of the live data directories. The caller holds a lock.

    `keeps(path, partition)` says whether the line of a partition stays when the file of a directory
    is written. A read or write that fails takes its directory offline and is logged. A file with
    invalid numbers is logged and counts as empty: its logs are cleaned from their starts. (Kafka's
    threads end there.)
    """

    def __init__(self, directories: Iterable[CheckpointDirectory],
                 keeps: Callable[[str, TopicPartition], bool]) -> None:
        self._directories = {one.path: one for one in directories}
        self._keeps = keeps

    def all(self) -> dict[str, dict[TopicPartition, int]]:
        """The offsets of all directories, by path."""
        return {path: self._read(path) or {} for path in list(self._directories)}

    def get(self, log_dir: str, key: TopicPartition) -> int | None:
        """The offset of one partition."""
        return (self._read(log_dir) or {}).get(key)

    def update(self, log_dir: str, *, add: tuple[TopicPartition, int] | None = None,
               remove: TopicPartition | None = None) -> None:
        """Writes the file with one line added or removed."""
        before = self._read(log_dir)
        if before is None:
            return
        offsets = {key: offset for key, offset in before.items()
                   if key != remove and self._keeps(log_dir, key)}
        if add is not None:
            offsets[add[0]] = add[1]
        if offsets != before:
            self._write(log_dir, offsets)

    def truncate(self, log_dir: str, key: TopicPartition, offset: int) -> None:
        """Lowers the partition's offset to `offset` if it is above."""
        offsets = self._read(log_dir)
        if offsets is not None and offsets.get(key, 0) > offset:
            self._write(log_dir, {**offsets, key: offset})

    def drop(self, log_dir: str) -> None:
        """The directory is offline: its file is not touched again."""
        self._directories.pop(log_dir, None)

    def _read(self, log_dir: str) -> dict[TopicPartition, int] | None:
        """None for an offline directory."""
        directory = self._directories.get(log_dir)
        if directory is None:
            return None
        try:
            return directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        except MalformedCheckpointError as error:
            self._failed(log_dir, error)
            return {}
        except KafkaStorageError as error:
            self._failed(log_dir, error)
            return None

    def _write(self, log_dir: str, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            self._directories[log_dir].write_checkpoint(CLEANER_OFFSET_CHECKPOINT, offsets)
        except KafkaStorageError as error:
            self._failed(log_dir, error)

    def _failed(self, log_dir: str, error: Exception) -> None:
        _logger.error("Failed to access checkpoint file %s in dir %s: %s",
                      CLEANER_OFFSET_CHECKPOINT, log_dir, error)
