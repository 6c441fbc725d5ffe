"""Logs of small segments that move between the directories of a manager."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import seglog
from seglog.config import LogConfig
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.moves import FutureLogMover
from seglog.model import TopicPartition
from tests.manager.records import NOW_MS, fill

N0 = TopicPartition("new", 0)
SMALL = LogConfig(internal_segment_bytes=2_000, index_interval_bytes=200,
                  file_delete_delay_ms=500)


def manager_of(roots: list[Path], **how: Any) -> tuple[seglog.LogManager, MockTime]:
    clock = MockTime(current_time_ms=NOW_MS)
    return seglog.LogManager(roots, scheduler=clock.scheduler, time=clock, log_config=SMALL,
                             **how), clock


def new_log(manager: seglog.LogManager, root: Path, batches: int = 30) -> UnifiedLog:
    manager.maybe_update_preferred_log_dir(N0, root)
    log = manager.get_or_create_log(N0, topic_id=uuid.UUID(int=77 << 64))
    fill(log, batches)
    return log


def begin(manager: seglog.LogManager, root: Path) -> FutureLogMover:
    mover = manager.alter_replica_log_dir(N0, root)
    assert mover is not None
    return mover


def current(manager: seglog.LogManager) -> UnifiedLog:
    log = manager.get_log(N0)
    assert log is not None
    return log
