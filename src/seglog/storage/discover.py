"""Which partitions a path holds, by directory names alone: what readers start from.

The loader (`seglog.recovery`) judges a data directory as Kafka would and reports what is wrong
with it. A reader only wants the partitions that are there, and passes over everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from seglog.errors import InvalidTopicPartitionError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.storage.paths import DirectoryKind, FileKind, parse_directory_name, parse_file_name

__all__ = ["find_partitions", "is_partition_directory"]

Path = str | os.PathLike[str]


def find_partitions(paths: Path | Iterable[Path]) -> dict[TopicPartition, str]:
    """The live partitions below one or more paths, each the path of its directory.

    A path is a data directory or one partition's own directory. Directories for deletion, strays,
    future copies and names that are no partition are passed over.
    Raises KafkaStorageError when a path cannot be listed or two directories hold one partition.
    """
    found: dict[TopicPartition, str] = {}
    for path in ([paths] if isinstance(paths, str | os.PathLike) else paths):
        for tp, directory in _below(os.fspath(path)):
            if found.setdefault(tp, directory) != directory:
                raise KafkaStorageError(f"Duplicate log directories for {tp} are found in both "
                                        f"{found[tp]} and {directory}")
    return found


def is_partition_directory(path: Path) -> bool:
    """Whether a directory holds segment files itself. False for what cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return any(_is_segment(entry.name) and not entry.is_dir() for entry in entries)
    except OSError:
        return False


def _below(path: str) -> list[tuple[TopicPartition, str]]:
    try:
        with os.scandir(path) as entries:
            listing = [(entry.name, entry.is_dir()) for entry in entries]
    except OSError as error:
        raise KafkaStorageError(error.errno, error.strerror, path) from error
    if any(_is_segment(name) for name, is_directory in listing if not is_directory):
        return [(parse_directory_name(os.path.abspath(path)).topic_partition, path)]
    found = []
    for name, is_directory in listing:
        if is_directory:
            try:
                parsed = parse_directory_name(os.path.join(path, name))
            except InvalidTopicPartitionError:
                continue
            if parsed.kind is DirectoryKind.LIVE:
                found.append((parsed.topic_partition, os.path.join(path, name)))
    return found


def _is_segment(name: str) -> bool:
    return parse_file_name(name).kind is FileKind.LOG
