"""One partition's log, for reading and writing (Kafka: UnifiedLog)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from seglog import arguments
from seglog._native.append import fast_path_first
from seglog._native.fetch import LogOffsetMetadata
from seglog.arguments import INT32_MIN, directory_path, int32, int64, integer, shown
from seglog.config import LogConfig
from seglog.forks import ending
from seglog.log import replace
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.appends import Appends
from seglog.log.context import LogContext
from seglog.log.log_deletion import delete_log
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.leader_epoch_cache import LeaderEpochCache
from seglog.log.local_log import LocalLog
from seglog.log.local_reads import LocalReads
from seglog.log.readable_log import ReadableLog
from seglog.log.old_segments import OldSegments
from seglog.log.topic_id import LogTopicId, topic_id_of
from seglog.log.producer_state_manager import ProducerStateManager, ProducerStateManagerConfig
from seglog.log.read import LogReads
from seglog.log.record_reads import RecordReads
from seglog.log.rolling import Rolling
from seglog.log.scheduler import Scheduler, Time
from seglog.log.active_segment import Records
from seglog.log.log_metrics import LogMetrics
from seglog.log.stats import flush_timer
from seglog.log.offsets_by_timestamp import OffsetsByTimestamp
from seglog.log.truncation import Truncation
from seglog.log.verification_guard import VerificationGuard
from seglog.log.watermarks import StartOffsetReason, Watermarks
from seglog.model import EpochEntry
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.loaded import LoadedState
from seglog.recovery.open_log import load_state
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.isolation import Isolation
from seglog.storage.ownership import make_directories
from seglog.storage.paths import DirectoryKind, parse_directory_name

__all__ = ["LogContext", "UnifiedLog", "load_unified_log"]

_PUT_ASIDE: Final = (DirectoryKind.DELETED.value, DirectoryKind.STRAY.value)
_CLIENT: Final = AppendOrigin.CLIENT  # a lookup in an enum takes as long as a call


class UnifiedLog(ReadableLog, RecordReads):
    """A loaded log, open for writing.

    Any thread may call any method. One thread at a time changes the log, under `lock`, which is
    reentrant; reads do not wait for writes. If the file system refuses an operation, it raises
    KafkaStorageError and the data directory goes offline (`LogContext.failures`): no operation uses
    it again. After `close_handlers` or `delete` operations raise KafkaStorageError.

    It composes parts that own their state: the segments and the log's end (LocalLog), the
    watermarks, the leader epochs, the producers, the topic id; and parts that work on those:
    appends, reads, rolling, retention, truncation.
    """

    def __init__(self, state: LoadedState, *, context: LogContext,
                 new_topic_id: uuid.UUID | None = None, loaded_ms: int | None = None) -> None:
        """Created by `load_unified_log`. `new_topic_id` is written, unless the log has an id.
        `loaded_ms` is when it was loaded; None: now."""
        inputs = state.inputs
        self.context = context
        producers = self.producer_manager = ProducerStateManager.after_load(
            state.producers, ProducerStateManagerConfig(
                inputs.producer_id_expiration_ms, context.transaction_verification,
                context.max_transaction_timeout_ms), context.time.milliseconds)
        local = self._local = LocalLog(
            state.files, inputs.config, context, log_end_offset=state.log_end_offset,
            recovery_point=state.recovery_point, loaded_ms=loaded_ms)
        self.topic_partition, self.lock = local.topic_partition, local.lock
        self.segments, self.disk = local.segments, local.disk
        self.readers, self.followers = local.readers, local.followers
        self.leader_epochs = state.leader_epochs
        self._epochs = LeaderEpochCache(local, state.leader_epochs)
        local_reads = self._local_reads = LocalReads(local)
        self._watermarks = Watermarks(state, local, local_reads, self._epochs, producers)
        self._reads = LogReads(local, local_reads, self._watermarks)
        self._offsets_by_timestamp = OffsetsByTimestamp(local, self._watermarks,
                                                        state.leader_epochs)
        self._metadata = LogTopicId(local, state.topic_id)
        self._rolling = Rolling(local, self._watermarks, producers)
        self._old_segments = OldSegments(local, self._watermarks, producers, self._rolling)
        self._truncation = Truncation(local, self._watermarks, self._epochs, producers)
        self._appends = Appends(local, self._watermarks, self._epochs, producers, self._metadata,
                                self._rolling)
        self.fast_path = local.fast_path
        self._expiry = context.scheduler.schedule(
            "PeriodicProducerExpirationCheck",
            lambda: self.remove_expired_producers(self.now_ms()),
            context.producer_id_expiration_check_interval_ms,
            context.producer_id_expiration_check_interval_ms)
        if new_topic_id is not None:
            self._metadata.assign(new_topic_id, at_creation=True)
        if state.files.removed:
            context.scheduler.schedule_once("delete-file", self.delete_removed,
                                            inputs.config.file_delete_delay_ms)
        self._metrics: LogMetrics | None = None
        if context.stats is not None:
            self._metrics = LogMetrics(self, context.stats, self._appends)
            local.flush_timer = flush_timer(context.stats.registry).time
            if not local.path.endswith(_PUT_ASIDE):  # the partition may have another log
                self.new_metrics()

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: LogConfig, *, scheduler: Scheduler,
               log_start_offset: int = 0, recovery_point: int = 0, time: Time | None = None,
               failures: LogDirFailureChannel | None = None, clean_shutdown: bool = True,
               producer_id_expiration_ms: int = 86_400_000, topic_id: uuid.UUID | None = None,
               transaction_verification: bool = False,
               checkpoint: Callable[[], object] | None = None) -> UnifiedLog:
        """Opens the log in the directory `path`, whose name is that of the partition (`topic-0`).
        Creates it if it is missing.

        `log_start_offset` and `recovery_point` are those of the checkpoints, which `checkpoint`
        writes (LogContext). After an unclean shutdown the segments from the recovery point on are
        recovered. Raises InvalidTopicPartitionError, KafkaStorageError, LogLoadError,
        InconsistentTopicIdError.
        """
        path = directory_path("path", path)
        name = parse_directory_name(path)
        if topic_id is not None:
            topic_id_of(topic_id)
        with public_errors(path):
            make_directories(path)
        context = LogContext(scheduler, time or Time(), failures or LogDirFailureChannel(),
                             transaction_verification, checkpoint=checkpoint)
        inputs = LoadInputs(name.topic_partition, clean_shutdown, log_start_offset, recovery_point,
                            config, is_deleted=name.kind is DirectoryKind.DELETED,
                            producer_id_expiration_ms=producer_id_expiration_ms,
                            clock=context.time.milliseconds)
        return load_unified_log(path, inputs, context=context, topic_id=topic_id)

    def _reads_as(self, isolation: Isolation) -> tuple[UnifiedLog, Isolation]:
        return self, isolation

    # ---- for the cleaner and the manager ------------------------------------------------------

    def update_files(self) -> None:
        """Updates `segments` with new appends; the caller holds the lock."""
        self._local.update_files()

    def recover_segments(self, base_offsets: list[int]) -> None:
        """See LogFiles; the caller holds the lock."""
        self._local.files.recover_segments(base_offsets)

    @ending
    def stop_tasks(self) -> None:
        """Stops the periodic tasks."""
        self._expiry.cancel()

    def retire(self, why: str) -> None:
        """Refuses appends and truncations from now on, with this message: another log replaces
        it."""
        with self.lock:
            self._local.retire(why)

    def new_metrics(self) -> None:
        """Registers the gauges with the log's current tags (`is-future` is one)."""
        if self._metrics is not None:
            self._metrics.register()

    def remove_log_metrics(self) -> None:
        """Removes the gauges: the log is not served any more. A second call does nothing."""
        if self._metrics is not None:
            self._metrics.remove()

    # ---- appending ----------------------------------------------------------------------------

    @fast_path_first
    def append_as_leader(self, records: Records, leader_epoch: int, *,
                         origin: AppendOrigin = AppendOrigin.CLIENT,
                         verification_guard: VerificationGuard | None = None,
                         transaction_version: int = -1) -> LogAppendInfo:
        """Appends one or more batches, which get the next offsets (UnifiedLog.appendAsLeader).

        `records` are whole batches, as a producer sends them; they are copied, not changed. An
        incomplete batch at the end is ignored. Nothing is synced unless `flush.messages` requires
        it. A batch that an idempotent producer sent before is not written again: the result is that
        of the first time.
        """
        try:
            if origin is _CLIENT:
                info = self._appends.append_fast(records, leader_epoch)
                if info is not None:
                    return info
            if not isinstance(origin, AppendOrigin):
                raise TypeError(f"origin must be an AppendOrigin, not {shown(origin)}")
            return self._appends.append(
                records, origin, leader_epoch, verification_guard=verification_guard,
                transaction_version=transaction_version,
                assign_offsets=origin is not AppendOrigin.RAFT_LEADER)
        except (OverflowError, TypeError):
            int32("leader_epoch", leader_epoch, INT32_MIN)
            raise

    def append_each_as_leader(self, records: Records, leader_epoch: int) -> LogAppendInfo:
        """Appends a client's batches, each as if it had come alone; returns one combined result.

        If one is refused, those before it stay appended: the error's `appended` is their result.
        """
        int32("leader_epoch", leader_epoch, INT32_MIN)
        return self._appends.append_each(records, leader_epoch)

    def append_as_follower(self, records: Records, leader_epoch: int) -> LogAppendInfo:
        """Appends batches with the offsets that the leader gave them.

        Batches of a higher epoch than `leader_epoch`, and all after them, are ignored. Raises
        OffsetsOutOfOrderError, UnexpectedAppendOffsetError.
        """
        int32("leader_epoch", leader_epoch, INT32_MIN)
        return self._appends.append(records, AppendOrigin.REPLICATION, leader_epoch,
                                    assign_offsets=False, ignore_record_size=True)

    def roll(self, expected_next_offset: int | None = None) -> int:
        """Begins a new segment at the log's end, or at `expected_next_offset` if that is above.
        Returns its base offset.

        A task flushes the old one.
        """
        with self.lock:
            return self._rolling.roll(0 if expected_next_offset is None else int64(
                "expected_next_offset", expected_next_offset))

    def flush(self, force_flush_active_segment: bool = False) -> None:
        """Makes everything that was appended before the call durable: logs, indexes, names of new
        files. With `force_flush_active_segment` also syncs an empty active segment, as a clean
        shutdown requires. Raises KafkaStorageError."""
        self.flush_to(self.log_end_offset, force_flush_active_segment)

    def flush_to(self, offset: int, including_offset: bool = False) -> None:
        """Flushes everything below `offset`; with `including_offset` also the segment that begins
        there.

        Raises KafkaStorageError, also for an abandoned or deleted log.
        """
        self._local.flush_to(int64("offset", offset), including_offset)

    def sync_to(self, offset: int) -> None:
        """Makes everything below `offset` durable, but leaves the recovery point where it is.
        Raises KafkaStorageError."""
        self._local.sync_to(offset)

    # ---- watermarks and starts ----------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark, limited to the log. Returns the new one. It may go down."""
        return self._watermarks.update_high_watermark(int64("offset", offset))

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Moves the high watermark up, or to a newer segment. Returns the old one if it moved.

        Raises IllegalArgumentError above the log's end.
        """
        if not isinstance(new, LogOffsetMetadata):
            raise TypeError(f"new must be a LogOffsetMetadata, not {shown(new)}")
        return self._watermarks.maybe_increment_high_watermark(new)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Sets the high watermark to what a leader announced, limited to the log. Returns the new
        one, None if it is unchanged. It may go down."""
        with self.lock:
            before = self.high_watermark
            after = self.update_high_watermark(offset)
            return None if after == before else after

    def maybe_increment_log_start_offset(
            self, offset: int, reason: StartOffsetReason) -> bool:
        """Moves the log's start up. Returns whether it moved. `reason` goes to the log file.

        Raises OffsetOutOfRangeError above the high watermark. Retention deletes segments below the
        start.
        """
        if not isinstance(reason, StartOffsetReason):
            raise TypeError(f"reason must be a StartOffsetReason, not {shown(reason)}")
        return self._watermarks.maybe_increment_log_start_offset(int64("offset", offset), reason)

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Sets the highest offset in remote storage; it only moves up. Local retention may delete
        the segments up to it."""
        self._watermarks.update_highest_offset_in_remote_storage(int64("offset", offset))

    def update_log_start_offset_from_remote_tier(self, offset: int) -> None:
        """Moves the log's start up to that of the remote segments. Raises OffsetOutOfRangeError
        above the high watermark."""
        self._watermarks.update_log_start_offset_from_remote_tier(int64("offset", offset))

    def start_at_local_segments(self) -> None:
        """Abandons everything in remote storage: the log begins with its local segments, of which
        none counts as copied."""
        self._watermarks.start_at_local_segments()

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position. If it is inside a batch it moves to the batch's
        beginning, as in Kafka."""
        return self._watermarks.fetch_high_watermark_metadata()

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its position."""
        return self._watermarks.fetch_last_stable_offset_metadata()

    # ---- epochs and producers -----------------------------------------------------------------

    def assign_epoch_start_offset(self, epoch: int, offset: int) -> None:
        """Records that a leader epoch begins at `offset`, durably. Raises IllegalArgumentError."""
        with self.lock:
            self.check_open()
            self._epochs.assign(int32("epoch", epoch, INT32_MIN), int64("offset", offset))

    def maybe_start_transaction_verification(self, producer_id: int, sequence: int, epoch: int,
                                             supports_epoch_bump: bool) -> VerificationGuard:
        """Begins to verify a transaction before its first batch, which is at `sequence` (KIP-890).

        With the guard, and after the coordinator has agreed, `append_as_leader` accepts the batch.
        The sentinel means that no verification is needed. `supports_epoch_bump`: transactions of
        version 2. Raises InvalidProducerEpochError for an old epoch.
        """
        int64("producer_id", producer_id)
        int32("sequence", sequence, INT32_MIN)
        integer("epoch", epoch, -1 << 15, (1 << 15) - 1)
        with self.lock:
            return self.producer_manager.maybe_start_transaction_verification(
                producer_id, sequence, epoch, supports_epoch_bump)

    def remove_expired_producers(self, now_ms: int) -> None:
        """Removes producers that were idle for `producer.id.expiration.ms`, and verifications."""
        int64("now_ms", now_ms)
        with self.lock:
            self.producer_manager.remove_expired(now_ms)

    def take_producer_snapshot(self) -> None:
        """Writes a durable snapshot of the producers' state at the end of the log, unless there
        is one. Raises KafkaStorageError."""
        with self.lock:
            self.check_open()
            self.producer_manager.take_snapshot()

    # ---- removing -----------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Deletes the segments that break retention by start offset, size or time. Returns their
        number.

        The files are renamed now and deleted after `file.delete.delay.ms`.
        """
        return self._old_segments.delete()

    def truncate_to(self, offset: int) -> bool:
        """Truncates the log so that it ends at `offset` or below. Returns whether there was
        anything to truncate.

        A batch that holds `offset` is removed completely. Raises IllegalArgumentError for a
        negative offset.
        """
        return self._truncation.truncate_to(int64("offset", offset))

    def truncate_fully_and_start_at(self, offset: int,
                                    log_start_offset: int | None = None) -> None:
        """Removes all records; the log then begins and ends at `offset`."""
        if log_start_offset is not None:
            arguments.offset("log_start_offset", log_start_offset)
        self._truncation.truncate_fully_and_start_at(arguments.offset("offset", offset),
                                                     log_start_offset)

    def start_with_state(self, offset: int, log_start_offset: int, epochs: Iterable[EpochEntry],
                         snapshot: bytes) -> None:
        """`truncate_fully_and_start_at` for a log whose earlier records are elsewhere: with its
        leader epochs, and the producer snapshot at `offset`, which is stored as it is.

        After a crash meanwhile the log is empty at `offset` and may lack both; call it again.
        Raises CorruptDataError for an invalid snapshot, before anything changes.
        """
        self._truncation.start_with_state(
            arguments.offset("offset", offset),
            arguments.offset("log_start_offset", log_start_offset),
            arguments.all_of(EpochEntry, "epochs", epochs), arguments.content("snapshot", snapshot))

    def replace_segments(self, new: Sequence[SegmentFiles], old: Sequence[int]) -> None:
        """Replaces the segments with the base offsets `old` by new ones, which are `.cleaned` and
        flushed. A crash leaves either the old or the new segments."""
        with self.lock, self.guarded(f"Error while replacing segments of {self.topic_partition}"):
            replace.replace_segments(self._local, self.producer_manager, new, old)

    def split_overflowed_segment(self, base_offset: int) -> list[int]:
        """Splits a segment with offsets too far from its base. Returns the base offsets of the new
        ones.

        Raises LogLoadError (Kafka: IllegalArgumentException) for a segment without such offsets.
        """
        with self.lock, self.guarded(f"Error while splitting a segment of {self.topic_partition}"):
            return replace.split_overflowed_segment(self._local, self.producer_manager,
                                                    int64("base_offset", base_offset))

    def delete_removed(self) -> None:
        """Deletes the `.deleted` files of segments that the load removed."""
        with self.guarded(f"Error while deleting segments for {self.topic_partition}"):
            self._local.files.delete_removed()

    def delete(self) -> None:
        """Deletes the log, its snapshots and its directory at once."""
        local = self._local
        with self.lock, local.guarded(f"Error while deleting log for {local.topic_partition}"):
            local.check_open()
            self.stop_tasks()
            self._epochs.clear()
            delete_log(local, self.producer_manager)

    # ---- settings, name, end ------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> LogConfig:
        """Sets new settings and returns the old ones. Existing segments keep theirs for their
        indexes."""
        if not isinstance(config, LogConfig):
            raise TypeError(f"config must be a LogConfig, not {shown(config)}")
        with self.lock:
            return self._local.update_config(config)

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Sets the topic id of a log without one. Raises InconsistentTopicIdError."""
        with self.lock:
            self._metadata.assign(topic_id_of(topic_id))

    def flush_metadata(self) -> None:
        """Writes `partition.metadata` if that is due: it must exist before the first record."""
        self._metadata.flush()

    def rename_dir(self, name: str, reinitialize: bool = True) -> None:
        """Renames the log's directory within its data directory, durably.

        Without `reinitialize` it is about to be deleted, and its leader epochs are cleared.
        """
        local, parent = self._local, self.parent_dir
        with self.lock, local.guarded_as(f"Error while renaming dir for {self.topic_partition} in "
                                         f"log dir {parent}"):
            self.flush_metadata()
            local.rename(name)
            if not reinitialize:
                self._epochs.clear()

    @ending
    def close(self) -> None:
        """Closes the log and its files as Kafka does; a second call does nothing.

        Writes a durable producer snapshot at the end of the log, if the state moved. Trims every
        index that was opened, and the preallocated part of the log. Does not touch unused segments.
        Tries all segments, then raises KafkaStorageError.
        """
        local = self._local
        with self.lock:
            if local.files.is_closed:
                return
            self.flush_metadata()
            self.stop_tasks()
            try:
                with self.guarded(f"Error while renaming dir for {self.topic_partition}"):
                    local.active.end()  # the text is Kafka's
                    # No later load looks for the zeros of an index that was not trimmed: it counts
                    # as full, and the next roll fails.
                    local.files.close(self.producer_manager, sync_indexes=local.has_own_checkpoints)
            finally:
                local.active.end()
                local.release_readers()

    @ending
    def close_handlers(self) -> None:
        """Abandons the log without writing anything, because its directory has failed."""
        with self.lock:
            self._local.close_handlers()
            self.stop_tasks()
        self._local.release_readers()


def load_unified_log(path: str, inputs: LoadInputs, *, context: LogContext,
                     topic_id: uuid.UUID | None = None, loaded_ms: int | None = None,
                     **how: Any) -> UnifiedLog:
    """Loads a partition directory for writing with `recovery.open_log.load_state` (its arguments
    and errors), and creates the log. `loaded_ms` is the time of that; None: now."""
    state = load_state(path, inputs, **how)
    with public_errors(path):
        return UnifiedLog(state, context=context, new_topic_id=topic_id, loaded_ms=loaded_ms)
