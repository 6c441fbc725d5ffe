"""What a log was told, and what its readers saw of it.

Every value names its kind, its writer and how many that writer wrote before; what a reader sees is
held against what was appended at that offset, whenever that was.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

import numpy as np

from seglog._native.batch import ATTRIBUTE_CONTROL, scan
from seglog.log.batch_builder import RecordBatchBuilder

#: Kinds of values: not of a transaction, to be committed, to be aborted.
PLAIN, COMMITTED, ABORTED = b"N", b"C", b"A"
_VALUE = re.compile(rb"<([NCA]):(\d+):(\d+):(\d+)>")
_SEEN_MAX = 300_000


class Value(NamedTuple):
    """What the value of a record says."""

    kind: bytes
    writer: int
    number: int
    timestamp: int

    def encode(self, size: int = 0) -> bytes:
        text = b"<%b:%d:%d:%d>" % self
        return text + b"." * max(0, size - len(text))

    @classmethod
    def decode(cls, data: bytes | None) -> Value:
        found = _VALUE.match(data or b"")
        assert found is not None, f"a value that nobody appended: {data!r}"
        kind, writer, number, timestamp = found.groups()
        return cls(kind, int(writer), int(number), int(timestamp))


class Writer:
    """Makes the values of one thread."""

    _numbers = count()

    def __init__(self) -> None:
        self.writer, self._next = next(self._numbers), 0

    def values(self, count: int, kind: bytes = PLAIN) -> list[Value]:
        first, self._next = self._next, self._next + count
        now = time.time_ns() // 1_000_000
        return [Value(kind, self.writer, first + n, now + n) for n in range(count)]


def batch_of(values: list[Value], size: int = 0, codec: str | int = 0, **header: int) -> bytes:
    builder = RecordBatchBuilder(codec=codec, **header)  # type: ignore[arg-type]
    for value in values:
        builder.append(value.timestamp, None, value.encode(size))
    return bytes(builder.build())


def values_of(records: bytes, row: np.void) -> list[tuple[int, Value]]:
    """(offset, value) of the records of an uncompressed batch."""
    position = int(row["position"])
    found = _VALUE.findall(records, position, position + int(row["size"]))
    assert len(found) == row["record_count"]
    return [(offset, Value(kind, *map(int, numbers)))
            for offset, (kind, *numbers) in enumerate(found, int(row["base_offset"]))]


class Truth:
    """The history of one log. Safe from any thread."""

    def __init__(self) -> None:
        self.now: dict[int, Value] = {}            # acknowledged, by offset
        self._ever: dict[int, set[Value]] = {}     # at that offset, truncated since or not
        self._seen: list[tuple[int, Value]] = []
        self._lock = threading.Lock()
        #: First offsets of appends: where a truncation cuts no batch in two.
        self.boundaries: list[int] = []
        #: The highest offset up to which a deletion was requested.
        self.may_start_at = 0
        self.may_retain = False
        #: Truncations, each counted before it begins and when it is over.
        self.cuts = 0

    def appended(self, first: int, values: Iterable[Value]) -> None:
        """Acknowledged, in order, from this offset on."""
        with self._lock:
            self.boundaries.append(first)
            for offset, value in enumerate(values, first):
                assert offset not in self.now, f"offset {offset} was given twice"
                self.now[offset] = value
                self._ever.setdefault(offset, set()).add(value)

    def truncated(self, offset: int) -> None:
        """Nothing is at or above this offset any more."""
        with self._lock:
            for gone in [one for one in self.now if one >= offset]:
                del self.now[gone]
            self.boundaries = [one for one in self.boundaries if one < offset]

    @contextmanager
    def losing(self, offset: Callable[[], int]) -> Iterator[None]:
        """Encloses a loss of all records at or above `offset()`."""
        self.cuts += 1
        try:
            yield
            self.truncated(offset())
        finally:
            self.cuts += 1

    def snapshot(self) -> dict[int, Value]:
        """The currently acknowledged offset. Takes no lock: releasing a copy may need another lock,
        whose holder waits for this one."""
        while True:
            try:
                return self.now.copy()
            except RuntimeError:  # it changed meanwhile
                continue

    def saw(self, offset: int, value: Value) -> None:
        """A reader got this; judged when all appends are acknowledged."""
        if len(self._seen) < _SEEN_MAX:
            self._seen.append((offset, value))

    def saw_batches(self, records: bytes, start_offset: int) -> int:
        """What a fetch gave, uncompressed; the offset behind it. Nothing may be missing in it."""
        rows = scan(records).batches
        expected = start_offset
        for row in rows:
            base = int(row["base_offset"])
            assert base <= expected <= int(row["last_offset"]), \
                f"a fetch at {expected} gave a batch at {base}"
            expected = int(row["last_offset"]) + 1
            if row["attributes"] & ATTRIBUTE_CONTROL:
                continue
            for offset, value in values_of(records, row):
                self.saw(offset, value)
        return expected

    def check_seen(self) -> None:
        """After all threads have ended."""
        for offset, value in self._seen:
            assert value in self._ever.get(offset, ()), \
                f"offset {offset} was read as {value}, and was {self._ever.get(offset)}"
        self._seen.clear()

    def check_order(self) -> None:
        """What one writer wrote is in the log in its order."""
        last: dict[int, int] = {}
        for offset in sorted(self.now):
            value = self.now[offset]
            assert last.get(value.writer, -1) < value.number, f"{value} at {offset} is out of order"
            last[value.writer] = value.number

    def check_whole(self, start: int, found: list[tuple[int, Value]]) -> None:
        """All of a log that is quiet, control records left out, is what was acknowledged."""
        assert self.may_retain or start <= self.may_start_at
        expected = [(offset, self.now[offset]) for offset in sorted(self.now) if offset >= start]
        assert found == expected, _first_difference(found, expected)
        self.check_order()


def _first_difference(found: list[tuple[int, Value]], expected: list[tuple[int, Value]]) -> str:
    for ours, theirs in zip(found, expected, strict=False):
        if ours != theirs:
            return f"found {ours}, acknowledged was {theirs}"
    return f"found {len(found)} records, acknowledged were {len(expected)}"
