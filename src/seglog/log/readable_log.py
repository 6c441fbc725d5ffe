"""The read-only part of a log: offsets, reads, producers (Kafka: UnifiedLog)."""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from seglog._native.fetch import LogOffsetMetadata
from seglog._native.log_lock import LogLock
from seglog._native.batch import scan
from seglog.arguments import int64
from seglog.config import LogConfig
from seglog.forks import ProcessBound
from seglog.log.context import LogContext
from seglog.log.follower_queue import Followers
from seglog.log.leader_epoch_cache import LeaderEpochCache
from seglog.log.local_log import LocalLog
from seglog.log.local_reads import LocalReads
from seglog.log.old_segments import OldSegments
from seglog.log.topic_id import LogTopicId
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.log.read import FetchDataInfo, LogReads
from seglog.log.readers import LogReaders
from seglog.log.active_segment import ActiveSegment
from seglog.log.offsets_by_timestamp import OffsetsByTimestamp
from seglog.log.stats import BrokerTopicStats
from seglog.log.verification_guard import VerificationGuard
from seglog.log.watermarks import Watermarks
from seglog.model import AbortedTxn, ProducerStateEntry, TimestampOffset, TopicPartition
from seglog.recovery.deferred_checks import DeferredChecks
from seglog.recovery.disk import Disk
from seglog.recovery.loaded import log_state, state_without_files
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.storage.batches import FetchData
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.isolation import Isolation
from seglog.storage.meta import format_uuid
from seglog.storage.paths import DirectoryKind
from seglog.storage.producer_state import ProducerState
from seglog.storage.segment_table import total_bytes

__all__ = ["LastRecord", "ReadableLog", "described"]


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The offset of a producer's last record (None if only a marker is known), and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


def described(path: str, key: TopicPartition, topic_id: uuid.UUID | None, high_watermark: int,
              last_stable_offset: int, log_start_offset: int, log_end_offset: int) -> str:
    """A log in Kafka's text form (UnifiedLog.toString)."""
    id_text = "" if topic_id is None else f", topicId={format_uuid(topic_id)}"
    return (f"Log(dir={path}{id_text}, topic={key.topic}, partition={key.partition}, "
            f"highWatermark={high_watermark}, lastStableOffset={last_stable_offset}, "
            f"logStartOffset={log_start_offset}, logEndOffset={log_end_offset})")


class ReadableLog(ProcessBound):
    """The methods of a UnifiedLog that change nothing. UnifiedLog creates the parts."""

    _has_lock = True

    context: LogContext
    topic_partition: TopicPartition
    lock: LogLock
    disk: Disk
    #: The segments as columns; see `update_files`.
    segments: LoadedSegments
    readers: LogReaders
    followers: Followers
    leader_epochs: LeaderEpochs
    producer_manager: ProducerStateManager
    _local: LocalLog
    _local_reads: LocalReads
    _watermarks: Watermarks
    _epochs: LeaderEpochCache
    _metadata: LogTopicId
    _reads: LogReads
    _offsets_by_timestamp: OffsetsByTimestamp
    _old_segments: OldSegments

    # ---- what it is ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return described(self.path, self.topic_partition, self.topic_id, self.high_watermark,
                         self.last_stable_offset, self.log_start_offset, self.log_end_offset)

    @property
    def path(self) -> str:
        """The path of its directory."""
        return self._local.path

    @property
    def parent_dir(self) -> str:
        """The data directory that the log is in."""
        return self._local.parent_dir

    @property
    def truncations(self) -> int:
        """The number of truncations."""
        return self._local.truncations

    @property
    def segment_truncations(self) -> int:
        """The number of truncations that removed whole segments."""
        return self._local.segment_truncations

    @property
    def active(self) -> ActiveSegment:
        """The active segment."""
        return self._local.active

    @property
    def config(self) -> LogConfig:
        """The settings."""
        return self._local.config

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, deleted or abandoned."""
        return self._local.files.is_closed

    @property
    def is_future(self) -> bool:
        """Whether it will replace another directory's log."""
        return self.path.endswith(DirectoryKind.FUTURE.value)

    @property
    def number_of_segments(self) -> int:
        """The number of segments, including the active one."""
        return len(self._local.segments)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._local.size()

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The id of its topic; None if it has none."""
        return self._metadata.topic_id

    @property
    def producers(self) -> ProducerState:
        """The state of the producers at the log's end, which appends change: for the thread that
        holds `lock`. `active_producers` is for any thread."""
        return self.producer_manager.state

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""
        return self._watermarks.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset of the segments on this disk."""
        return self._watermarks.local_log_start_offset

    @property
    def remote_log_enabled(self) -> bool:
        """Whether segments of the log may be in remote storage."""
        return self._local.remote_log_enabled

    @property
    def highest_offset_in_remote_storage(self) -> int:
        """The last offset in remote storage that is known; -1 for none."""
        return self._watermarks.highest_offset_in_remote_storage

    def only_local_segments(self) -> tuple[int, int]:
        """(count, bytes) of the segments that are not in remote storage yet
        (UnifiedLog.onlyLocalLogSegmentsCount, onlyLocalLogSegmentsSize)."""
        with self.lock:
            self._local.update_files()
            segments = self.segments
            rows = segments.base_offsets >= self.highest_offset_in_remote_storage
            return int(rows.sum()), total_bytes(segments.log_size[rows])

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._local.log_end_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The log's end, with the segment and byte position of the next batch."""
        return self._local.end_metadata

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is durable."""
        return self._local.recovery_point

    @property
    def last_flush_ms(self) -> int:
        """When the log was last flushed, in ms."""
        return self._local.last_flush_ms

    @property
    def high_watermark(self) -> int:
        """The offset below which records are replicated and visible to consumers."""
        return self._watermarks.high_watermark

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or ended above the high
        watermark."""
        return self._watermarks.first_unstable_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open, at most the high watermark."""
        return self._watermarks.last_stable_offset

    @property
    def retention_size_in_percent(self) -> int:
        """The log's size in percent of its limit, at the last run of retention."""
        return self._old_segments.size_in_percent

    @property
    def deferred_checks(self) -> DeferredChecks | None:
        """The checks that the load deferred (KIP-263); None if it made all."""
        return self._local.files.deferred_checks

    @deferred_checks.setter
    def deferred_checks(self, checks: DeferredChecks | None) -> None:
        self._local.files.deferred_checks = checks

    def now_ms(self) -> int:
        """The time of the log's clock."""
        return self._local.now_ms()

    def guarded(self, message: str, *, reads: bool = False) -> AbstractContextManager[None]:
        """See LocalLog."""
        return self._local.guarded(message, reads=reads)

    def check_open(self) -> None:
        """Raises KafkaStorageError if the log was closed or deleted."""
        self._local.check_open()

    def check_current(self) -> None:
        """Raises KafkaStorageError also if another log has replaced this one: changes would be
        lost."""
        self._local.check_current()

    @property
    def stats(self) -> BrokerTopicStats | None:
        """The meters of its appends; None if it has no metrics."""
        return self.context.stats

    # ---- offsets with positions ---------------------------------------------------------------

    def fetch_offset_snapshot(self) -> tuple[int, LogOffsetMetadata, LogOffsetMetadata,
                                             LogOffsetMetadata]:
        """(log start offset, log end, high watermark, last stable offset), with positions."""
        stable = self._watermarks.fetch_last_stable_offset_metadata()
        high = self._watermarks.fetch_high_watermark_metadata()
        return self.log_start_offset, self.log_end_offset_metadata, high, stable

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """The position of the batch with `offset`, or of the next one. Raises
        OffsetOutOfRangeError."""
        with self.lock, self.guarded(f"Exception while reading from {self.topic_partition}"):
            self.check_open()
            return self._local_reads.convert_to_offset_metadata(int64("offset", offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch at or below `epoch`, its end offset); None if that is unknown."""
        with self.lock:
            return self._epochs.end_offset_for(int64("epoch", epoch))

    # ---- reading ------------------------------------------------------------------------------

    def read(self, start_offset: int, max_length: int,
             isolation: Isolation = "log_end",
             min_one_message: bool = True) -> FetchDataInfo:
        """Up to `max_length` bytes from the batch that holds `start_offset`, but nothing beyond the
        bound of `isolation`; with `min_one_message` at least that whole batch (UnifiedLog.read).

        Takes no lock, unless files are being changed. Raises OffsetOutOfRangeError,
        IllegalArgumentError for a negative `max_length`, CorruptRecordError if the headers on the
        way cannot be followed, KafkaStorageError.
        """
        return self._reads.read(start_offset, max_length, isolation, min_one_message)

    def fetch(self, start_offset: int, max_bytes: int,
              isolation: Isolation = "read_uncommitted") -> FetchData:
        """See LogReader; `read` has the signature of Kafka's UnifiedLog."""
        while True:
            # Even: a truncation that has begun counts too.
            generation = self.readers.generation & ~1
            start, bound = self.log_start_offset, self.upper_bound(isolation).message_offset
            info = self.read(start_offset, max_bytes, isolation)
            cut = self.readers.lowest_cut_since(generation)
            if cut is None or cut >= bound:
                break  # else what comes at the truncated offsets now would be skipped
        facts = (start, self.log_end_offset,
                 bound if isolation == "read_committed" else None)
        whole = scan(info.records, check_crcs=False)
        following = (whole.last_offset + 1 if whole.batch_count else max(start_offset, bound))
        aborted = info.aborted_transactions
        found = None if aborted is None else tuple(
            one for one in aborted if one.last_offset >= start_offset
            and one.first_offset < following)
        if not whole.batch_count:
            return FetchData(start_offset, following, b"", *facts, found)
        where = info.fetch_offset_metadata
        return FetchData(start_offset, following, info.records[:whole.position], *facts, found,
                         where.message_offset, where.segment_base_offset,
                         where.relative_position_in_segment)

    def upper_bound(self, isolation: Isolation) -> LogOffsetMetadata:
        """The end of what a read with this isolation returns, with its position."""
        return self._reads.upper_bound(isolation)

    def collect_aborted_transactions(self, start_offset: int, upper_bound_offset: int
                                     ) -> list[AbortedTxn]:
        """The aborted transactions of the segment that holds `start_offset` and of later ones, for
        offsets from the log's start to below `upper_bound_offset`."""
        return self._local_reads.collect_aborted_transactions(
            int64("start_offset", start_offset), int64("upper_bound_offset", upper_bound_offset),
            self.log_start_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time, or the answer to a special value: see
        OffsetsByTimestamp."""
        local = self._local
        with local.guarded(f"Error while fetching offset by timestamp for {local.topic_partition}",
                           reads=True):
            local.check_open()
            return self._offsets_by_timestamp.fetch(int64("timestamp_ms", timestamp_ms))

    # ---- producers ----------------------------------------------------------------------------

    @property
    def producer_id_count(self) -> int:
        """The number of known producers; does not wait for writes."""
        return self.producer_manager.producer_id_count

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether a transaction probably hangs: the earliest open one was last written to more than
        `transaction.max.timeout.ms` and five minutes ago. Does not wait for writes."""
        return self.producer_manager.has_late_transaction(int64("now_ms", now_ms))

    def active_producers(self) -> list[ProducerStateEntry]:
        """All known producers, by id: the output of `kafka-transactions.sh describe-producers`,
        including the first offset of an open transaction."""
        with self.lock:
            return list(self.producer_manager.active_producers.values())

    def active_producers_with_last_sequence(self) -> dict[int, int]:
        """The last sequence of each producer, -1 if only a marker is known."""
        return {entry.producer_id: entry.last_sequence for entry in self.active_producers()}

    def last_records_of_active_producers(self) -> dict[int, LastRecord]:
        """The last record of each producer."""
        return {entry.producer_id: LastRecord(
            entry.last_data_offset if entry.last_data_offset >= 0 else None, entry.producer_epoch)
            for entry in self.active_producers()}

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of exactly this epoch is open."""
        int64("producer_id", producer_id)
        with self.lock:
            return self.producer_manager.has_ongoing_transaction(producer_id, producer_epoch)

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """The guard of a transaction under verification, else the sentinel."""
        int64("producer_id", producer_id)
        with self.lock:
            return self.producer_manager.verification_guard(producer_id)

    # ---- snapshots ----------------------------------------------------------------------------

    @property
    def latest_producer_snapshot_offset(self) -> int | None:
        """The offset of the newest snapshot."""
        with self.lock:
            return self.producer_manager.latest_snapshot_offset

    @property
    def oldest_producer_snapshot_offset(self) -> int | None:
        """The offset of the oldest snapshot."""
        with self.lock:
            return self.producer_manager.oldest_snapshot_offset

    @property
    def latest_producer_state_end_offset(self) -> int:
        """The end of the part of the log that the producers' state describes."""
        with self.lock:
            return self.producer_manager.map_end_offset

    # ---- reporting ----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """See `recovery.loaded.log_state`."""
        with self.lock:
            self._local.update_files()
            return log_state(
                self._local.files, self.producers, self.leader_epochs,
                log_start_offset=self.log_start_offset, recovery_point=self.recovery_point,
                log_end_offset=self.log_end_offset, last_stable_offset=self.last_stable_offset)

    def state_without_files(self) -> dict[str, Any]:
        """The part of `state` that reads no file."""
        with self.lock:
            return state_without_files(self.producers, self.leader_epochs)

