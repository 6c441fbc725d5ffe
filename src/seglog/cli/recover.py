"""What `seglog load --recover` does to data directories, and `--dry-run` does on paper.

Both load every partition directory by the same loader with the same inputs; one is given the
directory itself to work on, the other a copy on paper. So their findings and states are the same.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from seglog._native.scan import PartitionListing
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import ConfigError, InvalidTopicPartitionError, KafkaStorageError, SeglogError
from seglog.manager.identity import read_identities
from seglog.manager.manager import LogManager
from seglog.manager.phase_one import SegmentLoading
from seglog.manager.sanity import without_wrong_indexes
from seglog.recovery.callbacks import CompositeListener, LoadListener
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.findings import Finding, Severity, finding
from seglog.recovery.loaded import LoadedLog, error_state
from seglog.recovery.log_loader import LoadInputs
from seglog.recovery.open_log import load_log
from seglog.recovery.paper import PaperDisk
from seglog.recovery.plan import LoadLevel, PartitionPlan
from seglog.recovery.report import FindingList
from seglog.recovery.root import PartitionDirectory, RootDirectory, read_root
from seglog.storage.paths import CLEAN_SHUTDOWN_FILE, DirectoryKind

__all__ = ["DirectoryOutcome", "RecoverySettings", "Total", "recover_directories", "rehearse",
           "report_duplicates"]

_REBUILT = "segment-rebuilt"


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """How to recover. Bytes that are cut are kept in `quarantine`, one folder a data directory.

    With `full_states` a state has everything of Kafka's answers, which costs a look at the end of
    every segment. `producer_id_expiration_ms` is None while nobody says otherwise: whom a broker
    forgets at its next start is its own business.
    """

    broker: BrokerConfig
    log: LogConfig
    producer_id_expiration_ms: int | None = None
    quarantine: str | None = None
    full_states: bool = False

    def quarantine_of(self, root: str) -> str | None:
        """Where the bytes of the logs of one data directory go."""
        return None if self.quarantine is None else \
            os.path.join(self.quarantine, os.path.basename(root))

    @property
    def level(self) -> LoadLevel:
        """What the checks of phase one look at."""
        return LoadLevel(self.broker.sanity_check_level)

    def inputs(self, root: RootDirectory, partition: PartitionDirectory) -> LoadInputs:
        """What the data directory says about a log."""
        key = partition.topic_partition
        return LoadInputs(
            key, root.clean_shutdown, root.log_start_offsets.get(key, 0),
            root.recovery_points.get(key, 0), self.log,
            is_deleted=partition.kind is DirectoryKind.DELETED,
            producer_id_expiration_ms=self.producer_id_expiration_ms)

    def state(self, log: LoadedLog) -> dict[str, Any]:
        """Under the keys of Kafka's answers (tests/kafka/Oracle.java), or some of them."""
        if self.full_states:
            return log.state()
        return {
            "log_start_offset": log.log_start_offset, "recovery_point": log.recovery_point,
            "log_end_offset": log.log_end_offset, "last_stable_offset": log.last_stable_offset,
            "segment_count": len(log.segments), "size": log.size,
        }


@dataclass(slots=True)
class Total:
    """What findings of one code come to, those that no list has room for too."""

    count: int = 0
    bytes: int = 0
    records: int = 0
    directories: set[str | None] = field(default_factory=set)


class DirectoryOutcome(LoadListener):
    """One data directory: the state of every partition directory, or why there is none.

    It hears of findings from the threads that load.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: What its top level said.
        self.root: RootDirectory | None = None
        #: By partition directory; `error` and `message` alone for one that does not load.
        self.states: dict[str, dict[str, Any]] = {}
        #: What stopped the work on this directory altogether.
        self.error: SeglogError | None = None
        #: Partition directories that did not load (a state may be an error for another reason).
        self.not_loaded: set[str] = set()
        #: Whether a clean shutdown marker is there now (of a rehearsal: would be).
        self.is_clean = False
        self.seconds = 0.0
        #: By code.
        self.totals: dict[str, Total] = {}
        self._findings: dict[str | None, FindingList] = {}
        self._rebuilt: set[tuple[str | None, str | None]] = set()
        self._lock = threading.Lock()

    def finding(self, found: Finding) -> None:
        """Keeps it. (A segment without an index is rebuilt twice when its log is unclean: once.)"""
        with self._lock:
            if found.code == _REBUILT:
                if (found.directory, found.file) in self._rebuilt:
                    return
                self._rebuilt.add((found.directory, found.file))
            self._findings.setdefault(found.directory, FindingList()).add(found)
            total = self.totals.setdefault(found.code, Total())
            total.count += 1
            total.bytes += found.bytes or 0
            total.records += found.records or 0
            total.directories.add(found.directory)
            if found.code == "directory-name" and found.directory is not None:
                self.not_loaded.add(found.directory)
                self.states[found.directory] = {
                    "error": found.kafka_error, "message": found.message.replace(self.path, "")}

    def failed(self, path: str, error: Exception) -> None:
        """A partition directory that does not load. Raises what is no error of the data."""
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
            message=str(error), kafka_error=state["error"]))

    @property
    def had_clean_shutdown(self) -> bool:
        """Whether the clean shutdown marker was there."""
        return self.root is not None and self.root.clean_shutdown

    @property
    def findings(self) -> list[Finding]:
        """Of the data directory, then of each partition directory by name, in order."""
        return [found for directory in sorted(self._findings, key=lambda name: name or "")
                for found in self._findings[directory].close(directory)]

    @property
    def failures(self) -> dict[str, dict[str, Any]]:
        """The states of the partition directories that do not load."""
        return {name: state for name, state in self.states.items() if "error" in state}

    @property
    def severity(self) -> Severity:
        """Of the worst finding."""
        return max((one.severity for one in self.findings), default=Severity.INFO)


def report_duplicates(outcomes: Sequence[DirectoryOutcome]) -> None:
    """Tells of partitions that two directories of one broker hold: it does not start on them.

    Directories that say they are the same one (copies), or nothing, are not compared.
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


# --- on paper ------------------------------------------------------------------------------------

def rehearse(path: str, settings: RecoverySettings, listener: LoadListener) -> DirectoryOutcome:
    """What `recover_directories` would do to one directory; touches nothing.

    KafkaStorageError when `path` is no data directory, MalformedCheckpointError for a
    `meta.properties` that is damaged or of a newer format, as then nobody may work in it.
    """
    outcome, started = DirectoryOutcome(path), time.perf_counter()
    for error in read_identities([path]).unreadable.values():
        raise error
    both = CompositeListener(outcome, listener)
    root = read_root(path, outcome.finding)
    outcome.root = root
    both.load_started(len(root.partitions), 1)

    with _phase_one(path, settings) as segments:
        def load(partition: PartitionDirectory) -> None:
            directory = os.path.join(path, partition.name)
            both.partition_started(partition.name)
            try:
                log = _load_one(segments, settings.inputs(root, partition), both,
                                disk=PaperDisk(directory), level=settings.level)
                outcome.states[partition.name] = settings.state(log)
            except SeglogError as error:
                outcome.failed(directory, error)

        with ThreadPoolExecutor(settings.broker.num_recovery_threads_per_data_dir,
                                thread_name_prefix="rehearsal") as pool:
            list(pool.map(load, root.partitions))
    # The Raft layer, not the marker, looks after the metadata log.
    outcome.is_clean = outcome.not_loaded <= {one.name for one in root.partitions
                                              if one.is_metadata}
    outcome.seconds = time.perf_counter() - started
    return outcome


@contextmanager
def _phase_one(path: str, settings: RecoverySettings) -> Iterator[SegmentLoading]:
    """The threads that check segments and scan ahead of recoveries, of all logs together."""
    segments = SegmentLoading(
        path, settings.broker.num_segment_loading_threads_per_data_dir, settings.level)
    try:
        yield segments
    finally:
        segments.close()


def _load_one(segments: SegmentLoading, inputs: LoadInputs, listener: LoadListener, *, disk: Disk,
              load: Callable[..., LoadedLog] = load_log, level: LoadLevel) -> LoadedLog:
    """Loads a log as a manager would (its LogLoading), from `disk`."""
    name = os.path.basename(disk.path)

    def check(listing: PartitionListing) -> PartitionPlan:
        listener.segments_listed(name, len(listing.base_offsets))
        plan = segments.check(listing, partial(listener.segments_loaded, name))
        if level is LoadLevel.KAFKA:
            return plan
        return without_wrong_indexes(
            plan, None if inputs.clean_shutdown else inputs.recovery_point, disk)

    with segments.scans() as scans:
        return load(disk.path, inputs, disk=disk, check=check, listener=listener, scans=scans)


# --- for real ------------------------------------------------------------------------------------

def recover_directories(paths: Sequence[str], settings: RecoverySettings,
                        listener: LoadListener) -> list[DirectoryOutcome]:
    """Recovers data directories and leaves them as a broker's clean shutdown would.

    All are locked before anything is changed. LogDirLockedError where somebody else works in one,
    KafkaStorageError for what is no data directory or cannot be used as one, ConfigError for a
    quarantine inside of one; then nothing was changed. What goes wrong later is in the outcomes.
    """
    for path in paths:
        read_root(path, lambda found: None)  # raises for what is no data directory
        if settings.quarantine is not None and os.path.commonpath(
                [settings.quarantine, path]) == path:
            raise ConfigError(f"{settings.quarantine} is inside of {path}: a broker would take it "
                              "for a partition directory and stop")
    with ExitStack() as stack:
        recoveries = []
        for path in paths:
            recoveries.append(_Recovery(path, settings, listener))
            stack.callback(recoveries[-1].manager.shutdown)
        return [one.run() for one in recoveries]


class _Recovery:
    """One data directory, which is locked as long as this is at work.

    Every directory has a manager of its own: copies of several brokers may be given, and a
    directory that fails is no reason to leave the next one as it is.
    """

    def __init__(self, path: str, settings: RecoverySettings, listener: LoadListener) -> None:
        self.path, self.settings = path, settings
        self.outcome = DirectoryOutcome(path)
        self.listener = listener
        self.manager = LogManager(
            [path], config=settings.broker, log_config=settings.log, listener=listener,
            load=self._load, on_load_error=self.outcome.failed)

    def _load(self, path: str, inputs: LoadInputs, *, listener: LoadListener,
              **how: Any) -> LoadedLog:
        """Loads one log. Its state is that of this moment, before anything is served, as Kafka's
        answers are: the high watermark is still the log start offset."""
        settings = self.settings
        inputs = replace(inputs, producer_id_expiration_ms=settings.producer_id_expiration_ms)
        disk = RealDisk(path, quarantine=settings.quarantine_of(self.path))
        log: LoadedLog = load_log(path, inputs, **{
            **how, "disk": disk, "listener": CompositeListener(self.outcome, listener)})
        self.outcome.states[os.path.basename(path)] = settings.state(log)
        return log

    def run(self) -> DirectoryOutcome:
        """Loads, recovers, flushes, closes, and writes checkpoints and marker."""
        outcome, started = self.outcome, time.perf_counter()
        # Of a clean shutdown the controller wants to hear the epoch that the broker had.
        epoch = self.manager.read_broker_epoch_from_clean_shutdown_files()
        try:
            root = outcome.root = read_root(self.path, outcome.finding)
            self.manager.startup()
            self._load_metadata_logs(root)
            for log in (*self.manager.stray_logs.values(), *self.manager.logs_to_be_deleted):
                self._close(log)
        except SeglogError as error:
            outcome.error = error
        self.manager.shutdown(-1 if epoch is None else epoch)
        outcome.is_clean = os.path.exists(os.path.join(self.path, CLEAN_SHUTDOWN_FILE))
        if not outcome.is_clean and not outcome.not_loaded and outcome.error is None:
            outcome.error = KafkaStorageError(
                errno.EIO, "not every log could be flushed and closed, or a checkpoint written; -v "
                "shows the errors", self.path)
        outcome.seconds = time.perf_counter() - started
        return outcome

    def _load_metadata_logs(self, root: RootDirectory) -> None:
        """The log of the metadata quorum, which a manager leaves to the Raft layer."""
        with _phase_one(self.path, self.settings) as segments:
            for partition in root.partitions:
                if partition.is_metadata:
                    disk = RealDisk(os.path.join(self.path, partition.name))
                    try:
                        self._close(_load_one(
                            segments, self.settings.inputs(root, partition), self.listener,
                            disk=disk, load=self._load, level=self.settings.level))
                    except SeglogError as error:
                        self.outcome.failed(disk.path, error)

    def _close(self, log: LoadedLog) -> None:
        """Flushes and closes what is not the manager's to close."""
        try:
            log.flush(True)
            log.close()
        except SeglogError as error:
            self.outcome.failed(log.path, error)
