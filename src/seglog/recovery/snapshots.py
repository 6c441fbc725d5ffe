"""The producer snapshots of a partition while it is loaded."""

from __future__ import annotations

import bisect
import errno
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from seglog.errors import CorruptSnapshotError, KafkaStorageError
from seglog.model import ProducerStateEntry
from seglog.recovery.disk import Disk
from seglog.recovery.findings import Finding, finding
from seglog.storage.javamap import hash_order
from seglog.storage.paths import FileState, snapshot_name
from seglog.storage.producers import (
    SNAPSHOT_BYTES_MAX, ProducerState, decode_snapshot, encode_snapshot,
)

__all__ = ["Snapshots"]

Report = Callable[[Finding], None]
_logger = logging.getLogger("seglog.ProducerStateManager")


class Snapshots:
    """Offsets with a snapshot, and their files. `names` are those of files that were found, by
    offset; `5.snapshot` is one of them to Kafka."""

    def __init__(self, disk: Disk, names: dict[int, str], report: Report) -> None:
        self.disk, self.report, self.names = disk, report, dict(names)
        # Ascending: a recovery of n segments asks n times for the newest below its base.
        self.offsets = sorted(names)
        self._known = set(names)  # those that were there when the log was opened
        self._taken: set[int] = set()
        self._reported: set[int] = set()

    def verify(self) -> None:
        """Reads all of them, also those that Kafka would delete unread."""
        for offset in self.offsets:
            self._read(offset)

    def write(self, offset: int, state: ProducerState) -> None:
        """Writes the snapshot of `state`, as durable as Kafka makes it."""
        entries = {entry.producer_id: entry for entry in state.entries}
        data = encode_snapshot(entries[key] for key in hash_order(state.producer_ids))
        name = snapshot_name(offset)
        self.disk.replace(name, data)
        _logger.info("Wrote producer snapshot at offset %s with %s producer ids.", offset,
                     len(entries))
        if offset not in self.names:
            bisect.insort(self.offsets, offset)
        self.names[offset] = name
        self._taken.add(offset)

    def _delete(self, offset: int) -> None:
        name = self._forget(offset)
        if self.disk.delete(name):
            _logger.info("Deleted producer state snapshot %s", self._path(name))
        else:
            _logger.info("Failed to delete producer state snapshot %s because it does not exist.",
                         self._path(name))

    def _forget(self, offset: int) -> str:
        del self.offsets[bisect.bisect_left(self.offsets, offset)]
        return self.names.pop(offset)

    def _path(self, name: str) -> str:
        return os.path.join(os.path.abspath(self.disk.path), name)

    def delete_outside(self, start: int, end: int) -> None:
        """All above `end` or not above `start`."""
        for offset in (self.offsets[bisect.bisect_right(self.offsets, end):]
                       + self.offsets[:bisect.bisect_right(self.offsets, start)]):
            if offset in self.names:
                self._delete(offset)

    def delete_known(self) -> None:
        """All that were there when the log was opened."""
        for offset in [one for one in self.offsets if one in self._known]:
            self._delete(offset)

    def retire(self, bases: Iterable[int]) -> list[str]:
        """Those of removed segments are renamed, to be deleted with them; the new names."""
        renamed = []
        for base in bases:
            if base not in self._known:
                continue
            self._known.discard(base)
            name = self._forget(base) if base in self.names else None
            if name is not None and self.disk.rename(name, name + FileState.DELETED.value):
                renamed.append(name + FileState.DELETED.value)
            else:
                _logger.info("Failed to rename producer state snapshot %s with deletion suffix "
                             "because it was already deleted", self._path(snapshot_name(base)))
        return renamed

    def remove_stray(self, bases: Iterable[int]) -> None:
        """Keeps those at a segment's base, and the largest one if it is above all bases."""
        kept = set(bases)
        others = [offset for offset in self.offsets if offset not in kept]
        if others and others[-1] > max(kept, default=-1):
            others.pop()
        for offset in others:
            if offset not in self._taken:
                self._report("snapshot-stray", offset)
            self._delete(offset)

    def latest(self, default: int) -> int:
        """The largest offset with a snapshot."""
        return self.offsets[-1] if self.offsets else default

    def newest(self, start: int) -> tuple[int, list[ProducerStateEntry]]:
        """(offset, entries) of the newest that reads well, (start, none) without one; those that
        do not are deleted."""
        while self.offsets:
            offset = self.offsets[-1]
            entries = self._read(offset)
            if entries is not None:
                return offset, entries
            self._delete(offset)
        return start, []

    def _read(self, offset: int) -> list[ProducerStateEntry] | None:
        name = self.names[offset]
        try:
            size = self.disk.size(name)
            if size is None:
                return None
            if size > SNAPSHOT_BYTES_MAX:
                raise KafkaStorageError(errno.EFBIG, os.strerror(errno.EFBIG), self._path(name))
            _logger.info("Loading producer state from snapshot file '%s'", self._path(name))
            return decode_snapshot(self.disk.read(name, 0, size), file=self._path(name))
        except CorruptSnapshotError as error:
            if offset not in self._reported:
                _logger.warning("Failed to load producer snapshot from '%s': %s",
                                self._path(name), error)
                self._report("snapshot-corrupt", offset, message=str(error),
                             position=error.position, expected=error.expected, found=error.found)
                self._reported.add(offset)
            return None

    def _report(self, code: str, offset: int, **where: Any) -> None:
        self.report(finding(code, directory=os.path.basename(self.disk.path), offset=offset,
                            file=self.names[offset], **where))
