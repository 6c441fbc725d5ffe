"""A RemoteStorageManager over any tree of objects, in any writable layout (KIP-405)."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from seglog.errors import (
    ConfigError, IllegalArgumentError, IllegalStateError, KafkaStorageError,
    RemoteResourceNotFoundError, RemoteStorageError,
)
from seglog.objects.directory_store import make_durable_directories
from seglog.objects.store import Block
from seglog.objects.urls import is_url
from seglog.storage.log_store import LogFile
from seglog.tiered.plain_layout import (
    LOCAL_TIERED_STORAGE, LOCAL_TIERED_STORAGE_DIRECTORY, WritableLayout,
)
from seglog.tiered.remote_records import RemoteLogSegmentMetadata
from seglog.tiered.remote_storage import IndexType, LogSegmentData
from seglog.tiered.remote_tree import RemoteTree

__all__ = ["LayoutStorageManager"]

_logger = logging.getLogger("seglog.LayoutStorageManager")

#: What a stream reads ahead.
_FETCH_BYTES = 1 << 20


class LayoutStorageManager:
    """A RemoteStorageManager over a directory or an object store, in a layout.

    Created with its tree, or without one and configured: `rsm.config.url` is the directory or URL,
    `rsm.config.dir` a directory as for Kafka's LocalTieredStorage (which stores segments in
    `kafka-tiered-storage` below it). `rsm.config.layout` is `local` (the default) or `aiven`, with
    Aiven's `chunk.size` and `compression.enabled`.

    A copy that fails deletes what it wrote, as far as the store answers. A copy of the same
    segment id begins anew under the same keys, and first removes the unfinished uploads and
    temporary files of one that was killed; so does a deletion. On a file system every object is
    durable when `copy_log_segment_data` returns.
    """

    def __init__(self, tree: RemoteTree | None = None,
                 layout: WritableLayout = LOCAL_TIERED_STORAGE) -> None:
        self._tree, self.layout = tree, layout

    def __repr__(self) -> str:
        where = None if self._tree is None else self._tree.root
        return f"LayoutStorageManager({where!r}, {self.layout.name})"

    @property
    def tree(self) -> RemoteTree:
        """The tree of objects. Raises IllegalStateError before `configure`."""
        if self._tree is None:
            raise IllegalStateError("LayoutStorageManager was given no tree and not configured")
        return self._tree

    def configure(self, properties: Mapping[str, object]) -> None:
        """See RemoteStorageManager. Raises ConfigError for a missing or wrong setting."""
        if self._tree is not None:
            return
        given = {name: str(value) for name, value in properties.items()}
        url = given.get("url") or (os.path.join(given["dir"], LOCAL_TIERED_STORAGE_DIRECTORY)
                                   if given.get("dir") else None)
        if url is None:
            raise ConfigError("rsm.config.url (a directory or the URL of one) is not set")
        layout = given.get("layout", "local")
        if layout == "aiven":
            from seglog.tiered.aiven_writer import AivenWriter  # needs more packages

            try:
                self.layout = AivenWriter(
                    chunk_size=int(given.get("chunk.size", 4 << 20)),
                    compression=given.get("compression.enabled", "false").lower() == "true")
            except ValueError as error:
                raise ConfigError(f"rsm.config: {error}") from None
        elif layout != "local":
            raise ConfigError(f"rsm.config.layout is 'local' or 'aiven', not {layout!r}")
        if not is_url(url):
            make_durable_directories(url)
        self._tree = RemoteTree(url)

    def close(self) -> None:
        """See RemoteStorageManager. Returned streams stay open."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
                              ) -> bytes | None:
        """See RemoteStorageManager."""
        self._sweep(metadata)
        try:
            return self.layout.write(self.tree, metadata, data)
        except OSError as error:
            try:
                self._delete(metadata)
            except KafkaStorageError:
                pass  # the first error is the one to report
            raise RemoteStorageError(f"{metadata.remote_log_segment_id}: not copied: {error}"
                                     ) from error

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> BinaryIO:
        """See RemoteStorageManager. Raises IllegalArgumentError for a negative or an empty
        range."""
        if start_position < 0:
            raise IllegalArgumentError(f"Start position must be positive: [{start_position}]")
        if end_position is not None and end_position < start_position:
            raise IllegalArgumentError(
                f"End position cannot be less than startPosition: [{end_position}]")
        try:
            log = self.layout.open_log(self.tree, self.layout.named(self.tree, metadata))
        except KafkaStorageError as error:
            raise _failure(error) from error
        end = log.size if end_position is None else min(end_position + 1, log.size)
        return io.BufferedReader(_LogRange(log, start_position, end), _FETCH_BYTES)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """See RemoteStorageManager."""
        try:
            content: Block | None = self.layout.index(
                self.tree, self.layout.named(self.tree, metadata), index_type)
        except KafkaStorageError as error:
            raise _failure(error) from error
        if content is None:
            raise RemoteResourceNotFoundError(
                f"Index file for type: {index_type.name} not found for segment "
                f"{metadata.remote_log_segment_id}")
        return io.BytesIO(memoryview(content))

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
        self._sweep(metadata)

    def _sweep(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Ends uploads of the segment that a killed process began. A failure costs space only."""
        try:
            self.tree.sweep(os.path.commonprefix(self.layout.keys_of(metadata)))
        except KafkaStorageError as error:
            _logger.warning("%s: unfinished uploads may be left: %s",
                            metadata.remote_log_segment_id, error)


def _failure(error: KafkaStorageError) -> RemoteStorageError:
    kind = RemoteResourceNotFoundError if error.code == "file_missing" else RemoteStorageError
    return kind(str(error))


class _LogRange(io.RawIOBase):
    """The bytes [position, end) of a remote log."""

    def __init__(self, log: LogFile, position: int, end: int) -> None:
        super().__init__()
        self._log, self._position, self._end = log, position, end

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any, /) -> int:
        """Raises RemoteStorageError if the store refuses."""
        view = memoryview(into)
        count = max(min(len(view), self._end - self._position), 0)
        try:
            view[:count] = self._log.read(count, self._position) if count else b""
        except KafkaStorageError as error:
            raise _failure(error) from error
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._log.close()
        super().close()
