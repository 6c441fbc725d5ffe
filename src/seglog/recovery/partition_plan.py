"""Phase one of a load: what is on disk, and the results of each segment's checks. Writes nothing.

A million segments are a million rows of columns, about fifty bytes each, without objects.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, fields
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from seglog._native.scan import (
    NO_END_OFFSET, CheckLevel, PartitionListing, SegmentChecks, check_segments,
    list_partition,
)
from seglog.storage.segment_table import SegmentTable, total_bytes

_T = TypeVar("_T", bound=np.generic)

__all__ = ["CHUNK_SEGMENTS", "CheckedSegments", "LoadLevel", "PartitionPlan", "check_chunk",
           "check_listing", "check_partition", "chunks_of", "join_chunks"]

# Segments per native call: enough that a thread does not wait for the next call (a chunk takes 5 to
# 20 ms warm), few enough that threads share one partition evenly.
CHUNK_SEGMENTS: Final = 2048


class LoadLevel(enum.StrEnum):
    """How much a load checks."""

    KAFKA = "kafka"    # what Kafka checks at start
    FULL = "full"      # and every entry of every index against its segment
    VERIFY = "verify"  # and every batch's CRC, indexes against the log, and a dry recovery


@dataclass(frozen=True, slots=True)
class CheckedSegments(SegmentTable):
    """The segments of a partition and what the checks of phase one found, as columns. They do not
    change; a load begins LoadedSegments with a copy.

    Sizes are bytes, -1 if a file does not exist or was not checked. `flags` are HAS_LOG and the
    like of seglog._native.scan; `status` is the native status of the first problem, or 0.
    """

    base_offsets: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    log_size: npt.NDArray[np.int64]
    index_size: npt.NDArray[np.int64]
    time_index_size: npt.NDArray[np.int64]
    txn_index_size: npt.NDArray[np.int64]
    mtime_ms: npt.NDArray[np.int64]
    status: npt.NDArray[np.int32]

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return total_bytes(self.log_size)

    @property
    def nbytes(self) -> int:
        """Memory used by the columns, in bytes."""
        return sum(getattr(self, column.name).nbytes for column in fields(self))


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition directory after phase one; `problems` are rows of PROBLEM_DTYPE."""

    path: str
    listing: PartitionListing
    segments: CheckedSegments
    problems: npt.NDArray[np.void]

    @property
    def directory(self) -> str:
        """The directory's name."""
        return os.path.basename(self.path)


def chunks_of(listing: PartitionListing) -> list[tuple[int, int]]:
    """The rows of each native call, as (start, stop); at least one call, even for no segments."""
    count = len(listing.base_offsets)
    return [(start, min(start + CHUNK_SEGMENTS, count))
            for start in range(0, max(count, 1), CHUNK_SEGMENTS)]


def check_chunk(listing: PartitionListing, start: int, stop: int,
                level: LoadLevel) -> SegmentChecks:
    """Checks rows [start, stop) without the GIL."""
    bases = listing.base_offsets
    return check_segments(
        listing.path, bases[start:stop], listing.flags[start:stop],
        CheckLevel.KAFKA if level is LoadLevel.KAFKA else CheckLevel.FULL,
        end_offset=int(bases[stop]) if stop < len(bases) else NO_END_OFFSET)


def check_partition(path: str, level: LoadLevel) -> PartitionPlan:
    """Runs phase one for one partition directory in this thread. Raises KafkaStorageError if it
    cannot be read."""
    return check_listing(list_partition(path), level)


def check_listing(listing: PartitionListing, level: LoadLevel = LoadLevel.KAFKA) -> PartitionPlan:
    """Runs phase one for a listing in this thread."""
    return join_chunks(listing, [check_chunk(listing, start, stop, level)
                                 for start, stop in chunks_of(listing)])


def _joined(parts: list[npt.NDArray[_T]]) -> npt.NDArray[_T]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def join_chunks(listing: PartitionListing, chunks: list[SegmentChecks]) -> PartitionPlan:
    """The plan of a partition from the checks of its chunks, in order."""

    def column(name: str) -> npt.NDArray[np.int64]:
        return _joined([getattr(chunk, name) for chunk in chunks])

    problems: list[npt.NDArray[np.void]] = []
    start = 0
    for chunk in chunks:
        some = chunk.problems
        if start and len(some):
            some = some.copy()
            some["row"] += start
        problems.append(some)
        start += len(chunk.status)
    table = CheckedSegments(
        listing.base_offsets, listing.flags, column("log_size"), column("index_size"),
        column("time_index_size"), column("txn_index_size"), column("mtime_ms"),
        _joined([chunk.status for chunk in chunks]))
    return PartitionPlan(listing.path, listing, table, _joined(problems))
