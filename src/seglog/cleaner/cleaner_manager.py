"""Chooses the next log to clean, and tracks partitions that must not be cleaned (Kafka:
LogCleanerManager)."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seglog.cleaner.checkpoints import CheckpointDirectory, CleanerCheckpoints
from seglog.cleaner.cleanable import LogToClean, cleanable_offsets, max_compaction_delay
from seglog.cleaner.cleaning_states import ABORTED, CleaningStates, LogCleaningState
from seglog.errors import (
    IllegalStateError, KafkaStorageError, LogCleaningAbortedError, LogCleaningError,
    UnknownTopicOrPartitionError,
)
from seglog.forks import ProcessBound
from seglog.log.log_dir_failures import CLOSED, OFFLINE
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.storage.checkpoint_files import has_line
from seglog.storage.paths import DirectoryKind, parse_directory_name

__all__ = ["CleanedLogs", "LogCleanerManager", "PreCleanStats"]

_logger = logging.getLogger("seglog.LogCleaner")
_WAIT_SECONDS = 0.1

Log = tuple[TopicPartition, UnifiedLog]


class CleanedLogs(Protocol):
    """The logs of a process, as a cleaner sees them. Safe from any thread.

    Only `compacted` and `others` may open a log; the manager calls them without its lock.
    """

    def compacted(self) -> Iterable[Log]:
        """Logs with `compact` in their policy."""

    def serves(self, log: UnifiedLog) -> bool:
        """Whether the log is still that of its partition, and is not being moved."""

    def has(self, key: TopicPartition) -> bool:
        """Whether the partition has a log here."""

    def keeps(self, log_dir: str, key: TopicPartition) -> bool:
        """Whether the partition's line stays in the checkpoint of a data directory."""


@dataclass(slots=True)
class PreCleanStats:
    """What a choice of a log found: cleanable logs, those with overdue records, and by how long
    (Kafka: PreCleanStats)."""

    cleanable_partitions: int = 0
    delayed_partitions: int = 0
    max_compaction_delay_ms: int = 0

    def update_max_compaction_delay(self, delay_ms: int) -> None:
        """Adds one log."""
        self.max_compaction_delay_ms = max(self.max_compaction_delay_ms, delay_ms)
        self.delayed_partitions += delay_ms > 0


class LogCleanerManager(ProcessBound):
    """The state of each partition, the checkpoints and the uncleanable partitions, under one lock.

    It waits for no log's lock under its own: an append may hold one for as long as it waits for its
    records. A caller that holds the lock of a log must not call methods that wait for a round.
    """

    def __init__(self, directories: Iterable[CheckpointDirectory], logs: CleanedLogs) -> None:
        self._logs = logs
        self._checkpoints = CleanerCheckpoints(directories, logs.keeps)
        self._states = CleaningStates()
        self._uncleanable: dict[str, set[TopicPartition]] = {}
        self._first_timestamps: weakref.WeakKeyDictionary[
            UnifiedLog, dict[tuple[int, int, int], int]] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: Of the last choice: the largest cleanable ratio, and its time (ms).
        self.dirtiest_log_cleanable_ratio = 0.0
        self.time_of_last_run_ms: int | None = None

    # ---- choosing -----------------------------------------------------------------------------

    def grab_filthiest_compacted_log(self, now_ms: int) -> tuple[LogToClean | None, PreCleanStats]:
        """The log to clean next, whose partition is then in progress; None if none is due.

        Raises LogCleaningError for a log whose ratio cannot be computed.
        """
        logs, stats = list(self._logs.compacted()), PreCleanStats()
        with self._lock:
            self.time_of_last_run_ms = now_ms
            last_clean = self._checkpoints.all()
            # A round whose end no checkpoint can hold would begin again for ever.
            idle = [log for key, log in logs if has_line(key) and self._may_begin(key, log)]
        dirty = [found for log in idle
                 if (found := self._to_clean(log, _of(last_clean, log), now_ms, stats))]
        self.dirtiest_log_cleanable_ratio = max(
            (one.cleanable_ratio for one in dirty), default=0.0)
        due = [one for one in dirty if one.is_due]
        stats.cleanable_partitions = len(due)
        for one in sorted(due, key=lambda one: one.cleanable_ratio, reverse=True):
            with self._lock:
                if self._may_begin(one.topic_partition, one.log) and self._is_current(one):
                    self._states.begin(one.topic_partition)
                    return one, stats
        return None, stats

    def grab(self, log: UnifiedLog, now_ms: int) -> LogToClean | None:
        """Takes one log for a round, however dirty it is; waits for a round or a pause to end.

        Returns None if nothing can be cleaned. Raises KafkaStorageError if the log is closed or was
        replaced, UnknownTopicOrPartitionError if it was deleted, IllegalStateError if it is being
        moved.
        """
        key = log.topic_partition
        while True:
            with self._changed:
                while not self._states.is_idle(key):
                    log.check_current()
                    self._changed.wait(_WAIT_SECONDS)
                self._check_served(log)
                last_clean = self._last_clean(log)
            found = self._measured(log, last_clean, now_ms)
            if not found.cleanable_bytes:
                return None
            with self._lock:
                self._check_served(log)
                if self._states.is_idle(key) and self._is_current(found):
                    self._states.begin(key)
                    return found

    def _check_served(self, log: UnifiedLog) -> None:
        key = log.topic_partition
        log.check_current()
        if not self._logs.serves(log):
            # It leaves the table before its directory is renamed; a new log may follow.
            if not self._logs.has(key) or _was_deleted(log):
                raise UnknownTopicOrPartitionError(f"{key} was deleted")
            raise IllegalStateError(f"{key} is being moved to another data directory")

    def _is_current(self, found: LogToClean) -> bool:
        """Whether no round and no truncation has come between, since the log was measured."""
        return (self._last_clean(found.log) in (None, found.first_dirty_offset)
                and found.log.segment_truncations == found.truncations)

    def _last_clean(self, log: UnifiedLog) -> int | None:
        return self._checkpoints.get(log.parent_dir, log.topic_partition)

    def _may_begin(self, key: TopicPartition, log: UnifiedLog) -> bool:
        return (log.config.compact and self._states.is_idle(key) and self._logs.serves(log)
                and not self._is_uncleanable(log))

    def _to_clean(self, log: UnifiedLog, last_clean: int | None, now_ms: int,
                  stats: PreCleanStats) -> LogToClean | None:
        try:
            found = self._measured(log, last_clean, now_ms, stats)
        except KafkaStorageError as error:
            if error.code not in (OFFLINE, CLOSED):  # too many open files, say
                _logger.info("The next choice considers %s again: %s", log.topic_partition, error)
            return None  # else its directory has failed, or it was deleted meanwhile
        except Exception as error:
            raise LogCleaningError("Failed to calculate log cleaning stats for partition "
                                   f"{log.topic_partition}", log) from error
        return found if found.total_bytes else None

    def _measured(self, log: UnifiedLog, last_clean: int | None, now_ms: int,
                  stats: PreCleanStats | None = None) -> LogToClean:
        offsets = cleanable_offsets(log, last_clean, now_ms)
        with self._lock:
            if (offsets.force_update_checkpoint and self._logs.serves(log)
                    and self._last_clean(log) == last_clean):
                self.update_checkpoints(log.parent_dir,
                                        add=(log.topic_partition, offsets.first_dirty_offset))
            seen = self._first_timestamps.setdefault(log, {})
        delay_ms = max_compaction_delay(log, offsets.first_dirty_offset, now_ms, seen)
        if stats is not None:
            stats.update_max_compaction_delay(delay_ms)
        return LogToClean(log, offsets.first_dirty_offset, offsets.first_uncleanable_dirty_offset,
                          delay_ms > 0)

    def deletable_logs(self) -> Generator[UnifiedLog]:
        """Compacted logs without other work in progress, for a pass of retention; each is in
        progress until the next. (In Kafka all are at once.) Includes those without `delete`, which
        may have segments below their start offsets."""
        for key, log in list(self._logs.compacted()):
            with self._lock:
                if not self._may_begin(key, log):
                    continue
                self._states.begin(key)
            try:
                yield log
            finally:
                with self._changed:
                    self._states.end(key)
                    self._changed.notify_all()

    @contextlib.contextmanager
    def paused_for_retention(self, logs: Sequence[Log]) -> Iterator[list[Log]]:
        """Those of these logs, which are not compacted, that have no other work in progress; paused
        during a pass of retention (Kafka: pauseCleaningForNonCompactedPartitions)."""
        with self._lock:
            found = [(key, log) for key, log in logs
                     if not log.config.compact and self._states.is_idle(key)]
            for key, _ in found:
                self._states.pause(key)
        try:
            yield found
        finally:
            self.resume_cleaning(key for key, _ in found)

    # ---- states -------------------------------------------------------------------------------

    def cleaning_state(self, key: TopicPartition) -> LogCleaningState | None:
        """The state of a partition, None for an idle one."""
        with self._lock:
            return self._states.get(key)

    def abort_cleaning(self, key: TopicPartition) -> None:
        """Ends a round of the partition, and waits for its end."""
        with self._lock:
            self.abort_and_pause_cleaning(key)
            self.resume_cleaning((key,))

    def abort_and_pause_cleaning(self, key: TopicPartition) -> None:
        """The same, and no round begins until `resume_cleaning`. Each call needs its own resume."""
        with self._changed:
            while self._states.get(key) == ABORTED:  # by another caller
                self._changed.wait(_WAIT_SECONDS)
            self._states.pause(key)
            try:
                while not self._states.is_paused(key):
                    self._changed.wait(_WAIT_SECONDS)
            except BaseException:  # an interrupt: no caller would resume the partition
                self._states.withdraw(key)
                self._changed.notify_all()
                raise

    def resume_cleaning(self, keys: Iterable[TopicPartition]) -> None:
        """Removes one pause of each partition. Raises IllegalStateError for one that is not
        paused."""
        with self._changed:
            for key in keys:
                self._states.resume(key)
            self._changed.notify_all()

    def check_cleaning_aborted(self, key: TopicPartition) -> None:
        """Raises LogCleaningAbortedError if the partition's round was aborted."""
        with self._lock:
            if self._states.get(key) == ABORTED:
                raise LogCleaningAbortedError(f"The cleaning of {key} was aborted")

    def done_cleaning(self, log: UnifiedLog, log_dir: str, end_offset: int) -> None:
        """Ends a round: the partition is idle, with its checkpoint at `end_offset`; or paused, if
        the round was aborted."""
        key = log.topic_partition
        with self._changed:
            if self._states.check_in_progress(key):
                self.update_checkpoints(log_dir, add=(key, end_offset))
            self._states.end(key)
            self._changed.notify_all()

    # ---- checkpoints --------------------------------------------------------------------------

    def all_cleaner_checkpoints(self) -> dict[TopicPartition, int]:
        """Where the next round of each partition begins, by the files."""
        with self._lock:
            return {key: offset for offsets in self._checkpoints.all().values()
                    for key, offset in offsets.items()}

    def update_checkpoints(self, log_dir: str, *, add: tuple[TopicPartition, int] | None = None,
                           remove: TopicPartition | None = None) -> None:
        """Writes the file of a directory with one line added or removed."""
        with self._lock:
            self._checkpoints.update(log_dir, add=add, remove=remove)

    def maybe_truncate_checkpoint(self, log: UnifiedLog, offset: int) -> None:
        """Lowers the log's offset to `offset` if it is above: also that of a log which is not
        compacted now, because it may be again."""
        with self._lock:
            self._checkpoints.truncate(log.parent_dir, log.topic_partition, offset)

    def opened(self, log: UnifiedLog, *, keeps_line: bool = False) -> None:
        """A log was created or opened. Removes what is known of an earlier log with its name: an
        offset above its end, and that it is uncleanable. With `keeps_line` it has a line from now
        on, before any round: by that its next open knows that it may have gaps."""
        log_dir, key = log.parent_dir, log.topic_partition
        with self._lock:
            self._uncleanable.get(log_dir, set()).discard(key)
            offset = self._checkpoints.get(log_dir, key)
            is_stale = offset is not None and offset > log.log_end_offset
            if keeps_line and (offset is None or is_stale):
                self._checkpoints.update(log_dir, add=(key, log.log_start_offset))
            elif is_stale:
                self._checkpoints.update(log_dir, remove=key)

    def alter_checkpoint_dir(self, key: TopicPartition, source: str, target: str) -> None:
        """Moves a partition's line, and its mark if it is uncleanable, to another directory."""
        with self._lock:
            offset = self._checkpoints.get(source, key)
            if offset is not None:
                self._checkpoints.update(source, remove=key)
                self._checkpoints.update(target, add=(key, offset))
            marked = self._uncleanable.get(source, set())
            if key in marked:
                marked.discard(key)
                self.mark_partition_uncleanable(target, key)

    def handle_log_dir_failure(self, log_dir: str) -> None:
        """The directory is offline."""
        _logger.warning("Stopping cleaning logs in dir %s", log_dir)
        with self._lock:
            self._checkpoints.drop(log_dir)

    # ---- uncleanable partitions ---------------------------------------------------------------

    def uncleanable_partitions(self, log_dir: str) -> frozenset[TopicPartition]:
        """Partitions of a directory whose cleaning failed: they are not cleaned again until the
        next start."""
        with self._lock:
            return frozenset(self._uncleanable.get(log_dir, ()))

    def mark_uncleanable(self, log: UnifiedLog) -> None:
        """The cleaning of the log failed. Does nothing if it was deleted since: another log may
        have its name."""
        with self._lock:
            if self._logs.serves(log):
                self.mark_partition_uncleanable(log.parent_dir, log.topic_partition)

    def mark_partition_uncleanable(self, log_dir: str, key: TopicPartition) -> None:
        """The cleaning of the partition failed."""
        with self._lock:
            self._uncleanable.setdefault(log_dir, set()).add(key)

    def _is_uncleanable(self, log: UnifiedLog) -> bool:
        return log.topic_partition in self._uncleanable.get(log.parent_dir, ())

    def maintain_uncleanable_partitions(self) -> None:
        """Removes partitions that have no log any more."""
        with self._lock:
            for log_dir, keys in list(self._uncleanable.items()):
                left = {key for key in keys if self._logs.has(key)}
                if left:
                    self._uncleanable[log_dir] = left
                else:
                    del self._uncleanable[log_dir]

    def uncleanable_bytes(self, log_dir: str, now_ms: int) -> int:
        """The bytes that a round over the uncleanable partitions of a directory would clean.
        (Kafka's gauge throws for one without a checkpoint.)"""
        marked = self.uncleanable_partitions(log_dir)
        if not marked:
            return 0
        with self._lock:
            last_clean, total = self._checkpoints.all(), 0
        for key, log in self._logs.compacted():  # without the lock: see the class
            if key in marked:
                with contextlib.suppress(KafkaStorageError):
                    offsets = cleanable_offsets(log, _of(last_clean, log), now_ms)
                    total += LogToClean(log, *offsets[:2]).cleanable_bytes
        return total


def _of(checkpoints: Mapping[str, Mapping[TopicPartition, int]], log: UnifiedLog) -> int | None:
    """The offset of a log: that of its own directory. Another may have a line of an old log."""
    return checkpoints.get(log.parent_dir, {}).get(log.topic_partition)


def _was_deleted(log: UnifiedLog) -> bool:
    """Whether its directory has the name of a deleted or a stray log."""
    return parse_directory_name(log.path).kind in (DirectoryKind.DELETED, DirectoryKind.STRAY)
