"""Loads one partition directory, on a disk, with a pool and a listener.

The manager, the recovery of a directory and its dry run load each of their partitions here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from seglog._native.scan import PartitionListing
from seglog.recovery.disk import Disk
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.load_progress import LogProgress
from seglog.recovery.partition_plan import PartitionPlan
from seglog.recovery.segment_loading import SegmentLoading
from seglog.recovery.wrong_indexes import without_wrong_indexes

__all__ = ["load_partition"]

_Log = TypeVar("_Log")


def load_partition(path: str, inputs: LoadInputs, load: Callable[..., _Log],
                   segments: SegmentLoading, progress: LogProgress, *, disk: Disk | None = None,
                   plan_first: Callable[[PartitionListing], PartitionPlan | None] | None = None
                   ) -> _Log:
    """Loads a partition directory with `load`, which gets the arguments of `open_log.load_state`.
    Returns its result.

    `segments` checks the segments at its level and scans ahead of a recovery; `progress` is
    notified. `disk` is the directory itself or an overlay; None leaves the choice to `load`. A plan
    of `plan_first` replaces the checks. Raises the exceptions of `load`.
    """
    def check(listing: PartitionListing) -> PartitionPlan:
        progress.listed(listing)
        plan = None if plan_first is None else plan_first(listing)
        if plan is None:
            plan = segments.check(listing, progress.checked)
        progress.planned(plan)
        if not segments.checks_entries:
            return plan
        return without_wrong_indexes(
            plan, None if inputs.clean_shutdown else inputs.recovery_point, disk)

    where: dict[str, Any] = {} if disk is None else {"disk": disk}
    progress.started()
    with segments.scans() as scans:
        return load(path, inputs, check=check, listener=progress, remaining=progress.remaining,
                    scans=scans, **where)
