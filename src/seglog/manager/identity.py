"""The owner of the data directories, from meta.properties (Kafka: MetaPropertiesEnsemble)."""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seglog.arguments import given_path
from seglog.errors import (
    IllegalArgumentError, InconsistentLogDirError, KafkaStorageError, MalformedCheckpointError,
    SeglogError,
)
from seglog.storage.meta import MetaProperties, format_uuid, read_meta_properties
from seglog.storage.paths import META_PROPERTIES

__all__ = ["Identities", "read_identities", "require_identity"]

_log = logging.getLogger(__name__)

# Ids below this one do not identify a directory (Kafka: DirectoryId.reserved).
_RESERVED_IDS = 100


@dataclass(frozen=True, slots=True)
class Identities:
    """meta.properties of every directory that has one, and the directories that cannot be read."""

    properties: Mapping[str, MetaProperties]
    unreadable: Mapping[str, SeglogError]

    @property
    def directory_ids(self) -> dict[str, uuid.UUID]:
        """The ids by directory; those without an id are omitted."""
        return {path: one.directory_id for path, one in self.properties.items()
                if one.directory_id is not None}


def read_identities(log_dirs: Sequence[str], cluster_id: str | None = None,
                    node_id: int | None = None) -> Identities:
    """Reads and compares meta.properties of all directories; changes nothing.

    A directory without the file, or a missing directory, is new. One whose file cannot be read, is
    damaged, or has an unknown version is unreadable and must not be used. Raises
    InconsistentLogDirError if directories contradict each other or the caller's values.
    """
    found: dict[str, MetaProperties] = {}
    unreadable: dict[str, SeglogError] = {}
    for path in log_dirs:
        name = os.path.join(path, META_PROPERTIES)
        try:
            given_path(path, "log_dirs")
            properties = read_meta_properties(name)
        except (KafkaStorageError, MalformedCheckpointError, IllegalArgumentError) as error:
            # A path that is a file has no such file, and is refused later.
            if getattr(error, "errno", None) != errno.ENOTDIR:
                _log.error("Error while reading meta.properties file %s", name, exc_info=error)
                unreadable[path] = error
            continue
        if properties is not None:
            found[path] = properties
    _compare(found, cluster_id, node_id)
    return Identities(found, unreadable)


def require_identity(path: str) -> None:
    """Raises MalformedCheckpointError or KafkaStorageError, with advice, if `meta.properties` of a
    data directory cannot be used: no tool may change such a directory."""
    for error in read_identities([path]).unreadable.values():
        if not isinstance(error, MalformedCheckpointError):
            raise error
        raise MalformedCheckpointError(
            f"{error}; a broker does not start with it, and nothing was changed: put this "
            "directory's own meta.properties back", file=error.file, position=error.position,
            expected=error.expected, found=error.found, code=error.code)


def _compare(found: Mapping[str, MetaProperties], cluster_id: str | None,
             node_id: int | None) -> None:
    holders: dict[uuid.UUID, str] = {}
    for path, one in found.items():
        name = os.path.join(path, META_PROPERTIES)
        if one.cluster_id is not None:
            cluster_id = cluster_id or one.cluster_id
            if one.cluster_id != cluster_id:
                raise InconsistentLogDirError(
                    f"Invalid cluster.id in: {name}. Expected {cluster_id}, but read "
                    f"{one.cluster_id}", file=name, expected=cluster_id, found=one.cluster_id)
        if one.node_id is not None:
            node_id = one.node_id if node_id is None else node_id
            if one.node_id != node_id:
                raise InconsistentLogDirError(
                    f"Stored node id {one.node_id} doesn't match previous node id {node_id} in "
                    f"{name}. If you moved your data, make sure your configured node id matches. "
                    "If you intend to create a new node, you should remove all data in your data "
                    "directories.", file=name, expected=node_id, found=one.node_id)
        if one.directory_id is not None:
            _claim(path, one.directory_id, holders)


def _claim(path: str, directory_id: uuid.UUID, holders: dict[uuid.UUID, str]) -> None:
    text = format_uuid(directory_id)
    if directory_id.int < _RESERVED_IDS:
        raise InconsistentLogDirError(f"Invalid reserved directory ID {text} found in {path}",
                                      file=os.path.join(path, META_PROPERTIES), found=text)
    if directory_id in holders:
        raise InconsistentLogDirError(
            f"Duplicate directory ID Optional[{text}] found. It was the ID of "
            f"{holders[directory_id]}, but also of {path}",
            file=os.path.join(path, META_PROPERTIES), found=text)
    holders[directory_id] = path
