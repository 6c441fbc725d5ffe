"""One partition's log, for reading and writing (Kafka: UnifiedLog, LocalLog)."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from seglog import arguments
from seglog.arguments import INT32_MIN, int32, int64, shown
from seglog.config import LogConfig
from seglog.forks import ending
from seglog.log import append, deletion, replace, retention, rolling, truncation, watermarks
from seglog.log import topic_id as topics
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.context import LogContext
from seglog.log.failures import LogDirFailureChannel
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.log.ordinary import append_each, append_ordinary
from seglog.log.producers import ProducerStateManager, ProducerStateManagerConfig
from seglog.log.read import convert_to_offset_metadata, read
from seglog.log.readers import LogReaders
from seglog.log.scheduler import Scheduler, Time
from seglog.log.segment import Records
from seglog.log.tail import Followers
from seglog.log.timestamps import FoundOffset, fetch_offset_by_timestamp
from seglog.log.transactional import TransactionalLog
from seglog.log.verification import VerificationGuard
from seglog.recovery.disk import Disk
from seglog.recovery.failures import public_errors
from seglog.recovery.inputs import LoadInputs, LoadOutcome
from seglog.recovery.log_loader import LogLoader
from seglog.recovery.open_log import load_log
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.ownership import make_directories
from seglog.storage.paths import DirectoryKind, parse_directory_name

__all__ = ["LogContext", "UnifiedLog", "load_unified_log"]

_logger = logging.getLogger("seglog.UnifiedLog")


class UnifiedLog(TransactionalLog):
    """A log that was loaded and is written to.

    Any thread may call any method. One at a time changes the log, under `lock`, which is
    reentrant; reads wait for no write. Every operation raises KafkaStorageError where the file
    system refuses, and the data directory is then offline (`LogContext.failures`): no operation
    touches it again. After `close_handlers` or `delete` operations raise KafkaStorageError.
    """

    def __init__(self, disk: Disk, loader: LogLoader, outcome: LoadOutcome,
                 read_topic_id: Callable[[], uuid.UUID | None], *, context: LogContext,
                 new_topic_id: uuid.UUID | None = None) -> None:
        """By `load_unified_log`. `new_topic_id` is written down, unless the log has one."""
        self.context = context
        self.config: LogConfig = loader.inputs.config
        super().__init__(disk, loader, outcome, read_topic_id)
        self.parent_dir = os.path.dirname(self.path)
        self._producers = self.producer_manager = ProducerStateManager.after_load(
            self._producers, ProducerStateManagerConfig(
                loader.inputs.producer_id_expiration_ms, context.transaction_verification),
            context.time.milliseconds,
            max_transaction_timeout_ms=context.max_transaction_timeout_ms)
        self.readers, self.followers = LogReaders(), Followers()
        # What the load has found is looked up again at the first occasion.
        self.unstable_known: tuple[LogOffsetMetadata, int] | None = watermarks.UNKNOWN
        self.first_unstable_metadata = None if self.first_unstable_offset is None \
            else LogOffsetMetadata(self.first_unstable_offset)
        self.on_high_watermark: Callable[[int], object] = lambda offset: None
        now = context.time.milliseconds()
        self.last_flush_ms = now
        self.segments.created_ms[:] = now
        for files in self.segments.held:
            files.created_ms = now
        self.active = self.activate(int(self.segments.base_offsets[-1]))
        self.end_moved()
        self.high_watermark_metadata = LogOffsetMetadata(self.high_watermark)
        self.highest_offset_in_remote_storage = -1
        #: Segments that were closed behind the recovery point.
        self.closed_unsynced: list[int] = []
        self._expiry = context.scheduler.schedule(
            "PeriodicProducerExpirationCheck",
            lambda: self.remove_expired_producers(self.now_ms()),
            context.producer_id_expiration_check_interval_ms,
            context.producer_id_expiration_check_interval_ms)
        if self.local_log_start_offset > self.high_watermark:
            watermarks.update_high_watermark(self,
                                             LogOffsetMetadata(self.local_log_start_offset))
        if new_topic_id is not None:
            topics.assign_topic_id(self, new_topic_id, at_creation=True)
        if loader.removed:
            context.scheduler.schedule_once("delete-file", self.delete_removed,
                                            self.config.file_delete_delay_ms)
        self.measure(context.stats)

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: LogConfig, *, scheduler: Scheduler,
               log_start_offset: int = 0, recovery_point: int = 0, time: Time | None = None,
               failures: LogDirFailureChannel | None = None, clean_shutdown: bool = True,
               producer_id_expiration_ms: int = 86_400_000, topic_id: uuid.UUID | None = None,
               transaction_verification: bool = False) -> UnifiedLog:
        """Opens the log in the directory `path`, which is made where it is missing and whose name
        is that of the partition (`topic-0`).

        `log_start_offset` and `recovery_point` are those of the checkpoints. After an unclean
        shutdown what lies behind the recovery point is recovered. Raises
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

    # ---- what it is ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        topic_id = "" if self.topic_id is None else f", topicId={self.topic_id}"
        return (f"Log(dir={self.path}{topic_id}, topic={self.topic_partition.topic}, "
                f"partition={self.topic_partition.partition}, "
                f"highWatermark={self.high_watermark}, "
                f"lastStableOffset={self.last_stable_offset}, "
                f"logStartOffset={self.log_start_offset}, logEndOffset={self.log_end_offset})")

    @ending
    def stop_tasks(self) -> None:
        """The log is at its end: nothing is done any more at regular times."""
        self._expiry.cancel()

    def mark_deleted(self) -> None:
        """No operation works from here on."""
        self._handlers_closed = self.is_closed = True
        self.readers.let_go()
        self.followers.wake()

    def retire(self, why: str) -> None:
        """Refuses appends and truncations from here on, with this text: another log is in place."""
        with self.lock:
            self.retired = why

    # ---- appending ----------------------------------------------------------------------------

    def append_as_leader(self, records: Records, leader_epoch: int, *,
                         origin: AppendOrigin = AppendOrigin.CLIENT,
                         verification_guard: VerificationGuard | None = None,
                         transaction_version: int = -1) -> LogAppendInfo:
        """Appends batches, one or many, that get the next offsets (UnifiedLog.appendAsLeader).

        `records` are whole batches, as a producer sends them; they are copied, not changed. What
        does not end a whole batch is cut off. Nothing is synced unless `flush.messages` says so. A
        batch that an idempotent producer sent before is not written again: the answer is that of
        the first time.
        """
        try:
            if origin is AppendOrigin.CLIENT and (
                    info := append_ordinary(self, records, leader_epoch)) is not None:
                return info
            if not isinstance(origin, AppendOrigin):
                raise TypeError(f"origin must be an AppendOrigin, not {shown(origin)}")
            return append.append(
                self, records, origin, leader_epoch, verification_guard=verification_guard,
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
        return append_each(self, records, leader_epoch)

    def append_as_follower(self, records: Records, leader_epoch: int) -> LogAppendInfo:
        """Appends batches with the offsets that they have, which the leader gave them.

        Batches of a higher epoch than `leader_epoch`, and all behind them, are left out. Raises
        OffsetsOutOfOrderError, UnexpectedAppendOffsetError.
        """
        int32("leader_epoch", leader_epoch, INT32_MIN)
        return append.append(self, records, AppendOrigin.REPLICATION, leader_epoch,
                             assign_offsets=False, ignore_record_size=True)

    def roll(self, expected_next_offset: int | None = None) -> int:
        """Begins a new segment at the log's end, or at `expected_next_offset` if that is above;
        its base offset.

        The old one is flushed by a task of its own.
        """
        with self.lock:
            return rolling.roll(self, 0 if expected_next_offset is None else int64(
                "expected_next_offset", expected_next_offset))

    def flush(self, force_flush_active_segment: bool = False) -> None:
        """See LoadedLog. What was appended before the call is durable when it returns."""
        self.flush_to(self.log_end_offset, force_flush_active_segment)

    def flush_to(self, offset: int, including_offset: bool = False) -> None:
        """Flushes all below `offset`; with `including_offset` the segment that begins there too.

        KafkaStorageError also of a log that was given up or deleted.
        """
        int64("offset", offset)
        how = "inclusive" if including_offset else "exclusive"
        parent = self.parent_dir
        text = (f"Error while flushing log for {self.topic_partition} in dir {parent} with offset "
                f"{offset} ({how}) and recovery point {offset}")
        with self.context.failures.guard(parent, text), public_errors(self.path):
            self._check_kept()
            before = self.recovery_point
            self._flush_closed()
            if offset + including_offset <= before:
                return
            _logger.debug(self.log_text(
                f"Flushing log up to offset {offset} ({how}) with recovery point {offset}, last "
                f"flushed: {self.last_flush_ms},  current time: {self.now_ms()}, unflushed: "
                f"{self.log_end_offset - before}"))
            with self.lock:
                self._check_kept()
                self.settle()
            self._flush(offset, including_offset)
            if self.recovery_point > before:
                self.last_flush_ms = self.now_ms()

    def _check_kept(self) -> None:
        """What was closed in good order can still be flushed."""
        if self._handlers_closed:
            self.check_open()

    def _flush_closed(self) -> None:
        """What a roll did to segments that had been flushed to their ends: the last entry of the
        time index, the sizes. Kafka never syncs it; a power cut would leave zeros."""
        for base in list(self.closed_unsynced):
            self._flush_segment(base)
            with self.lock:
                if base in self.closed_unsynced:
                    self.closed_unsynced.remove(base)

    # ---- watermarks and starts ----------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark within the log; the one that was set. It may go down."""
        return watermarks.update_high_watermark(
            self, LogOffsetMetadata(int64("offset", offset)))

    def maybe_increment_high_watermark(self, new: LogOffsetMetadata) -> LogOffsetMetadata | None:
        """Moves the high watermark up, or to a newer segment; the old one if it did.

        IllegalArgumentError above the log's end.
        """
        if not isinstance(new, LogOffsetMetadata):
            raise TypeError(f"new must be a LogOffsetMetadata, not {shown(new)}")
        return watermarks.maybe_increment_high_watermark(self, new)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """A follower's update; the new high watermark if that is another one."""
        with self.lock:
            before = self.high_watermark
            after = self.update_high_watermark(offset)
            return None if after == before else after

    def maybe_increment_log_start_offset(
            self, offset: int, reason: watermarks.StartOffsetReason) -> bool:
        """Moves the log's start up; whether it did. `reason` goes to the log file.

        OffsetOutOfRangeError above the high watermark. Segments below it are retention's to
        delete.
        """
        if not isinstance(reason, watermarks.StartOffsetReason):
            raise TypeError(f"reason must be a StartOffsetReason, not {shown(reason)}")
        return watermarks.maybe_increment_log_start_offset(self, int64("offset", offset), reason)

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its position. One inside of a batch moves to where the batch
        begins, as Kafka's does."""
        return watermarks.fetch_high_watermark_metadata(self)

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its position."""
        return watermarks.fetch_last_stable_offset_metadata(self)

    def fetch_offset_snapshot(self) -> tuple[int, LogOffsetMetadata, LogOffsetMetadata,
                                             LogOffsetMetadata]:
        """(log start offset, log end, high watermark, last stable offset), with positions."""
        stable = self.fetch_last_stable_offset_metadata()
        high = self.fetch_high_watermark_metadata()
        return self.log_start_offset, self.log_end_offset_metadata, high, stable

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Where the batch with `offset`, or the next one, is; OffsetOutOfRangeError."""
        with self.lock, self.guarded(f"Exception while reading from {self.topic_partition}"):
            self.check_open()
            return convert_to_offset_metadata(self, int64("offset", offset))

    # ---- reading ------------------------------------------------------------------------------

    read = read  # a function of seglog.log.read, and no step between

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record at or after a time, or what a special value asks for: see
        `seglog.log.timestamps`."""
        with self.reading(f"Error while fetching offset by timestamp for {self.topic_partition}"):
            self.check_open()
            return fetch_offset_by_timestamp(self, int64("timestamp_ms", timestamp_ms))

    def active_index_entries(self) -> int:
        """Entries of the last segment's offset index."""
        return self.active.index_entries

    def active_size(self) -> int:
        """Bytes of the last segment's log. Reads end at the log's end, look-ups of times here."""
        return self.active.size

    # ---- epochs and producers -----------------------------------------------------------------

    def assign_epoch_start_offset(self, epoch: int, offset: int) -> None:
        """Notes that a leader epoch begins at `offset`, durably. IllegalArgumentError."""
        with self.lock:
            self.check_open()
            watermarks.assign_epoch(self, int32("epoch", epoch, INT32_MIN),
                                    int64("offset", offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch at or below `epoch`, where it ended); None where nothing is known."""
        with self.lock:
            found = self.leader_epochs.end_offset_for(int64("epoch", epoch), self.log_end_offset)
        return None if found[1] < 0 else found

    # ---- removing -----------------------------------------------------------------------------

    def delete_old_segments(self) -> int:
        """Deletes what retention by start offset, size and time lets go; how many segments.

        The files are renamed now and deleted after `file.delete.delay.ms`.
        """
        return retention.delete_old_segments(self)

    def truncate_to(self, offset: int) -> bool:
        """Cuts the log so that it ends below `offset`; whether there was something to cut.

        A batch that holds `offset` goes whole. IllegalArgumentError for a negative one.
        """
        return truncation.truncate_to(self, int64("offset", offset))

    def truncate_fully_and_start_at(self, offset: int,
                                    log_start_offset: int | None = None) -> None:
        """Removes everything; the log begins, and ends, at `offset`."""
        if log_start_offset is not None:
            arguments.offset("log_start_offset", log_start_offset)
        truncation.truncate_fully_and_start_at(self, arguments.offset("offset", offset),
                                               log_start_offset)

    def replace_segments(self, new: Sequence[SegmentFiles], old: Sequence[int]) -> None:
        """Puts segments, `.cleaned` and flushed, in the place of those with the base offsets
        `old`, so that a crash leaves the ones or the others."""
        with self.lock, self.guarded(f"Error while replacing segments of {self.topic_partition}"):
            replace.replace_segments(self, new, old)

    def split_overflowed_segment(self, base_offset: int) -> list[int]:
        """Splits a segment with offsets too far from its base; the base offsets of the new ones.

        LogLoadError (Kafka: IllegalArgumentException) for a segment without such offsets.
        """
        with self.lock, self.guarded(f"Error while splitting a segment of {self.topic_partition}"):
            return replace.split_overflowed_segment(self, int64("base_offset", base_offset))

    def delete_removed(self) -> None:
        """See LoadedLog."""
        with self.guarded(f"Error while deleting segments for {self.topic_partition}"):
            super().delete_removed()

    def delete(self) -> None:
        """Deletes the log and its directory at once."""
        deletion.delete_log(self)

    # ---- settings, name, end ------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> LogConfig:
        """New settings; the old ones. Segments that are there keep theirs for their indexes."""
        if not isinstance(config, LogConfig):
            raise TypeError(f"config must be a LogConfig, not {shown(config)}")
        with self.lock:
            before, self.config = self.config, config
            return before

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        """Gives a log without one its topic's id. InconsistentTopicIdError."""
        with self.lock:
            if not isinstance(topic_id, uuid.UUID):
                raise TypeError(f"topic_id must be a uuid.UUID, not {shown(topic_id)}")
            topics.assign_topic_id(self, topic_id)

    def flush_metadata(self) -> None:
        """Writes `partition.metadata` if it is due: it is there before the first record is."""
        topics.flush_metadata(self)

    def rename_dir(self, name: str, reinitialize: bool = True) -> None:
        """Gives the log's directory another name in its data directory, durably.

        Without `reinitialize` it is on its way out: its leader epochs are forgotten.
        """
        parent = self.parent_dir
        text = f"Error while renaming dir for {self.topic_partition} in log dir {parent}"
        # A reader that looks for a file by its old path begins again.
        with (self.lock, self.context.failures.guard(parent, text), public_errors(self.path),
              self.readers.changing()):
            self.flush_metadata()
            super().rename_dir(name)
            self.parent_dir = os.path.dirname(self.path)
            if not reinitialize:
                self.leader_epochs.clear()
                self.unwritten_topic_id = None

    @ending
    def close(self) -> None:
        """See LoadedLog. Kafka's text speaks of renaming."""
        with self.lock:
            if self.is_closed:
                return
            self.flush_metadata()
            self.check_open()
            self._expiry.cancel()
            try:
                with self.guarded(f"Error while renaming dir for {self.topic_partition}"):
                    self.settle()
                    self.active.close_handles()
                    super().close()
            finally:
                self.active.close_handles()
                self.readers.let_go()
                self.followers.wake()

    @ending
    def close_handlers(self) -> None:
        """Gives the log up as it is, without writing anything: its directory has failed."""
        with self.lock:
            self.active.close_handles()
            self._expiry.cancel()
            self._handlers_closed = True
            super().close_handlers()
        self.readers.let_go()
        self.followers.wake()

    def state(self) -> dict[str, Any]:
        """See LoadedLog."""
        with self.lock:
            self.settle()
            return super().state()


def load_unified_log(path: str, inputs: LoadInputs, *, context: LogContext,
                     topic_id: uuid.UUID | None = None, **how: Any) -> UnifiedLog:
    """Loads a partition directory for writing: `recovery.open_log.load_log`, with its arguments
    and errors, but what comes out may be written to."""
    return load_log(path, inputs, make=partial(UnifiedLog, context=context, new_topic_id=topic_id),
                    **how)
