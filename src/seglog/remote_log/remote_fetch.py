"""Fetches and lookups by time of tiered logs, in reader threads and with a time limit (Kafka:
RemoteLogManager.asyncRead, asyncOffsetRead, RemoteLogReader, DelayedRemoteFetch)."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from seglog._native.fetch import LogOffsetMetadata
from seglog.errors import (
    IllegalArgumentError, OffsetOutOfRangeError, RemoteReadTimeoutError, SeglogError,
)
from seglog.log.read import FetchDataInfo
from seglog.log.stats import partition_tags
from seglog.log.unified_log import UnifiedLog
from seglog.metrics import MetricsRegistry
from seglog.model import TimestampOffset, TopicPartition
from seglog.remote_log.quotas import RemoteQuota
from seglog.remote_log.reader_pool import ReaderPool
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_reads import RemoteReads
from seglog.remote_log.remote_stats import RemoteStats
from seglog.storage.isolation import Isolation, check_isolation
from seglog.tiered.remote_records import TopicIdPartition

__all__ = ["RemoteFetches", "nothing_at"]

_READER = "RemoteLogReaderFetchRateAndTimeMs"
_EXPIRES = "ExpiresPerSec"
_FETCHES, _LOOKUPS = "DelayedRemoteFetchMetrics", "DelayedRemoteListOffsetsMetrics"


class RemoteFetches:
    """Reads of one broker's tiered logs. Safe from any thread."""

    def __init__(self, config: RemoteLogManagerConfig, reads: RemoteReads, quota: RemoteQuota,
                 stats: RemoteStats, metrics: MetricsRegistry) -> None:
        self._config, self._reads, self._quota, self._stats = config, reads, quota, stats
        self._metrics = metrics
        self.pool = ReaderPool(config.reader_threads, config.reader_max_pending_tasks, metrics)
        self._timer = metrics.group("kafka.log.remote", "RemoteLogManager").timer(_READER)
        self._expired = {kind: metrics.group("kafka.server", kind).meter(_EXPIRES, "requests")
                         for kind in (_FETCHES, _LOOKUPS)}
        self._expired_partitions: set[TopicPartition] = set()

    # ---- by offset

    def submit(self, key: TopicIdPartition, log: UnifiedLog, offset: int, max_length: int,
               isolation: Isolation, min_one_message: bool) -> Future[FetchDataInfo]:
        """Reads remote storage in a reader thread. Empty while the fetch quota is exhausted.

        Raises RetriableRemoteStorageError if too many reads wait, and what UnifiedLog.read raises
        for a wrong `max_length` or `isolation`.
        """
        check_isolation(isolation)
        if max_length < 0:
            raise IllegalArgumentError(f"Invalid max size {max_length} for log read of "
                                       f"{key.topic}-{key.partition}")
        throttle_ms = self._quota.throttle_ms()
        if throttle_ms > 0:
            self._quota.throttle_times.record(throttle_ms)
            throttled: Future[FetchDataInfo] = Future()
            throttled.set_result(nothing_at(offset, isolation))
            return throttled
        future = self.pool.submit(f"{key.topic}-{key.partition}", partial(
            self._read, key, log, offset, max_length, isolation, min_one_message))
        self._stats.mark("RemoteFetchRequestsPerSec", key.topic)
        return future

    def _read(self, key: TopicIdPartition, log: UnifiedLog, offset: int, max_length: int,
              isolation: Isolation, min_one_message: bool) -> FetchDataInfo:
        try:
            with self._timer.time():
                found = self._reads.read(
                    key, log, offset, max_length, committed=isolation == "read_committed",
                    min_one_message=min_one_message)
        except OffsetOutOfRangeError:
            raise  # the caller's error
        except Exception:
            self._stats.mark("RemoteFetchErrorsPerSec", key.topic)
            raise
        self._quota.record(len(found.records))
        self._stats.mark("RemoteFetchBytesPerSec", key.topic, len(found.records))
        return found

    def in_time(self, futures: Mapping[TopicPartition, Future[FetchDataInfo]],
                max_wait_ms: int | None) -> dict[TopicPartition, FetchDataInfo | Exception | None]:
        """The outcome of each read; None for those that did not end in time. A read that waits for
        a thread is cancelled then; one that runs continues, and its result is dropped.

        `max_wait_ms` is `remote.fetch.max.wait.ms` if None.
        """
        limit_ms = self._config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms
        waiting = _unfinished(futures.values(), limit_ms / 1000)
        for future in waiting:
            future.cancel()
        if waiting:
            self._expired[_FETCHES].mark()
        return {key: None if future in waiting else _outcome(future)
                for key, future in futures.items()}

    # ---- by time

    def submit_lookup(self, log: UnifiedLog, timestamp_ms: int) -> Future[TimestampOffset | None]:
        """UnifiedLog.offset_for_timestamp in a reader thread. Raises RetriableRemoteStorageError if
        too many reads wait."""
        return self.pool.submit(str(log.topic_partition),
                                partial(log.offset_for_timestamp, timestamp_ms))

    def lookup_in_time(self, log: UnifiedLog, timestamp_ms: int, timeout_ms: int
                       ) -> TimestampOffset | None:
        """The lookup's answer. Raises RemoteReadTimeoutError after `timeout_ms`, and SeglogError if
        `close` ends it."""
        begun = time.monotonic()
        future = self.submit_lookup(log, timestamp_ms)
        if not _unfinished([future], timeout_ms / 1000):
            found: TimestampOffset | Exception | None = _outcome(future)
            if isinstance(found, Exception):
                raise found
            return found
        future.cancel()
        partition = log.topic_partition
        self._expired[_LOOKUPS].mark()
        self._metrics.group("kafka.server", _LOOKUPS).meter(
            _EXPIRES, "requests", partition_tags(partition)).mark()
        self._expired_partitions.add(partition)
        raise RemoteReadTimeoutError(
            f"{partition}: no offset was found for time {timestamp_ms} in "
            f"{round(1000 * (time.monotonic() - begun))} ms, of {timeout_ms}")

    # ---- end

    def forget(self, partition: TopicPartition) -> None:
        """Removes the metrics of a partition."""
        if partition in self._expired_partitions:
            self._expired_partitions.discard(partition)
            self._metrics.group("kafka.server", _LOOKUPS).remove(
                _EXPIRES, partition_tags(partition))

    def close(self) -> None:
        """Cancels waiting reads, waits for running ones, and removes all metrics."""
        self.pool.close()
        for partition in list(self._expired_partitions):
            self.forget(partition)
        for kind in self._expired:
            self._metrics.group("kafka.server", kind).remove(_EXPIRES)
        self._metrics.group("kafka.log.remote", "RemoteLogManager").remove(_READER)


def nothing_at(offset: int, isolation: Isolation) -> FetchDataInfo:
    """The answer of a read that was throttled or not done in time."""
    return FetchDataInfo(LogOffsetMetadata(offset), b"", False,
                         [] if isolation == "read_committed" else None)


def _unfinished(futures: Collection[Future[Any]], seconds: float) -> set[Future[Any]]:
    """Those that are not done in time. (`concurrent.futures.wait` does not see the end of one that
    is cancelled before a thread takes it, and so would wait for nothing after `close`.)"""
    deadline = time.monotonic() + seconds
    for future in futures:
        ended = threading.Event()
        future.add_done_callback(lambda _, ended=ended: ended.set())  # type: ignore[misc]
        ended.wait(min(max(deadline - time.monotonic(), 0), threading.TIMEOUT_MAX))
    return {future for future in futures if not future.done()}


def _outcome(future: Future[Any]) -> Any:
    """The result, or the exception."""
    if future.cancelled():
        return SeglogError("the read was cancelled: the RemoteLogManager was closed")
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, Exception):
        return error
    raise error
