"""What `seglog load --recover` does to data directories, and `--dry-run` would do.

Both load every partition directory by the same loader with the same inputs; one is given the
directory itself to work on, the other an overlay, a disk that only records changes. So their
findings and states are the same.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from seglog._native.scan import list_partition
from seglog.cli.access import require_access, require_quarantine, require_readable
from seglog.cli.bar import LoadBar
from seglog.cli.summary import Part
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import ConfigError, InvalidTopicPartitionError, KafkaStorageError, SeglogError
from seglog.log.unified_log import UnifiedLog
from seglog.manager.identity import require_identity
from seglog.manager.manager import LogManager
from seglog.recovery.callbacks import CompositeListener, LoadListener
from seglog.recovery.clean_rows import CleanRows, report_of_row
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.findings import Finding, finding
from seglog.recovery.loaded import LoadedLog, error_state
from seglog.recovery.inputs import LoadInputs, wall_clock_ms
from seglog.recovery.open_log import load_log
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.load_report import FindingList
from seglog.recovery.root import PartitionDirectory, RootDirectory, read_root
from seglog.storage.ownership import chown_command
from seglog.recovery.rows import directory_row, finding_row, partition_row
from seglog.recovery.segment_verification import staying, verify_extent
from seglog.storage.checkpoint_files import write_offset_checkpoint
from seglog.storage.paths import CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, DirectoryKind

__all__ = ["DirectoryOutcome", "RecoverySettings", "announce", "dry_run", "recover_directories",
           "report_duplicates"]

_REBUILT = "segment-rebuilt"


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """How to recover. `quarantine` keeps the bytes that are cut, one folder per data directory.

    With `full_states` a state has all of Kafka's answers, which reads the end of every segment.
    With `reads_all` segments that need no recovery are read too, to report damage that remains.
    `producer_id_expiration_ms` is None by default: the broker's next start decides which producers
    expire.
    """

    broker: BrokerConfig
    log: LogConfig
    producer_id_expiration_ms: int | None = None
    quarantine: str | None = None
    full_states: bool = False
    reads_all: bool = False

    def quarantine_of(self, root: str) -> str | None:
        """The quarantine folder of one data directory."""
        return None if self.quarantine is None else \
            os.path.join(self.quarantine, os.path.basename(root))

    @property
    def level(self) -> LoadLevel:
        """The level of the checks in phase one."""
        return LoadLevel(self.broker.sanity_check_level)

    def directory_load(self, path: str, listener: LoadListener) -> DirectoryLoad:
        """A load of one data directory, with as many threads as the broker would use."""
        return DirectoryLoad(path, self.level, listener,
                             self.broker.num_segment_loading_threads_per_data_dir,
                             self.broker.num_recovery_threads_per_data_dir)

    def inputs(self, root: RootDirectory, partition: PartitionDirectory) -> LoadInputs:
        """What the data directory's checkpoints and settings say about a log."""
        key = partition.topic_partition
        return LoadInputs(
            key, root.clean_shutdown, root.log_start_offsets.get(key, 0),
            root.recovery_points.get(key, 0), self.log,
            is_deleted=partition.kind is DirectoryKind.DELETED,
            producer_id_expiration_ms=self.producer_id_expiration_ms)

    @property
    def knows_rows(self) -> bool:
        """Whether a dry run needs no more of a log than C tells, of many per call."""
        return self.level is LoadLevel.KAFKA and not self.full_states and not self.reads_all

    def rows(self, root: RootDirectory, segments_max: int,
             partitions: Sequence[PartitionDirectory]) -> CleanRows:
        """Those partitions that C can load; see `DirectoryLoad.read_rows`. Writes nothing."""
        keys = [one.topic_partition for one in partitions]
        rows = CleanRows.read(
            root.path, keys, [self.log] * len(keys), start_offsets=root.log_start_offsets,
            recovery_points=root.recovery_points, high_watermarks={}, segments_max=segments_max,
            after_crash=not root.clean_shutdown, now_ms=wall_clock_ms(),
            producer_idle_ms=self.producer_id_expiration_ms)
        return rows.where(rows.is_plain)

    def state(self, log: LoadedLog) -> dict[str, Any]:
        """The state of a log under the keys of Kafka's answers (tests/kafka/Oracle.java), or under
        some of them."""
        if self.full_states:
            return log.state()
        return {
            "log_start_offset": log.log_start_offset, "recovery_point": log.recovery_point,
            "log_end_offset": log.log_end_offset, "last_stable_offset": log.last_stable_offset,
        }


@dataclass(slots=True)
class _Read:
    """What was scanned in one log: segments by base offset, their batches, records and bytes."""

    bases: set[int] = field(default_factory=set)
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def recovered(self) -> dict[str, Any]:
        """The fields of the log's row about its recovery."""
        return {"recovery_segment_count": len(self.bases), "recovery_size": self.bytes,
                "recovery_batches": self.batches, "recovery_records": self.records}

    def left(self, count: int, size: int) -> dict[str, Any]:
        """The fields about `count` segments that were not read."""
        return {"unread_segment_count": count, "unread_size": size,
                "batches": None if count else self.batches,
                "records": None if count else self.records}


class DirectoryOutcome(LoadListener):
    """One data directory: the state of every partition directory, or why it has none.

    The loading threads report findings to it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: The files in its top level.
        self.root: RootDirectory | None = None
        #: By partition directory; only `error` and `message` for one that does not load.
        self.states: dict[str, dict[str, Any]] = {}
        #: What stopped the work on this directory altogether.
        self.error: SeglogError | None = None
        #: Partition directories that did not load (a state may have another kind of error).
        self.not_loaded: set[str] = set()
        #: Whether a clean shutdown marker is there now (after a dry run: would be).
        self.is_clean = False
        self.seconds = 0.0
        self._findings: dict[str | None, FindingList] = {}
        self._read: dict[str | None, _Read] = {}
        self._sizes: dict[str, dict[str, Any]] = {}  # of loaded logs, for their rows
        self._lock = threading.Lock()

    def finding(self, found: Finding) -> None:
        """Keeps the finding. (A segment without an index is rebuilt twice if its log is unclean,
        but reported once.)"""
        with self._lock:
            if found.code == _REBUILT and found.offset is not None:
                read = self._read.setdefault(found.directory, _Read())
                if found.offset in read.bases:
                    return
                read.bases.add(found.offset)
                read.batches += found.batches or 0
                read.records += found.records or 0
                read.bytes += found.bytes or 0
            self._findings.setdefault(found.directory, FindingList()).add(found)
            if found.code == "directory-name" and found.directory is not None:
                self.not_loaded.add(found.directory)
                self.states[found.directory] = {
                    "error": found.kafka_error, "message": found.message.replace(self.path, "")}

    def loaded(self, name: str, log: LoadedLog, settings: RecoverySettings) -> None:
        """Records the state of a log and which segments were not read; reads those too with
        `reads_all`."""
        self.states[name] = settings.state(log)
        segments = log.segments
        with self._lock:
            read = self._read.setdefault(name, _Read())
        left = ((segments.log_size > 0)
                & ~np.isin(segments.base_offsets, np.array(sorted(read.bases), np.int64)))
        unread_count, unread_size = int(left.sum()), int(segments.log_size[left].sum())
        recovered = read.recovered()
        if settings.reads_all:
            for base in segments.base_offsets[left].tolist():
                segment = segments.get(base)
                check = verify_extent(segment.extent, base, name)
                segments.release(segment)
                for found in staying(check.findings):
                    self.finding(found)
                read.batches += check.batch_count
                read.records += check.record_count
            unread_count = unread_size = 0
        self._sizes[name] = {
            "segment_count": len(segments), "size": log.size, **recovered,
            **read.left(unread_count, unread_size)}

    def loaded_row(self, rows: CleanRows, row: int, _completed: int) -> None:
        """Records a log that C loaded; see `DirectoryLoad.finish_rows`."""
        report, files = report_of_row(rows, row), rows.files[row]
        for found in report.findings:
            self.finding(found)
        name, start, end = report.directory, report.log_start_offset, report.log_end_offset
        # The high watermark of a log that was just loaded is its start.
        self.states[name] = {
            "log_start_offset": start, "log_end_offset": end, "last_stable_offset": start,
            "recovery_point": max(int(files["recovery_point"]), int(files["log_start_offset"]))
            if rows.after_crash else end}
        read = self._read.get(name, _Read())
        unread = int(files["filled_segments"]) - (read.bytes > 0)
        self._sizes[name] = {"segment_count": report.segments, "size": report.size,
                             **read.recovered(), **read.left(unread, report.size - read.bytes)}

    def part(self, settings: RecoverySettings) -> Part:
        """The rows of this directory (docs/json.md)."""
        error = self.error
        directory = directory_row(
            self.path, clean_shutdown=self.had_clean_shutdown, clean_after=self.is_clean,
            in_use_by=None if self.root is None or self.root.holder is None
            else str(self.root.holder),
            level=(LoadLevel.VERIFY if settings.reads_all else settings.level).value,
            threads=settings.broker.num_recovery_threads_per_data_dir, seconds=self.seconds,
            error=None if error is None else error_state(error)["error"],
            message=None if error is None else _message(error))
        partitions = [partition_row(self.path, name, **self.states[name],
                                    **self._sizes.get(name, {})) for name in sorted(self.states)]
        for row in partitions:
            if row["leader_epochs"]:
                row["leader_epoch"] = row["leader_epochs"][-1][0]
        return Part(directory, partitions,
                    [finding_row(self.path, found) for found in self.findings])

    def failed(self, path: str, error: Exception) -> None:
        """Records a partition directory that does not load. Re-raises an error that is not about
        the data."""
        if isinstance(error, InvalidTopicPartitionError):
            return  # a finding about the data directory already
        if not isinstance(error, SeglogError):
            raise error
        state = error_state(error)
        state["message"] = str(state["message"]).replace(self.path, "")
        name = os.path.basename(path)
        with self._lock:
            self.states[name] = state
            self.not_loaded.add(name)
        self.finding(finding(
            "file-unreadable" if isinstance(error, OSError) else "log-unloadable", directory=name,
            message=_message(error), kafka_error=state["error"]))

    @property
    def had_clean_shutdown(self) -> bool:
        """Whether the clean shutdown marker existed."""
        return self.root is not None and self.root.clean_shutdown

    @property
    def findings(self) -> list[Finding]:
        """The findings of the data directory, then of each partition directory in name order."""
        return [found for directory in sorted(self._findings, key=lambda name: name or "")
                for found in self._findings[directory].close(directory)]


def _message(error: Exception) -> str:
    """The error's message, with the path of a failed system call if it is missing there."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    path = os.fsdecode(error.filename or "")
    return error.strerror if path in error.strerror else f"{error.strerror}: {path}"


def report_duplicates(outcomes: Sequence[DirectoryOutcome]) -> None:
    """Reports partitions that two directories of one broker hold: the broker does not start.

    Does not compare directories with the same directory id (copies), or without one.
    """
    holders: dict[tuple[object, ...], tuple[DirectoryOutcome, str]] = {}
    for outcome in outcomes:
        root = outcome.root
        if root is None or root.meta_properties is None or root.meta_properties.cluster_id is None:
            continue
        owner = root.meta_properties
        for one in root.partitions:
            if one.kind is DirectoryKind.LIVE and not one.is_metadata:
                key = (owner.cluster_id, owner.node_id, one.topic_partition)
                first, name = holders.setdefault(key, (outcome, one.name))
                assert first.root is not None and first.root.meta_properties is not None
                if first.root.meta_properties.directory_id != owner.directory_id:
                    outcome.finding(finding(
                        "duplicate-partition", directory=one.name,
                        expected=os.path.join(first.path, name),
                        found=os.path.join(outcome.path, one.name),
                        kafka_error="IllegalStateException"))


# --- dry run -------------------------------------------------------------------------------------

def dry_run(path: str, settings: RecoverySettings, listener: LoadListener) -> DirectoryOutcome:
    """What `recover_directories` would do to one directory; touches nothing.

    Raises as `recover_directories` does, but needs no right to write.
    """
    outcome, started = DirectoryOutcome(path), time.perf_counter()
    root = outcome.root = read_root(path, outcome.finding)
    _require([root], settings, require_readable)

    def load_dry(directory: str, inputs: LoadInputs, *, listener: LoadListener,
                 **how: Any) -> LoadedLog:
        log = load_log(directory, inputs, listener=CompositeListener(outcome, listener), **how)
        outcome.loaded(os.path.basename(directory), log, settings)
        return log

    with settings.directory_load(path, listener) as work:
        work.start(root.partitions)
        if settings.knows_rows:
            work.read_rows(partial(settings.rows, root, work.row_segments_max))
            work.finish_rows(outcome.loaded_row)
        work.load_each(work.others(), lambda one: _load_one(
            work, settings.inputs(root, one), OverlayDisk(os.path.join(path, one.name)),
            outcome, load_dry))
        work.finish()
    # The Raft layer, not the marker, looks after the metadata log.
    outcome.is_clean = outcome.not_loaded <= {one.name for one in root.partitions
                                              if one.is_metadata}
    outcome.seconds = time.perf_counter() - started
    return outcome


def _load_one(work: DirectoryLoad, inputs: LoadInputs, disk: Disk, outcome: DirectoryOutcome,
              load: Callable[..., LoadedLog]) -> LoadedLog | None:
    """Loads a log from `disk`. None if it does not load, which `outcome` records."""
    try:
        return work.load_log(disk.path, inputs, load, disk=disk)
    except SeglogError as error:
        outcome.failed(disk.path, error)
        return None


def announce(paths: Sequence[str], settings: RecoverySettings, bar: LoadBar) -> None:
    """Reports all planned steps to the bar, before the first directory is locked."""
    for path in paths:
        try:
            root = read_root(path, lambda found: None)
        except SeglogError:
            continue  # its recovery reports the error
        bar.load_started(len(root.partitions), 1)
        for partition in root.partitions:
            try:
                bases = list_partition(os.path.join(path, partition.name)).base_offsets
            except SeglogError:
                continue
            bar.segments_listed(partition.name, len(bases))
            bar.recovery_planned(partition.name, len(bases) - settings.inputs(
                root, partition).first_scanned(bases))
    bar.announced()


# --- recovery ------------------------------------------------------------------------------------

def recover_directories(paths: Sequence[str], settings: RecoverySettings,
                        listener: LoadListener) -> list[DirectoryOutcome]:
    """Recovers data directories and leaves them as a broker's clean shutdown would.

    All are locked before anything changes. Raises, with nothing changed, LogDirLockedError if a
    directory is in use, KafkaStorageError for a path that is not a data directory, may not be
    changed or has a checkpoint that cannot be read, MalformedCheckpointError if `meta.properties`
    is damaged or of a newer format (no tool may change such a directory), and ConfigError for a
    quarantine inside a data directory. Later errors are in the outcomes.
    """
    _require([read_root(path, lambda found: None) for path in paths], settings, require_access)
    with ExitStack() as stack:
        recoveries = []
        for path in paths:
            recoveries.append(_Recovery(path, settings, listener))
            stack.callback(recoveries[-1].manager.shutdown)
        return [one.run() for one in recoveries]


def _require(roots: Sequence[RootDirectory], settings: RecoverySettings,
             may_use: Callable[[RootDirectory], None]) -> None:
    """Raises what `recover_directories` does before it changes anything."""
    for root in roots:
        if settings.quarantine is not None and _is_inside(settings.quarantine, root.path):
            raise ConfigError(f"{settings.quarantine} is inside of {root.path}: a broker would "
                              "take it for a partition directory and stop")
        may_use(root)
        require_identity(root.path)
    if settings.quarantine is not None:
        require_quarantine(settings.quarantine)


def _is_inside(path: str, directory: str) -> bool:
    real = os.path.realpath(directory)
    return os.path.commonpath([os.path.realpath(path), real]) == real


class _Recovery:
    """The recovery of one data directory, which stays locked meanwhile.

    Every directory has its own manager: they may be copies from several brokers, and a failure in
    one must not stop the recovery of the next.
    """

    def __init__(self, path: str, settings: RecoverySettings, listener: LoadListener) -> None:
        self.path, self.settings = path, settings
        self.outcome = DirectoryOutcome(path)
        self.listener = listener
        self.manager = LogManager(
            [path], config=settings.broker, log_config=settings.log, listener=listener,
            load=self._load, on_load_error=self.outcome.failed, keep_log_starts=True)

    def _load(self, path: str, inputs: LoadInputs, *, listener: LoadListener,
              **how: Any) -> LoadedLog:
        """Loads one log. Its state is recorded right after the load, as in Kafka's answers: the
        high watermark is still the log start offset."""
        settings = self.settings
        inputs = replace(inputs, producer_id_expiration_ms=settings.producer_id_expiration_ms)
        disk = RealDisk(path, quarantine=settings.quarantine_of(self.path))
        log = load_log(path, inputs, **{
            **how, "disk": disk, "listener": CompositeListener(self.outcome, listener)})
        self.outcome.loaded(os.path.basename(path), log, settings)
        return log

    def run(self) -> DirectoryOutcome:
        """Loads, recovers, flushes, closes, and writes checkpoints and marker."""
        outcome, started = self.outcome, time.perf_counter()
        # After a clean shutdown a broker sends the controller its previous epoch.
        epoch = self.manager.read_broker_epoch_from_clean_shutdown_files()
        try:
            root = outcome.root = read_root(self.path, outcome.finding, is_locked=True)
            # First: after startup() the manager writes the marker even if Ctrl-C ends this.
            self._load_metadata_logs(root)
            self.manager.startup()
            for log in (*self.manager.stray_logs.values(), *self.manager.logs_to_be_deleted):
                self._close(log)
            self._mend_cleaner_checkpoint()
        except SeglogError as error:
            outcome.error = error
        self.manager.shutdown(-1 if epoch is None else epoch)
        command = chown_command(self.path)
        if command is not None:
            outcome.finding(finding(
                "owner-not-kept", message=f"new files belong to user {os.geteuid()}, not to the "
                f"owner of the directory; before a broker starts, run as root: {command}"))
        outcome.is_clean = os.path.exists(os.path.join(self.path, CLEAN_SHUTDOWN_FILE))
        if not outcome.is_clean and not outcome.not_loaded and outcome.error is None:
            outcome.error = KafkaStorageError(
                errno.EIO, "not every log could be flushed and closed, or a checkpoint written; -v "
                "shows the errors", self.path)
        outcome.seconds = time.perf_counter() - started
        return outcome

    def _mend_cleaner_checkpoint(self) -> None:
        """Replaces a malformed one by an empty one, so that the cleaner begins at the log starts:
        no cleaner runs here that would write it, as the shutdown writes the others."""
        if any(found.file == CLEANER_OFFSET_CHECKPOINT and found.code == "checkpoint-malformed"
               for found in self.outcome.findings):
            write_offset_checkpoint(os.path.join(self.path, CLEANER_OFFSET_CHECKPOINT), {})

    def _load_metadata_logs(self, root: RootDirectory) -> None:
        """Loads the log of the metadata quorum, which a manager leaves to the Raft layer."""
        with self.settings.directory_load(self.path, self.listener) as work:
            for partition in root.partitions:
                if partition.is_metadata:
                    log = _load_one(work, self.settings.inputs(root, partition),
                                    RealDisk(os.path.join(self.path, partition.name)),
                                    self.outcome, self._load)
                    if log is not None:
                        self._close(log)

    def _close(self, log: LoadedLog | UnifiedLog) -> None:
        """Flushes and closes a log that the manager does not own."""
        try:
            log.flush(True)
            log.close()
        except SeglogError as error:
            self.outcome.failed(log.path, error)
