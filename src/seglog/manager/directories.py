"""One data directory in use: its lock, its checkpoints, its clean shutdown marker."""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections.abc import Callable, Collection, Container, Mapping, Sequence

from seglog.arguments import directory_path
from seglog.config import BrokerConfig, LoadConfig
from seglog.errors import (
    ConfigError, IllegalArgumentError, InvalidTopicPartitionError, KafkaStorageError,
    MalformedCheckpointError,
)
from seglog.fragments.journal import finish_commit
from seglog.log.log_dir_failures import TOO_MANY_OPEN, LogDirFailureChannel, closed_error
from seglog.model import TopicPartition
from seglog.recovery.root import PartitionDirectory
from seglog.storage.checkpoint_files import read_offset_checkpoint, write_offset_checkpoint
from seglog.storage.lock import FileLock
from seglog.storage.meta import encode_clean_shutdown_marker, read_clean_shutdown_epoch
from seglog.storage.ownership import make_directories, open_file
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, REMOTE_LOG_INDEX_CACHE,
    leads_to_directory, parse_directory_name,
)
from seglog.storage.place import NOT_A_DATA_DIRECTORY, refuse_duplicates, require_room_for_logs
from seglog.storage.textfile import remove_path, sync_names, sync_path, write_file

__all__ = [
    "LogDirectory", "agreed_broker_epoch", "configured_log_dirs", "create_and_validate_log_dirs",
    "lock_log_dirs", "refuse_foreign_directories",
]

_Path = str | os.PathLike[str]
_log = logging.getLogger(__name__)

# Unchecked exceptions of Kafka's checkpoint reader: the directory stays online, offsets are reset.
_UNCHECKED_CODES = ("checkpoint_number", "checkpoint_capacity")
# What a checkpoint that cannot be read does to the offsets.
_RESETS = {
    RECOVERY_POINT_CHECKPOINT: "the recovery checkpoint to 0",
    LOG_START_OFFSET_CHECKPOINT: "to the base offset of the first segment",
    HIGH_WATERMARK_CHECKPOINT: "the high watermarks to the log start offsets",
}

#: Returns the current offset of every log of the directory.
_ReadOffsets = Callable[[], Mapping[TopicPartition, int]]


class LogDirectory:
    """A live entry of `log.dirs`; `path` is absolute.

    A checkpoint that cannot be read or written takes the directory offline, through the channel,
    and raises KafkaStorageError. Safe from any thread.
    """

    def __init__(self, path: str, directory_id: uuid.UUID | None, channel: LogDirFailureChannel,
                 keep_log_starts: bool = False, repeated: Collection[str] = ()) -> None:
        """See LogManager for `keep_log_starts`. `repeated` are checkpoints that the owner writes
        again if there are too many open files; the directory stays online then."""
        self.path, self.directory_id = path, directory_id
        self._keep_log_starts, self._repeated = keep_log_starts, repeated
        self.had_clean_shutdown = False
        #: Whether the load of every log of the directory has ended, successfully or not.
        self.loading_completed = False
        #: Whether one of them failed.
        self.loading_failed = False
        #: The partitions whose logs, or copies of a move, are here and did not load.
        self.not_loaded: set[TopicPartition] = set()
        # Checkpointed offsets of logs that are not loaded, by checkpoint: they stay in the files.
        self._on_file: dict[str, dict[TopicPartition, int]] = {}
        # Partitions that may have a line and no log: after a deletion and before its checkpoints,
        # between which a crash may have come.
        self._without_log: set[TopicPartition] = set()
        self._channel = channel
        self._file_lock = FileLock(os.path.join(path, LOCK_FILE))
        self._offsets_lock = threading.Lock()
        self._checkpoint_locks = {
            name: threading.Lock() for name in (
                RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT,
                HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)}

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r})"

    # ---- lock

    @property
    def is_locked(self) -> bool:
        """Whether this process holds the directory."""
        return self._file_lock.is_locked

    def lock(self) -> None:
        """Takes `.lock`, and completes the commit of a job that a crash interrupted. Raises
        LogDirLockedError if another process has it; OSError."""
        self._file_lock.lock()
        try:
            finish_commit(self.path)
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Deletes `.lock`, which releases the directory."""
        self._file_lock.destroy()

    def check_works(self) -> None:
        """Raises KafkaStorageError if the directory has failed or was released."""
        self._channel.check_online(self.path)
        if not self.is_locked:
            raise closed_error(f"The log dir {self.path} was released by this log manager.")

    # ---- checkpoints

    def create_checkpoints(self) -> None:
        """Creates empty files of the manager's two checkpoints, as Kafka does."""
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            path = os.path.join(self.path, name)
            if not os.path.lexists(path):
                os.close(open_file(path, os.O_WRONLY))

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Reads a checkpoint of this directory. Raises KafkaStorageError, and
        MalformedCheckpointError for invalid numbers, which do not take the directory offline."""
        path = os.path.join(self.path, name)
        message = f"Error while reading checkpoint file {path}"
        with self._checkpoint_locks[name]:
            try:
                return read_offset_checkpoint(path)
            except MalformedCheckpointError as error:
                if error.code in _UNCHECKED_CODES:
                    raise
                self._channel.maybe_add_offline_log_dir(self.path, message, error)
                raise KafkaStorageError(errno.EIO, message, path) from error
            except OSError as error:
                self._channel.maybe_add_offline_log_dir(self.path, message, error)
                raise KafkaStorageError(error.errno, message, path) from error

    def write_manager_checkpoints(self, log_start_offsets: _ReadOffsets,
                                  recovery_points: _ReadOffsets | None = None) -> None:
        """Writes `log-start-offset-checkpoint` and then `recovery-point-offset-checkpoint`, with
        what the functions return. Raises KafkaStorageError.

        A log's start lifts its recovery point past bytes that were perhaps never synced
        (UnifiedLog.updateLogStartOffset). If power failed with that point on the disk and without
        the start, a load would trust those bytes. (Kafka writes the two files independently.)
        """
        with self._offsets_lock:  # else a thread that read before could write after this one
            without_log = set(self._without_log)  # others may be added meanwhile
            # Read first: what moves meanwhile is too low on the file, never too high.
            points = None if recovery_points is None else recovery_points()
            self.write_checkpoint(LOG_START_OFFSET_CHECKPOINT, log_start_offsets())
            if points is not None:
                self.write_checkpoint(RECOVERY_POINT_CHECKPOINT, points)
                self._without_log -= without_log

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint atomically and durably. Raises KafkaStorageError.

        A log that was not loaded, or failed to load, keeps its line. (Kafka drops it. The next
        recovery of the log would begin at its first segment, and deleted records would reappear.)
        """
        path = os.path.join(self.path, name)
        with self._checkpoint_locks[name]:
            try:
                every = {**self._on_file.get(name, {}), **offsets}
                write_offset_checkpoint(path, {key: every[key] for key in sorted(
                    every, key=lambda key: (key.topic, key.partition))})
            except OSError as error:
                message = f"Error while writing to checkpoint file {path}"
                if name not in self._repeated or error.errno not in TOO_MANY_OPEN:
                    self._channel.maybe_add_offline_log_dir(self.path, message, error)
                raise KafkaStorageError(error.errno, message, path) from error

    def read_or_reset(self, name: str, stays_online: bool = False) -> dict[TopicPartition, int]:
        """Reads a checkpoint at start: one that cannot be read counts as empty.

        With `stays_online` the directory does not go offline for malformed content, and the file
        is replaced at the end. So one that the file system fails raises KafkaStorageError.
        """
        try:
            if not stays_online:
                return self.read_checkpoint(name)
            return read_offset_checkpoint(os.path.join(self.path, name))
        except (MalformedCheckpointError, KafkaStorageError) as error:
            if stays_online and isinstance(error, KafkaStorageError):
                raise
            _log.warning("Error occurred while reading %s file of directory %s, resetting %s",
                         name, self.path, _RESETS[name], exc_info=error)
            return {}

    def keep_on_file(self, offsets: Mapping[str, Mapping[TopicPartition, int]],
                     keys: Container[TopicPartition]) -> None:
        """These partitions are about to be loaded; until then their offsets stay in the files."""
        for name, found in offsets.items():
            with self._checkpoint_locks[name]:
                self._on_file[name] = {key: offset for key, offset in found.items()
                                       if key in keys}
                self._without_log |= {key for key in found if key not in keys}

    def note_deletion(self, key: TopicPartition) -> None:
        """The log of the partition has left the table. Its lines stay until the next checkpoint."""
        self._without_log.add(key)

    def has_line_without_log(self, key: TopicPartition) -> bool:
        """Whether a checkpoint may still have offsets of an earlier log of this partition. A new
        one would begin there after a crash: write the checkpoints first."""
        return key in self._without_log

    @property
    def knows_its_logs(self) -> bool:
        """Whether a load has called `keep_on_file`. Before that the files must not be replaced:
        their offsets would be lost."""
        return bool(self._on_file)

    def forget_on_file(self, *keys: TopicPartition) -> None:
        """From now on the loaded logs provide the offsets for the checkpoints."""
        for name, found in self._on_file.items():
            if self._keep_log_starts and name == LOG_START_OFFSET_CHECKPOINT:
                continue  # a log that starts after its first segment has a line that replaces this
            with self._checkpoint_locks[name]:
                for key in keys:
                    found.pop(key, None)

    # ---- the clean shutdown marker

    @property
    def _marker(self) -> str:
        return os.path.join(self.path, CLEAN_SHUTDOWN_FILE)

    def take_clean_shutdown_marker(self) -> bool:
        """Removes the marker durably. Returns whether the last shutdown was clean. A later crash is
        then detected. Raises OSError."""
        self.had_clean_shutdown = os.path.exists(self._marker)
        if self.had_clean_shutdown:
            remove_path(self._marker)  # an empty directory counts too, as for File.exists
            sync_path(self.path)
        return self.had_clean_shutdown

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """Writes the marker: everything is flushed and closed. Raises OSError."""
        write_file(self._marker, encode_clean_shutdown_marker(broker_epoch))

    @property
    def may_be_marked_clean(self) -> bool:
        """Whether a marker would be true, once all loaded logs are closed.

        An earlier marker may be restored: the logs that were not loaded are unchanged. (Kafka
        treats a load with a failed log as complete. Its marker would prevent the recovery that the
        log needs.)
        """
        return self.had_clean_shutdown or (self.loading_completed and not self.loading_failed)

    def read_broker_epoch(self) -> int | None:
        """The broker epoch in the marker, None if it cannot be read."""
        return read_clean_shutdown_epoch(self._marker)

    # ---- partitions

    def partition_directories(
            self, on_error: Callable[[str, Exception], object] | None = None
    ) -> list[PartitionDirectory]:
        """The partition directories, sorted by name.

        Raises OSError, and InvalidTopicPartitionError for a subdirectory with an invalid name,
        unless `on_error` handles it.
        """
        with os.scandir(self.path) as entries:
            names = sorted(entry.name for entry in entries if leads_to_directory(entry))
        found: list[PartitionDirectory] = []
        for name in names:
            if name == REMOTE_LOG_INDEX_CACHE:
                continue
            path = os.path.join(self.path, name)
            try:
                parsed = parse_directory_name(path)
            except InvalidTopicPartitionError as error:
                if on_error is None:
                    raise
                on_error(path, error)
                continue
            one = PartitionDirectory(name, parsed.topic_partition, parsed.kind)
            if not one.is_metadata:
                found.append(one)
        return found


def configured_log_dirs(log_dirs: _Path | Sequence[_Path] | None,
                        config: LoadConfig | BrokerConfig) -> list[str]:
    """Absolute paths of `log_dirs`, or else of the configuration. Raises ConfigError if there are
    none, KafkaStorageError for an empty path, DuplicateLogDirError."""
    if log_dirs is None:
        if not isinstance(config, BrokerConfig):
            raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
        log_dirs = config.data_dirs
    given = [log_dirs] if isinstance(log_dirs, str | os.PathLike) else list(log_dirs)
    if not given:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    # A path with a null byte is an offline directory, as in Kafka; the others keep working.
    paths = [os.path.abspath(path) if "\0" in str(path) else directory_path("log_dirs", path)
             for path in given]
    refuse_duplicates(paths)
    return paths


def refuse_foreign_directories(log_dirs: Sequence[str]) -> None:
    """Raises KafkaStorageError for a directory that holds other things than logs.

    A directory that cannot be used for another reason goes offline instead, as in a broker.
    """
    for path in log_dirs:
        try:
            require_room_for_logs(path)
        except KafkaStorageError as error:
            if error.code == NOT_A_DATA_DIRECTORY and error.errno == errno.EINVAL:
                raise
        except IllegalArgumentError:  # a null byte in the path
            continue


def create_and_validate_log_dirs(log_dirs: Sequence[str], offline: Mapping[str, BaseException],
                                 channel: LogDirFailureChannel) -> list[str]:
    """Creates missing directories. Returns the usable ones; the others are in the channel."""
    live: list[str] = []
    for path in log_dirs:
        try:
            cause = offline.get(path)
            if cause is not None:
                raise KafkaStorageError(
                    getattr(cause, "errno", None) or errno.EIO,
                    f"Failed to load {path} during broker startup: {cause}", path) from cause
            _create_and_validate(path)
        except OSError as error:
            channel.maybe_add_offline_log_dir(
                path, f"Failed to create or validate data directory {path}", error)
            continue
        live.append(path)
    return live


def _create_and_validate(path: str) -> None:
    if not os.path.exists(path):
        _log.info("Log directory %s not found, creating it.", path)
        try:
            created = make_directories(path, is_ours=True)
        except OSError as error:
            raise KafkaStorageError(error.errno, f"Failed to create data directory {path}: "
                                    f"{error.strerror}", path) from error
        sync_names(created)
    if not os.path.isdir(path) or not os.access(path, os.R_OK):
        raise KafkaStorageError(errno.EACCES if os.path.isdir(path) else errno.ENOTDIR,
                                f"{path} is not a readable log directory.", path)


def agreed_broker_epoch(directories: Sequence[LogDirectory]) -> int | None:
    """The broker epoch that all clean shutdown markers hold."""
    epoch = -1
    for directory in directories:
        found = directory.read_broker_epoch()
        if found is None:
            _log.info("Unable to read the broker epoch in %s.", directory.path)
            return None
        if epoch != -1 and found != epoch:
            _log.info("Found different broker epochs in %s. Other=%d vs current=%d.",
                      directory.path, epoch, found)
            return None
        epoch = found
    return epoch


def lock_log_dirs(directories: Sequence[LogDirectory],
                  channel: LogDirFailureChannel) -> list[LogDirectory]:
    """Locks the directories. Returns those that could be locked.

    Raises LogDirLockedError if another process has one, and then releases all locks.
    """
    locked: list[LogDirectory] = []
    try:
        for directory in directories:
            try:
                directory.lock()
            except OSError as error:
                channel.maybe_add_offline_log_dir(
                    directory.path, f"Disk error while locking directory {directory.path}", error)
                continue
            locked.append(directory)
    except BaseException:
        for directory in locked:
            directory.unlock()
        raise
    return locked
