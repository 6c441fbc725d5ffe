"""A segment of a remote tier as its objects show it."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from seglog.errors import KafkaStorageError
from seglog.objects.store import ObjectVersion
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX
from seglog.storage.producer_state import SNAPSHOT_BYTES_MAX
from seglog.tiered.remote_records import (
    RemoteLogSegmentMetadata, SegmentLeaderEpochs, id_text,
)
from seglog.tiered.remote_storage import IndexType

__all__ = ["RemotePartition", "RemoteSegment", "StoredObject", "announced_segment",
           "check_index_size", "index_bytes_max"]

#: Larger than any index that Kafka writes, because objects in a bucket may have any size.
_INDEX_BYTES_MAX: Final = 1 << 30
#: What an object is called, and its most bytes, where it is no index of offsets or times.
_OTHERS: Final = {IndexType.LEADER_EPOCH: ("a leader-epoch checkpoint", CHECKPOINT_BYTES_MAX),
                  IndexType.PRODUCER_SNAPSHOT: ("a producer snapshot", SNAPSHOT_BYTES_MAX)}


@dataclass(frozen=True, slots=True, order=True)
class RemotePartition:
    """A partition in a remote tier. `directory` is its key; the id is None if the layout has
    none."""

    topic: str
    partition: int
    topic_id: bytes | None
    directory: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object by its key in the tree."""

    key: str
    version: ObjectVersion


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """One upload of a segment. Offsets are inclusive; unknown values are None.

    `objects` are the listed objects, by the layout's name of their kind. `announced` is the record
    of the metadata topic. `is_end_scanned`: the end is known only from the batches.
    """

    start_offset: int
    segment_id: bytes | None
    objects: Mapping[str, StoredObject]
    end_offset: int | None = None
    max_timestamp_ms: int | None = None
    epochs: SegmentLeaderEpochs | None = None
    size: int | None = None
    announced: RemoteLogSegmentMetadata | None = None
    is_end_scanned: bool = False

    def __str__(self) -> str:
        keys = (one.key for kind, one in self.objects.items() if kind == "log")
        name = "" if self.segment_id is None else f"{id_text(self.segment_id)}, "
        return next(keys, f"segment {name}start offset {self.start_offset}")


def announced_segment(metadata: RemoteLogSegmentMetadata, objects: Mapping[str, StoredObject],
                      size: int | None) -> RemoteSegment:
    """The segment that the metadata topic announces, with its objects."""
    return RemoteSegment(
        metadata.start_offset, metadata.remote_log_segment_id.id, objects, metadata.end_offset,
        metadata.max_timestamp_ms, metadata.segment_leader_epochs, size, metadata)


def index_bytes_max(kind: IndexType) -> int:
    """The most bytes of such an index that are read."""
    return _OTHERS.get(kind, ("", _INDEX_BYTES_MAX))[1]


def check_index_size(path: str, kind: IndexType, size: int, position: int = 0) -> None:
    """Raises KafkaStorageError for an index that is too large to be read; it begins at `position`
    of the object."""
    name, most = _OTHERS.get(kind, ("an index", _INDEX_BYTES_MAX))
    if size > most:
        raise KafkaStorageError(errno.EFBIG, f"{name} of {size} bytes, at most {most} are read",
                                path, position=position, expected=most, found=size,
                                code="file_too_large")
