"""The segment that a round writes to replace others: `.cleaned` files until it is swapped in
(Kafka: UnifiedLog.createNewCleanedSegment)."""

from __future__ import annotations

from seglog._native.validate import frames
from seglog.log.active_segment import ActiveSegment
from seglog.log.unified_log import UnifiedLog
from seglog.model import AbortedTxn
from seglog.recovery.loader_failures import public_errors
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.paths import FileState

__all__ = ["CleanedSegment"]


class CleanedSegment:
    """A segment under construction. Only the thread of the round uses it until the swap."""

    def __init__(self, log: UnifiedLog, base_offset: int) -> None:
        self.path, self.disk = log.path, log.disk
        self.files = SegmentFiles(log.disk, base_offset, log.config, FileState.CLEANED, 0)
        self._segment = ActiveSegment(self.files)
        self.delete()  # files of a failed round
        with public_errors(self.path):
            self.disk.create(self.files.log_name)

    @property
    def base_offset(self) -> int:
        """The base offset of its first source."""
        return self.files.base_offset

    def append(self, max_offset: int, data: memoryview) -> None:
        """Writes whole batches, with index entries as any append. `max_offset` is the largest
        offset of a retained record; raises LogSegmentOffsetOverflowError if it is too far from the
        base."""
        with public_errors(self.path):
            self._segment.append(max_offset, data, frames(data).batches)

    def append_aborted(self, transaction: AbortedTxn) -> None:
        """Writes an entry of the transaction index."""
        with public_errors(self.path):
            self.files.txn_index.append([transaction])

    def finish(self, last_source: str) -> None:
        """Makes it durable with trimmed indexes, and gives it the modification time of the log file
        `last_source`."""
        files = self.files
        with public_errors(self.path):
            self._segment.become_inactive()
            for name in files.names(FileState.CLEANED):
                if self.disk.size(name) is not None:
                    self.disk.sync(name)
            for name in (files.log_name, files.offset_index.name, files.time_index.name):
                self.disk.copy_times(last_source, name)

    def delete(self) -> None:
        """Deletes its files."""
        with public_errors(self.path):
            self._segment.close_handles()
            for name in self.files.names(FileState.CLEANED):
                self.disk.delete(name)
