"""Phase one of a load inside a partition, in parallel on request (KIP-1346)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial

from seglog._native.scan import PartitionListing, SegmentChecks
from seglog.recovery.worker_pool import WorkerPool
from seglog.recovery.partition_plan import (
    LoadLevel, PartitionPlan, check_chunk, chunks_of, join_chunks,
)
from seglog.recovery.scans import SegmentScans

__all__ = ["SegmentLoading"]

Progress = Callable[[int, int], None]  # segments, number of the thread that checked them


class SegmentLoading:
    """Opens and checks the segments of the partitions of one data directory.

    With one thread there is no executor: the calling thread does the work. With more, a pool shared
    by all partitions of the directory takes chunks of a partition, and the caller waits. The result
    is the same either way, problems in order of offset. Safe from any thread.
    """

    def __init__(self, log_dir: str, threads: int, level: LoadLevel) -> None:
        self._name, self._level = f"segment-loading-{log_dir}", level
        self._threads = threads
        self._pool = WorkerPool(threads, self._name) if threads > 1 else None

    @property
    def checks_entries(self) -> bool:
        """Whether every entry of every index is checked, not only what Kafka checks."""
        return self._level is not LoadLevel.KAFKA

    def resize(self, threads: int) -> None:
        """Changes the number of threads. A load that began without an executor stays without
        one."""
        self._threads = threads
        if self._pool is not None:
            self._pool.resize(threads)

    def check(self, listing: PartitionListing, progress: Progress) -> PartitionPlan:
        """Runs phase one for a partition. Raises KafkaStorageError if its directory cannot be
        opened."""
        chunks: list[SegmentChecks] = []
        for checks, thread in self._run(listing):
            chunks.append(checks)
            progress(len(checks.status), thread)
        if not chunks:
            chunks.append(check_chunk(listing, 0, 0, self._level))
        return join_chunks(listing, chunks)

    def scans(self) -> SegmentScans:
        """Scans ahead of the recovery of one log, by the same threads if there are any."""
        return SegmentScans(self._pool, self._threads)

    def _run(self, listing: PartitionListing) -> Iterator[tuple[SegmentChecks, int]]:
        pool = self._pool
        if pool is None:
            for start, stop in chunks_of(listing):
                yield check_chunk(listing, start, stop, self._level), 0
            return
        waiting: list[Future[tuple[SegmentChecks, int]]] = [
            pool.submit(partial(self._chunk, listing, start, stop))
            for start, stop in chunks_of(listing)]
        try:
            for future in waiting:
                yield future.result()
        finally:
            for future in waiting:
                future.cancel()

    def _chunk(self, listing: PartitionListing, start: int,
               stop: int) -> tuple[SegmentChecks, int]:
        return check_chunk(listing, start, stop, self._level), WorkerPool.thread_number()

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel=True)
