"""Names of files and directories: the only place that knows suffixes and patterns.

Kafka's classes: `LogFileUtils`, `LocalLog` (directory names), `SnapshotFile`, `Snapshots`.
Nothing here touches the file system, apart from the real path in one error text.
"""

from __future__ import annotations

import enum
import functools
import os
import re
from dataclasses import dataclass
from typing import Final

from seglog.errors import InvalidTopicError, InvalidTopicPartitionError
from seglog.model import TopicPartition
from seglog.java.numbers import parse_int32, parse_int64

__all__ = [
    "CLEAN_SHUTDOWN_FILE", "CLEANER_OFFSET_CHECKPOINT", "CLUSTER_METADATA_TOPIC",
    "DIR_NAME_LENGTH_MAX", "DirectoryKind", "DirectoryName", "FileKind", "FileName", "FileState",
    "HIGH_WATERMARK_CHECKPOINT", "JOB_FILE_PREFIX",
    "LEADER_EPOCH_CHECKPOINT", "LOCK_FILE", "LOG_START_OFFSET_CHECKPOINT", "META_PROPERTIES",
    "PARTITION_METADATA", "QUORUM_STATE", "RECOVERY_POINT_CHECKPOINT", "REMOTE_LOG_INDEX_CACHE",
    "TOPIC_NAME_LENGTH_MAX", "UNFINISHED_COMMIT", "check_topic",
    "delete_dir_name", "directory_name_or_none", "file_name", "future_dir_name",
    "index_name", "leads_to_directory", "log_name", "offset_from_file_name", "parse_directory_name",
    "parse_file_name", "segment_file_names", "snapshot_name", "stray_dir_name", "temporary_name",
    "time_index_name", "txn_index_name",
]

META_PROPERTIES: Final = "meta.properties"
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
QUORUM_STATE: Final = "quorum-state"
REMOTE_LOG_INDEX_CACHE: Final = "remote-log-index-cache"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
#: How the names of fragments begin at the top of a data directory. A broker ignores such files.
JOB_FILE_PREFIX: Final = ".seglog-"
#: A directory at the top of a data directory. A broker refuses to start with it, because its name
#: is not a partition's: a commit has begun and must be finished first.
UNFINISHED_COMMIT: Final = "seglog_unfinished_commit"

DIR_NAME_LENGTH_MAX: Final = 255
TOPIC_NAME_LENGTH_MAX: Final = 249
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_TEXT_FILES = frozenset((
    META_PROPERTIES, LOCK_FILE, CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT,
    PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT, QUORUM_STATE))


class FileKind(enum.Enum):
    """The kind of a file in a partition directory; the value is its suffix."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    CHECKPOINT = ".checkpoint"  # a Raft snapshot, only in __cluster_metadata-0
    TEXT = ""                   # a metadata or checkpoint file with a name of its own
    OTHER = "?"                 # not written by Kafka, which ignores such files


class FileState(enum.Enum):
    """Whether a file is in place or about to be replaced or deleted; the value is the suffix after
    the kind's."""

    LIVE = ""
    CLEANED = ".cleaned"
    SWAP = ".swap"
    DELETED = ".deleted"
    PART = ".part"
    TMP = ".tmp"


@dataclass(frozen=True, slots=True)
class FileName:
    """A parsed file name.

    `offset` is the number before the first dot: the base offset of a segment, or the first offset
    that a snapshot does not cover. It is None if Kafka would fail to parse the number (`foo.log`),
    which is fatal to its loader for every kind but TEXT and OTHER. `canonical` is false if the
    number has another spelling: Kafka counts `5.log` as a segment and then opens
    `00000000000000000005.log`.
    """

    kind: FileKind
    state: FileState
    offset: int | None
    canonical: bool


class DirectoryKind(enum.Enum):
    """The state of a partition directory; the value is its suffix."""

    LIVE = ""
    DELETED = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


@dataclass(frozen=True, slots=True)
class DirectoryName:
    """A parsed partition directory name; `unique_id` is the part between dot and suffix."""

    topic_partition: TopicPartition
    kind: DirectoryKind
    unique_id: str | None


def file_name(offset: int, kind: FileKind, state: FileState = FileState.LIVE) -> str:
    """The canonical name, such as `00000000000000000042.log`.

    Kafka never writes a negative number, and opens `-00000000000000000005.log` for a name that says
    -5. Raises ValueError if `offset` is not an int64.
    """
    return f"{_stem(offset)}{kind.value}{state.value}"


def segment_file_names(offset: int, state: FileState = FileState.LIVE) -> list[str]:
    """The canonical names of a segment's log, offset, time and transaction index, in the order in
    which Kafka renames and deletes them. Raises ValueError as `file_name`."""
    stem, end = _stem(offset), state.value
    return [f"{stem}{kind.value}{end}" for kind in (
        FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)]


def _stem(offset: int) -> str:
    if not -1 << 63 <= offset < 1 << 63:
        raise ValueError(f"offset {offset} is outside -2^63 .. 2^63 - 1")
    return f"-{-offset:020d}" if offset < 0 else f"{offset:020d}"


#: The names of the files of a segment, by its base offset.
log_name = functools.partial(file_name, kind=FileKind.LOG)
index_name = functools.partial(file_name, kind=FileKind.INDEX)
time_index_name = functools.partial(file_name, kind=FileKind.TIME_INDEX)
txn_index_name = functools.partial(file_name, kind=FileKind.TXN_INDEX)
#: The name of the snapshot of the producer state below an offset.
snapshot_name = functools.partial(file_name, kind=FileKind.SNAPSHOT)


def temporary_name(path: str | os.PathLike[str]) -> str:
    """The temporary file of a text file that will be renamed onto `path`."""
    return os.fspath(path) + FileState.TMP.value


def offset_from_file_name(name: str) -> int:
    """The number before the first dot (Kafka: offsetFromFileName). Raises ValueError if there is
    none."""
    number, dot, _ = name.partition(".")
    if not dot:
        raise ValueError(f"{name!r} has no dot after an offset")
    return parse_int64(number)


_STATES = (FileState.CLEANED, FileState.SWAP, FileState.DELETED, FileState.TMP, FileState.PART)
_KINDS = (FileKind.LOG, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.INDEX,
          FileKind.SNAPSHOT, FileKind.CHECKPOINT)


@functools.lru_cache(maxsize=1024)  # all partitions have files of the same few names
def parse_file_name(name: str) -> FileName:
    """Classifies a file of a partition directory by its name, as Kafka does."""
    state, stem = FileState.LIVE, name
    for candidate in _STATES:
        if name.endswith(candidate.value):
            state, stem = candidate, name[:-len(candidate.value)]
            break
    if stem in _TEXT_FILES:
        return FileName(FileKind.TEXT, state, None, state in (FileState.LIVE, FileState.TMP))
    kind = next((kind for kind in _KINDS if stem.endswith(kind.value)), FileKind.OTHER)
    if kind is FileKind.OTHER and state not in (FileState.CLEANED, FileState.SWAP,
                                                FileState.DELETED):
        return FileName(kind, FileState.LIVE, None, False)
    number = stem.partition(".")[0]
    if kind is FileKind.CHECKPOINT:
        number = number.partition("-")[0]
    try:
        offset: int | None = parse_int64(number)
    except ValueError:
        offset = None
    canonical = (offset is not None and offset >= 0 and kind is not FileKind.OTHER
                 and stem.startswith(f"{offset:020d}")
                 and (kind is FileKind.CHECKPOINT or stem == file_name(offset, kind)))
    return FileName(kind, state, offset, canonical)


# Java's \S knows only ASCII blanks, as Python's does with re.ASCII.
_DIRECTORY_PATTERNS = {
    kind: re.compile(rf"(\S+)-(\S+)\.(\S+){kind.value}", re.ASCII)
    for kind in (DirectoryKind.DELETED, DirectoryKind.FUTURE, DirectoryKind.STRAY)}
_DIRECTORY_SUFFIXES = tuple(kind.value for kind in _DIRECTORY_PATTERNS)


def _not_a_partition(path: str, name: str) -> InvalidTopicPartitionError:
    return InvalidTopicPartitionError(
        f"Found directory {os.path.realpath(path)}, '{name}' is not in the form of "
        "topic-partition or topic-partition.uniqueId-delete (if marked for deletion).\n"
        "Kafka's log directories (and children) should only contain Kafka topic data.")


def check_topic(topic: str) -> None:
    """Raises InvalidTopicError unless Kafka would create a topic of that name (Kafka:
    Topic.validate).

    Existing directories with other names are still loaded.
    """
    if not topic:
        reason = "the empty string is not allowed"
    elif topic in (".", ".."):
        reason = f"'{topic}' is not allowed"
    elif len(topic) > TOPIC_NAME_LENGTH_MAX:
        reason = (f"the length of '{topic}' is longer than the max allowed length "
                  f"{TOPIC_NAME_LENGTH_MAX}")
    elif not _TOPIC.fullmatch(topic):
        reason = (f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', "
                  "'_' and '-'")
    else:
        return
    raise InvalidTopicError(f"Topic name is invalid: {reason}")


def parse_directory_name(path: str | os.PathLike[str]) -> DirectoryName:
    """The partition that a directory belongs to, by the last part of `path`.

    Raises InvalidTopicPartitionError with Kafka's text. Kafka's loader refuses to start on such a
    directory (it skips only `remote-log-index-cache` before this check).
    """
    path = os.fspath(path)
    name = os.path.basename(path.rstrip("/")) if path != "/" else ""
    if "-" not in name:
        raise _not_a_partition(path, name)
    kind, stem, unique_id = DirectoryKind.LIVE, name, None
    if name.endswith(_DIRECTORY_SUFFIXES):
        kind = next(kind for kind in _DIRECTORY_PATTERNS if name.endswith(kind.value))
        if not _DIRECTORY_PATTERNS[kind].fullmatch(name):
            raise _not_a_partition(path, name)
        stem, _, rest = name.rpartition(".")
        unique_id = rest[:-len(kind.value)]
    topic, _, partition = stem.rpartition("-")
    if not topic or not partition:
        raise _not_a_partition(path, name)
    try:
        return DirectoryName(TopicPartition(topic, parse_int32(partition)), kind, unique_id)
    except ValueError:
        raise _not_a_partition(path, name) from None


def leads_to_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory or a link to one, as Java's File.isDirectory: False for a
    link to itself, for which `DirEntry.is_dir` raises OSError."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def directory_name_or_none(path: str | os.PathLike[str]) -> DirectoryName | None:
    """As `parse_directory_name`; None for a name that is not a partition's."""
    try:
        return parse_directory_name(path)
    except InvalidTopicPartitionError:
        return None


def _capped(topic_partition: TopicPartition, unique_id: str, kind: DirectoryKind) -> str:
    tail = f"-{topic_partition.partition}.{unique_id}{kind.value}"
    return topic_partition.topic[:DIR_NAME_LENGTH_MAX - len(tail)] + tail


def delete_dir_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """The name of a directory that is being deleted; the topic is truncated to fit 255 bytes."""
    return _capped(topic_partition, unique_id, DirectoryKind.DELETED)


def stray_dir_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """The name of a directory that no broker's metadata claims; truncated as for deletion."""
    return _capped(topic_partition, unique_id, DirectoryKind.STRAY)


def future_dir_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """The name of the copy that a move between data directories builds; Kafka does not truncate
    it."""
    return f"{topic_partition}.{unique_id}{DirectoryKind.FUTURE.value}"
