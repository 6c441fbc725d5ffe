"""Producer state: its snapshots, and applying a log to them (Kafka: ProducerStateManager).

Batches are applied with the origin REPLICATION, as all of Kafka's loading is: sequences are not
checked, and an epoch that goes backwards is accepted. A non-transactional batch inside an open
transaction is an error, because Kafka refuses to load such a log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from seglog._native.crc32c import crc32c
from seglog._native.producers import (
    PRODUCER_BATCHES, PRODUCER_DTYPE, Origin, ProducerTable, Verdict,
)
from seglog._native.status import Status, status_error
from seglog.errors import CorruptSnapshotError, CorruptTxnStateError
from seglog.model import (
    AbortedTxn, BatchMetadata, CompletedTxn, OpenTransaction, ProducerStateEntry, TopicPartition,
)
from seglog.java.numbers import wrap_int64
from seglog.storage.log_store import LOCAL, Files, small_file
from seglog.storage.markers import read_marker

__all__ = [
    "BATCHES_MAX", "SNAPSHOT_BYTES_MAX", "ProducerState", "decode_snapshot", "encode_snapshot",
    "expected_transactional", "is_expired", "not_started", "read_snapshot",
]

#: How many batches of a producer are remembered to recognize duplicates.
BATCHES_MAX: Final = PRODUCER_BATCHES
#: 46 bytes a producer, so 11 million producers.
SNAPSHOT_BYTES_MAX: Final = 512 << 20

_VERSION = 1
_HEADER = struct.Struct(">hIi")  # version, crc of all bytes after it, number of entries
_COUNT_POSITION = 6
# producer id, epoch, last sequence, last offset, offset delta, last timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")
_SCALARS = [name for name in PRODUCER_DTYPE.names or () if name != "batches"]


def _corrupt(file: str | None, code: str, message: str, position: int, expected: object,
             found: object) -> NoReturn:
    raise CorruptSnapshotError(message, file=file, position=position, expected=expected,
                               found=found, code=code)


def decode_snapshot(data: bytes, *, file: str | None = None) -> list[ProducerStateEntry]:
    """The entries of a snapshot, in file order; a producer may occur twice.

    Raises CorruptSnapshotError with Kafka's text: `snapshot_size`, `snapshot_version`,
    `snapshot_count`, `snapshot_crc`.
    """
    invalid = "Snapshot failed schema validation: "
    if len(data) < 2:
        _corrupt(file, "snapshot_size", f"{invalid}null", 0, _HEADER.size, len(data))
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != _VERSION:
        _corrupt(file, "snapshot_version",
                 f"{invalid}Snapshot contained an unknown file version {version}", 0, _VERSION,
                 version)
    if len(data) < _HEADER.size:
        _corrupt(file, "snapshot_size", f"{invalid}null", len(data), _HEADER.size, len(data))
    _, crc, count = _HEADER.unpack_from(data)
    left = len(data) - _HEADER.size
    if count < 0:
        _corrupt(file, "snapshot_count",
                 f"{invalid}non-nullable field producerEntries was serialized as null",
                 _COUNT_POSITION, 0, count)
    if count > left:
        _corrupt(file, "snapshot_count",
                 f"{invalid}Tried to allocate a collection of size {count}, but there are only "
                 f"{left} bytes remaining.", _COUNT_POSITION, left, count)
    if count * _ENTRY.size > left:
        _corrupt(file, "snapshot_size", f"{invalid}null", len(data),
                 _HEADER.size + count * _ENTRY.size, len(data))
    computed = crc32c(memoryview(data)[_COUNT_POSITION:])
    if crc != computed:
        _corrupt(file, "snapshot_crc",
                 f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: "
                 f"{computed}", 2, crc, computed)
    return [_entry(*fields) for fields in _ENTRY.iter_unpack(
        memoryview(data)[_HEADER.size:_HEADER.size + count * _ENTRY.size])]


def _entry(producer_id: int, epoch: int, last_sequence: int, last_offset: int, offset_delta: int,
           last_timestamp: int, coordinator_epoch: int, txn_offset: int) -> ProducerStateEntry:
    batches = () if last_offset < 0 else (
        BatchMetadata(last_sequence, last_offset, offset_delta, last_timestamp),)
    return ProducerStateEntry(producer_id, epoch, coordinator_epoch, last_timestamp,
                              txn_offset if txn_offset >= 0 else None, batches)


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """A snapshot of version 1. Keeps only the last batch of every producer."""
    packed = [
        _ENTRY.pack(entry.producer_id, entry.producer_epoch, entry.last_sequence,
                    entry.last_data_offset, entry.last_offset_delta, entry.last_timestamp,
                    entry.coordinator_epoch,
                    -1 if entry.current_txn_first_offset is None
                    else entry.current_txn_first_offset)
        for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def read_snapshot(path: str | os.PathLike[str], where: Files = LOCAL
                  ) -> list[ProducerStateEntry]:
    """Reads the entries of a `.snapshot` file (see `decode_snapshot`) from any store.

    Raises CorruptSnapshotError, and KafkaStorageError for a file that is missing or not regular.
    """
    data = small_file(where, os.fspath(path), SNAPSHOT_BYTES_MAX)
    if data is None:
        raise status_error(Status.FILE_MISSING, file=path)
    return decode_snapshot(data, file=os.fspath(path))


def is_expired(last_timestamp: int, now_ms: int, expiration_ms: int) -> bool:
    """Whether a producer was idle for `producer.id.expiration.ms`, in Java's arithmetic: with a
    negative timestamp whose difference overflows it never expires."""
    return wrap_int64(now_ms - last_timestamp) >= expiration_ms


def expected_transactional(topic_partition: TopicPartition, batch: np.void) -> str:
    """Kafka's text about a batch without the transactional bit inside a transaction."""
    return (f"Expected transactional write from producer {batch['producer_id']} at offset "
            f"(offset={batch['base_offset']}, segment=[-1:-1]) in partition {topic_partition}")


def not_started(topic_partition: TopicPartition, completed: CompletedTxn) -> str:
    """Kafka's text about a marker whose transaction is not open."""
    return (f"Attempted to complete transaction {completed} on partition {topic_partition} "
            "which was not started")


class ProducerState:
    """The producers and transactions of the log up to `map_end_offset`.

    For one partition and one thread at a time. `unreplicated` transactions are those of a leader: a
    completed transaction counts as unstable until the high watermark has passed it.
    """

    __slots__ = ("table", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, map_end_offset: int = 0,
                 entries: Iterable[ProducerStateEntry] = ()) -> None:
        """Starts from the `entries` of a snapshot, or empty."""
        self.topic_partition = topic_partition
        self.table = ProducerTable()
        self.restart(map_end_offset, entries)

    def restart(self, map_end_offset: int, entries: Iterable[ProducerStateEntry] = ()) -> None:
        """Replaces all state by these entries, in the same table."""
        self.map_end_offset = map_end_offset
        self.table.clear()
        if rows := list(entries):
            self.table.load(_to_rows(rows))

    @property
    def map_end_offset(self) -> int:
        """The end of the part of the log that the state describes."""
        return self.table.map_end_offset

    @map_end_offset.setter
    def map_end_offset(self, offset: int) -> None:
        self.table.map_end_offset = offset

    @property
    def producer_ids(self) -> list[int]:
        """The ids of all producers, in the order of their first batch."""
        ids: list[int] = self.table.to_numpy()["producer_id"].tolist()
        return ids

    @property
    def entries(self) -> list[ProducerStateEntry]:
        """The state of every producer, sorted by producer id."""
        rows = self.table.to_numpy()
        return _from_rows(rows[np.argsort(rows["producer_id"])])

    def find(self, producer_id: int) -> ProducerStateEntry | None:
        """The state of one producer, if it is known."""
        rows = self.table.find(producer_id)
        return None if rows is None else _from_rows(rows)[0]

    @property
    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions without a marker so far, sorted by first offset."""
        rows = self.table.to_numpy()
        rows = rows[rows["in_txn"] != 0]
        rows = rows[np.argsort(rows["txn_first_offset"], kind="stable")]
        return [OpenTransaction(*row)
                for row in rows[["producer_id", "txn_first_offset"]].tolist()]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not yet replicated."""
        return self.table.first_unstable_offset()

    def to_snapshot(self) -> bytes:
        """The bytes of a snapshot file, in Kafka's order (that of a hash table)."""
        return self.table.snapshot()

    def apply(self, batches: npt.NDArray[np.void], read: Callable[[int, int], bytes], *,
              file: str | None = None, fd: int = -1,
              on_aborted: Callable[[int, AbortedTxn], None] | None = None) -> list[AbortedTxn]:
        """Applies batches (`_native.batch.BATCH_DTYPE`, in the order of the log).

        `read(position, size)` returns bytes of the log file. It is called only for control batches
        of producers; if the file is open as `fd`, only for those that differ from what Kafka
        writes. Returns the aborted transactions in the order of their markers: the entries of the
        segment's transaction index. `on_aborted` gets each with the position of its marker. Raises
        InvalidRecordError for an invalid marker, and CorruptTxnStateError; batches before it are
        applied and reported.
        """
        found: list[AbortedTxn] = []
        batches = np.ascontiguousarray(batches)
        row, status = 0, int(Status.MORE)

        def take(position: int, ended: AbortedTxn) -> None:
            found.append(ended)
            if on_aborted is not None:
                on_aborted(position, ended)

        try:
            while status != Status.OK:
                row, status, aborted = self.table.apply(batches, row, fd=fd)
                for *ended, position in aborted:
                    take(position, AbortedTxn(*ended))
                if status == Status.TXN_STATE:
                    raise self._plain_inside(batches[row], file)
                if status == Status.MORE:
                    self._apply_control(batches[row], read, file, take)
                    row += 1
        finally:
            if row:
                self.map_end_offset = wrap_int64(int(batches["last_offset"][row - 1]) + 1)
        return found

    def _plain_inside(self, batch: np.void, file: str | None) -> CorruptTxnStateError:
        return CorruptTxnStateError(
            expected_transactional(self.topic_partition, batch), file=file,
            position=int(batch["position"]), expected="transactional", found="plain",
            code="txn_state")

    def _apply_control(self, batch: np.void, read: Callable[[int, int], bytes], file: str | None,
                       take: Callable[[int, AbortedTxn], None]) -> None:
        """Applies a marker that C left to the parser that knows all of Kafka's errors."""
        producer_id, position = int(batch["producer_id"]), int(batch["position"])
        offset = int(batch["base_offset"])
        marker = read_marker(read, position, int(batch["size"]), file=file)
        if marker is None:
            self.table.touch(producer_id)
            return
        ended = self.table.end_transaction(producer_id, int(batch["producer_epoch"]), offset,
                                           marker.coordinator_epoch, marker.timestamp,
                                           marker.is_abort)
        if ended is None:
            return
        first_offset, last_stable_offset, was_open = ended
        if marker.is_abort:
            # Kafka writes the transaction index before it checks whether a transaction was open.
            take(position, AbortedTxn(producer_id, first_offset, offset, last_stable_offset))
        if not was_open:
            raise self._not_started(producer_id, first_offset, offset, marker.is_abort, file,
                                    position)

    def _not_started(self, producer_id: int, first_offset: int, last_offset: int, is_abort: bool,
                     file: str | None, position: int | None) -> CorruptTxnStateError:
        completed = CompletedTxn(producer_id, first_offset, last_offset, is_abort)
        return CorruptTxnStateError(
            not_started(self.topic_partition, completed), file=file, position=position,
            found=first_offset, code="txn_not_started")

    def replay(self, chunks: Iterable[npt.NDArray[np.void]], read: Callable[[int, int], bytes], *,
               file: str | None = None, fd: int = -1) -> None:
        """Applies the batches of one segment as Kafka does when it rebuilds the state.

        Batches are gathered by producer and applied at the end, and transactions end only then. The
        result differs from `apply` where epochs or offsets go back. Raises as `apply`; then nothing
        is applied, or some of the transactions have not ended.
        """
        table = self.table
        table.begin()
        for chunk in chunks:
            batches = np.ascontiguousarray(chunk)
            table.next_rows()
            verdict = int(Verdict.MARKER)
            while verdict == Verdict.MARKER:
                row, verdict, *_ = table.check(batches, None, Origin.REPLICATION, 0, log_fd=fd)
                if verdict == Verdict.TXN_STATE:
                    raise self._plain_inside(batches[row], file)
                if verdict == Verdict.MARKER:
                    position, size = (int(batches[row][name]) for name in ("position", "size"))
                    marker = read_marker(read, position, size, file=file)
                    table.check_marker(batches, Origin.REPLICATION, 0,
                                       *((0, 0, False, True) if marker is None else
                                         (marker.coordinator_epoch, marker.timestamp,
                                          marker.is_abort)))
        completed = table.completed()
        table.commit()
        for producer_id, first_offset, last_offset, is_abort in completed:
            if not table.complete_txn(first_offset, last_offset):
                raise self._not_started(producer_id, first_offset, last_offset, is_abort, file,
                                        None)


def _to_rows(entries: list[ProducerStateEntry]) -> npt.NDArray[np.void]:
    """Entries as rows of the native table (PRODUCER_DTYPE)."""
    rows = np.zeros(len(entries), PRODUCER_DTYPE)
    for row, entry in enumerate(entries):
        first_offset = entry.current_txn_first_offset
        batches = [(batch.last_offset, batch.timestamp, batch.last_sequence, batch.offset_delta)
                   for batch in entry.batches]
        rows[row] = (entry.producer_id, entry.last_timestamp, first_offset or 0,
                     entry.coordinator_epoch, entry.producer_epoch, first_offset is not None,
                     len(batches), batches + [(0, 0, 0, 0)] * (BATCHES_MAX - len(batches)))
    return rows


def _from_rows(rows: npt.NDArray[np.void]) -> list[ProducerStateEntry]:
    return [_from_row(row, batches) for row, batches in zip(
        rows[_SCALARS].tolist(), rows["batches"].tolist(), strict=True)]


def _from_row(row: tuple[int, ...],
              batches: list[tuple[int, int, int, int]]) -> ProducerStateEntry:
    producer_id, last_timestamp, first_offset, coordinator_epoch, epoch, in_txn, count = row
    return ProducerStateEntry(
        producer_id, epoch, coordinator_epoch, last_timestamp, first_offset if in_txn else None,
        tuple(BatchMetadata(sequence, offset, delta, timestamp)
              for offset, timestamp, sequence, delta in batches[:count]))
