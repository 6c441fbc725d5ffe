"""Listeners of a load: progress bars, logs, metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from seglog.recovery.findings import Finding
    from seglog.recovery.load_report import LoadReport, PartitionReport

__all__ = ["CompositeListener", "LoadListener", "NullListener"]


@runtime_checkable
class LoadListener(Protocol):
    """Events of a load, all called without any lock held.

    A read-only load calls from the thread that requested it. A `LogManager` loads several logs at
    the same time, and calls from its loading threads: the events of one directory come in order,
    those of several may come at the same time. `directory` is the name of a partition directory.

    An exception that a listener raises ends the load and reaches the caller. Every method does
    nothing by default, so a subclass overrides only the events that it needs.
    """

    def load_started(self, partitions: int, threads: int) -> None:
        """The data directory is listed: the number of partition directories and of threads."""
        return None

    def partition_started(self, directory: str) -> None:
        """The files of a partition directory are about to be listed."""
        return None

    def segments_listed(self, directory: str, count: int) -> None:
        """The partition has `count` segments to open and check."""
        return None

    def recovery_planned(self, directory: str, count: int) -> None:
        """A recovery of the partition would scan `count` of these segments (level `verify`)."""
        return None

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        """`count` more segments were opened and checked, by thread number `thread`."""
        return None

    def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
        """`count` more segments of `size` bytes were read to their end (level `verify`)."""
        return None

    def recovery_started(self, directory: str, count: int, size: int) -> None:
        """`count` segments of `size` bytes are about to be recovered."""
        return None

    def segments_recovered(self, directory: str, count: int, size: int) -> None:
        """`count` more segments, of `size` bytes before, were recovered."""
        return None

    def finding(self, found: Finding) -> None:
        """A problem, as soon as it is known."""
        return None

    def partition_loaded(self, report: PartitionReport) -> None:
        """Both phases are complete for this partition."""
        return None

    def done(self, report: LoadReport) -> None:
        """The data directory is loaded."""
        return None


class NullListener(LoadListener):
    """Ignores every event; a base for listeners that need only some."""


_EVENTS: Final = [name for name in vars(LoadListener) if not name.startswith("_")]


class CompositeListener(LoadListener):
    """Passes every event to several listeners, in their order.

    An exception of one of them reaches the load at once; the listeners after it do not get that
    event.
    """

    def __init__(self, *listeners: LoadListener) -> None:
        for event in _EVENTS:
            setattr(self, event, partial(_call_each, [getattr(one, event) for one in listeners]))


def _call_each(methods: Sequence[Callable[..., None]], *event: object) -> None:
    for method in methods:
        method(*event)
