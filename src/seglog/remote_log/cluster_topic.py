"""The metadata topic of a Kafka cluster, through confluent-kafka (extra `[kafka]`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from seglog import forks
from seglog.errors import (
    IllegalStateError, RemoteStorageError, RetriableRemoteStorageError, UnsupportedOperationError,
)
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.remote_log.metadata_transport import ConsumedRecord
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC

__all__ = ["ClusterMetadataTopic"]

_logger = logging.getLogger(__name__)

_POLL_RECORDS = 500
#: Time limit of one request to the cluster; between requests an attempt to initialize checks for a
#: close.
_REQUEST_SECONDS = 5.0
_STEP_SECONDS = 0.1
#: Java's default.api.timeout.ms.
_API_SECONDS = 60.0


def _client_library() -> Any:
    try:
        with forks.imports:
            import confluent_kafka
            import confluent_kafka.admin
    except ImportError as error:
        raise UnsupportedOperationError(
            "A metadata topic of a Kafka cluster needs confluent-kafka: "
            "pip install 'seglog[kafka]'") from error
    return confluent_kafka


class ClusterMetadataTopic:
    """__remote_log_metadata of a Kafka cluster (a MetadataTransport).

    The producer waits for all in-sync replicas and is idempotent; the consumer has no group and
    commits nothing. Settings of the clients are those of librdkafka. Raises
    UnsupportedOperationError without confluent-kafka.
    """

    def __init__(self, config: TopicBasedRemoteLogMetadataManagerConfig) -> None:
        self._config, self._library = config, _client_library()
        self._admin: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        self._pump: threading.Thread | None = None
        self._is_closed = threading.Event()
        # Guards the writes whose delivery is not known yet.
        self._publishing = threading.Lock()
        self._undelivered: set[Future[int]] = set()
        # The consumer is no longer used by any thread once it is closed.
        self._consuming = threading.Lock()

    # ---- the topic

    def partition_count(self) -> int | None:
        """See MetadataTransport."""
        kafka, topic = self._library, REMOTE_LOG_METADATA_TOPIC
        if self._admin is None:
            self._admin = kafka.admin.AdminClient(self._config.client("admin"))
        found = self._wait(self._admin.describe_topics(
            kafka.TopicCollection([topic]), request_timeout=_REQUEST_SECONDS)[topic],
            {kafka.KafkaError.UNKNOWN_TOPIC_OR_PART})
        return None if found is None else len(found.partitions)

    def create_topic(self) -> None:
        """See MetadataTransport."""
        kafka, config = self._library, self._config
        topic = kafka.admin.NewTopic(
            REMOTE_LOG_METADATA_TOPIC, num_partitions=config.metadata_topic_partitions_count,
            replication_factor=config.metadata_topic_replication_factor,
            config=config.topic_configs())
        created = self._admin.create_topics([topic], request_timeout=_REQUEST_SECONDS)
        self._wait(created[REMOTE_LOG_METADATA_TOPIC], {kafka.KafkaError.TOPIC_ALREADY_EXISTS})
        _logger.info("Topic %s created. numPartitions: %d, replicationFactor: %d, config: %s",
                     REMOTE_LOG_METADATA_TOPIC, config.metadata_topic_partitions_count,
                     config.metadata_topic_replication_factor, config.topic_configs())

    def _wait(self, future: Future[Any], accepted: Collection[int]) -> Any:
        """Waits for the answer; None for an accepted error. Ends when the transport is closed."""
        while not self._is_closed.is_set():
            try:
                return future.result(_STEP_SECONDS)
            except FutureTimeoutError:
                continue
            except self._library.KafkaException as error:
                if error.args[0].code() in accepted:
                    return None
                # As Kafka's createTopic: after any error the next attempt asks again.
                raise RetriableRemoteStorageError(str(error.args[0])) from error
        raise RetriableRemoteStorageError("The metadata topic was closed")

    def open(self) -> None:
        """See MetadataTransport."""
        kafka, config = self._library, self._config
        try:
            self._producer = kafka.Producer({
                **config.client("producer"), "acks": "all", "enable.idempotence": True})
            self._consumer = kafka.Consumer({
                "group.id": f"__remote_log_metadata_client_{config.broker_id}",
                **config.client("consumer"), "enable.auto.commit": False,
                "enable.auto.offset.store": False, "auto.offset.reset": "earliest"})
        except kafka.KafkaException as error:
            raise RemoteStorageError(str(error.args[0])) from error
        self._pump = threading.Thread(target=self._deliver, daemon=True,
                                      name=config.client("producer")["client.id"])
        self._pump.start()

    def _deliver(self) -> None:
        """Completes the futures of `publish`."""
        while not self._is_closed.is_set():
            self._producer.poll(_STEP_SECONDS)

    # ---- writing

    def publish(self, partition: int, value: bytes) -> Future[int]:
        """See MetadataTransport."""
        done: Future[int] = Future()

        def delivered(error: Any, message: Any) -> None:
            with self._publishing:
                self._undelivered.discard(done)
            if error is None:
                done.set_result(message.offset())
            else:
                done.set_exception(self._error(error))

        with self._publishing:
            if self._producer is None or self._is_closed.is_set():
                raise IllegalStateError("The metadata topic is not open")
            try:
                self._producer.produce(REMOTE_LOG_METADATA_TOPIC, value, partition=partition,
                                       on_delivery=delivered)
            except self._library.KafkaException as error:
                raise self._error(error.args[0]) from error
            except BufferError as error:
                raise RetriableRemoteStorageError(str(error)) from error
            self._undelivered.add(done)
        return done

    def _error(self, error: Any) -> RemoteStorageError:
        kind = RetriableRemoteStorageError if error.retriable() else RemoteStorageError
        return kind(str(error))

    # ---- reading

    def _partitions(self, positions: Mapping[int, int | None]) -> list[Any]:
        kafka = self._library
        return [kafka.TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition,
                                     kafka.OFFSET_BEGINNING if position is None else position)
                for partition, position in positions.items()]

    def assign(self, positions: Mapping[int, int | None]) -> None:
        """See MetadataTransport."""
        with self._consuming:
            if not self._is_closed.is_set():
                self._consumer.assign(self._partitions(positions))

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """See MetadataTransport."""
        deadline = time.monotonic() + _API_SECONDS
        found: dict[int, tuple[int, int]] = {}
        for one in self._partitions(dict.fromkeys(partitions)):
            while (bounds := self._bounds_of(one, deadline)) is None:
                if self._is_closed.wait(_STEP_SECONDS):
                    return found
            found[one.partition] = bounds
        return found

    def _bounds_of(self, one: Any, deadline: float) -> tuple[int, int] | None:
        """None if a new partition has no leader yet; Java's client also waits."""
        with self._consuming:
            if self._is_closed.is_set():
                return None
            try:
                low, high = self._consumer.get_watermark_offsets(one, timeout=_REQUEST_SECONDS)
            except self._library.KafkaException as error:
                if time.monotonic() < deadline:
                    return None
                raise RetriableRemoteStorageError(str(error.args[0])) from error
        return low, high

    def poll(self, timeout_ms: int) -> Sequence[ConsumedRecord]:
        """See MetadataTransport."""
        found = []
        with self._consuming:
            if self._is_closed.is_set():
                return ()
            messages = self._consumer.consume(_POLL_RECORDS, timeout_ms / 1000)
        for message in messages:
            error = message.error()
            if error is None:
                found.append(ConsumedRecord(message.partition(), message.offset(),
                                            message.value()))
            elif error.fatal():
                raise RemoteStorageError(str(error))
            else:  # the client itself retries
                _logger.warning("Cannot read %s now: %s", REMOTE_LOG_METADATA_TOPIC, error)
        return found

    def wakeup(self) -> None:
        """Does nothing: a poll ends soon by itself."""

    def close(self) -> None:
        """See MetadataTransport."""
        if self._is_closed.is_set():
            return
        if self._producer is not None:
            self._producer.flush(_REQUEST_SECONDS)
        with self._publishing:
            self._is_closed.set()
        if self._pump is not None:
            self._pump.join()
        # No thread completes them any more, and callers may wait for them.
        for undelivered in self._undelivered:
            undelivered.set_exception(RemoteStorageError(
                "The metadata topic was closed before the record was delivered"))
        self._undelivered.clear()
        with self._consuming:
            if self._consumer is not None:
                self._consumer.close()
