"""Reads the metadata topic into the store (Kafka: ConsumerTask)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from seglog.errors import (
    CorruptDataError, CorruptRecordError, IllegalArgumentError, IllegalStateError,
    MetadataParseError, RemoteMetadataTimeoutError, RemoteStorageError,
    RetriableRemoteStorageError,
)
from seglog.log.scheduler import Time
from seglog.remote_log.metadata_transport import ConsumedRecord, MetadataTransport
from seglog.tiered.metadata_serde import deserialize
from seglog.tiered.metadata_store import RemotePartitionMetadataStore
from seglog.tiered.metadata_topic import SkippedMetadata
from seglog.tiered.partitioner import RemoteLogMetadataTopicPartitioner
from seglog.tiered.remote_records import (
    RemoteLogMetadata, RemoteLogSegmentMetadataSnapshot, TopicIdPartition,
)

__all__ = ["ConsumerTask"]

_logger = logging.getLogger("seglog.ConsumerTask")

_POLL_MS = 100
_BOUNDS_RETRY_MS = 300_000
#: How many of the last skipped records are kept; each is logged.
_SKIPPED_MAX = 1000


@dataclass(slots=True, eq=False)
class _UserPartition:
    """A partition whose metadata is followed."""

    key: TopicIdPartition
    metadata_partition: int
    is_assigned: bool = False
    is_initialized: bool = False


@dataclass(slots=True)
class _Waiter:
    """A write that is to be read back until `deadline_ms`."""

    offset: int
    deadline_ms: int
    future: Future[None] = field(default_factory=Future)


class ConsumerTask:
    """The thread that follows the metadata partitions of the assigned user partitions.

    A metadata partition is read from its beginning whenever one of its user partitions is new; a
    record is applied to a user partition once. A user partition is initialized when everything is
    applied that was in the topic at its assignment. Unlike Kafka's, the task survives a record that
    does not decode or that the store refuses: it logs it, and keeps it in `skipped`.

    `run` is for a thread; `step` does one iteration.
    """

    def __init__(self, store: RemotePartitionMetadataStore, transport: MetadataTransport,
                 partitioner: RemoteLogMetadataTopicPartitioner, time: Time, *,
                 poll_ms: int = _POLL_MS) -> None:
        self._store, self._transport = store, transport
        self._partitioner, self._time, self._poll_ms = partitioner, time, poll_ms
        self._changed = threading.Condition()
        # Guarded by the condition: requests of callers, and waiting writes.
        self._users: dict[TopicIdPartition, _UserPartition] = {}
        self._has_changed = False
        self._waiters: dict[int, list[_Waiter]] = {}
        self._is_closed = False
        #: The error that ended the task; None if it runs or `close` ended it.
        self.failure: Exception | None = None
        # Used only by the task's thread.
        self._assigned: frozenset[int] = frozenset()
        self._processed: frozenset[TopicIdPartition] = frozenset()
        self._read: dict[int, int] = {}
        self._applied: dict[TopicIdPartition, int] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._bounds_failed_ms: int | None = None
        self._all_initialized = False
        self._uninitialized_ms = time.milliseconds()
        #: The latest skipped records.
        self.skipped: deque[SkippedMetadata] = deque(maxlen=_SKIPPED_MAX)

    # ---- what callers want

    def add_assignments(self, partitions: Collection[TopicIdPartition]) -> None:
        """Follows these partitions too."""
        _logger.info("Updating assignments for partitions added: %s", list(map(str, partitions)))
        with self._changed:
            for key in partitions:
                if key not in self._users:
                    self._users[key] = _UserPartition(
                        key, self._partitioner.metadata_partition(key))
                    self._has_changed = True
            self._changed.notify_all()

    def remove_assignments(self, partitions: Collection[TopicIdPartition]) -> None:
        """Stops following these partitions, and drops their metadata."""
        _logger.info("Updating assignments for partitions removed: %s", list(map(str, partitions)))
        with self._changed:
            for key in partitions:
                self._has_changed |= self._users.pop(key, None) is not None
            self._changed.notify_all()

    def wait_until_consumed(self, partition: int, offset: int, timeout_ms: int) -> Future[None]:
        """Completes when the record at `offset` was read (Kafka: ConsumerManager).

        Fails with RemoteStorageError for a partition that is not read, and with
        RemoteMetadataTimeoutError after `timeout_ms`.
        """
        waiter = _Waiter(offset, self._time.milliseconds() + timeout_ms)
        with self._changed:
            if self._is_closed:
                waiter.future.set_exception(RemoteStorageError("The consumer task has ended."))
            elif partition not in self._assigned:
                waiter.future.set_exception(self._not_assigned(partition))
            else:
                self._waiters.setdefault(partition, []).append(waiter)
        self._finish_waiters()
        return waiter.future

    def _not_assigned(self, partition: int) -> RemoteStorageError:
        return RemoteStorageError(
            "This consumer is not assigned to the target partition "
            f"{partition}. Currently assigned partitions: {sorted(self._assigned)}")

    # ---- the task

    def run(self) -> None:
        """Follows the topic until `close`."""
        _logger.info("Starting consumer task thread.")
        while not self._is_closed:
            with self._changed:
                while not self._users and not self._has_changed and not self._is_closed:
                    self._changed.wait()
            if not self._is_closed:
                self.step()
        _logger.info("Exited from consumer task thread")

    def step(self) -> None:
        """Applies a changed assignment, then reads the topic."""
        try:
            if self._has_changed:
                self._take_assignment()
            if self._assigned:
                for record in self._transport.poll(self._poll_ms):
                    self._take(record)
            self._mark_ready()
        except RetriableRemoteStorageError as error:
            _logger.warning("Retriable error occurred while processing the records. Retrying...",
                            exc_info=error)
            with self._changed:
                self._changed.wait(self._poll_ms / 1000)
        except Exception as error:
            if not self._is_closed:
                _logger.error("Error occurred while processing the records", exc_info=error)
                self.failure = error
                self.close()
        self._finish_waiters()

    def _take_assignment(self) -> None:
        with self._changed:
            users = list(self._users.values())
            self._has_changed = False
        for user in users:
            if not user.is_assigned:
                self._read.pop(user.metadata_partition, None)
        wanted = frozenset(user.metadata_partition for user in users)
        try:
            self._transport.assign({one: self._read.get(one) for one in sorted(wanted)})
        except RetriableRemoteStorageError:
            self._has_changed = True  # the next step tries again
            raise
        for user in users:
            if not user.is_assigned:
                self._store.maybe_load_partition(user.key)
                user.is_assigned = True
        self._processed = frozenset(user.key for user in users)
        with self._changed:
            self._assigned = wanted
            lost = [(one, waiter) for one in set(self._waiters) - wanted
                    for waiter in self._waiters.pop(one)]
        for one, waiter in lost:
            waiter.future.set_exception(self._not_assigned(one))
        for key in [one for one in self._store.partitions if one not in self._processed]:
            self._store.clear_topic_partition(key)
            if key in self._users:  # again: its events are read from the beginning
                self._store.maybe_load_partition(key)
        for key in [one for one in self._applied if one not in self._processed]:
            del self._applied[key]
        self._all_initialized, self._uninitialized_ms = False, self._time.milliseconds()
        self._fetch_bounds()

    def _fetch_bounds(self) -> None:
        wanted = {user.metadata_partition for user in list(self._users.values())
                  if user.is_assigned and not user.is_initialized}
        for one in wanted:
            self._bounds.pop(one, None)
        self._bounds_failed_ms = None
        if wanted:
            reason: object = "they cannot be read now"
            try:
                self._bounds.update(self._transport.bounds(wanted))
            except RetriableRemoteStorageError as error:
                reason = error
            unknown = wanted - self._bounds.keys()
            if unknown:
                _logger.warning("The offsets of the metadata partitions %s are not known yet: %s",
                                sorted(unknown), reason)
                self._bounds_failed_ms = self._time.milliseconds()

    def _take(self, record: ConsumedRecord) -> None:
        event = self._decoded(record)
        if event is not None and not isinstance(event, RemoteLogSegmentMetadataSnapshot):
            key = event.topic_id_partition
            if key in self._processed and self._applied.get(key, -1) < record.offset:
                self._apply(record, event)
                self._applied[key] = record.offset
        elif event is not None:
            self._apply(record, event)
        self._read[record.partition] = record.offset

    def _decoded(self, record: ConsumedRecord) -> RemoteLogMetadata | None:
        if record.error is not None:
            self._skip(record, record.error)
            return None
        try:
            return deserialize(record.value)
        except MetadataParseError as error:
            self._skip(record, error)
            return None

    def _apply(self, record: ConsumedRecord, event: RemoteLogMetadata) -> None:
        try:
            self._store.handle_remote_log_metadata(event)
        except (IllegalArgumentError, IllegalStateError) as error:
            self._skip(record, error)

    def _skip(self, record: ConsumedRecord,
              error: CorruptDataError | IllegalArgumentError | IllegalStateError) -> None:
        first = record.offset if record.first_offset is None else record.first_offset
        skipped = SkippedMetadata(record.partition, first, record.offset + 1, error)
        _logger.error("Skipped a record: %s", skipped)
        self.skipped.append(skipped)

    def _mark_ready(self) -> None:
        if self._all_initialized:
            return
        failed_ms = self._bounds_failed_ms
        if failed_ms is not None and failed_ms + _BOUNDS_RETRY_MS < self._time.milliseconds():
            self._fetch_bounds()
        users = list(self._users.values())
        for user in users:
            if user.is_assigned and not user.is_initialized:
                bounds = self._bounds.get(user.metadata_partition)
                if bounds is None:
                    continue
                start, end = bounds
                if self._read.get(user.metadata_partition, -1) + 1 >= end or start == end:
                    self._initialized(user)
        self._all_initialized = all(user.is_assigned and user.is_initialized for user in users)
        if self._all_initialized and users:
            _logger.info("Initialized for all the %d assigned user-partitions mapped to the %d "
                         "meta-partitions in %d ms", len(users), len(self._assigned),
                         self._time.milliseconds() - self._uninitialized_ms)

    def _initialized(self, user: _UserPartition) -> None:
        # One whose deletion is in the topic has no segments, and answers nothing.
        with suppress(IllegalStateError):
            self._store.mark_initialized(user.key)
        user.is_initialized = True

    def _finish_waiters(self) -> None:
        """Completes the writes that were read back, and fails those that timed out."""
        done: list[tuple[int, _Waiter]] = []
        late: list[tuple[int, _Waiter]] = []
        now = self._time.milliseconds()
        with self._changed:
            for partition, waiters in list(self._waiters.items()):
                read, left = self._read.get(partition, -1), []
                for waiter in waiters:
                    if waiter.offset <= read:
                        done.append((partition, waiter))
                    elif now > waiter.deadline_ms:
                        late.append((partition, waiter))
                    else:
                        left.append(waiter)
                self._waiters[partition] = left
        for partition, waiter in done:
            lost = self._damage_at(partition, waiter.offset)
            if lost is None:
                waiter.future.set_result(None)
            else:
                waiter.future.set_exception(RemoteStorageError(
                    f"The record cannot be read back: {lost}"))
        for partition, waiter in late:
            _logger.warning("Expected offset for partition %d is %d, but the read offset is %d",
                            partition, waiter.offset, self._read.get(partition, -1))
            waiter.future.set_exception(RemoteMetadataTimeoutError(
                "Timed out in catching up with the expected offset by consumer."))

    def _damage_at(self, partition: int, offset: int) -> SkippedMetadata | None:
        return next((one for one in tuple(self.skipped)
                     if one.partition == partition and one.next_offset is not None
                     and one.offset <= offset < one.next_offset
                     and isinstance(one.error, CorruptRecordError)), None)

    def close(self) -> None:
        """Ends the task; waiting callers get an error. A second call does nothing."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            waiters = [one for waiters in self._waiters.values() for one in waiters]
            self._waiters.clear()
            for user in self._users.values():
                if user.is_assigned and not user.is_initialized:
                    self._initialized(user)  # so that readers do not wait for it
            self._changed.notify_all()
        for waiter in waiters:
            waiter.future.set_exception(RemoteStorageError("The consumer task has ended."))
        self._transport.wakeup()
