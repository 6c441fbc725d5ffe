"""The producer snapshots of a partition while a dry run writes and deletes them on paper."""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import ProducerStateEntry
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.findings import Finding, finding
from seglog.storage.paths import snapshot_name
from seglog.storage.producers import ProducerState, read_snapshot

__all__ = ["Snapshots"]

Report = Callable[[Finding], None]


class Snapshots:
    """Offsets with a snapshot, and what is in those that were taken on the way.

    Of these only the open transactions are kept: nothing else in them can stop a loader, and a
    recovery takes as many as there are segments.
    """

    def __init__(self, path: str, offsets: list[int], report: Report) -> None:
        self.path, self.report = path, report
        # Ascending: a recovery of n segments asks n times for the newest below its base.
        self.offsets = sorted(set(offsets))
        self._taken: dict[int, list[ProducerStateEntry]] = {}
        self._reported: set[int] = set()
        self._last = -1

    def verify(self) -> None:
        """Reads all of them, also those that Kafka would delete unread."""
        for offset in self.offsets:
            self._read(offset)

    def take(self, offset: int, producers: ProducerState) -> None:
        """Kafka writes one only above the last; it costs nothing to know more of them."""
        if offset > self._last:
            self._taken[offset] = [
                ProducerStateEntry(one.producer_id, current_txn_first_offset=one.first_offset)
                for one in producers.open_transactions]
            at = bisect_left(self.offsets, offset)
            if self.offsets[at:at + 1] != [offset]:
                self.offsets.insert(at, offset)
            self._last = offset

    def clear(self) -> None:
        """All are deleted."""
        self.offsets.clear()

    def remove(self, offsets: Iterable[int]) -> None:
        """Those of removed segments."""
        gone = set(offsets)
        self.offsets = [offset for offset in self.offsets if offset not in gone]

    def remove_stray(self, bases: Iterable[int]) -> None:
        """Kafka keeps those at a segment's base, and the largest one if it is above all bases."""
        kept = set(bases)
        others = set(self.offsets) - kept
        largest = max(others, default=None)
        if largest is not None and largest > max(kept, default=-1):
            others.discard(largest)
        for offset in sorted(others):
            if offset not in self._taken:
                self._report("snapshot-stray", offset)
        self.remove(others)

    def load(self, start: int, end: int) -> tuple[int, list[ProducerStateEntry]]:
        """truncateAndReload: drops those above `end` or not above `start`, and gives the newest
        that reads well as (offset, entries); (start, none) without one."""
        del self.offsets[bisect_right(self.offsets, end):]
        del self.offsets[:bisect_right(self.offsets, start)]
        self._last = start
        while self.offsets:
            offset = self.offsets[-1]
            entries = self._read(offset)
            if entries is not None:
                self._last = offset
                return offset, entries
            self.offsets.pop()
        return start, []

    def _read(self, offset: int) -> list[ProducerStateEntry] | None:
        if offset in self._taken:
            return self._taken[offset]
        try:
            return read_snapshot(os.path.join(self.path, snapshot_name(offset)))
        except CorruptDataError as error:
            if offset not in self._reported:
                self._report("snapshot-corrupt", offset, message=str(error),
                             position=error.position, expected=error.expected, found=error.found)
                self._reported.add(offset)
            return None
        except KafkaStorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise LoaderFailure("IOException", str(error), file=snapshot_name(offset)) from None

    def _report(self, code: str, offset: int, **where: Any) -> None:
        self.report(finding(code, directory=os.path.basename(self.path), offset=offset,
                            file=snapshot_name(offset), **where))
