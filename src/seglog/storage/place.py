"""Identifies a path: a data directory, a partition directory, a directory above them, or another.

All writers check a data directory here first; readers do so when they find no partition. A data
directory has `meta.properties`, one of Kafka's checkpoint files, or a partition directory with a
segment.

Nothing here writes. Errors of the system are KafkaStorageError with the full path.
"""

from __future__ import annotations

import difflib
import enum
import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from seglog.arguments import given_path
from seglog.errors import DuplicateLogDirError, KafkaStorageError
from seglog.storage.log_store import LOCAL
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, JOB_FILE_PREFIX,
    LOCK_FILE, LOG_START_OFFSET_CHECKPOINT, META_PROPERTIES, RECOVERY_POINT_CHECKPOINT,
    REMOTE_LOG_INDEX_CACHE, UNFINISHED_COMMIT, FileKind, FileState, directory_name_or_none,
    parse_file_name, temporary_name,
)

__all__ = ["NOT_A_DATA_DIRECTORY", "Place", "PlaceKind", "identify",
           "refuse_duplicates", "require_data_directory", "require_room_for_logs"]

#: `code` of the KafkaStorageError for a path that is not a data directory.
NOT_A_DATA_DIRECTORY: Final = "not_a_data_directory"

_MARKS: Final = (META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT,
                 HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
# Names that do not make a directory foreign: what a crash leaves in a new data directory, what a
# fresh file system has, and what keeps an empty directory in a repository.
_ALLOWED_WHEN_EMPTY: Final = frozenset((
    LOCK_FILE, CLEAN_SHUTDOWN_FILE, REMOTE_LOG_INDEX_CACHE, UNFINISHED_COMMIT, "lost+found",
    ".gitignore", ".gitkeep", ".keep", ".DS_Store", *map(temporary_name, _MARKS)))
# The suffix of a file that a recovery was about to put in place (seglog.recovery.disk).
_REPLACEMENT: Final = ".new" + FileState.DELETED.value
_INSTALLATION: Final = (os.path.join("bin", "kafka-server-start.sh"), "libs")
_SEARCH_DEPTH, _SEARCH_DIRECTORIES = 2, 200
_FOREIGN_SHOWN = 2


class PlaceKind(enum.Enum):
    """The kind of a path for a Kafka broker."""

    DATA_DIRECTORY = "data directory"
    PARTITION_DIRECTORY = "partition directory"  # it holds a log's files itself
    EMPTY = "empty directory"                    # also with files that a broker's start may leave
    MISSING = "missing"
    FILE = "file"
    INSTALLATION = "Kafka installation"
    OTHER = "other directory"


_NUMBERS: Final = {PlaceKind.MISSING: errno.ENOENT, PlaceKind.FILE: errno.ENOTDIR}


@dataclass(frozen=True, slots=True)
class Place:
    """A path and its kind."""

    path: str
    kind: PlaceKind
    #: A few names below `path` that no broker creates; only for OTHER.
    foreign: tuple[str, ...] = ()

    def data_directories(self) -> list[str]:
        """Data directories around `path`: up to two levels below it, else the one that holds it.
        For a missing path, the one whose name differs by a letter or two.

        Stops after a few hundred directories, so it is quick on any file system.
        """
        below = list(_below(self.path)) if self.kind is not PlaceKind.FILE else []
        if self.kind is PlaceKind.MISSING:
            return list(_misspelt(self.path)) or list(_above(self.path))
        return below or list(_above(self.path))

    def describe(self) -> str:
        """Why this is not a data directory, and what was probably meant, to complete a sentence
        that begins with the path."""
        text = self._what()
        found = self.data_directories()
        if not found:
            return text
        shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        return f"{text}; did you mean {shown}?"

    def _what(self) -> str:
        if self.kind is PlaceKind.MISSING:
            return "no such directory"
        if self.kind is PlaceKind.FILE:
            return "this is a file, not a data directory"
        if self.kind is PlaceKind.PARTITION_DIRECTORY:
            return "this is a partition directory, not a data directory"
        if self.kind is PlaceKind.INSTALLATION:
            return ("this is a Kafka installation, not a data directory; log.dirs in its "
                    "config/server.properties names the data directories")
        if self.kind is PlaceKind.EMPTY:
            return "this is no data directory: there are no logs in it"
        return ("this is no data directory: it has no meta.properties, no checkpoint file and no "
                f"partition with a segment, but {self.others()}")

    def others(self) -> str:
        """The names that do not belong in a data directory, in words."""
        shown = ", ".join(repr(name) for name in self.foreign[:_FOREIGN_SHOWN])
        return shown + (" and more" if len(self.foreign) > _FOREIGN_SHOWN else "")


def identify(path: str | os.PathLike[str]) -> Place:
    """Identifies `path`. Raises KafkaStorageError if the system does not say, IllegalArgumentError
    for a null byte.

    Reads no more of a data directory than is needed to recognize it.
    """
    name = os.path.abspath(given_path(path))
    try:
        if any(_is_there(os.path.join(name, mark)) for mark in _MARKS):
            return Place(name, PlaceKind.DATA_DIRECTORY)
        return _identify(name)
    except FileNotFoundError:
        return Place(name, PlaceKind.MISSING)
    except NotADirectoryError:
        return Place(name, PlaceKind.FILE if os.path.exists(name) else PlaceKind.MISSING)
    except OSError as error:
        raise KafkaStorageError(error.errno, error.strerror, error.filename or name) from None


def _is_there(path: str) -> bool:
    """Whether there is a file of this name. Raises OSError if the system does not say."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _identify(path: str) -> Place:
    foreign: list[str] = []
    listing = LOCAL.entries(path)
    if any(_is_segment(name) for name, is_directory in listing if not is_directory):
        return Place(path, PlaceKind.PARTITION_DIRECTORY)
    if directory_name_or_none(path) is not None and _is_young_log(listing):
        return Place(path, PlaceKind.PARTITION_DIRECTORY)
    for name, is_directory in listing:
        if name in _ALLOWED_WHEN_EMPTY or name.startswith(JOB_FILE_PREFIX):
            continue
        if not is_directory or directory_name_or_none(name) is None:
            foreign.append(name)
            continue
        inside = _list_or_nothing(os.path.join(path, name))
        if any(_is_segment(file) for file, is_directory in inside if not is_directory):
            return Place(path, PlaceKind.DATA_DIRECTORY)
        foreign.extend(os.path.join(name, file) for file, is_directory in inside
                       if is_directory or not _is_kafka_file(file))
    if all(os.path.exists(os.path.join(path, name)) for name in _INSTALLATION):
        return Place(path, PlaceKind.INSTALLATION)
    if foreign:
        return Place(path, PlaceKind.OTHER, tuple(sorted(foreign)[:_FOREIGN_SHOWN + 1]))
    return Place(path, PlaceKind.EMPTY)


def _list_or_nothing(path: str) -> list[tuple[str, bool]]:
    try:
        return LOCAL.entries(path)
    except OSError:
        return []


def _is_segment(name: str) -> bool:
    found = parse_file_name(name)
    return found.kind is FileKind.LOG and found.canonical


def _is_young_log(listing: Sequence[tuple[str, bool]]) -> bool:
    """Whether these are the files of a log that is being created: it gets `partition.metadata` and
    `leader-epoch-checkpoint` before its first segment."""
    return any(name not in _ALLOWED_WHEN_EMPTY for name, _ in listing) and all(
        not is_directory and (name in _ALLOWED_WHEN_EMPTY or _is_kafka_file(name))
        for name, is_directory in listing)


def _is_kafka_file(name: str) -> bool:
    return parse_file_name(name.removesuffix(_REPLACEMENT)).canonical


# ---- what a caller asks for

def require_data_directory(path: str | os.PathLike[str]) -> None:
    """Raises KafkaStorageError for anything but a data directory, with what it is and what was
    probably meant."""
    place = identify(path)
    if place.kind is not PlaceKind.DATA_DIRECTORY:
        raise _refusal(place, place.describe())


def require_room_for_logs(path: str | os.PathLike[str]) -> str:
    """The absolute path of a directory in which logs may be created: a data directory, an empty
    one, or one that does not exist yet. Raises KafkaStorageError for a directory that holds other
    things, or if the first existing directory above it is a partition's."""
    place = identify(path)
    if place.kind is PlaceKind.DATA_DIRECTORY:
        return place.path
    if place.kind is PlaceKind.OTHER:
        raise _refusal(place, f"not a place for logs: it holds {place.others()}, and a data "
                       "directory holds nothing but logs; use a new or empty directory, such as "
                       f"{os.path.join(place.path, 'data')}")
    if place.kind not in (PlaceKind.EMPTY, PlaceKind.MISSING):
        raise _refusal(place, place.describe())
    for parent in _parents(place.path):
        if os.path.isdir(parent):
            if any(_is_segment(name) for name, is_directory in _list_or_nothing(parent)
                   if not is_directory):
                raise _refusal(Place(place.path, PlaceKind.OTHER), "not a place for logs: it is "
                               f"inside of the partition directory {parent}")
            break
    return place.path


def refuse_duplicates(paths: Sequence[str]) -> None:
    """Raises DuplicateLogDirError if two paths are the same directory, also through links."""
    real = [os.path.realpath(path) for path in paths if "\0" not in path]
    if len(set(real)) < len(real):
        raise DuplicateLogDirError(f"Duplicate log directory found: {', '.join(paths)}")


def _refusal(place: Place, text: str) -> KafkaStorageError:
    return KafkaStorageError(_NUMBERS.get(place.kind, errno.EINVAL), text, place.path,
                             code=NOT_A_DATA_DIRECTORY)


# ---- what was probably meant

def _parents(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _above(path: str) -> Iterable[str]:
    """The data directory that holds the partition directory or the file `path`."""
    for parent, _ in zip(_parents(path), range(2), strict=False):
        if _is_data_directory(parent):
            return (parent,)
    return ()


def _misspelt(path: str) -> Iterator[str]:
    """Data directories or partition directories whose names nearly match a missing path."""
    parts = [part for part in path.split(os.sep) if part]
    there = os.sep
    for depth, part in enumerate(parts):
        if os.path.isdir(os.path.join(there, part)):
            there = os.path.join(there, part)
            continue
        names = [name for name, is_directory in _list_or_nothing(there) if is_directory]
        for near in difflib.get_close_matches(part, names, 3, 0.7):
            found = os.path.join(there, near, *parts[depth + 1:])
            if _kind(found) in (PlaceKind.DATA_DIRECTORY, PlaceKind.PARTITION_DIRECTORY):
                yield found
        return


def _below(path: str) -> Iterator[str]:
    """Data directories below `path`, the nearest first."""
    waiting, seen = deque([(path, 0)]), 0
    while waiting:
        directory, depth = waiting.popleft()
        for name, is_directory in sorted(_list_or_nothing(directory)):
            if not is_directory or name.startswith("."):
                continue
            if (seen := seen + 1) > _SEARCH_DIRECTORIES:
                return
            child = os.path.join(directory, name)
            if _is_data_directory(child):
                yield child
            elif depth + 1 < _SEARCH_DEPTH:
                waiting.append((child, depth + 1))


def _is_data_directory(path: str) -> bool:
    return _kind(path) is PlaceKind.DATA_DIRECTORY


def _kind(path: str) -> PlaceKind | None:
    try:
        return identify(path).kind
    except KafkaStorageError:
        return None
