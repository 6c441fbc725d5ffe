"""The threads that read remote segments (Kafka: RemoteStorageThreadPool)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from seglog.errors import RetriableRemoteStorageError
from seglog.log.scheduler import Scheduler
from seglog.metrics import MetricsRegistry

__all__ = ["ReaderPool"]

_T = TypeVar("_T")


class ReaderPool:
    """Runs reads in `threads` threads; at most `pending_max` more wait. Safe from any thread."""

    def __init__(self, threads: int, pending_max: int, metrics: MetricsRegistry) -> None:
        self._threads, self._pending_max, self._metrics = threads, pending_max, metrics
        self._scheduler = Scheduler(threads, thread_name_prefix="remote-log-reader-")
        self._scheduler.startup()
        self._lock = threading.Lock()
        self._pending: set[Future[object]] = set()  # including running ones
        self._gauges = metrics.group("kafka.log.remote", "RemoteStorageThreadPool").gauges({
            "RemoteLogReaderTaskQueueSize": self._waiting,
            "RemoteLogReaderAvgIdlePercent": self._idle}, {})

    def _waiting(self) -> int:
        return max(len(self._pending) - self._threads, 0)

    def _idle(self) -> float:
        return 1 - min(len(self._pending), self._threads) / self._threads

    def submit(self, name: str, read: Callable[[], _T]) -> Future[_T]:
        """Runs `read()` in a thread. A future that is cancelled before that never runs.

        Raises RetriableRemoteStorageError if all threads are busy and `pending_max` reads wait.
        """
        future: Future[_T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                found = read()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(found)

        with self._lock:
            if len(self._pending) >= self._threads + self._pending_max:
                raise RetriableRemoteStorageError(
                    f"Unable to fetch data from remote storage for {name}: {self._pending_max} "
                    "reads are pending")
            self._pending.add(future)  # type: ignore[arg-type]
        future.add_done_callback(self._ended)
        if self._scheduler.schedule_once(name, run).done and not future.done():
            future.cancel()  # the pool was closed
        return future

    def _ended(self, future: Future[_T]) -> None:
        with self._lock:
            self._pending.discard(future)

    def resize(self, threads: int) -> None:
        """Changes the number of threads (`remote.log.reader.threads`)."""
        self._scheduler.resize_thread_pool(threads)
        self._threads = threads

    def close(self) -> None:
        """Cancels waiting reads, and waits for running ones."""
        with self._lock:
            pending = list(self._pending)
        for future in pending:
            future.cancel()
        self._scheduler.shutdown()
        self._metrics.remove_all(self._gauges)
