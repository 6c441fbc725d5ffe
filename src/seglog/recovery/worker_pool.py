"""A pool of threads whose size can change while it works."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from seglog.forks import ProcessBound, ending

__all__ = ["WorkerPool"]

_T = TypeVar("_T")
_local = threading.local()


class _Job(ProcessBound, Future[_T]):
    """A job of a pool. In a forked child no thread completes it, so no caller may wait there."""

    _called = "job of a pool"


class WorkerPool(ProcessBound):
    """Runs jobs in order of submission by threads `<name>-<n>`, n from 0 (or all are `<name>`).

    A thread starts when work waits and the pool has room. After `resize` to fewer, the threads with
    the highest numbers end after their current job. Safe from any thread.

    With `quick_seconds` all threads but the first pause as long as jobs take less than that. Such a
    job is almost only Python, of which one thread runs at a time, and two that wake each other at
    every system call are slower than one. As soon as one job takes longer, because it waits for a
    disk or works without the GIL, all threads take part.
    """

    def __init__(self, size: int, name: str, *, numbered: bool = True, quick_seconds: float = 0.0,
                 clock: Callable[[], float] = time.perf_counter) -> None:
        self.name, self._numbered = name, numbered
        self.size = size  # how many threads may run
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: dict[int, threading.Thread] = {}
        self._idle = 0
        self._quick_seconds, self._clock = quick_seconds, clock
        self._last_seconds = math.inf             # duration of the last job
        self._begun: dict[int, float] = {}        # when each thread began its job
        self._closed = False
        self._changed = threading.Condition()

    @staticmethod
    def thread_number() -> int:
        """The number of the calling thread in its pool; -1 for a thread of no pool."""
        return getattr(_local, "number", -1)

    def submit(self, job: Callable[[], _T]) -> Future[_T]:
        """Runs the job as soon as a thread is free."""
        future: Future[_T] = _Job()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the pool {self.name} is shut down")
            self._waiting.append((future, job))
            self._start_threads()
            self._changed.notify()
        return future

    def resize(self, size: int) -> None:
        """Changes the number of threads, for waiting jobs too."""
        with self._changed:
            self.size = size
            self._start_threads()
            self._changed.notify_all()

    def _start_threads(self) -> None:
        missing = len(self._waiting) - self._idle
        for number in range(self.size):
            if missing <= 0 or self._closed:
                return
            if number not in self._threads:
                name = f"{self.name}-{number}" if self._numbered else self.name
                thread = threading.Thread(target=self._work, args=(number,), name=name)
                self._threads[number] = thread
                thread.start()
                missing -= 1

    def _holds_back(self, number: int) -> bool:
        """Whether this thread leaves waiting jobs to the running threads."""
        now, quick = self._clock(), self._quick_seconds
        return (number > 0 and bool(self._begun) and self._last_seconds < quick
                and all(now - begun < quick for begun in self._begun.values()))

    def _work(self, number: int) -> None:
        _local.number = number
        while True:
            with self._changed:
                if (begun := self._begun.pop(number, None)) is not None:
                    self._last_seconds = self._clock() - begun
                self._idle += 1
                while number < self.size:
                    if self._waiting and self._holds_back(number):
                        self._changed.wait(self._quick_seconds)
                    elif self._waiting or self._closed:
                        break
                    else:
                        self._changed.wait()
                self._idle -= 1
                if not self._waiting or number >= self.size:
                    del self._threads[number]
                    self._changed.notify_all()
                    return
                future, job = self._waiting.popleft()
                self._begun[number] = self._clock()
            if future.set_running_or_notify_cancel():
                try:
                    result = job()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del future, job

    @ending
    def shutdown(self, cancel: bool = False) -> None:
        """Waits until all jobs are done; with `cancel` only for those that have begun."""
        with self._changed:
            self._closed = True
            if cancel:
                for future, _ in self._waiting:
                    future.cancel()
                    future.set_running_or_notify_cancel()  # notifies waiting callers
                self._waiting.clear()
            self._changed.notify_all()
            while self._threads:
                self._changed.wait()
