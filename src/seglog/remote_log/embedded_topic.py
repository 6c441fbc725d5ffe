"""The metadata topic as logs of seglog's own LogManager."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import pairwise

from seglog._native.fetch import LogOffsetMetadata
from seglog.arrow.batch_bytes import decode_chunk
from seglog.errors import (
    CorruptDataError, CorruptRecordError, KafkaStorageError, OffsetOutOfRangeError,
    RemoteStorageError, RetriableRemoteStorageError, SeglogError,
)
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.scheduler import Time
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.remote_log.metadata_transport import ConsumedRecord
from seglog.storage.stream import DecodeOptions
from seglog.tiered.metadata_topic import REMOTE_LOG_METADATA_TOPIC

__all__ = ["EmbeddedMetadataTopic"]

_logger = logging.getLogger(__name__)

#: Bytes that one poll reads of one partition, unless a single batch is larger.
_POLL_BYTES = 1 << 20
_COLUMNS = DecodeOptions(columns=("offset", "value"))


class EmbeddedMetadataTopic:
    """The partitions of __remote_log_metadata as logs of a LogManager (a MetadataTransport).

    A record is durable before its future is done: there are no replicas, and a lost event could be
    the only trace of a segment that is no longer on this disk. `min.insync.replicas` is set as
    Kafka sets it and has no effect here.

    The constructor sets the topic's settings without opening a log, so that retention does not
    delete metadata before the manager is ready.
    """

    def __init__(self, logs: LogManager, config: TopicBasedRemoteLogMetadataManagerConfig,
                 time: Time) -> None:
        self._logs, self._config, self._time = logs, config, time
        self._news = threading.Condition()
        self._is_woken = self._is_closed = False
        self._positions: dict[int, int | None] = {}
        # Partitions that cannot be read now, as when their disk has failed.
        self._failing: set[int] = set()
        if not logs.topic_config(REMOTE_LOG_METADATA_TOPIC).overridden_configs:
            logs.update_topic_config(REMOTE_LOG_METADATA_TOPIC, config.topic_configs())

    def _key(self, partition: int) -> TopicPartition:
        return TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition)

    # ---- the topic

    def partition_count(self) -> int | None:
        """See MetadataTransport. Partitions of an interrupted creation count as absent while all of
        them are empty."""
        self._check_settings()
        with _retriable("look up"):
            found: list[UnifiedLog] = []
            while (log := self._logs.get_log(self._key(len(found)))) is not None:
                found.append(log)
            if len(found) < self._config.metadata_topic_partitions_count and not any(
                    log.log_end_offset for log in found):
                return None
            return len(found)

    def _check_settings(self) -> None:
        found = self._logs.topic_config(REMOTE_LOG_METADATA_TOPIC)
        wrong = {"cleanup.policy": (",".join(found.cleanup_policy), found.compact, "delete"),
                 "remote.storage.enable": ("true", found.remote_storage_enable, "false")}
        for name, (value, is_wrong, expected) in wrong.items():
            if is_wrong:
                raise RemoteStorageError(
                    f"The topic {REMOTE_LOG_METADATA_TOPIC} has {name}={value}, expected "
                    f"{expected}: it would lose metadata")
        retention, limit = self._config.metadata_topic_retention_ms, found.retention_bytes
        if found.retention_ms != retention or limit >= 0:
            _logger.warning(
                "The topic %s has retention.ms=%d and retention.bytes=%d, expected %d and -1: "
                "metadata of segments that still exist may be deleted",
                REMOTE_LOG_METADATA_TOPIC, found.retention_ms, limit, retention)

    def create_topic(self) -> None:
        """Creates missing logs."""
        count = self._config.metadata_topic_partitions_count
        first = self._logs.get_log(self._key(0))
        topic_id = uuid.uuid4() if first is None or first.topic_id is None else first.topic_id
        with _retriable("create"):
            for partition in range(count):
                self._logs.get_or_create_log(self._key(partition), topic_id=topic_id)
        _logger.info("Topic %s created. TopicId: %s, numPartitions: %d, config: %s",
                     REMOTE_LOG_METADATA_TOPIC, topic_id, count, self._config.topic_configs())

    def open(self) -> None:
        """Makes the records of an earlier process visible, and durable first: a crash came perhaps
        before its sync, and segments of which an event says that they are copied are deleted."""
        with _retriable("open"):
            for partition in range(self._config.metadata_topic_partitions_count):
                log = self._log(partition)
                log.flush()
                log.update_high_watermark(log.log_end_offset)

    def close(self) -> None:
        """Ends a waiting poll; the logs belong to the manager."""
        self._is_closed = True
        self.wakeup()

    def _log(self, partition: int) -> UnifiedLog:
        log = self._logs.get_log(self._key(partition))
        if log is None:
            raise RetriableRemoteStorageError(f"{self._key(partition)} has no log here")
        return log

    # ---- writing

    def publish(self, partition: int, value: bytes) -> Future[int]:
        """See MetadataTransport. The future is done when this returns."""
        done: Future[int] = Future()
        try:
            log = self._log(partition)
            builder = RecordBatchBuilder()
            builder.append(self._time.milliseconds(), None, value)
            latest = log.leader_epochs.latest
            offset = log.append_as_leader(
                builder.build(), 0 if latest is None else latest.epoch).last_offset
            log.flush()
            # Not to the log's end, which others may have moved and not flushed yet; and never down.
            log.maybe_increment_high_watermark(LogOffsetMetadata(offset + 1))
        except SeglogError as error:
            done.set_exception(error)
            return done
        done.set_result(offset)
        self.wakeup()
        return done

    # ---- reading

    def assign(self, positions: Mapping[int, int | None]) -> None:
        """See MetadataTransport."""
        self._positions = dict(positions)

    def bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """See MetadataTransport."""
        found = {}
        for partition in partitions:
            with suppress(RetriableRemoteStorageError), _retriable("read"):
                log = self._log(partition)
                found[partition] = log.log_start_offset, log.high_watermark
        return found

    def poll(self, timeout_ms: int) -> Sequence[ConsumedRecord]:
        """See MetadataTransport."""
        if not (found := self._take()):
            with self._news:
                if not self._is_woken and not self._is_closed:
                    self._news.wait(timeout_ms / 1000)
                self._is_woken = False
            found = self._take()
        return found

    def wakeup(self) -> None:
        """See MetadataTransport."""
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def _take(self) -> list[ConsumedRecord]:
        found: list[ConsumedRecord] = []
        for partition in self._positions:
            try:
                with _retriable("read"):
                    found += self._read(partition)
                self._failing.discard(partition)
            except RetriableRemoteStorageError as error:
                # If the LogManager was shut down first there is no more to read until `close`.
                if partition not in self._failing and self._logs.is_running:
                    _logger.warning("Cannot read %s now: %s", self._key(partition), error)
                self._failing.add(partition)
        return found

    def _read(self, partition: int) -> list[ConsumedRecord]:
        """The next records. Offsets between them that are damaged or absent become one that has the
        error; so do those up to the next segment if no record can be read."""
        log, position = self._log(partition), self._positions[partition]
        position = following = max(position or 0, log.log_start_offset)
        if position >= log.high_watermark:
            return []
        damage: list[CorruptDataError] = []
        found: list[ConsumedRecord] = []
        rows: list[tuple[int, bytes | None]] = []
        before = 0  # of the damage, how much comes before the last row
        for row in self._rows(log, position, damage):
            rows.append(row)
            before = len(damage)
        is_after = len(damage) > before
        end = log.high_watermark  # as of now, so that no row is after it
        for (offset, value), (after, _) in pairwise([*rows, (end, None)]):
            # A batch's CRC does not cover its offset: one that is not between its neighbours' is
            # damaged.
            if following <= offset < (after if after > following else end):
                if offset > following:
                    found.append(_lost(log, partition, following, offset, damage))
                found.append(ConsumedRecord(partition, offset, value))
                following = offset + 1
            elif position <= offset < following:
                found.append(ConsumedRecord(partition, following - 1, None, CorruptRecordError(
                    f"{log.path}: offset {offset} comes after {following - 1}", file=log.path),
                    offset))
        if following == position:
            with log.lock:
                bases = log.segments.base_offsets.tolist()
            following = min([end, *(base for base in bases if base > position)])
            found.append(_lost(log, partition, position, following, damage))
        elif following == end and damage:
            # All offsets are there. After the last one are bytes of one that is there twice, else
            # of a write that was cut, in whose place others were written.
            found.append(_lost(log, partition, end - 1 if is_after else end, end, damage))
        self._positions[partition] = following
        return found

    def _rows(self, log: UnifiedLog, position: int, damage: list[CorruptDataError]
              ) -> Iterator[tuple[int, bytes | None]]:
        """Offsets and values from `position` on; adds what cannot be read to `damage`."""
        try:
            data = log.read(position, _POLL_BYTES, "read_uncommitted").records
        except OffsetOutOfRangeError as error:  # retention deleted it: continues at the new start
            raise RetriableRemoteStorageError(str(error)) from error
        except CorruptDataError as error:
            damage.append(error)
            return
        for columns in decode_chunk(data, _COLUMNS, name=str(log.topic_partition),
                                    on_bad=lambda bad: damage.append(bad.error)):
            rows = columns.to_pylists()
            yield from zip(rows["offset"], rows["value"], strict=True)


def _lost(log: UnifiedLog, partition: int, first: int, end: int, damage: list[CorruptDataError]
          ) -> ConsumedRecord:
    """Stands for offsets [first, end), for the first reason in `damage`, which is then empty."""
    error = damage[0] if damage else CorruptRecordError(
        f"{log.path}: offsets {first} to {end - 1} are absent", file=log.path)
    damage.clear()
    return ConsumedRecord(partition, end - 1, None, error, first)


@contextmanager
def _retriable(action: str) -> Iterator[None]:
    """Turns an I/O error of a directory into an error that the caller may retry."""
    try:
        yield
    except KafkaStorageError as error:
        raise RetriableRemoteStorageError(
            f"Cannot {action} {REMOTE_LOG_METADATA_TOPIC}: {error}") from error
