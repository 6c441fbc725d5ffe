"""Producer state: its snapshots, and the fold of a log over them (Kafka: ProducerStateManager).

What is applied has the origin REPLICATION, as everything while loading: sequences are not checked,
an epoch that goes backwards is taken, but a non-transactional batch inside an open transaction is
refused, as Kafka refuses to load such a log.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from seglog._native.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from seglog._native.crc32c import crc32c
from seglog._native.status import Status, status_error
from seglog.errors import CorruptSnapshotError, InvalidTxnStateError
from seglog.model import (
    AbortedTxn, BatchMetadata, OpenTransaction, ProducerStateEntry, TopicPartition,
)
from seglog.storage.markers import EndTransactionMarker, read_marker
from seglog.storage.textfile import read_small_file

__all__ = [
    "BATCHES_MAX", "SNAPSHOT_BYTES_MAX", "ProducerState", "decode_snapshot", "encode_snapshot",
    "is_expired", "read_snapshot",
]

#: How many batches of a producer are remembered, for the recognition of duplicates.
BATCHES_MAX: Final = 5
#: 46 bytes a producer: 11 million of them.
SNAPSHOT_BYTES_MAX: Final = 512 << 20

_VERSION = 1
_HEADER = struct.Struct(">hIi")  # version, crc of all behind it, number of entries
_COUNT_POSITION = 6
# producer id, epoch, last sequence, last offset, offset delta, last timestamp, coordinator epoch,
# first offset of the open transaction
_ENTRY = struct.Struct(">qhiqiqiq")

_SEQUENCE_MAX = 0x7FFFFFFF


def _corrupt(file: str | None, code: str, message: str, position: int, expected: object,
             found: object) -> NoReturn:
    raise CorruptSnapshotError(message, file=file, position=position, expected=expected,
                               found=found, code=code)


def decode_snapshot(data: bytes, *, file: str | None = None) -> list[ProducerStateEntry]:
    """The entries of a snapshot, in its order; a producer may be there twice.

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
    """A snapshot of version 1. Of every producer only the last batch is kept."""
    packed = [
        _ENTRY.pack(entry.producer_id, entry.producer_epoch, entry.last_sequence,
                    entry.last_data_offset, entry.last_offset_delta, entry.last_timestamp,
                    entry.coordinator_epoch,
                    -1 if entry.current_txn_first_offset is None
                    else entry.current_txn_first_offset)
        for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def read_snapshot(path: str | os.PathLike[str]) -> list[ProducerStateEntry]:
    """The entries of a `.snapshot` file (see `decode_snapshot`).

    Raises CorruptSnapshotError, and KafkaStorageError for a file that is missing or no file.
    """
    data = read_small_file(path, SNAPSHOT_BYTES_MAX)
    if data is None:
        raise status_error(Status.FILE_MISSING, file=path)
    return decode_snapshot(data, file=os.fspath(path))


def _add_sequence(sequence: int, increment: int) -> int:
    """A sequence after the largest is 0; of what no producer sends, what Java's ints make of it."""
    if sequence > _java_int(_SEQUENCE_MAX - increment):
        return _java_int(increment - _java_int(_SEQUENCE_MAX - sequence) - 1)
    return _java_int(sequence + increment)


def _java_int(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def is_expired(last_timestamp: int, now_ms: int, expiration_ms: int) -> bool:
    """Whether a producer was idle for `producer.id.expiration.ms`, by Java's arithmetic: one from
    before the beginning of time never was."""
    return (now_ms - last_timestamp + (1 << 63)) % (1 << 64) - (1 << 63) >= expiration_ms


class _Producer:
    """The changeable form of ProducerStateEntry."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(self) -> None:
        self.epoch = self.coordinator_epoch = self.last_timestamp = -1
        self.txn_first_offset: int | None = None
        self.batches: deque[tuple[int, int, int, int]] = deque(maxlen=BATCHES_MAX)

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """What the log up to `map_end_offset` says of its producers and transactions.

    One partition's, for one thread at a time. Replica-side bookkeeping (`unreplicated`) is that of
    a leader: a completed transaction counts as unstable until the high watermark has passed it.
    """

    __slots__ = ("_ongoing", "_ongoing_starts", "_producers", "_unreplicated", "map_end_offset",
                 "topic_partition")

    def __init__(self, topic_partition: TopicPartition, map_end_offset: int = 0,
                 entries: Iterable[ProducerStateEntry] = ()) -> None:
        """Starts from the `entries` of a snapshot, or from nothing."""
        self.topic_partition = topic_partition
        self.map_end_offset = map_end_offset
        self._producers: dict[int, _Producer] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id
        self._ongoing_starts: list[int] = []  # its keys in order
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        for entry in entries:
            self._load(entry)

    def _load(self, entry: ProducerStateEntry) -> None:
        producer = self._producers[entry.producer_id] = _Producer()
        producer.epoch, producer.coordinator_epoch = entry.producer_epoch, entry.coordinator_epoch
        producer.last_timestamp = entry.last_timestamp
        producer.batches.extend((batch.last_sequence, batch.last_offset, batch.offset_delta,
                                 batch.timestamp) for batch in entry.batches)
        producer.txn_first_offset = entry.current_txn_first_offset
        if entry.current_txn_first_offset is not None:
            self._open(entry.producer_id, entry.current_txn_first_offset)

    def _open(self, producer_id: int, first_offset: int) -> None:
        if first_offset not in self._ongoing:
            bisect.insort(self._ongoing_starts, first_offset)
        self._ongoing[first_offset] = producer_id

    @property
    def producer_ids(self) -> list[int]:
        """Of all producers, in the order in which they came."""
        return list(self._producers)

    @property
    def entries(self) -> list[ProducerStateEntry]:
        """The state of every producer, by producer id."""
        return [ProducerStateEntry(producer_id, producer.epoch, producer.coordinator_epoch,
                                   producer.last_timestamp, producer.txn_first_offset,
                                   tuple(BatchMetadata(*batch) for batch in producer.batches))
                for producer_id, producer in sorted(self._producers.items())]

    @property
    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions without a marker so far, by first offset."""
        found = [OpenTransaction(producer_id, producer.txn_first_offset)
                 for producer_id, producer in self._producers.items()
                 if producer.txn_first_offset is not None]
        return sorted(found, key=lambda transaction: transaction.first_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not yet replicated."""
        starts = self._ongoing_starts[:1]
        if self._unreplicated:
            starts = [*starts, min(self._unreplicated)]
        return min(starts, default=None)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forgets the completed transactions whose marker is below the high watermark."""
        self._unreplicated = {first: last for first, last in self._unreplicated.items()
                              if last >= high_watermark}

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drops producers without a transaction that were idle for `producer.id.expiration.ms`."""
        self._producers = {
            producer_id: producer for producer_id, producer in self._producers.items()
            if producer.txn_first_offset is not None
            or not is_expired(producer.last_timestamp, now_ms, expiration_ms)}

    def apply(self, batches: npt.NDArray[np.void], read: Callable[[int, int], bytes], *,
              file: str | None = None, aborted: list[AbortedTxn] | None = None
              ) -> list[AbortedTxn]:
        """Applies batches (`_native.batch.BATCH_DTYPE`, in the order of the log).

        `read(position, size)` gives bytes of the log file; it is asked only for the control batches
        of producers. Returns the transactions that ended with an abort, in the order of their
        markers: the entries of the segment's transaction index; they are added to `aborted` where
        it is given. Raises InvalidRecordError for a marker that does not parse and
        InvalidTxnStateError; what came before is applied.
        """
        aborted = [] if aborted is None else aborted
        rows = batches[batches["producer_id"] > -1]
        fields = ("base_offset", "last_offset", "max_timestamp", "producer_id", "producer_epoch",
                  "base_sequence", "attributes", "position", "size")
        for (base_offset, last_offset, max_timestamp, producer_id, epoch, sequence, attributes,
             position, size) in zip(*(rows[name].tolist() for name in fields), strict=True):
            if attributes & ATTRIBUTE_CONTROL:
                marker = read_marker(read, position, size, file=file)
                if marker is not None:
                    ended = self.end_transaction(producer_id, epoch, base_offset, marker, file,
                                                 position)
                    if ended is not None and marker.is_abort:
                        aborted.append(ended)
            else:
                self.append_data(producer_id, epoch, sequence, base_offset, last_offset,
                                 max_timestamp, bool(attributes & ATTRIBUTE_TRANSACTIONAL), file,
                                 position)
            self.map_end_offset = last_offset + 1
        if len(batches):
            self.map_end_offset = int(batches["last_offset"][-1]) + 1
        return aborted

    def append_data(self, producer_id: int, epoch: int, base_sequence: int, base_offset: int,
                    last_offset: int, max_timestamp: int, is_transactional: bool,
                    file: str | None = None, position: int | None = None) -> None:
        """One data batch. Raises InvalidTxnStateError for a plain one inside a transaction."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer()
        if producer.txn_first_offset is not None and not is_transactional:
            raise InvalidTxnStateError(
                f"Expected transactional write from producer {producer_id} at offset "
                f"(offset={base_offset}, segment=[-1:-1]) in partition {self.topic_partition}",
                file=file, position=position, expected="transactional", found="plain",
                code="txn_state")
        producer.take_epoch(epoch)
        delta = last_offset - base_offset
        last_sequence = -1 if base_sequence == -1 else _add_sequence(base_sequence, delta)
        producer.batches.append((last_sequence, last_offset, delta, max_timestamp))
        producer.last_timestamp = max_timestamp
        if is_transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = base_offset
            self._open(producer_id, base_offset)

    def end_transaction(self, producer_id: int, epoch: int, offset: int,
                        marker: EndTransactionMarker, file: str | None = None,
                        position: int | None = None) -> AbortedTxn | None:
        """One marker at `offset`; the transaction that it ended, None where none was open.

        Its `last_stable_offset` is right for aborts and commits alike: the first offset of the
        earliest transaction of another producer, or the offset behind the marker. Raises
        InvalidTxnStateError (`txn_not_started`) for one that no producer has open any more.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer()
        producer.take_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        first_offset, producer.txn_first_offset = producer.txn_first_offset, None
        if first_offset is None:
            return None
        stable = next((start for start in self._ongoing_starts
                       if self._ongoing[start] != producer_id), offset + 1)
        # Absent where two producers have one first offset: Kafka knows transactions by it alone.
        if self._ongoing.pop(first_offset, None) is None:
            completed = (f"CompletedTxn[producerId={producer_id}, firstOffset={first_offset}, "
                         f"lastOffset={offset}, isAborted={str(marker.is_abort).lower()}]")
            raise InvalidTxnStateError(
                f"Attempted to complete transaction {completed} on partition "
                f"{self.topic_partition} which was not started", file=file, position=position,
                found=first_offset, code="txn_not_started")
        del self._ongoing_starts[bisect.bisect_left(self._ongoing_starts, first_offset)]
        self._unreplicated[first_offset] = offset
        return AbortedTxn(producer_id, first_offset, offset, stable)
