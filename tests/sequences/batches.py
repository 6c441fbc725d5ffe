"""Batches as clients, coordinators and other replicas send them, from the tests' own encoder."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from seglog.log.batch_builder import RecordBatchBuilder
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Headers, Record

NO_PRODUCER = -1


@dataclass(frozen=True)
class Writer:
    """The producer that a batch names."""

    producer_id: int = NO_PRODUCER
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


@dataclass(frozen=True)
class Look:
    """What the records of a sequence look like."""

    codecs: tuple[int, ...] = (0, 0, 0, 1, 2, 3, 4)
    most_records: int = 12
    most_bytes: int = 120
    null_keys: float = .3
    null_values: float = .1
    #: How many keys there are; 0 for as many as there are records.
    keys: int = 0
    spread_ms: int = 5000
    append_time: float = 0.
    no_timestamp: float = .02


class Batches:
    """Makes batches; `now` is the clock of the sequence, moved by its generator."""

    def __init__(self, source: random.Random, look: Look, now: int) -> None:
        self.random, self.look, self.now = source, look, now

    def blob(self, most: int, null: float) -> bytes | None:
        kind = self.random.random()
        if kind < null:
            return None
        if kind < null + .05:
            return b""
        size = self.random.randint(1, max(1, most))
        if self.random.random() < .5:
            return (b"seglog %d " % self.random.randint(0, 9) * (size // 8 + 1))[:size]
        return self.random.randbytes(size)

    def key(self) -> bytes | None:
        if not self.look.keys or self.random.random() < self.look.null_keys:
            return self.blob(20, self.look.null_keys)
        # Lengths around a block of MD5, and markers' keys.
        number = self.random.randrange(self.look.keys)
        return (b"\0\0\0\0" if number == 3 else b"\0\0\0\1" if number == 4
                else b"key %d " % number * (20 if number == 5 else 1))

    def headers(self) -> Headers:
        if self.random.random() < .7:
            return []
        keys = [b"trace", b"", "имя".encode(), "\U0001f600".encode()]
        return [(self.random.choice(keys), self.blob(20, .2))
                for _ in range(self.random.randint(1, 3))]

    def timestamp(self) -> int:
        if self.random.random() < self.look.no_timestamp:
            return -1
        return self.now + self.random.randint(-self.look.spread_ms, self.look.spread_ms // 2)

    def records(self, base_offset: int, count: int | None = None) -> list[Record]:
        if count is None:
            count = 1 if self.random.random() < .3 else \
                self.random.randint(1, self.look.most_records)
        return [Record(base_offset + number, self.timestamp(),
                       self.key(), self.blob(self.look.most_bytes, self.look.null_values),
                       self.headers())
                for number in range(count)]

    def data(self, base_offset: int = 0, writer: Writer = Writer(), *, leader_epoch: int = -1,
             count: int | None = None) -> Batch:
        """A batch of magic 2 with everything in order."""
        records = self.records(base_offset, count)
        append_time = self.random.random() < self.look.append_time
        return Batch(
            base_offset, len(records) - 1, records, codec=self.random.choice(self.look.codecs),
            timestamp_type=int(append_time), base_timestamp=records[0].timestamp,
            max_timestamp=self.now if append_time else max(one.timestamp for one in records),
            producer_id=writer.producer_id, producer_epoch=writer.epoch,
            base_sequence=writer.sequence, partition_leader_epoch=leader_epoch,
            is_transactional=writer.transactional, raw_snappy=self.random.random() < .2)

    def thinned(self, batch: Batch) -> Batch:
        """The batch as compaction leaves it: fewer records, or none, and perhaps a horizon."""
        kept = self.random.sample(batch.records, self.random.randint(0, len(batch.records)))
        batch.records = sorted(kept, key=lambda record: record.offset)
        if not batch.records:
            batch.codec = 0
        elif self.random.random() < .2:
            batch.has_delete_horizon, batch.base_timestamp = True, self.now + 86_400_000
        return batch

    def old(self, magic: int, base_offset: int = 0, *, at_most: int = 8) -> bytes:
        """Messages of magic 0 or 1: some alone, or one wrapper around several."""
        codec = self.random.choice([codec for codec in self.look.codecs if codec < 4] or [0])
        records = self.records(base_offset, self.random.randint(1, at_most))
        messages = [legacy.Message(one.offset, magic, one.key, one.value,
                                   one.timestamp if magic else legacy.NO_TIMESTAMP)
                    for one in records]
        kind = int(magic == 1 and self.random.random() < self.look.append_time)
        if codec:
            wrapper = legacy.wrap(messages, codec, timestamp_type=kind, append_time=self.now)
            return legacy.encode(wrapper)
        for message in messages:
            message.timestamp_type = kind
        return b"".join(map(legacy.encode, messages))

    def marker(self, offset: int, writer: Writer, *, commit: bool, coordinator_epoch: int,
               leader_epoch: int = -1) -> Batch:
        """The end of a transaction."""
        return v2.marker(offset, writer.producer_id, writer.epoch,
                         v2.COMMIT if commit else v2.ABORT, self.now,
                         coordinator_epoch=coordinator_epoch, leader_epoch=leader_epoch)

    def odd_marker(self, offset: int, writer: Writer, leader_epoch: int = -1) -> Batch:
        """A control batch that ends no transaction, or ends it in a way of its own."""
        batch = self.marker(offset, writer, commit=self.random.random() < .5, coordinator_epoch=0,
                            leader_epoch=leader_epoch)
        record = batch.records[0]
        kind = self.random.randrange(9)
        if kind == 0:
            record.key = struct.pack(">hh", 0, self.random.choice([2, 3, 4, 5, 6, 9, -1]))
        elif kind == 1:
            record.key = struct.pack(">hh", self.random.choice([1, -1, 5]), 1)
        elif kind == 2:
            record.key = self.random.choice([None, b"", b"\0\0", b"\0\0\0"])
        elif kind == 3:
            record.value = self.random.choice([None, b"", b"\0\0", b"\0\0\0\0", b"\0\1" + bytes(4)])
        elif kind == 4:
            batch.records, batch.last_offset_delta = [], 0
        elif kind == 5:
            batch.is_transactional = False
        elif kind == 6:
            batch.producer_id, batch.producer_epoch = -1, -1
        elif kind == 7:
            again = Record(offset + 1, record.timestamp, record.key, record.value)
            batch.records, batch.last_offset_delta = [record, again], 1
        else:
            batch.codec = self.random.choice([1, 2, 3, 4])
        return batch

    def leader_change(self, offset: int, leader_epoch: int) -> Batch:
        """A control batch of Raft's, which names no producer."""
        record = Record(offset, self.now, b"\0\0\0\2", b"\0\0\0\0\0\1\1\1\0")
        return Batch(offset, 0, [record], base_timestamp=self.now, max_timestamp=self.now,
                     partition_leader_epoch=leader_epoch, is_control=True)


def built(batch: Batch) -> bytes:
    """The bytes of a batch by seglog's own builder."""
    builder = RecordBatchBuilder(
        base_offset=batch.base_offset, codec=batch.codec, producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch, base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        partition_leader_epoch=batch.partition_leader_epoch,
        log_append_time=batch.max_timestamp if batch.timestamp_type else None)
    for record in batch.records:
        builder.append_with_offset(record.offset, record.timestamp, record.key, record.value,
                                   record.headers)
    return builder.build()


def encode_all(batches: Sequence[Batch]) -> bytes:
    """The bytes of batches behind each other."""
    return b"".join(map(v2.encode, batches))
