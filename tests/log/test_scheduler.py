"""Schedulers: times, order, failures, and their end; the mock and the one with threads alike."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any

import pytest

from seglog.errors import IllegalArgumentError
from seglog.log.scheduler import MockScheduler, MockTime, Scheduler, Time
from tests.support.waiting import wait_for

DEADLINE_SECONDS = 120.0


def test_the_clock_of_the_system() -> None:
    clock = Time()
    earliest = time.time_ns() // 1_000_000
    assert earliest <= clock.milliseconds() <= time.time_ns() // 1_000_000
    before = clock.nanoseconds()
    clock.sleep(2)
    assert clock.nanoseconds() - before >= 2_000_000


# ---- the mock


def test_mock_time_stands_still_until_it_is_moved() -> None:
    clock = MockTime(current_time_ms=1_000)
    start = clock.nanoseconds()
    assert clock.milliseconds() == clock.milliseconds() == 1_000
    clock.sleep(5)
    assert clock.milliseconds() == 1_005
    assert clock.nanoseconds() - start == 5_000_000
    ran: list[str] = []
    clock.scheduler.schedule_once("later", lambda: ran.append("later"), 10)
    clock.set_current_time_ms(900)
    assert clock.milliseconds() == 900 and not ran
    clock.set_current_time_ms(1_015)
    assert ran == ["later"]
    clock.scheduler.shutdown()
    clock.scheduler.startup()
    clock.scheduler.schedule_once("again", lambda: ran.append("again"))
    assert ran == ["later", "again"]


def test_mock_time_that_ticks_at_each_look() -> None:
    clock = MockTime(auto_tick_ms=3, current_time_ms=0)
    assert [clock.milliseconds(), clock.milliseconds()] == [3, 6]
    start = clock.nanoseconds()
    assert clock.nanoseconds() - start == 3_000_000 and clock.milliseconds() == 15


def test_tasks_run_by_time_and_then_by_submission() -> None:
    clock = MockTime(current_time_ms=0)
    ran: list[str] = []
    for name, delay in (("c", 20), ("a", 10), ("d", 20), ("b", 10)):
        clock.scheduler.schedule_once(name, lambda name=name: ran.append(name), delay)
    assert clock.scheduler.pending_tasks == ["a", "b", "c", "d"]
    clock.sleep(9)
    assert ran == []
    clock.sleep(100)
    assert ran == ["a", "b", "c", "d"]


def test_a_task_that_is_due_runs_at_once_in_the_callers_thread() -> None:
    clock = MockTime()
    ran: list[threading.Thread] = []
    task = clock.scheduler.schedule_once("now", lambda: ran.append(threading.current_thread()))
    assert ran == [threading.current_thread()]
    assert task.done and not task.cancelled


def test_a_periodic_task_makes_up_for_what_it_missed() -> None:
    clock = MockTime(current_time_ms=0)
    times: list[int] = []
    task = clock.scheduler.schedule("again", lambda: times.append(1), 5, 10)
    clock.sleep(4)
    assert not times
    clock.sleep(31)  # 5, 15, 25, 35
    assert len(times) == 4
    task.cancel()
    clock.sleep(100)
    assert len(times) == 4 and task.cancelled and not clock.scheduler.pending_tasks


def test_a_task_without_a_period_runs_once() -> None:
    clock = MockTime(current_time_ms=0)
    runs: list[bool] = []

    def run() -> None:
        if runs:
            task.cancel()
        runs.append(True)

    task = clock.scheduler.schedule("once", run, 1, 0)
    clock.sleep(2)
    assert runs == [True] and task.done and not task.cancelled


def test_a_task_may_schedule_another() -> None:
    clock = MockTime(current_time_ms=0)
    ran: list[int] = []

    def again() -> None:
        ran.append(clock.milliseconds())
        clock.scheduler.schedule_once("again", again, 7)

    clock.scheduler.schedule_once("again", again, 7)
    clock.sleep(7)
    clock.sleep(7)
    assert ran == [7, 14]


@pytest.mark.parametrize("mock", [True, False])
def test_an_exception_is_logged_and_the_period_goes_on(
        mock: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = MockTime(current_time_ms=0)
    scheduler = clock.scheduler if mock else Scheduler()
    if not mock:
        scheduler.startup()
    ran: list[int] = []
    third = threading.Event()

    def fail() -> None:
        ran.append(1)
        if len(ran) == 3:
            third.set()
        raise ValueError("no good")

    with caplog.at_level(logging.ERROR, "seglog"):
        scheduler.schedule("fails", fail, 1, 1)
        if mock:
            clock.sleep(3)
        assert third.wait(DEADLINE_SECONDS)
        scheduler.shutdown()
    messages = [record.getMessage() for record in caplog.records]
    assert messages[:3] == ["Uncaught exception in scheduled task 'fails'"] * 3


# ---- threads


def test_threads_are_daemons_with_kafkas_names() -> None:
    scheduler = Scheduler(2)
    scheduler.startup()
    together = threading.Barrier(3)
    found: list[tuple[str, bool]] = []

    def run() -> None:
        together.wait(DEADLINE_SECONDS)
        thread = threading.current_thread()
        found.append((thread.name, thread.daemon))

    for _ in range(2):
        scheduler.schedule_once("named", run)
    together.wait(DEADLINE_SECONDS)
    scheduler.shutdown()
    assert sorted(found) == [("kafka-scheduler-0", True), ("kafka-scheduler-1", True)]


def test_a_thread_starts_with_each_task_until_there_are_all() -> None:
    def count() -> int:
        return sum(one.name.startswith("few-") for one in threading.enumerate())

    scheduler = Scheduler(2, thread_name_prefix="few-")
    scheduler.startup()
    counts = [count()]
    for _ in range(3):
        scheduler.schedule_once("late", list, 3_600_000)
        counts.append(count())
    scheduler.shutdown()
    assert [*counts, count()] == [0, 1, 2, 2, 0]


def test_an_earlier_task_overtakes_one_that_waits() -> None:
    scheduler = Scheduler()
    scheduler.startup()
    done = threading.Event()
    ran: list[str] = []
    scheduler.schedule_once("late", lambda: ran.append("late"), 3_600_000)
    scheduler.schedule_once("soon", lambda: (ran.append("soon"), done.set()), 10)
    assert done.wait(DEADLINE_SECONDS)
    assert ran == ["soon"] and scheduler.pending_tasks == ["late"]
    scheduler.shutdown()
    assert ran == ["soon"]


def test_no_task_waits_for_another_while_a_thread_is_idle() -> None:
    scheduler, together = Scheduler(2), threading.Barrier(3)
    scheduler.startup()
    for _ in range(2):
        with scheduler._changed:  # the second one comes before a thread wakes for the first one
            for _ in range(2):
                scheduler.schedule_once("together", lambda: together.wait(DEADLINE_SECONDS))
        together.wait(DEADLINE_SECONDS)
        wait_for(lambda: len(scheduler._changed._waiters) == 2)  # type: ignore[attr-defined]
    scheduler.shutdown()


def test_a_task_that_is_never_due() -> None:
    """`log.flush.scheduler.interval.ms` is Long.MAX_VALUE: no thread can wait for so long at once.
    It ended, and a task that came just then never ran."""
    scheduler, names = Scheduler(1), list[str]()
    scheduler.startup()
    try:
        scheduler.schedule("never", lambda: None, (1 << 63) - 1)
        time.sleep(.1)
        scheduler.schedule_once("now", lambda: names.append(threading.current_thread().name))
        wait_for(lambda: names)
        assert names == ["kafka-scheduler-0"]
    finally:
        scheduler.shutdown()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_task_that_ends_its_thread() -> None:
    """Another thread runs the next one."""
    scheduler, ran = Scheduler(1), threading.Event()
    scheduler.startup()
    scheduler.schedule_once("exit", sys.exit)
    wait_for(lambda: not scheduler._threads)
    scheduler.schedule_once("next", ran.set)
    assert ran.wait(DEADLINE_SECONDS)
    scheduler.shutdown()


def test_a_periodic_task_never_runs_twice_at_once() -> None:
    scheduler = Scheduler(4)
    scheduler.startup()
    inside, most, runs = 0, 0, threading.Semaphore(0)

    def run() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.003)
        inside -= 1
        runs.release()

    scheduler.schedule("slow", run, 0, 1)
    for _ in range(10):
        assert runs.acquire(timeout=DEADLINE_SECONDS)
    scheduler.shutdown()
    assert most == 1


def test_shutdown_waits_for_what_runs_and_drops_the_rest() -> None:
    scheduler = Scheduler()
    scheduler.startup()
    begun, ran = threading.Event(), []

    def slow() -> None:
        begun.set()
        wait_for(lambda: not scheduler.is_started)
        time.sleep(0.05)  # what was due meanwhile is dropped too
        ran.append("slow")

    scheduler.schedule_once("slow", slow)
    dropped = scheduler.schedule_once("dropped", lambda: ran.append("dropped"), 20)
    assert begun.wait(DEADLINE_SECONDS)
    scheduler.shutdown()
    assert ran == ["slow"] and dropped.cancelled
    scheduler.shutdown()


@pytest.mark.parametrize("scheduler", [Scheduler(), MockScheduler(MockTime())])
def test_a_scheduler_that_does_not_run_ignores_tasks(
        scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    scheduler.shutdown()
    with caplog.at_level(logging.INFO, "seglog"):
        task = scheduler.schedule_once("ignored", pytest.fail)
    assert task.done and task.cancelled
    assert caplog.messages[-1] == ("Kafka scheduler is not running at the time task 'ignored' is "
                                   "scheduled. The task is ignored.")


def test_it_starts_once_and_again_after_a_shutdown() -> None:
    scheduler = Scheduler()
    scheduler.startup()
    with pytest.raises(RuntimeError, match="already been started"):
        scheduler.startup()
    scheduler.shutdown()
    scheduler.startup()
    ran = threading.Event()
    scheduler.schedule_once("second life", ran.set)
    assert ran.wait(DEADLINE_SECONDS)
    scheduler.shutdown()


def test_a_task_may_shut_its_scheduler_down() -> None:
    scheduler = Scheduler()
    scheduler.startup()
    done = threading.Event()
    scheduler.schedule_once("end", lambda: (scheduler.shutdown(), done.set()))
    assert done.wait(DEADLINE_SECONDS)
    assert not scheduler.is_started


@pytest.mark.parametrize("resized_first", [False, True])
def test_more_threads_and_fewer(resized_first: bool) -> None:
    scheduler = Scheduler(1)
    scheduler.startup()
    all_in = threading.Barrier(3)
    if resized_first:
        scheduler.resize_thread_pool(3)
    for _ in range(3):
        scheduler.schedule_once("together", lambda: all_in.wait(DEADLINE_SECONDS))
    if not resized_first:
        wait_for(lambda: len(scheduler.pending_tasks) == 2)
        scheduler.resize_thread_pool(3)
    with pytest.raises(IllegalArgumentError, match="threads must be"):
        scheduler.resize_thread_pool(-1)
    wait_for(lambda: not scheduler.pending_tasks)
    scheduler.resize_thread_pool(1)
    names: set[str] = set()
    done = threading.Semaphore(0)
    for _ in range(20):
        scheduler.schedule_once("alone", lambda: (names.add(threading.current_thread().name),
                                                  done.release()))
    for _ in range(20):
        assert done.acquire(timeout=DEADLINE_SECONDS)
    scheduler.shutdown()
    assert not all_in.broken and names


def test_idle_threads_end_until_few_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting() -> int:
        return len(scheduler._changed._waiters)  # type: ignore[attr-defined]

    def take_and_end_slowly() -> Any:
        if (task := take()) is None:
            time.sleep(.02)
        return task

    scheduler = Scheduler(4)
    take = scheduler._take
    monkeypatch.setattr(scheduler, "_take", take_and_end_slowly)
    scheduler.startup()
    for _ in range(4):
        scheduler.schedule_once("late", list, 3_600_000)
    wait_for(lambda: waiting() == 4)
    scheduler.resize_thread_pool(2)
    wait_for(lambda: waiting() == len(scheduler._threads) == 2)
    scheduler.shutdown()


@pytest.mark.parametrize("times", [{"delay_ms": 1 << 63}, {"period_ms": 1 << 63},
                                   {"delay_ms": -(1 << 63) - 1}, {"period_ms": -(1 << 63) - 1}])
def test_times_of_a_task_have_the_width_of_javas(times: dict[str, int]) -> None:
    scheduler = MockTime().scheduler
    with pytest.raises(IllegalArgumentError, match=next(iter(times))):
        scheduler.schedule("task", list, **times)
    with pytest.raises(TypeError, match="task must be callable, not 7"):
        scheduler.schedule("task", 7)  # type: ignore[arg-type]
    assert not scheduler.pending_tasks
