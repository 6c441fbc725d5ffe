"""Finds the older segments of a log in a remote tier (KIP-405)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from seglog.model import TopicPartition
from seglog.storage.log_store import Files

__all__ = ["open_tier"]

#: Belongs to a higher room, and is imported only if a reader names a tier.
_ROOM = "seglog.tiered.bucket"


def open_tier(remote: object, directory: str, local: Files, topic_partition: TopicPartition | None,
              storage_options: Mapping[str, str] | None) -> Files:
    """The files of a partition directory together with those of its tier. Raises KafkaStorageError,
    and IllegalArgumentError for a directory that names no partition."""
    return cast(Files, import_module(_ROOM).tiered_files(
        remote, directory, local, topic_partition, storage_options))
