"""The last value of each key of a log: offsets in memory, values in the log."""

from __future__ import annotations

import threading
from itertools import takewhile

from seglog.errors import OffsetOutOfRangeError
from seglog.log.readers import LogReaders
from seglog.storage.log_reader import LogReader

__all__ = ["LatestOffsets"]

_COLUMNS = ("offset", "key", "value")


class LatestOffsets:
    """The offset of the last committed record of each key. Safe from any thread.

    Reads the log once, and then what was appended since the last call. A key whose last record is a
    tombstone has no entry. Entries are checked against the log when they are used, so a round of
    cleaning or a truncation corrects them. `readers` are the log's, which know its truncations.
    """

    def __init__(self, of: LogReader, readers: LogReaders) -> None:
        self._of, self._readers, self._lock = of, readers, threading.Lock()
        self._offsets: dict[bytes, int] = {}
        self._next = self._end = 0  # read completely below one, in part below the other
        self._start = 0
        self._generation = readers.generation

    def value(self, key: bytes) -> bytes | None:
        """The key's last committed value; None if there is none, or after a tombstone."""
        with self._lock:
            known, is_read_again = -1, False
            while True:
                self._catch_up()
                offset = self._offsets.get(key)
                if offset is None:
                    return None
                found, value = self._record(offset, key)
                if found:
                    return value
                if offset == known:  # no newer one: it was deleted, or the log truncated
                    if is_read_again:
                        return None
                    self._forget()
                    is_read_again = True
                known = offset

    def keys(self) -> list[bytes]:
        """The keys that have a value, oldest value first."""
        with self._lock:
            self._catch_up()
            start = self._of.log_start_offset
            return [key for key, offset in self._offsets.items() if offset >= start]

    def _forget(self) -> None:
        self._offsets.clear()
        self._next = 0

    def _catch_up(self) -> None:
        """Reads the newly committed records."""
        log, offsets = self._of, self._offsets
        while self._committed() > self._next:  # in this order: the first may lower the second
            stable = self._end
            try:
                for batch in log.to_arrow(max(self._next, log.log_start_offset), stable,
                                          isolation="read_committed", columns=_COLUMNS):
                    lists = batch.to_pylists()
                    for offset, key, value in zip(lists["offset"], lists["key"], lists["value"],
                                                  strict=True):
                        offsets.pop(key, None)
                        if key is not None and value is not None:
                            offsets[key] = offset
            except OffsetOutOfRangeError:
                continue  # the start of the log has moved meanwhile, or the log was truncated
            start, self._next = self._next, stable
            if 0 < start < self._readers.replaced_to:
                self._forget()  # a tombstone may have gone before it was read
        self._drop_deleted()

    def _drop_deleted(self) -> None:
        """Drops the keys whose records the log's start has passed. They come first."""
        start, offsets = self._of.log_start_offset, self._offsets
        if start != self._start:
            self._start = start
            for key, _ in list(takewhile(lambda one: one[1] < start, offsets.items())):
                del offsets[key]

    def _committed(self) -> int:
        """The offset up to which to read. Forgets what was read if the log was truncated below."""
        readers = self._readers
        generation = readers.generation
        cut = readers.lowest_cut_since(self._generation)
        self._generation = generation - generation % 2  # a truncation that goes on counts again
        stable = self._of.last_stable_offset
        if stable < self._next or (cut is not None and cut < self._end):
            self._forget()
        self._end = stable
        return stable

    def _record(self, offset: int, key: bytes) -> tuple[bool, bytes | None]:
        """(whether the record at the offset has the key, its value)."""
        try:
            for batch in self._of.to_arrow(offset, offset + 1, isolation="read_committed",
                                       columns=_COLUMNS):
                lists = batch.to_pylists()
                for at, found, value in zip(lists["offset"], lists["key"], lists["value"],
                                            strict=True):
                    if at == offset:
                        return found == key, value
        except OffsetOutOfRangeError:
            pass
        return False, None
