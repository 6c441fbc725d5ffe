"""What recovering one segment would find (LogSegment.recover), without changing it.

Framing and CRC decide what is cut, never a codec or a record parser. Everything that depends on
the order of batches (index entries that cannot be appended, transactions that mix) follows Kafka's
sequence, so that the prediction and a real recovery agree.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog._native.batch import scan_file
from seglog._native.status import Status
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.tail import open_log
from seglog.recovery.transactions import apply_transactions
from seglog.storage.producers import ProducerState

__all__ = ["Extent", "SegmentRecovery", "count_records", "recover_extent"]

_RELATIVE_OFFSET_MAX = 2**31 - 1
_BATCHES_PER_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes [start, end) of a log file: a segment, or what a split made one."""

    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SegmentRecovery:
    """The outcome for one segment. Positions are bytes of the file, `valid_end` the first byte
    that is cut (the extent's end: none). `status` says why the scan ended there, with the
    position, expected and found of the cause. `overflow`: a batch too far from the base, which
    makes Kafka split. `backwards`: an index entry was due and its offset not above the last."""

    base_offset: int
    extent: Extent
    valid_end: int
    next_offset: int
    batch_count: int
    record_count: int
    status: Status
    expected: int
    found: int
    overflow: bool = False
    backwards: bool = False

    @property
    def cut_bytes(self) -> int:
        """Bytes that a recovery drops from this segment."""
        return self.extent.end - self.valid_end


class _IndexRule:
    """When recovery adds index entries, as far as that can fail or decides where a tail starts."""

    def __init__(self, base_offset: int, start: int, interval: int) -> None:
        self.base_offset, self.interval = base_offset, interval
        self.last_entry = start          # position from which the interval counts
        self.last_offset: int | None = None  # of the last offset entry
        self.time_offset: int | None = None  # of the last time entry
        self.max_timestamp, self.max_offset = -1, base_offset
        self.time_timestamp = -1

    def feed(self, batches: npt.NDArray[np.void]) -> int | None:
        """The row at which an append fails, if one does."""
        rows = zip(batches["last_offset"].tolist(), batches["max_timestamp"].tolist(),
                   batches["position"].tolist(), strict=True)
        for row, (last_offset, timestamp, position) in enumerate(rows):
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_offset = timestamp, last_offset
            if position - self.last_entry <= self.interval:
                continue
            if self.last_offset is not None and last_offset <= self.last_offset:
                return row
            self.last_offset = last_offset
            if self.time_offset is not None and self.max_offset < self.time_offset:
                return row
            if self.max_timestamp > self.time_timestamp:
                self.time_timestamp, self.time_offset = self.max_timestamp, self.max_offset
            self.last_entry = position
        return None


def recover_extent(base_offset: int, extent: Extent, interval: int,
                   producers: ProducerState) -> SegmentRecovery:
    """Scans the extent with CRCs as recovery does. LoaderFailure where Kafka gives up."""
    fd = open_log(extent.path)
    try:
        return _Recovery(fd, base_offset, extent, interval, producers).run()
    finally:
        os.close(fd)


class _Recovery:
    """One scan: chunks of batches against the rules that depend on their order."""

    def __init__(self, fd: int, base_offset: int, extent: Extent, interval: int,
                 producers: ProducerState) -> None:
        self.fd, self.base_offset, self.extent, self.interval = fd, base_offset, extent, interval
        self.producers = producers
        self.batch_count = self.record_count = 0
        self.last_offset: int | None = None
        # Offsets that only grow cannot fail an index append, and then the rule needs no replay.
        self.grows = True
        self.valid_end = extent.start

    def run(self) -> SegmentRecovery:
        position = self.extent.start
        while True:
            scan = scan_file(self.fd, position, self.extent.end, check_crcs=True,
                             max_batches=_BATCHES_PER_CHUNK)
            rows = self._take(scan.batches)
            if rows < len(scan.batches):
                return self._result(Status.BATCH_OFFSET_RANGE, overflow=True,
                                    expected=self.base_offset,
                                    found=int(scan.batches["last_offset"][rows]))
            position = self.valid_end = scan.position
            if scan.status == Status.IO:
                raise LoaderFailure("IOException", f"{self.extent.path}: cannot be read",
                                    file=os.path.basename(self.extent.path), position=position)
            if scan.status != Status.FULL:
                break
        backwards, next_offset = False, self._next_offset()
        if not self.grows:
            backwards, next_offset = self._replay_index_rule()
        return self._result(Status(scan.status), scan.expected, scan.found, backwards=backwards,
                            next_offset=next_offset)

    def _take(self, batches: npt.NDArray[np.void]) -> int:
        """Batches accepted: up to the first whose last offset does not fit."""
        if not len(batches):
            return 0
        # Unsigned: one comparison for both ends, and no overflow in hostile offsets.
        distance = batches["last_offset"].astype(np.uint64) - np.uint64(self.base_offset)
        too_far = np.flatnonzero(distance > _RELATIVE_OFFSET_MAX)
        rows = int(too_far[0]) if len(too_far) else len(batches)
        taken = batches[:rows]
        if rows:
            last = taken["last_offset"]
            self.grows = self.grows and bool(np.all(np.diff(last) > 0)) and (
                self.last_offset is None or int(last[0]) > self.last_offset)
            self.last_offset = int(last[-1])
            self.batch_count += rows
            self.record_count += count_records(taken)
            apply_transactions(self.producers, taken, self.fd,
                               os.path.basename(self.extent.path))
            self.valid_end = int(taken["position"][-1]) + int(taken["size"][-1])
        return rows

    def _next_offset(self) -> int:
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    def _replay_index_rule(self) -> tuple[bool, int]:
        """(whether an index append fails, the end that Kafka then reads from the rebuilt index)."""
        rule = _IndexRule(self.base_offset, self.extent.start, self.interval)
        position, bases, last_offset = self.extent.start, [], self.base_offset - 1
        while True:
            scan = scan_file(self.fd, position, self.valid_end, check_crcs=False,
                             max_batches=_BATCHES_PER_CHUNK)
            if rule.feed(scan.batches) is not None:
                return True, self.base_offset
            if scan.batch_count:
                bases.append(scan.batches[["base_offset", "position"]])
                last_offset = scan.last_offset
            position = scan.position
            if scan.status != Status.FULL:
                break
        target = self.base_offset if rule.last_offset is None else rule.last_offset
        start = self.extent.start if rule.last_offset is None else rule.last_entry
        found = last_offset >= target or any(
            bool(np.any((chunk["base_offset"] >= target) & (chunk["position"] >= start)))
            for chunk in bases)
        return False, last_offset + 1 if found else self.base_offset

    def _result(self, status: Status, expected: int, found: int, *, overflow: bool = False,
                backwards: bool = False, next_offset: int | None = None) -> SegmentRecovery:
        return SegmentRecovery(
            self.base_offset, self.extent, self.valid_end,
            self._next_offset() if next_offset is None else next_offset,
            self.batch_count, self.record_count, status, expected, found, overflow, backwards)


def count_records(batches: npt.NDArray[np.void]) -> int:
    """Records of the batches that say how many they hold; an old wrapper counts as one."""
    return int(np.maximum(batches["record_count"], 1).sum()) if len(batches) else 0
