"""The partitions of __remote_log_metadata in a data directory, read without a broker (KIP-405)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seglog.arguments import given_path
from seglog.errors import (
    CorruptDataError, DuplicatePartitionError, IllegalArgumentError, IllegalStateError,
    MetadataParseError, UnknownTopicOrPartitionError, storage_errors,
)
from seglog.model import TopicPartition
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import DirectoryKind, directory_name_or_none
from seglog.tiered.metadata_serde import deserialize
from seglog.tiered.metadata_store import RemotePartitionMetadataStore
from seglog.tiered.remote_records import RemoteLogMetadata, RemoteLogSegmentMetadataSnapshot

__all__ = ["METADATA_PARTITIONS_DEFAULT", "REMOTE_LOG_METADATA_TOPIC", "MetadataTopic",
           "SkippedMetadata", "metadata_partitions", "read_metadata_events", "read_metadata_rows",
           "read_metadata_topic"]

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
#: How many partitions it has by default (Kafka: TopicBasedRemoteLogMetadataManagerConfig).
METADATA_PARTITIONS_DEFAULT = 50


@dataclass(frozen=True, slots=True)
class SkippedMetadata:
    """Records of the metadata topic that are not in the store, and the reason.

    They have the offsets `[offset, next_offset)` of the metadata partition, to its end if
    `next_offset` is None. `error` names the byte, in the value of a record or in a file.
    """

    partition: int
    offset: int
    next_offset: int | None
    error: CorruptDataError | IllegalArgumentError | IllegalStateError

    def __str__(self) -> str:
        if self.next_offset == self.offset + 1:
            where = f"offset {self.offset}"
        else:
            where = f"offsets {self.offset} to " + (
                "the end" if self.next_offset is None else str(self.next_offset - 1))
        return f"{REMOTE_LOG_METADATA_TOPIC}-{self.partition}, {where}: {self.error}"


@dataclass(frozen=True, slots=True)
class MetadataTopic:
    """The content of the metadata topic: the store after every event, the number of events, and the
    skipped records."""

    store: RemotePartitionMetadataStore
    events: int
    skipped: tuple[SkippedMetadata, ...]


def read_metadata_topic(*data_dirs: str | os.PathLike[str]) -> MetadataTopic:
    """Reads every event in the partitions of __remote_log_metadata in data directories (KIP-405,
    Kafka: ConsumerTask).

    `data_dirs` are the `log.dirs` of one broker. Nothing is written. Every partition of the store
    is initialized. A record is skipped and reported if it does not decode, has no value (KIP-1266),
    or is refused by the store; so is a damaged batch. In Kafka each of them ends the consumer. Keys
    are ignored. Damage in the last segment of a partition is its end, as for any PartitionLog.

    Raises KafkaStorageError for a directory that cannot be read, DuplicatePartitionError for a
    partition that exists twice, UnknownTopicOrPartitionError if there is none.
    """
    store, count = RemotePartitionMetadataStore(), 0
    skipped: list[SkippedMetadata] = []
    for topic_partition, path in metadata_partitions(data_dirs):
        with PartitionLog.open(path, topic_partition=topic_partition) as log:
            for offset, event in read_metadata_events(log):
                if isinstance(event, SkippedMetadata):
                    skipped.append(event)
                    continue
                try:
                    if not isinstance(event, RemoteLogSegmentMetadataSnapshot):
                        store.maybe_load_partition(event.topic_id_partition)
                    store.handle_remote_log_metadata(event)
                    count += 1
                except IllegalArgumentError as error:
                    skipped.append(SkippedMetadata(topic_partition.partition, offset, offset + 1,
                                                   error))
    for partition in store.partitions:
        store.mark_initialized(partition)
    return MetadataTopic(store, count, tuple(skipped))


def read_metadata_events(log: PartitionLog) -> Iterator[
        tuple[int, RemoteLogMetadata | SkippedMetadata]]:
    """The records of one partition of __remote_log_metadata in order, each with its offset.

    Raises KafkaStorageError.
    """
    number = -1 if log.topic_partition is None else log.topic_partition.partition
    for row in read_metadata_rows(log, ("offset", "value")):
        if isinstance(row, SkippedMetadata):
            yield row.offset, row
        else:
            yield row[0], _event(number, *row)


def read_metadata_rows(log: PartitionLog, columns: Sequence[str]
                       ) -> Iterator[tuple[Any, ...] | SkippedMetadata]:
    """These columns of the records of one partition, the offset first, and damage between them.

    Raises KafkaStorageError.
    """
    number = -1 if log.topic_partition is None else log.topic_partition.partition
    start: int | None = log.log_start_offset
    while start is not None:
        try:
            for batch in log.to_arrow(start, columns=columns):
                rows = batch.to_pylists()
                for row in zip(*(rows[name] for name in columns), strict=True):
                    yield row
                    start = row[0] + 1
            return
        except CorruptDataError as error:
            following = _after_damage(log, start)
            yield SkippedMetadata(number, start, following, error)
            start = following


def _event(partition: int, offset: int,
           value: bytes | None) -> RemoteLogMetadata | SkippedMetadata:
    try:
        return deserialize(value)
    except MetadataParseError as error:
        return SkippedMetadata(partition, offset, offset + 1, error)


def _after_damage(log: PartitionLog, start: int) -> int | None:
    """The first readable offset after the damage at `start`: that of the next batch, or of the next
    segment if no batch can be identified. Damage in the last segment is the end of the log."""
    if start >= log.log_end_offset:  # also if the offset before it is part of the damage
        return None
    headers = log.batches(start, check_crcs=False)
    try:
        next(headers, None)
        batch = next(headers, None)
        following = None if batch is None else batch.base_offset
    except CorruptDataError:
        bases = log.segments.base_offsets
        following = next(iter(bases[bases > start].tolist()), None)
    return None if following is None or following >= log.log_end_offset else following


def metadata_partitions(data_dirs: Sequence[str | os.PathLike[str]]
                        ) -> list[tuple[TopicPartition, str]]:
    """The partitions of __remote_log_metadata in data directories, each with its path.

    Raises as `read_metadata_topic`.
    """
    found: dict[TopicPartition, str] = {}
    for data_dir in data_dirs:
        with storage_errors(given_path(data_dir, "data_dir")):
            entries = sorted(os.listdir(data_dir))
        for entry in entries:
            path = os.path.join(data_dir, entry)
            name = directory_name_or_none(path)
            if name is None:
                continue
            key = name.topic_partition
            if (key.topic != REMOTE_LOG_METADATA_TOPIC or name.kind is not DirectoryKind.LIVE
                    or not os.path.isdir(path)):
                continue
            if key in found:
                raise DuplicatePartitionError(f"{found[key]} and {path} hold the same partition")
            found[key] = path
    if not found:
        raise UnknownTopicOrPartitionError(
            f"{', '.join(map(str, data_dirs))}: no partition of {REMOTE_LOG_METADATA_TOPIC}")
    return sorted(found.items())
