"""Offset, time and transaction indexes, each checked against its log as kafka-dump-log does."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seglog._native import dump as native
from seglog._native.file import read_at
from seglog._native.index import STORED_OFFSET_DTYPE, STORED_TIME_DTYPE, search_entries
from seglog._native.window import WindowSource
from seglog._native.status import Status, status_error
from seglog.dump.logs import open_file
from seglog.dump.dump_output import DumpOptions, Findings, Output, absolute, leading_number
from seglog.errors import CorruptIndexError
from seglog.storage.codecs import decompress

__all__ = ["dump_index", "dump_time_index", "dump_transaction_index"]

_TXN_ENTRY = np.dtype([("version", "i1"), ("unread", "i1"), ("producer_id", ">i8"),
                       ("first_offset", ">i8"), ("last_offset", ">i8"),
                       ("last_stable_offset", ">i8")])
_NO_TIMESTAMP = -1


def _read_entries(path: str, dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
    """The complete entries of an index, including preallocated zeros, and the file's size."""
    with open_file(path) as (fd, size):
        data = read_at(fd, size, 0, file=path)
    return np.frombuffer(data, dtype, count=size // dtype.itemsize), size


def _sibling(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + suffix)


def _absolute_offsets(relative: NDArray[Any], base: int) -> list[int]:
    """Absolute offsets, added in 64 bits that wrap, as in Java."""
    found: list[int] = (relative.astype(np.int64) + np.int64(base)).tolist()
    return found


def _corrupt(path: str, message: str, code: str, **facts: Any) -> CorruptIndexError:
    return CorruptIndexError(message, file=path, code=code, **facts)


def _check_size(path: str, size: int, entry_size: int, title: str) -> None:
    if size % entry_size:
        raise _corrupt(path, f"{title} {absolute(path)} is corrupt, found {size} bytes which is "
                       f"neither positive nor a multiple of {entry_size}", "index_size",
                       expected=entry_size, found=size)


def dump_index(path: str, options: DumpOptions, output: Output, findings: Findings) -> None:
    """Prints an offset index; records the entries whose offset differs from their batch's."""
    base = leading_number(path)
    with open_file(_sibling(path, ".log")) as (fd, log_size):
        entries, size = _read_entries(path, STORED_OFFSET_DTYPE)
        offsets = _absolute_offsets(entries["offset"], base)
        if not offsets:
            output.line(f"{path} is empty.", type="empty")
            return
        if options.index_sanity_check:
            if offsets[-1] < base:
                raise _corrupt(path, f"Corrupt index found, index file {absolute(path)} has "
                               f"non-zero size but the last offset is {offsets[-1]} which is less "
                               f"than the base offset {base}", "index_offset_range",
                               expected=base, found=offsets[-1])
            _check_size(path, size, STORED_OFFSET_DTYPE.itemsize, "Index file")
            output.line(f"{path} passed sanity check.", type="sanity_check", passed=True)
            return
        positions = entries["position"].tolist()
        for number, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
            if offset == base and number > 0:
                return  # preallocated zeros of an index that was never trimmed
            _check_position(path, number, position, log_size)
            found = native.last_offset_at(fd, log_size, position, options.max_message_size,
                                          file=_sibling(path, ".log"))
            if found is None:
                raise _not_a_batch(path, number, offset, position)
            if found != offset:
                findings.index_mismatches.of(path, dict)[offset] = found
            if not options.verify_index_only:
                output.line(f"offset: {offset} position: {position}", type="offset_index_entry",
                            offset=offset, position=position)


def _check_position(path: str, number: int, position: int, log_size: int) -> None:
    if not 0 <= position <= log_size:
        raise _corrupt(path, f"{path}: entry {number} points at byte {position} of a log of "
                       f"{log_size} bytes", "index_position_range", expected=log_size,
                       found=position, position=number * STORED_OFFSET_DTYPE.itemsize)


def _not_a_batch(path: str, number: int, offset: int, position: int) -> CorruptIndexError:
    return _corrupt(path, f"{path}: entry {number} for offset {offset} points at byte {position} "
                    "of the log, where no batch begins", "index_not_a_batch", expected=offset,
                    found=position, position=number * STORED_OFFSET_DTYPE.itemsize)


class _OffsetLookup:
    """OffsetIndex.lookup, with Kafka's result for unsorted entries too."""

    def __init__(self, path: str, base: int) -> None:
        entries, _ = _read_entries(path, STORED_OFFSET_DTYPE)
        stored = entries.tobytes()
        self._stored, self._base = WindowSource(lambda position, least: (0, stored)), base
        self.positions: list[int] = entries["position"].tolist()

    def slot(self, target: int) -> int:
        """The slot of the largest offset not above `target`, or -1."""
        slot, _, _ = search_entries(self._stored, len(self.positions), self._base, target)
        return slot


class _Chains:
    """The batches after any position of a log; each chain of batches is read once.

    Kafka's tool reads from every entry's position to the end of the log. All positions of a sound
    index lie on one chain.
    """

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path, self.fd, self.size = path, fd, size
        self._chains: list[tuple[NDArray[np.int64], NDArray[np.int64], bool]] = []

    def first_at_least(self, position: int, offset: int) -> tuple[int, int] | None:
        """Position and last offset of the first batch at or after `position` that reaches `offset`.
        """
        positions, last_offsets, unreadable = self._chain(position)
        number = int(np.searchsorted(positions, position))
        step = 64
        while number < len(positions):
            part = last_offsets[number:number + step]
            hits = np.flatnonzero(part >= offset)
            # Kafka reads all headers up to that batch, and throws at one that it cannot read.
            if unreadable and number + len(part) == len(positions) and (
                    not len(hits) or number + int(hits[0]) == len(positions) - 1):
                raise status_error(Status.BATCH_SIZE, file=self.path, position=int(positions[-1]),
                                   expected=61, found=self.size - int(positions[-1]))
            if len(hits):
                found = number + int(hits[0])
                return int(positions[found]), int(last_offsets[found])
            number += len(part)
            step *= 4
        return None

    def _chain(self, position: int) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
        for chain in self._chains:
            number = int(np.searchsorted(chain[0], position))
            if number < len(chain[0]) and chain[0][number] == position:
                return chain
        chain = native.batch_chain(self.fd, self.size, position, file=self.path)
        if len(chain[0]):
            self._chains.append(chain)
        return chain


def dump_time_index(path: str, options: DumpOptions, output: Output, findings: Findings) -> None:
    """Prints a time index; records entries whose batch is missing or has another timestamp."""
    base = leading_number(path)
    log_path, index_path = _sibling(path, ".log"), _sibling(path, ".index")
    with open_file(log_path) as (fd, log_size):
        lookup = _OffsetLookup(index_path, base)
        entries, size = _read_entries(path, STORED_TIME_DTYPE)
        offsets = _absolute_offsets(entries["offset"], base)
        timestamps: list[int] = entries["timestamp"].tolist()
        if options.index_sanity_check:
            _check_time_index(path, size, base, timestamps, offsets)
            output.line(f"{path} passed sanity check.", type="sanity_check", passed=True)
            return
        chains = _Chains(log_path, fd, log_size)
        walk = native.LogWalk(fd, log_size, decompress=decompress, window_size=4096, file=log_path)
        previous = _NO_TIMESTAMP
        for number, (timestamp, offset) in enumerate(zip(timestamps, offsets, strict=True)):
            if offset == base and number > 0:
                return
            slot = lookup.slot(offset)
            position = lookup.positions[slot] if slot >= 0 else 0
            _check_position(index_path, slot, position, log_size)
            found = chains.first_at_least(position, offset)
            if found is None or found[1] != offset:
                missing = findings.offsets_not_found.of(path, list)
                missing.append((offset, -1 if found is None else found[1]))
            else:
                walk.seek(found[0])
                if walk.next_batch() is None:  # another process changed the log
                    findings.offsets_not_found.of(path, list).append((offset, -1))
                else:
                    _check_timestamp(path, timestamp, walk.max_record_timestamp(), previous,
                                     findings)
            if not options.verify_index_only:
                output.line(f"timestamp: {timestamp} offset: {offset}", type="time_index_entry",
                            timestamp=timestamp, offset=offset)
            previous = timestamp


def _check_timestamp(path: str, timestamp: int, largest: int, previous: int,
                     findings: Findings) -> None:
    if largest != timestamp:
        findings.timestamp_mismatches.of(path, list).append((timestamp, largest))
    if previous >= timestamp:
        findings.timestamps_out_of_order.of(path, list).append((timestamp, previous))


def _check_time_index(path: str, size: int, base: int, timestamps: list[int],
                      offsets: list[int]) -> None:
    """TimeIndex.sanityCheck with its messages."""
    title = f"Corrupt time index found, time index file ({absolute(path)}) has non-zero size but"
    if timestamps and timestamps[-1] < timestamps[0]:
        raise _corrupt(path, f"{title} the last timestamp is {timestamps[-1]} which is less than "
                       f"the first timestamp {timestamps[0]}", "index_time_order",
                       expected=timestamps[0], found=timestamps[-1])
    if offsets and offsets[-1] < base:
        raise _corrupt(path, f"{title} the last offset is {offsets[-1]} which is less than the "
                       f"first offset {base}", "index_offset_range", expected=base,
                       found=offsets[-1])
    _check_size(path, size, STORED_TIME_DTYPE.itemsize, "Time index file")


def dump_transaction_index(path: str, output: Output) -> None:
    """Prints a transaction index, or none of it if an entry has a later version."""
    leading_number(path)
    entries, _ = _read_entries(path, _TXN_ENTRY)
    newer = np.flatnonzero(entries["version"] > 0)
    if len(newer):
        number = int(newer[0])
        version = int(entries["version"][number])
        raise _corrupt(path, f"Unexpected aborted transaction version {version} in transaction "
                       f"index {absolute(path)}, current version is 0", "txn_version", expected=0,
                       found=version, position=number * _TXN_ENTRY.itemsize)
    for version, _, producer_id, first, last, stable in entries.tolist():
        output.line(f"version: {version} producerId: {producer_id} firstOffset: {first} "
                    f"lastOffset: {last} lastStableOffset: {stable}", type="aborted_transaction",
                    version=version, producer_id=producer_id, first_offset=first, last_offset=last,
                    last_stable_offset=stable)
