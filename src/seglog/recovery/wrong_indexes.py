"""Deletes indexes that do not fit their log, although Kafka would trust them.

`sanity.check.level=full` finds them: padded or never written ones (KAFKA-10207, 12734, 19200), and
entries that point beyond the log. Such an index is deleted, and the loader rebuilds it like a
missing one. An index holds nothing that the log does not.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from seglog._native.scan import HAS_INDEX, PROBLEM_DTYPE, FileClass
from seglog._native.status import Status
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.partition_plan import PartitionPlan
from seglog.storage.paths import index_name, log_name

__all__ = ["delete_index", "without_wrong_indexes", "wrong_rows"]

_log = logging.getLogger("seglog.manager.sanity")

_WRONG_INDEX = (
    Status.INDEX_SIZE, Status.INDEX_OFFSET_ORDER, Status.INDEX_POSITION_ORDER,
    Status.INDEX_TIME_ORDER, Status.INDEX_OFFSET_RANGE, Status.INDEX_POSITION_RANGE,
    Status.INDEX_PADDED, Status.INDEX_UNWRITTEN)
_INDEXES = (FileClass.INDEX, FileClass.TIME_INDEX)


def wrong_rows(problems: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Rows with an index that does not fit its log."""
    wrong = (np.isin(problems["status"], _WRONG_INDEX)
             & np.isin(problems["file"], _INDEXES))
    rows: npt.NDArray[np.int64] = np.unique(problems["row"][wrong])
    return rows


def delete_index(disk: Disk, base: int, problems: npt.NDArray[np.void]) -> None:
    """Deletes the offset index of a segment, which the loader then rebuilds."""
    causes = {Status(int(status)).code.replace("_", " ") for status in problems["status"]}
    _log.warning("Found a corrupted index file corresponding to log file %s due to %s, recovering "
                 "segment and rebuilding index files...", os.path.join(disk.path, log_name(base)),
                 ", ".join(sorted(causes)))
    disk.delete(index_name(base))


def without_wrong_indexes(plan: PartitionPlan, recovery_point: int | None,
                          disk: Disk | None = None) -> PartitionPlan:
    """Deletes the offset index of every segment with a wrong index from `disk` (None: from the
    directory itself). Returns the plan after that.

    Segments from `recovery_point` on (None after a clean shutdown) stay: they are recovered anyway.
    Raises OSError if an index cannot be deleted.
    """
    disk = disk or RealDisk(plan.path)
    bases = plan.segments.base_offsets
    rows = wrong_rows(plan.problems)
    if recovery_point is not None:
        rows = rows[rows < max(plan.segments.floor_row(recovery_point), 0)]
    if not len(rows):
        return plan
    for row in rows.tolist():
        delete_index(disk, int(bases[row]), plan.problems[plan.problems["row"] == row])
    missing = np.zeros(len(rows), PROBLEM_DTYPE)
    missing["row"], missing["status"] = rows, int(Status.FILE_MISSING)
    missing["file"] = int(FileClass.INDEX)
    flags = plan.segments.flags.copy()
    flags[rows] &= ~np.uint8(HAS_INDEX)
    problems = np.concatenate([plan.problems, missing])
    return replace(plan, segments=replace(plan.segments, flags=flags),
                   problems=problems[np.argsort(problems["row"], kind="stable")])
