"""The index files of a segment as a loader changes them (Kafka: AbstractIndex and its subclasses).

Indexes are opened at first use, as Kafka's lazy indexes are, with a visible effect: a missing file
is then created at its full size. All entries that fit the length of an existing file count,
including zeros after a crash. The searches return what Kafka's return, on valid and invalid
entries.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from seglog._native.index import search_entries
from seglog._native.window import WindowSource
from seglog.java.numbers import wrap_int64
from seglog.model import AbortedTxn, TimestampOffset
from seglog.recovery.disk import Disk
from seglog.recovery.loader_failures import InvalidOffset, LoaderFailure
from seglog.storage.txn_entries import encode_entries

__all__ = ["OFFSET_ENTRY", "TIME_ENTRY", "TXN_ENTRY", "OffsetIndexFile", "TimeIndexFile",
           "TxnIndexFile", "check_txn_index"]

OFFSET_ENTRY: Final = struct.Struct(">ii")      # relative offset, position
TIME_ENTRY: Final = struct.Struct(">qi")        # timestamp in ms, relative offset
TXN_ENTRY: Final = struct.Struct(">hqqqq")      # version, producer id, first, last, last stable

_TIMESTAMP_BYTES = 8
_CHUNK_ENTRIES = 4096


class _IndexFile:
    """The common part of both indexes. `entries` and `length` (bytes of the file) are known once
    open."""

    entry: struct.Struct

    def __init__(self, disk: Disk, name: str, base_offset: int, max_size: int) -> None:
        self.disk, self.name, self.base_offset, self.max_size = disk, name, base_offset, max_size
        self.is_open = False
        # `torn` is the bytes of a half-written entry, after which Kafka continues writing.
        self.entries = self.length = self.torn = 0

    def open(self) -> None:
        """Maps the file; a missing one is created at `segment.index.bytes`."""
        if self.is_open:
            return
        size = self.disk.size(self.name)
        if size is None:
            self.disk.create(self.name)
            if self.max_size < self.entry.size:
                raise LoaderFailure("IllegalArgumentException",
                                    f"Invalid max index size: {self.max_size}", file=self.name)
            self.length = self.max_size // self.entry.size * self.entry.size
            self.disk.create(self.name, self.length)
        else:
            self.length, self.entries = size, size // self.entry.size
        self.is_open = True

    def resize(self, size: int) -> None:
        """Sets the length of the file, rounded down to whole entries."""
        self.open()
        rounded = size // self.entry.size * self.entry.size
        if rounded == self.length:
            return
        self.disk.resize(self.name, rounded)
        self.length = rounded
        used, self.torn = self.entries * self.entry.size + self.torn, 0
        if used > rounded:
            raise LoaderFailure("IllegalArgumentException",
                                f"newPosition > limit: ({used} > {rounded})", file=self.name,
                                expected=rounded, found=used)

    @property
    def max_entries(self) -> int:
        """The number of entries that fit the file."""
        self.open()
        return self.length // self.entry.size

    def _relative(self, offset: int) -> int:
        """The distance from the base offset, which an entry holds in 32 bits. Raises
        LoaderFailure."""
        distance = wrap_int64(offset - self.base_offset)
        if not 0 <= distance < 1 << 31:
            raise LoaderFailure("IndexOffsetOverflowException", f"Integer overflow for offset: "
                                f"{offset} ({os.path.abspath(self.disk.path)}/{self.name})",
                                file=self.name)
        return distance

    def _append(self, key: int, value: int) -> None:
        position = self.entries * self.entry.size
        if position + self.entry.size > self.length:
            raise LoaderFailure("BufferOverflowException", "null", file=self.name)
        self.disk.write(self.name, position, self.entry.pack(key, value))
        self.entries += 1

    def trim(self) -> None:
        """Truncates the file to the entries in use."""
        self.resize(self.entries * self.entry.size)

    def refill(self, data: bytes) -> None:
        """Drops all entries, resizes the file to the maximum, and writes new first entries; the old
        bytes after them stay."""
        self.open()
        self.entries = 0
        self.resize(self.max_size)
        if data:
            self.disk.write(self.name, 0, data)
        self.entries = len(data) // self.entry.size

    def replace(self, data: bytes, *, sync: bool) -> None:
        """Refills and trims in one atomic step."""
        self.disk.replace(self.name, data, sync=sync)
        self.is_open, self.length = True, len(data)
        self.entries = len(data) // self.entry.size

    def _read(self, number: int) -> tuple[int, int]:
        size = self.entry.size
        first, second = self.entry.unpack(self._block(number * size, size)[1])
        return first, second

    def _search(self, target: int, *, by_value: bool = False) -> tuple[int, int, int]:
        """(slot, key, value) of the last entry not above `target` (largestLowerBoundSlotFor); slot
        -1 and Kafka's answer for an empty index if there is none."""
        self.open()
        return search_entries(WindowSource(self._block), self.entries, self.base_offset, target,
                              times=self.entry is TIME_ENTRY, by_value=by_value)

    def _block(self, position: int, size: int) -> tuple[int, bytes]:
        data = self.disk.read(self.name, position, size)
        if len(data) < size:
            raise LoaderFailure("IndexOutOfBoundsException", "null", file=self.name)
        return position, data


class OffsetIndexFile(_IndexFile):
    """`.index`: (relative offset of the last record of a batch, position of the batch)."""

    entry = OFFSET_ENTRY

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if the index is empty."""
        self.open()
        if not self.entries:
            return self.base_offset
        return wrap_int64(self.base_offset + self._read(self.entries - 1)[0])

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        return self.max_entries <= self.entries

    def append(self, offset: int, position: int) -> None:
        """Appends an entry. Raises LoaderFailure for a full index, and for an offset not above the
        last."""
        if self.is_full:
            raise LoaderFailure("IllegalArgumentException", "Attempt to append to a full index "
                                f"(size = {self.entries}).", file=self.name)
        if self.entries and offset <= self.last_offset:
            raise InvalidOffset(
                f"Attempt to append an offset {offset} to position "
                f"{self.entries} no larger than the last offset appended ({self.last_offset}) to "
                f"{os.path.abspath(self.disk.path)}/{self.name}", file=self.name)
        self._append(self._relative(offset), position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or below `offset`, else (base offset, 0)."""
        return self._search(offset)[1:]

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below `offset`."""
        slot, found, _ = self._search(offset)
        self.entries = slot if slot >= 0 and found == offset else slot + 1


class TimeIndexFile(_IndexFile):
    """`.timeindex`: (largest timestamp so far, ms, relative offset of the batch's last record)."""

    entry = TIME_ENTRY

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if the index is empty."""
        self.open()
        if not self.entries:
            return TimestampOffset(-1, self.base_offset)
        timestamp, offset = self._read(self.entries - 1)
        return TimestampOffset(timestamp, wrap_int64(self.base_offset + offset))

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries with an offset below `offset`."""
        slot, _, found = self._search(offset, by_value=True)
        self.entries = slot if slot >= 0 and found == offset else slot + 1

    @property
    def is_full(self) -> bool:
        """Whether only the space for the final entry is left."""
        return self.max_entries - 1 <= self.entries

    def maybe_append(self, found: TimestampOffset) -> None:
        """Appends an entry if its timestamp is above the last. Raises LoaderFailure, also for a
        full index."""
        if self.is_full:
            raise LoaderFailure("IllegalArgumentException", "Attempt to append to a full time "
                                f"index (size = {self.entries}).", file=self.name)
        self.append_last(found)

    def append_last(self, found: TimestampOffset) -> None:
        """Appends the final entry of a segment (maybeAppend without the full check). Raises
        LoaderFailure."""
        last = self.last_entry
        if self.entries and found.offset < last.offset:
            raise InvalidOffset(
                f"Attempt to append an offset ({found.offset}) to slot "
                f"{self.entries} no larger than the last offset appended ({last.offset}) to "
                f"{self.disk.path}/{self.name}", file=self.name)
        if self.entries and found.timestamp < last.timestamp:
            raise LoaderFailure(
                "IllegalStateException", f"Attempt to append a timestamp ({found.timestamp}) to "
                f"slot {self.entries} no larger than the last timestamp appended "
                f"({last.timestamp}) to {self.disk.path}/{self.name}", file=self.name)
        if found.timestamp > last.timestamp:
            self.torn += _TIMESTAMP_BYTES
            distance = self._relative(found.offset)
            self.torn -= _TIMESTAMP_BYTES
            self._append(found.timestamp, distance)


class TxnIndexFile:
    """`.txnindex`: aborted transactions. Opened with its segment, if it exists.

    `is_left_over`: the file belonged to another segment of the same base offset, and this segment
    has none. Kafka then knows no entries, keeps the content, and appends to it.
    """

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name = disk, name
        self.is_left_over = False

    @property
    def entries(self) -> int:
        """The number of whole entries."""
        return 0 if self.is_left_over else (self.disk.size(self.name) or 0) // TXN_ENTRY.size

    def read(self) -> Iterator[tuple[int, tuple[int, int, int, int, int]]]:
        """Yields (position, entry)."""
        size = TXN_ENTRY.size
        for start in range(0, self.entries * size, _CHUNK_ENTRIES * size):
            data = self.disk.read(self.name, start, _CHUNK_ENTRIES * size)
            for number in range(len(data) // size):
                yield start + number * size, TXN_ENTRY.unpack_from(data, number * size)

    def truncate_to(self, offset: int) -> None:
        """Truncates at the first transaction that ended at or above `offset`."""
        for position, entry in self.read():
            if entry[3] >= offset:
                self.disk.resize(self.name, position)
                return

    def replace(self, entries: Sequence[AbortedTxn], *, sync: bool) -> None:
        """Replaces the entries. An existing file is kept, even if it becomes empty."""
        if self.is_left_over:
            self.append(entries, sync=sync)
        elif entries or self.disk.size(self.name):
            self.disk.replace(self.name, encode_entries(entries), sync=sync)

    def append(self, entries: Sequence[AbortedTxn], *, sync: bool = False) -> None:
        """Adds entries. The first creates the file, or opens a left-over one, whose entries count
        then."""
        if not entries:
            return
        self.disk.write(self.name, self.disk.size(self.name) or 0, encode_entries(entries))
        if sync:
            self.disk.sync(self.name)
        self.is_left_over = False


def check_txn_index(index: TxnIndexFile, base_offset: int) -> str | None:
    """Why Kafka rebuilds a transaction index, None for a sound one (TransactionIndex.sanityCheck).

    Raises LoaderFailure for an unknown version, of which Kafka checks only one of two bytes.
    """
    path = f"{os.path.abspath(index.disk.path)}/{index.name}"
    for position, (version, *fields) in index.read():
        if version >> 8 > 0:
            raise LoaderFailure(
                "KafkaException", f"Unexpected aborted transaction version {version >> 8} in "
                f"transaction index {path}, current version is 0", file=index.name,
                position=position)
        found = AbortedTxn(*fields)
        if found.last_offset < base_offset:
            return (f"Last offset of aborted transaction {found.described(version >> 8)} in index "
                    f"{path} is less than start offset {base_offset}")
    return None
