"""Who watches a load: progress bars, logs, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from seglog.recovery.findings import Finding
    from seglog.recovery.report import LoadReport, PartitionReport

__all__ = ["LoadListener", "NullListener"]


class LoadListener(Protocol):
    """Events of a load, all called by the thread that asked for it, outside of any lock.

    An exception that a listener raises ends the load and reaches the caller. Every method does
    nothing by default, so that a subclass hears only what it overrides.
    """

    def load_started(self, partitions: int, threads: int) -> None:
        """The data directory is listed: so many partition directories, so many threads."""
        return None

    def partition_started(self, directory: str) -> None:
        """The files of a partition directory are about to be listed."""
        return None

    def segments_listed(self, directory: str, count: int) -> None:
        """The partition has `count` segments to open and check."""
        return None

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        """`count` more segments were opened and checked, by thread number `thread`."""
        return None

    def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
        """`count` more segments of `size` bytes were read to their end (level `verify`)."""
        return None

    def finding(self, found: Finding) -> None:
        """A problem, as soon as it is known."""
        return None

    def partition_loaded(self, report: PartitionReport) -> None:
        """Both phases are through with this partition."""
        return None

    def done(self, report: LoadReport) -> None:
        """The data directory is loaded."""
        return None


class NullListener(LoadListener):
    """Hears everything and does nothing; a base for listeners that want some of the events."""
