"""The producer snapshots of a partition while it is loaded."""

from __future__ import annotations

import bisect
import contextlib
import errno
import logging
import os
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from seglog.errors import CorruptSnapshotError, KafkaStorageError
from seglog.model import ProducerStateEntry
from seglog.recovery.disk import Disk
from seglog.recovery.findings import Report, finding
from seglog.storage.paths import FileState, snapshot_name
from seglog.storage.producer_state import SNAPSHOT_BYTES_MAX, ProducerState, decode_snapshot

__all__ = ["SnapshotNames", "Snapshots", "log_reading"]

_SYNCED: Final = 3

_logger = logging.getLogger("seglog.ProducerStateManager")


def log_reading(offset: int, path: str) -> None:
    """Logs that a snapshot is read."""
    _logger.info("Loading producer state from snapshot file 'SnapshotFile(offset=%s, file=%s)'",
                 offset, path)


class SnapshotNames:
    """Offsets with a snapshot, and the names of their files. A log has one for each segment, so
    they are kept as 8-byte numbers, ascending. Only a name that Kafka reads but never writes
    (`5.snapshot`) is kept as text."""

    def __init__(self, offsets: npt.NDArray[np.int64] | None = None) -> None:
        """`offsets` ascend."""
        self.offsets = array("q", b"" if offsets is None else offsets.tobytes())
        self._odd: dict[int, str] = {}

    def copy(self) -> SnapshotNames:
        """An independent copy."""
        made = SnapshotNames()
        made.offsets, made._odd = self.offsets[:], dict(self._odd)
        return made

    def __contains__(self, offset: int) -> bool:
        at = bisect.bisect_left(self.offsets, offset)
        return at < len(self.offsets) and self.offsets[at] == offset

    def __getitem__(self, offset: int) -> str:
        """The name of the file, whether it exists or not."""
        return self._odd.get(offset) or snapshot_name(offset)

    def add(self, offset: int, name: str) -> None:
        """Adds a file, replacing another one of the same offset."""
        if offset not in self:
            bisect.insort(self.offsets, offset)
        if name != snapshot_name(offset):
            self._odd[offset] = name
        else:
            self._odd.pop(offset, None)

    def remove(self, offset: int) -> str:
        """Removes an existing one; returns its name."""
        name = self[offset]
        del self.offsets[bisect.bisect_left(self.offsets, offset)]
        self._odd.pop(offset, None)
        return name

    @contextlib.contextmanager
    def without_above(self, offset: int) -> Iterator[None]:
        """Inside, those above `offset` are hidden, so they are neither read nor deleted; ones added
        meanwhile stay."""
        cut = bisect.bisect_right(self.offsets, offset)
        hidden = self.offsets[cut:]
        del self.offsets[cut:]
        try:
            yield
        finally:
            self.offsets = array("q", sorted({*self.offsets, *hidden}))

    def between(self, start: int, end: int) -> list[int]:
        """The offsets in [start, end)."""
        return self.offsets[bisect.bisect_left(self.offsets, start):
                            bisect.bisect_left(self.offsets, end)].tolist()


class Snapshots:
    """The snapshots of a log on disk. `names` are those of existing files, `listed` those that
    existed when the log was opened, before a completed swap removed some."""

    def __init__(self, disk: Disk, names: SnapshotNames, listed: SnapshotNames,
                 report: Report) -> None:
        self.disk, self.report, self.names = disk, report, names.copy()
        self._known = listed.copy()  # except those that are retired
        self._taken: set[int] = set()
        self._reported: set[int] = set()
        self._pending_sync: set[int] = set()

    def adopt(self) -> None:
        """Ends the load: existing and new snapshots belong to the log from now on."""
        self._known = self.names

    @property
    def offsets(self) -> array[int]:
        """Ascending, because a recovery of n segments searches the newest below its base n
        times."""
        return self.names.offsets

    def verify(self) -> None:
        """Reads all of them, including those that Kafka would delete unread."""
        for offset in self.offsets:
            self._read(offset)

    def write(self, offset: int, state: ProducerState, *, sync: bool = False) -> None:
        """Writes the snapshot of `state`, durably on request. `self.sync` makes the newest of the
        others durable.

        Kafka syncs each. A recovery writes up to two for every segment, and syncing them took most
        of its time. One that a crash damages is detected by its CRC.
        """
        self.adopt_content(offset, state.to_snapshot(), sync=sync)
        _logger.info("Wrote producer snapshot at offset %s with %s producer ids.", offset,
                     len(state.table))

    def adopt_content(self, offset: int, content: bytes, *, sync: bool = True) -> None:
        """Stores a snapshot with this content, durably unless `sync` is False."""
        name = snapshot_name(offset)
        self.disk.replace(name, content, sync=sync)
        if not sync:
            self._pending_sync.add(offset)
        self.names.add(offset, name)
        self._taken.add(offset)

    def sync(self) -> None:
        """Syncs the newest: those at the bases of the last two segments and at the log's end. A
        load starts from these, or from an older valid one."""
        for offset in self.offsets[-_SYNCED:]:
            if offset in self._pending_sync:
                self.disk.sync(self.names[offset])
        self._pending_sync.clear()

    def _forget(self, offset: int) -> None:
        for noted in (self._pending_sync, self._taken, self._reported):
            noted.discard(offset)

    def _delete(self, offset: int) -> None:
        name = self.names.remove(offset)
        self._forget(offset)
        if self.disk.delete(name):
            _logger.info("Deleted producer state snapshot %s", self._path(name))
        else:
            _logger.info("Failed to delete producer state snapshot %s because it does not exist.",
                         self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(os.path.abspath(self.disk.path), name)

    def delete_outside(self, start: int, end: int) -> None:
        """Deletes all above `end` or not above `start`."""
        for offset in (self.offsets[bisect.bisect_right(self.offsets, end):]
                       + self.offsets[:bisect.bisect_right(self.offsets, start)]):
            if offset in self.names:
                self._delete(offset)

    def delete_known(self) -> None:
        """Deletes all that existed when the log was opened."""
        for offset in [one for one in self.offsets if one in self._known]:
            self._delete(offset)

    def retire(self, bases: Iterable[int]) -> list[str]:
        """Renames those of removed segments, to be deleted with them. Returns the new names."""
        renamed = []
        for base in bases:
            if base not in self._known:
                continue
            name = self.names[base] if base in self.names else None
            self._known.remove(base)
            if base in self.names:
                self.names.remove(base)
            self._forget(base)
            if name is not None and self.disk.rename(name, name + FileState.DELETED.value):
                renamed.append(name + FileState.DELETED.value)
            else:
                _logger.info("Failed to rename producer state snapshot %s with deletion suffix "
                             "because it was already deleted", self._path(snapshot_name(base)))
        return renamed

    def remove_stray(self, bases: npt.NDArray[np.int64]) -> None:
        """Keeps those at a segment's base, and the largest one if it is above all bases. `bases`
        ascend."""
        offsets = np.array(self.offsets, np.int64)
        if len(bases):
            rows = np.minimum(np.searchsorted(bases, offsets), len(bases) - 1)
            offsets = offsets[bases[rows] != offsets]
        others: list[int] = offsets.tolist()
        if others and others[-1] > (int(bases[-1]) if len(bases) else -1):
            others.pop()
        for offset in others:
            if offset not in self._taken:
                self._report("snapshot-stray", offset)
            self._delete(offset)

    def latest(self, default: int) -> int:
        """The largest offset with a snapshot."""
        return self.offsets[-1] if self.offsets else default

    def latest_below(self, offset: int) -> int:
        """The largest offset below `offset` with a snapshot; 0 if there is none."""
        row = bisect.bisect_left(self.offsets, offset) - 1
        return self.offsets[row] if row >= 0 else 0

    def newest(self, start: int) -> tuple[int, list[ProducerStateEntry]]:
        """(offset, entries) of the newest valid snapshot, (start, none) if there is none. Deletes
        invalid ones."""
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
            path = self._path(name)
            log_reading(offset, path)
            return decode_snapshot(self.disk.read(name, 0, size), file=path)
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
