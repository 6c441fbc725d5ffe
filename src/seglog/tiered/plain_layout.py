"""How plug-ins name and store the objects of segments, and the layouts that store each file
unchanged: Kafka's LocalTieredStorage, Pinterest's, and any that a name pattern describes."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from seglog.errors import KafkaStorageError
from seglog.model import TopicPartition
from seglog.objects.store import Block, ObjectVersion
from seglog.storage.log_store import LogFile
from seglog.tiered.name_pattern import NamePattern
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, id_text
from seglog.tiered.remote_segment import (
    RemotePartition, RemoteSegment, StoredObject, announced_segment, check_index_size,
    index_bytes_max,
)
from seglog.tiered.remote_storage import IndexType, LogSegmentData
from seglog.tiered.remote_tree import RemoteTree

__all__ = ["LOCAL_TIERED_STORAGE", "LOCAL_TIERED_STORAGE_DIRECTORY", "PINTEREST",
           "LocalTieredLayout", "PlainLayout", "WritableLayout", "id_of"]

#: The directory that LocalTieredStorage creates in the configured one.
LOCAL_TIERED_STORAGE_DIRECTORY: Final = "kafka-tiered-storage"

_OFFSET_MAX: Final = (1 << 63) - 1
_PARTITION_MAX: Final = (1 << 31) - 1
LOG: Final = "log"
#: The field {kind} of each index.
_KINDS: Final = {
    IndexType.OFFSET: "index", IndexType.TIMESTAMP: "timeindex",
    IndexType.TRANSACTION: "txnindex", IndexType.PRODUCER_SNAPSHOT: "snapshot",
    IndexType.LEADER_EPOCH: "leader_epoch_checkpoint",
}


class PlainLayout:
    """Objects whose names follow a pattern, each with the bytes of one file; the base of all
    layouts. Picklable, for any thread.

    `name` is that by which a caller chooses it. `{kind}` is log, index, timeindex, txnindex,
    snapshot or leader_epoch_checkpoint; objects of other kinds are ignored. A segment counts if its
    log and the files of `required` kinds exist. Errors are KafkaStorageError (a request failed, or
    an object is invalid) with object, byte and `code`.
    """

    def __init__(self, name: str, pattern: str | NamePattern, required: tuple[str, ...] = ()
                 ) -> None:
        self.name, self.required = name, required
        self.pattern = pattern if isinstance(pattern, NamePattern) else NamePattern(pattern)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its arguments."""
        return type(self), (self.name, self.pattern, self.required)

    def __repr__(self) -> str:
        return f"PlainLayout({self.name!r}, {self.pattern.text!r})"

    def recognises(self, tree: RemoteTree) -> bool:
        """Whether there is an object with such a name: the first directory with a log decides."""
        for directory, fields in self.pattern.directories(tree):
            if any(found["kind"] == LOG for found, _, _ in self.pattern.files(
                    tree, directory, fields)):
                return True
        return False

    def partitions(self, tree: RemoteTree) -> list[RemotePartition]:
        """The partitions that have objects, in order."""
        return sorted((RemotePartition(fields["topic"], int(fields["partition"]),
                                       id_of(fields.get("topic_id")), directory)
                       for directory, fields in self.pattern.directories(tree)
                       if int(fields["partition"]) <= _PARTITION_MAX), key=repr)

    def partition_named(self, topic_partition: TopicPartition, topic_id: bytes
                        ) -> RemotePartition | None:
        """The place of a partition, whether or not it has objects; None if the names do not tell
        it, as those without ids: others than plug-ins may write 007. Requests nothing."""
        topic, partition = topic_partition.topic, topic_partition.partition
        directory = self.pattern.directory({"topic": topic, "partition": str(partition),
                                            "topic_id": id_text(topic_id)})
        return None if directory is None or "{topic_id}" not in self.pattern.text else \
            RemotePartition(topic, partition, topic_id, directory)

    def segments(self, tree: RemoteTree, partition: RemotePartition) -> list[RemoteSegment]:
        """The complete segments of a partition, by start offset. Lists names once, reads no
        content."""
        return [one for one in self.listed(tree, partition)
                if LOG in one.objects and one.objects[LOG].version.size
                and all(kind in one.objects for kind in self.required)]

    def listed(self, tree: RemoteTree, partition: RemotePartition) -> list[RemoteSegment]:
        """As `segments`, including incomplete ones."""
        # Two names may have the same numbers: 0.log and 00.log are logs of two segments.
        groups: dict[tuple[int, bytes, str, str, int], dict[str, StoredObject]] = {}
        counts: Counter[tuple[str, str, str]] = Counter()
        for found, key, version in self.pattern.files(tree, partition.directory, {}):
            text, name = found["start_offset"], found.get("segment_id", "")
            start, segment_id = int(text), id_of(name) or b""
            if start <= _OFFSET_MAX:
                one = counts[text, name, found["kind"]]
                counts[text, name, found["kind"]] += 1
                groups.setdefault((start, segment_id, text, name, one), {})[found["kind"]] = \
                    StoredObject(key, version)
        return [RemoteSegment(start, segment_id or None, objects,
                              size=objects[LOG].version.size if LOG in objects else None)
                for (start, segment_id, _, _, _), objects in sorted(groups.items())]

    def named(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata) -> RemoteSegment | None:
        """The segment by the names of its objects; None where names do not follow from metadata:
        a pattern need not have the ids.

        Without a listing: the number of objects does not matter, nor whether the store lists an
        object later than it has it. KafkaStorageError, with code file_missing where an object that
        the segment needs is absent.
        """
        return None

    def described(self, tree: RemoteTree, segment: RemoteSegment) -> RemoteSegment:
        """The segment with the facts from its objects: size, and if the layout has them the end
        offset, largest timestamp and leader epochs."""
        return replace(segment, size=segment.objects[LOG].version.size)

    def open_log(self, tree: RemoteTree, segment: RemoteSegment) -> LogFile:
        """The log of a segment, decoded if it is compressed or encrypted."""
        log = segment.objects[LOG]
        return tree.files.open_log(tree.path(log.key), log.version)

    def log_path(self, tree: RemoteTree, segment: RemoteSegment) -> str:
        """The name of the log in errors."""
        return tree.path(segment.objects[LOG].key)

    def has_index(self, segment: RemoteSegment, kind: IndexType) -> bool:
        """Whether such an index may exist."""
        return _KINDS[kind] in segment.objects

    def index(self, tree: RemoteTree, segment: RemoteSegment, kind: IndexType) -> Block | None:
        """The content of an index; None if there is none."""
        stored = segment.objects.get(_KINDS[kind])
        if stored is None:
            return None
        path, size = tree.path(stored.key), stored.version.size
        check_index_size(path, kind, size)
        if stored.version != ObjectVersion(0):
            try:  # one request, of whatever size
                return tree.read(stored.key, 0, size, stored.version) if size else b""
            except KafkaStorageError as other:
                if other.code not in ("object_changed", "file_missing"):
                    raise
        found = tree.beginning(stored.key, index_bytes_max(kind))
        if found is None:
            return None
        check_index_size(path, kind, found[1])
        return found[0]


class WritableLayout(PlainLayout, ABC):
    """A layout in which segments can be written."""

    @abstractmethod
    def write(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
              ) -> bytes | None:
        """Writes the objects of a segment; the last one makes it count. Returns custom metadata, if
        the layout has any."""

    @abstractmethod
    def named(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata) -> RemoteSegment:
        """See PlainLayout."""

    @abstractmethod
    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """Every key that `write` may have written, first the one that makes the segment count."""


class LocalTieredLayout(WritableLayout):
    """Kafka's LocalTieredStorage, which can also be written."""

    def __init__(self) -> None:
        super().__init__("local", "{topic}-{partition}-{topic_id}/{start_offset}-{segment_id}."
                         "{kind}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickles as the only instance."""
        return type(self), ()

    def write(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
              ) -> bytes | None:
        """See WritableLayout. Writes the log last, because a segment counts once its log exists.

        Kafka writes it first, and writes no file for empty leader epochs.
        """
        stem = self._stem(metadata)
        for kind, source in ((IndexType.OFFSET, data.offset_index),
                             (IndexType.TIMESTAMP, data.time_index),
                             (IndexType.TRANSACTION, data.transaction_index),
                             (IndexType.PRODUCER_SNAPSHOT, data.producer_snapshot_index)):
            if source is not None:
                tree.write(f"{stem}.{_KINDS[kind]}", Path(source))
        if data.leader_epoch_index:
            tree.write(f"{stem}.{_KINDS[IndexType.LEADER_EPOCH]}", data.leader_epoch_index)
        tree.write(f"{stem}.{LOG}", Path(data.log_segment))
        return None

    def replace_indexes(self, tree: RemoteTree, segment: RemoteSegment,
                        contents: Mapping[IndexType, bytes]) -> None:
        """Replaces these indexes, one object each. Raises KafkaStorageError."""
        stem = segment.objects[LOG].key.removesuffix(f".{LOG}")
        for kind, content in contents.items():
            tree.write(f"{stem}.{_KINDS[kind]}", content)

    def named(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata) -> RemoteSegment:
        """See PlainLayout: one request, for the log."""
        stem = self._stem(metadata)
        log = StoredObject(f"{stem}.{LOG}", tree.version(f"{stem}.{LOG}"))
        objects = {kind: StoredObject(f"{stem}.{kind}", ObjectVersion(0))
                   for kind in _KINDS.values()}  # `index` asks for content, and takes any size
        return announced_segment(metadata, {LOG: log, **objects}, log.version.size)

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """See WritableLayout."""
        stem = self._stem(metadata)
        return [f"{stem}.{kind}" for kind in (LOG, *_KINDS.values())]

    def _stem(self, metadata: RemoteLogSegmentMetadata) -> str:
        partition = metadata.topic_id_partition
        return (f"{partition.topic}-{partition.partition}-{id_text(partition.topic_id)}/"
                f"{metadata.start_offset:020d}-"
                f"{id_text(metadata.remote_log_segment_id.id)}")


def id_of(text: str | None) -> bytes | None:
    """The 16 bytes of an id in a name."""
    return None if text is None else base64.urlsafe_b64decode(text + "==")


#: Kafka's own (org.apache.kafka.server.log.remote.storage.LocalTieredStorage).
LOCAL_TIERED_STORAGE: Final = LocalTieredLayout()
#: Written by sidecars that upload closed segments; without ids, epochs, snapshots and aborted
#: transactions.
PINTEREST: Final = PlainLayout("pinterest", "{topic}-{partition}/{start_offset}.{kind}")

