"""Segments that a load checks later (KIP-263)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from seglog._native.scan import (
    HAS_INDEX, HAS_LOG, HAS_TIME_INDEX, CheckLevel, FileClass, PartitionListing, SegmentChecks,
    check_segments,
)
from seglog._native.status import Status
from seglog.errors import KafkaStorageError, SeglogError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.unified_log import UnifiedLog
from seglog.manager.table import dir_of
from seglog.recovery.deferred_checks import DeferredChecks
from seglog.recovery.disk import RealDisk
from seglog.recovery.partition_plan import CheckedSegments, LoadLevel, PartitionPlan, check_chunk
from seglog.recovery.steps import stops_at
from seglog.recovery.wrong_indexes import delete_index, wrong_rows
from seglog.storage.paths import log_name

__all__ = ["defer_checks", "plan_of_active_segment"]

_log = logging.getLogger(__name__)

def plan_of_active_segment(listing: PartitionListing, level: LoadLevel) -> PartitionPlan | None:
    """A plan that checks only the last segment, and assumes that the others are sound; None if the
    last one is not, so that all have to be checked now."""
    count = len(listing.base_offsets)
    if not count:
        return None
    checks = check_chunk(listing, count - 1, count, level)
    if len(checks.problems):
        return None

    def column(name: str) -> npt.NDArray[np.int64]:
        values = np.full(count, -1, np.int64)
        values[-1] = getattr(checks, name)[0]
        return values

    flags = listing.flags | np.uint8(HAS_INDEX | HAS_TIME_INDEX)
    flags[-1] = listing.flags[-1]
    table = CheckedSegments(
        listing.base_offsets, flags, column("log_size"), column("index_size"),
        column("time_index_size"), column("txn_index_size"), column("mtime_ms"),
        np.zeros(count, np.int32))
    return PartitionPlan(listing.path, listing, table, checks.problems)


def defer_checks(log: UnifiedLog, listing: PartitionListing, level: LoadLevel,
                 channel: LogDirFailureChannel) -> DeferredChecks:
    """The remaining checks of a log that was loaded with `plan_of_active_segment`."""
    later = _LaterChecks(log, listing, level, channel)
    return DeferredChecks(later.bases, later.checked, later.check, later.recover,
                          holds_lock=lambda: log.lock.is_mine)


class _LaterChecks:
    """Checks segments of one log; the calling threads coordinate among themselves."""

    def __init__(self, log: UnifiedLog, listing: PartitionListing, level: LoadLevel,
                 channel: LogDirFailureChannel) -> None:
        self._log, self._level, self._channel = log, level, channel
        self.bases = log.segments.base_offsets.copy()
        # The load checked what a swap or a recovery produced.
        rows = np.minimum(np.searchsorted(listing.base_offsets, self.bases),
                          len(listing.base_offsets) - 1)
        listed = listing.base_offsets[rows] == self.bases
        self._flags = np.zeros(len(self.bases), np.uint8)
        self._flags[listed] = listing.flags[rows[listed]]
        self.checked = ~listed
        self.checked[-1] = True
        self._wrong: dict[int, npt.NDArray[np.void]] = {}  # by row, until they are recovered

    def check(self, start: int, stop: int) -> Sequence[int]:
        """The rows of [start, stop) that need a recovery."""
        with self._failures():
            path = self._log.path
            try:
                checks = self._check_segments(path, start, stop)
            except KafkaStorageError:
                checks = None
            if checks is None or len(checks.problems):
                with self._log.lock:  # waits for a rename of the directory, or its deletion
                    if self._log.is_closed:
                        return []
                    if checks is None or self._log.path != path:
                        checks = self._check_segments(self._log.path, start, stop)
                    self._raise_unreadable(checks, start)
            self._create_time_indexes(start, stop)
            for row in wrong_rows(checks.problems).tolist():
                self._wrong[start + row] = checks.problems[checks.problems["row"] == row]
            damaged = checks.problems["row"][stops_at(checks.problems)] + start
            return sorted(row for row in {*damaged.tolist(), *(self._wrong.keys()
                                                               & set(range(start, stop)))}
                          if int(self.bases[row]) in self._log.segments)

    def _check_segments(self, path: str, start: int, stop: int) -> SegmentChecks:
        end = int(self.bases[stop])  # the active segment is checked already
        return check_segments(
            path, self.bases[start:stop], self._flags[start:stop],
            CheckLevel.KAFKA if self._level is LoadLevel.KAFKA else CheckLevel.FULL, end_offset=end)

    def _raise_unreadable(self, checks: SegmentChecks, start: int) -> None:
        for problem in checks.problems:
            number = int(problem["sys_errno"])
            if problem["status"] == Status.FILE_MISSING and problem["file"] == FileClass.LOG:
                number = errno.ENOENT
            base = int(self.bases[start + int(problem["row"])])
            if number and base in self._log.segments:  # it may have been deleted meanwhile
                raise KafkaStorageError(number, os.strerror(number),
                                        os.path.join(self._log.path, log_name(base)))

    def _create_time_indexes(self, start: int, stop: int) -> None:
        """Creates empty time indexes for missing ones, as a load does; that is no damage."""
        flags = self._flags[start:stop]
        missing = (flags & (HAS_LOG | HAS_INDEX | HAS_TIME_INDEX)) == HAS_LOG | HAS_INDEX
        if missing.any():
            with self._log.lock:
                self._log.recover_segments(self.bases[start:stop][missing].tolist())

    def recover(self, rows: Sequence[int]) -> None:
        """Recovers segments as a load would have."""
        with self._failures(), self._log.lock:
            for row in rows:
                problems = self._wrong.pop(row, None)
                if problems is not None:
                    delete_index(RealDisk(self._log.path), int(self.bases[row]), problems)
            self._log.recover_segments(self.bases[list(rows)].tolist())

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """A disk that fails takes the directory offline. A log that cannot be recovered raises the
        error in every later use."""
        path, key = dir_of(self._log), self._log.topic_partition
        try:
            yield
        except OSError as error:
            message = f"Error while checking segments of {key} in dir {path}"
            self._channel.maybe_add_offline_log_dir(path, message, error)
            if isinstance(error, KafkaStorageError):
                raise
            raise KafkaStorageError(error.errno, f"{message}: {error.strerror}",
                                    self._log.path) from error
        except SeglogError as error:
            _log.error("Segments of %s in dir %s cannot be recovered", key, path, exc_info=error)
            raise
