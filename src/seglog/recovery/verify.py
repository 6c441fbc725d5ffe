"""Reading a segment to its end: every CRC, every header rule, and the indexes against the log."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from seglog._native.batch import scan_file
from seglog._native.index import OffsetIndexView, TimeIndexView
from seglog._native.status import Status
from seglog.errors import SeglogError
from seglog.recovery.findings import Finding, finding, status_code
from seglog.storage.paths import FileKind, file_name

__all__ = ["SegmentCheck", "verify_segment"]

_BATCHES_PER_CHUNK = 65536
_RELATIVE_OFFSET_MAX = 2**31 - 1
_BAD_BATCHES_MAX = 1000
_OUTCOMES = (Status.END, Status.TORN_TAIL, Status.ZERO_TAIL)


@dataclass(slots=True)
class SegmentCheck:
    """What reading one segment found; `next_offset` is None for one without a batch."""

    base_offset: int
    size: int
    findings: list[Finding] = field(default_factory=list)
    batch_count: int = 0
    record_count: int = 0
    next_offset: int | None = None


def verify_segment(path: str, base_offset: int, *, offset_index: bool, time_index: bool
                   ) -> SegmentCheck:
    """Reads a segment of the partition directory `path`. Bad bytes are findings; a file that
    vanished is one, too."""
    name = file_name(base_offset, FileKind.LOG)
    where: dict[str, Any] = {"directory": os.path.basename(path), "file": name}
    try:
        fd = os.open(os.path.join(path, name),
                     os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return SegmentCheck(base_offset, 0, [finding("file-missing", **where)])
    except OSError as error:
        return SegmentCheck(base_offset, 0, [
            finding("file-unreadable", found=error.strerror, **where)])
    try:
        check = SegmentCheck(base_offset, os.fstat(fd).st_size)
        index = _IndexAgainstLog(path, base_offset, offset_index, time_index)
        _read(fd, check, index, where)
        check.findings += index.findings()
        return check
    finally:
        os.close(fd)


def _read(fd: int, check: SegmentCheck, index: _IndexAgainstLog, where: dict[str, Any]) -> None:
    position, strict, bad = 0, True, 0
    while bad < _BAD_BATCHES_MAX:
        scan = scan_file(fd, position, check.size, check_crcs=True, strict=strict,
                         max_batches=_BATCHES_PER_CHUNK)
        _take(check, scan.batches, index, where)
        position, status = scan.position, Status(scan.status)
        if status == Status.FULL:
            continue
        if status == Status.END:
            return
        left = check.size - position
        check.findings.append(finding(
            status_code(status), position=position, expected=scan.expected, found=scan.found,
            bytes=left if status in _OUTCOMES else None, **where))
        if status in _OUTCOMES or scan.next_position is None or scan.next_position <= position:
            return
        # One bad batch whose length can be believed: what is behind it is read as well.
        bad, position = bad + 1, scan.next_position
        index.skip(scan.position)


def _take(check: SegmentCheck, batches: npt.NDArray[np.void], index: _IndexAgainstLog,
          where: dict[str, Any]) -> None:
    if not len(batches):
        return
    check.batch_count += len(batches)
    check.record_count += int(np.maximum(batches["record_count"], 1).sum())
    last = batches["last_offset"]
    distance = last.astype(np.uint64) - np.uint64(check.base_offset)
    for row in np.flatnonzero(distance > _RELATIVE_OFFSET_MAX)[:1]:
        check.findings.append(finding(
            "batch-offset-range", position=int(batches["position"][row]), found=int(last[row]),
            expected=check.base_offset, **where))
    previous = check.base_offset if check.next_offset is None else check.next_offset
    below = np.flatnonzero(batches["base_offset"] < np.concatenate(([previous], last[:-1] + 1)))
    # An old wrapper stores its last offset alone, so this never calls one of them backwards.
    if len(below) and check.next_offset is not None and int(below[0]) == 0:
        check.findings.append(finding(
            "batch-offset-order", position=int(batches["position"][0]), expected=previous,
            found=int(batches["base_offset"][0]), **where))
    check.next_offset = int(last[-1]) + 1
    index.feed(batches)


class _IndexAgainstLog:
    """Index entries beside the batches as they come: an entry must name a batch, and a time entry
    promises that nothing at or before its offset is younger (reference 4.3)."""

    def __init__(self, path: str, base_offset: int, offset_index: bool, time_index: bool) -> None:
        self.directory, self.base_offset = os.path.basename(path), base_offset
        self.offsets = self._entries(
            OffsetIndexView(os.path.join(path, file_name(base_offset, FileKind.INDEX)),
                            base_offset) if offset_index else None)
        self.times = self._entries(
            TimeIndexView(os.path.join(path, file_name(base_offset, FileKind.TIME_INDEX)),
                          base_offset) if time_index else None)
        self.offset_good = np.zeros(len(self.offsets), bool)
        self.time_seen = np.zeros(len(self.times), bool)
        self.time_broken = np.zeros(len(self.times), bool)
        self.skipped: list[int] = []

    @staticmethod
    def _entries(view: OffsetIndexView | TimeIndexView | None) -> npt.NDArray[np.void]:
        if view is None:
            return np.empty(0, [("offset", np.int64), ("position", np.int32),
                                ("timestamp", np.int64)])
        try:
            return view.to_numpy()
        except SeglogError:
            return _IndexAgainstLog._entries(None)  # phase one has reported it
        finally:
            view.close()

    def skip(self, position: int) -> None:
        """A bad batch: entries that point to it are not to blame."""
        self.skipped.append(position)

    def feed(self, batches: npt.NDArray[np.void]) -> None:
        """The next batches of the segment."""
        if len(self.offsets):
            row = np.searchsorted(batches["position"], self.offsets["position"])
            inside = row < len(batches)
            row = np.minimum(row, len(batches) - 1)
            at = batches[row]
            # Brokers before 4.1 wrote the last offset of a whole append, the first brokers the
            # first; all that a lookup needs is that nothing before the position is above it.
            named = (at["base_offset"] <= self.offsets["offset"]) | (at["magic"] < 2)
            self.offset_good |= inside & (at["position"] == self.offsets["position"]) & named
        if len(self.times):
            self._feed_times(batches)

    def _feed_times(self, batches: npt.NDArray[np.void]) -> None:
        self.time_seen |= np.isin(self.times["timestamp"], batches["max_timestamp"])
        youngest = np.maximum.accumulate(batches["max_timestamp"])
        upto = np.searchsorted(batches["last_offset"], self.times["offset"], side="right") - 1
        some = upto >= 0
        self.time_broken |= some & (youngest[np.maximum(upto, 0)] > self.times["timestamp"])

    def findings(self) -> list[Finding]:
        """The first entry of each index that the log contradicts."""
        found = []
        bad = ~self.offset_good & ~np.isin(self.offsets["position"], self.skipped)
        for row in np.flatnonzero(bad)[:1]:
            entry = self.offsets[row]
            found.append(finding(
                "index-not-a-batch", directory=self.directory, position=int(row) * 8,
                file=file_name(self.base_offset, FileKind.INDEX), expected=int(entry["offset"]),
                found=int(entry["position"])))
        for row in np.flatnonzero(self.time_broken | ~self.time_seen)[:1]:
            entry = self.times[row]
            found.append(finding(
                "index-timestamp", directory=self.directory, position=int(row) * 12,
                file=file_name(self.base_offset, FileKind.TIME_INDEX),
                found=int(entry["timestamp"]), expected=None))
        return found
