"""Loading one log for writing: the entry point of log managers and of `seglog load --recover`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from seglog._native.scan import PartitionListing, list_partition
from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.loader_failures import public_errors, text_file_failures
from seglog.recovery.load_assembly import assemble
from seglog.recovery.findings import Report
from seglog.recovery.inputs import LoadInputs, LoadOutcome, Step
from seglog.recovery.loaded import LoadedLog, LoadedState, first_unstable_offset
from seglog.recovery.log_files import LogFiles
from seglog.recovery.log_loader import LogLoader
from seglog.recovery.partition_plan import PartitionPlan, check_listing
from seglog.recovery.scans import SegmentScans
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.recovery.snapshot_files import Snapshots
from seglog.recovery.steps import raise_unreadable
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs
from seglog.storage.meta import read_partition_metadata
from seglog.storage.paths import (
    LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, FileKind, file_name, temporary_name,
)

__all__ = ["load_log", "load_state"]

#: The text files that every load reads.
_TEXT_FILES = (LEADER_EPOCH_CHECKPOINT, temporary_name(LEADER_EPOCH_CHECKPOINT),
               PARTITION_METADATA)



def load_log(path: str, inputs: LoadInputs, **how: Any) -> LoadedLog:
    """Loads a log that is only flushed and closed again. Arguments and errors are those of
    `load_state`."""
    return LoadedLog(load_state(path, inputs, **how))


def load_state(path: str, inputs: LoadInputs, *, disk: Disk | None = None,
               check: Callable[[PartitionListing], PartitionPlan] = check_listing,
               listener: LoadListener | None = None,
               remaining: Callable[[int], None] | None = None,
               scans: SegmentScans | None = None, quarantine: str | None = None) -> LoadedState:
    """Loads the partition directory `path` and recovers what needs it, as Kafka does at start-up.

    `check(listing)` is phase one. `listener.finding` gets each finding as it is made, in this
    thread. `remaining(n)` is called before each segment of a recovery with the number left, and
    with 0 at the end. `scans` may scan ahead of a recovery, in parallel. `quarantine` is a
    directory for the bytes of logs that are truncated or removed. With an OverlayDisk as `disk`
    nothing is changed.

    Raises KafkaStorageError for errors of the file system (the data directory goes offline; data
    are never truncated for that), and LogLoadError where Kafka abandons the log.
    """
    path = os.fspath(path)
    with public_errors(path):
        return _load(path, inputs, disk or RealDisk(path, quarantine=quarantine), check,
                     (listener or NullListener()).finding, remaining, scans)


def _load(path: str, inputs: LoadInputs, disk: Disk,
          check: Callable[[PartitionListing], PartitionPlan], report: Report,
          remaining: Callable[[int], None] | None, scans: SegmentScans | None) -> LoadedState:
    try:
        disk.look(_TEXT_FILES)
        epochs = _read_epochs(path, disk)
        plan = check(list_partition(path))
        raise_unreadable(plan)
        loader, steps = assemble(plan, disk, inputs, epochs, report, remaining, scans)
        outcome = loader.run(steps)
        topic_id_file = disk.known(PARTITION_METADATA)
    finally:
        disk.forget()
    return _loaded(loader, outcome, lambda: _read_topic_id(path, topic_id_file))


def _loaded(loader: LogLoader, outcome: LoadOutcome,
            read_topic_id: Callable[[], uuid.UUID | None]) -> LoadedState:
    """The state without the loader, which is released."""
    inputs, segments, start = loader.inputs, loader.segments, outcome.log_start_offset
    local_start = max(start, int(segments.base_offsets[0]))
    unstable = first_unstable_offset(loader.producers.state, segments, start,
                                     outcome.log_end_offset)
    files = LogFiles(inputs.topic_partition, segments, loader.removed, partial(
        _repair, inputs, segments, loader.snapshots, loader.epochs, loader.report,
        loader.removed))
    return LoadedState(
        inputs, files, loader.epochs, loader.producers, start, local_start, start,
        max(outcome.recovery_point, local_start), outcome.log_end_offset, unstable,
        read_topic_id())  # last, as in Kafka: either may end the load


def _repair(inputs: LoadInputs, segments: LoadedSegments, snapshots: Snapshots,
            epochs: LeaderEpochs, report: Report, removed: list[str],
            base_offsets: list[int]) -> None:
    """Applies pass four to some segments of a loaded log, ascending; `removed` gets the names of
    the files that it removes. Snapshots above them stay: the end of the log has not changed."""
    loader = LogLoader(segments.disk, inputs, segments, snapshots, epochs, report)
    try:
        for base in base_offsets:
            with snapshots.names.without_above(base):
                loader.take_step(Step(file_name(base, FileKind.LOG), base))
        snapshots.remove_stray(segments.base_offsets)
    finally:
        removed += loader.removed


def _read_epochs(path: str, disk: Disk) -> LeaderEpochs:
    if disk.size(LEADER_EPOCH_CHECKPOINT) is None:
        disk.create(LEADER_EPOCH_CHECKPOINT)
        return LeaderEpochs()
    with text_file_failures("checkpoint", os.path.abspath(path), LEADER_EPOCH_CHECKPOINT):
        return read_leader_epochs(os.path.join(path, LEADER_EPOCH_CHECKPOINT),
                                  disk.known(LEADER_EPOCH_CHECKPOINT))


def _read_topic_id(path: str, content: bytes | None) -> uuid.UUID | None:
    with text_file_failures("partition metadata", os.path.abspath(path), PARTITION_METADATA):
        found = read_partition_metadata(os.path.join(path, PARTITION_METADATA), content)
    return None if found is None else found.topic_id
