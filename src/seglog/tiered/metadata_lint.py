"""A linter of __remote_log_metadata: each record against the rules of Kafka's classes (KIP-405)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from seglog.errors import MetadataParseError
from seglog.storage.partition_log import PartitionLog
from seglog.tiered.api_frames import read_frame
from seglog.tiered.bucket import Bucket
from seglog.tiered.metadata_finding import METADATA_CODES, MetadataFinding
from seglog.tiered.metadata_objects import find_absent_objects
from seglog.tiered.metadata_lineage import LiveSegment, lineage_findings
from seglog.tiered.metadata_serde import deserialize, serialize, unknown_tags
from seglog.tiered.metadata_topic import (
    METADATA_PARTITIONS_DEFAULT, REMOTE_LOG_METADATA_TOPIC, SkippedMetadata, metadata_partitions,
    read_metadata_rows,
)
from seglog.tiered.partitioner import RemoteLogMetadataTopicPartitioner
from seglog.tiered.remote_records import (
    RemoteLogMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition, id_text,
)
from seglog.tiered.segment_states import RemoteLogSegmentState, RemotePartitionDeleteState

__all__ = ["MetadataLint", "check_topic_config", "lint_metadata"]

_STARTED, _FINISHED, _DELETE_STARTED, _DELETE_FINISHED = RemoteLogSegmentState
_PARTITION_DELETED: Final = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
_GRACE_MS: Final = 3_600_000
_KINDS: Final = 4


@dataclass(frozen=True, slots=True)
class MetadataLint:
    """What was read and found. `partition_count` is the number of metadata partitions that records
    were compared with, None where nothing tells it."""

    metadata_partitions: tuple[int, ...]
    partition_count: int | None
    records: int
    user_partitions: int
    segments: int
    findings: tuple[MetadataFinding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there is no error and no warning."""
        return all(one.severity == "info" for one in self.findings)


def lint_metadata(*data_dirs: str | os.PathLike[str], partition_count: int | None = None,
                  bucket: Bucket | None = None, now_ms: int | None = None,
                  grace_ms: int = _GRACE_MS) -> MetadataLint:
    """Checks the partitions of __remote_log_metadata in the log directories of one broker.

    `partition_count` is the topic's number of partitions. Without it, two numbers are tried: that
    of the partitions here, if they are numbered from 0 on, and Kafka's default. With a `bucket`,
    copied segments are compared with their objects. A copy or a deletion that is younger than
    `grace_ms` may be under way. Nothing is written.

    Raises as `read_metadata_topic`.
    """
    lint = _Lint()
    found = metadata_partitions(data_dirs)
    for topic_partition, path in found:
        with PartitionLog.open(path, topic_partition=topic_partition) as log:
            lint.read(topic_partition.partition, log)
    numbers = [one.partition for one, _ in found]
    count = partition_count or lint.likely_partition_count(numbers)
    if count is not None:
        lint.check_partitions(count)
    lint.check_segments(time.time_ns() // 1_000_000 if now_ms is None else now_ms, grace_ms)
    if bucket is not None:
        lint.findings += find_absent_objects(bucket, lint.copied())
    return MetadataLint(tuple(numbers), count, lint.records, len(lint.homes),
                        sum(map(len, lint.live.values())), tuple(lint.findings))


def check_topic_config(config: Mapping[str, str], *, is_complete: bool = False
                       ) -> list[MetadataFinding]:
    """Settings of the topic by which records are lost. `is_complete`: what `config` does not name
    has the broker's default. (Kafka: TopicBasedRemoteLogMetadataManager.createMetadataTopic sets
    cleanup.policy=delete and retention.ms=-1.)"""
    found = []
    for name, right, default in (("cleanup.policy", "delete", "delete"),
                                 ("retention.ms", "-1", "604800000"),
                                 ("retention.bytes", "-1", "-1"),
                                 ("remote.storage.enable", "false", "false")):
        value = config.get(name, default if is_complete else right)
        if value.strip() != right:
            given = value if name in config else f"not set, by default {value}"
            found.append(MetadataFinding(
                "topic_config", "error",
                f"{REMOTE_LOG_METADATA_TOPIC}: {name} is {given}; only {right} keeps the metadata "
                "of every segment"))
    return found


class _Lint:
    """The state of every segment after the records so far."""

    def __init__(self) -> None:
        self.findings: list[MetadataFinding] = []
        self.records = 0
        self.live: dict[TopicIdPartition, dict[bytes, LiveSegment]] = {}
        self.deleted: dict[TopicIdPartition, set[bytes]] = {}
        # (event, metadata partition, offset) of the last deletion of every user partition
        self.deletions: dict[TopicIdPartition, tuple[RemotePartitionDeleteMetadata, int, int]] = {}
        # (metadata partition, first offset there) of every user partition
        self.homes: dict[TopicIdPartition, dict[int, int]] = {}

    def add(self, code: str, message: str, partition: int | None = None, offset: int | None = None,
            *, about: RemoteLogMetadata | None = None, position: int | None = None) -> None:
        """Adds a finding about a record."""
        key = None if about is None else getattr(about, "topic_id_partition", None)
        segment = getattr(about, "remote_log_segment_id", None)
        self.findings.append(MetadataFinding(
            code, METADATA_CODES[code][0], message, partition, offset, position,
            None if key is None else str(key), None if segment is None else id_text(segment.id)))

    # ---- records

    def read(self, number: int, log: PartitionLog) -> None:
        """All records of one metadata partition."""
        following = 0
        for row in read_metadata_rows(log, ("offset", "key", "value")):
            offset = row.offset if isinstance(row, SkippedMetadata) else row[0]
            if offset > following:
                self.add("records_missing", f"offsets {following} to {offset - 1} are absent: "
                         "retention or compaction removed them", number, following)
            if isinstance(row, SkippedMetadata):
                self.add("damaged_batch", str(row), number, offset,
                         position=getattr(row.error, "position", None))
                following = log.log_end_offset if row.next_offset is None else row.next_offset
                continue
            following = offset + 1
            self.records += 1
            self._record(number, *row)
        if following < log.log_end_offset:
            self.add("records_missing", f"offsets {following} to {log.log_end_offset - 1} are "
                     "absent: retention or compaction removed them", number, following)

    def _record(self, number: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        event = None if value is None else self._decoded(number, offset, value)
        if key is not None:
            self.add("keyed_record", f"a key of {len(key)} bytes, which Kafka 4.3.1 never writes "
                     "and ignores", number, offset, about=event)
        if value is None:
            self.add("null_value", "no value: a tombstone (KIP-1266); Kafka 4.3.1 fails with a "
                     "NullPointerException", number, offset)
        elif event is not None:
            self._check_bytes(number, offset, value, event)
            self._event(number, offset, event)

    def _decoded(self, number: int, offset: int, value: bytes) -> RemoteLogMetadata | None:
        try:
            return deserialize(value)
        except MetadataParseError as error:
            code, extra = "undecodable", ""
            try:
                key, version, _ = read_frame(value)
                code = "undecodable" if 0 <= key < _KINDS else "unknown_type"
                extra = f" (api key {key}, version {version})"
            except MetadataParseError:
                pass  # no frame
            self.add(code, f"{error}{extra}; Kafka: {error.kafka_name}", number, offset,
                     position=error.position)
            return None

    def _check_bytes(self, number: int, offset: int, value: bytes, event: RemoteLogMetadata
                     ) -> None:
        usual = serialize(event)
        if value == usual:
            return
        _, version, _ = read_frame(value)
        if version != 0:
            self.add("unknown_version", f"message version {version}, Kafka 4.3.1 writes 0", number,
                     offset, about=event)
        tags = unknown_tags(value)
        for tag, position in tags:
            self.add("unknown_tag", f"tagged field {tag} at byte {position} is skipped", number,
                     offset, about=event, position=position)
        if version == 0 and not tags:
            first = next((at for at, (one, other) in enumerate(zip(value, usual, strict=False))
                          if one != other), min(len(value), len(usual)))
            self.add("not_canonical", f"from byte {first} on the value is not what Kafka writes",
                     number, offset, about=event, position=first)

    # ---- states

    def _event(self, number: int, offset: int, event: RemoteLogMetadata) -> None:
        if isinstance(event, RemoteLogSegmentMetadata):
            self._announcement(number, offset, event)
        elif isinstance(event, RemoteLogSegmentMetadataUpdate):
            self._update(number, offset, event)
        elif isinstance(event, RemotePartitionDeleteMetadata):
            self._deletion(number, offset, event)
        else:
            self.add("refused_event", "a snapshot of a segment, which Kafka's "
                     "RemotePartitionMetadataStore does not support", number, offset)
            return
        self.homes.setdefault(event.topic_id_partition, {}).setdefault(number, offset)

    def _announcement(self, number: int, offset: int, event: RemoteLogSegmentMetadata) -> None:
        key, segment_id = event.topic_id_partition, event.remote_log_segment_id.id
        if event.state is not _STARTED:
            self.add("refused_event", f"a segment is announced in state {event.state.name}, Kafka "
                     f"takes {_STARTED.name} only", number, offset, about=event)
            return
        before = self._state(key, segment_id)
        if not RemoteLogSegmentState.is_valid_transition(before, _STARTED):
            self._forbidden(number, offset, event, before, _STARTED)
            return
        outside = [(epoch, start) for epoch, start in event.segment_leader_epochs
                   if not event.start_offset <= start <= event.end_offset]
        if outside:
            self.add("epochs_outside", f"leader epoch {outside[0][0]} begins at offset "
                     f"{outside[0][1]}, the segment has {event.start_offset} to "
                     f"{event.end_offset}", number, offset, about=event)
        self.live.setdefault(key, {})[segment_id] = LiveSegment(event, number, offset)

    def _update(self, number: int, offset: int, event: RemoteLogSegmentMetadataUpdate) -> None:
        key, segment_id = event.topic_id_partition, event.remote_log_segment_id.id
        before = self._state(key, segment_id)
        if before is None:
            self.add("unknown_segment", f"an update to {event.state.name} of a segment that was "
                     "never announced", number, offset, about=event)
        elif not RemoteLogSegmentState.is_valid_transition(before, event.state):
            self._forbidden(number, offset, event, before, event.state)
        elif event.state is _STARTED:
            self.add("refused_event", f"an update to {_STARTED.name}, which Kafka's "
                     "RemoteLogMetadataCache refuses", number, offset, about=event)
        elif before is not _DELETE_FINISHED:
            live = self.live[key]
            if event.state is _DELETE_FINISHED:
                del live[segment_id]
                self.deleted.setdefault(key, set()).add(segment_id)
            else:
                live[segment_id] = LiveSegment(
                    live[segment_id].metadata.create_with_updates(event), number, offset)

    def _state(self, key: TopicIdPartition, segment_id: bytes) -> RemoteLogSegmentState | None:
        known = self.live.get(key, {}).get(segment_id)
        if known is not None:
            return known.metadata.state
        return _DELETE_FINISHED if segment_id in self.deleted.get(key, ()) else None

    def _deletion(self, number: int, offset: int, event: RemotePartitionDeleteMetadata) -> None:
        key = event.topic_id_partition
        known = self.deletions.get(key)
        before = None if known is None else known[0].state
        if not RemotePartitionDeleteState.is_valid_transition(before, event.state):
            self._forbidden(number, offset, event, before, event.state)
            return
        self.deletions[key] = event, number, offset
        left = len(self.live.get(key, ()))
        if event.state is _PARTITION_DELETED and left:
            self.add("segments_left", f"{key} was deleted, and {left} of its segments were not",
                     number, offset, about=event)
            self.live.pop(key)

    def _forbidden(self, number: int, offset: int, event: RemoteLogMetadata,
                   before: RemoteLogSegmentState | RemotePartitionDeleteState | None,
                   after: RemoteLogSegmentState | RemotePartitionDeleteState) -> None:
        self.add("invalid_transition", f"{after.name} may not follow "
                 f"{'no state' if before is None else before.name}", number, offset, about=event)

    # ---- at the end

    def likely_partition_count(self, numbers: list[int]) -> int | None:
        """How many partitions the topic has, if more than half of the user partitions fit."""
        candidates = [METADATA_PARTITIONS_DEFAULT]
        if numbers == list(range(len(numbers))):
            candidates.insert(0, len(numbers))
        fitting = {count: sum(_home(key, count) in homes for key, homes in self.homes.items())
                   for count in candidates if count > max(numbers)}
        best = max(fitting, key=lambda count: fitting[count], default=None)
        return best if best is not None and 2 * fitting[best] > len(self.homes) else None

    def check_partitions(self, count: int) -> None:
        """Finds records on another metadata partition than that of their user partition."""
        for key, homes in self.homes.items():
            home = _home(key, count)
            for number, offset in homes.items():
                if number != home:
                    self.findings.append(MetadataFinding(
                        "wrong_partition", "error", f"records of {key} belong to metadata "
                        f"partition {home} of {count}", number, offset, topic_partition=str(key)))

    def check_segments(self, now_ms: int, grace_ms: int) -> None:
        """What is unfinished, and how the copied segments of a partition fit together."""
        for live in self.live.values():
            for one in live.values():
                if one.metadata.state is not _FINISHED:
                    self._unfinished(one, now_ms, grace_ms)
        for key, (event, number, offset) in self.deletions.items():
            if event.state is not _PARTITION_DELETED:
                age = now_ms - event.event_timestamp_ms
                self.findings.append(MetadataFinding(
                    "unfinished_delete", "warning" if age >= grace_ms else "info",
                    f"{key} is in state {event.state.name} for {age} ms", number, offset,
                    topic_partition=str(key), age_ms=age))
        for copied in self.copied().values():
            self.findings += lineage_findings(copied)

    def copied(self) -> dict[TopicIdPartition, list[LiveSegment]]:
        """The copied segments of every partition."""
        return {key: [one for one in live.values() if one.metadata.state is _FINISHED]
                for key, live in self.live.items()}

    def _unfinished(self, one: LiveSegment, now_ms: int, grace_ms: int) -> None:
        metadata = one.metadata
        age = now_ms - metadata.event_timestamp_ms
        self.findings.append(one.finding(
            "unfinished_copy" if metadata.state is _STARTED else "unfinished_delete",
            f"offsets {metadata.start_offset} to {metadata.end_offset} are in state "
            f"{metadata.state.name} for {age} ms", "warning" if age >= grace_ms else "info", age))


def _home(key: TopicIdPartition, count: int) -> int:
    return RemoteLogMetadataTopicPartitioner(count).metadata_partition(key)
