"""The segments of a log on disk, and the log's end (Kafka: LocalLog)."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NoReturn, TypeAlias

from seglog._native.append import FastPath, LogEnd
from seglog._native.fetch import LogOffsetMetadata
from seglog.config import LogConfig
from seglog.errors import SeglogError
from seglog.log.context import LogContext
from seglog.log.log_dir_failures import closed_error
from seglog.log.follower_queue import Followers
from seglog.log.readers import LogReaders
from seglog.log.scheduler import Time
from seglog.log.active_segment import ActiveSegment
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.log_files import LogFiles
from seglog.recovery.segment_files import TOLD_FILES, SegmentFiles
from seglog.storage.paths import FileKind, FileState, file_name, segment_file_names
from seglog.storage.textfile import remove_path

__all__ = ["LocalLog", "Reason"]

#: Logs why these segments are deleted.
Reason: TypeAlias = Callable[[Sequence[SegmentFiles]], None]

_logger = logging.getLogger("seglog.LocalLog")
_unified_logger = logging.getLogger("seglog.UnifiedLog")
_INT64_MAX = 2**63 - 1


class LocalLog:
    """The segments, the active one, the log's end and the recovery point.

    The caller holds `lock`, except where a method says otherwise. Readers read `end` without it.
    """

    def __init__(self, files: LogFiles, config: LogConfig, context: LogContext, *,
                 log_end_offset: int, recovery_point: int, loaded_ms: int | None) -> None:
        self.files, self.config, self.context = files, config, context
        self.topic_partition, self.lock = files.topic_partition, files.lock
        self.segments, self.disk = files.segments, files.disk
        self.parent_dir = os.path.dirname(files.path)
        self.recovery_point = recovery_point
        self.readers, self.followers = LogReaders(files), Followers()
        #: Why the log takes no more appends: the partition has another log now.
        self.retired: str | None = None
        self.handlers_closed = False
        now = self.now_ms() if loaded_ms is None else loaded_ms
        self.last_flush_ms = now
        self.segments.note_opened(now)
        self.truncations = 0
        #: Entered around the flush of each segment.
        self.flush_timer: Callable[[], AbstractContextManager[object]] = nullcontext
        #: Truncations that removed segments: what a round of cleaning has read may be gone.
        self.segment_truncations = 0
        self.active = self._activate(int(self.segments.base_offsets[-1]))
        self.end = LogEnd(log_end_offset, self.active.base_offset, self.active.size)
        #: Disarmed by every change of the values that it was armed with.
        self.fast_path = FastPath(
            self.end, lock=self.lock, failed=context.failures.failed,
            waiting=self.followers.waiting, wake=self.followers.wake,
            clock=None if type(context.time) is Time else context.time.milliseconds,
            on_error=self.append_failed, flush_if_due=self.flush_if_due)

    # ---- what it is ---------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self.files.path

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.end.offset

    @property
    def end_metadata(self) -> LogOffsetMetadata:
        """The log's end, with the segment and byte position of the next batch."""
        return LogOffsetMetadata(*self.end.fields)

    @property
    def all_bases(self) -> list[int]:
        """Base offsets of all segments."""
        return self.segments.bases(range(len(self.segments)))

    @property
    def remote_log_enabled(self) -> bool:
        """Whether segments may be in remote storage."""
        return self.context.is_remote(self.config, self.topic_partition.topic)

    @property
    def remote_copy_enabled(self) -> bool:
        """Whether segments are still copied to remote storage."""
        return self.remote_log_enabled and not self.config.remote_log_copy_disable

    def size(self) -> int:
        """Bytes of all segments. Takes the lock."""
        with self.lock:
            self.update_files()
            return self.segments.size

    def now_ms(self) -> int:
        """The time of the log's clock."""
        return self.context.time.milliseconds()

    def log_text(self, message: str) -> str:
        """A message with the log's prefix, as in Kafka."""
        return f"[UnifiedLog partition={self.topic_partition}, dir={self.parent_dir}] {message}"

    def update_config(self, config: LogConfig) -> LogConfig:
        """Sets new settings and returns the old ones. Segments keep theirs for their indexes."""
        self.fast_path.disarm()
        before, self.config = self.config, config
        return before

    def retire(self, why: str) -> None:
        """Makes `check_current` raise: the partition has another log."""
        self.fast_path.disarm()
        self.retired = why

    # ---- guards -------------------------------------------------------------------------------

    def guarded(self, message: str, **how: bool) -> AbstractContextManager[None]:
        """Guards a part of an operation: `guarded_as` with the directory added to the message."""
        return self.guarded_as(f"{message} in dir {self.parent_dir}", **how)

    @contextlib.contextmanager
    def guarded_as(self, text: str, **how: bool) -> Iterator[None]:
        """Guards a part of an operation (Kafka: maybeHandleIOException).

        An error of the file system takes the data directory offline and is raised with `text`;
        `how` says which do not (LogDirFailureChannel.guard: `reads`, `repeats`).
        """
        with self.context.failures.guard(self.parent_dir, text, **how), public_errors(self.path):
            yield

    def append_failed(self, error: OSError) -> NoReturn:
        """Takes the directory offline after the file system refused an append."""
        with self.guarded(f"Error while appending records to {self.topic_partition}"):
            raise error

    def check_open(self) -> None:
        """Raises KafkaStorageError if the log was closed or deleted. Takes no lock."""
        if self.handlers_closed or self.files.is_closed:
            raise closed_error(f"The log of {self.topic_partition} in {self.path} is closed")

    def check_current(self) -> None:
        """Raises KafkaStorageError also if another log has replaced this one: changes would be
        lost."""
        self.check_open()
        if self.retired is not None:
            raise closed_error(self.retired)

    # ---- the end and the active segment -------------------------------------------------------

    def active_extent(self, base_offset: int, end: int) -> tuple[int, int]:
        """The bytes of the active segment and the entries of its offset index, for a reader without
        the lock.

        All bytes, as Kafka's reads: an append that an index refused left a batch after the log's
        end. (`end`, 0) if the segment at `base_offset` is active no more: its index was trimmed,
        and may lack entries that its successor has. A mapped read after the end of a file kills the
        process.
        """
        active = self.active
        if active.base_offset != base_offset:
            return end, 0
        return active.size, active.index_entries

    def update_files(self) -> None:
        """Updates `segments` with the appends to the active one."""
        if self.files.is_closed:
            return  # its files may belong to another log by now
        self.active.update_files()
        self.segments.release(self.active.files)

    def set_end(self, offset: int) -> None:
        """Sets the log's end. The recovery point is never above it."""
        self.recovery_point = min(self.recovery_point, offset)
        self.end.move(offset, self.active.base_offset, self.active.size)
        if self.followers.waiting:
            self.followers.wake()

    def recovery_point_at_least(self, offset: int) -> None:
        """Records that everything below `offset` is durable or no longer in the log."""
        self.recovery_point = max(self.recovery_point, offset)

    @property
    def has_own_checkpoints(self) -> bool:
        """Whether the log's owner leaves it to the log when they are written (`seglog.open`)."""
        return self.context.checkpoint is not None

    def checkpoint(self) -> None:
        """Has the log's start and recovery point written, if the log's owner leaves that to it."""
        if self.context.checkpoint is not None:
            self.context.checkpoint()

    def keep_gap(self) -> None:
        """Offsets are missing before the active segment, or before the log's end, because they came
        so: makes the recovery point pass them, so that a recovery does not take them for a hole."""
        if self.has_own_checkpoints:
            self.flush_to(self.log_end_offset)
            self.checkpoint()

    def _activate(self, base_offset: int) -> ActiveSegment:
        """Makes the last segment the active one."""
        self.active = ActiveSegment(self.segments.pin(base_offset))
        return self.active

    def _open_segment(self, base_offset: int) -> None:
        """Creates a new active segment, with only a log file."""
        name = file_name(base_offset, FileKind.LOG)
        if self.config.preallocate:
            self.disk.preallocate(name, self.config.segment_size)
        else:
            self.disk.create(name)
        self.segments.add(SegmentFiles(self.disk, base_offset, self.config, size=0,
                                       created_ms=self.now_ms()))
        self._activate(base_offset)

    def roll(self, expected: int) -> int:
        """Rolls a new segment at the larger of the log's end and `expected`. Returns its base
        offset."""
        self.check_open()
        active, started = self.active, self.now_ms()
        base = max(expected, self.log_end_offset)
        where = (f"start offset {base}=max(provided offset = {expected}, LEO = "
                 f"{self.log_end_offset})")
        wider = where.replace("=max", " =max")
        if base in self.segments:
            if base != active.base_offset or active.files.size:
                segment = self.segments.get(base).describe()
                raise SeglogError(
                    f"Trying to roll a new log segment for topic partition {self.topic_partition} "
                    f"with {wider} while it already exists. Existing segment is "
                    f"Optional[{segment}].")
            active.files.open_indexes()  # Kafka logs their sizes, which creates them
            _logger.warning(self.log_text(
                f"Trying to roll a new log segment with {where} while it already exists and is "
                f"active with size 0. Size of time index: {active.files.time_index.entries}, size "
                f"of offset index: {active.files.offset_index.entries}."))
            self.replace_active(base, self.reason("Deleting segments as part of log roll: %s"))
        elif base < active.base_offset:
            raise SeglogError(
                f"Trying to roll a new log segment for topic partition {self.topic_partition} with "
                f"{wider} lower than start offset of the active segment {active.files.describe()}")
        else:
            self._remove_leftovers(base)
            active.become_inactive()
            self.segments.unpin()
            self.segments.release(active.files)
            if self.recovery_point >= base:
                # No recovery reads it once its successor exists: a power cut would leave the zeros
                # that were trimmed, no last entry of the time index, or the records that a
                # truncation took. (Kafka does not sync it.)
                with self.flush_timer():
                    self.files.flush_segment(active.base_offset)
            self._open_segment(base)
        self.set_end(self.log_end_offset)
        _logger.info(self.log_text(f"Rolled new log segment at offset {base} in "
                                   f"{self.now_ms() - started} ms."))
        return base

    def _remove_leftovers(self, base: int) -> None:
        for path in (f"{self.path}/{name}" for name in segment_file_names(base)):
            if os.path.lexists(path):
                _logger.warning(self.log_text(f"Newly rolled segment file {path} already exists; "
                                              "deleting it first"))
                remove_path(path)

    # ---- flushing -----------------------------------------------------------------------------

    def flush_to(self, offset: int, including_offset: bool = False) -> None:
        """Flushes everything below `offset`; with `including_offset` also the segment that begins
        there. Takes the lock only briefly, never while it waits for the disk. Raises
        KafkaStorageError; with too many open files the log stays usable, and a later flush syncs
        what this one did not."""
        how = "inclusive" if including_offset else "exclusive"
        with self.guarded_as(f"Error while flushing log for {self.topic_partition} in dir "
                             f"{self.parent_dir} with offset {offset} ({how}) and recovery point "
                             f"{offset}", repeats=True):
            self._check_handlers()
            before, end = self.recovery_point, offset + including_offset
            if end <= before:
                return
            _unified_logger.debug(self.log_text(
                f"Flushing log up to offset {offset} ({how}) with recovery point {offset}, last "
                f"flushed: {self.last_flush_ms},  current time: {self.now_ms()}, unflushed: "
                f"{self.log_end_offset - before}"))
            with self.lock:
                self._check_handlers()
                # The task of a roll may run after a truncation, and one may happen meanwhile: other
                # records get these offsets. (Kafka counts them as flushed.)
                offset, truncations = min(offset, self.log_end_offset), self.truncations
                active_base = self.active.base_offset
            start = self.recovery_point
            if end > start:
                self.files.flush(start, end, self.flush_timer)
                with self.lock:
                    # Kafka's `end` overflows at the end of all offsets, and the point stays.
                    if truncations == self.truncations and end <= _INT64_MAX:
                        # What a roll meanwhile did to the segment is left to the roll's own flush.
                        rolled = self.active.base_offset != active_base
                        self.recovery_point_at_least(min(offset, active_base) if rolled else offset)
            if self.recovery_point > before:
                self.last_flush_ms = self.now_ms()

    def sync_to(self, offset: int) -> None:
        """Syncs the segments with offsets below `offset` that are not flushed yet; the recovery
        point stays. Raises KafkaStorageError."""
        with self.guarded_as(f"Error while syncing log for {self.topic_partition} in dir "
                             f"{self.parent_dir} up to offset {offset}", reads=True):
            if offset > (start := self.recovery_point):
                self.files.flush(start, offset, self.flush_timer)

    def flush_due_at(self) -> int:
        """The log end offset at which `flush.messages` requires a flush."""
        return min(self.recovery_point + self.config.flush_messages, _INT64_MAX)

    def flush_if_due(self) -> int:
        """Flushes the log if `flush.messages` requires it. Returns the offset of the next flush."""
        if self.log_end_offset >= self.flush_due_at():
            self.flush_to(self.log_end_offset)
        return self.flush_due_at()

    def _check_handlers(self) -> None:
        """Raises if the log was abandoned. A log that was closed properly can still be flushed."""
        if self.handlers_closed:
            self.check_open()

    # ---- removing segments --------------------------------------------------------------------

    def reason(self, message: str, separator: str = ", ") -> Reason:
        """A Reason that logs one line for all segments, which replace %s."""
        return lambda segments: _logger.info(
            self.log_text(message), separator.join(one.describe() for one in segments))

    def remove_segments(self, bases: Sequence[int], why: Reason, *, at_once: bool = False,
                        last_first: bool = False) -> None:
        """Removes segments from the log and deletes their files, later or `at_once` (Kafka:
        removeAndDeleteSegments). After a crash some are left: the last ones, or with `last_first`
        the first ones."""
        if not bases:
            return
        segments = [self.segments.get(base) for base in bases]
        why(segments)
        self.segments.remove(bases)
        self.files.dismiss_checks(list(bases))
        self.delete_segment_files(segments, at_once=at_once, last_first=last_first)

    def replace_active(self, base_offset: int, why: Reason) -> None:
        """Creates a new, empty segment at `base_offset` to replace the last one, so that there is
        always one (Kafka: createAndDeleteSegment)."""
        with self.readers.changing():
            self.update_files()
            self.active.close_handles()
            old = self.active.files
            if base_offset == old.base_offset:
                self._retire_files_of_active(old)
            self._open_segment(base_offset)
            why([old])
            if base_offset != old.base_offset:
                self.segments.remove([old.base_offset])
                old.rename(FileState.LIVE, FileState.DELETED)
            self._delete_later([old])

    def _retire_files_of_active(self, old: SegmentFiles) -> None:
        """Gives its files their names for deletion; an empty log file keeps its own, and becomes
        that of the successor. A crash between the two names would leave a log without segments,
        which begins at 0 (as in Kafka)."""
        size = None if old.size else self.disk.size(old.log_name)
        if size is not None:
            self.disk.create(old.names(FileState.DELETED)[0], size)
            if size:  # the successor may be preallocated with less
                self.disk.resize(old.log_name, 0)
        old.rename(FileState.LIVE, FileState.DELETED, keeps_log=size is not None)

    def delete_segment_files(self, segments: Sequence[SegmentFiles], *, at_once: bool = False,
                             last_first: bool = False) -> None:
        """Renames the files of segments that are no longer in the log, and deletes them later."""
        for segment in segments[::-1] if last_first else segments:
            segment.rename(FileState.LIVE, FileState.DELETED)
        if at_once:
            self._delete_files(segments)
        else:
            self._delete_later(segments)

    def _delete_later(self, segments: Sequence[SegmentFiles]) -> None:
        self.context.scheduler.schedule_once("delete-file", partial(self._delete_files, segments),
                                             self.config.file_delete_delay_ms)

    def _delete_files(self, segments: Sequence[SegmentFiles]) -> None:
        _logger.info(self.log_text("Deleting segment files %s"),
                     ", ".join(one.describe() for one in segments))
        with self.guarded(f"Error while deleting segments for {self.topic_partition}"):
            for segment in segments:
                for name, what in zip(segment.names(FileState.DELETED), TOLD_FILES.values(),
                                      strict=True):
                    path = os.path.join(self.path, name)
                    if self.disk.delete(name):
                        _logger.info("Deleted %s %s.", what, path)
                    elif what != "transaction index":
                        _logger.info("Failed to delete %s %s because it does not exist.", what,
                                     path)

    def delete_snapshots(self, names: Sequence[str], *, at_once: bool = False) -> None:
        """Deletes producer snapshots that were renamed, later or `at_once`."""
        def delete() -> None:
            with self.guarded("Error while deleting producer state snapshots for "
                              f"{self.topic_partition}"):
                for name in names:
                    self.disk.delete(name)

        if at_once:
            delete()
        else:
            self.context.scheduler.schedule_once("delete-producer-snapshot", delete,
                                                 self.config.file_delete_delay_ms)

    # ---- truncation ---------------------------------------------------------------------------

    def truncate_to(self, offset: int, why: Reason) -> list[int]:
        """Truncates the segments so that the log ends at `offset`. Returns the base offsets of
        removed segments. The caller is inside `readers.changing`."""
        self.truncations += 1
        first = int(self.segments.floor_row(offset)) + 1
        bases = self.segments.bases(range(first, len(self.segments)))
        if bases:
            self.segment_truncations += 1
            self.active.close_handles()
            # In Kafka's order, the first one first and nothing synced, a crash would leave records
            # after a hole; so would the end of the segment that stays, if it were gone first.
            self.remove_segments(bases, why, last_first=True)
            self._activate(int(self.segments.base_offsets[-1]))
            self.disk.sync_directory()
        self.active.truncate_to(offset, self.now_ms())
        self.set_end(offset)
        return bases

    def ends_with_gap(self) -> bool:
        """Whether offsets before the log's end are missing, as it was truncated in a gap."""
        return self.active.files.read_next_offset() < self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int, why: Reason) -> None:
        """Replaces all segments by a new, empty one at `offset`, where the log then ends."""
        self.truncations += 1
        self.segment_truncations += 1
        self.remove_segments(self.all_bases[:-1], why)
        self.replace_active(offset, why)
        self.set_end(offset)

    # ---- name and end -------------------------------------------------------------------------

    def rename(self, name: str) -> None:
        """Renames the directory. A reader that fails to find a file by its old path starts
        again."""
        with self.readers.changing():
            self.files.rename(name)
            self.parent_dir = os.path.dirname(self.path)

    def release_readers(self) -> None:
        """Closes the files that no reader uses, and wakes followers: the log is closed."""
        self.readers.close()
        self.followers.wake()

    def close_handlers(self) -> None:
        """Abandons the files without changes. A disk that failed may refuse to close them, too."""
        with contextlib.suppress(OSError):
            self.active.end()
        self.handlers_closed = True
        self.files.abandon()
