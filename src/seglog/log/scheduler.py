"""The clock and delayed tasks of logs and their manager.

Kafka's Time, KafkaScheduler, MockTime and MockScheduler.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable

from seglog.arguments import int64, shown
from seglog.arguments import threads as thread_count
from seglog.forks import ProcessBound, ending

__all__ = ["MockScheduler", "MockTime", "ScheduledTask", "Scheduler", "Time"]

_log = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000
#: A task with this period runs once.
ONCE = -1


class Time:
    """The clock of the system (Kafka: Time)."""

    def milliseconds(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // _NS_PER_MS

    def nanoseconds(self) -> int:
        """Nanoseconds since an arbitrary start; never goes back."""
        return time.monotonic_ns()

    def sleep(self, ms: int) -> None:
        """Sleeps for `ms` milliseconds."""
        time.sleep(ms / 1000)


class ScheduledTask(ProcessBound):
    """A task that a scheduler has accepted, or refused (then it counts as cancelled)."""

    def __init__(self, name: str, run: Callable[[], object], due_ns: int, period_ns: int) -> None:
        self.name = name
        self._run: Callable[[], object] | None = run
        self._due_ns, self._period_ns = due_ns, period_ns
        self._done = False
        self._running = threading.RLock()

    def __repr__(self) -> str:
        return f"ScheduledTask({self.name!r})"

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled before it was done."""
        return self._run is None and not self._done

    @property
    def done(self) -> bool:
        """Whether it will not run (again)."""
        return self._run is None

    @ending
    def cancel(self) -> None:
        """Prevents further runs; does not interrupt a running one."""
        self._run = None

    @ending
    def join(self) -> None:
        """Waits until it is not running; returns at once in the task's own thread."""
        with self._running:
            pass

    def _execute(self) -> bool:
        """Runs it. Returns whether it is to run again. Exceptions are only logged."""
        with self._running:
            run = self._run
            if run is None:
                return False
            try:
                run()
            except Exception as error:
                _log.error("Uncaught exception in scheduled task '%s'", self.name, exc_info=error)
        if self._period_ns > 0:
            self._due_ns += self._period_ns
            return self._run is not None
        self._done, self._run = True, None
        return False


class _TaskQueue:
    """Tasks by time, then by submission. The caller holds the lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ScheduledTask]] = []
        self._submitted = 0

    def push(self, task: ScheduledTask) -> None:
        heapq.heappush(self._heap, (task._due_ns, self._submitted, task))
        self._submitted += 1

    def next_due_ns(self) -> int | None:
        """The time of the first task that is not cancelled; None if there is none."""
        while self._heap and self._heap[0][2].done:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ns: int) -> ScheduledTask | None:
        """Removes and returns the first task if it is due."""
        due = self.next_due_ns()
        return heapq.heappop(self._heap)[2] if due is not None and due <= now_ns else None

    def waiting(self) -> list[ScheduledTask]:
        """All tasks that are not cancelled, in the order in which they will run."""
        return [task for _, _, task in sorted(self._heap) if not task.done]

    def clear(self) -> None:
        """Cancels all."""
        for _, _, task in self._heap:
            task.cancel()
        self._heap.clear()


class Scheduler(ProcessBound):
    """Runs named tasks later or periodically, by a few threads (Kafka: KafkaScheduler).

    Threads `kafka-scheduler-<n>` are daemons and start with the first tasks. A periodic task keeps
    its schedule, never runs twice at once, and continues after an exception, which is logged. Safe
    from any thread.
    """

    def __init__(self, threads: int = 1, *,
                 thread_name_prefix: str = "kafka-scheduler-") -> None:
        self._size, self._prefix = thread_count("threads", threads), thread_name_prefix
        self._queue = _TaskQueue()
        self._threads: set[threading.Thread] = set()
        self._thread_number = 0
        self._started = False
        self._changed = threading.Condition(threading.RLock())

    # ---- life

    @property
    def is_started(self) -> bool:
        """True between `startup` and `shutdown`."""
        return self._started

    def startup(self) -> None:
        """Starts to accept tasks. Raises RuntimeError if it was started already."""
        _log.debug("Initializing task scheduler.")
        with self._changed:
            if self._started:
                raise RuntimeError("This scheduler has already been started.")
            self._started = True

    @ending
    def shutdown(self) -> None:
        """Drops tasks that have not begun and waits for those that have; a second call does
        nothing."""
        _log.debug("Shutting down task scheduler.")
        with self._changed:
            self._started = False
            self._queue.clear()
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()

    def resize_thread_pool(self, threads: int) -> None:
        """Changes the number of threads (`background.threads`)."""
        thread_count("threads", threads)
        with self._changed:
            self._size = threads
            self._changed.notify_all()
            self._start_threads(len(self._queue.waiting()))

    # ---- tasks

    def schedule(self, name: str, task: Callable[[], object], delay_ms: int = 0,
                 period_ms: int = ONCE) -> ScheduledTask:
        """Runs `task()` after `delay_ms`, and then every `period_ms` if that is positive.

        A scheduler that is not running ignores the task and logs that.
        """
        if not callable(task):
            raise TypeError(f"task must be callable, not {shown(task)}")
        int64("delay_ms", delay_ms)
        int64("period_ms", period_ms)
        _log.debug("Scheduling task %s with initial delay %d ms and period %d ms.", name, delay_ms,
                   period_ms)
        scheduled = ScheduledTask(name, task, self._now_ns() + max(delay_ms, 0) * _NS_PER_MS,
                                  period_ms * _NS_PER_MS)
        with self._changed:
            if not self._started:
                _log.info("Kafka scheduler is not running at the time task '%s' is scheduled. The "
                          "task is ignored.", name)
                scheduled.cancel()
                return scheduled
            self._queue.push(scheduled)
            is_next = self._queue.next_due_ns() == scheduled._due_ns
        self._task_added(is_next)
        return scheduled

    def schedule_once(self, name: str, task: Callable[[], object],
                      delay_ms: int = 0) -> ScheduledTask:
        """Runs `task()` once, after `delay_ms`."""
        return self.schedule(name, task, delay_ms, ONCE)

    @property
    def pending_tasks(self) -> list[str]:
        """Names of the waiting tasks, in order."""
        with self._changed:
            return [task.name for task in self._queue.waiting()]

    def _now_ns(self) -> int:
        return time.monotonic_ns()

    def _task_added(self, is_next: bool) -> None:
        """Wakes a thread; threads that wait for an earlier task check this one after that."""
        with self._changed:
            self._start_threads(1)
            if is_next:
                self._changed.notify()

    # ---- threads

    def _start_threads(self, wanted: int) -> None:
        while self._started and wanted > 0 and len(self._threads) < self._size:
            thread = threading.Thread(target=self._work, daemon=True,
                                      name=f"{self._prefix}{self._thread_number}")
            thread.start()  # which fails if the system has no thread for this process
            self._thread_number += 1
            wanted -= 1
            self._threads.add(thread)

    def _work(self) -> None:
        try:
            while (task := self._take()) is not None:
                again = task._execute()
                with self._changed:
                    if again and self._started:
                        self._queue.push(task)
                del task
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _take(self) -> ScheduledTask | None:
        """The next due task; None if this thread is to end."""
        with self._changed:
            while self._started and len(self._threads) <= self._size:
                now = self._now_ns()
                task = self._queue.pop_due(now)
                if task is not None:
                    if self._queue.next_due_ns() is not None:
                        self._changed.notify()  # another thread waits for the next instead
                    return task
                due = self._queue.next_due_ns()
                self._changed.wait(None if due is None else min((due - now) / 1e9,
                                                                threading.TIMEOUT_MAX))
            # Not counted any more, so that the next thread sees how many are left.
            self._threads.discard(threading.current_thread())
            return None


class MockTime(Time):
    """A clock that the caller moves (Kafka: MockTime); its `scheduler` follows it.

    Each reading advances it by `auto_tick_ms`.
    """

    def __init__(self, auto_tick_ms: int = 0, current_time_ms: int | None = None) -> None:
        self._ms = Time.milliseconds(self) if current_time_ms is None else current_time_ms
        self._ns = Time.nanoseconds(self)
        self._auto_tick_ms = auto_tick_ms
        self._lock = threading.Lock()
        self.scheduler = MockScheduler(self)

    def _advance(self, ms: int) -> None:
        with self._lock:
            self._ms += ms
            self._ns += ms * _NS_PER_MS

    def milliseconds(self) -> int:
        """See Time."""
        if self._auto_tick_ms:
            self.sleep(self._auto_tick_ms)
        return self._ms

    def nanoseconds(self) -> int:
        """See Time."""
        if self._auto_tick_ms:
            self.sleep(self._auto_tick_ms)
        return self._ns

    def sleep(self, ms: int) -> None:
        """Advances the clock, and runs the due tasks in this thread."""
        self._advance(ms)
        self.scheduler.tick()

    def set_current_time_ms(self, ms: int) -> None:
        """Sets the clock, later or earlier; runs due tasks."""
        self._advance(ms - self._ms)
        self.scheduler.tick()


class MockScheduler(Scheduler):
    """Runs tasks in the thread that moves its clock or adds a due task (Kafka: MockScheduler). It
    is started from the beginning, has no threads, and drops waiting tasks at its shutdown."""

    def __init__(self, clock: MockTime) -> None:
        super().__init__(0)
        self._clock = clock
        self._started = True

    def startup(self) -> None:
        """Accepts tasks, as before."""
        self._started = True

    def tick(self) -> None:
        """Runs the due tasks, in order of time, then of submission."""
        while True:
            with self._changed:
                task = self._queue.pop_due(self._now_ns())
            if task is None:
                return
            if task._execute():
                with self._changed:
                    self._queue.push(task)

    def _now_ns(self) -> int:
        return self._clock._ms * _NS_PER_MS

    def _task_added(self, is_next: bool) -> None:
        self.tick()
