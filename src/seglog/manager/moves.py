"""Moves a partition to another data directory while it is written.

Kafka: LogManager.replaceCurrentWithFutureLog, recoverAbandonedFutureLogs, and the parts of
ReplicaManager and ReplicaAlterLogDirsThread that need no broker.
"""

from __future__ import annotations

import logging
import uuid
import weakref
from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from pathlib import Path

from seglog.errors import (
    IllegalStateError, InvalidReplicaAssignmentError, InvalidTopicError, KafkaStorageError,
    OffsetOutOfRangeError, UnexpectedAppendOffsetError, UnknownTopicOrPartitionError,
)
from seglog.forks import ProcessBound
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.creation import LogCreation
from seglog.manager.deletion import LogDeletion
from seglog.manager.state import ManagerState
from seglog.manager.table import dir_of
from seglog.model import TopicPartition
from seglog.storage.producer_state import encode_snapshot
from seglog.storage.paths import (
    DIR_NAME_LENGTH_MAX, DirectoryKind, delete_dir_name, future_dir_name,
)

__all__ = ["FutureLogMover", "LogMoves", "MoveState"]

_log = logging.getLogger(__name__)

# Bytes that one step copies (Kafka: replica.fetch.max.bytes).
_COPY_BYTES = 1 << 20
# An append to a follower ignores batches of epochs above the leader's; here the source is the
# partition's own log.
_ANY_EPOCH = (1 << 31) - 1


class MoveState(Enum):
    """The progress of a move."""

    COPYING = "copying"
    PROMOTED = "promoted"
    #: The future log is gone: it was deleted, or its directory failed.
    CANCELLED = "cancelled"


class LogMoves:
    """Moves of partitions between the data directories of one manager."""

    def __init__(self, state: ManagerState, creation: LogCreation, deletion: LogDeletion) -> None:
        self._state, self._creation, self._deletion = state, creation, deletion
        # Future logs that were empty when their sources were cleaned for the last time.
        self._begun_here: weakref.WeakSet[UnifiedLog] = weakref.WeakSet()

    def alter_log_dir(self, key: TopicPartition, log_dir: str) -> FutureLogMover | None:
        """See LogManager.alter_replica_log_dir."""
        state = self._state
        if len(future_dir_name(key, uuid.uuid4().hex)) > DIR_NAME_LENGTH_MAX:
            raise InvalidTopicError("The topic name is too long.")
        if state.directories.get(log_dir) is None:
            raise KafkaStorageError(f"Log directory {log_dir} is offline")
        if log_dir in self._creation.cordoned:
            raise InvalidReplicaAssignmentError(f"Log directory {log_dir} is cordoned")
        with state.changing():
            future = state.table.get(key, is_future=True)
            if future is not None and dir_of(future) != log_dir:
                self._deletion.async_delete(key, is_future=True)
            self._creation.prefer(key, log_dir)
            current = state.table.get(key)
            if current is None:
                raise UnknownTopicOrPartitionError(f"there is no log of {key} here")
            if dir_of(current) == log_dir:
                return None
            is_new = state.table.get(key, is_future=True) is None
            future = self._creation.get_or_create(key, False, True, current.topic_id, None)
            if is_new:
                self._begun_here.add(future)
            state.cleaning.move_begins(key)
            return FutureLogMover(self, key)

    def resume(self, key: TopicPartition) -> FutureLogMover | None:
        """See LogManager.resume_move."""
        state = self._state
        with state.changing():
            current, future = self.logs(key)
            if current is None or future is None:
                return None
            if future.topic_id is None and current.topic_id is not None:
                future.assign_topic_id(current.topic_id)  # a crash came before its file
            return FutureLogMover(self, key)

    def logs(self, key: TopicPartition) -> tuple[UnifiedLog | None, UnifiedLog | None]:
        """The current log, and the future one."""
        return self._state.table.get(key), self._state.table.get(key, is_future=True)

    # ---- taking the place

    def promote_if_caught_up(self, current: UnifiedLog, future: UnifiedLog,
                             copy_rest: Callable[[], bool]) -> bool:
        """Replaces the current log by the future one after `copy_rest()`, with writers blocked
        meanwhile. Returns whether it did."""
        key = current.topic_partition
        with self._state.changing(), current.lock:
            if self.logs(key) != (current, future) or not copy_rest():
                return False
            self.replace_current_with_future_log(key)
            return True

    def replace_current_with_future_log(self, key: TopicPartition) -> None:
        """See LogManager.replace_current_with_future_log."""
        with self._state.changing():
            source, future = self.logs(key)
            if source is None:
                raise KafkaStorageError(f"The current replica for {key} is offline")
            if future is None:
                raise KafkaStorageError(f"The future replica for {key} is offline")
            _log.info("Attempting to replace current log %s with %s for %s", source, future, key)
            self._replace(source, future, update_high_watermark=True)
            _log.info("The current replica is successfully replaced with the future replica for %s",
                      key)

    def _replace(self, source: UnifiedLog | None, future: UnifiedLog,
                 update_high_watermark: bool = False) -> None:
        state, key = self._state, future.topic_partition
        # What was durable in the source must be durable in its successor before that may be found
        # without the source: its records, and where it starts. (Kafka writes neither here.)
        future.flush(True)
        state.checkpoints.recovery_offsets(dir_of(future))
        future.rename_dir(str(key))
        future.remove_log_metrics()
        if update_high_watermark and source is not None:
            future.update_high_watermark(source.high_watermark)
        if source is not None:
            state.cleaning.moved(key, dir_of(source), dir_of(future),
                                 is_clean=future in self._begun_here)
        state.table.promote(future)
        if source is not None:
            log_dir = dir_of(source)
            try:
                # Not closed, so that readers and flushes still work; appends raise an error,
                # because it is no longer the partition's log.
                source.retire(f"The log of {key} was moved to {dir_of(future)}")
                source.rename_dir(delete_dir_name(key, uuid.uuid4().hex))
            except KafkaStorageError:
                # The handler of failed directories finds the source in no table.
                source.close_handlers()
                source.remove_log_metrics()
                raise
            state.checkpoints.recovery_offsets(log_dir)
            source.remove_log_metrics()
            state.table.add(source, DirectoryKind.DELETED)
        future.new_metrics()

    def recover_abandoned(
            self, assigned_to: Callable[[TopicPartition, uuid.UUID], uuid.UUID | None]) -> None:
        """See LogManager.recover_abandoned_future_logs."""
        state = self._state
        with state.changing():
            for key, future in list(state.table.future.items()):
                if future.topic_id is None:
                    raise IllegalStateError(
                        f"The log dir {future} does not have a topic ID, which is not allowed when "
                        "running in KRaft mode.")
                wanted = assigned_to(key, future.topic_id)
                if wanted is None or state.directories.ids.get(dir_of(future)) != wanted:
                    continue
                source = state.table.get(key)
                if source is not None and source.topic_id != future.topic_id:
                    source = None
                _log.info("Attempting to recover abandoned future log for %s at %s%s", key, future,
                          "" if source is None else f" and removing {source}")
                self._replace(source, future)
                _log.info("Successfully recovered abandoned future log for %s", key)


class FutureLogMover(ProcessBound):
    """Copies the missing part of the current log to a future log, and then replaces the current log
    by it.

    For one thread at a time; other threads may write, read, truncate and delete the logs meanwhile.
    An abandoned move can be continued later, also after a restart: copied records stay.
    """

    def __init__(self, moves: LogMoves, key: TopicPartition) -> None:
        self._moves, self.topic_partition = moves, key
        self.state = MoveState.COPYING
        # A round ends when everything is copied that existed at its beginning.
        self._round_ends: int | None = None
        self._lag = 0
        self._is_without_gaps = False

    def run(self) -> MoveState:
        """Copies everything and promotes. Returns the final state. Raises the exceptions of
        `step`."""
        while self.state is MoveState.COPYING:
            self.step()
        return self.state

    def step(self, max_bytes: int = _COPY_BYTES) -> MoveState:
        """Copies up to `max_bytes`, at least one batch.

        When nothing is missing, or writers append as fast as this copies, writers are blocked while
        the rest is copied and the future log replaces the current one. The rest is less than they
        wrote during the copy before. Raises KafkaStorageError if the directory of one of the logs
        has failed.
        """
        current, future = self._moves.logs(self.topic_partition)
        if self.state is not MoveState.COPYING:
            return self.state
        if current is None or future is None:
            self.state = MoveState.CANCELLED
            return self.state
        try:
            if self._copy(current, future, max_bytes) or self._gains_nothing(current, future):
                # Makes most of it durable while other threads may still write.
                future.flush(True)
                if self._moves.promote_if_caught_up(
                        current, future, lambda: self._copy_all(current, future)):
                    self.state = MoveState.PROMOTED
        except KafkaStorageError:
            now = self._moves.logs(self.topic_partition)
            if now[0] is future:  # the old log could not be renamed
                self.state = MoveState.PROMOTED
            if future in now:
                raise
            self.state = MoveState.CANCELLED  # it was deleted meanwhile
        return self.state

    def _gains_nothing(self, current: UnifiedLog, future: UnifiedLog) -> bool:
        """Whether a round is over that has not halved what is missing."""
        end, copied = current.log_end_offset, future.log_end_offset
        if self._round_ends is not None and copied < self._round_ends:
            return False
        began, self._round_ends = self._round_ends, end
        before, self._lag = self._lag, end - copied
        return began is not None and self._lag > before // 2

    def _copy_all(self, current: UnifiedLog, future: UnifiedLog) -> bool:
        while not self._copy(current, future, _COPY_BYTES):
            pass
        return True

    def _copy(self, current: UnifiedLog, future: UnifiedLog, max_bytes: int) -> bool:
        """Does one fetch and one append. Returns whether the future log is complete."""
        try:
            _align(current, future)
            if not self._is_without_gaps:
                _truncate_at_gap(current, future)
                self._is_without_gaps = True
            position = future.log_end_offset
            # No append is larger than a segment, even if those of the current log are.
            found = current.read(position, min(max_bytes, future.config.segment_size),
                                 "log_end", min_one_message=True)
        except OffsetOutOfRangeError:
            return False  # the current log's start has moved; the next call begins there
        if found.records:
            self._append(future, found.records, position)
        future.update_high_watermark(current.high_watermark)
        future.maybe_increment_log_start_offset(
            min(current.log_start_offset, future.high_watermark),
            StartOffsetReason.LEADER_OFFSET_INCREMENTED)
        # After a batch that was truncated as a whole there may be offsets without records.
        return not found.records or future.log_end_offset == current.log_end_offset

    def _append(self, future: UnifiedLog, records: bytes, position: int) -> None:
        if position != future.log_end_offset:
            raise IllegalStateError(
                f"Offset mismatch for the future replica {self.topic_partition}: fetched offset = "
                f"{position}, log end offset = {future.log_end_offset}.")
        try:
            future.append_as_follower(records, _ANY_EPOCH)
        except UnexpectedAppendOffsetError as error:
            end = future.log_end_offset
            if end != future.log_start_offset or not error.first_offset < end <= error.last_offset:
                raise
            _log.info("Unexpected offset in append to %s. First offset %d is less than log start "
                      "offset %d. Since this is the first record to be appended to the future "
                      "replica's log, will start the log from offset %d.", self.topic_partition,
                      error.first_offset, future.log_start_offset, error.first_offset)
            future.truncate_fully_and_start_at(error.first_offset)
            future.append_as_follower(records, _ANY_EPOCH)


def _align(current: UnifiedLog, future: UnifiedLog) -> None:
    """Truncates the part of the future log that the current one does not have (any more).

    Kafka compares leader epochs, and its truncation of the current log notifies the copiers. Here
    the last batches are compared, which covers every change of the current log.
    """
    if future.log_end_offset > current.log_end_offset:
        future.truncate_to(current.log_end_offset)
    while future.log_end_offset > max(_first_local(current), _first_local(future)):
        last = future.log_end_offset - 1
        copied = _batch_at(future, last)
        # Neither has one where a truncation left offsets without records: they may differ below.
        if copied and copied == _batch_at(current, last):
            return
        first = int.from_bytes(copied[:8]) if copied else last
        future.truncate_to(max(first, _first_local(future)))
    if future.log_end_offset <= _first_local(current) > _first_local(future):
        # All that it has is deleted in the current log, whose start may be inside a batch.
        _start_at_first_local(current, future)


def _first_local(log: UnifiedLog) -> int:
    """The first offset that can be copied: what is only in remote storage stays there."""
    if not log.remote_log_enabled:
        return log.log_start_offset
    return max(log.log_start_offset, log.local_log_start_offset)


def _start_at_first_local(current: UnifiedLog, future: UnifiedLog) -> None:
    """Begins the future log where its source has its first segment, in a tiered log with what is
    known of the records before (Kafka: TierStateMachine)."""
    first = _first_local(current)
    if first == current.log_start_offset:
        future.truncate_fully_and_start_at(first)
        return
    with current.lock, current.guarded(f"Error while moving {current.topic_partition}"):
        path = current.producer_manager.fetch_snapshot(first)
        snapshot = encode_snapshot([]) if path is None else Path(path).read_bytes()
        epochs = current.leader_epochs.entries_in_range(-1, first)
    future.start_with_state(first, current.log_start_offset, epochs, snapshot)


def _truncate_at_gap(current: UnifiedLog, future: UnifiedLog) -> None:
    """Truncates the future log before a segment that lacks its end. A power cut leaves one if a
    later segment was durable earlier. Kafka keeps both (LogLoader), and then deletes the source."""
    for base, following in pairwise(future.segments.base_offsets.tolist()):
        last = following - 1
        if (last >= max(_first_local(current), _first_local(future))
                and _batch_at(future, last) != _batch_at(current, last)):
            future.truncate_to(base)
            return


def _batch_at(log: UnifiedLog, offset: int) -> bytes:
    """The batch with this offset, or the next one."""
    return log.read(offset, 1, "log_end", min_one_message=True).records
