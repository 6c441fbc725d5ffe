"""The top level of a data directory: its owner, its checkpoints, its partition directories."""

from __future__ import annotations

import os
from dataclasses import dataclass

from seglog.errors import (
    CorruptDataError, InvalidTopicPartitionError, KafkaStorageError, MalformedCheckpointError,
    storage_errors,
)
from seglog.model import TopicPartition
from seglog.recovery.findings import Report, finding
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.lock_holder import LockHolder, find_holder
from seglog.storage.meta import MetaProperties, read_meta_properties
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT, JOB_FILE_PREFIX, LOCK_FILE, LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES, RECOVERY_POINT_CHECKPOINT, REMOTE_LOG_INDEX_CACHE, UNFINISHED_COMMIT,
    DirectoryKind, directory_name_or_none, leads_to_directory, parse_directory_name,
)
from seglog.storage.place import require_data_directory

__all__ = ["PartitionDirectory", "RootDirectory", "read_root"]


# An IOException also takes the directory offline; an unchecked exception only resets the offsets.
_UNCHECKED_CODES = ("checkpoint_number", "checkpoint_capacity")
# Kafka: KafkaRaftServer.initializeLogDirs, and Formatter, which creates the file.
_MISSING_META = (
    "meta.properties is missing, and a broker does not start without it (\"No `meta.properties` "
    "found ... have you run `kafka-storage.sh` to format the directory?\"): copy this directory's "
    "own back, or run `kafka-storage.sh format --cluster-id ID --config server.properties "
    "--ignore-formatted` with the id of its cluster, which leaves the logs alone")
# What a broker does with a malformed checkpoint; then for invalid numbers alone. The last two are
# read by makeReplica and by the log cleaner (CheckpointFileWithFailureHandler.read).
_OFFLINE_LATER = "; the data directory goes offline after loading"
_RESETS = {
    RECOVERY_POINT_CHECKPOINT: ("resets the recovery points to 0" + _OFFLINE_LATER,
                                "resets the recovery points to 0"),
    LOG_START_OFFSET_CHECKPOINT: (
        "resets the log start offsets to the first segments" + _OFFLINE_LATER,
        "resets the log start offsets to the first segments"),
    HIGH_WATERMARK_CHECKPOINT: ("takes the directory offline when it makes a replica",) * 2,
    CLEANER_OFFSET_CHECKPOINT: (
        "takes the directory offline when its log cleaner first reads the file",
        "its log cleaner ends when it reads the file, and compacts nothing until a restart"),
}
_FOUND_KINDS = {
    DirectoryKind.DELETED: "directory-deleted", DirectoryKind.FUTURE: "directory-future",
    DirectoryKind.STRAY: "directory-stray",
}


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A subdirectory whose name Kafka can read."""

    name: str
    topic_partition: TopicPartition
    kind: DirectoryKind

    @property
    def is_metadata(self) -> bool:
        """Whether it is the log of the metadata quorum."""
        return self.topic_partition.topic == CLUSTER_METADATA_TOPIC


@dataclass(frozen=True, slots=True)
class RootDirectory:
    """The content of the top level. A malformed checkpoint counts as empty, as in Kafka."""

    path: str
    clean_shutdown: bool
    recovery_points: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    meta_properties: MetaProperties | None
    partitions: tuple[PartitionDirectory, ...]
    #: The process that has it open for writing; None if there is none.
    holder: LockHolder | None = None


def read_root(path: str, report: Report, *, is_locked: bool = False) -> RootDirectory:
    """Reads the top level of the data directory `path`. `is_locked` if the caller has its lock.

    Raises KafkaStorageError if it cannot be listed, or is not a data directory.
    """
    require_data_directory(path)
    names, files = _list(path)
    partitions = _partitions(path, names, report)
    for name in sorted(files):
        if name.startswith(JOB_FILE_PREFIX):  # and ends in a number, as the name of a partition
            continue
        parsed = directory_name_or_none(name)
        if parsed is not None and parsed.kind is DirectoryKind.LIVE:
            report(finding("directory-is-file", directory=name))
    clean = CLEAN_SHUTDOWN_FILE in files
    holder = None if is_locked else find_holder(path)
    if holder is not None:
        report(finding("directory-in-use", file=LOCK_FILE, message=f"in use by {holder}; "
                       "what looks torn may be in the midst of being written, and what a start "
                       "would recover is what a crash would leave now"))
    elif not clean and partitions:
        report(finding("unclean-shutdown", file=CLEAN_SHUTDOWN_FILE))
    _checkpoint(path, CLEANER_OFFSET_CHECKPOINT, report)  # no load needs its offsets
    return RootDirectory(
        path, clean, _checkpoint(path, RECOVERY_POINT_CHECKPOINT, report),
        _checkpoint(path, LOG_START_OFFSET_CHECKPOINT, report),
        _checkpoint(path, HIGH_WATERMARK_CHECKPOINT, report), _meta(path, report), partitions,
        holder)


def _list(path: str) -> tuple[list[str], set[str]]:
    """Names of the subdirectories, sorted, and of everything else."""
    directories, files = [], set()
    with storage_errors(path), os.scandir(path) as entries:
        for entry in entries:
            if leads_to_directory(entry):
                directories.append(entry.name)
            else:
                files.add(entry.name)
    return sorted(directories), files


def _partitions(path: str, names: list[str], report: Report) -> tuple[PartitionDirectory, ...]:
    found = []
    holders: dict[tuple[TopicPartition, DirectoryKind], str] = {}
    for name in names:
        if name == REMOTE_LOG_INDEX_CACHE:
            continue
        if name == UNFINISHED_COMMIT:
            report(finding("commit-unfinished", directory=name, message="a crash interrupted the "
                           "commit of a job: the next write to this data directory, or `seglog "
                           "load --recover`, finishes it; without this directory records would be "
                           "lost"))
            continue
        try:
            parsed = parse_directory_name(os.path.join(path, name))
        except InvalidTopicPartitionError as error:
            report(finding("directory-name", directory=name, message=str(error),
                           kafka_error="KafkaException"))
            continue
        partition = PartitionDirectory(name, parsed.topic_partition, parsed.kind)
        found.append(partition)
        code = "directory-metadata" if partition.is_metadata else _FOUND_KINDS.get(parsed.kind)
        if code is not None:
            report(finding(code, directory=name))
        key = (parsed.topic_partition, parsed.kind)
        if key in holders and parsed.kind in (DirectoryKind.LIVE, DirectoryKind.FUTURE):
            report(finding("duplicate-partition", directory=name, expected=holders[key],
                           found=name, kafka_error="IllegalStateException"))
        holders.setdefault(key, name)
    return tuple(found)


def _checkpoint(path: str, name: str, report: Report) -> dict[TopicPartition, int]:
    try:
        return read_offset_checkpoint(os.path.join(path, name))
    except MalformedCheckpointError as error:
        action = _RESETS[name][error.code in _UNCHECKED_CODES]
        report(finding("checkpoint-malformed", file=name, message=str(error), action=action,
                       position=error.position, expected=error.expected, found=error.found))
    except KafkaStorageError as error:
        _unreadable(path, name, error, report)
    return {}


def _unreadable(path: str, name: str, error: KafkaStorageError, report: Report) -> None:
    if os.path.islink(os.path.join(path, name)):
        # CheckpointFile.read and PropertiesUtils follow it; Utils.atomicMoveWithFallback replaces.
        report(finding("file-kind", file=name, message="a symbolic link, which is not followed "
                       "here: put the file itself in its place",
                       action="reads the file behind it, and replaces the link by a file when it "
                       "writes"))
    else:
        report(finding("file-unreadable", file=name, message=str(error)))


def _meta(path: str, report: Report) -> MetaProperties | None:
    try:
        properties = read_meta_properties(os.path.join(path, META_PROPERTIES))
    except CorruptDataError as error:
        report(finding("meta-properties-malformed", file=META_PROPERTIES, message=str(error),
                       position=error.position, expected=error.expected, found=error.found,
                       kafka_error="RuntimeException"))
        return None
    except KafkaStorageError as error:
        _unreadable(path, META_PROPERTIES, error, report)
        return None
    if properties is None:
        report(finding("meta-properties-missing", file=META_PROPERTIES, message=_MISSING_META))
    elif properties.node_id is None or properties.cluster_id is None:
        # KafkaRaftServer.initializeLogDirs. To MetaProperties an empty file is one of version 0.
        what = "node" if properties.node_id is None else "cluster"
        report(finding("meta-properties-malformed", file=META_PROPERTIES,
                       message=f"Error: {what} ID not found in {path}",
                       kafka_error="RuntimeException"))
    return properties
