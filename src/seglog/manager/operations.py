"""What can be done with the logs of a manager: create, delete, move, truncate, configure."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from seglog import arguments
from seglog.arguments import optional, partition_of, shown, text
from seglog.cleaner.cleaner_stats import CleanerStats
from seglog.config import LogConfig
from seglog.errors import (
    IllegalStateError, LogDirNotFoundError, UnknownTopicOrPartitionError,
)
from seglog.forks import ProcessBound
from seglog.log.context import RemoteLookups
from seglog.log.topic_id import topic_id_of
from seglog.log.unified_log import UnifiedLog
from seglog.manager.creation import LogCreation
from seglog.manager.deletion import LogDeletion
from seglog.manager.moves import FutureLogMover, LogMoves
from seglog.manager.state import ManagerState
from seglog.manager.table import dir_of
from seglog.model import TopicPartition
from seglog.storage.meta import format_uuid

__all__ = ["LogOperations"]

_Path = str | os.PathLike[str]


class LogOperations(ProcessBound, ABC):
    """The operations of a LogManager. Safe from any thread.

    All of them raise AllLogDirsFailedError if no directory is left, and KafkaStorageError if the
    file system refuses; the directory is then offline.
    """

    _has_lock = True

    def __init__(self, state: ManagerState) -> None:
        self._state = state
        self._creation = LogCreation(state)
        self._deletion = LogDeletion(state)
        self._moves = LogMoves(state, self._creation, self._deletion)

    @abstractmethod
    def _require_running(self) -> None:
        """Raises LogManagerStateError, AllLogDirsFailedError."""

    # ---- creating

    def get_or_create_log(self, topic_partition: TopicPartition, *, is_new: bool = False,
                          is_future: bool = False, topic_id: uuid.UUID | None = None,
                          target_log_directory_id: uuid.UUID | None = None) -> UnifiedLog:
        """The log of a partition; creates it if there is none.

        A new log goes to the directory given by `maybe_update_preferred_log_dir`, or by `topic_id`
        and `target_log_directory_id`; else to the directory with the fewest logs, current and
        future, that is not cordoned. Without `is_new` none is created while a directory is offline,
        because the log may be there. Raises InconsistentTopicIdError, IllegalStateError (a future
        log without a directory, or in that of the current log), InvalidTopicError (a name that
        Kafka would not create), KafkaStorageError.
        """
        self._require_running()
        partition_of(topic_partition)
        if topic_id is not None:
            topic_id_of(topic_id)
        optional(uuid.UUID, target_log_directory_id=target_log_directory_id)
        return self._creation.get_or_create(topic_partition, is_new, is_future, topic_id,
                                            target_log_directory_id)

    def maybe_update_preferred_log_dir(self, topic_partition: TopicPartition,
                                       log_dir: _Path) -> None:
        """Sets a preferred directory for the next log of a partition, unless its current or future
        log is there already. Raises LogDirNotFoundError."""
        self._creation.prefer(topic_partition, self._state.directories.configured(log_dir))

    def next_log_dirs(self) -> list[str]:
        """The directories for the next log, those with the fewest logs first."""
        return self._creation.next_log_dirs()

    @property
    def cordoned_log_dirs(self) -> frozenset[str]:
        """Directories that get no new logs."""
        return self._creation.cordoned

    def update_cordoned_log_dirs(self, log_dirs: Iterable[_Path]) -> None:
        """Keeps new logs out of these directories; existing logs are still served.

        A single `*` stands for all. Raises LogDirNotFoundError.
        """
        given = list(log_dirs)
        directories = self._state.directories
        self._creation.cordoned = frozenset(
            directories.log_dirs if given == ["*"] else map(directories.configured, given))

    # ---- deleting

    def async_delete(self, topic_partition: TopicPartition, is_future: bool = False, *,
                     is_stray: bool = False) -> UnifiedLog | None:
        """Takes a log out of service. Returns the log, or None if there is none.

        Its directory is renamed at once, durably. The task `kafka-delete-logs` of this or a later
        start deletes it `file.delete.delay.ms` later. A stray one is kept. Raises KafkaStorageError
        also if the log may be in an offline directory.
        """
        self._require_running()
        return self._deletion.async_delete(topic_partition, is_future, is_stray=is_stray)

    def async_delete_all(self, topic_partitions: Iterable[TopicPartition], *,
                         is_stray: bool = False,
                         on_error: Callable[[TopicPartition, Exception], object]) -> None:
        """The same for the current and future logs of many partitions; checkpoints are written
        once. `on_error` gets those that fail."""
        self._require_running()
        keys = [partition_of(key) for key in topic_partitions]
        self._deletion.async_delete_all(keys, is_stray, on_error)

    def delete_logs(self) -> int:
        """Deletes the logs that are due, as the task does. Returns the ms until the next."""
        self._require_running()
        return self._deletion.delete_logs()

    # ---- moving

    def alter_replica_log_dir(self, topic_partition: TopicPartition,
                              log_dir: _Path) -> FutureLogMover | None:
        """Begins to move a partition to another directory; None if it is there already.

        Creates a future log there. The mover fills it (`run`, or `step` by step, in a thread of the
        caller) while the partition is read and written. Cancels an earlier move to another
        directory; continues one to the same directory. Raises LogDirNotFoundError,
        KafkaStorageError (an offline directory), InvalidTopicError, InvalidReplicaAssignmentError
        (a cordoned directory), UnknownTopicOrPartitionError (the directory is then the preferred
        one of the partition).
        """
        self._require_running()
        return self._moves.alter_log_dir(topic_partition,
                                         self._state.directories.configured(log_dir))

    def resume_move(self, topic_partition: TopicPartition) -> FutureLogMover | None:
        """Continues an earlier move, also one from before a restart; None if there is none."""
        self._require_running()
        return self._moves.resume(topic_partition)

    def replace_current_with_future_log(self, topic_partition: TopicPartition) -> None:
        """Replaces the current log of a partition by its future log; the old one is then deleted as
        by `async_delete`. Holders of the old one can read it, but neither append nor truncate.

        A mover does this when nothing is missing. If the process is killed between its two renames,
        the next start finds the partition twice (DuplicatePartitionError), as Kafka's does. Raises
        KafkaStorageError, also if one of the logs is missing.
        """
        self._require_running()
        self._moves.replace_current_with_future_log(topic_partition)

    def recover_abandoned_future_logs(
            self, assigned_to: Callable[[TopicPartition, uuid.UUID], uuid.UUID | None]) -> None:
        """Promotes future logs in the directories to which the cluster assigned their partitions:
        the cluster learned of the end of a move, but the process ended before the promotion.

        `assigned_to(topic_partition, topic_id)` is the directory id in the cluster's metadata.
        Raises IllegalStateError for a future log without a topic id.
        """
        self._require_running()
        self._moves.recover_abandoned(assigned_to)

    # ---- truncating

    def truncate_to(self, offsets: Mapping[TopicPartition, int], is_future: bool = False) -> None:
        """Truncates logs (UnifiedLog.truncate_to), and then writes the recovery points of their
        directories, also if one of them fails. Partitions without a log are skipped."""
        self._require_running()
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets must be a mapping of partitions, not {shown(offsets)}")
        changed: set[str] = set()
        try:
            for key, offset in offsets.items():
                log = self._state.table.get(key, is_future)
                if log is not None:
                    with self._state.cleaning.truncation(log, offset):
                        if log.truncate_to(offset):
                            changed.add(dir_of(log))
        finally:  # else what is written at the truncated offsets would count as flushed
            for log_dir in sorted(changed):
                self._state.checkpoints.recovery_offsets(log_dir)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int,
                                    is_future: bool = False,
                                    log_start_offset: int | None = None) -> None:
        """Empties a log (UnifiedLog.truncate_fully_and_start_at), and then writes the recovery
        points of its directory. Does nothing if there is no log."""
        self._require_running()
        log = self._state.table.get(topic_partition, is_future)
        if log is not None:
            arguments.offset("offset", offset)
            with self._state.cleaning.truncation(log, offset, is_full=True):
                log.truncate_fully_and_start_at(offset, log_start_offset)
            self._state.checkpoints.recovery_offsets(dir_of(log))

    # ---- settings

    @property
    def current_default_config(self) -> LogConfig:
        """The settings of topics that have none of their own."""
        return self._state.configs.default

    def topic_config(self, topic: str) -> LogConfig:
        """The effective settings of a topic."""
        return self._state.configs.of(topic)

    def update_topic_config(self, topic: str, properties: Mapping[str, object]) -> None:
        """Replaces a topic's own settings, also for its existing logs. Raises ConfigError, and then
        changes nothing."""
        state = self._state
        state.configs.set_topic(text("topic", topic), properties)
        if state.context.is_remote(state.configs.of(topic), topic):
            # From now on the checkpoint has where each of its logs starts, as a tiered log begins
            # before its first segment. The rows of a table do not know that.
            state.table.open_all(topic=topic)
        for log in state.table.opened_of_topic(topic):  # the others get them when opened
            before = log.config
            state.configs.serve(log)
            state.cleaning.reconfigured(log, before)

    def reconfigure_default_log_config(self, log_config: LogConfig) -> None:
        """Replaces the defaults; a topic's own settings stay."""
        if not isinstance(log_config, LogConfig):
            raise TypeError(f"log_config must be a LogConfig, not {shown(log_config)}")
        self._state.configs.set_default(log_config)
        for log in self._state.table.opened():
            self._state.configs.serve(log)

    # ---- cleaning

    def compact(self, topic_partition: TopicPartition,
                on_read: Callable[[int], object] | None = None, *, threads: int = 1
                ) -> list[CleanerStats]:
        """Cleans a log now, however dirty it is, in the calling thread and `threads` - 1 others,
        with the same result for any number. Returns the statistics of each round. Without cleanable
        records there is no round. `on_read` gets the bytes of each read, in any of the threads but
        one at a time: dirty bytes are read twice, the others once.

        The active segment, open transactions and `min.compaction.lag.ms` bound a round as always.
        Raises UnknownTopicOrPartitionError, IllegalStateError (the topic is not compacted),
        LogCleaningAbortedError (the log is truncated, moved or deleted meanwhile), and Kafka's
        exceptions for records that it cannot read.
        """
        self._require_running()
        log = self._state.table.get(partition_of(topic_partition))
        if log is None:
            raise UnknownTopicOrPartitionError(f"there is no log of {topic_partition} here")
        if not log.config.compact:
            raise IllegalStateError(f"{topic_partition} is not compacted: its cleanup.policy is "
                                    f"{','.join(log.config.cleanup_policy)}")
        return self._state.cleaning.compact(log, on_read, threads)

    def reconfigure_cleaner(self, properties: Mapping[str, object]) -> None:
        """Changes settings of the cleaner, by Kafka's names, at run time; its threads are replaced.
        Raises ConfigError for a name that cannot be changed, or an invalid value."""
        self._state.cleaning.reconfigure(properties)

    @property
    def remote_lookups(self) -> RemoteLookups:
        """The lookups of logs in remote storage; a RemoteLogManager sets them."""
        return self._state.context.remote

    # ---- directories

    @property
    def directory_ids(self) -> dict[str, uuid.UUID]:
        """`directory.id` of the working directories that have one."""
        return self._state.directories.ids

    def directory_id(self, log_dir: _Path) -> uuid.UUID | None:
        """`directory.id` of a working directory. Raises LogDirNotFoundError."""
        return self._state.directories.ids.get(self._state.directories.configured(log_dir))

    def directory_path(self, directory_id: uuid.UUID) -> str:
        """The working directory with that id. Raises LogDirNotFoundError."""
        if not isinstance(directory_id, uuid.UUID):
            raise TypeError(f"directory_id must be a uuid.UUID, not {shown(directory_id)}")
        path = self._state.directories.path_of(directory_id)
        if path is None:
            raise LogDirNotFoundError(
                f"no log dir with the id {format_uuid(directory_id)} is online")
        return path
