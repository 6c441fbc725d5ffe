"""Loads plug-ins named by settings: `remote.log.*.manager.class.name` and `.class.path`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, TypeVar

from seglog import forks
from seglog.errors import ConfigError, RemoteStorageError, SeglogError
from seglog.remote_log.metadata_manager import BrokerReadyCallback, RemoteLogMetadataManager
from seglog.tiered.remote_records import (
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata,
    TopicIdPartition,
)

__all__ = ["ClassLoaderAwareRemoteLogMetadataManager", "load_plugin"]

_T = TypeVar("_T")


def load_plugin(setting: str, class_name: str, class_path: str | None) -> Any:
    """An instance of the class `package.module.Class`, created without arguments.

    With `class_path` (directories, separated by the platform's path separator) its top-level module
    is searched only there. Other imports of the plug-in search the directories last. Raises
    ConfigError, which names the setting.
    """
    module_name, _, name = class_name.rpartition(".")
    if not module_name:
        raise ConfigError(f"Invalid value {class_name} for configuration {setting}: expected "
                          "package.module.Class")
    try:
        with forks.imports:
            module = _module(module_name, _directories(class_path))
        return getattr(module, name)()
    except Exception as error:
        raise ConfigError(f"Invalid value {class_name} for configuration {setting}: "
                          f"{type(error).__name__}: {error}") from error


def _directories(class_path: str | None) -> list[str]:
    separator = ";" if sys.platform == "win32" else ":"
    return [one for one in (class_path or "").split(separator) if one.strip()]


def _module(name: str, directories: list[str]) -> Any:
    if not directories:
        return importlib.import_module(name)
    for one in directories:
        if one not in sys.path:
            sys.path.append(one)
    first, _, rest = name.partition(".")
    spec = PathFinder.find_spec(first, directories)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {first} in {', '.join(directories)}")
    loaded = sys.modules.get(first)
    if loaded is None or getattr(loaded.__spec__, "origin", None) != spec.origin:
        if loaded is not None:
            raise ImportError(f"a module {first} of {getattr(loaded, '__file__', None)} is loaded "
                              "already")
        module = sys.modules[first] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[first]
            raise
    return importlib.import_module(name) if rest else sys.modules[first]


class ClassLoaderAwareRemoteLogMetadataManager:
    """A RemoteLogMetadataManager around a plug-in (Kafka:
    ClassLoaderAwareRemoteLogMetadataManager).

    Exceptions of the plug-in become RemoteStorageError unless they are seglog's own. Kafka 4.3.1
    does not forward the ready callback here, so a plug-in never gets it; this class forwards it to
    a plug-in that has `on_broker_ready`.
    """

    def __init__(self, delegate: RemoteLogMetadataManager) -> None:
        self.delegate = delegate

    def _call(self, method: Callable[..., _T], *arguments: object) -> _T:
        try:
            return method(*arguments)
        except SeglogError:
            raise
        except Exception as error:
            raise RemoteStorageError(
                f"{type(self.delegate).__name__}: {type(error).__name__}: {error}") from error

    def on_broker_ready(self) -> None:
        """See BrokerReadyCallback."""
        if isinstance(self.delegate, BrokerReadyCallback):
            self._call(self.delegate.on_broker_ready)

    def configure(self, properties: Mapping[str, object]) -> None:
        """See RemoteLogMetadataManager."""
        self._call(self.delegate.configure, properties)

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.add_remote_log_segment_metadata, metadata)

    def update_remote_log_segment_metadata(
            self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.update_remote_log_segment_metadata, update)

    def put_remote_partition_delete_metadata(
            self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.put_remote_partition_delete_metadata, metadata)

    def remote_log_segment_metadata(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.remote_log_segment_metadata, partition, leader_epoch,
                          offset)

    def next_segment_with_txn_index(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.next_segment_with_txn_index, partition, leader_epoch,
                          offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> int | None:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.highest_offset_for_epoch, partition, leader_epoch)

    def list_all_remote_log_segments(self, partition: TopicIdPartition
                                     ) -> list[RemoteLogSegmentMetadata]:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.list_all_remote_log_segments, partition)

    def list_remote_log_segments(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> list[RemoteLogSegmentMetadata]:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.list_remote_log_segments, partition, leader_epoch)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.remote_log_size, partition, leader_epoch)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """See RemoteLogMetadataManager."""
        return self._call(self.delegate.is_ready, partition)

    def on_partition_leadership_changes(self, leaders: Collection[TopicIdPartition],
                                        followers: Collection[TopicIdPartition]) -> None:
        """See RemoteLogMetadataManager."""
        self._call(self.delegate.on_partition_leadership_changes, leaders, followers)

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """See RemoteLogMetadataManager."""
        self._call(self.delegate.on_stop_partitions, partitions)

    def close(self) -> None:
        """See RemoteLogMetadataManager."""
        self._call(self.delegate.close)
