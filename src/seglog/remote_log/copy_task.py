"""Copies closed segments of a leader to remote storage (Kafka: RLMCopyTask)."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from seglog.errors import (
    IllegalArgumentError, RemoteMetadataTimeoutError, RemoteStorageError,
    ReplicaNotAvailableError, RetriableRemoteStorageError, SeglogError,
)
from seglog.log.unified_log import UnifiedLog
from seglog.model import EpochEntry
from seglog.remote_log.lineage import epochs_of, find_log_start_offset
from seglog.remote_log.quotas import RemoteQuota
from seglog.remote_log.remote_task import (
    RemoteLogTask, TaskCancelled, TaskContext, UnreadCopy, count_as_copied,
)
from seglog.storage.epochs import encode_leader_epochs
from seglog.storage.paths import index_name, log_name, time_index_name, txn_index_name
from seglog.tiered.remote_records import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition,
)
from seglog.tiered.remote_storage import LogSegmentData
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["CopyTask"]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A closed segment without undecided transactions."""

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int


class CopyTask(RemoteLogTask):
    """Copies the segments below the last stable offset, but never the active one."""

    def __init__(self, context: TaskContext, key: TopicIdPartition, quota: RemoteQuota) -> None:
        super().__init__(context, key)
        self._quota = quota
        self._directory: str | None = None
        self._copied: int | None = None
        self._has_start = False

    def execute(self, log: UnifiedLog) -> None:
        """See RemoteLogTask."""
        if log.parent_dir != self._directory:
            self._directory, self._copied, self._has_start = log.parent_dir, None, False
        try:
            self._copy_segments(log)
        except (TaskCancelled, RetriableRemoteStorageError, ReplicaNotAvailableError):
            raise
        except Exception as error:
            if not self.is_cancelled:
                self.context.stats.mark("RemoteCopyErrorsPerSec", self.key.topic)
                self.say(logging.ERROR, "Error occurred while copying log segments of partition: "
                         "%s", self.key, error=error)
        finally:
            self._record_lag(log)

    def _copy_segments(self, log: UnifiedLog) -> None:
        self._finish_earlier_copy()
        self._take_over(log)
        assert self._copied is not None
        stable = log.last_stable_offset
        if not 0 < stable or self._copied >= stable:
            return
        for candidate in _candidates(log, max(self._copied + 1, log.log_start_offset), stable):
            if self.is_cancelled:
                self.say(logging.INFO, "Skipping copying log segments as the current task state is "
                         "changed, cancelled: true")
                return
            if not self._quota.take(candidate.size, self._cancelled):
                raise TaskCancelled
            segment_id = RemoteLogSegmentId.generate_new(self.key)
            self.context.being_copied.add(segment_id)
            path = log.path
            try:
                self._copy(log, candidate, segment_id, path)
            except (RemoteStorageError, IllegalArgumentError, OSError) as error:
                if _is_there(log, candidate, path):
                    raise
                self.say(logging.INFO, "The segment at %d is not copied, because it left the log "
                         "meanwhile: %s", candidate.base_offset, error)
                return
            finally:
                self.context.being_copied.discard(segment_id)

    def _take_over(self, log: UnifiedLog) -> None:
        """Finds what an earlier leader, or this process before a restart, has copied."""
        metadata = self.context.metadata
        if not self._has_start:
            start = find_log_start_offset(metadata, self.key, log)
            # The first leader epoch may begin above the high watermark, which is known later.
            if start <= log.high_watermark:
                log.update_log_start_offset_from_remote_tier(start)
                self._has_start = True
                self.say(logging.INFO, "Found the logStartOffset: %d for partition: %s after "
                         "becoming leader", start, self.key)
        # A truncation makes the log forget what was copied.
        if self._copied is None or self._copied > log.highest_offset_in_remote_storage:
            self._copied, epoch = self.find_copied(log)
            self.say(logging.INFO, "Found the highest copiedRemoteOffset: (%d, epoch %d) for "
                     "partition: %s after becoming leader", self._copied, epoch, self.key)

    def _finish_earlier_copy(self) -> None:
        """Completes a copy whose last event was not read back before its task was cancelled or its
        wait ended: lookups do not find the segment before. (Kafka's task copies it again.)"""
        copy = self.context.unread.get(self.key)
        if copy is None:
            return
        self._copied = None  # the segment may have been deleted meanwhile: lookups tell
        try:
            self._await_last_event(copy)
        except RemoteMetadataTimeoutError:
            self._finish(copy.segment, copy.custom_metadata)
        except SeglogError as error:
            self.say(logging.INFO, "The last event of an earlier copy failed: %s", error)

    def _finish(self, segment: RemoteLogSegmentMetadata, custom: bytes | None) -> None:
        """Announces that a segment is copied, and waits until lookups find it."""
        self._await_last_event(UnreadCopy(segment, custom, self.publish(
            segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom)))

    def _await_last_event(self, copy: UnreadCopy) -> None:
        """Raises TaskCancelled or RemoteMetadataTimeoutError if the event may still be read back:
        the next run completes the copy then, also that of a later task."""
        self.context.unread.pop(self.key, None)
        try:
            self.wait(copy.event)
        except (TaskCancelled, RemoteMetadataTimeoutError):
            self.context.unread[self.key] = copy
            raise
        segment = copy.segment
        self.context.stats.mark("RemoteCopyBytesPerSec", self.key.topic,
                                segment.segment_size_in_bytes)
        self.say(logging.INFO, "Copied %s to remote storage with segment-id: %s",
                 log_name(segment.start_offset), segment.remote_log_segment_id)

    def _copy(self, log: UnifiedLog, candidate: _Candidate, segment_id: RemoteLogSegmentId,
              path: str) -> None:
        context, name = self.context, log_name(candidate.base_offset)
        truncations = log.truncations
        self.say(logging.INFO, "Copying %s to remote storage.", name)
        epochs = epochs_of(log)
        data = _files_of(log, path, candidate, encode_leader_epochs(
            epochs.entries_in_range(-1, candidate.next_offset)))
        own: list[EpochEntry] = epochs.entries_in_range(candidate.base_offset,
                                                        candidate.next_offset)
        segment = RemoteLogSegmentMetadata(
            segment_id, candidate.base_offset, candidate.next_offset - 1,
            candidate.largest_timestamp, context.config.broker_id, context.time.milliseconds(),
            candidate.size, [(entry.epoch, entry.start_offset) for entry in own],
            txn_idx_empty=data.transaction_index is None
            or os.path.getsize(data.transaction_index) == 0)
        self.wait(context.metadata.add_remote_log_segment_metadata(segment))
        context.stats.mark("RemoteCopyRequestsPerSec", self.key.topic)
        try:
            custom = context.storage.copy_log_segment_data(segment, data)
        except RetriableRemoteStorageError:
            self.say(logging.INFO, "Copy failed with retriable error for segment %s", segment_id)
            raise
        except RemoteStorageError:
            self.say(logging.INFO, "Copy failed, cleaning segment %s", segment_id)
            self.try_to_delete(segment)
            raise
        if not _is_there(log, candidate, path):
            # The log was moved, and other files may have had these names.
            self.try_to_delete(segment)
            raise RemoteStorageError(f"{path}: the segment at {candidate.base_offset} has left")
        self._check_custom_metadata(segment, custom)
        self._finish(segment, custom)
        if not count_as_copied(log, segment.end_offset, truncations):
            self._copied = None  # lookups tell how much of it the log still has
            raise RetriableRemoteStorageError(f"{path}: the log was truncated while the segment "
                                              f"at {candidate.base_offset} was copied")
        self._copied = segment.end_offset

    def _check_custom_metadata(self, segment: RemoteLogSegmentMetadata,
                               custom: bytes | None) -> None:
        """Too large custom metadata end the copying of this partition, as in Kafka."""
        limit = self.context.config.custom_metadata_max_bytes
        if custom is None or len(custom) <= limit:
            return
        self.say(logging.INFO, "Custom metadata size %d exceeds configured limit %d. Copying will "
                 "be stopped and copied segment will be attempted to clean. Original metadata: %s",
                 len(custom), limit, segment)
        self.try_to_delete(segment.create_with_updates(self.context.update_of(
            segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom)))
        self.context.stats.mark("RemoteCopyErrorsPerSec", self.key.topic)
        self.cancel()
        raise TaskCancelled

    def reset_lag(self) -> None:
        """Sets the lag to zero."""
        for name in ("RemoteCopyLagBytes", "RemoteCopyLagSegments"):
            self.context.stats.record(name, self.key.topic, self.key.partition, 0)

    def _record_lag(self, log: UnifiedLog) -> None:
        if self.is_cancelled or log.is_closed:
            return
        count, size = log.only_local_segments()
        with log.lock:
            active = log.active.size
        values = {"RemoteCopyLagBytes": size - active, "RemoteCopyLagSegments": count - 1}
        for name, value in values.items():
            self.record(name, max(value, 0))


def _candidates(log: UnifiedLog, from_offset: int, stable_offset: int) -> list[_Candidate]:
    """The segments from the one that holds `from_offset` whose successor begins at or below
    `stable_offset` (RLMCopyTask.candidateLogSegments)."""
    with log.lock:
        log.update_files()
        segments = log.segments
        bases = segments.bases(segments.rows(from_offset, (1 << 63) - 1))
    found = []
    for base, following in zip(bases, bases[1:], strict=False):
        if following > stable_offset:
            break
        with log.lock:
            log.update_files()
            if base not in log.segments:  # retention has deleted it
                continue
            segment = log.segments.get(base)
            found.append(_Candidate(base, following, segment.size, segment.largest_timestamp()))
            log.segments.release(segment)
    return found


def _is_there(log: UnifiedLog, candidate: _Candidate, path: str) -> bool:
    """Whether a segment is still in the log, with records, and the log in that directory. A
    truncation that removes records of it removes the next segment too."""
    with log.lock:
        return (not log.is_closed and log.path == path and candidate.base_offset in log.segments
                and candidate.next_offset in log.segments
                and candidate.next_offset > log.log_start_offset)


def _files_of(log: UnifiedLog, path: str, candidate: _Candidate,
              leader_epochs: bytes) -> LogSegmentData:
    """Paths of the files that are copied. Raises RemoteStorageError for a missing one."""
    base = candidate.base_offset
    with log.lock:
        snapshot = log.producer_manager.fetch_snapshot(candidate.next_offset)
    paths = [os.path.join(path, name(base)) for name in (
        log_name, index_name, time_index_name, txn_index_name)]
    if snapshot is None:
        raise RemoteStorageError(f"{path}: no producer snapshot at offset "
                                 f"{candidate.next_offset}, which the segment at {base} needs")
    for one in (*paths[:3], snapshot):
        if not os.path.exists(one):
            raise RemoteStorageError(f"{one} is missing: the segment at {base} is not copied")
    txn_index = paths[3] if os.path.exists(paths[3]) else None
    return LogSegmentData(paths[0], paths[1], paths[2], txn_index, snapshot, leader_epochs)
