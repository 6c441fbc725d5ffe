"""Finds the partitions below a path by directory names alone, for readers.

The loader (`seglog.recovery`) checks a data directory as Kafka does and reports problems. A reader
only needs the partitions that exist, and ignores everything else.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seglog.arguments import given_path
from seglog.errors import KafkaStorageError, storage_errors
from seglog.model import TopicPartition
from seglog.storage.log_store import LOCAL, Files, absolute, files_of, place_of
from seglog.storage.paths import (
    DirectoryKind, FileKind, directory_name_or_none, leads_to_directory, parse_file_name,
)
from seglog.storage.place import require_data_directory

__all__ = ["FoundDirectory", "find_directories", "find_live_names", "find_partitions",
           "find_replicas", "is_gone", "is_partition_directory", "split_partition"]

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, order=True)
class FoundDirectory:
    """A directory below the data directory `data_dir` whose name Kafka accepts."""

    topic_partition: TopicPartition
    data_dir: str
    name: str
    kind: DirectoryKind

    @property
    def path(self) -> str:
        """The path of the directory itself."""
        return os.path.join(self.data_dir, self.name)


def find_directories(path: Path, where: Files | None = None) -> list[FoundDirectory]:
    """The partition directories of every kind below `path`, unordered.

    `path` is a data directory or one partition's directory, or the URL of one. `where` is the place
    of its files, by default what the environment's options say. Names that are not partitions are
    ignored. Raises KafkaStorageError for a path that cannot be listed or is neither, and says what
    the path is and what was probably meant.
    """
    text = place_of(path)
    where = where or files_of(text)
    with storage_errors(text):
        try:
            listing = where.entries(text)
        except (FileNotFoundError, NotADirectoryError):
            require_data_directory(text)  # says what is there instead
            raise
    if any(_is_segment(name) for name, is_directory in listing if not is_directory):
        return [_itself(text)]
    if where is LOCAL:
        require_data_directory(text)
    found = []
    for name, is_directory in listing:
        if is_directory and (parsed := directory_name_or_none(name)) is not None:
            found.append(FoundDirectory(parsed.topic_partition, text, name, parsed.kind))
    if where is not LOCAL and not found:
        raise KafkaStorageError(
            errno.EINVAL, "this is no data directory: it has no partition with a segment, but "
            f"{', '.join(repr(name) for name, _ in sorted(listing)[:2])}", text)
    return found


def find_live_names(path: str, where: Files = LOCAL) -> list[str]:
    """The names of the partition directories below `path` that a broker would load, sorted. Empty
    for a path in a store that is not a data directory."""
    try:
        found = find_directories(path, where)
    except KafkaStorageError:
        if where is LOCAL:
            raise
        return []
    return sorted(one.name for one in found if one.kind is DirectoryKind.LIVE)


def _itself(path: str) -> FoundDirectory:
    """The partition directory `path`."""
    full = absolute(path)
    name = os.path.basename(full)
    parsed = directory_name_or_none(full)
    if parsed is None:
        raise KafkaStorageError(
            errno.EINVAL, f"this directory holds segments, but {name!r} says neither topic nor "
            f"partition; rename it to TOPIC-PARTITION, such as {name}-0, or open it with "
            "seglog.PartitionLog.open", full)
    return FoundDirectory(parsed.topic_partition, os.path.dirname(full), name, parsed.kind)


def find_partitions(path: Path, storage_options: Mapping[str, str] | None = None
                    ) -> dict[TopicPartition, str]:
    """The live partitions below a path, each the path of its directory.

    `path` is a data directory or one partition's own directory. Raises what `find_directories`
    raises.
    """
    return {tp: found[0].path for tp, found in find_replicas([path], storage_options).items()}


def find_replicas(paths: Iterable[Path], storage_options: Mapping[str, str] | None = None
                  ) -> dict[TopicPartition, list[FoundDirectory]]:
    """The directories of every partition below `paths`, in the order of the paths.

    A path is a data directory or one partition's directory. The latter may also be marked for
    deletion, stray or a future copy; below a data directory those are ignored. A directory that
    several paths lead to counts once. Raises what `find_directories` raises.
    """
    found: dict[TopicPartition, list[FoundDirectory]] = {}
    seen: set[str] = set()
    for path in paths:
        text = place_of(path)
        where = files_of(text, storage_options)
        here = find_directories(text, where)
        is_itself = len(here) == 1 and here[0].path == absolute(text)
        for one in here:
            real = os.path.realpath(one.path) if where is LOCAL else one.path
            if (is_itself or one.kind is DirectoryKind.LIVE) and real not in seen:
                seen.add(real)
                found.setdefault(one.topic_partition, []).append(one)
    return found


def is_gone(path: str) -> bool:
    """Whether a partition directory that was listed is there no more: a running broker deleted its
    topic. False for objects."""
    return files_of(path) is LOCAL and not os.path.lexists(path)


def is_partition_directory(path: Path) -> bool:
    """Whether a directory itself holds segment files. False if it cannot be listed."""
    name = given_path(path)
    try:
        with os.scandir(name) as entries:
            return any(_is_segment(entry.name) and not leads_to_directory(entry)
                       for entry in entries)
    except OSError:
        return False


def split_partition(path: str) -> tuple[str, str | None]:
    """(data directory, None) for a data directory, (data directory, name) for the directory of one
    of its partitions. Paths are absolute."""
    path = os.path.abspath(path)
    if is_partition_directory(path):
        if directory_name_or_none(path) is None:
            return path, None  # its load reports what is wrong with it
        directory, name = os.path.split(path)
        return directory, name
    return path, None


def _is_segment(name: str) -> bool:
    return parse_file_name(name).kind is FileKind.LOG
