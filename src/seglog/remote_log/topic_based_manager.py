"""Remote log metadata in a topic (KIP-405, KIP-1197, Kafka: TopicBasedRemoteLogMetadataManager)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Final

from seglog.errors import (
    IllegalArgumentError, IllegalStateError, RemoteStorageError, RetriableRemoteStorageError,
    SeglogError,
)
from seglog.forks import ProcessBound, ending
from seglog.log.scheduler import ScheduledTask, Scheduler, Time
from seglog.remote_log.consumer_task import ConsumerTask
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.remote_log.metadata_transport import MetadataTransport
from seglog.tiered.metadata_serde import serialize
from seglog.tiered.metadata_store import RemotePartitionMetadataStore
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC, SkippedMetadata
from seglog.tiered.partitioner import RemoteLogMetadataTopicPartitioner
from seglog.tiered.remote_records import (
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["TopicBasedRemoteLogMetadataManager", "TransportFactory"]

_logger = logging.getLogger("seglog.TopicBasedRemoteLogMetadataManager")

#: Creates the transport; called by the first attempt to initialize.
TransportFactory = Callable[[TopicBasedRemoteLogMetadataManagerConfig], MetadataTransport]

_Published = (RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
              | RemotePartitionDeleteMetadata)
_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_THREAD = "RLMMInitializationThread-"


class TopicBasedRemoteLogMetadataManager(ProcessBound):
    """A RemoteLogMetadataManager over the topic __remote_log_metadata. Safe from any thread.

    The topic is not used before `on_broker_ready` (KIP-1197), which returns at once. The
    initialization is tried every `remote.log.metadata.initialization.retry.interval.ms`, for at
    most `remote.log.metadata.initialization.retry.max.timeout.ms` from that call on. Until it
    succeeds, writes and lookups raise RetriableRemoteStorageError. After it failed they raise
    RemoteStorageError with the reason, which `initialization_failure` has too; Kafka ends the
    broker there. Partitions that were assigned before are followed as soon as it succeeds.
    """

    def __init__(self, transport: TransportFactory, *, time: Time | None = None,
                 scheduler: Scheduler | None = None) -> None:
        """`scheduler` runs the attempts, with the clock `time`; without one a separate thread
        does."""
        self._make_transport, self._time = transport, time or Time()
        self._owns_scheduler = scheduler is None
        self._scheduler = scheduler or Scheduler(thread_name_prefix=_THREAD)
        self._store = RemotePartitionMetadataStore()
        self._lock = threading.RLock()
        # Guarded by the lock.
        self._config: TopicBasedRemoteLogMetadataManagerConfig | None = None
        self._partitioner: RemoteLogMetadataTopicPartitioner | None = None
        self._transport: MetadataTransport | None = None
        self._consumer: ConsumerTask | None = None
        self._consumer_thread: threading.Thread | None = None
        self._pending: set[TopicIdPartition] = set()
        self._attempt: ScheduledTask | None = None
        self._ready_ms: int | None = None
        self._topic_exists = False
        self._is_closing = False
        self._failure: RemoteStorageError | None = None

    # ---- start and end

    def configure(self, properties: Mapping[str, object]) -> None:
        """See RemoteLogMetadataManager; a second call does nothing. Raises ConfigError."""
        with self._lock:
            if self._config is not None:
                _logger.info("Skipping configure as it is already configured.")
                return
            self._config = TopicBasedRemoteLogMetadataManagerConfig.from_properties(properties)
            self._partitioner = RemoteLogMetadataTopicPartitioner(
                self._config.metadata_topic_partitions_count)
            _logger.info("Successfully configured topic-based RLMM with config: %s",
                         self._config.to_properties())

    def on_broker_ready(self) -> None:
        """Starts the initialization; a second call does nothing. Raises IllegalStateError before
        `configure`."""
        with self._lock:
            if self._config is None:
                raise IllegalStateError("This instance is not configured")
            if self._ready_ms is not None or self._is_closing:
                return
            self._ready_ms = self._time.milliseconds()
            if self._owns_scheduler:
                self._scheduler.startup()
        _logger.info("Initializing topic-based RLMM resources")
        self._schedule(0)

    def _schedule(self, delay_ms: int) -> None:
        with self._lock:
            if self._is_closing:
                return
            attempt = self._scheduler.schedule_once("rlmm-initialization", self._initialize,
                                                    delay_ms)
            if not attempt.done:  # otherwise it has run, and another one may follow
                self._attempt = attempt

    @property
    def is_initialized(self) -> bool:
        """Whether the topic can be read and written."""
        return self._consumer is not None

    @property
    def initialization_failure(self) -> RemoteStorageError | None:
        """Why the initialization was abandoned, None if it was not."""
        return self._failure

    @property
    def skipped(self) -> tuple[SkippedMetadata, ...]:
        """The last skipped records of the topic, at most 1,000."""
        return () if self._consumer is None else tuple(self._consumer.skipped)

    def _initialize(self) -> None:
        """Makes one attempt."""
        config = self._config
        assert config is not None and self._ready_ms is not None
        with self._lock:
            if self._is_closing or self.is_initialized or self._failure is not None:
                return
        limit = config.initialization_retry_max_timeout_ms
        if self._time.milliseconds() - self._ready_ms > limit:
            self._fail(f"Timed out to initialize the resources within {limit} ms.", None)
            return
        try:
            is_there = self._ensure_topic(config)
            if is_there:
                self._start()
        except RetriableRemoteStorageError as error:
            _logger.warning("Encountered error while querying or creating %s topic: %s",
                            REMOTE_LOG_METADATA_TOPIC, error)
            is_there = False
        except Exception as error:
            self._fail("Encountered error while initializing topic-based RLMM resources: "
                       f"{error}", error)
            return
        if not is_there:
            interval = config.initialization_retry_interval_ms
            _logger.info("Sleep for %d ms before retrying.", interval)
            self._schedule(max(interval, 1))

    def _ensure_topic(self, config: TopicBasedRemoteLogMetadataManagerConfig) -> bool:
        """Creates the topic if necessary. Returns whether it exists with its partitions."""
        if self._transport is None:
            self._transport = self._make_transport(config)
        transport, expected = self._transport, config.metadata_topic_partitions_count
        found = transport.partition_count()
        if found is None and not self._topic_exists:
            _logger.info("Topic %s does not exist", REMOTE_LOG_METADATA_TOPIC)
            transport.create_topic()
            self._topic_exists = True
            found = transport.partition_count()
        if found is None:
            return False
        self._topic_exists = True
        if found != expected:
            raise RemoteStorageError(f"Existing topic partition count {found} is not same as the "
                                     f"expected partition count {expected}")
        return True

    def _start(self) -> None:
        assert self._transport is not None and self._partitioner is not None
        with self._lock:
            if self._is_closing:
                return
            self._transport.open()
            consumer = ConsumerTask(self._store, self._transport, self._partitioner, self._time)
            self._consumer_thread = threading.Thread(target=consumer.run, name="RLMMConsumerTask",
                                                     daemon=True)
            self._consumer_thread.start()
            if self._pending:
                self._assign(consumer, self._pending)
                self._pending = set()
            self._consumer = consumer
        _logger.info("Initialized topic-based RLMM resources successfully")

    def _fail(self, message: str, cause: BaseException | None) -> None:
        _logger.error("%s Remote storage is not available until a restart; everything else is.",
                      message, exc_info=cause)
        failure = RemoteStorageError(message)
        failure.__cause__ = cause
        self._failure = failure

    @ending
    def close(self) -> None:
        """Ends everything; an initialization that waits for its next attempt ends at once. A second
        call does nothing."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            attempt, transport, consumer = self._attempt, self._transport, self._consumer
        _logger.info("Closing topic-based RLMM resources")
        if attempt is not None:
            attempt.cancel()
        if transport is not None and consumer is None:
            transport.close()  # so that a running attempt does not wait for the cluster
        if attempt is not None:
            attempt.join()
        if self._owns_scheduler:
            self._scheduler.shutdown()
        with self._lock:
            transport, consumer = self._transport, self._consumer
        if consumer is not None:
            consumer.close()
            thread = self._consumer_thread
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        if transport is not None:
            transport.close()
        _logger.info("Closed topic-based RLMM resources")

    # ---- partitions

    def on_partition_leadership_changes(self, leaders: Collection[TopicIdPartition],
                                        followers: Collection[TopicIdPartition]) -> None:
        """See RemoteLogMetadataManager. Raises IllegalStateError after `close`."""
        with self._lock:
            self._check_not_closing()
            wanted = {*leaders, *followers}
            if self._consumer is None:
                self._pending |= wanted
            else:
                self._assign(self._consumer, wanted)

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """See RemoteLogMetadataManager. Raises IllegalStateError after `close`."""
        with self._lock:
            self._check_not_closing()
            if self._consumer is None:
                self._pending -= set(partitions)
            else:
                self._consumer.remove_assignments(partitions)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """See RemoteLogMetadataManager."""
        return self._store.is_initialized(partition)

    def _assign(self, consumer: ConsumerTask, partitions: Collection[TopicIdPartition]) -> None:
        for partition in partitions:
            self._store.maybe_load_partition(partition)
        consumer.add_assignments(partitions)

    def _check_not_closing(self) -> None:
        if self._is_closing:
            raise IllegalStateError("This instance is in closing state")

    # ---- events

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        """See RemoteLogMetadataManager."""
        self._working()
        if metadata.state != _STARTED:
            raise IllegalArgumentError(
                f"Given remoteLogSegmentMetadata should have state as {_STARTED.name} but it "
                f"contains state as: {metadata.state.name}")
        return self._publish(metadata)

    def update_remote_log_segment_metadata(
            self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        """See RemoteLogMetadataManager."""
        self._working()
        if update.state == _STARTED:
            raise IllegalArgumentError("Given remoteLogSegmentMetadataUpdate should not have the "
                                       f"state as: {_STARTED.name}")
        return self._publish(update)

    def put_remote_partition_delete_metadata(
            self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        """See RemoteLogMetadataManager."""
        return self._publish(metadata)

    def _publish(self, metadata: _Published) -> Future[None]:
        """Writes an event. Its future completes when the consumer has read it back."""
        consumer = self._working()
        assert (self._partitioner is not None and self._transport is not None
                and self._config is not None)
        _logger.debug("Storing the partition: %s metadata: %s", metadata.topic_id_partition,
                      metadata)
        partition = self._partitioner.metadata_partition(metadata.topic_id_partition)
        wait_ms = self._config.consume_wait_ms
        done: Future[None] = Future()

        def written(sent: Future[int]) -> None:
            error = sent.exception()
            if error is None:
                consumer.wait_until_consumed(partition, sent.result(), wait_ms
                                             ).add_done_callback(read_back)
            else:
                done.set_exception(_as_storage_error(error))

        def read_back(waited: Future[None]) -> None:
            error = waited.exception()
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._transport.publish(partition, serialize(metadata)).add_done_callback(written)
        return done

    # ---- answers

    def remote_log_segment_metadata(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """See RemoteLogMetadataManager."""
        self._working()
        return self._store.remote_log_segment_metadata(partition, leader_epoch, offset)

    def next_segment_with_txn_index(self, partition: TopicIdPartition, leader_epoch: int,
                                    offset: int) -> RemoteLogSegmentMetadata | None:
        """See RemoteLogMetadataManager."""
        self._working()
        return self._store.next_segment_with_txn_index(partition, leader_epoch, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> int | None:
        """See RemoteLogMetadataManager."""
        self._working()
        return self._store.highest_offset_for_epoch(partition, leader_epoch)

    def list_all_remote_log_segments(self, partition: TopicIdPartition
                                     ) -> list[RemoteLogSegmentMetadata]:
        """See RemoteLogMetadataManager."""
        self._working()
        return self._store.list_all_remote_log_segments(partition)

    def list_remote_log_segments(self, partition: TopicIdPartition,
                                 leader_epoch: int) -> list[RemoteLogSegmentMetadata]:
        """See RemoteLogMetadataManager."""
        self._working()
        return self._store.list_remote_log_segments(partition, leader_epoch)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """See RemoteLogMetadataManager. Uses the store even before the initialization."""
        return sum(one.segment_size_in_bytes
                   for one in self._store.list_remote_log_segments(partition, leader_epoch))

    def _working(self) -> ConsumerTask:
        """The consumer. Raises RetriableRemoteStorageError before there is one, RemoteStorageError
        if there will be none."""
        consumer = self._consumer
        if self._is_closing:
            raise IllegalStateError("This instance is in invalid state, initialized: "
                                    f"{str(consumer is not None).lower()} close: true")
        if self._failure is not None:
            raise RemoteStorageError(str(self._failure)) from self._failure
        if consumer is None:
            raise RetriableRemoteStorageError(
                "This instance is in invalid state, initialized: false close: false; "
                + ("the initialization is under way" if self._ready_ms is not None
                   else "the broker is not ready yet"))
        if consumer.failure is not None:
            raise RemoteStorageError(
                f"The consumer of {REMOTE_LOG_METADATA_TOPIC} has ended: {consumer.failure}"
            ) from consumer.failure
        return consumer


def _as_storage_error(error: BaseException) -> BaseException:
    """The exception for a failed write that KIP-405's interface declares."""
    if isinstance(error, RemoteStorageError) or not isinstance(error, SeglogError):
        return error
    found = RemoteStorageError(str(error))
    found.__cause__ = error
    return found
