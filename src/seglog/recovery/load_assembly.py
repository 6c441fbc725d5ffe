"""Assembles the loader of one partition from a plan, a disk and a listener.

A real load and a dry run differ only in the disk.
"""

from __future__ import annotations

from collections.abc import Callable

from seglog.recovery.disk import Disk
from seglog.recovery.findings import Report
from seglog.recovery.inputs import LoadInputs, Step
from seglog.recovery.log_loader import LogLoader
from seglog.recovery.loading_passes import tidy
from seglog.recovery.partition_plan import PartitionPlan
from seglog.recovery.scans import SegmentScans
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.recovery.snapshot_files import Snapshots
from seglog.recovery.steps import SegmentSteps
from seglog.storage.epochs import LeaderEpochs
from seglog.storage.paths import segment_file_names, snapshot_name

__all__ = ["assemble"]


def assemble(plan: PartitionPlan, disk: Disk, inputs: LoadInputs, epochs: LeaderEpochs,
             report: Report, remaining: Callable[[int], None] | None,
             scans: SegmentScans | None
             ) -> tuple[LogLoader, list[Step]]:
    """Kafka's loader of a partition after passes one to three, and the steps of pass four."""
    files = tidy(plan.listing, disk, inputs.config, report)
    found = SegmentSteps(plan, files, inputs.clean_shutdown)
    found.report(report)
    if len(files.base_offsets):
        log, *indexes = segment_file_names(int(files.base_offsets[-1]))
        disk.look([*indexes, *(snapshot_name(offset)
                               for offset in files.snapshots.offsets[-1:])], [log])
    loader = LogLoader(
        disk, inputs, LoadedSegments(disk, inputs.config, found.segments()),
        Snapshots(disk, files.snapshots, files.listed_snapshots, report), epochs, report,
        remaining, scans)
    return loader, found.steps()
