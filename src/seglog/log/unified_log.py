"""One partition's log, for reading and writing (Kafka: UnifiedLog)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any

from seglog import arguments
from seglog.arguments import INT32_MIN, int32, int64, integer, shown
from seglog.config import LogConfig
from seglog.forks import ending
from seglog.log import replace
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.appends import Appends
from seglog.log.context import LogContext
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.leader_epoch_cache import LeaderEpochCache
from seglog.log.local_log import LocalLog
from seglog.log.local_reads import LocalReads
from seglog.log.log_view import LogView
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.log.old_segments import OldSegments
from seglog.log.partition_metadata import PartitionMetadata
from seglog.log.producer_state_manager import ProducerStateManager, ProducerStateManagerConfig
from seglog.log.read import LogReads
from seglog.log.rolling import Rolling
from seglog.log.scheduler import Scheduler, Time
from seglog.log.active_segment import Records
from seglog.log.stats import LogMetrics, flush_timer
from seglog.log.offsets_by_timestamp import OffsetsByTimestamp
from seglog.log.truncation import Truncation
from seglog.log.verification_guard import VerificationGuard
from seglog.log.watermarks import StartOffsetReason, Watermarks
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.loaded import LoadedState
from seglog.recovery.open_log import load_state
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.ownership import make_directories
from seglog.storage.paths import DirectoryKind, parse_directory_name

__all__ = ["LogContext", "UnifiedLog", "load_unified_log"]


class UnifiedLog(LogView):
    """A log that was loaded and is written to.

    Any thread may call any method. One at a time changes the log, under `lock`, which is
    reentrant; reads wait for no write. Every operation raises KafkaStorageError where the file
    system refuses, and the data directory is then offline (`LogContext.failures`): no operation
    touches it again. After `close_handlers` or `delete` operations raise KafkaStorageError.

    It composes parts that own their state: the segments and the log's end (LocalLog), the
    watermarks, the leader epochs, the producers, the topic id; and parts that work on those:
    appends, reads, rolling, retention, truncation.
    """

    def __init__(self, state: LoadedState, *, context: LogContext,
                 new_topic_id: uuid.UUID | None = None, loaded_ms: int | None = None) -> None:
        """By `load_unified_log`. `new_topic_id` is written down, unless the log has one.
        `loaded_ms` is when it was loaded; None: now."""
        inputs = state.inputs
        self.context = context
        producers = self.producer_manager = ProducerStateManager.after_load(
            state.producers, ProducerStateManagerConfig(
                inputs.producer_id_expiration_ms, context.transaction_verification),
            context.time.milliseconds,
            max_transaction_timeout_ms=context.max_transaction_timeout_ms)
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
        self._metadata = PartitionMetadata(local, state.topic_id)
        self._rolling = Rolling(local, self._watermarks, producers)
        self._old_segments = OldSegments(local, self._watermarks, producers, self._rolling)
        self._truncation = Truncation(local, self._watermarks, self._epochs, producers)
        self._appends = Appends(local, self._watermarks, self._epochs, producers, self._metadata,
                                self._rolling)
        self._append_fast = local.fast_path.append
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
            self._metrics = LogMetrics(context.stats.registry, self, context.stats, self._appends)
            local.time_flushes(flush_timer(context.stats.registry).time)
            self.new_metrics()

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: LogConfig, *, scheduler: Scheduler,
               log_start_offset: int = 0, recovery_point: int = 0, time: Time | None = None,
               failures: LogDirFailureChannel | None = None, clean_shutdown: bool = True,
               producer_id_expiration_ms: int = 86_400_000, topic_id: uuid.UUID | None = None,
               transaction_verification: bool = False) -> UnifiedLog:
        """Opens the log in the directory `path`, which is created if it is missing and whose name
        is that of the partition (`topic-0`).

        `log_start_offset` and `recovery_point` are those of the checkpoints. After an unclean
        shutdown the segments from the recovery point on are recovered. Raises
        InvalidTopicPartitionError, KafkaStorageError, LogLoadError, InconsistentTopicIdError.
        """
        path = os.path.abspath(os.fspath(path))
        name = parse_directory_name(path)
        with public_errors(path):
            make_directories(path)
        context = LogContext(scheduler, time or Time(), failures or LogDirFailureChannel(),
                             transaction_verification)
        inputs = LoadInputs(name.topic_partition, clean_shutdown, log_start_offset, recovery_point,
                            config, is_deleted=name.kind is DirectoryKind.DELETED,
                            producer_id_expiration_ms=producer_id_expiration_ms,
                            clock=context.time.milliseconds)
        return load_unified_log(path, inputs, context=context, topic_id=topic_id)

    # ---- for the cleaner and the manager ------------------------------------------------------

    def update_files(self) -> None:
        """Brings `segments` up to date with what was appended; the caller holds the lock."""
        self._local.update_files()

    def recover_segments(self, base_offsets: list[int]) -> None:
        """See LogFiles; the caller holds the lock."""
        self._local.files.recover_segments(base_offsets)

    @ending
    def stop_tasks(self) -> None:
        """Ends what runs at regular times."""
        self._expiry.cancel()

    def retire(self, why: str) -> None:
        """Refuses appends and truncations from now on, with this text: another log is in place."""
        with self.lock:
            self._local.retire(why)

    def new_metrics(self) -> None:
        """Registers the gauges, under what the log is now (`is-future` is a tag)."""
        if self._metrics is not None:
            self._metrics.register()

    def remove_log_metrics(self) -> None:
        """Removes them: the log is not served any more. A second call does nothing."""
        if self._metrics is not None:
            self._metrics.remove()

    # ---- appending ----------------------------------------------------------------------------

    def append_as_leader(self, records: Records, leader_epoch: int, *,
                         origin: AppendOrigin = AppendOrigin.CLIENT,
                         verification_guard: VerificationGuard | None = None,
                         transaction_version: int = -1) -> LogAppendInfo:
        """Appends batches, one or many, that get the next offsets (UnifiedLog.appendAsLeader).

        `records` are whole batches, as a producer sends them; they are copied, not changed. An
        incomplete batch at their end is left out. Nothing is synced unless `flush.messages` says
        so. A batch that an idempotent producer sent before is not written again: the answer is that
        of the first time.
        """
        try:
            if origin is AppendOrigin.CLIENT:
                info = (self._append_fast(records, leader_epoch)
                        or self._appends.append_fast(records, leader_epoch))
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
        """Appends a client's batches, each as if it had come alone; one answer for them together.

        Those before one that is refused stay appended: the error's `appended` is their answer.
        """
        int32("leader_epoch", leader_epoch, INT32_MIN)
        return self._appends.append_each(records, leader_epoch)

    def append_as_follower(self, records: Records, leader_epoch: int) -> LogAppendInfo:
        """Appends batches with the offsets that they have, which the leader gave them.

        Batches of a higher epoch than `leader_epoch`, and all behind them, are left out. Raises
        OffsetsOutOfOrderError, UnexpectedAppendOffsetError.
        """
        int32("leader_epoch", leader_epoch, INT32_MIN)
        return self._appends.append(records, AppendOrigin.REPLICATION, leader_epoch,
                                    assign_offsets=False, ignore_record_size=True)

    def roll(self, expected_next_offset: int | None = None) -> int:
        """Begins a new segment at the log's end, or at `expected_next_offset` if that is above;
        its base offset.

        The old one is flushed by a task of its own.
        """
        with self.lock:
            return self._rolling.roll(0 if expected_next_offset is None else int64(
                "expected_next_offset", expected_next_offset))

    def flush(self, force_flush_active_segment: bool = False) -> None:
        """Makes everything that was appended before the call durable: logs, indexes, names of new
        files. With `force_flush_active_segment` an empty active segment too, as a clean shutdown
        needs it. KafkaStorageError."""
        self.flush_to(self.log_end_offset, force_flush_active_segment)

    def flush_to(self, offset: int, including_offset: bool = False) -> None:
        """Flushes all below `offset`; with `including_offset` the segment that begins there too.

        KafkaStorageError also of a log that was abandoned or deleted.
        """
        self._local.flush_to(int64("offset", offset), including_offset)

    # ---- watermarks and starts ----------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark within the log; the one that was set. It may go down."""
        return self._watermarks.update_high_watermark(int64("offset", offset))

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Moves the high watermark up, or to a newer segment; the old one if it did.

        IllegalArgumentError above the log's end.
        """
        if not isinstance(new, LogOffsetMetadata):
            raise TypeError(f"new must be a LogOffsetMetadata, not {shown(new)}")
        return self._watermarks.maybe_increment_high_watermark(new)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """A follower's update; the new high watermark if that is another one."""
        with self.lock:
            before = self.high_watermark
            after = self.update_high_watermark(offset)
            return None if after == before else after

    def maybe_increment_log_start_offset(
            self, offset: int, reason: StartOffsetReason) -> bool:
        """Moves the log's start up; whether it did. `reason` goes to the log file.

        OffsetOutOfRangeError above the high watermark. Segments below it are retention's to
        delete.
        """
        if not isinstance(reason, StartOffsetReason):
            raise TypeError(f"reason must be a StartOffsetReason, not {shown(reason)}")
        return self._watermarks.maybe_increment_log_start_offset(int64("offset", offset), reason)

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Notes what remote storage has up to an offset; it only moves up. Local retention may
        delete the segments up to it."""
        self._watermarks.update_highest_offset_in_remote_storage(int64("offset", offset))

    def update_log_start_offset_from_remote_tier(self, offset: int) -> None:
        """Moves the log's start up to where remote segments begin. OffsetOutOfRangeError above
        the high watermark."""
        self._watermarks.update_log_start_offset_from_remote_tier(int64("offset", offset))

    def start_at_local_segments(self) -> None:
        """Gives up what is in remote storage alone: the log begins where its local segments do."""
        self._watermarks.maybe_increment_log_start_offset(
            self.local_log_start_offset, StartOffsetReason.SEGMENT_DELETION)

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position. One inside of a batch moves to where the batch
        begins, as Kafka's does."""
        return self._watermarks.fetch_high_watermark_metadata()

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its position."""
        return self._watermarks.fetch_last_stable_offset_metadata()

    # ---- epochs and producers -----------------------------------------------------------------

    def assign_epoch_start_offset(self, epoch: int, offset: int) -> None:
        """Notes that a leader epoch begins at `offset`, durably. IllegalArgumentError."""
        with self.lock:
            self.check_open()
            self._epochs.assign(int32("epoch", epoch, INT32_MIN), int64("offset", offset))

    def maybe_start_transaction_verification(self, producer_id: int, sequence: int, epoch: int,
                                             supports_epoch_bump: bool) -> VerificationGuard:
        """Begins to verify a transaction before its first batch, which is at `sequence` (KIP-890).

        With the guard, and after the coordinator has said yes, `append_as_leader` takes the batch;
        the sentinel says that there is nothing to ask. `supports_epoch_bump`: transactions of
        version 2. Raises InvalidProducerEpochError for an epoch that is over.
        """
        int64("producer_id", producer_id)
        int32("sequence", sequence, INT32_MIN)
        integer("epoch", epoch, -1 << 15, (1 << 15) - 1)
        with self.lock:
            return self.producer_manager.maybe_start_transaction_verification(
                producer_id, sequence, epoch, supports_epoch_bump)

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forgets producers that were idle for `producer.id.expiration.ms`, and verifications."""
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
        """Deletes the segments that break retention by start offset, size or time; how many.

        The files are renamed now and deleted after `file.delete.delay.ms`.
        """
        return self._old_segments.delete()

    def truncate_to(self, offset: int) -> bool:
        """Truncates the log so that it ends at `offset` or below; whether there was something to
        truncate.

        A batch that holds `offset` is removed whole. IllegalArgumentError for a negative one.
        """
        return self._truncation.truncate_to(int64("offset", offset))

    def truncate_fully_and_start_at(self, offset: int,
                                    log_start_offset: int | None = None) -> None:
        """Removes everything; the log begins, and ends, at `offset`."""
        if log_start_offset is not None:
            arguments.offset("log_start_offset", log_start_offset)
        self._truncation.truncate_fully_and_start_at(arguments.offset("offset", offset),
                                                     log_start_offset)

    def replace_segments(self, new: Sequence[SegmentFiles], old: Sequence[int]) -> None:
        """Puts segments, `.cleaned` and flushed, in the place of those with the base offsets
        `old`, so that a crash leaves the ones or the others."""
        with self.lock, self.guarded(f"Error while replacing segments of {self.topic_partition}"):
            replace.replace_segments(self._local, self.producer_manager, new, old)

    def split_overflowed_segment(self, base_offset: int) -> list[int]:
        """Splits a segment with offsets too far from its base; the base offsets of the new ones.

        LogLoadError (Kafka: IllegalArgumentException) for a segment without such offsets.
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
            local.update_files()
            self.stop_tasks()
            self._epochs.clear()
            bases = local.delete_all_segments()
            local.delete_snapshots(self.producer_manager.snapshots.retire(bases), at_once=True)
            local.delete_directory()

    # ---- settings, name, end ------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> LogConfig:
        """New settings; the old ones. Segments that are there keep theirs for their indexes."""
        if not isinstance(config, LogConfig):
            raise TypeError(f"config must be a LogConfig, not {shown(config)}")
        with self.lock:
            return self._local.update_config(config)

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Gives a log without one its topic's id. InconsistentTopicIdError."""
        with self.lock:
            if not isinstance(topic_id, uuid.UUID):
                raise TypeError(f"topic_id must be a uuid.UUID, not {shown(topic_id)}")
            self._metadata.assign(topic_id)

    def flush_metadata(self) -> None:
        """Writes `partition.metadata` if it is due: it is there before the first record is."""
        self._metadata.flush()

    def rename_dir(self, name: str, reinitialize: bool = True) -> None:
        """Gives the log's directory another name in its data directory, durably.

        Without `reinitialize` it is on its way out: its leader epochs are forgotten.
        """
        local, parent = self._local, self.parent_dir
        with self.lock, local.guarded_as(f"Error while renaming dir for {self.topic_partition} in "
                                         f"log dir {parent}"):
            self.flush_metadata()
            local.rename(name)
            if not reinitialize:
                self._epochs.clear()
                self._metadata.discard()

    @ending
    def close(self) -> None:
        """What Kafka does to the files of a log that it closes; a second call does nothing.

        A durable producer snapshot at the end of the log, if the state moved; of every index that
        was opened, the part in use; the log without what was preallocated. Segments that nothing
        has touched are not touched here. KafkaStorageError, when all segments have been tried.
        """
        local = self._local
        with self.lock:
            if local.files.is_closed:
                return
            self.flush_metadata()
            local.check_open()
            self.stop_tasks()
            try:
                with self.guarded(f"Error while renaming dir for {self.topic_partition}"):
                    local.update_files()  # the text is Kafka's
                    local.active.close_handles()
                    local.files.close(self.producer_manager)
            finally:
                local.active.close_handles()
                local.release_readers()

    @ending
    def close_handlers(self) -> None:
        """Abandons the log as it is, without writing anything: its directory has failed."""
        with self.lock:
            self._local.close_handlers()
            self.stop_tasks()
        self._local.release_readers()


def load_unified_log(path: str, inputs: LoadInputs, *, context: LogContext,
                     topic_id: uuid.UUID | None = None, loaded_ms: int | None = None,
                     **how: Any) -> UnifiedLog:
    """Loads a partition directory for writing: `recovery.open_log.load_state`, with its arguments
    and errors, and a log of what it loaded. `loaded_ms` is when that was; None: now."""
    state = load_state(path, inputs, **how)
    with public_errors(path):
        return UnifiedLog(state, context=context, new_topic_id=topic_id, loaded_ms=loaded_ms)
