"""What the operations of a log stand on: its clock, its guard, its last segment, its end."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence

from seglog._native.file import sync
from seglog.config import LogConfig
from seglog.log.context import LogContext
from seglog.log.failures import closed_error
from seglog.log.metered import MeteredLog
from seglog.log.offset_metadata import LogOffsetMetadata
from seglog.log.producers import ProducerStateManager
from seglog.log.segment import ActiveSegment
from seglog.log.tail import Followers
from seglog.recovery.failures import public_errors
from seglog.recovery.producers import rebuild_producers

__all__ = ["LogFoundation"]


class LogFoundation(MeteredLog):
    """A log with the parts that its operations share; UnifiedLog puts them in."""

    config: LogConfig
    context: LogContext
    producer_manager: ProducerStateManager
    followers: Followers
    #: The segment that is written to.
    active: ActiveSegment
    #: The data directory that the log is in.
    parent_dir: str
    #: Why there are no appends any more, where the partition has another log now.
    retired: str | None = None
    unwritten_topic_id: uuid.UUID | None = None
    _handlers_closed = False
    _end: tuple[int, int, int]

    @property
    def remote_log_enabled(self) -> bool:
        """Whether segments of it may be in remote storage."""
        return (self.context.remote_storage and self.config.remote_storage_enable
                and not self.config.compact)

    @property
    def remote_copy_enabled(self) -> bool:
        """Whether segments are still copied there."""
        return self.remote_log_enabled and not self.config.remote_log_copy_disable

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """The log's end, with the segment and the byte at which the next batch goes."""
        return LogOffsetMetadata(*self._end)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        with self.lock:
            self.settle()
            return self.segments.size

    def now_ms(self) -> int:
        """What the log's clock says."""
        return self.context.time.milliseconds()

    def log_text(self, message: str) -> str:
        """A line of the log's, as Kafka begins it."""
        return f"[UnifiedLog partition={self.topic_partition}, dir={self.parent_dir}] {message}"

    # ---- for the operations -------------------------------------------------------------------

    @contextlib.contextmanager
    def guarded(self, message: str) -> Iterator[None]:
        """Runs a part of an operation (Kafka: maybeHandleIOException).

        What the file system refuses takes the data directory offline, and is told by `message`
        with the directory behind it.
        """
        text = f"{message} in dir {self.parent_dir}"
        with self.context.failures.guard(self.parent_dir, text), public_errors(self.path):
            yield

    @contextlib.contextmanager
    def reading(self, message: str) -> Iterator[None]:
        """The same of a part that only reads: an error of the process (too many open files, no
        memory) leaves the directory online."""
        text = f"{message} in dir {self.parent_dir}"
        with (self.context.failures.guard(self.parent_dir, text, reads=True),
              public_errors(self.path)):
            yield

    def check_open(self) -> None:
        """KafkaStorageError if the log was closed or deleted."""
        if self._handlers_closed or self.is_closed:
            raise closed_error(f"The log of {self.topic_partition} in {self.path} is closed")

    def check_current(self) -> None:
        """KafkaStorageError also if another log has taken the partition over: what is changed here
        would be lost."""
        self.check_open()
        if self.retired is not None:
            raise closed_error(self.retired)

    def settle(self) -> None:
        """Brings `segments` up to date with what was appended to the active one."""
        if self.is_closed:
            return  # its files may be another's by now
        self.active.settle()
        self.segments.release(self.active.files)

    def activate(self, base_offset: int) -> ActiveSegment:
        """Takes the segment, which is the last one, as the one to write to."""
        self.segments.pinned = base_offset
        self.active = ActiveSegment(self.segments.get(base_offset))
        return self.active

    def set_log_end(self, offset: int) -> None:
        """The log ends at `offset` from now on; the recovery point is never behind its end."""
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.end_moved()

    def end_moved(self) -> None:
        """Tells readers, who take no lock, where the log ends now."""
        self.publish_end(self.log_end_offset, self.active.base_offset, self.active.size)

    def publish_end(self, offset: int, base_offset: int, size: int) -> None:
        """The same, of who knows the last segment and its size: readers see all of it at once."""
        self._end = (offset, base_offset, size)
        if self.followers.waiting:
            self.followers.wake()

    def check_deferred(self, offset: int) -> None:
        """Makes the check of the segment with `offset`, if the load left it for later (KIP-263)."""
        if self.deferred_checks is not None:
            self.deferred_checks.ensure_offset(offset)

    def check_deferred_until(self, offset: int) -> None:
        """The same for all segments that the producers' state at `offset` is made of."""
        if self.deferred_checks is not None:
            known = self.producer_manager.snapshots.latest_below(offset + 1)
            self.deferred_checks.ensure_range(known, offset)

    def forget_deferred(self, bases: Sequence[int]) -> None:
        """Segments that are not in the log any more are not checked either."""
        if self.deferred_checks is not None:
            self.deferred_checks.dismiss(bases)

    def rebuild_producers(self, end: int) -> None:
        """Brings the producers' state to what the log says up to `end`."""
        with public_errors(self.path):
            rebuild_producers(self._producers, self.segments, self.log_start_offset, end)

    def sync_file(self, name: str) -> None:
        """Waits until a file of the directory, if it is there, is on the medium."""
        for fd, path in self.disk.open_for_sync([name]):
            try:
                sync(fd, metadata=True, file=path)
            finally:
                os.close(fd)
