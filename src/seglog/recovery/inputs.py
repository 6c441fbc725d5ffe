"""The inputs of a load of one log, and its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seglog.config import LogConfig
from seglog.model import TopicPartition
from seglog.storage.segment_table import floor_row

__all__ = ["OFFSET_MAX", "LoadInputs", "LoadOutcome", "Step", "wall_clock_ms"]

OFFSET_MAX = 2**63 - 1


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class LoadInputs:
    """What the data directory says about a log, and the settings that decide its recovery.

    `is_deleted`: a `-delete` directory, which is opened but not recovered. `is_recovered`: this
    start has recovered the log already, so it counts as clean, but is flushed only up to
    `recovery_point`.
    `producer_id_expiration_ms`: None keeps idle producers for ever. `clock` returns the current
    time.
    """

    topic_partition: TopicPartition
    clean_shutdown: bool
    log_start_offset: int
    recovery_point: int
    config: LogConfig
    is_deleted: bool = False
    is_remote: bool = False
    is_recovered: bool = False
    producer_id_expiration_ms: int | None = 86_400_000
    clock: Callable[[], int] = wall_clock_ms

    def first_scanned(self, base_offsets: npt.NDArray[np.int64]) -> int:
        """The row of the first segment that a start scans batch by batch: that of the recovery
        point, if the log is not clean. `len(base_offsets)` for none."""
        if self.clean_shutdown or self.is_deleted or self.recovery_point == OFFSET_MAX:
            return len(base_offsets)
        return max(floor_row(base_offsets, self.recovery_point), 0)


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The result that Kafka's loader reaches."""

    log_start_offset: int
    recovery_point: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """A file that pass four handles: a log to check (with its base offset), an index without a log,
    or (None) a name without a number."""

    name: str
    base_offset: int | None
    is_orphan: bool = False
