"""Reads a segment to its end: checks every CRC, every header rule, and the indexes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from seglog._native.batch import find_batch, scan_file
from seglog._native.index import OffsetIndexView, TimeIndexView
from seglog._native.scan import HAS_INDEX, HAS_TIME_INDEX
from seglog._native.status import Status
from seglog.errors import SeglogError
from seglog.recovery.claims import claims_after
from seglog.recovery.loader_failures import FileVanished, LoaderFailure
from seglog.recovery.findings import DAMAGE_CODES, FINDINGS, Finding, finding, status_code
from seglog.recovery.scans import Extent
from seglog.storage.paths import FileKind, file_name

__all__ = ["SegmentCheck", "staying", "verify_extent", "verify_segment"]

_BATCHES_PER_CHUNK = 65536
_RELATIVE_OFFSET_MAX = 2**31 - 1
_BAD_BATCHES_MAX = 1000
_STAYS = ("leaves it in the log, as a start scans only an unclean log from its recovery point on; "
          "readers fail there")


def staying(findings: list[Finding]) -> list[Finding]:
    """The findings of a segment that no start would scan: the batches stay in the log."""
    return [replace(one, action=_STAYS) if one.code in DAMAGE_CODES else one for one in findings]


@dataclass(slots=True)
class SegmentCheck:
    """The result of reading one segment; `next_offset` is None if it has no batch."""

    base_offset: int
    size: int
    findings: list[Finding] = field(default_factory=list)
    batch_count: int = 0
    record_count: int = 0
    next_offset: int | None = None


def verify_segment(path: str, base_offset: int, flags: int) -> SegmentCheck:
    """Reads a segment of the partition directory `path`, whose `flags` (HAS_INDEX, ...) are those
    of the listing. Bad bytes are findings, and so is a file that vanished."""
    index = _IndexAgainstLog(path, base_offset, flags)
    name = file_name(base_offset, FileKind.LOG)
    return _verify(os.path.join(path, name), 0, None, base_offset, index,
                   {"directory": os.path.basename(path), "file": name})


def verify_extent(extent: Extent, base_offset: int, directory: str) -> SegmentCheck:
    """Reads the batches of a segment whose bytes are in `extent`, but no index. Positions in its
    findings are those of the segment."""
    index = _IndexAgainstLog(directory, base_offset, 0)
    check = _verify(extent.path, extent.start, extent.end, base_offset, index,
                    {"directory": directory, "file": file_name(base_offset, FileKind.LOG)})
    check.findings = [one if one.position is None else
                      replace(one, position=one.position - extent.start) for one in check.findings]
    return check


def _verify(log_path: str, start: int, end: int | None, base_offset: int, index: _IndexAgainstLog,
            where: dict[str, Any]) -> SegmentCheck:
    """Reads up to `end`; None: to the end of the file, which may grow meanwhile."""
    try:
        fd = os.open(log_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return SegmentCheck(base_offset, 0, [finding("file-missing", **where)])
    except OSError as error:
        return SegmentCheck(base_offset, 0, [
            finding("file-unreadable", found=error.strerror, **where)])
    check = SegmentCheck(base_offset, end or 0)
    try:
        if end is None:
            check.size = os.fstat(fd).st_size
        _read(fd, check, index, Extent(log_path, start, check.size), end is None, where)
        check.findings += index.findings()
        return check
    except OSError as error:  # nothing is known of what follows
        check.findings.append(finding("file-unreadable", found=error.strerror, **where))
        return check
    finally:
        os.close(fd)


def _read(fd: int, check: SegmentCheck, index: _IndexAgainstLog, extent: Extent, grows: bool,
          where: dict[str, Any]) -> None:
    position, bad = extent.start, 0
    while True:
        scan = scan_file(fd, position, check.size, check_crcs=True, strict=True,
                         max_batches=_BATCHES_PER_CHUNK)
        _take(check, scan.batches, index, where)
        position, status = scan.position, Status(scan.status)
        if grows and status == Status.TORN_TAIL and os.fstat(fd).st_size > check.size:
            check.size = os.fstat(fd).st_size  # a running broker was appending
            continue
        if status == Status.FULL:
            continue
        if status == Status.END:
            return
        code = status_code(status)
        numbers: dict[str, Any] = {"expected": scan.expected, "found": scan.found}
        if status == Status.ZERO_TAIL or code not in DAMAGE_CODES:
            check.findings.append(finding(
                code, position=position, **numbers, **where,
                bytes=check.size - position if status == Status.ZERO_TAIL else None))
            behind = scan.next_position
        else:
            bad += 1
            behind = scan.next_position
            if behind is None:  # impossible length: the next batch is found by its CRC
                behind = find_batch(fd, position + 1, check.size, check.size)
            if bad == _BAD_BATCHES_MAX:
                behind = None
            end = check.size if behind is None else behind
            check.findings.append(_damage(check, code, replace(extent, end=end), position,
                                          {**numbers, **where}))
        if behind is None or behind <= position:
            return
        index.skip(position)
        position = behind


def _damage(check: SegmentCheck, code: str, extent: Extent, position: int,
            where: dict[str, Any]) -> Finding:
    """The finding for unreadable bytes from `position` to the end of the extent."""
    next_offset = check.base_offset if check.next_offset is None else check.next_offset
    try:
        claims = claims_after(extent, position, next_offset, check.base_offset)
    except (FileVanished, LoaderFailure):
        return finding(code, position=position, bytes=extent.end - position, **where)
    return finding(
        code, position=position, bytes=extent.end - position, records=claims.records,
        batches=claims.batches, unread_bytes=claims.unread_bytes, offset=claims.first_offset,
        last_offset=claims.last_offset, message=f"{FINDINGS[code].meaning}, with {claims}", **where)


def _take(check: SegmentCheck, batches: npt.NDArray[np.void], index: _IndexAgainstLog,
          where: dict[str, Any]) -> None:
    if not len(batches):
        return
    check.batch_count += len(batches)
    records = batches["record_count"].astype(np.int64)
    check.record_count += int(np.where(records < 0, 1, records).sum())  # -1: an old wrapper
    last = batches["last_offset"]
    distance = last.astype(np.uint64) - np.uint64(check.base_offset % (1 << 64))
    for row in np.flatnonzero(distance > _RELATIVE_OFFSET_MAX)[:1]:
        check.findings.append(finding(
            "batch-offset-range", position=int(batches["position"][row]), found=int(last[row]),
            expected=check.base_offset, **where))
    first = int(batches["base_offset"][0])
    # Only between chunks: a strict scan checks the order inside of one. An old wrapper stores only
    # its last offset, so this never reports one as backwards.
    if check.next_offset is not None and first < check.next_offset:
        check.findings.append(finding(
            "batch-offset-order", position=int(batches["position"][0]), expected=check.next_offset,
            found=first, **where))
    check.next_offset = int(last[-1]) + 1
    index.feed(batches)


class _IndexAgainstLog:
    """Compares index entries with the batches: an entry must name a batch, and a time entry says
    that no record at or before its offset is younger (TimeIndex)."""

    def __init__(self, path: str, base_offset: int, flags: int) -> None:
        self.directory, self.base_offset = os.path.basename(path), base_offset
        self.offsets = self._entries(
            OffsetIndexView(os.path.join(path, file_name(base_offset, FileKind.INDEX)),
                            base_offset) if flags & HAS_INDEX else None)
        self.times = self._entries(
            TimeIndexView(os.path.join(path, file_name(base_offset, FileKind.TIME_INDEX)),
                          base_offset) if flags & HAS_TIME_INDEX else None)
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
        """Skips a bad batch: entries that point to it are not reported."""
        self.skipped.append(position)

    def feed(self, batches: npt.NDArray[np.void]) -> None:
        """The next batches of the segment."""
        if len(self.offsets):
            row = np.searchsorted(batches["position"], self.offsets["position"])
            inside = row < len(batches)
            row = np.minimum(row, len(batches) - 1)
            at = batches[row]
            # Brokers before 4.1 wrote the last offset of a whole append, the first brokers the
            # first offset. A lookup only needs that nothing before the position is above it.
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
