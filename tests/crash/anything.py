"""A program that does anything with a log of `seglog.open`, a job of tests/faults: it appends in
every way, flushes, truncates, deletes, rolls and compacts, and opens the log again with other
settings."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import seglog
from seglog.embedded.transaction import Transaction
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.storage.markers import ControlType
from tests.crash.promises import Acknowledgements
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

PARTITION, KEYS, NOW = "t-0", 7, 1_700_000_000_000
MARKER = "marker"
IDEMPOTENT = 9
Texts = dict[int, str]


def config_of(source: random.Random, *, compacts: bool) -> dict[str, str]:
    """Settings of one open: small segments, any codec."""
    policy = source.choice(["delete", "compact"]) if compacts else "delete"
    return {"internal.segment.bytes": source.choice(["1000", "2000", "8000"]),
            "index.interval.bytes": source.choice(["0", "100", "400"]),
            "segment.index.bytes": "4096",
            "file.delete.delay.ms": source.choice(["0", "1000"]),
            "preallocate": source.choice(["false", "false", "true"]),
            "compression.type": source.choice(["producer", "producer", "zstd", "lz4", "gzip"]),
            "cleanup.policy": policy, "min.cleanable.dirty.ratio": "1"}


def contents(log: seglog.EmbeddedLog, **how: Any) -> Texts:
    """All records by their offsets, in the order of a reader."""
    found = {}
    for batch in log.to_arrow(columns=["offset", "value", "is_control"], include_control=True,
                              **how):
        rows = batch.to_pylists()
        for offset, value, is_control in zip(rows["offset"], rows["value"], rows["is_control"],
                                             strict=True):
            assert offset not in found, f"{offset} is there twice"
            found[offset] = MARKER if is_control else value.decode()
    return found


class Program:
    """One life of it. `compacts` and `follows`: whether its log is ever compacted, and whether it
    gets batches with gaps, by the seed."""

    def __init__(self, root: Path, seed: int, generation: int) -> None:
        self.random = random.Random(f"anything {seed} {generation}")
        self.compacts, self.follows = bool(seed & 1), not seed % 3
        self.path, self.say = root / PARTITION, Acknowledgements(root).say
        self.open()

    def open(self) -> None:
        self.durability: Literal["none", "append"] = self.random.choice(
            ["none", "none", "none", "append"])  # type: ignore[arg-type]
        config = config_of(self.random, compacts=self.compacts)
        self.is_compacted = config["cleanup.policy"] == "compact"
        if self.is_compacted:  # of a log that may have gaps, missing offsets are no hole
            self.say("gap")
        self.log = seglog.open(self.path, config=config, durability=self.durability,
                               batch_bytes=400)
        self.transactions: dict[int, tuple[Transaction, int]] = {}
        self.say("opened", start=self.log.log_start_offset, end=self.log.log_end_offset,
                 texts=[*contents(self.log).items()])

    def live(self, count: int) -> None:
        """Does `count` things, and leaves the log open."""
        names = {"append": 6, "many": 4, "produce": 4, "transact": 8, "flush": 2, "roll": 1.5,
                 "truncate": 1, "delete": .7, "reopen": .7, "compact": 2, "follow": 2}
        for name in self.random.choices([*names], [*names.values()], k=count):
            getattr(self, name)()

    # ---- appends

    def _texts(self, count: int) -> list[str]:
        size = self.random.choice([0, 0, 20, 150])
        return [f"{self.random.randrange(KEYS)} {self.random.getrandbits(32):08x}" + "." * size
                for _ in range(count)]

    def _append(self, texts: list[str], append: Callable[[], object], transaction: int = -1,
                first: int | None = None) -> None:
        first = self.log.log_end_offset if first is None else first
        self.say("appending", first=first, texts=texts, transaction=transaction)
        append()
        assert self.log.log_end_offset == first + len(texts)
        self.say("appended", first=first, texts=texts)
        if self.durability == "append":
            self.say("flushed", to=self.log.log_end_offset)

    def append(self) -> None:
        [text] = self._texts(1)
        self._append([text], lambda: self.log.append(text.encode(), key=key_of(text)))

    def many(self) -> None:
        texts = self._texts(self.random.randint(1, 30))
        self._append(texts, lambda: self.log.append_many(pairs(texts)))

    def _batch(self, texts: list[str], first: int = 0, **fields: Any) -> bytes:
        records = [Record(first + number, NOW, key_of(text), text.encode())
                   for number, text in enumerate(texts)]
        return v2.encode(Batch(first, len(texts) - 1, records, base_timestamp=NOW,
                               max_timestamp=NOW, codec=self.random.choice([0, 0, 3, 4]),
                               **fields))

    def produce(self) -> None:
        """A batch of an idempotent producer, whose last one may come again."""
        known = self.log.log.producer_manager.last_entry(IDEMPOTENT)
        sequence = 0 if known is None else known.last_sequence + 1
        texts = self._texts(self.random.randint(1, 4))
        data = self._batch(texts, producer_id=IDEMPOTENT, producer_epoch=0, base_sequence=sequence)
        self._append(texts, lambda: self.log.append_batches(data))
        if self.random.random() < .3:
            end = self.log.log_end_offset
            assert self.log.append_batches(data) == range(end - len(texts), end)
            assert self.log.log_end_offset == end, "a batch is there twice"

    def transact(self) -> None:
        """Begins a transaction, appends to it, or ends it."""
        producer = self.random.choice([1, 2])
        if producer not in self.transactions:
            known = self.log.log.producer_manager.last_entry(producer)
            is_open = known is not None and known.current_txn_first_offset is not None
            begun = list[Transaction]()
            log = self.log

            def begin() -> None:
                begun.append(Transaction(
                    log.log, producer, log._epoch,
                    partial(RecordBatchBuilder, codec=log._codec, write_limit=400)))

            self._append([MARKER] * is_open, begin)
            self.transactions[producer] = begun[0], self.random.getrandbits(40)
        transaction, number = self.transactions[producer]
        if self.random.random() < .7:
            texts = self._texts(self.random.randint(1, 12))
            self._append(texts, lambda: transaction.append_many(pairs(texts)), number)
            return
        del self.transactions[producer]
        if transaction.is_open:
            commits = self.random.random() < .6
            self.say("ending", transaction=number, commits=commits)
            self._append([MARKER], lambda: transaction.end(
                ControlType.COMMIT if commits else ControlType.ABORT))
            self.say("ended", transaction=number, at=self.log.log_end_offset)

    def follow(self) -> None:
        """A batch with the offsets of a leader that has compacted its log."""
        if not self.follows:
            return
        texts = self._texts(self.random.randint(1, 3))
        first = self.log.log_end_offset + self.random.choice([0, 1, 25])
        self.say("gap")
        data = self._batch(texts, first, partition_leader_epoch=self.log._epoch)
        self._append(texts, lambda: self.log.log.append_as_follower(data, self.log._epoch),
                     first=first)
        self.log.log.update_high_watermark(self.log.log_end_offset)

    # ---- the rest

    def flush(self) -> None:
        end = self.log.log_end_offset
        self.log.flush()
        self.say("flushed", to=end)

    def roll(self) -> None:
        self.log.log.roll()

    def truncate(self) -> None:
        """To the beginning of a batch; rarely to nothing."""
        log = self.log.log
        end = log.log_end_offset
        to = self.random.randint(max(log.log_start_offset, end - 25), end)
        self.transactions.clear()
        if self.random.random() < .1:
            to = self.random.choice([end + 5, to, max(to - 30, 0)])
            self.say("emptying", to=to)
            log.truncate_fully_and_start_at(to)
            self.say("emptied", to=to)
            return
        found = bytes(log.read(to, 1, "log_end", True).records)
        if found:  # nothing in a gap before the end
            to = struct.unpack_from(">q", found)[0]
        if to >= log.log_start_offset:
            self.say("truncating", to=to)
            log.truncate_to(to)
            self.say("truncated", to=to)

    def delete(self) -> None:
        at = self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.say("deleting", before=at)
        self.log.delete_before(at)
        self.say("deleted", before=at)

    def compact(self) -> None:
        if self.is_compacted:
            self.log.compact()

    def reopen(self) -> None:
        end, start = self.log.log_end_offset, self.log.log_start_offset
        self.log.close()
        self.say("flushed", to=end)
        self.say("deleted", before=start)
        self.open()


def key_of(text: str) -> bytes:
    return text.split()[0].encode()


def pairs(texts: list[str]) -> list[tuple[bytes, bytes]]:
    return [(key_of(text), text.encode()) for text in texts]


def write_anything(root: str, seed: int, count: int, generation: int = 1
                   ) -> Callable[[], dict[str, Any]]:
    """See the module."""
    def work() -> dict[str, Any]:
        program = Program(Path(root), seed, generation)
        program.live(count)
        return {"end": program.log.log_end_offset}
    return work
