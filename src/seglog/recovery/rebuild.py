"""LogSegment.recover as a computation: what a scan of a segment says its files should hold.

Nothing is changed here. Framing and CRC decide what is cut, never a codec or a record parser;
whatever depends on the order of batches follows Kafka's sequence for each batch: the distance to
the base offset, the index entries that are due, the leader epoch, the producer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from seglog._native.batch import BatchScan, scan_file
from seglog._native.status import Status
from seglog.model import AbortedTxn, TimestampOffset
from seglog.recovery.failures import LoaderFailure
from seglog.recovery.index_files import OFFSET_ENTRY, TIME_ENTRY
from seglog.recovery.producers import fold_producers
from seglog.recovery.recover import Extent, count_records
from seglog.recovery.tail import open_log, read_failure
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.paths import FileKind, file_name
from seglog.storage.producers import ProducerState

__all__ = ["IndexRule", "SegmentRebuild", "count_behind", "rebuild_segment"]

_RELATIVE_OFFSET_MAX = 2**31 - 1
_BATCHES_PER_CHUNK = 65536
_MAGIC_V2 = 2
# recover() catches these and cuts behind the batch that it was at.
_CUTS = ("CorruptRecordException", "InvalidRecordException")


@dataclass(slots=True)
class SegmentRebuild:
    """What recovering one segment finds. Positions are bytes of the segment.

    `valid_bytes` is where the log is cut, `status` why the scan ended there (`expected`, `found`:
    of the cause). `failure` is the exception that Kafka gives up with; the entries are those that
    it had appended until then.
    """

    base_offset: int
    extent: Extent
    valid_bytes: int = 0
    batch_count: int = 0
    record_count: int = 0
    last_offset: int | None = None
    status: Status = Status.END
    expected: int = 0
    found: int = 0
    offset_entries: bytes = b""
    time_entries: bytes = b""
    aborted: list[AbortedTxn] = field(default_factory=list)
    max_seen: TimestampOffset | None = None
    failure: LoaderFailure | None = None
    overflow: bool = False

    @property
    def cut_bytes(self) -> int:
        """Bytes that recovery drops."""
        return self.extent.size - self.valid_bytes

    @property
    def next_offset(self) -> int:
        """Behind the last batch that stays."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    @property
    def backwards(self) -> bool:
        """Whether an index entry was due for an offset not above the last one."""
        return self.failure is not None and self.failure.kafka_error == "InvalidOffsetException"


def rebuild_segment(base_offset: int, extent: Extent, *, directory: str, index_interval: int,
                    index_bytes: int, producers: ProducerState,
                    epochs: LeaderEpochs) -> SegmentRebuild:
    """Scans a segment with CRCs. `producers` and `epochs` take what the batches say.

    `index_bytes` is `segment.index.bytes`: an index that gets full is a failure to Kafka.
    KafkaStorageError when the file cannot be read, which is never a reason to cut it.
    """
    rebuild = SegmentRebuild(base_offset, extent)
    if extent.size == 0:
        return rebuild
    rule = IndexRule(base_offset, extent.start, index_interval, index_bytes, directory)
    fd = open_log(extent.path)
    try:
        _Rebuilder(fd, rebuild, rule, producers, epochs).run()
    finally:
        os.close(fd)
    return rebuild


class IndexRule:
    """Which index entries the batches of a segment get (reference 4.4, 7.5), fed in their order.

    `start` is the byte of the file at which the segment begins; `failure` is what Kafka throws at
    the batch behind those that were accepted, `overflow` whether that is too far from the base.
    """

    def __init__(self, base_offset: int, start: int, interval: int, index_bytes: int,
                 directory: str) -> None:
        self.base, self.start, self.interval = base_offset, start, interval
        self.directory, self.file = directory, file_name(base_offset, FileKind.LOG)
        self.offset_entries, self.time_entries = bytearray(), bytearray()
        self.offset_room = index_bytes // OFFSET_ENTRY.size
        self.time_room = index_bytes // TIME_ENTRY.size
        self.max_seen: TimestampOffset | None = None
        self.failure: LoaderFailure | None = None
        self.overflow = False
        self._entry_position = start  # from which the interval counts
        self._last_offset: int | None = None
        self._last_time: TimestampOffset | None = None
        self._before = self._state()

    def _state(self) -> tuple[int, int | None, TimestampOffset | None, TimestampOffset | None,
                              int, int]:
        return (self._entry_position, self._last_offset, self._last_time, self.max_seen,
                len(self.offset_entries), len(self.time_entries))

    def undo(self) -> None:
        """Forgets the last feed."""
        (self._entry_position, self._last_offset, self._last_time, self.max_seen, offsets,
         times) = self._before
        del self.offset_entries[offsets:], self.time_entries[times:]
        self.failure, self.overflow = None, False

    def feed(self, batches: npt.NDArray[np.void]) -> int:
        """How many of the next batches are accepted; all unless there is a `failure`."""
        self._before = self._state()
        # Unsigned: one comparison for both ends, and no overflow in hostile offsets.
        distance = batches["last_offset"].astype(np.uint64) - np.uint64(self.base)
        too_far = np.flatnonzero(distance > _RELATIVE_OFFSET_MAX)
        rows = int(too_far[0]) if len(too_far) else len(batches)
        timestamp_max = -1 if self.max_seen is None else self.max_seen.timestamp
        columns = zip(batches["last_offset"][:rows].tolist(),
                      batches["max_timestamp"][:rows].tolist(),
                      batches["position"][:rows].tolist(), strict=True)
        for row, (last_offset, timestamp, position) in enumerate(columns):
            if timestamp > timestamp_max:
                timestamp_max = timestamp
                self.max_seen = TimestampOffset(timestamp, last_offset)
            if position - self._entry_position > self.interval:
                self._append(last_offset, position)
                if self.failure is not None:
                    return row
                self._entry_position = position
        if rows < len(batches):
            found = int(batches["last_offset"][rows])
            self.overflow = True
            self._fail("LogSegmentOffsetOverflowException", "Detected offset overflow at offset "
                       f"{found} in segment {self.base}", self.base, found)
        return rows

    def finish(self) -> None:
        """The final entry: a segment that is closed has its largest timestamp as the last one."""
        self._append_time()
        if (self.failure is None and self.max_seen is not None
                and self.max_seen != self._last_time):
            if self._times >= self.time_room:
                self._fail("BufferOverflowException", "null")
            else:
                self._add_time(self.max_seen)

    @property
    def _times(self) -> int:
        return len(self.time_entries) // TIME_ENTRY.size

    def _append(self, last_offset: int, position: int) -> None:
        entries = len(self.offset_entries) // OFFSET_ENTRY.size
        if entries >= self.offset_room:
            self._fail("IllegalArgumentException",
                       f"Attempt to append to a full index (size = {entries}).")
        elif self._last_offset is not None and last_offset <= self._last_offset:
            self._fail("InvalidOffsetException", f"Attempt to append an offset {last_offset} to "
                       f"position {entries} no larger than the last offset appended "
                       f"({self._last_offset}) to {self._index_path(FileKind.INDEX)}")
        else:
            self.offset_entries += OFFSET_ENTRY.pack(last_offset - self.base,
                                                     position - self.start)
            self._last_offset = last_offset
            if self._times >= self.time_room - 1:
                self._fail("IllegalArgumentException", "Attempt to append to a full time index "
                           f"(size = {self._times}).")
            else:
                self._append_time()

    def _append_time(self) -> None:
        seen, last = self.max_seen, self._last_time
        if seen is None:
            return
        if last is not None and seen.offset < last.offset:
            self._fail("InvalidOffsetException", f"Attempt to append an offset ({seen.offset}) to "
                       f"slot {self._times} no larger than the last offset appended "
                       f"({last.offset}) to {self._index_path(FileKind.TIME_INDEX)}")
        elif self._times < self.time_room and (last is None or seen.timestamp > last.timestamp):
            self._add_time(seen)

    def _add_time(self, seen: TimestampOffset) -> None:
        self.time_entries += TIME_ENTRY.pack(seen.timestamp, seen.offset - self.base)
        self._last_time = seen

    def _index_path(self, kind: FileKind) -> str:
        return f"{self.directory}/{file_name(self.base, kind)}"

    def _fail(self, kafka_error: str, message: str, expected: object = None,
              found: object = None) -> None:
        self.failure = LoaderFailure(kafka_error, message, file=self.file, expected=expected,
                                     found=found)


class _Rebuilder:
    """One scan, in chunks of batches."""

    def __init__(self, fd: int, rebuild: SegmentRebuild, rule: IndexRule,
                 producers: ProducerState, epochs: LeaderEpochs) -> None:
        self.fd, self.rebuild, self.rule = fd, rebuild, rule
        self.producers, self.epochs = producers, epochs
        self.file = os.path.basename(rebuild.extent.path)

    def run(self) -> None:
        """The whole segment, or up to a failure."""
        self._scan()
        rebuild, rule = self.rebuild, self.rule
        if rebuild.failure is None:
            rule.finish()
            rebuild.failure = rule.failure
        rebuild.overflow, rebuild.max_seen = rule.overflow, rule.max_seen
        rebuild.offset_entries = bytes(rule.offset_entries)
        rebuild.time_entries = bytes(rule.time_entries)

    def _scan(self) -> None:
        rebuild = self.rebuild
        position, end = rebuild.extent.start, rebuild.extent.end
        while True:
            scan = scan_file(self.fd, position, end, check_crcs=True,
                             max_batches=_BATCHES_PER_CHUNK)
            if scan.status == Status.IO:
                raise read_failure(rebuild.extent.path, scan.position)
            if len(scan.batches) and not self._take(scan.batches):
                return
            position = scan.position
            if scan.status != Status.FULL:
                break
        rebuild.valid_bytes = position - rebuild.extent.start
        rebuild.status = Status(scan.status)
        rebuild.expected, rebuild.found = scan.expected, scan.found

    def _take(self, batches: npt.NDArray[np.void]) -> bool:
        """Whether the scan goes on behind these batches."""
        rebuild, rule = self.rebuild, self.rule
        rows = rule.feed(batches)
        stopped = self._fold(batches[:rows])
        if stopped is None:
            self._count(batches[:rows])
            rebuild.failure = rule.failure
            return rule.failure is None
        row, failure = stopped
        # Index entries of a batch come before its producer is looked at, those behind it never.
        rule.undo()
        rule.feed(batches[:row + 1])
        self._count(batches[:row + 1])
        rebuild.status = Status.RECORD_FIELD
        if failure.kafka_error not in _CUTS:
            rebuild.failure = failure
        return False

    def _count(self, batches: npt.NDArray[np.void]) -> None:
        if len(batches):
            self.rebuild.batch_count += len(batches)
            self.rebuild.record_count += count_records(batches)
            self.rebuild.last_offset = int(batches["last_offset"][-1])
            self.rebuild.valid_bytes = (int(batches["position"][-1]) + int(batches["size"][-1])
                                        - self.rebuild.extent.start)

    def _fold(self, batches: npt.NDArray[np.void]) -> tuple[int, LoaderFailure] | None:
        """Epochs and producers; (row, why) of the batch that Kafka stops at."""
        stopped = fold_producers(self.producers, batches, self.fd, self.file,
                                 self.rebuild.aborted)
        rows = len(batches) if stopped is None else stopped[0] + 1
        return self._assign_epochs(batches[:rows]) or stopped

    def _assign_epochs(self, batches: npt.NDArray[np.void]) -> tuple[int, LoaderFailure] | None:
        latest = self.epochs.latest
        highest = -1 if latest is None else latest.epoch
        known = np.where(batches["magic"] >= _MAGIC_V2, batches["partition_leader_epoch"], -1)
        for row in np.flatnonzero(known > highest).tolist():
            epoch = int(known[row])
            if epoch <= highest:
                continue
            try:
                self.epochs.assign(epoch, int(batches["base_offset"][row]))
            except ValueError as error:
                return row, LoaderFailure("IllegalArgumentException", str(error), file=self.file,
                                          position=int(batches["position"][row]))
            highest = epoch
        return None


def count_behind(extent: Extent, position: int) -> tuple[int, int]:
    """(records, last offset) of what still looks like batches from a cut on; -1 for no offset."""
    records, last_offset = 0, -1
    fd = open_log(extent.path)
    try:
        going: int | None = position
        while going is not None:
            scan = scan_file(fd, going, extent.end, check_crcs=False,
                             max_batches=_BATCHES_PER_CHUNK)
            records += count_records(scan.batches)
            last_offset = max(last_offset, scan.last_offset)
            going = scan.position if scan.status == Status.FULL else scan.next_position
    finally:
        os.close(fd)
    return records, last_offset
