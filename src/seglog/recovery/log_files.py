"""The files of one loaded log: its directory, its segments, and pending deletions and checks."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from seglog._native.log_lock import LogLock
from seglog._native.file import sync
from seglog.errors import KafkaStorageError
from seglog.model import TopicPartition
from seglog.recovery.deferred_checks import DeferredChecks
from seglog.recovery.disk import Disk
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.index_files import OFFSET_ENTRY, TIME_ENTRY
from seglog.recovery.loading_producers import LoadingProducers
from seglog.recovery.segment_files import TOLD_FILES, SegmentFiles
from seglog.recovery.loaded_segments import OFFSET_INDEX_OPEN, TIME_INDEX_OPEN, LoadedSegments
from seglog.storage.paths import FileKind, FileState, file_name, parse_file_name
from seglog.storage.textfile import sync_path

__all__ = ["LogFiles"]

_logger = logging.getLogger("seglog.UnifiedLog")


class LogFiles:
    """The files of a log, shared by its parts. `lock` guards the segments.

    `removed` are names of `.deleted` files that the load left. `repair` recovers segments as pass
    four of a load does, and adds the names of the files that it removes.
    """

    def __init__(self, topic_partition: TopicPartition, segments: LoadedSegments,
                 removed: list[str], repair: Callable[[list[int]], None]) -> None:
        self.topic_partition = topic_partition
        self.segments = segments
        self.disk: Disk = segments.disk
        self.path = os.path.abspath(self.disk.path)
        self.lock = LogLock()
        self.is_closed = False
        #: The checks that the load deferred (KIP-263); None if it made all.
        self.deferred_checks: DeferredChecks | None = None
        self.removed = removed
        self._repair = repair

    # ---- durability ---------------------------------------------------------------------------

    def flush(self, start: int, end: int,
              timer: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        """Makes the segments that hold [start, end) durable, including indexes and names of new
        files. `timer()` is entered around each segment. Raises KafkaStorageError."""
        with self.lock:
            bases = self.segments.bases(self.segments.rows(start, end))
        for base in bases:
            with timer():
                self.flush_segment(base)
        if bases and bases[-1] >= start:
            try:
                self.disk.sync_directory()
            except KafkaStorageError as error:
                if error.errno != errno.ENOENT:  # it is being deleted under another name
                    raise

    def flush_segment(self, base: int) -> None:
        """Syncs one segment, if it is still in the log. Does not hold the lock while it waits."""
        with self.lock:
            if base not in self.segments:
                return
            segment = self.segments.get(base)
            with public_errors(self.path):
                segment.open_indexes()
            self.segments.release(segment)
            names = segment.names(FileState.LIVE)
            files = self.disk.open_for_sync(names)
        _sync_all(files)

    def sync_file(self, name: str) -> None:
        """Syncs a file of the directory, if it exists."""
        _sync_all(self.disk.open_for_sync([name]))

    # ---- the end ------------------------------------------------------------------------------

    def close(self, producers: LoadingProducers, *, sync_indexes: bool = False) -> None:
        """Closes the files of the log as Kafka does; a second call does nothing.

        Writes a producer snapshot if the state moved, trims every index that was opened, and
        truncates preallocated space. With `sync_indexes` that survives a power cut, too (Kafka
        syncs the logs alone). Tries all segments, then raises the first KafkaStorageError.
        """
        if self.is_closed:
            return
        self.is_closed = True
        _logger.debug("Closing log %s", self.path)
        with public_errors(self.path):
            producers.take_snapshot()
            producers.snapshots.sync()
            self._close_segments(sync_indexes)

    def _close_segments(self, sync_indexes: bool) -> None:
        first: KafkaStorageError | None = None
        active = int(self.segments.base_offsets[-1])
        for base in {segment.base_offset for segment in self.segments.held} | {active}:
            try:
                segment = self.segments.get(base)
                segment.close()
                self.segments.release(segment)
                if sync_indexes:
                    _sync_all(self.disk.open_for_sync(segment.names(FileState.LIVE)[1:]))
            except KafkaStorageError as error:
                first = first or error
        try:
            self._trim_opened()
        except KafkaStorageError as error:
            first = first or error
        if first is not None:
            raise first

    def _trim_opened(self) -> None:
        segments = self.segments
        for bit, sizes, width, kind in (
                (OFFSET_INDEX_OPEN, segments.index_size, OFFSET_ENTRY.size, FileKind.INDEX),
                (TIME_INDEX_OPEN, segments.time_index_size, TIME_ENTRY.size,
                 FileKind.TIME_INDEX)):
            for row in np.flatnonzero((segments.opened & bit != 0) & (sizes % width != 0)):
                whole = int(sizes[row]) // width * width
                self.disk.resize(file_name(int(segments.base_offsets[row]), kind), whole)
                sizes[row] = whole

    def abandon(self) -> None:
        """Abandons the files: no part of the log changes them any more."""
        self.is_closed = True

    def rename(self, name: str) -> None:
        """Renames the directory within its data directory, durably. Raises KafkaStorageError."""
        parent = os.path.dirname(self.path)
        target = os.path.join(parent, name)
        try:
            os.rename(self.path, target)
            sync_path(parent)
        except OSError as error:
            raise KafkaStorageError(error.errno, f"Error while renaming dir for "
                                    f"{self.topic_partition} in log dir {parent}: "
                                    f"{error.strerror}", self.path) from error
        self.path = self.disk.path = target

    def delete_removed(self) -> None:
        """Deletes the `.deleted` files of segments that the load removed. Raises
        KafkaStorageError."""
        while self.removed:
            name = self.removed[-1]
            what = TOLD_FILES.get(parse_file_name(name).kind)
            if self.disk.delete(name) and what is not None:  # Kafka does not tell snapshots
                _logger.info("Deleted %s %s.", what, os.path.join(self.path, name))
            self.removed.pop()

    # ---- deferred checks ----------------------------------------------------------------------

    def ensure_checked(self, offset: int) -> None:
        """Checks the segment with `offset`, if the load deferred that (KIP-263)."""
        if self.deferred_checks is not None:
            self.deferred_checks.ensure_offset(offset)

    def dismiss_checks(self, bases: list[int]) -> None:
        """Cancels the deferred checks of segments that have left the log."""
        if self.deferred_checks is not None:
            self.deferred_checks.dismiss(bases)

    def recover_segments(self, base_offsets: list[int]) -> None:
        """Recovers these segments as pass four of a load does, because their checks were deferred.

        Raises KafkaStorageError, and LogLoadError where Kafka abandons the log.
        """
        with public_errors(self.path):
            self._repair(sorted(base for base in base_offsets if base in self.segments))

    # ---- reporting ----------------------------------------------------------------------------

    def segment_states(self) -> Iterator[dict[str, Any]]:
        """Yields each segment under the keys of Kafka's answers (tests/kafka/Oracle.java). Raises
        LoaderFailure if one cannot be read to its end.

        Opens every index, as that program does: missing ones are created.
        """
        for base in self.segments.base_offsets.tolist():
            segment = self.segments.get(base)
            try:
                yield _state_of(segment)
            finally:
                self.segments.release(segment)


def _state_of(segment: SegmentFiles) -> dict[str, Any]:
    last = segment.time_index.last_entry
    segment.offset_index.open()
    return {
        "base_offset": segment.base_offset, "size": segment.size,
        "offset_index_entries": segment.offset_index.entries,
        "time_index_entries": segment.time_index.entries,
        "time_index_last": [last.timestamp, last.offset],
        "aborted_txns": segment.txn_index.entries,
        "max_timestamp": segment.max_timestamp().timestamp,
        "next_offset": segment.read_next_offset(),
    }


def _sync_all(files: list[tuple[int, str]]) -> None:
    """Syncs and closes descriptors, each with the path of its file."""
    try:
        for fd, path in files:
            sync(fd, metadata=True, file=path)
    finally:
        for fd, _ in files:
            os.close(fd)
