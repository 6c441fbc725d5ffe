"""Runs the checks that a load deferred, by background threads or readers (KIP-263)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import numpy as np

from seglog._native.scan import HAS_TXN_INDEX
from seglog.forks import ProcessBound, ending
from seglog.log.unified_log import UnifiedLog
from seglog.recovery.worker_pool import WorkerPool
from seglog.manager.table import dir_of
from seglog.recovery.deferred_checks import DeferredChecks
from seglog.storage.handles import (
    FILES_PER_SEGMENT, SEGMENTS_OPEN_MAX, Closable, HandleCache,
)
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import offset_from_file_name

__all__ = ["BackgroundChecks", "open_reader"]

_T = TypeVar("_T", bound=Closable)


class BackgroundChecks(ProcessBound):
    """Threads for each data directory, created when its first log is to be checked."""

    def __init__(self) -> None:
        self._pools: dict[str, WorkerPool] = {}
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, log: UnifiedLog, threads: int) -> Future[None] | None:
        """Checks all segments of a log in the background; None if nothing is left to check, or
        after `close`."""
        checks, log_dir = log.deferred_checks, dir_of(log)
        if checks is None or not checks.remaining:
            return None
        with self._lock:
            if self._closed:
                return None
            pool = self._pools.get(log_dir)
            if pool is None:
                pool = self._pools[log_dir] = WorkerPool(threads, f"segment-check-{log_dir}")
        return pool.submit(checks.ensure_all)

    def resize(self, threads: int) -> None:
        """Changes the number of threads of each directory."""
        with self._lock:
            for pool in self._pools.values():
                pool.resize(threads)

    @ending
    def close(self) -> None:
        """Starts no further log, and waits for those that are being checked."""
        with self._lock:
            self._closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(cancel=True)


class _CheckedHandles(HandleCache):
    """Checks a segment before a reader gets one of its files."""

    def __init__(self, checks: DeferredChecks) -> None:
        super().__init__(SEGMENTS_OPEN_MAX * FILES_PER_SEGMENT)
        self._checks = checks

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: the checks belong to the manager."""
        raise TypeError("cannot pickle a log that LogManager.open_log opened while segments are "
                        "still to be checked; open its path with seglog.PartitionLog.open")

    @contextmanager
    def pin(self, key: tuple[int, str], opener: Callable[[str], _T]) -> Iterator[_T]:
        """See HandleCache."""
        self._checks.ensure_offset(offset_from_file_name(os.path.basename(key[1])))
        with super().pin(key, opener) as value:
            yield value


def open_reader(log: UnifiedLog) -> PartitionLog:
    """Opens the log for reading. The first thread that reads a segment checks it, if that was
    deferred; segments with a transaction index are checked here.

    Raises KafkaStorageError, and the exceptions of a recovery.
    """
    checks = log.deferred_checks
    if checks is None:
        return PartitionLog.open(log.path, log_start_offset=log.log_start_offset,
                                 topic_partition=log.topic_partition)
    reader = PartitionLog(log.path, _CheckedHandles(checks), log.log_start_offset,
                          log.topic_partition, None)
    for row in np.flatnonzero(reader.segments.flags & HAS_TXN_INDEX).tolist():
        checks.ensure_offset(int(reader.segments.base_offsets[row]))
    return reader
