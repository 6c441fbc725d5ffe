"""Seeded random logs: every codec, format and oddity that a real log may hold."""

from __future__ import annotations

import dataclasses
import functools
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Headers, Record
from tests.oracle.writer import BuiltLog, LogConfig, LogWriter, write_data_dir

#: The year 2096: Kafka forgets producers that were idle for long, and would forget these.
NOW = 4_000_000_000_000
CODECS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Shape:
    """What a log may hold. `magics` are phases: (0, 1, 2) begins with the oldest format."""

    batches: int = 60
    magics: tuple[int, ...] = (2,)
    codecs: tuple[int, ...] = CODECS
    transactions: bool = True
    compacted: bool = True
    invalid_utf8: bool = True
    epochs: bool = True
    most_records: int = 20
    most_bytes: int = 200
    base_offset: int = 0
    clean: bool = True
    preallocated: bool = False
    config: LogConfig = LogConfig()


@dataclass
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False


class LogBuilder:
    """Fills one partition directory from a seed; the same seed gives the same bytes."""

    def __init__(self, path: Path, seed: int, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self.random = random.Random(seed)
        self.writer = LogWriter(path, self.shape.config, self.shape.base_offset)
        self.clock = NOW
        self.leader_epoch = 0
        wraps = v2.MAX_SEQUENCE - 50
        self.idempotent = [_Producer(1000 + n, epoch=n, sequence=n * wraps) for n in range(2)]
        self.transactional = [_Producer(2000 + n) for n in range(3)]

    def build(self) -> BuiltLog:
        phases = self.shape.magics
        for number in range(self.shape.batches):
            self.clock += self.random.randint(0, 2000)
            magic = phases[number * len(phases) // self.shape.batches]
            if magic < 2:
                self.old(magic)
            else:
                self.batch()
            if self.shape.compacted and self.random.random() < .1:
                self.writer.next_offset += self.random.choice([1, 2, 50, 1000])
        return self.writer.close(clean=self.shape.clean, preallocated=self.shape.preallocated)

    def blob(self, most: int) -> bytes | None:
        kind = self.random.random()
        if kind < .1:
            return None
        if kind < .2:
            return b""
        size = self.random.randint(1, most)
        if kind < .6:
            return (b"seglog %d " % self.random.randint(0, 9) * (size // 8 + 1))[:size]
        return self.random.randbytes(size)

    def headers(self) -> Headers:
        if self.random.random() < .6:
            return []
        keys = [b"trace", b"", "имя".encode(), "\U0001f600".encode()]
        if self.shape.invalid_utf8:
            keys += [b"\xff", b"\xed\xa0\x80h", b"\xe2\x82", b"a\xf0\x9f\x98z"]
        return [(self.random.choice(keys), self.blob(20))
                for _ in range(self.random.randint(1, 4))]

    def timestamp(self) -> int:
        if self.random.random() < .02:
            return -1
        return self.clock + self.random.randint(-5000, 5000)

    def records(self) -> list[Record]:
        """Records at the next offsets, not yet thinned out by compaction."""
        return [Record(self.writer.next_offset + n, self.timestamp(), self.blob(20),
                       self.blob(self.shape.most_bytes), self.headers())
                for n in range(self.random.randint(1, self.shape.most_records))]

    def old(self, magic: int) -> None:
        """A message of magic 0 or 1, or a wrapper around several."""
        kind = self.random.random() < .3 if magic else False
        codec = self.random.choice([codec for codec in self.shape.codecs if codec < 4] or [0])
        messages = [legacy.Message(record.offset, magic, record.key, record.value,
                                   record.timestamp if magic else legacy.NO_TIMESTAMP)
                    for record in self.records()]
        if codec == 0:
            for message in messages[:3]:
                message.timestamp_type = int(kind)
                self.writer.append(message)
            return
        if self.shape.compacted and self.random.random() < .3:
            last = messages[-1]
            messages = self.random.sample(messages[:-1], len(messages) // 2) + [last]
            messages.sort(key=lambda message: message.offset)
        self.writer.append(legacy.wrap(messages, codec, timestamp_type=int(kind),
                                       append_time=self.clock))

    def batch(self) -> None:
        """One batch of magic 2 of some kind, or the marker that ends a transaction."""
        if self.shape.epochs and self.random.random() < .05:
            self.leader_epoch += self.random.randint(1, 3)
        kind = self.random.random()
        if kind < .05:
            self.kraft_control()
        elif kind < .2:
            self.data(self.random.choice(self.idempotent))
        elif kind < .6 and self.shape.transactions:
            producer = self.random.choice(self.transactional)
            if producer.in_transaction and self.random.random() < .4:
                self.end(producer)
            else:
                producer.in_transaction |= self.data(producer, transactional=True)
        else:
            self.data(None)

    def data(self, producer: _Producer | None, *, transactional: bool = False) -> bool:
        """A data batch, perhaps compacted; False when compaction left nothing of it."""
        records = self.records()
        count, base = len(records), self.writer.next_offset
        append_time = self.random.random() < .15
        batch = Batch(base, count - 1, records, codec=self.random.choice(self.shape.codecs),
                      timestamp_type=int(append_time),
                      partition_leader_epoch=self.leader_epoch, is_transactional=transactional,
                      raw_snappy=self.random.random() < .2)
        if producer:
            batch.producer_id, batch.producer_epoch = producer.producer_id, producer.epoch
            batch.base_sequence = producer.sequence
            producer.sequence = v2.add_sequence(producer.sequence, count)
        highest = max(record.timestamp for record in records)
        if self.shape.compacted and self.random.random() < .25:
            batch.records = self.random.sample(records, self.random.randint(0, count))
            batch.records.sort(key=lambda record: record.offset)
            if not batch.records and (producer is None or self.random.random() < .5):
                self.writer.next_offset += count
                return False
        if not batch.records:
            batch.codec, batch.max_timestamp = 0, highest
        else:
            batch.base_timestamp = batch.records[0].timestamp
            batch.max_timestamp = self.clock if append_time else \
                max(record.timestamp for record in batch.records)
            if self.shape.compacted and self.random.random() < .1:
                batch.has_delete_horizon = True
                batch.base_timestamp = self.clock + 86_400_000
        self.writer.append(batch)
        return True

    def end(self, producer: _Producer) -> None:
        """COMMIT or ABORT; at times with the raised epoch of transaction version 2."""
        if self.random.random() < .3:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        kind = v2.ABORT if self.random.random() < .5 else v2.COMMIT
        self.writer.append(v2.marker(
            self.writer.next_offset, producer.producer_id, producer.epoch, kind, self.clock,
            coordinator_epoch=self.random.randint(0, 3), leader_epoch=self.leader_epoch))
        producer.in_transaction = False

    def kraft_control(self) -> None:
        """A control batch of no producer: a change of the Raft leader."""
        record = Record(self.writer.next_offset, self.clock, b"\0\0\0\2", b"\0\0\0\0\0\1\1\1\0")
        self.writer.append(Batch(
            record.offset, 0, [record], base_timestamp=self.clock, max_timestamp=self.clock,
            partition_leader_epoch=self.leader_epoch, is_control=True))


def build_log(path: Path, seed: int, shape: Shape | None = None) -> BuiltLog:
    """One random partition directory at `path`."""
    built, files = _built(seed, shape or Shape())
    path.mkdir(parents=True)
    for name, (data, size) in files.items():
        with open(path / name, "wb") as out:
            out.write(data)
            out.truncate(size)
    return dataclasses.replace(built, path=path, entries=list(built.entries),
                               segments=list(built.segments), aborted=list(built.aborted),
                               open_transactions=dict(built.open_transactions),
                               leader_epochs=list(built.leader_epochs))


@functools.lru_cache(maxsize=32)
def _built(seed: int, shape: Shape) -> tuple[BuiltLog, dict[str, tuple[bytes, int]]]:
    """A log, and its files: content without the zeros at the end, and size. Hundreds of tests begin
    with one of a few logs."""
    with tempfile.TemporaryDirectory() as folder:
        built = LogBuilder(Path(folder, "log"), seed, shape).build()
        contents = {path.name: path.read_bytes() for path in sorted(built.path.iterdir())}
    return built, {name: (data.rstrip(b"\0"), len(data)) for name, data in contents.items()}


def build_data_dir(root: Path, seed: int, shapes: Sequence[Shape], *,
                   clean: bool = True) -> dict[str, BuiltLog]:
    """A data directory with one partition per shape, `built-N`, and its checkpoints."""
    root.mkdir(parents=True)
    logs = [build_log(root / f"built-{number}", seed + number, shape)
            for number, shape in enumerate(shapes)]
    write_data_dir(root, logs, clean=clean)
    return {log.path.name: log for log in logs}
