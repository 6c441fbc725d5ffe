"""Finds where the logs of a stream start and end now. An unchanged log costs two `stat` calls, or
one list request in an object store.

A changed log is opened again: one listing, then its active segment from the last index entry on.
Nothing stays open between two triggers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from dataclasses import dataclass

from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import TopicPartition
from seglog.objects.urls import is_url
from seglog.spark.plan import choose_partitions, has_changed, refuse_damage
from seglog.spark.streaming.stream_options import StreamOptions
from seglog.storage.checkpoint_files import CHECKPOINT_BYTES_MAX, read_offset_checkpoint
from seglog.spark.remote_option import tier_of
from seglog.storage.log_store import Files, Stamp, files_of, small_file
from seglog.storage.partition_files import is_there
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT

__all__ = ["LogBounds", "WatchedLogs"]

#: A younger file is read again, because it may change within the same clock tick. A batch that is
#: bad for longer than this is not still being written by a broker.
_QUIET_SECONDS = 2.0

#: How often a log is read again if it changes meanwhile.
_LOOKS = 5


@dataclass(frozen=True, slots=True)
class LogBounds:
    """A log's start offset, its end offset, and its end for this stream (isolation, endAt)."""

    start: int
    log_end: int
    end: int


@dataclass(slots=True)
class _Seen:
    """The state of a log at one check. `active` is the path of the active segment, if any.
    `bad_since` is the monotonic time in seconds when its end was first corrupt."""

    stamp: Stamp
    active: str | None
    checkpointed_start: int | None
    start: int
    log_end: int
    stable_end: int
    is_quiet: bool
    bad_since: float | None = None


class WatchedLogs:
    """The logs that a streaming query reads. Not thread-safe."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._seen: dict[str, _Seen] = {}
        self._checkpoints: dict[str, tuple[Hashable, dict[TopicPartition, int]]] = {}
        self._current: set[str] = set()  # checkpoints already checked by this `look`
        self._was_complete = False

    def paths(self) -> dict[TopicPartition, str]:
        """The directories of the existing partitions.

        The first call raises UnknownTopicOrPartitionError for a missing partition. One that
        disappears later is lost data, which the caller handles.
        """
        found = choose_partitions(self._options.read, without_missing=self._was_complete)
        self._was_complete = True
        return found

    def look(self) -> dict[TopicPartition, LogBounds]:
        """Where each log starts and ends now. Omits logs that disappear meanwhile.

        Raises KafkaStorageError. Raises CorruptDataError if failOnDataLoss is true and the stream
        would wait forever at damaged bytes.
        """
        self._current.clear()
        paths = self.paths()
        found = {}
        for tp, path in paths.items():
            seen = self._seen_at(tp, path)
            if seen is None:
                continue
            end = seen.stable_end
            if self._options.end_at == "highWatermark":
                # As in Kafka, a partition missing from the checkpoint has high watermark 0.
                mark = self._checkpoint(path, HIGH_WATERMARK_CHECKPOINT).get(tp, 0)
                end = max(min(end, mark), seen.start)
            found[tp] = LogBounds(seen.start, seen.log_end, end)
        for path in self._seen.keys() - set(paths.values()):
            del self._seen[path]
        return found

    def open(self, tp: TopicPartition, path: str) -> PartitionLog:
        """The log at `path`, with its checkpointed log start offset."""
        return PartitionLog.open(path, topic_partition=tp, log_start_offset=max(
            0, self._checkpoint(path, LOG_START_OFFSET_CHECKPOINT).get(tp, 0)),
            storage_options=self._options.read.storage, remote=tier_of(self._options.read))

    def _where(self, path: str) -> Files:
        return files_of(path, self._options.read.storage)

    def _seen_at(self, tp: TopicPartition, path: str) -> _Seen | None:
        """The state of a log whose segments may change meanwhile. None if the log is gone."""
        for left in reversed(range(_LOOKS)):
            try:
                return self._look_at(tp, path)
            except KafkaStorageError as error:
                if not has_changed(error) or (not left and is_there(path, self._where(path))):
                    raise
                self._seen.pop(path, None)
        return None

    def _look_at(self, tp: TopicPartition, path: str) -> _Seen:
        known = self._seen.get(path)
        start = self._checkpoint(path, LOG_START_OFFSET_CHECKPOINT).get(tp)
        before: Stamp | None = None
        if known is not None and known.is_quiet and known.checkpointed_start == start:
            before = self._where(path).stamp(path, known.active)
            if known.stamp == before:
                return known
        log = self.open(tp, path)
        try:
            # A change since the log was opened is recent, so the next call of `look` sees it.
            last = log.segments.last
            active = None if last is None else last.files.log
            # The stamp of a URL is a list of all objects: that from before serves, because a later
            # change makes the next one differ.
            stamp = before if before is not None and is_url(path) else \
                log.where.stamp(path, active)
            read = self._options.read
            seen = _Seen(stamp, active, start, log.log_start_offset, log.log_end_offset,
                         log.end_offset(read.isolation, read.on_damage), _is_quiet(stamp))
            self._refuse_damage(log, seen, known)
        finally:
            log.close()
        self._seen[path] = seen
        return seen

    def _refuse_damage(self, log: PartitionLog, seen: _Seen, known: _Seen | None) -> None:
        """Raises the error that a reader would find at the end of the stream's records, unless a
        batch may still be being written there."""
        read = self._options.read
        if not read.fail_on_data_loss:
            return
        try:
            refuse_damage(log, seen.stable_end, read.isolation)
        except CorruptDataError:
            seen.bad_since = now = time.monotonic()
            if known is not None and known.bad_since is not None \
                    and known.stable_end == seen.stable_end:
                seen.bad_since = known.bad_since
            if seen.is_quiet or now - seen.bad_since > _QUIET_SECONDS:
                raise
            seen.is_quiet = False

    def _checkpoint(self, path: str, name: str) -> dict[TopicPartition, int]:
        """A checkpoint of the data directory of `path`; reads it again only if it was replaced."""
        file = os.path.join(os.path.dirname(path), name)
        known = self._checkpoints.get(file)
        if known is not None and file in self._current:
            return known[1]
        where = self._where(path)
        state = where.state(file)
        if known is None or known[0] != state:
            content = small_file(where, file, CHECKPOINT_BYTES_MAX) or b""
            known = state, read_offset_checkpoint(file, content)
            self._checkpoints[file] = known
        self._current.add(file)
        return known[1]


def _is_quiet(stamp: Stamp) -> bool:
    return stamp.modified_ns is None or \
        time.time_ns() - stamp.modified_ns > _QUIET_SECONDS * 1e9
