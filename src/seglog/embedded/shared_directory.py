"""The data directory that embedded logs of one process share.

A broker that starts on it finds what another broker would have left: `.lock` while it is used, the
two checkpoints, and the marker after a clean shutdown.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Final, Self

from seglog.embedded.embedded_cleaning import EmbeddedCleaning
from seglog.errors import KafkaStorageError, LogDirLockedError, MalformedCheckpointError
from seglog.forks import ProcessBound, ending
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.paths import (
    CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from seglog.storage.textfile import sync_path

__all__ = ["SharedDirectory"]

_log = logging.getLogger(__name__)
_CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
_NO_EPOCH: Final = -1

_shared: dict[str, SharedDirectory] = {}
_guard = threading.RLock()


def _forget_shared() -> None:
    """A forked child has no open directories; they belong to the parent."""
    global _guard
    _guard = threading.RLock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_shared)


class SharedDirectory(ProcessBound):
    """One data directory, locked while a log in it is open. Safe from any thread."""

    _has_lock = True

    def __init__(self, path: str) -> None:
        """Created by `acquire`."""
        self.path = path
        self.failures = LogDirFailureChannel()
        # A program may have too many open files for a moment; a task writes them again.
        self._directory = LogDirectory(path, None, self.failures, repeated=_CHECKPOINTS)
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._opening: set[TopicPartition] = set()
        #: Compacts the open logs of the directory.
        self.cleaning = EmbeddedCleaning(self._directory, self._logs, self.failures)
        # Offsets of logs that were closed here, and which of them were closed cleanly.
        self._ended: dict[str, dict[TopicPartition, int]] = {name: {} for name in _CHECKPOINTS}
        self._clean: set[TopicPartition] = set()
        self._dirty: set[TopicPartition] = set()
        self._directory.lock()
        try:
            self._epoch = self._directory.read_broker_epoch()
            self._on_file = {name: self._read(name) for name in _CHECKPOINTS}
            self._directory.keep_on_file(
                self._on_file, {key for found in self._on_file.values() for key in found})
            if self._directory.take_clean_shutdown_marker():
                sync_path(path)  # after this a crash is detected
            self.scheduler = Scheduler(1, thread_name_prefix="seglog-embedded-")
            self.scheduler.startup()
        except BaseException:
            self._directory.unlock()
            raise

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint; empty if it has invalid numbers, as in Kafka. Raises KafkaStorageError for
        any other that cannot be read, where a broker takes the directory offline."""
        try:
            return self._directory.read_checkpoint(name)
        except MalformedCheckpointError:
            return self._directory.read_or_reset(name)
        except KafkaStorageError as error:
            cause = error.__cause__
            text = f"{error.strerror}: {getattr(cause, 'strerror', None) or cause}"
            if isinstance(cause, MalformedCheckpointError):
                text += f"; `seglog load --recover {self.path}` replaces it by a new one"
            raise KafkaStorageError(error.errno, text, error.filename) from cause

    @classmethod
    def acquire(cls, path: str, topic_partition: TopicPartition) -> Self:
        """The existing directory `path`, for one log of it; call `release` afterwards.

        Raises LogDirLockedError if another process has the directory, or this one has the log
        already.
        """
        real = os.path.realpath(path)
        with _guard:
            found = _shared.get(real)
            if found is None:
                found = _shared[real] = cls(real)
            if topic_partition in found._logs or topic_partition in found._opening:
                raise LogDirLockedError(os.path.join(real, str(topic_partition)), os.getpid())
            found._opening.add(topic_partition)
            return found  # type: ignore[return-value]

    # ---- what is known of a log

    def was_closed(self, key: TopicPartition) -> bool:
        """Whether the log needs no recovery."""
        return key in self._clean or (self._directory.had_clean_shutdown
                                      and key not in self._dirty)

    def may_have_gaps(self, key: TopicPartition) -> bool:
        """Whether offsets between segments may be missing that no power cut took: only the log of a
        program that was always its leader has none, whose recovery point is written as soon as
        there is a log. A cleaner and a follower (in a broker, or with a LogManager) leave gaps."""
        return not self.has_recovery_point(key) or any(
            self._may_have_line(name, key)
            for name in (CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT))

    def _may_have_line(self, name: str, key: TopicPartition) -> bool:
        path = os.path.join(self.path, name)
        try:
            return key in read_offset_checkpoint(path)
        except (MalformedCheckpointError, KafkaStorageError) as error:
            _log.warning("%s cannot be read: %s", path, error)
            return True

    def has_recovery_point(self, key: TopicPartition) -> bool:
        """Whether the recovery point of the log was ever written."""
        return any(key in offsets[RECOVERY_POINT_CHECKPOINT]
                   for offsets in (self._on_file, self._ended))

    def recovery_point(self, key: TopicPartition) -> int:
        """The offset below which the log is known to be durable."""
        return self._offset(RECOVERY_POINT_CHECKPOINT, key)

    def log_start_offset(self, key: TopicPartition) -> int:
        """The offset below which records were deleted."""
        return self._offset(LOG_START_OFFSET_CHECKPOINT, key)

    def forget(self, key: TopicPartition) -> None:
        """The log is not there: what is known is of one that was removed. A new one of its name
        would begin at that one's offsets. Raises KafkaStorageError."""
        known = [offsets for found in (self._on_file, self._ended) for offsets in found.values()
                 if key in offsets]
        for offsets in known:
            del offsets[key]
        if known:
            self._directory.forget_on_file(key)
            self.checkpoint()  # before a crash could leave the new log beside the old lines

    def _offset(self, name: str, key: TopicPartition) -> int:
        return max(self._ended[name].get(key, self._on_file[name].get(key, 0)), 0)

    # ---- logs that are open

    def opened(self, log: UnifiedLog) -> None:
        """The log is open, and counts as unclean until it is closed."""
        with _guard:
            key = log.topic_partition
            self._opening.discard(key)
            self._logs[key] = log
            self._clean.discard(key)
            self._dirty.add(key)
            self.cleaning.opened(log)

    def checkpoint(self) -> None:
        """Writes log start offsets and recovery points. Raises KafkaStorageError."""
        self._directory.write_manager_checkpoints(
            lambda: self._offsets(LOG_START_OFFSET_CHECKPOINT, lambda log: log.log_start_offset),
            lambda: self._offsets(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point))

    def _offsets(self, name: str, offset_of: Callable[[UnifiedLog], int]
                 ) -> dict[TopicPartition, int]:
        """Those of logs that were closed here, and of those that are open."""
        opened = self._logs.copy()
        return self._ended[name] | {key: offset_of(log) for key, log in opened.items()}

    @ending
    def release(self, key: TopicPartition, *, is_clean: bool) -> None:
        """The log is closed, or could not be opened. The last one releases the directory.

        Raises KafkaStorageError if the checkpoints cannot be written; the directory is released all
        the same, without a marker.
        """
        with _guard:
            if not self._directory.is_locked:
                return  # a signal's handler has closed the log meanwhile, in the same thread
            self._opening.discard(key)
            log = self._logs.get(key)
            if log is not None:
                self._ended[RECOVERY_POINT_CHECKPOINT][key] = log.recovery_point
                self._ended[LOG_START_OFFSET_CHECKPOINT][key] = log.log_start_offset
                del self._logs[key]  # last: a checkpoint of another log's finds it here or there
                if is_clean:
                    self._clean.add(key)
                    self._dirty.discard(key)
            elif not is_clean:
                self._dirty.add(key)
            is_last = not self._logs and not self._opening
            try:
                if log is not None:
                    self.checkpoint()
            except BaseException:  # also an interrupt: the marker would vouch for old checkpoints
                self._dirty.add(key)
                raise
            finally:
                if is_last:
                    self._give_up()

    def has(self, log: UnifiedLog) -> bool:
        """Whether the log is open: not released yet."""
        return self._logs.get(log.topic_partition) is log

    def _give_up(self) -> None:
        _shared.pop(self.path, None)
        try:
            try:
                self.cleaning.stop()
            finally:
                self.scheduler.shutdown()
            if self._may_be_marked_clean():
                self._directory.write_clean_shutdown_marker(
                    _NO_EPOCH if self._epoch is None else self._epoch)
                sync_path(self.path)
        except OSError as error:
            _log.warning("no clean shutdown marker in %s: %s", self.path, error)
        finally:
            self._directory.unlock()

    def _may_be_marked_clean(self) -> bool:
        """Whether all logs of the directory are closed, including those that were not opened
        here."""
        if self._dirty:
            return False
        if self._directory.had_clean_shutdown:
            return True
        with contextlib.suppress(OSError):
            return all(one.topic_partition in self._clean for one in
                       self._directory.partition_directories(lambda path, error: None))
        return False
