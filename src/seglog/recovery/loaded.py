"""A log that was loaded to be written to: what a log manager holds of each partition."""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from seglog._native.file import sync
from seglog.errors import KafkaStorageError, SeglogError
from seglog.forks import ProcessBound, ending
from seglog.model import TopicPartition
from seglog.recovery.deferred import DeferredChecks
from seglog.recovery.disk import Disk
from seglog.recovery.failures import LoaderFailure, public_errors
from seglog.recovery.index_files import OFFSET_ENTRY, TIME_ENTRY
from seglog.recovery.log_loader import LoadOutcome, LogLoader, Step
from seglog.recovery.producers import LoadingProducers
from seglog.recovery.segment_map import OFFSET_INDEX_OPEN, TIME_INDEX_OPEN, SegmentMap
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.paths import FileKind, FileState, file_name
from seglog.storage.producers import ProducerState
from seglog.storage.textfile import sync_directory

__all__ = ["LoadedLog", "error_state"]

_logger = logging.getLogger("seglog.UnifiedLog")


def error_state(error: SeglogError) -> dict[str, Any]:
    """What Kafka's answers say instead of a state, of a log that is not loaded."""
    message = error.strerror if isinstance(error, KafkaStorageError) else str(error)
    return {"error": error.kafka_name, "message": message}


class LoadedLog(ProcessBound):
    """One partition after its load (Kafka: UnifiedLog, as far as loading and closing go).

    `segments` are columns; offsets are those that Kafka arrives at. The high watermark is the log
    start offset until somebody sets it. For one thread at a time: a lock is the caller's.
    """

    def __init__(self, disk: Disk, loader: LogLoader, outcome: LoadOutcome,
                 read_topic_id: Callable[[], uuid.UUID | None]) -> None:
        self.disk, self._loader = disk, loader
        self.path = os.path.abspath(disk.path)
        self.topic_partition: TopicPartition = loader.inputs.topic_partition
        self.segments: SegmentMap = loader.segments
        self.leader_epochs: LeaderEpochs = loader.epochs
        self._producers: LoadingProducers = loader.producers
        local_start = max(outcome.log_start_offset, int(self.segments.base_offsets[0]))
        self.local_log_start_offset = local_start
        self.log_start_offset = (outcome.log_start_offset if loader.inputs.is_remote
                                 else local_start)
        self.recovery_point = max(outcome.recovery_point, local_start)
        self.log_end_offset = outcome.log_end_offset
        self.high_watermark = outcome.log_start_offset
        self.is_closed = False
        #: For whoever works on the log while others may.
        self.lock = threading.RLock()
        #: What is left to check of the segments (KIP-263); None where the load looked at all.
        self.deferred_checks: DeferredChecks | None = None
        self.first_unstable_offset = self._find_first_unstable()
        self.topic_id = read_topic_id()  # last, as in Kafka: either may be what ends the load

    def __repr__(self) -> str:
        return (f"LoadedLog({self.path!r}, log_start_offset={self.log_start_offset}, "
                f"log_end_offset={self.log_end_offset}, segments={len(self.segments)})")

    @property
    def producers(self) -> ProducerState:
        """The producers' state up to the end of the log."""
        return self._producers.state

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open, at most the high watermark."""
        if self.first_unstable_offset is None:
            return self.high_watermark
        return min(self.first_unstable_offset, self.high_watermark)

    def _find_first_unstable(self) -> int | None:
        """The base offset of the batch in which the earliest transaction is open, or the log
        begins if that is later. Kafka looks for that batch, and gives up a log where it cannot."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return None
        offset = max(unstable, self.log_start_offset)
        bases = self.segments.base_offsets
        row = int(np.searchsorted(bases, offset, side="right")) - 1
        if row < 0 or offset >= self.log_end_offset:
            return offset
        for base in bases[row:].tolist():
            segment = self.segments.get(base)
            found = segment.find(offset)
            self.segments.release(segment)
            if found is not None:
                return found[0]
        return self.log_end_offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark within the log; the one that was set.

        Looks for the first open transaction: KafkaStorageError, LogLoadError.
        """
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.on_high_watermark_updated(self.high_watermark)
        with public_errors(self.path):
            self.first_unstable_offset = self._find_first_unstable()
        return self.high_watermark

    # ---- writing ------------------------------------------------------------------------------

    def flush(self, force_flush_active_segment: bool = False) -> None:
        """Everything from the recovery point on onto the medium: logs, their indexes, which are
        created where they are missing, and the names of new files. The recovery point is then the
        log's end. With `force_flush_active_segment` an empty active segment too, as a clean
        shutdown needs it.

        Raises KafkaStorageError.
        """
        self._flush(self.log_end_offset, force_flush_active_segment)

    def _flush(self, offset: int, including_offset: bool) -> None:
        """All below `offset`, or up to it, which is the recovery point then."""
        end, start = offset + including_offset, self.recovery_point
        if end <= start:
            return
        with self.lock:
            bases = self.segments.bases(self.segments.rows(start, end))
        for base in bases:
            self._flush_segment(base)
        if bases and bases[-1] >= start:
            try:
                self.disk.sync_directory()
            except KafkaStorageError as error:
                if error.errno != errno.ENOENT:  # it is being deleted under another name
                    raise
        with self.lock:
            self.recovery_point = max(self.recovery_point, offset)

    def _flush_segment(self, base: int) -> None:
        """One segment, if it is still there; waits for the medium without the lock."""
        with self.lock:
            if base not in self.segments:
                return
            segment = self.segments.get(base)
            with public_errors(self.path):
                segment.open_indexes()
            self.segments.release(segment)
            files = self.disk.open_for_sync(segment.names(FileState.LIVE))
        try:
            for fd, path in files:
                sync(fd, metadata=True, file=path)
        finally:
            for fd, _ in files:
                os.close(fd)

    def delete_removed(self) -> None:
        """Deletes the `.deleted` files of segments that the load took out.

        Kafka does so after `file.delete.delay.ms`, and a load removes what is left of them. Raises
        KafkaStorageError.
        """
        while self._loader.removed:
            name = self._loader.removed[-1]
            if self.disk.delete(name):
                _logger.info("Deleted %s.", os.path.join(self.path, name))
            self._loader.removed.pop()

    @ending
    def close(self) -> None:
        """What Kafka does to the files of a log that it closes; a second call does nothing.

        A producer snapshot at the end of the log, on the medium, if the state moved; of every index
        that was opened, the part in use; the log without what was preallocated. Segments that
        nothing has touched are not touched here. Raises the first KafkaStorageError when all
        segments have been tried.
        """
        if self.is_closed:
            return
        self.is_closed = True
        _logger.debug("Closing log %s", self.path)
        with public_errors(self.path):
            self._close()

    def _close(self) -> None:
        self._producers.take_snapshot()
        self._producers.snapshots.sync()
        first: KafkaStorageError | None = None
        active = int(self.segments.base_offsets[-1])
        for base in {segment.base_offset for segment in self.segments.held} | {active}:
            try:
                segment = self.segments.get(base)
                segment.close()
                self.segments.release(segment)
            except KafkaStorageError as error:
                first = first or error
        try:
            self._trim_opened()
        except KafkaStorageError as error:
            first = first or error
        if first is not None:
            raise first

    @ending
    def close_handlers(self) -> None:
        """Gives the log up as it is, without writing anything: its directory has failed."""
        self.is_closed = True

    def rename_dir(self, name: str) -> None:
        """Gives the log's directory another name in its data directory, durably.

        Raises KafkaStorageError.
        """
        parent = os.path.dirname(self.path)
        target = os.path.join(parent, name)
        try:
            os.rename(self.path, target)
            sync_directory(parent)
        except OSError as error:
            raise KafkaStorageError(error.errno, f"Error while renaming dir for "
                                    f"{self.topic_partition} in log dir {parent}: "
                                    f"{error.strerror}", self.path) from error
        self.path = self.disk.path = target

    def _trim_opened(self) -> None:
        segments = self.segments
        for bit, sizes, width, kind in (
                (OFFSET_INDEX_OPEN, segments.index_size, OFFSET_ENTRY.size, FileKind.INDEX),
                (TIME_INDEX_OPEN, segments.time_index_size, TIME_ENTRY.size,
                 FileKind.TIME_INDEX)):
            for row in np.flatnonzero((segments.opened & bit != 0) & (sizes % width != 0)):
                whole = int(sizes[row]) // width * width
                self.disk.resize(file_name(int(segments.base_offsets[row]), kind), whole)
                sizes[row] = whole

    # ---- deferred checks ----------------------------------------------------------------------

    def recover_segments(self, base_offsets: list[int]) -> None:
        """What pass four of a load does at these segments, in ascending order, when their checks
        were deferred. Snapshots behind them stay: the end of the log has not changed.

        Raises KafkaStorageError, and LogLoadError where Kafka gives up.
        """
        loader = self._loader
        try:
            with public_errors(self.path):
                for base in sorted(base for base in base_offsets if base in self.segments):
                    with loader.snapshots.hidden_above(base):
                        loader.take_step(Step(file_name(base, FileKind.LOG), base))
                loader.snapshots.remove_stray(self.segments.base_offsets)
        finally:
            loader.write_epochs()

    # ---- reporting ----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The state under the keys of Kafka's answers (tests/kafka/Oracle.java).

        It opens every index, as that program does: missing ones are created then, and a close
        trims what is opened. Where a segment cannot be read to its end, `error` (Kafka's exception)
        and `message` alone.
        """
        try:
            segments = [self._segment_state(base) for base in self.segments.base_offsets.tolist()]
        except LoaderFailure as failure:
            return {"error": failure.kafka_error, "message": failure.message}
        return {
            "log_start_offset": self.log_start_offset, "recovery_point": self.recovery_point,
            "log_end_offset": self.log_end_offset, "last_stable_offset": self.last_stable_offset,
            "producer_state_end_offset": self.producers.map_end_offset,
            "segments": segments, **self.state_without_files(),
        }

    def state_without_files(self) -> dict[str, Any]:
        """Of `state` what is no file's: `producers` and `leader_epochs`."""
        return {
            "producers": [{
                "producer_id": one.producer_id, "epoch": one.producer_epoch,
                "coordinator_epoch": one.coordinator_epoch,
                "first_data_offset": one.batches[0].first_offset if one.batches else -1,
                "last_data_offset": one.last_data_offset, "last_seq": one.last_sequence,
                "last_timestamp": one.last_timestamp, "batches": len(one.batches),
                "current_txn_first_offset": one.current_txn_first_offset,
            } for one in self.producers.entries],
            "leader_epochs": [[one.epoch, one.start_offset] for one in self.leader_epochs],
        }

    def _segment_state(self, base: int) -> dict[str, Any]:
        segment = self.segments.get(base)
        try:
            last = segment.time_index.last_entry
            segment.offset_index.open()
            return {
                "base_offset": base, "size": segment.size,
                "offset_index_entries": segment.offset_index.entries,
                "time_index_entries": segment.time_index.entries,
                "time_index_last": [last.timestamp, last.offset],
                "aborted_txns": segment.txn_index.entries,
                "max_timestamp": segment.max_timestamp().timestamp,
                "next_offset": segment.read_next_offset(),
            }
        finally:
            self.segments.release(segment)
