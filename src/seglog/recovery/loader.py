"""The two-phase loader of a data directory, read side (KIP-1346). It writes nothing.

C loads the partitions that were closed cleanly (`directory_load`). For all others phase one opens
and checks segments in chunks without the GIL, with the requested number of threads, across
partitions and inside one. Phase two runs Kafka's loader on overlays, one partition after the other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from seglog._native.scan import PartitionListing, SegmentChecks, list_partition
from seglog.config import LoadConfig, LogConfig
from seglog.errors import KafkaStorageError
from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.clean_rows import CleanRows
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.findings import Finding, Report, finding
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.partition import PartitionState, Verified, judge_partition
from seglog.recovery.partition_plan import (
    LoadLevel, PartitionPlan, check_chunk, check_partition, chunks_of, join_chunks,
)
from seglog.recovery.load_report import FindingList, LoadReport
from seglog.recovery.root import PartitionDirectory, RootDirectory, read_root
from seglog.recovery.segment_verification import SegmentCheck, verify_segment
from seglog.storage.paths import DirectoryKind

_ChunkTask = Callable[[], tuple[PartitionListing, SegmentChecks | KafkaStorageError]]
_VerifyTask = Callable[[], tuple[str, SegmentCheck]]

__all__ = ["LoadOptions", "LoadResult", "load_directory", "partition_state", "read_directory",
           "unreadable"]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of a load.

    Of `log`, `index_interval_bytes` decides at which batch a recovery would notice offsets that go
    backwards, and `segment_index_bytes` which index is too large to be extended. Everything else in
    a prediction is independent of configuration. `only` limits the load to the partition directory
    of that name.
    """

    level: LoadLevel = LoadLevel.KAFKA
    load: LoadConfig = LoadConfig()
    log: LogConfig = LogConfig()
    only: str | None = None

    @property
    def threads(self) -> int:
        """The number of threads that open and check segments."""
        return self.load.num_segment_loading_threads_per_data_dir


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The report, and the tables of all partitions by directory name."""

    report: LoadReport
    root: RootDirectory
    plans: dict[str, PartitionPlan]
    #: The directories that are rows; their plans are made on request.
    rows: frozenset[str] = frozenset()

    def is_loaded(self, directory: str) -> bool:
        """Whether a partition directory could be listed."""
        return directory in self.plans or directory in self.rows

    def plan(self, directory: str) -> PartitionPlan | None:
        """The plan of a partition directory. None if it could not be listed, or is gone."""
        found = self.plans.get(directory)
        if found is None and directory in self.rows:
            try:
                found = check_partition(os.path.join(self.root.path, directory), LoadLevel.KAFKA)
            except KafkaStorageError:
                return None
            self.plans[directory] = found
        return found


def load_directory(path: str, options: LoadOptions,
                   listener: LoadListener | None = None) -> LoadResult:
    """Loads a data directory in both phases, writing nothing.

    Raises KafkaStorageError if `path` cannot be listed or is not a data directory. Every other
    problem is a finding.
    """
    with DirectoryLoad(path, options.level, listener or NullListener(), options.threads) as load:
        return _Load(load, options).run()


def read_directory(path: str, options: LoadOptions, report: Report) -> RootDirectory:
    """The top level of a data directory, limited to `options.only`. Raises as `read_root`."""
    root = read_root(path, report)
    if options.only is None:
        return root
    return replace(root, partitions=tuple(
        one for one in root.partitions if one.name == options.only))


def partition_state(root: RootDirectory, partition: PartitionDirectory, options: LoadOptions
                    ) -> PartitionState:
    """What the data directory's files say about one of its partitions."""
    key = partition.topic_partition
    # The Raft layer opens its log without any checkpoints.
    known = not partition.is_metadata
    return PartitionState(partition, LoadInputs(
        key, root.clean_shutdown,
        root.log_start_offsets.get(key, 0) if known else 0,
        root.recovery_points.get(key, 0) if known else 0,
        options.log, is_deleted=partition.kind is DirectoryKind.DELETED,
        producer_id_expiration_ms=options.load.producer_id_expiration_ms))


def unreadable(error: KafkaStorageError) -> Finding:
    """The finding for a partition directory that cannot be listed."""
    # A topic that a running broker deleted meanwhile is not a problem of the directory.
    gone = error.errno == errno.ENOENT
    return finding("file-missing" if gone else "directory-unreadable",
                   directory=os.path.basename(os.fsdecode(error.filename or "")),
                   message=str(error))


class _Load:
    """One load. All its results, findings and events pass through the calling thread."""

    def __init__(self, load: DirectoryLoad, options: LoadOptions) -> None:
        self.load, self.options = load, options
        self.listener, self.level = load.listener, options.level
        self.findings = FindingList(load.listener.finding)
        self.report = self.findings.add
        self.states: dict[str, PartitionState] = {}

    def run(self) -> LoadResult:
        """Runs both phases."""
        load = self.load
        root = read_directory(load.path, self.options, self.report)
        load.start(root.partitions)
        if root.clean_shutdown and self.level is LoadLevel.KAFKA:
            load.read_rows(partial(self._read_rows, root))
        rows, rest = load.finish_rows(), load.others()
        self.states = {one.name: partition_state(root, one, self.options) for one in rest}
        plans = self._phase_one(rest)
        checks = self._verify(plans) if self.level is LoadLevel.VERIFY else {}
        load.load_each([one for one in rest if one.name in plans],
                       lambda one: self._judge(plans[one.name], checks))
        report = load.report(root.clean_shutdown, self.findings.close(None),
                             None if root.holder is None else str(root.holder))
        return LoadResult(report, root, plans,
                          frozenset(map(str, rows.keys)) if rows is not None else frozenset())

    def _read_rows(self, root: RootDirectory,
                   partitions: Sequence[PartitionDirectory]) -> CleanRows:
        keys = [one.topic_partition for one in partitions]
        rows = CleanRows.read(
            root.path, keys, [self.options.log] * len(keys), start_offsets=root.log_start_offsets,
            recovery_points=root.recovery_points, high_watermarks=root.high_watermarks,
            segments_max=self.load.row_segments_max)
        # A topic without an id is a finding, which a row does not have.
        return rows.where(rows.is_plain & rows.files["has_topic_id"])

    # ---- phase one ----------------------------------------------------------------------------

    def _phase_one(self, partitions: Sequence[PartitionDirectory]) -> dict[str, PartitionPlan]:
        plans: dict[str, PartitionPlan] = {}
        waiting: dict[str, list[SegmentChecks]] = {}
        failed: set[str] = set()
        for (listing, checks), thread in self.load.segments.run(self._chunk_tasks(partitions)):
            name = os.path.basename(listing.path)
            if isinstance(checks, KafkaStorageError):  # then the partition has no plan
                if name not in failed:
                    failed.add(name)
                    self.report(unreadable(checks))
                continue
            chunks = waiting.setdefault(name, [])
            chunks.append(checks)
            if len(checks.status):
                self.load.count_segments(thread, len(checks.status))
                self.listener.segments_loaded(name, len(checks.status), thread)
            if len(chunks) == len(chunks_of(listing)):
                plans[name] = join_chunks(listing, waiting.pop(name))
        return plans

    def _chunk_tasks(self, partitions: Sequence[PartitionDirectory]) -> Iterator[_ChunkTask]:
        """The checks of all partitions. All are listed first, so that listeners know the total."""
        listings = []
        for listing, _ in self.load.segments.run(self._list_tasks(partitions)):
            if isinstance(listing, KafkaStorageError):
                self.report(unreadable(listing))
                continue
            listings.append(listing)
            name, bases = os.path.basename(listing.path), listing.base_offsets
            self.listener.segments_listed(name, len(bases))
            if self.level is LoadLevel.VERIFY:
                self.listener.recovery_planned(
                    name, len(bases) - self.states[name].inputs.first_scanned(bases))
        for listing in listings:
            for start, stop in chunks_of(listing):
                yield partial(_check, listing, start, stop, self.level)

    def _list_tasks(self, partitions: Sequence[PartitionDirectory]
                    ) -> Iterator[Callable[[], PartitionListing | KafkaStorageError]]:
        for partition in partitions:
            self.listener.partition_started(partition.name)
            yield partial(_list, os.path.join(self.load.path, partition.name))

    # ---- level verify -------------------------------------------------------------------------

    def _verify(self, plans: dict[str, PartitionPlan]) -> dict[str, Verified]:
        found = {name: Verified() for name in plans}
        for (name, check), thread in self.load.segments.run(_verify_tasks(plans)):
            found[name].add(
                name, check, is_scanned=check.base_offset >= self.states[name].first_scanned_base(
                    plans[name].segments.base_offsets))
            self.listener.segments_verified(name, 1, check.size, thread)
        return found

    # ---- phase two ----------------------------------------------------------------------------

    def _judge(self, plan: PartitionPlan, checks: dict[str, Verified]) -> None:
        with self.load.segments.scans() as scans:
            report = judge_partition(plan, self.states[plan.directory], self.level,
                                     checks.get(plan.directory), self.listener, scans)
        self.load.add(report)
        self.listener.partition_loaded(report)


def _list(path: str) -> PartitionListing | KafkaStorageError:
    try:
        return list_partition(path)
    except KafkaStorageError as error:
        return error


def _check(listing: PartitionListing, start: int, stop: int,
           level: LoadLevel) -> tuple[PartitionListing, SegmentChecks | KafkaStorageError]:
    try:
        return listing, check_chunk(listing, start, stop, level)
    except KafkaStorageError as error:
        return listing, error


def _verify_tasks(plans: dict[str, PartitionPlan]) -> Iterator[_VerifyTask]:
    for name, plan in plans.items():
        table = plan.segments
        for base, flags in zip(table.base_offsets, table.flags, strict=True):
            yield partial(_verify_one, name, plan.path, int(base), int(flags))


def _verify_one(name: str, path: str, base: int, flags: int) -> tuple[str, SegmentCheck]:
    return name, verify_segment(path, base, flags)
