"""The verification of a data directory as picklable pieces, and the report of their results.

A piece either reads segments to their ends or checks one partition (its indexes, and a dry run of
Kafka's loader). The pieces call the same functions as a load in one process
(`seglog.recovery.loader`), so the findings and their order are the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from seglog._native.scan import PartitionListing, list_partition
from seglog.errors import KafkaStorageError
from seglog.model import TopicPartition
from seglog.recovery.callbacks import NullListener
from seglog.recovery.findings import Finding
from seglog.recovery.loader import LoadOptions, partition_state, read_directory, unreadable
from seglog.recovery.partition import PartitionState, Verified, judge_partition
from seglog.recovery.partition_plan import LoadLevel, check_listing
from seglog.recovery.load_report import FindingList, LoadReport, PartitionReport
from seglog.recovery.scans import SegmentScans
from seglog.recovery.segment_verification import SegmentCheck, verify_segment
from seglog.storage.discover import split_partition
from seglog.storage.paths import FileKind, file_name

__all__ = ["DirectoryScrub", "PartitionPiece", "SegmentsPiece"]


@dataclass(frozen=True, slots=True)
class SegmentsPiece:
    """Consecutive segments of the partition directory `path`, with `size` bytes of logs.

    A start scans segments from base offset `first_scanned` on. `next_base` is the base offset of
    the segment after these, None at the end of the log.
    """

    path: str
    base_offsets: tuple[int, ...]
    flags: tuple[int, ...]
    next_base: int | None
    first_scanned: int
    size: int

    @property
    def directory(self) -> str:
        """The partition directory's name."""
        return os.path.basename(self.path)

    def check(self) -> list[SegmentCheck]:
        """Reads every segment. Bad bytes and missing files are findings."""
        return [verify_segment(self.path, base, flags)
                for base, flags in zip(self.base_offsets, self.flags, strict=True)]

    def add(self, checks: Iterable[SegmentCheck], verified: Verified) -> None:
        """Adds the results of `check` to the partition's results."""
        for check in checks:
            verified.add(self.directory, check, is_scanned=check.base_offset >= self.first_scanned)

    def findings(self) -> list[Finding]:
        """The findings of `check`, and a gap in the offsets before the next piece."""
        verified = Verified()
        self.add(self.check(), verified)
        if self.next_base is not None:
            verified.close_gap(self.directory, self.next_base)
        return verified.findings


@dataclass(frozen=True, slots=True)
class PartitionPiece:
    """One partition directory to check; `verified` is the result of reading its segments."""

    listing: PartitionListing
    state: PartitionState
    verified: Verified
    size: int

    def judge(self) -> PartitionReport | None:
        """Checks the indexes and runs Kafka's loader as a dry run. None for a directory that is
        gone: its segments have said so."""
        try:
            plan = check_listing(self.listing, LoadLevel.VERIFY)
        except KafkaStorageError:
            return None
        with SegmentScans() as scans:
            return judge_partition(plan, self.state, LoadLevel.VERIFY, self.verified,
                                   NullListener(), scans)


@dataclass(slots=True)
class _Partition:
    listing: PartitionListing
    state: PartitionState
    sizes: list[int]


@dataclass(slots=True)
class DirectoryScrub:
    """The verification of one data directory: makes its pieces, then its report.

    `path` is a data directory or a partition directory, of which only that partition is verified.
    `wanted` selects topic partitions. Raises KafkaStorageError for a path that cannot be listed or
    is no data directory.
    """

    path: str
    options: LoadOptions
    wanted: Callable[[TopicPartition], bool] | None = None
    findings: tuple[Finding, ...] = field(init=False)
    _partitions: dict[str, _Partition] = field(init=False, default_factory=dict)
    _clean: bool = field(init=False)
    _holder: str | None = field(init=False)
    _started: float = field(init=False, default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.path, only = split_partition(self.path)
        kept = FindingList()
        root = read_directory(self.path, replace(self.options, only=only), kept.add)
        states = [partition_state(root, one, self.options) for one in root.partitions
                  if self.wanted is None or self.wanted(one.topic_partition)]
        for state in states:
            path = os.path.join(self.path, state.partition.name)
            try:
                listing = list_partition(path)
            except KafkaStorageError as error:
                kept.add(unreadable(error))
                continue
            self._partitions[state.partition.name] = _Partition(
                listing, state, [_size(path, int(base)) for base in listing.base_offsets])
        names = {state.partition.name for state in states}
        self._clean = root.clean_shutdown
        self._holder = None if root.holder is None else str(root.holder)
        self.findings = () if only is not None else tuple(
            found for found in kept.close(None)
            if self.wanted is None or found.directory is None or found.directory in names)

    @property
    def partition_count(self) -> int:
        """The number of partition directories that could be listed."""
        return len(self._partitions)

    def segment_counts(self) -> dict[str, tuple[int, int]]:
        """By partition directory: the number of segments, and of those that a start would recover.
        """
        return {name: (len(one.sizes), len(one.sizes)
                       - one.state.inputs.first_scanned(one.listing.base_offsets))
                for name, one in self._partitions.items()}

    def segment_pieces(self, target_bytes: int) -> Iterator[SegmentsPiece]:
        """All segments, in pieces of about `target_bytes`; a segment is never split."""
        for one in self._partitions.values():
            bases, flags = one.listing.base_offsets.tolist(), one.listing.flags.tolist()
            start = size = 0
            for row, bytes_here in enumerate(one.sizes):
                if row > start and size + bytes_here > target_bytes:
                    yield _piece(one, bases, flags, start, row, size)
                    start, size = row, 0
                size += bytes_here
            if bases:
                yield _piece(one, bases, flags, start, len(bases), size)

    def verified(self, checked: Iterable[tuple[SegmentsPiece, list[SegmentCheck]]]
                 ) -> dict[str, Verified]:
        """The results of reading the segments, by directory name. Takes the pieces in order."""
        found: dict[str, Verified] = {}
        for piece, checks in checked:
            piece.add(checks, found.setdefault(piece.directory, Verified()))
        return found

    def partition_pieces(self, verified: Mapping[str, Verified]) -> Iterator[PartitionPiece]:
        """One piece a partition; `verified` is by directory name."""
        for name, one in self._partitions.items():
            first = one.state.inputs.first_scanned(one.listing.base_offsets)
            yield PartitionPiece(one.listing, one.state, verified.get(name) or Verified(),
                                 sum(one.sizes[first:]))

    def report(self, partitions: Iterable[PartitionReport | None], threads: int) -> LoadReport:
        """The report of the data directory. Takes `partitions` in the order of `partition_pieces`.
        """
        return LoadReport(
            self.path, LoadLevel.VERIFY.value, self._clean, threads,
            time.perf_counter() - self._started, (), self.findings,
            tuple(one for one in partitions if one is not None), self._holder)


def _piece(one: _Partition, bases: list[int], flags: list[int], start: int, stop: int, size: int
           ) -> SegmentsPiece:
    return SegmentsPiece(
        one.listing.path, tuple(bases[start:stop]), tuple(flags[start:stop]),
        bases[stop] if stop < len(bases) else None,
        one.state.first_scanned_base(one.listing.base_offsets), size)


def _size(path: str, base_offset: int) -> int:
    try:
        return os.lstat(os.path.join(path, file_name(base_offset, FileKind.LOG))).st_size
    except OSError:
        return 0  # reading the segment reports the error
