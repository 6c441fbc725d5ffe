"""Producer state while a log is loaded (Kafka: ProducerStateManager, rebuildProducerState)."""

from __future__ import annotations

import os
import time

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CONTROL
from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.model import AbortedTxn, ProducerStateEntry, TopicPartition
from seglog.recovery.failures import LoaderFailure, producer_failure
from seglog.recovery.snapshots import Snapshots
from seglog.storage.producers import ProducerState

__all__ = ["LoadingProducers", "fold_producers"]

_MAGIC_V2 = 2


def fold_producers(producers: ProducerState, batches: npt.NDArray[np.void], fd: int, file: str,
                   aborted: list[AbortedTxn] | None = None) -> tuple[int, LoaderFailure] | None:
    """Applies the next batches of a log file; `aborted` gets the transactions that end so, where
    they go into a transaction index.

    (row, why) of the batch that Kafka stops at, None where it takes all of them. What it does to
    a segment before that batch has been done.
    """

    def read(position: int, size: int) -> bytes:
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise KafkaStorageError(error.errno, error.strerror, file) from error

    current = batches["magic"] >= _MAGIC_V2
    if not np.any(current):
        return None
    rows = np.flatnonzero(current)
    marked = rows[((batches["attributes"][rows] & ATTRIBUTE_CONTROL) != 0)
                  & (batches["producer_id"][rows] >= 0)]
    start = 0
    for stop in [*np.searchsorted(rows, marked).tolist(), len(rows)]:
        # Between two markers all at once, a marker alone: what came before it is then applied.
        for part in (rows[start:stop], rows[stop:stop + 1]):
            if not len(part):
                continue
            try:
                ended = producers.apply(batches[part], read, file=file)
            except CorruptDataError as error:
                row = _row_of(batches, part, error)
                before = rows[rows < row]
                if len(before):
                    producers.map_end_offset = int(batches["last_offset"][before[-1]]) + 1
                return row, producer_failure(error, file)
            if aborted is not None and ended:
                if aborted and ended[0].last_offset <= aborted[-1].last_offset:
                    return int(part[0]), _order_failure(file, ended[0], aborted[-1])
                aborted += ended
        start = stop + 1
    return None


def _order_failure(file: str, ended: AbortedTxn, last: AbortedTxn) -> LoaderFailure:
    return LoaderFailure(
        "IllegalArgumentException", "The last offset of appended transactions must increase "
        f"sequentially, but {ended.last_offset} is not greater than current last offset "
        f"{last.last_offset} of index {file.removesuffix('.log')}.txnindex", file=file)


def _row_of(batches: npt.NDArray[np.void], part: npt.NDArray[np.intp],
            error: CorruptDataError) -> int:
    """The row of the batch that an error is about, by its position."""
    if error.position is None:
        return int(part[-1])
    at = int(np.searchsorted(batches["position"][part], error.position, side="right")) - 1
    return int(part[max(at, 0)])


class LoadingProducers:
    """Producer state with its snapshots on disk. `last_snapshot` is the offset of the newest that
    it knows; one is only taken above that."""

    def __init__(self, topic_partition: TopicPartition, snapshots: Snapshots,
                 expiration_ms: int | None) -> None:
        self.topic_partition, self.snapshots = topic_partition, snapshots
        self.expiration_ms = expiration_ms
        self.state = ProducerState(topic_partition)
        self.last_snapshot = 0

    @property
    def is_empty(self) -> bool:
        """Neither producers nor completed transactions that are not replicated."""
        return not self.state.producer_ids and self.state.first_unstable_offset is None

    def take_snapshot(self) -> None:
        """Of what the state says up to its end, unless there is one."""
        end = self.state.map_end_offset
        if end > self.last_snapshot:
            self.snapshots.write(end, self.state)
            self.last_snapshot = end

    def truncate_and_reload(self, start: int, end: int) -> None:
        """Deletes the snapshots outside of (start, end] and loads the newest that reads well."""
        self.snapshots.delete_outside(start, end)
        if end != self.state.map_end_offset:
            offset, entries = self.snapshots.newest(start)
            now = time.time_ns() // 1_000_000
            self.state = ProducerState(self.topic_partition, offset,
                                       [entry for entry in entries
                                        if not self._is_expired(entry, now)])
            self.last_snapshot = offset
        else:
            self.state.map_end_offset = max(self.state.map_end_offset, start)
            self.last_snapshot = self.snapshots.latest(start)

    def _is_expired(self, entry: ProducerStateEntry, now: int) -> bool:
        return (self.expiration_ms is not None and entry.current_txn_first_offset is None
                and now - entry.last_timestamp >= self.expiration_ms)

    def truncate_fully(self, offset: int) -> None:
        """Forgets everything and starts at `offset` (Kafka: truncateFullyAndStartAt)."""
        self.state = ProducerState(self.topic_partition, offset)
        self.last_snapshot = 0
        self.snapshots.delete_known()
