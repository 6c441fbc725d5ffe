"""A RemoteLogManager's tasks and reads over a store and metadata in memory: our side of Tier.java,
which says what its operations are."""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

from seglog.errors import (
    RemoteResourceNotFoundError, RemoteStorageError, RetriableRemoteStorageError,
)
from seglog.log.unified_log import UnifiedLog
from seglog.metrics import MetricsRegistry
from seglog.model import TimestampOffset, TopicPartition
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.index_cache import RemoteIndexCache
from seglog.remote_log.quotas import RemoteQuota
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_reads import RemoteReads
from seglog.remote_log.remote_stats import RemoteStats
from seglog.remote_log.remote_task import FollowerTask, RemoteLogTask, TaskContext
from seglog.storage.isolation import Isolation
from seglog.tiered import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionMetadataStore, TopicIdPartition,
)
from seglog.tiered.remote_records import RemoteLogMetadata
from seglog.tiered.remote_storage import IndexType, LogSegmentData

KEY = TopicPartition("t", 0)
ID = TopicIdPartition((1).to_bytes(8, "big") + (2).to_bytes(8, "big"), "t", 0)
_FAILURES: dict[str, Callable[[str], Exception]] = {
    "storage": RemoteStorageError, "retriable": RetriableRemoteStorageError, "other": RuntimeError}
_COUNTS = {
    "copied": "RemoteCopyRequestsPerSec", "copy_errors": "RemoteCopyErrorsPerSec",
    "copied_bytes": "RemoteCopyBytesPerSec", "deleted": "RemoteDeleteRequestsPerSec",
    "delete_errors": "RemoteDeleteErrorsPerSec"}
_VALUES = {
    "copy_lag": "RemoteCopyLagBytes", "copy_lag_segments": "RemoteCopyLagSegments",
    "metadata_count": "RemoteLogMetadataCount", "remote_bytes": "RemoteLogSizeBytes"}

Json = dict[str, Any]


class _OfAnyTopic(TopicIdPartition):
    """The partition of a log that has no topic id, as Driver.java's has none."""

    __slots__ = ()

    def is_of(self, topic_id: uuid.UUID | None) -> bool:
        return True


_TASKS_KEY = _OfAnyTopic(*ID)


#: Kafka's FetchIsolation in our words.
ISOLATION_OF: dict[str, Isolation] = {
    "LOG_END": "log_end", "HIGH_WATERMARK": "read_uncommitted", "TXN_COMMITTED": "read_committed"}


class Failures:
    """What the next calls raise."""

    def __init__(self) -> None:
        self.next: dict[str, deque[str]] = defaultdict(deque)

    def check(self, call: str) -> None:
        if self.next[call]:
            raise _FAILURES[self.next[call].popleft()](call)


class Storage:
    """Segments in memory."""

    def __init__(self, failures: Failures) -> None:
        self.failures, self.custom = failures, -1
        self.stored: dict[RemoteLogSegmentId, dict[str, bytes]] = {}

    def configure(self, properties: Mapping[str, object]) -> None:
        """It has no settings."""

    def close(self) -> None:
        """Nothing is open."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata,
                              data: LogSegmentData) -> bytes | None:
        files = {"log": data.log_segment, "OFFSET": data.offset_index,
                 "TIMESTAMP": data.time_index, "PRODUCER_SNAPSHOT": data.producer_snapshot_index}
        if data.transaction_index is not None:
            files["TRANSACTION"] = data.transaction_index
        self.stored[metadata.remote_log_segment_id] = {
            **{name: Path(path).read_bytes() for name, path in files.items()},
            "LEADER_EPOCH": data.leader_epoch_index}
        self.failures.check("copy")
        return None if self.custom < 0 else bytes(self.custom)

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, start_position: int,
                          end_position: int | None = None) -> BinaryIO:
        self.failures.check("fetch")
        return io.BytesIO(self._of(metadata, "log")[start_position:])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self.failures.check("index")
        return io.BytesIO(self._of(metadata, index_type.name))

    def _of(self, metadata: RemoteLogSegmentMetadata, name: str) -> bytes:
        found = self.stored.get(metadata.remote_log_segment_id, {}).get(name)
        if found is None:
            raise RemoteResourceNotFoundError(name)
        return found

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.failures.check("delete")
        self.stored.pop(metadata.remote_log_segment_id, None)


class Metadata(RemotePartitionMetadataStore):
    """Metadata in memory, which lookups find at once."""

    def __init__(self, failures: Failures, events: list[RemoteLogMetadata]) -> None:
        super().__init__()
        self.failures, self.events = failures, events
        self.maybe_load_partition(ID)
        for event in events:
            self.handle_remote_log_metadata(event)
        self.mark_initialized(ID)

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        return self._publish("add", metadata)

    def update_remote_log_segment_metadata(
            self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        return self._publish("update", update)

    def _publish(self, call: str, event: RemoteLogMetadata) -> Future[None]:
        done: Future[None] = Future()
        try:
            self.failures.check(call)
        except Exception as error:
            done.set_exception(error)
            return done
        self.publish(event)
        done.set_result(None)
        return done

    def publish(self, event: RemoteLogMetadata) -> None:
        self.events.append(event)
        self.handle_remote_log_metadata(event)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return True


class Tier:
    """The tasks of one log."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.failures, self.events = Failures(), list[RemoteLogMetadata]()
        self.storage, self.told = Storage(self.failures), 0
        self.ids: list[RemoteLogSegmentId] = []
        self.registry = MetricsRegistry()
        self.stats = RemoteStats(self.registry)
        self.indexes: RemoteIndexCache | None = None

    def open(self) -> None:
        driver = self.driver
        self.metadata: Any = Metadata(self.failures, self.events)
        if self.indexes is not None:
            self.indexes.close()
        config = RemoteLogManagerConfig.from_properties(
            {"broker.id": 1, "remote.log.metadata.custom.metadata.max.bytes": 16})
        self.indexes = RemoteIndexCache(str(driver.path.parent), self.storage, 1 << 30, -1,
                                        driver.time)
        self.reads = RemoteReads(self.metadata, self.storage, self.indexes)
        self.context = TaskContext(config, self.metadata, self.storage, lambda key: driver.log,
                                   driver.time, self.stats)
        self.lead()

    def lead(self) -> None:
        quota = RemoteQuota(1 << 62, 11, 1000, self.driver.time)
        self.copying = CopyTask(self.context, _TASKS_KEY, quota)
        self.expiring = ExpirationTask(self.context, _TASKS_KEY)
        self.following = FollowerTask(self.context, _TASKS_KEY)

    def find_offset(self, partition: TopicPartition, timestamp_ms: int,
                    start_offset: int) -> TimestampOffset | None:
        return self.reads.find_offset_by_timestamp(ID, self.driver.log, timestamp_ms, start_offset)

    # ---- operations

    def run(self, op: Json) -> Json | None:
        """What it returned."""
        found: Json | None = getattr(self, f"_{op['op']}")(op)
        return found

    def _lead(self, op: Json) -> None:
        self.lead()

    def _copy(self, op: Json) -> Json:
        return self._run(self.copying)

    def _expire(self, op: Json) -> Json:
        return self._run(self.expiring)

    def _follow(self, op: Json) -> Json:
        return self._run(self.following)

    def _run(self, task: RemoteLogTask) -> Json:
        task.run()
        return self.tell(is_sorted=task is self.expiring)

    def _fail(self, op: Json) -> None:
        self.failures.next[op["call"]].append(op["kind"])

    def _custom(self, op: Json) -> None:
        self.storage.custom = op["bytes"]

    def _other_leader(self, op: Json) -> None:
        self.other_leader(op["state"])

    def _fetch(self, op: Json) -> Json:
        log: UnifiedLog = self.driver.log
        offset, committed = op["offset"], op["isolation"] == "TXN_COMMITTED"
        if log.remote_log_enabled and log.log_start_offset <= offset < log.local_log_start_offset:
            return self.driver.read(self.reads.read(
                ID, log, offset, op["max_bytes"], min_one_message=op["min_one"],
                committed=committed))
        return self.driver.read(log.read(offset, op["max_bytes"], ISOLATION_OF[op["isolation"]],
                                         op["min_one"]))

    def _find(self, op: Json) -> Json:
        found = self.driver.log.offset_for_timestamp(op["ts"])
        return {} if found is None else {
            "timestamp": found.timestamp, "offset": found.offset,
            "epoch": -1 if found.leader_epoch is None else found.leader_epoch}

    def other_leader(self, state: int) -> None:
        log: UnifiedLog = self.driver.log
        with log.lock:
            log.update_files()
            bases = log.segments.base_offsets.tolist()
            if len(bases) < 2:
                return
            base, following = bases[:2]
            epochs = [(one.epoch, one.start_offset) for one in
                      log.leader_epochs.entries_in_range(base, following)]
            segment = log.segments.get(base)
            size, latest = segment.size, segment.largest_timestamp()
            log.segments.release(segment)
            if not epochs or log.producer_manager.fetch_snapshot(following) is None:
                return
        path = self.driver.path
        files = {"log": path / f"{base:020d}.log", "OFFSET": path / f"{base:020d}.index",
                 "TIMESTAMP": path / f"{base:020d}.timeindex",
                 "TRANSACTION": path / f"{base:020d}.txnindex"}
        files = {name: file for name, file in files.items() if file.exists()}
        segment_id, now = RemoteLogSegmentId.generate_new(ID), self.driver.time.milliseconds()
        txn_index = files.get("TRANSACTION")
        self.metadata.publish(RemoteLogSegmentMetadata(
            segment_id, base, following - 1, latest, 2, now, size, epochs,
            txn_idx_empty=txn_index is None or os.path.getsize(txn_index) == 0))
        self.storage.stored[segment_id] = {name: file.read_bytes() for name, file in files.items()}
        for number in range(1, state + 1):
            self.metadata.publish(RemoteLogSegmentMetadataUpdate(
                segment_id, now, None, RemoteLogSegmentState(number), 2))

    # ---- answers

    def _number(self, segment_id: RemoteLogSegmentId) -> int:
        if segment_id not in self.ids:
            self.ids.append(segment_id)
        return self.ids.index(segment_id)

    def text(self, event: Any) -> str:
        custom = -1 if event.custom_metadata is None else len(event.custom_metadata)
        number = self._number(event.remote_log_segment_id)
        if isinstance(event, RemoteLogSegmentMetadata):
            # An empty segment has the time of its file.
            latest = event.max_timestamp_ms if event.segment_size_in_bytes else -1
            epochs = ", ".join(f"{epoch}={offset}" for epoch, offset in event.segment_leader_epochs)
            return (f"{number} {int(event.state)} {event.start_offset}-{event.end_offset} "
                    f"{latest} {event.segment_size_in_bytes} {{{epochs}}} "
                    f"{str(event.txn_idx_empty).lower()} {event.broker_id} "
                    f"{event.event_timestamp_ms} {custom}")
        return (f"{number} {int(event.state)} {event.broker_id} {event.event_timestamp_ms} "
                f"{custom}")

    def tell(self, *, is_sorted: bool) -> Json:
        """Deletions of segments with the same start come in the order of their random ids."""
        log, events = self.driver.log, self.events[self.told:]
        self.told = len(self.events)
        percent = self.expiring._percent or {}
        texts = [self.text(event) for event in events]
        return {
            "events": sorted(texts) if is_sorted else texts, "start": log.log_start_offset,
            "highest": log.highest_offset_in_remote_storage,
            **{key: self._metric(name, "Count") for key, name in _COUNTS.items()},
            **{key: self._metric(name, "Value") for key, name in _VALUES.items()},
            "retentionSizeInPercent": percent.get("RetentionSizeInPercent", 0),
            "localRetentionSizeInPercent": percent.get("LocalRetentionSizeInPercent", 0)}

    def _metric(self, name: str, value: str) -> Any:
        found = self.registry.get(f"kafka.server:type=BrokerTopicMetrics,name={name}")
        assert found is not None, name
        return found.attributes()[value]

    def state(self) -> Json:
        for event in self.events[self.told:]:
            self.text(event)
        live = sorted(map(self.text, self.metadata.list_all_remote_log_segments(ID)))
        stored = {f"{self._number(one)} {name}": f"{len(data)} {hashlib.sha256(data).hexdigest()}"
                  for one, files in self.storage.stored.items() for name, data in files.items()}
        assert self.indexes is not None
        self.indexes.close()
        return {"segments": live, "stored": dict(sorted(stored.items()))}
