"""The tasks of tiered partitions, and the pools that repeat them (Kafka: RemoteLogManager)."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from seglog.log.scheduler import ScheduledTask, Scheduler
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.quotas import RemoteQuota
from seglog.remote_log.remote_task import FollowerTask, RemoteLogTask, TaskContext
from seglog.tiered.remote_records import TopicIdPartition

__all__ = ["PartitionTasks"]

#: Kinds of tasks by what settings call them, and what threads call these.
_NAMES: dict[type[RemoteLogTask], str] = {
    CopyTask: "copier", ExpirationTask: "expiration", FollowerTask: "follower"}
_THREADS = {"copier": "copy", "expiration": "expiration", "follower": "follower"}


class _Repeated:
    """A task that runs again `interval_ms` after the end of each run, but not beside a run of one
    of `before`."""

    def __init__(self, scheduler: Scheduler, name: str, task: RemoteLogTask, interval_ms: int,
                 before: Iterable[_Repeated]) -> None:
        self.task = task
        self._scheduler, self._name, self._interval_ms = scheduler, name, interval_ms
        self._before = list(before)
        self._lock, self._running = threading.RLock(), threading.RLock()
        self._next: ScheduledTask | None = None
        self._schedule(0)

    def _schedule(self, delay_ms: int) -> None:
        with self._lock:
            if not self.task.is_cancelled:
                scheduled = self._scheduler.schedule_once(self._name, self._run, delay_ms)
                if not scheduled.done:
                    self._next = scheduled

    def _run(self) -> None:
        with self._running:
            self._before = [one for one in self._before if not one.has_ended]
            if not self._before:
                self.task.run()
        self._schedule(self._interval_ms)

    def cancel(self) -> None:
        """Prevents further runs; one that runs ends at its next step."""
        self.task.cancel()
        with self._lock:
            if self._next is not None:
                self._next.cancel()

    @property
    def has_ended(self) -> bool:
        """Whether it will do nothing more."""
        if not self.task.is_cancelled or not self._running.acquire(blocking=False):
            return False
        self._running.release()
        return True

    def join(self) -> None:
        """Waits until it is not running; returns at once in the task's own thread."""
        with self._running:
            pass


class PartitionTasks:
    """The tasks of partitions by kind: at most one runs of a kind and partition. Thread-safe.

    A task that was cancelled may still copy or delete one segment: it counts until it has ended.
    """

    def __init__(self, context: TaskContext, copy_quota: RemoteQuota,
                 schedulers: tuple[Scheduler, Scheduler, Scheduler] | None) -> None:
        """`schedulers` (of copies, expirations, followers) run the tasks; without them there are
        pools of threads of the configured sizes."""
        self._context, self._copy_quota = context, copy_quota
        config = context.config
        sizes = {"copier": config.copier_thread_pool_size,
                 "expiration": config.expiration_thread_pool_size,
                 "follower": config.follower_thread_pool_size}
        self._sizes, self._owns_pools = sizes, schedulers is None
        #: The schedulers by what their tasks are called in settings.
        self.pools = dict(zip(sizes, schedulers or [
            Scheduler(size, thread_name_prefix=f"kafka-rlm-{_THREADS[name]}-thread-pool-")
            for name, size in sizes.items()], strict=True))
        if self._owns_pools:
            for pool in self.pools.values():
                pool.startup()
        self._lock = threading.RLock()
        self._tasks: dict[tuple[type[RemoteLogTask], TopicIdPartition], _Repeated] = {}
        self._cancelled: list[_Repeated] = []
        self._is_closed = False

    def of(self, key: TopicIdPartition) -> dict[type[RemoteLogTask], RemoteLogTask]:
        """The tasks of a partition that are not cancelled."""
        with self._lock:
            return {kind: one.task for (kind, its), one in self._tasks.items() if its == key}

    def copies_idle(self) -> float:
        """The share of the copying threads that are idle."""
        with self._lock:
            busy = sum(one.task.is_running for (kind, _), one in self._tasks.items()
                       if kind is CopyTask)
        return 1 - busy / self._sizes["copier"]

    def resize(self, name: str, threads: int) -> None:
        """Changes the number of threads of a pool."""
        self._sizes[name] = threads
        self.pools[name].resize_thread_pool(threads)

    def start(self, kind: type[RemoteLogTask], key: TopicIdPartition) -> None:
        """Repeats a task of that kind, if it is not repeated already."""
        with self._lock:
            if self._is_closed or (kind, key) in self._tasks:
                return
            if kind is CopyTask:
                task: RemoteLogTask = CopyTask(self._context, key, self._copy_quota)
            else:
                task = kind(self._context, key)
            name = _NAMES[kind]
            self._tasks[kind, key] = _Repeated(
                self.pools[name], f"rlm-{_THREADS[name]}-{key.topic}-{key.partition}", task,
                self._context.config.task_interval_ms,
                [one for one in self._still_running(key) if type(one.task) is kind])

    def _still_running(self, key: TopicIdPartition) -> list[_Repeated]:
        """Of those that were cancelled; forgets all that have ended. The caller holds the lock."""
        self._cancelled = [one for one in self._cancelled if not one.has_ended]
        return [one for one in self._cancelled if one.task.key == key]

    def cancel(self, key: TopicIdPartition, *kinds: type[RemoteLogTask]) -> None:
        """Prevents further runs of these kinds, without waiting for one that runs."""
        with self._lock:
            found = [self._tasks.pop((kind, key)) for kind in kinds if (kind, key) in self._tasks]
            self._cancelled += found
        for one in found:  # without the lock, which gauges take
            one.cancel()

    def stop(self, key: TopicIdPartition, *, waits: bool) -> None:
        """Cancels all tasks of a partition. With `waits`, for a deletion, none runs any more when
        this returns, not even one that was cancelled before, and no later one completes a copy."""
        self.cancel(key, CopyTask, ExpirationTask, FollowerTask)
        with self._lock:
            running = self._still_running(key)
        if waits:
            for one in running:
                one.join()
            self._context.unread.pop(key, None)

    def stop_copying(self, key: TopicIdPartition) -> None:
        """Cancels the copies of a partition, which lags no more."""
        found = self.of(key).get(CopyTask)
        self.cancel(key, CopyTask)
        if isinstance(found, CopyTask):
            found.reset_lag()

    def close(self) -> None:
        """Cancels all tasks, waits for those that run, and ends the pools if they are its own."""
        with self._lock:
            self._is_closed = True
            tasks = [*self._tasks.values(), *self._cancelled]
            self._tasks.clear()
        for one in tasks:
            one.cancel()
        if self._owns_pools:
            for pool in self.pools.values():
                pool.shutdown()
        for one in tasks:
            one.join()
