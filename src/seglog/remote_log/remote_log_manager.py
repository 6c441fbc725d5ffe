"""The tasks of a tiered LogManager, and its reads (Kafka: RemoteLogManager)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from seglog.config import BrokerConfig
from seglog.errors import (
    ConfigError, OffsetOutOfRangeError, RemoteStorageError, RetriableRemoteStorageError,
    SeglogError, UnknownTopicOrPartitionError,
)
from seglog.forks import ProcessBound, ending
from seglog.log.read import FetchDataInfo
from seglog.log.scheduler import Scheduler, Time
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TimestampOffset, TopicPartition
from seglog.remote_log.auxiliary_state import start_at_remote_end
from seglog.remote_log.cluster_topic import ClusterMetadataTopic
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.embedded_topic import EmbeddedMetadataTopic
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.index_cache import RemoteIndexCache
from seglog.remote_log.metadata_manager import BrokerReadyCallback, RemoteLogMetadataManager
from seglog.remote_log.partition_tasks import PartitionTasks
from seglog.remote_log.plugins import ClassLoaderAwareRemoteLogMetadataManager, load_plugin
from seglog.remote_log.quotas import RemoteQuota
from seglog.remote_log.remote_config import KAFKA_TOPIC_BASED_MANAGER, RemoteLogManagerConfig
from seglog.remote_log.remote_fetch import RemoteFetches, nothing_at
from seglog.remote_log.remote_reads import RemoteReads
from seglog.remote_log.remote_stats import RemoteStats
from seglog.remote_log.remote_task import FollowerTask, TaskContext
from seglog.remote_log.topic_based_manager import TopicBasedRemoteLogMetadataManager
from seglog.storage.isolation import Isolation
from seglog.tiered.remote_records import TopicIdPartition
from seglog.tiered.remote_storage import RemoteStorageManager
from seglog.tiered.segment_states import RemoteLogSegmentState

__all__ = ["RemoteLogManager", "topic_based_manager"]

_logger = logging.getLogger("seglog.RemoteLogManager")

_METADATA_CLASS = "remote.log.metadata.manager.class.name"


def topic_based_manager(manager: LogManager, time: Time) -> TopicBasedRemoteLogMetadataManager:
    """A metadata manager over a cluster's topic if the settings name one, else over logs of
    `manager`."""
    return TopicBasedRemoteLogMetadataManager(
        lambda config: ClusterMetadataTopic(config) if config.has_cluster
        else EmbeddedMetadataTopic(manager, config, time), time=time)


class RemoteLogManager(ProcessBound):
    """Tiers the logs of a LogManager (KIP-405, Kafka: of the same name). Safe from any thread.

        manager = LogManager(config=BrokerConfig.from_properties(properties), scheduler=Scheduler())
        tiering = RemoteLogManager(manager, RemoteLogManagerConfig.from_properties(properties),
                                   storage=storage)
        with manager:
            tiering.on_leadership_change(manager.current_logs)

    It is made before `LogManager.startup`, which calls the metadata manager's ready callback at
    its end, and closed before `LogManager.shutdown`. Tasks work on partitions from
    `on_leadership_change` on. The BrokerConfig needs `remote.log.storage.system.enable=true`.

    `schedulers` (of copies, expirations, followers) run the tasks; without them there are pools of
    threads of the configured sizes. Raises ConfigError.
    """

    def __init__(self, manager: LogManager, config: RemoteLogManagerConfig, *,
                 storage: RemoteStorageManager | None = None,
                 metadata: RemoteLogMetadataManager | None = None, time: Time | None = None,
                 schedulers: tuple[Scheduler, Scheduler, Scheduler] | None = None) -> None:
        self._manager, self.config, self._time = manager, config, time or Time()
        if not isinstance(manager.config, BrokerConfig) or \
                not manager.config.remote_log_storage_system_enable:
            raise ConfigError("Tiered Storage functionality is disabled in the broker: "
                              "remote.log.storage.system.enable is false")
        self.storage = storage or self._load_storage()
        self.metadata = metadata or self._load_metadata()
        self.metadata.configure(config.metadata_properties)
        self.stats = RemoteStats(manager.metrics)
        self.indexes = RemoteIndexCache(
            manager.log_dirs[0], self.storage, config.index_file_cache_total_size_bytes,
            config.index_file_cache_ttl_ms, self._time)
        self._reads = RemoteReads(self.metadata, self.storage, self.indexes)
        self.copy_quota = RemoteQuota(
            config.copy_max_bytes_per_second, config.copy_quota_window_num,
            config.copy_quota_window_size_seconds * 1000, self._time)
        self.fetch_quota = RemoteQuota(
            config.fetch_max_bytes_per_second, config.fetch_quota_window_num,
            config.fetch_quota_window_size_seconds * 1000, self._time)
        self._context = TaskContext(config, self.metadata, self.storage, manager.get_log,
                                    self._time, self.stats)
        self._tasks = PartitionTasks(self._context, self.copy_quota, schedulers)
        self._fetches = RemoteFetches(config, self._reads, self.fetch_quota, self.stats,
                                      manager.metrics)
        self._lock = threading.RLock()
        # Held while partitions are led, followed or stopped: one after the other.
        self._changing = threading.RLock()
        self._topic_ids: dict[TopicPartition, bytes] = {}
        # Leaders (True) and followers, whether tiered or not: a change of settings keeps them.
        self._leads: dict[TopicPartition, bool] = {}
        self._is_closed = False
        self._gauges = self._register_gauges()
        manager.remote_lookups.offset_by_timestamp = self._offset_by_timestamp
        if isinstance(self.metadata, BrokerReadyCallback):
            manager.register_startup_callback(self.metadata.on_broker_ready)

    def _register_gauges(self) -> list[str]:
        metrics = self._manager.metrics
        copies, fetches = self.copy_quota.throttle_times, self.fetch_quota.throttle_times
        return [
            *metrics.group("kafka.log.remote", "RemoteLogManager").gauges(
                {"RemoteLogManagerTasksAvgIdlePercent": self._tasks.copies_idle}, {}),
            *metrics.group("kafka.server", "RemoteLogManager").gauges({
                "remote-copy-throttle-time-avg": copies.average,
                "remote-copy-throttle-time-max": copies.maximum,
                "remote-fetch-throttle-time-avg": fetches.average,
                "remote-fetch-throttle-time-max": fetches.maximum}, {})]

    def _load_storage(self) -> RemoteStorageManager:
        config = self.config
        if config.storage_manager_class_name is None:
            raise ConfigError("remote.log.storage.manager.class.name is not set")
        made: RemoteStorageManager = load_plugin(
            "remote.log.storage.manager.class.name", config.storage_manager_class_name,
            config.storage_manager_class_path)
        made.configure(config.storage_properties)
        return made

    def _load_metadata(self) -> RemoteLogMetadataManager:
        config = self.config
        if config.metadata_manager_class_name == KAFKA_TOPIC_BASED_MANAGER:
            return topic_based_manager(self._manager, self._time)
        made = load_plugin(_METADATA_CLASS, config.metadata_manager_class_name,
                           config.metadata_manager_class_path)
        return ClassLoaderAwareRemoteLogMetadataManager(made)

    # ---- partitions

    def on_leadership_change(self, leaders: Iterable[TopicPartition],
                             followers: Iterable[TopicPartition] = ()) -> None:
        """Tiers the partitions that this process leads from now on, and follows the others'
        metadata. Of partitions that are not tiered it remembers that, for `on_config_change`.

        Raises RemoteStorageError for a log without a topic id, which its metadata needs.
        """
        leads = {**dict.fromkeys(followers, False), **dict.fromkeys(leaders, True)}
        with self._changing:
            self._lead_and_follow(leads)
            self._leads |= leads

    def _lead_and_follow(self, leads: Mapping[TopicPartition, bool]) -> None:
        ours = dict(self._tiered(key for key in leads if leads[key]))
        others = dict(self._tiered(key for key in leads if not leads[key]))
        if not ours and not others:
            return
        # A topic that was deleted and created again has another id.
        replaced = [old for key in (*ours, *others)
                    if (old := self._key_of(_plain(key))) is not None and old != key]
        for old in replaced:
            self._tasks.stop(old, waits=False)
            self.stats.forget(old.topic, old.partition)
        if replaced:
            self.metadata.on_stop_partitions(replaced)
        with self._lock:
            self._topic_ids |= {_plain(key): key.topic_id for key in (*ours, *others)}
        self.metadata.on_partition_leadership_changes(list(ours), list(others))
        for key in others:
            self._tasks.cancel(key, CopyTask, ExpirationTask)
            self.stats.forget(key.topic, key.partition)
            self._tasks.start(FollowerTask, key)
        for key, log in ours.items():
            self._tasks.cancel(key, FollowerTask)
            if log.config.remote_log_copy_disable:
                self._tasks.stop_copying(key)
            else:
                self._tasks.start(CopyTask, key)
            self._tasks.start(ExpirationTask, key)

    def _tiered(self, partitions: Iterable[TopicPartition]
                ) -> Iterable[tuple[TopicIdPartition, UnifiedLog]]:
        for key in partitions:
            log = self._manager.get_log(key)
            if log is not None and log.remote_log_enabled:
                if log.topic_id is None:
                    raise RemoteStorageError(f"{log.path}: the log has no topic id, so that it "
                                             "cannot be tiered")
                yield TopicIdPartition(log.topic_id.bytes, key.topic, key.partition), log

    def on_config_change(self, topic: str) -> None:
        """Call after `LogManager.update_topic_config`: tiering or copying of partitions that are
        led or followed was enabled or disabled.

        If disabled with `remote.log.delete.on.disable`, a log begins at its local segments, and
        the leader deletes its remote ones. Raises what `stop_partitions` raises; repeat the call
        then.
        """
        with self._changing:
            leads = {key: is_leader for key, is_leader in self._leads.items() if key.topic == topic}
            self._lead_and_follow(leads)
            self._stop_untiered(leads)

    def _stop_untiered(self, leads: Mapping[TopicPartition, bool]) -> None:
        stopped: list[TopicPartition] = []
        deleted: list[TopicPartition] = []
        for key, is_leader in leads.items():
            log = self._manager.get_log(key)
            if log is None or self._key_of(key) is None or log.remote_log_enabled:
                continue
            deletes = log.config.remote_log_delete_on_disable
            if deletes:
                log.start_at_local_segments()
            (deleted if deletes and is_leader else stopped).append(key)
        self._stop(stopped, False)
        self._stop(deleted, True)

    def stop_partitions(self, partitions: Iterable[TopicPartition], *,
                        delete_remote_log: bool = False) -> None:
        """Ends the tasks of partitions, and drops their metadata. With `delete_remote_log` all
        their remote segments are deleted first, in this thread; of a partition that is neither led
        nor followed too, if it has a tiered log here.

        A partition that fails is logged, and the others are still stopped. If a deletion fails,
        this raises its error at the end, and the call can be repeated: RetriableRemoteStorageError
        before `is_partition_ready`, else for example RemoteStorageError.
        """
        stopped = list(partitions)
        with self._changing:
            for key in stopped:
                self._leads.pop(key, None)
            self._stop(stopped, delete_remote_log)

    def _stop(self, partitions: Iterable[TopicPartition], delete_remote_log: bool) -> None:
        stopped, failure = [], None
        for key in partitions:
            key_id = self._key_of(key)
            try:
                if key_id is None and delete_remote_log:
                    key_id = self._follow(key)
                if key_id is None:
                    _logger.warning("StopPartition call is not expected for partition: %s", key)
                    continue
                # A copy that ended after the deletion would stay for ever.
                self._tasks.stop(key_id, waits=delete_remote_log)
                self.stats.forget(key.topic, key.partition)
                self._fetches.forget(key)
                if delete_remote_log:
                    self._delete_partition(key_id)
            except Exception as error:
                _logger.error("Error while stopping the partition: %s", key, exc_info=error)
                if delete_remote_log or key_id is None:  # a retry needs the id and the metadata
                    failure = failure or error
                    continue
            stopped.append(key_id)
            with self._lock:
                self._topic_ids.pop(key, None)
        if stopped:
            self.metadata.on_stop_partitions(stopped)
        if failure is not None:
            raise failure

    def _follow(self, key: TopicPartition) -> TopicIdPartition | None:
        """Follows a partition whose remote log is to be deleted, so that its metadata is read. None
        if its log is not tiered. Raises RemoteStorageError if no log tells its topic id. (In Kafka
        the controller gives a broker each partition before its deletion.)"""
        if self._manager.get_log(key) is None:
            raise RemoteStorageError(
                f"No topic id registered for topic partition: {key}, and it has no log here: its "
                "remote log is not deleted; call on_leadership_change before its log is deleted")
        self._lead_and_follow({key: False})
        return self._key_of(key)

    def _delete_partition(self, key: TopicIdPartition) -> None:
        if not self.metadata.is_ready(key):  # it may not list all segments yet
            raise RetriableRemoteStorageError(
                f"{key.topic}-{key.partition}: the remote log metadata is not ready, so that the "
                "remote log cannot be deleted yet")
        segments = sorted(  # the oldest is deleted first: see RemoteReads.read
            self.metadata.list_all_remote_log_segments(key), key=lambda one: one.start_offset)

        def announce(state: RemoteLogSegmentState) -> None:
            for future in [self.metadata.update_remote_log_segment_metadata(
                    self._context.update_of(one, state, one.custom_metadata))
                    for one in segments]:
                future.result()

        announce(RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        for segment in segments:
            self.storage.delete_log_segment_data(segment)
        self.indexes.remove_all(one.remote_log_segment_id.id for one in segments)
        announce(RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)

    def _key_of(self, key: TopicPartition) -> TopicIdPartition | None:
        with self._lock:
            topic_id = self._topic_ids.get(key)
        return None if topic_id is None else TopicIdPartition(topic_id, key.topic, key.partition)

    def is_partition_ready(self, partition: TopicPartition) -> bool:
        """Whether the metadata of a partition is complete."""
        key = self._key_of(partition)
        return key is not None and self.metadata.is_ready(key)

    def start_at_remote_end(self, partition: TopicPartition, *,
                            leader: tuple[int, int] | None = None,
                            log_start_offset: int | None = None) -> int:
        """Removes the local segments, and continues the log after its remote ones with their leader
        epochs and producers (Kafka: TierStateMachine). Returns the next offset.

        For a replica that is created empty, and after the loss of a disk. `leader` is the (epoch,
        offset) before the first local offset of the leader: the log continues after the segment
        that holds it. Without a leader it continues after the newest segment, and begins at the
        first that remote storage has, unless `log_start_offset` or its checkpoint is later.

        Call it before the partition is led: `on_leadership_change((), [partition])`, wait for
        `is_partition_ready`, call this, `on_leadership_change([partition])`. Raises
        RemoteStorageError without such a segment, IllegalStateError if the local log ends later
        and no leader is given, IllegalArgumentError for a start after the next offset, and the
        exceptions of the storage; then nothing has changed.
        """
        log, key = self._tiered_log(partition)
        self.stats.mark("BuildRemoteLogAuxStateRequestsPerSec", key.topic)
        try:
            return start_at_remote_end(self.metadata, self.storage, key, log, leader,
                                       log_start_offset)
        except RemoteStorageError:
            self.stats.mark("BuildRemoteLogAuxStateErrorsPerSec", key.topic)
            raise

    # ---- reads

    def read(self, partition: TopicPartition, offset: int, max_length: int,
             isolation: Isolation = "read_uncommitted", min_one_message: bool = True, *,
             max_wait_ms: int | None = None) -> FetchDataInfo:
        """UnifiedLog.read of a tiered log: records that are not local are read from remote storage.

        Empty while the fetch quota is exhausted, and if remote storage does not answer in
        `max_wait_ms` (`remote.fetch.max.wait.ms`). Raises UnknownTopicOrPartitionError,
        OffsetOutOfRangeError, and the exceptions of remote storage.
        """
        found = self._read_or_submit(partition, offset, max_length, isolation, min_one_message)
        if isinstance(found, Future):
            outcome = self._fetches.in_time({partition: found}, max_wait_ms)[partition]
            if isinstance(outcome, Exception):
                raise outcome
            return nothing_at(offset, isolation) if outcome is None else outcome
        return found

    def fetch(self, offsets: Mapping[TopicPartition, int], max_length: int,
              isolation: Isolation = "read_uncommitted", *, max_wait_ms: int | None = None
              ) -> dict[TopicPartition, FetchDataInfo | Exception]:
        """`read` of many partitions, up to `max_length` of each; remote ones are read at the same
        time, and all of them have `max_wait_ms` together. A partition that fails has its exception.
        """
        found: dict[TopicPartition, FetchDataInfo | Exception] = {}
        waiting: dict[TopicPartition, Future[FetchDataInfo]] = {}
        for partition, offset in offsets.items():
            try:
                one = self._read_or_submit(partition, offset, max_length, isolation, True)
            except SeglogError as error:
                found[partition] = error
            else:
                if isinstance(one, Future):
                    waiting[partition] = one
                else:
                    found[partition] = one
        if waiting:
            for partition, outcome in self._fetches.in_time(waiting, max_wait_ms).items():
                found[partition] = nothing_at(offsets[partition], isolation) \
                    if outcome is None else outcome
        return {partition: found[partition] for partition in offsets}

    def _read_or_submit(self, partition: TopicPartition, offset: int, max_length: int,
                        isolation: Isolation, min_one_message: bool
                        ) -> FetchDataInfo | Future[FetchDataInfo]:
        log = self._log_of(partition)
        if not log.remote_log_enabled or not _is_remote(log, offset):
            try:
                return log.read(offset, max_length, isolation, min_one_message)
            except OffsetOutOfRangeError:
                # Local retention may have deleted the segment meanwhile.
                if not log.remote_log_enabled or not _is_remote(log, offset):
                    raise
        return self.async_read(partition, offset, max_length, isolation, min_one_message)

    def async_read(self, partition: TopicPartition, offset: int, max_length: int,
                   isolation: Isolation = "read_uncommitted",
                   min_one_message: bool = True) -> Future[FetchDataInfo]:
        """Reads remote storage in a reader thread.

        Raises RetriableRemoteStorageError if `remote.log.reader.max.pending.tasks` reads are
        waiting.
        """
        log, key = self._tiered_log(partition)
        return self._fetches.submit(key, log, offset, max_length, isolation, min_one_message)

    def offset_for_timestamp(self, partition: TopicPartition, timestamp_ms: int, *,
                             timeout_ms: int = 30_000) -> TimestampOffset | None:
        """UnifiedLog.offset_for_timestamp in a reader thread, with a time limit.

        Raises RemoteReadTimeoutError, and RetriableRemoteStorageError as `async_read` does.
        """
        return self._fetches.lookup_in_time(self._log_of(partition), timestamp_ms, timeout_ms)

    def async_offset_for_timestamp(self, partition: TopicPartition, timestamp_ms: int
                                   ) -> Future[TimestampOffset | None]:
        """UnifiedLog.offset_for_timestamp in a reader thread. Raises RetriableRemoteStorageError as
        `async_read` does."""
        return self._fetches.submit_lookup(self._log_of(partition), timestamp_ms)

    def _offset_by_timestamp(self, partition: TopicPartition, timestamp_ms: int,
                             start_offset: int) -> TimestampOffset | None:
        log, key = self._tiered_log(partition)
        return self._reads.find_offset_by_timestamp(key, log, timestamp_ms, start_offset)

    def _tiered_log(self, partition: TopicPartition) -> tuple[UnifiedLog, TopicIdPartition]:
        """Raises RemoteStorageError for a log that is not tiered yet, as after its topic was
        created again."""
        log, key = self._log_of(partition), self._key_of(partition)
        if key is None or not key.is_of(log.topic_id):
            raise RemoteStorageError(f"No topic id registered for topic partition: {partition}")
        return log, key

    def _log_of(self, partition: TopicPartition) -> UnifiedLog:
        log = self._manager.get_log(partition)
        if log is None:
            raise UnknownTopicOrPartitionError(f"{partition} has no log here")
        return log

    # ---- settings and end

    def reconfigure(self, properties: Mapping[str, object]) -> None:
        """Changes quotas, the size of the index cache and pools at run time, by Kafka's names.
        Raises ConfigError for a name that cannot be changed, or an invalid value."""
        changes: dict[str, Callable[[Any], object]] = {
            "remote.log.manager.copy.max.bytes.per.second": self.copy_quota.update,
            "remote.log.manager.fetch.max.bytes.per.second": self.fetch_quota.update,
            "remote.log.index.file.cache.total.size.bytes": self.indexes.resize,
            "remote.log.reader.threads": self._fetches.pool.resize,
            **{f"remote.log.manager.{name}.thread.pool.size": partial(self._tasks.resize, name)
               for name in self._tasks.pools}}
        settings = {one.name: one for one in RemoteLogManagerConfig.settings().values()}
        for name in properties:
            if name not in changes:
                raise ConfigError(f"{name} cannot be changed while tiering runs")
        values = {name: settings[name].read(value) for name, value in properties.items()}
        for name, value in values.items():
            changes[name](value)

    @ending
    def close(self) -> None:
        """Ends the tasks; interrupted copies are repeated after the next start. Then closes the
        index cache and both managers. A second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._manager.remote_lookups.offset_by_timestamp = None
        self._tasks.close()
        self._fetches.close()
        self.indexes.close()
        self.metadata.close()
        self.storage.close()
        self.stats.close()
        self._manager.metrics.remove_all(self._gauges)


def _is_remote(log: UnifiedLog, offset: int) -> bool:
    return log.log_start_offset <= offset < log.local_log_start_offset


def _plain(key: TopicIdPartition) -> TopicPartition:
    return TopicPartition(key.topic, key.partition)
