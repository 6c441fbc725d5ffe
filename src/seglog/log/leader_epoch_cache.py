"""The leader epochs of a writable log, and their file (Kafka: LeaderEpochFileCache)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from seglog.errors import IllegalArgumentError, KafkaStorageError
from seglog.log.local_log import LocalLog
from seglog.log.log_dir_failures import OFFLINE
from seglog.model import EpochEntry
from seglog.storage.epochs import LeaderEpochs

__all__ = ["LeaderEpochCache"]

_RETRY_MS = 1000

_logger = logging.getLogger("seglog.UnifiedLog")


class LeaderEpochCache:
    """Changes the epochs and writes them. For the thread that holds the log's lock."""

    def __init__(self, local: LocalLog, epochs: LeaderEpochs) -> None:
        self.epochs = epochs
        self._local = local
        self._text = f"Error while writing leader epoch checkpoint of {local.topic_partition}"

    def assign(self, epoch: int, offset: int) -> None:
        """Records that an epoch begins at `offset`, durably if that is new. Raises
        IllegalArgumentError."""
        self.assign_all((EpochEntry(epoch, offset),))

    def assign_all(self, entries: Iterable[EpochEntry]) -> None:
        """Records many epochs, durably with one write. Raises IllegalArgumentError."""
        try:
            changed = [self.epochs.assign(entry.epoch, entry.start_offset) for entry in entries]
        except ValueError as error:
            raise IllegalArgumentError(str(error)) from None
        if any(changed):
            self._local.fast_path.disarm()
            with self._local.guarded(self._text):
                self._write()

    def clear_for_old_format(self, magic: int) -> None:
        """Removes all epochs, durably: the log has batches of an old format again, without
        epochs."""
        if len(self.epochs):
            _logger.warning(self._local.log_text(
                "Clearing leader epoch cache after unexpected append with message format "
                f"v{magic}"))
            self.clear_and_write()

    def clear_and_write(self) -> None:
        """Removes all epochs, durably."""
        self.clear()
        self._write()

    def clear(self) -> None:
        """Removes all epochs; their file is about to be deleted."""
        self._local.fast_path.disarm()
        self.epochs.clear()

    def truncate_from_end(self, offset: int) -> None:
        """Removes epochs that began at or above `offset`; the file is written later."""
        if self.epochs.truncate_from_end(offset):
            self._local.fast_path.disarm()
            self._write_later()

    def truncate_from_start(self, offset: int) -> None:
        """Removes epochs that ended below `offset`; the file is written later."""
        if self.epochs.truncate_from_start(offset):
            self._local.fast_path.disarm()
            self._write_later()

    def end_offset_for(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch at or below `epoch`, its end offset); None if that is unknown."""
        found = self.epochs.end_offset_for(epoch, self._local.log_end_offset)
        return None if found[1] < 0 else found

    def _write(self) -> None:
        self._local.disk.write_epochs(self.epochs)

    def _write_later(self, delay_ms: int = 0) -> None:
        local = self._local
        local.context.scheduler.schedule_once(
            f"leader-epoch-cache-flush-{local.topic_partition}", self._write_if_open, delay_ms)

    def _write_if_open(self) -> None:
        local = self._local
        # After a close the files may belong to another log; a load truncates the epochs again.
        with local.lock:
            if local.files.is_closed or not os.path.isdir(local.path):
                return
            try:
                # For the same reason too many open files take no directory offline here (Kafka:
                # CheckpointFileWithFailureHandler.writeIfDirExists).
                with local.guarded(self._text, reads=True):
                    self._write()
            except KafkaStorageError as error:
                if error.code == OFFLINE:
                    raise
                _logger.warning(local.log_text(f"{error}; it is tried again"))
                self._write_later(_RETRY_MS)
