"""Compacted logs that threads write, read and compact at once, beside a dict for each thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import seglog
from seglog.embedded.embedded_log import EmbeddedLog
from seglog.errors import KafkaStorageError, LogCleaningAbortedError

_JOIN_SECONDS = 120.0
_KEYS = 9


class _Rollback(Exception):
    """Ends a transaction."""


class _Writer:
    """One thread: its keys are its own, so that it knows their values."""

    def __init__(self, seed: str, number: int, logs: list[EmbeddedLog],
                 locks: list[threading.Lock]) -> None:
        self.random, self.number, self.logs = random.Random(f"{seed} {number}"), number, logs
        #: A log has one transaction at a time, and a get sees nothing behind an open one.
        self.locks = locks
        self.models: list[dict[bytes, bytes]] = [{} for _ in logs]
        self._count = 0

    def _row(self) -> tuple[bytes, bytes | None]:
        key = b"%d:%d" % (self.number, self.random.randrange(_KEYS))
        self._count += 1
        value = b"%d" % self._count + b"." * self.random.choice([0, 30, 300])
        return key, None if self.random.random() < .15 else value

    def _note(self, which: int, rows: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in rows:
            if value is None:
                self.models[which].pop(key, None)
            else:
                self.models[which][key] = value

    def put(self, which: int) -> None:
        rows = [self._row() for _ in range(self.random.choice([1, 1, 5, 40]))]
        self.logs[which].append_many(rows)
        self._note(which, rows)

    def transact(self, which: int) -> None:
        rows = [self._row() for _ in range(self.random.choice([1, 6]))]
        try:
            with self.locks[which], self.logs[which].transaction() as begun:
                for key, value in rows:
                    begun.append(value, key=key)
                if self.random.random() < .5:
                    raise _Rollback
        except _Rollback:
            return
        self._note(which, rows)

    def get(self, which: int) -> None:
        key = b"%d:%d" % (self.number, self.random.randrange(_KEYS))
        with self.locks[which]:
            assert self.logs[which].latest(key) == self.models[which].get(key)

    def read(self, which: int) -> None:
        """Offsets increase, and no key's value is older than the one before."""
        last, counts = -1, dict[bytes, int]()
        isolation = self.random.choice(["read_committed", "read_uncommitted"])
        for record in self.logs[which].records(isolation=isolation):
            assert record.offset > last
            last = record.offset
            assert record.key is not None
            if record.value is not None:
                count = int(record.value.rstrip(b"."))
                assert counts.get(record.key, 0) < count
                counts[record.key] = count

    def compact(self, which: int) -> None:
        self.logs[which].compact()

    def roll(self, which: int) -> None:
        self.logs[which].log.roll()


class CompactedWorld:
    """Two logs of a data directory. The dicts of all threads together are what is in a log."""

    WEIGHTS = (("put", 10), ("transact", 4), ("get", 6), ("read", 2), ("compact", 3), ("roll", 1))

    def __init__(self, root: Path, seed: str) -> None:
        self.root, self.seed, self.random = root, seed, random.Random(seed)
        self._config = {
            "cleanup.policy": "compact", "internal.segment.bytes": "5000",
            "index.interval.bytes": "200", "segment.index.bytes": "2000",
            "file.delete.delay.ms": self.random.choice(["0", "5"]),
            "delete.retention.ms": self.random.choice(["0", "20", "60000"]),
            "compression.type": self.random.choice(["producer", "lz4", "zstd"])}
        self._logs = self._open()

    def _open(self) -> list[EmbeddedLog]:
        return [seglog.open(self.root / f"c-{number}", config=self._config, batch_bytes=600)
                for number in range(2)]

    def run(self, seconds: float) -> None:
        """Threads until the time is over; then everything is checked, and once more after a
        close."""
        until, errors = time.monotonic() + seconds, list[BaseException]()
        names = [name for name, weight in self.WEIGHTS for _ in range(weight)]
        locks = [threading.Lock() for _ in self._logs]
        writers = [_Writer(self.seed, number, self._logs, locks) for number in range(4)]

        def work(writer: _Writer) -> None:
            try:
                while time.monotonic() < until and not errors:
                    step: Callable[[int], None] = getattr(writer, writer.random.choice(names))
                    step(writer.random.randrange(len(self._logs)))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_JOIN_SECONDS)
            assert not thread.is_alive(), "a thread hangs"
        for error in errors:
            raise error
        self._check(writers)
        for log in self._logs:
            log.compact()
        self._check(writers)
        self._close_in_a_round()
        self._logs = self._open()
        self._check(writers)
        for log in self._logs:
            log.compact()
            keys = [record.key for record in log.records(isolation="read_committed")
                    if record.offset < log.log.active.base_offset]
            assert len(keys) == len(set(keys)), "a key twice"
            log.close()
            assert not [*Path(log.path).glob("*.cleaned"), *Path(log.path).glob("*.swap")]

    def _check(self, writers: list[_Writer]) -> None:
        for which, log in enumerate(self._logs):
            found: dict[bytes, bytes] = {}
            for record in log.records(isolation="read_committed"):
                assert record.key is not None
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
            model = {key: value for writer in writers
                     for key, value in writer.models[which].items()}
            assert found == model
            assert {key: log.latest(key) for key in model} == model

    def _close_in_a_round(self) -> None:
        """Rounds in other threads end when their log is closed."""
        def compact(log: EmbeddedLog) -> None:
            try:
                log.log.roll()
                log.compact()
            except (KafkaStorageError, LogCleaningAbortedError):
                pass  # it was closed first, or meanwhile

        threads = [threading.Thread(target=compact, args=(log,)) for log in self._logs]
        for thread in threads:
            thread.start()
        for log in self._logs:
            log.close()
        for thread in threads:
            thread.join(_JOIN_SECONDS)
            assert not thread.is_alive(), "a round outlives its log"
