"""Creates logs: chooses the directory and the settings (Kafka: LogManager.getOrCreateLog)."""

from __future__ import annotations

import logging
import os
import uuid

from seglog.config import LogConfig
from seglog.errors import (
    IllegalStateError, InconsistentTopicIdError, InvalidTopicError, KafkaStorageError,
)
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.manager.offset_checkpoints import write_recovery_points
from seglog.manager.state import ManagerState
from seglog.manager.table import dir_of
from seglog.model import TopicPartition
from seglog.recovery.inputs import LoadInputs
from seglog.storage.meta import format_uuid
from seglog.storage.ownership import make_directories
from seglog.storage.paths import (
    DIR_NAME_LENGTH_MAX, DirectoryKind, check_topic, future_dir_name,
)
from seglog.storage.textfile import sync_path

__all__ = ["LogCreation"]

_log = logging.getLogger(__name__)

# Ids of directories that stand for no particular one (Kafka: DirectoryId.UNASSIGNED, LOST).
_NO_DIRECTORY = (uuid.UUID(int=1), uuid.UUID(int=2))


class LogCreation:
    """Creates logs, and remembers preferred directories."""

    def __init__(self, state: ManagerState) -> None:
        self._state = state
        self._preferred: dict[TopicPartition, str] = {}
        #: Directories that get no new logs.
        self.cordoned: frozenset[str] = frozenset()

    def prefer(self, key: TopicPartition, log_dir: str) -> None:
        """Prefers this directory for the next log of the partition, unless it has one there
        already."""
        table = self._state.table
        if not any(log is not None and dir_of(log) == log_dir
                   for log in (table.get(key), table.get(key, is_future=True))):
            self._preferred[key] = log_dir

    def get_or_create(self, key: TopicPartition, is_new: bool, is_future: bool,
                      topic_id: uuid.UUID | None, directory_id: uuid.UUID | None) -> UnifiedLog:
        """See LogManager.get_or_create_log."""
        state = self._state
        with state.changing():
            log = state.table.get(key, is_future)
            if log is None:
                offline = state.directories.offline
                if not is_new and offline:
                    raise KafkaStorageError(f"Can not create log for {key} because log directories "
                                            f"{','.join(offline)} are offline")
                self._refuse_not_loaded(key)
                log = self._create(key, is_future, topic_id,
                                   self._candidates(key, is_future, directory_id))
        if topic_id is not None:
            known = log.topic_id
            if known is None:
                # A crash came before its `partition.metadata`. A broker takes a log without a topic
                # id for stray (Kafka: Partition.createLogIfNotExists assigns it).
                log.assign_topic_id(topic_id)
            elif known != topic_id:
                raise InconsistentTopicIdError(
                    f"Tried to assign topic ID {format_uuid(topic_id)} to log for topic partition "
                    f"{key},but log already contained topic ID {format_uuid(known)}")
        return log

    def _refuse_not_loaded(self, key: TopicPartition) -> None:
        """Raises KafkaStorageError if a start with `on_load_error` left the partition's log out, or
        the copy of a move: opened as a new log it would lack its recovery, and begin below its
        start, and a second copy would stop every later start."""
        for directory in self._state.directories.all():
            if key in directory.not_loaded:
                raise KafkaStorageError(f"Can not create log for {key} because its log in "
                                        f"{directory.path} did not load")

    # ---- where

    def _candidates(self, key: TopicPartition, is_future: bool,
                    directory_id: uuid.UUID | None) -> list[str]:
        """Directories for the log, the best first."""
        wanted = self._preferred.get(key)
        if wanted is None and directory_id is not None and directory_id not in _NO_DIRECTORY:
            wanted = self._state.directories.path_of(directory_id)
        if is_future:
            current = self._state.table.get(key)
            if wanted is None:
                raise IllegalStateError(f"Can not create the future log for {key} without having a "
                                        "preferred log directory")
            if current is not None and dir_of(current) == wanted:
                raise IllegalStateError(f"Can not create the future log for {key} in the current "
                                        "log directory of this partition")
        return self.next_log_dirs() if wanted is None else [wanted]

    def next_log_dirs(self) -> list[str]:
        """Directories for a log without preference: those with the fewest logs first, without
        cordoned ones unless all are."""
        paths = self._state.directories.paths
        free = [path for path in paths if path not in self.cordoned]
        if len(paths) == 1 or not free:
            return paths[:1]
        counts = self._state.table.counts()
        return sorted(free, key=lambda path: counts[path])

    # ---- making one

    def _create(self, key: TopicPartition, is_future: bool, topic_id: uuid.UUID | None,
                log_dirs: list[str]) -> UnifiedLog:
        check_topic(key.topic)
        state = self._state
        name = future_dir_name(key, uuid.uuid4().hex) if is_future else str(key)
        if len(name) > DIR_NAME_LENGTH_MAX:  # the file system would refuse it: no fault of its
            raise InvalidTopicError("The topic name is too long.")
        path = next((path for log_dir in log_dirs
                     if (path := self._make_directory(log_dir, key, name)) is not None), None)
        if path is None:
            raise KafkaStorageError(f"No log directories available. Tried {', '.join(log_dirs)}")
        config = state.configs.of(key.topic)
        inputs = LoadInputs(key, True, 0, 0, config, clock=state.now_ms,
                            is_remote=state.context.is_remote(config, key.topic),
                            producer_id_expiration_ms=state.producer_id_expiration_ms)
        log_dir = os.path.dirname(path)
        with state.failures.guard(log_dir, f"Error while creating log for {name} in dir {log_dir}"):
            log = load_unified_log(path, inputs, context=state.context, topic_id=topic_id)
        state.table.add(log, DirectoryKind.FUTURE if is_future else DirectoryKind.LIVE)
        state.configs.serve(log)
        state.cleaning.created(log)
        _log.info("Created log for partition %s in %s with properties %s", key, path,
                  _overridden(config))
        self._preferred.pop(key, None)
        return log

    def _make_directory(self, log_dir: str, key: TopicPartition, name: str) -> str | None:
        """Creates the partition's directory, durably; None if the data directory does not work."""
        directories = self._state.directories
        directory = directories.get(directories.configured(log_dir))
        if directory is None:
            _log.warning("Can not create log %s because log directory %s is offline", name, log_dir)
            return None
        path = os.path.join(log_dir, name)
        try:
            if directory.has_line_without_log(key):
                write_recovery_points(directory, self._state.table)
            make_directories(path)
            sync_path(log_dir)
        except OSError as error:
            message = f"Error while creating log for {name} in dir {log_dir}"
            self._state.failures.maybe_add_offline_log_dir(log_dir, message, error)
            return None
        return path


def _overridden(config: LogConfig) -> str:
    """The topic's own settings in Kafka's text form."""
    properties = config.to_properties()
    shown = []
    for name in sorted(config.overridden_configs):
        value = properties.get(name)
        if isinstance(value, tuple):
            value = ",".join(value)
        elif isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, str):
            value = f'"{value}"'
        shown.append(f"{name}={value}")
    return f"{{{', '.join(shown)}}}"
