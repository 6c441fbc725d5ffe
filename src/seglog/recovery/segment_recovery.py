"""What recovering one segment finds and rebuilds (LogSegment.recover), without changing it.

Only framing and CRC decide what is truncated, not codecs or record parsers. Everything that depends
on the order of batches (index entries, leader epochs, producers and their transactions) follows
Kafka's sequence batch by batch, so a recovery that Kafka abandons ends at the same batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seglog._native.batch import BatchScan
from seglog._native.rebuild import IndexRebuild
from seglog._native.status import Status
from seglog.config import LogConfig
from seglog.errors import SeglogError
from seglog.model import AbortedTxn, EpochEntry
from seglog.recovery.loader_failures import (
    InvalidOffset, InvalidRecord, IoFailure, LoaderFailure, OffsetOverflow,
)
from seglog.recovery.scans import Extent, SegmentScans
from seglog.recovery.next_offset import opened_log
from seglog.recovery.producer_folding import fold_batches
from seglog.storage.paths import FileKind, FileState, file_name
from seglog.storage.producer_state import ProducerState

__all__ = ["RecoveryFailure", "SegmentRecovery", "index_failure", "recover_extent"]


@dataclass(frozen=True, slots=True)
class SegmentRecovery:
    """The result for one segment. Positions are bytes of the file. `valid_end` is the first byte
    that is truncated (the extent's end: none). `status` says why the scan ended there, with the
    position, expected and found value of the cause.

    `offset_index` and `time_index` are the contents of the trimmed files, `aborted` the entries of
    the transaction index, `epochs` the entries that Kafka assigns to the leader epoch cache, in
    order. (`max_timestamp`, `offset_of_max_timestamp`) is (-1, base offset) without a timestamp.

    Three results are exceptions of Kafka, with `message` as their text. `overflow`: a batch is too
    far from the base (LogSegmentOffsetOverflowException), and Kafka splits. `backwards`: an index
    entry was due and its offset was not above the last (InvalidOffsetException). In both cases the
    result covers everything up to that batch, and nothing is truncated. `invalid_record`: an
    end-transaction marker is invalid (InvalidRecordException). Its batch stays, but Kafka reads no
    later one. `producers` ends before it, and the rebuild of the producer state will fail at it
    again.

    `is_scanned`: only the last entry of the time index failed, after Kafka had truncated the log
    and trimmed the offset index.
    """

    base_offset: int
    extent: Extent
    valid_end: int
    next_offset: int
    batch_count: int
    record_count: int
    status: Status
    expected: int
    found: int
    message: str = ""
    offset_index: bytes = b""
    time_index: bytes = b""
    aborted: tuple[AbortedTxn, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()
    max_timestamp: int = -1
    offset_of_max_timestamp: int = -1
    last_offset: int | None = None
    invalid_record: InvalidRecord | None = None
    is_scanned: bool = False

    @property
    def overflow(self) -> bool:
        """Whether a batch is too far from the base."""
        return self.status == Status.BATCH_OFFSET_RANGE

    @property
    def backwards(self) -> bool:
        """Whether an index entry was due at an offset that is not above the last."""
        return self.status == Status.INDEX_OFFSET_ORDER

    @property
    def cut_bytes(self) -> int:
        """Bytes of this segment that a recovery drops."""
        return self.extent.end - self.valid_end


class RecoveryFailure(LoaderFailure):
    """Kafka abandons this recovery. `recovery` is what it had done by then: entries in indexes that
    are not trimmed, assigned epochs, added transactions. Nothing is truncated."""

    def __init__(self, failure: LoaderFailure, recovery: SegmentRecovery) -> None:
        super().__init__(failure.kafka_error, failure.message, **failure.where)
        self.failure, self.recovery = failure, recovery

    def to_error(self, path: str) -> SeglogError:
        """That of the failure itself."""
        return self.failure.to_error(path)


def recover_extent(base_offset: int, extent: Extent, config: LogConfig, producers: ProducerState,
                   *, latest_epoch: int = -1, scans: SegmentScans | None = None
                   ) -> SegmentRecovery:
    """Scans the extent with CRCs as recovery does, and applies its batches to `producers`.

    `latest_epoch` is the newest of the leader epoch cache, -1 for none. `scans` may scan ahead and
    side by side; the result is the same. Raises RecoveryFailure where Kafka gives up, FileVanished,
    and IoFailure for a log that cannot be opened.
    """
    if extent.size <= 0:
        return SegmentRecovery(base_offset, extent, extent.end, base_offset, 0, 0, Status.END, 0,
                               0, offset_of_max_timestamp=base_offset)
    with opened_log(extent.path) as fd:
        recovery = _Recovery(fd, base_offset, extent, config, producers, latest_epoch)
        return recovery.run((scans or SegmentScans()).chunks(extent, fd))


class _Recovery:
    """One scan: applies the rules that depend on the order of batches, chunk by chunk."""

    def __init__(self, fd: int, base_offset: int, extent: Extent, config: LogConfig,
                 producers: ProducerState, latest_epoch: int) -> None:
        self.fd, self.base_offset, self.extent = fd, base_offset, extent
        self.file = os.path.basename(extent.path)
        self.producers, self.latest_epoch = producers, latest_epoch
        self.rebuild = IndexRebuild(base_offset, extent.start,
                                    interval_bytes=config.index_interval_bytes,
                                    index_bytes=config.segment_index_bytes)
        self.aborted: list[AbortedTxn] = []
        self.epochs: list[EpochEntry] = []
        self.failure: LoaderFailure | None = None

    def run(self, chunks: Iterator[BatchScan]) -> SegmentRecovery:
        status, expected, found = Status.END, 0, 0
        for scan in chunks:
            self._take(scan.batches)
            if self.failure is not None or self.rebuild.status != Status.OK:
                break
            if scan.status in (Status.IO, Status.FILE_SHRANK):
                self.failure = IoFailure(f"{self.extent.path}: cannot be read", file=self.file,
                                         position=scan.position)
                break
            if scan.status == Status.NO_MEMORY:
                scan.raise_for_status(self.extent.path)
            status, expected, found = Status(scan.status), scan.expected, scan.found
        if self.failure is not None:
            if not isinstance(self.failure, InvalidRecord):
                raise RecoveryFailure(self.failure, self._result(Status.END, 0, 0))
            status, expected, found = Status.END, 0, 0
        if self.rebuild.status != Status.OK:
            return self._refused()
        if not self.rebuild.finish():
            return self._refused(finishing=True)
        return self._result(status, expected, found, invalid_record=self.failure)

    def _take(self, batches: npt.NDArray[np.void]) -> None:
        """Applies index entries, epochs and producers of a chunk, up to a batch that one of them
        refuses."""
        taken = batches[:self.rebuild.feed(batches)]
        fresh, stop = self._new_epochs(taken)
        folded = fold_batches(
            self.producers, taken[:stop], self.fd, self.file,
            last=self.aborted[-1] if self.aborted else None,
            txn_index=self._path(FileKind.TXN_INDEX))
        self.aborted += folded.aborted
        if folded.failure is not None:
            self.failure = folded.failure
            stop = int(np.searchsorted(taken["position"], folded.failed_at))
        for row in fresh:
            entry = EpochEntry(int(taken["partition_leader_epoch"][row]),
                               int(taken["base_offset"][row]))
            if stop is not None and row > stop:
                break
            if entry.start_offset < 0:
                self.failure = self._failure(
                    "IllegalArgumentException",
                    f"Received invalid partition leader epoch entry {entry}",
                    int(taken["position"][row]))
                break
            self.epochs.append(entry)
            self.latest_epoch = entry.epoch
        if stop is not None:
            # Kafka reached this batch; the batch's own index entries are there.
            self.rebuild.undo()
            self.rebuild.feed(taken[:stop + 1])

    def _new_epochs(self, taken: npt.NDArray[np.void]) -> tuple[list[int], int | None]:
        """(rows whose leader epoch is above all before, the first of them that cannot begin an
        epoch).

        Messages of magic 0 and 1 have the epoch -1.
        """
        epochs = taken["partition_leader_epoch"]
        if not len(taken) or int(epochs.max()) <= self.latest_epoch:
            return [], None
        highest = np.maximum.accumulate(np.concatenate(([self.latest_epoch], epochs)))
        fresh = np.flatnonzero(highest[1:] > highest[:-1])
        impossible = fresh[taken["base_offset"][fresh] < 0]
        return fresh.tolist(), int(impossible[0]) if len(impossible) else None

    # ---- the outcome --------------------------------------------------------------------------

    def _path(self, kind: FileKind) -> str:
        """Kafka's name of a file of this segment."""
        return os.path.join(os.path.dirname(os.path.abspath(self.extent.path)),
                            file_name(self.base_offset, kind))

    def _failure(self, kafka_error: str, message: str, position: int) -> LoaderFailure:
        return LoaderFailure(kafka_error, message, file=self.file, position=position)

    def _refused(self, *, finishing: bool = False) -> SegmentRecovery:
        """The result if the index or the segment refuses a batch: one of Kafka's three
        exceptions."""
        rebuild, status = self.rebuild, Status(self.rebuild.status)
        failure = index_failure(rebuild, self.base_offset, self.extent.path, finishing=finishing)
        if isinstance(failure, (OffsetOverflow, InvalidOffset)):
            return self._result(status, rebuild.expected, rebuild.found, message=failure.message,
                                is_scanned=finishing)
        raise RecoveryFailure(failure, self._result(status, rebuild.expected, rebuild.found,
                                                    is_scanned=finishing))

    def _result(self, status: Status, expected: int, found: int, *, message: str = "",
                invalid_record: InvalidRecord | None = None,
                is_scanned: bool = False) -> SegmentRecovery:
        rebuild, is_emptied = self.rebuild, status == Status.INDEX_OFFSET_ORDER
        return SegmentRecovery(
            self.base_offset, self.extent, self.extent.start + rebuild.size,
            self.base_offset if is_emptied else rebuild.next_offset, rebuild.batch_count,
            rebuild.record_count, status, expected, found, message, rebuild.offset_index,
            rebuild.time_index, tuple(self.aborted), tuple(self.epochs),
            rebuild.max_timestamp, rebuild.offset_of_max_timestamp, rebuild.last_offset,
            invalid_record, is_scanned)


def index_failure(rebuild: IndexRebuild, base_offset: int, log_path: str, *,
                  finishing: bool = False, state: FileState = FileState.LIVE) -> LoaderFailure:
    """Kafka's exception for a batch that the segment or one of its indexes refuses."""
    where: dict[str, Any] = {"file": os.path.basename(log_path), "position": rebuild.position,
                             "expected": rebuild.expected, "found": rebuild.found}
    status, is_time = Status(rebuild.status), rebuild.failed_is_time_index
    if status == Status.BATCH_OFFSET_RANGE:
        return OffsetOverflow(f"Detected offset overflow at offset {rebuild.found}", **where)
    if status == Status.INDEX_OFFSET_ORDER:
        path = os.path.join(os.path.dirname(os.path.abspath(log_path)), file_name(
            base_offset, FileKind.TIME_INDEX if is_time else FileKind.INDEX, state))
        what = (f"an offset ({rebuild.found}) to slot {rebuild.time_entries}" if is_time else
                f"an offset {rebuild.found} to position {rebuild.offset_entries}")
        return InvalidOffset(f"Attempt to append {what} no larger than the last offset appended "
                             f"({rebuild.expected}) to {path}", **where)
    if finishing:
        return LoaderFailure("BufferOverflowException", "null", **where)
    full = (f"time index (size = {rebuild.time_entries})" if is_time
            else f"index (size = {rebuild.offset_entries})")
    return LoaderFailure("IllegalArgumentException", f"Attempt to append to a full {full}.",
                         **where)
