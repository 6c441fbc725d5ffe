"""RemoteStorageManager: copies segments into a tier, fetches from it and deletes (KIP-405)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from seglog.errors import (
    IllegalArgumentError, KafkaStorageError, RemoteResourceNotFoundError, RemoteStorageError,
)
from seglog.objects.store import Block
from seglog.tiered.remote_records import RemoteLogSegmentMetadata
from seglog.tiered.remote_segment import (
    IndexType, Layout, LogSegmentData, RemotePartition, RemoteSegment,
)
from seglog.tiered.remote_tree import RemoteTree

__all__ = ["LayoutStorageManager", "RemoteStorageManager", "WritableLayout"]

_FETCH_BYTES = 4 << 20


class RemoteStorageManager(Protocol):
    """Where remote segments lie (KIP-405, Kafka: RemoteStorageManager). For any thread.

    Raises RemoteStorageError, and its subclass RemoteResourceNotFoundError for what is not there.
    """

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
                              ) -> bytes | None:
        """Copies a segment; returns custom metadata, if there is any. A repetition replaces what an
        earlier call wrote."""

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> Iterator[bytes]:
        """The bytes of the log from one position to another, inclusive, or to its end."""

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """An index; a transaction index that is not there raises RemoteResourceNotFoundError."""

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Deletes a segment. No error for one that is not there."""


class WritableLayout(Layout, Protocol):
    """A layout that segments can be written in."""

    def directory(self, metadata: RemoteLogSegmentMetadata) -> str:
        """The key under which the objects of a partition lie."""

    def write(self, tree: RemoteTree, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
              ) -> bytes | None:
        """Writes the objects of a segment, the one that makes it count last. Returns custom
        metadata, if the layout has any."""

    def keys_of(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """Every key that `write` may have written, the one that makes the segment count first."""


class LayoutStorageManager:
    """A RemoteStorageManager over a directory or an object store, in a layout.

    A copy that fails deletes what it wrote, as far as the store answers. On a file system every
    object is durable when `copy_log_segment_data` returns.
    """

    def __init__(self, tree: RemoteTree, layout: WritableLayout) -> None:
        self.tree, self.layout = tree, layout

    def __repr__(self) -> str:
        return f"LayoutStorageManager({self.tree.root!r}, {self.layout.name})"

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
                              ) -> bytes | None:
        """See RemoteStorageManager."""
        try:
            return self.layout.write(self.tree, metadata, data)
        except OSError as error:
            try:
                self._delete(metadata)
            except KafkaStorageError:
                pass  # the first error says what is wrong
            raise RemoteStorageError(f"{metadata.remote_log_segment_id}: not copied: {error}"
                                     ) from error

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> Iterator[bytes]:
        """See RemoteStorageManager. Raises IllegalArgumentError for positions that are none."""
        if start_position < 0:
            raise IllegalArgumentError(f"Start position must be positive: [{start_position}]")
        if end_position is not None and end_position < start_position:
            raise IllegalArgumentError(
                f"End position cannot be less than startPosition: [{end_position}]")
        try:
            log = self.layout.open_log(self.tree, self._found(metadata))
        except KafkaStorageError as error:
            raise _failure(error) from error
        try:
            end = log.size if end_position is None else min(end_position + 1, log.size)
            for position in range(start_position, end, _FETCH_BYTES):
                yield log.read(min(_FETCH_BYTES, end - position), position)
        except KafkaStorageError as error:
            raise _failure(error) from error
        finally:
            log.close()

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """See RemoteStorageManager."""
        try:
            content: Block | None = self.layout.index(self.tree, self._found(metadata), index_type)
        except KafkaStorageError as error:
            raise _failure(error) from error
        if content is None:
            raise RemoteResourceNotFoundError(
                f"Index file for type: {index_type.name} not found for segment "
                f"{metadata.remote_log_segment_id}")
        return bytes(memoryview(content))

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """See RemoteStorageManager."""
        try:
            self._delete(metadata)
        except KafkaStorageError as error:
            raise RemoteStorageError(f"{metadata.remote_log_segment_id}: not deleted: {error}"
                                     ) from error

    def _delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        for key in self.layout.keys_of(metadata):
            self.tree.delete(key)

    def _found(self, metadata: RemoteLogSegmentMetadata) -> RemoteSegment:
        """The segment by its names. RemoteResourceNotFoundError."""
        partition = metadata.topic_id_partition
        where = RemotePartition(partition.topic, partition.partition, partition.topic_id,
                                self.layout.directory(metadata))
        for segment in self.layout.segments(self.tree, where):
            if (segment.start_offset, segment.segment_id) == (
                    metadata.start_offset, metadata.remote_log_segment_id.id):
                return replace(segment, announced=metadata)
        raise RemoteResourceNotFoundError(
            f"No log file found for {metadata.remote_log_segment_id}")


def _failure(error: KafkaStorageError) -> RemoteStorageError:
    kind = RemoteResourceNotFoundError if error.code == "file_missing" else RemoteStorageError
    return kind(str(error))
