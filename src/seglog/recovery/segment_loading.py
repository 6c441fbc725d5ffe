"""Phase one of a load, in parallel on request (KIP-1346)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from seglog._native.scan import PartitionListing, SegmentChecks
from seglog.recovery.worker_pool import WorkerPool
from seglog.recovery.partition_plan import (
    LoadLevel, PartitionPlan, check_chunk, chunks_of, join_chunks,
)
from seglog.recovery.scans import SegmentScans

__all__ = ["SegmentLoading"]

_T = TypeVar("_T")
Progress = Callable[[int, int], None]  # segments, number of the thread that checked them

# Results per thread that wait for the caller.
_AHEAD = 8


class SegmentLoading:
    """Opens and checks the segments of the partitions of one data directory.

    With one thread there is no executor: the calling thread does the work. With more, a pool shared
    by all partitions of the directory takes chunks of a partition, and the caller waits. The result
    is the same either way, problems in order of offset. Safe from any thread.
    """

    def __init__(self, log_dir: str, threads: int, level: LoadLevel) -> None:
        self._level = level
        self.threads = threads
        #: The executor; None with one thread.
        self.pool = WorkerPool(threads, f"segment-loading-{log_dir}") if threads > 1 else None

    def resize(self, threads: int) -> None:
        """Changes the number of threads. A load that began without an executor stays without
        one."""
        self.threads = threads
        if self.pool is not None:
            self.pool.resize(threads)

    def run(self, tasks: Iterable[Callable[[], _T]]) -> Iterator[tuple[_T, int]]:
        """Yields (result, thread number) of each task, in their order. A bounded number of results
        waits."""
        if self.pool is None:
            for task in tasks:
                yield task(), 0
            return
        waiting: deque[Future[tuple[_T, int]]] = deque()
        try:
            for task in tasks:
                waiting.append(self.pool.submit(partial(_numbered, task)))
                if len(waiting) >= self.threads * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def check(self, listing: PartitionListing, progress: Progress) -> PartitionPlan:
        """Runs phase one for a partition. Raises KafkaStorageError if its directory cannot be
        opened."""
        chunks: list[SegmentChecks] = []
        for checks, thread in self.run(partial(check_chunk, listing, start, stop, self._level)
                                       for start, stop in chunks_of(listing)):
            chunks.append(checks)
            if len(checks.status):
                progress(len(checks.status), thread)
        return join_chunks(listing, chunks)

    def scans(self) -> SegmentScans:
        """Scans ahead of the recovery of one log, by the same threads if there are any."""
        return SegmentScans(self.pool, self.threads)

    def close(self) -> None:
        """Ends the threads."""
        if self.pool is not None:
            self.pool.shutdown(cancel=True)


def _numbered(task: Callable[[], _T]) -> tuple[_T, int]:
    return task(), WorkerPool.thread_number()
