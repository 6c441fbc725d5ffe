"""Fragments: the records that a task writes to one partition, before their offsets are known.

A fragment is a hidden file at the top of the data directory. It holds record batches with
consecutive provisional offsets, then their headers as rows of `BATCH_DTYPE`, so that the commit
need not read the records again. Their checksum is in the `Fragment`, which the task reports.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from seglog._native.batch import BATCH_DTYPE, scan
from seglog._native.crc32c import crc32c
from seglog._native.file import open_read, read_at, start_writeback
from seglog.errors import KafkaStorageError, RecordTooLargeError, storage_errors
from seglog.fragments.job import Job
from seglog.log.column_batches import encode_spans
from seglog.model import TopicPartition
from seglog.storage.ownership import open_file

__all__ = ["Fragment", "FragmentWriter", "read_facts"]

_OFFSET_DELTA_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fragment:
    """A file: `size` bytes of record batches, then their header rows, whose CRC-32C is
    `facts_crc`."""

    topic_partition: TopicPartition
    name: str
    size: int
    records: int
    batches: int
    facts_crc: int


@dataclass(slots=True)
class _Open:
    """A fragment that is being written."""

    name: str
    first_offset: int
    size: int = 0
    facts: list[npt.NDArray[np.void]] = field(default_factory=list)


class FragmentWriter:
    """Writes the fragments of one task attempt. Not thread-safe.

    `segment_bytes` limits a fragment, `max_batch_bytes` a batch before compression and
    `max_message_bytes` a batch after it. The context manager deletes the files after an exception.
    """

    def __init__(self, job: Job, attempt: str, *, codec: int | str, max_batch_bytes: int,
                 segment_bytes: int, max_message_bytes: int) -> None:
        self._job, self._attempt = job, attempt
        self._codec, self._max_batch_bytes = codec, max_batch_bytes
        self._segment_bytes, self._max_message_bytes = segment_bytes, max_message_bytes
        self._open: dict[TopicPartition, _Open] = {}
        self._next_offset: dict[TopicPartition, int] = {}
        self._done: list[Fragment] = []
        self._count = 0

    def append(self, key: TopicPartition, data: Any) -> int:
        """Encodes and writes rows (Arrow: `key`, `value`, `timestamp`, `headers`); returns their
        number. A row without a timestamp gets the current time.

        Raises IllegalArgumentError for an invalid record, RecordTooLargeError, KafkaStorageError.
        """
        first = self._next_offset.get(key, 0)
        for span in encode_spans(
                data, codec=self._codec, max_batch_bytes=self._max_batch_bytes, base_offset=first,
                span_bytes=min(1 << 20, self._segment_bytes),
                timestamp=time.time_ns() // 1_000_000):
            self._write(key, span)
        return self._next_offset.get(key, 0) - first

    def _write(self, key: TopicPartition, span: bytes) -> None:
        fragment = self._open.get(key)
        found = scan(span, check_crcs=False)
        largest = int(found.batches["size"].max())
        if largest > self._max_message_bytes:
            raise RecordTooLargeError(
                f"The record batch size in the append to {key} is {largest} bytes which exceeds "
                f"the maximum configured value of {self._max_message_bytes} (max.message.bytes).")
        if fragment is not None and (
                fragment.size + len(span) > self._segment_bytes
                or found.last_offset - fragment.first_offset > _OFFSET_DELTA_MAX):
            self._close(key)
            fragment = None
        if fragment is None:
            name = self._job.name("fragment", f"-{self._attempt}-{self._count}")
            fragment = self._open[key] = _Open(name, found.first_offset)
            self._count += 1
        facts = found.batches.copy()
        facts["position"] += fragment.size
        self._append_bytes(fragment, span, fragment.size)
        fragment.facts.append(facts)
        fragment.size += len(span)
        self._next_offset[key] = found.last_offset + 1

    def _append_bytes(self, fragment: _Open, data: bytes, position: int, *,
                      sync: bool = False) -> None:
        """Opens the file for each write: a task may have more partitions than descriptors."""
        path = os.path.join(self._job.data_dir, fragment.name)
        with storage_errors(path), contextlib.ExitStack() as stack:
            descriptor = open_file(path, os.O_WRONLY)
            stack.callback(os.close, descriptor)
            write_all(descriptor, data, position)
            if sync:
                os.fsync(descriptor)
            else:
                # The disk writes while the next rows are encoded.
                start_writeback(descriptor, position, len(data))

    def _close(self, key: TopicPartition) -> None:
        fragment = self._open.pop(key)
        facts = np.concatenate(fragment.facts)
        rows = facts.tobytes()
        self._append_bytes(fragment, rows, fragment.size, sync=True)
        self._done.append(Fragment(key, fragment.name, fragment.size,
                                   int(facts["last_offset"][-1]) + 1 - fragment.first_offset,
                                   len(facts), crc32c(rows)))

    def finish(self) -> list[Fragment]:
        """Closes, syncs and returns all fragments, each partition's in record order.

        Raises KafkaStorageError, also if the job has ended meanwhile.
        """
        for key in list(self._open):
            self._close(key)
        if self._job.is_over:
            raise KafkaStorageError(
                f"{self._job.data_dir}: the job was committed or aborted before this task ended")
        return self._done

    def __enter__(self) -> FragmentWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for name in [*(one.name for one in self._done),
                         *(one.name for one in self._open.values())]:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._job.data_dir, name))


def read_facts(path: str, fragment: Fragment) -> npt.NDArray[np.void]:
    """Reads the header rows after the batches of a fragment.

    Raises KafkaStorageError if the file is missing, has the wrong size, or holds other rows than
    its task wrote: the commit writes at their positions.
    """
    room = fragment.batches * BATCH_DTYPE.itemsize
    with storage_errors(path), contextlib.ExitStack() as stack:
        descriptor, found = open_read(path)
        stack.callback(os.close, descriptor)
        if found != fragment.size + room:
            raise _damaged(path, f"the fragment has {found} bytes, but its task wrote "
                           f"{fragment.size + room}", min(found, fragment.size + room),
                           fragment.size + room, found)
        rows = read_at(descriptor, room, fragment.size, file=path)
    if crc32c(rows) != fragment.facts_crc:
        raise _damaged(path, f"the headers of the fragment's batches, from byte {fragment.size} "
                       f"on, have CRC-32C {crc32c(rows):#010x}, but its task wrote "
                       f"{fragment.facts_crc:#010x}", fragment.size, fragment.facts_crc,
                       crc32c(rows))
    facts = np.frombuffer(rows, BATCH_DTYPE).copy()
    _require_adjacent(path, fragment, facts)
    return facts


def _require_adjacent(path: str, fragment: Fragment, facts: npt.NDArray[np.void]) -> None:
    """Raises KafkaStorageError unless the batches fill the fragment, and their offsets follow each
    other."""
    ends = facts["position"] + facts["size"]
    is_next = np.append(0, ends[:-1]) == facts["position"]
    is_next[1:] &= facts["base_offset"][1:] == facts["last_offset"][:-1] + 1
    is_next &= (facts["size"] > 0) & (facts["last_offset"] >= facts["base_offset"])
    if not is_next.all():
        row = int(np.argmin(is_next))
        raise _damaged(path, f"batch {row} of the fragment does not follow the one before it",
                       fragment.size + row * BATCH_DTYPE.itemsize,
                       int(ends[row - 1]) if row else 0, int(facts["position"][row]))
    end = int(ends[-1]) if len(ends) else 0
    records = int(facts["last_offset"][-1] + 1 - facts["base_offset"][0]) if len(ends) else 0
    if (end, records) != (fragment.size, fragment.records) or not end:
        raise _damaged(path, f"the fragment's batches have {records} records in {end} bytes, but "
                       f"its task wrote {fragment.records} in {fragment.size}", fragment.size,
                       fragment.size, end)


def _damaged(path: str, text: str, position: int, expected: int, found: int) -> KafkaStorageError:
    return KafkaStorageError(errno.EIO, text, path, position=position, expected=expected,
                             found=found)


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Writes all bytes at `position`. Raises OSError."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
