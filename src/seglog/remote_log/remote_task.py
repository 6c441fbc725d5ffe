"""The common part of the tasks of a tiered partition (Kafka: RemoteLogManager.RLMTask)."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Final

from seglog.errors import (
    RemoteStorageError, ReplicaNotAvailableError, RetriableRemoteStorageError, SeglogError,
)
from seglog.forks import ProcessBound
from seglog.log.scheduler import Time
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.remote_log.lineage import find_highest_remote_offset
from seglog.remote_log.metadata_manager import RemoteLogMetadataManager
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_stats import RemoteStats
from seglog.tiered.remote_records import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
)
from seglog.tiered.remote_storage import RemoteStorageManager
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["FollowerTask", "RemoteLogTask", "TaskCancelled", "TaskContext", "UnreadCopy",
           "count_as_copied"]

_logger = logging.getLogger("seglog.RemoteLogManager")

_STEP_SECONDS: Final = 0.1


class TaskCancelled(Exception):
    """The task was cancelled while it waited."""


@dataclass(frozen=True, slots=True)
class UnreadCopy:
    """A segment that is in remote storage, and the event that says so. Lookups find the segment
    when the event was read back."""

    segment: RemoteLogSegmentMetadata
    custom_metadata: bytes | None
    event: Future[None]


@dataclass(slots=True)
class TaskContext:
    """The objects that the tasks of a RemoteLogManager use. `being_copied` are segments that a copy
    task is copying, `unread` copies for whose events no task waits any more."""

    config: RemoteLogManagerConfig
    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    fetch_log: Callable[[TopicPartition], UnifiedLog | None]
    time: Time
    stats: RemoteStats
    being_copied: set[RemoteLogSegmentId] = field(default_factory=set)
    unread: dict[TopicIdPartition, UnreadCopy] = field(default_factory=dict)

    def update_of(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState,
                  custom_metadata: bytes | None) -> RemoteLogSegmentMetadataUpdate:
        """The event of the next state of a segment."""
        return RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id, self.time.milliseconds(), custom_metadata, state,
            self.config.broker_id)


class RemoteLogTask(ProcessBound, ABC):
    """Work on one partition that is repeated until it is cancelled."""

    def __init__(self, context: TaskContext, key: TopicIdPartition) -> None:
        self.context, self.key = context, key
        self._cancelled = threading.Event()
        self.is_running = False
        self._prefix = f"[RemoteLogManager={context.config.broker_id} partition={key}] "

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Prevents further runs, and ends waiting."""
        self._cancelled.set()

    def record(self, name: str, value: int) -> None:
        """Sets the partition's share of a gauge, unless the task is cancelled: the partition may
        have been forgotten since."""
        self.context.stats.record(name, self.key.topic, self.key.partition, value,
                                  unless=self._cancelled.is_set)

    def say(self, level: int, message: str, *arguments: object,
            error: BaseException | None = None) -> None:
        """Logs with the partition as prefix."""
        _logger.log(level, self._prefix + message, *arguments, exc_info=error)

    def run(self) -> None:
        """Runs once. Raises nothing: failures are logged, and the next run tries again."""
        if self.is_cancelled:
            self.say(logging.DEBUG, "Skipping the current run for partition %s as it is cancelled",
                     self.key)
            return
        self.is_running = True
        try:
            if not self.context.metadata.is_ready(self.key):
                self.say(logging.DEBUG, "Skipping the current run for partition %s as the "
                         "remote-log metadata is not ready", self.key)
                return
            log = self.context.fetch_log(TopicPartition(self.key.topic, self.key.partition))
            # The topic may have been deleted and created again.
            if log is not None and self.key.is_of(log.topic_id):
                self.execute(log)
        except TaskCancelled:
            self.say(logging.DEBUG, "The run was cancelled")
        except (RetriableRemoteStorageError, ReplicaNotAvailableError) as error:
            self.say(logging.DEBUG, "Encountered a retryable error while executing current task "
                     "for partition %s", self.key, error=error)
        except Exception as error:
            if not self.is_cancelled:
                self.say(logging.WARNING, "Current task for partition %s received error but it "
                         "will be scheduled", self.key, error=error)
        finally:
            self.is_running = False

    @abstractmethod
    def execute(self, log: UnifiedLog) -> None:
        """The work itself, on the partition's log."""

    # ---- events

    def wait(self, future: Future[None]) -> None:
        """Waits until lookups see a write. Raises the future's exception; TaskCancelled.

        A write that may succeed later has failed too: RemoteStorageError, so that it is counted and
        logged (in Kafka it is an ExecutionException).
        """
        while not future.done():
            try:
                return future.result(_STEP_SECONDS)
            except FutureTimeoutError:
                if self.is_cancelled and not future.done():
                    raise TaskCancelled from None
            except RetriableRemoteStorageError:
                pass
        try:
            return future.result()
        except RetriableRemoteStorageError as error:
            raise RemoteStorageError(str(error)) from error

    def publish(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState,
                custom_metadata: bytes | None) -> Future[None]:
        """Writes the next state of a segment. The future is done when the event was read back."""
        return self.context.metadata.update_remote_log_segment_metadata(
            self.context.update_of(segment, state, custom_metadata))

    def delete_segment(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Deletes a segment, and announces that before and after; False if the task is cancelled
        (RemoteLogManager.deleteRemoteLogSegment)."""
        if self.is_cancelled:
            return False
        context, custom = self.context, segment.custom_metadata
        self.wait(self.publish(segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, custom))
        context.stats.mark("RemoteDeleteRequestsPerSec", self.key.topic)
        try:
            context.storage.delete_log_segment_data(segment)
        except RetriableRemoteStorageError:
            raise
        except RemoteStorageError:
            context.stats.mark("RemoteDeleteErrorsPerSec", self.key.topic)
            raise
        self.wait(self.publish(segment, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, custom))
        _logger.debug("Deleted remote log segment %s", segment.remote_log_segment_id)
        return True

    def try_to_delete(self, segment: RemoteLogSegmentMetadata) -> None:
        """Cleans up after a failed copy; the expiration task deletes the rest."""
        segment_id = segment.remote_log_segment_id
        try:
            self.delete_segment(segment)
            self.say(logging.INFO, "Cleanup completed for segment %s", segment_id)
        except SeglogError as error:
            self.say(logging.INFO, "Cleanup failed, will retry later with segment %s: %s",
                     segment_id, error)


    # ---- what is copied

    def find_copied(self, log: UnifiedLog) -> tuple[int, int]:
        """Tells a log which of its offsets are in remote storage. Returns what
        `find_highest_remote_offset` does."""
        while True:
            truncations = log.truncations
            found = find_highest_remote_offset(self.context.metadata, self.key, log)
            if count_as_copied(log, found[0], truncations):
                return found


def count_as_copied(log: UnifiedLog, offset: int, truncations: int) -> bool:
    """Lets local retention delete segments up to `offset`. False if the log was truncated since its
    `truncations` were `truncations`: other records may have these offsets now."""
    with log.lock:
        if log.truncations != truncations:
            return False
        log.update_highest_offset_in_remote_storage(offset)
        return True


class FollowerTask(RemoteLogTask):
    """Updates a follower's log with the offsets in remote storage (Kafka: RLMFollowerTask)."""

    def execute(self, log: UnifiedLog) -> None:
        """See RemoteLogTask."""
        self.find_copied(log)
