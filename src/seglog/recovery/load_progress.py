"""The progress of one log's load: for its listener, the gauges, and its report."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Protocol

import numpy as np
import numpy.typing as npt

from seglog._native.scan import PartitionListing
from seglog.model import TopicPartition
from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.findings import Finding
from seglog.recovery.partition_plan import PartitionPlan
from seglog.recovery.load_report import FindingList, PartitionReport

__all__ = ["Gauge", "LoadedSizes", "LogProgress", "ignore"]

Gauge = Callable[[int], None]


def ignore(count: int) -> None:
    """Replaces a gauge."""


class LoadedSizes(Protocol):
    """The fields of a log that a report needs."""

    @property
    def segments(self) -> Sized:
        """Its segments."""
    @property
    def size(self) -> int:
        """Bytes of all log files."""
    @property
    def log_start_offset(self) -> int:
        """The first offset."""
    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""


class LogProgress(NullListener):
    """Follows one log, in the thread that loads it.

    `to_load` and `to_recover` get the number of segments left (the gauges of that thread).
    """

    def __init__(self, directory: str, listener: LoadListener, to_load: Gauge = ignore,
                 to_recover: Gauge = ignore) -> None:
        self._directory, self._listener = directory, listener
        self._to_load, self._to_recover = to_load, to_recover
        self._findings = FindingList(listener.finding)
        self._left_to_load = 0
        self._sizes: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._unflushed: npt.NDArray[np.int64] | None = None
        self._recovered = 0
        #: Segments that each thread of phase one checked.
        self.thread_segments: dict[int, int] = {}

    def finding(self, found: Finding) -> None:
        """Keeps a finding for the report, and passes it on."""
        self._findings.add(found)

    def started(self) -> None:
        """The load begins."""
        self._listener.partition_started(self._directory)

    def listed(self, listing: PartitionListing) -> None:
        """Phase one is about to check these segments."""
        self._left_to_load = len(listing.base_offsets)
        self._to_load(self._left_to_load)
        self._listener.segments_listed(self._directory, self._left_to_load)

    def checked(self, count: int, thread: int) -> None:
        """`count` segments are checked."""
        self._left_to_load -= count
        self._to_load(self._left_to_load)
        self.thread_segments[thread] = self.thread_segments.get(thread, 0) + count
        self._listener.segments_loaded(self._directory, count, thread)

    def planned(self, plan: PartitionPlan) -> None:
        """Phase one is complete; it planned fewer segments than listed if checks are deferred."""
        self._to_load(0)
        self._sizes = np.maximum(plan.segments.log_size, 0)

    def remaining(self, count: int) -> None:
        """`count` segments are left to recover."""
        self._to_recover(count)
        if self._unflushed is None:
            self._unflushed = self._sizes[max(len(self._sizes) - count, 0):]
            self._listener.recovery_started(self._directory, count, int(self._unflushed.sum()))
            return
        # A truncation removes all later segments, so none is left.
        done = max(len(self._unflushed) - count, self._recovered)
        size = int(self._unflushed[self._recovered:done].sum())
        self._listener.segments_recovered(self._directory, done - self._recovered, size)
        self._recovered = done

    def report(self, key: TopicPartition, recovery_point: int, log: LoadedSizes | None,
               error: BaseException | None) -> PartitionReport:
        """Ends the load, successful or not; notifies the listener."""
        unflushed = self._sizes[:0] if self._unflushed is None else self._unflushed
        report = PartitionReport(
            directory=self._directory, topic_partition=key,
            segments=len(self._sizes) if log is None else len(log.segments),
            size=int(self._sizes.sum()) if log is None else log.size,
            log_start_offset=log.log_start_offset if log else None,
            log_end_offset=log.log_end_offset if log else None,
            recovery_point=recovery_point, recovery_segments=len(unflushed),
            recovery_bytes=int(unflushed.sum()),
            kafka_error=getattr(error, "kafka_name", type(error).__name__) if error else None,
            kafka_message=str(error) if error else None,
            findings=self._findings.close(self._directory))
        self._listener.partition_loaded(report)
        return report
