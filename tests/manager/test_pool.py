"""The pool of threads: order, names, sizes that change."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import CancelledError

import pytest

from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.segment_loading import SegmentLoading
from seglog.recovery.worker_pool import WorkerPool
from tests.support.waiting import wait_for

WAIT = 120.0


def test_jobs_run_and_give_what_they_give() -> None:
    pool = WorkerPool(3, "work")
    futures = [pool.submit(lambda n=n: n * n) for n in range(50)]  # type: ignore[misc]
    assert [future.result(WAIT) for future in futures] == [n * n for n in range(50)]

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        pool.submit(fail).result(30)
    pool.shutdown()
    with pytest.raises(RuntimeError):
        pool.submit(fail)


def test_names_and_numbers_are_kafkas() -> None:
    pool = WorkerPool(2, "log-recovery-/data/k1")
    barrier = threading.Barrier(2)

    def who() -> tuple[str, int]:
        barrier.wait(WAIT)
        return threading.current_thread().name, WorkerPool.thread_number()

    found = {future.result(WAIT) for future in [pool.submit(who), pool.submit(who)]}
    pool.shutdown()
    assert found == {("log-recovery-/data/k1-0", 0), ("log-recovery-/data/k1-1", 1)}
    assert WorkerPool.thread_number() == -1


def busy(pool: WorkerPool, count: int, wanted: int) -> int:
    """How many of `count` jobs run at the same time; each waits until `wanted` did."""
    running = most = 0
    changed = threading.Condition()

    def job() -> None:
        nonlocal running, most
        with changed:
            running += 1
            most = max(most, running)
            changed.notify_all()
            changed.wait_for(lambda: most >= wanted, WAIT)
        time.sleep(0.01)  # for one too many
        with changed:
            running -= 1

    for future in [pool.submit(job) for _ in range(count)]:
        future.result(WAIT)
    return most


def test_the_size_changes_while_it_works() -> None:
    pool = WorkerPool(1, "work")
    assert busy(pool, 4, 1) == 1
    pool.resize(4)
    assert busy(pool, 12, 4) == 4
    pool.resize(2)
    assert busy(pool, 8, 2) == 2
    pool.shutdown()


def test_more_threads_take_jobs_that_wait_already() -> None:
    pool = WorkerPool(1, "work")
    started = threading.Semaphore(0)
    release = threading.Event()

    def job() -> None:
        started.release()
        release.wait(WAIT)

    futures = [pool.submit(job) for _ in range(3)]
    assert started.acquire(timeout=WAIT)
    assert not started.acquire(timeout=0.05)
    pool.resize(3)
    assert started.acquire(timeout=WAIT) and started.acquire(timeout=WAIT)
    release.set()
    for future in futures:
        future.result(WAIT)
    pool.shutdown()


def test_shutdown_waits_for_all_or_cancels_what_waits() -> None:
    done: list[int] = []
    pool = WorkerPool(1, "work")
    for n in range(5):
        pool.submit(lambda n=n: (time.sleep(0.005), done.append(n)))  # type: ignore[misc]
    pool.shutdown()
    assert done == [0, 1, 2, 3, 4]

    pool, begun, release = WorkerPool(1, "work"), threading.Event(), threading.Event()
    first = pool.submit(lambda: begun.set() or release.wait(WAIT))
    second = pool.submit(lambda: None)
    second.add_done_callback(lambda _: release.set())  # it is cancelled
    assert begun.wait(WAIT)
    pool.shutdown(cancel=True)
    assert first.result(0)
    with pytest.raises(CancelledError):
        second.result(0)


def test_quick_jobs_are_the_first_threads_alone() -> None:
    pool = WorkerPool(3, "work", quick_seconds=0.001, clock=lambda: 5.0)  # nothing takes time
    met = threading.Barrier(4)
    for _ in range(3):  # nothing is known yet: all take part
        pool.submit(lambda: met.wait(WAIT))
    numbers = [pool.submit(WorkerPool.thread_number) for _ in range(300)]
    met.wait(WAIT)
    pool.shutdown()
    assert [future.result() for future in numbers] == [0] * 300


def test_a_job_that_does_not_end_brings_the_others_in() -> None:
    pool = WorkerPool(2, "work", quick_seconds=0.001)
    release = threading.Event()
    for _ in range(20):
        pool.submit(int).result(WAIT)
    first = pool.submit(lambda: release.wait(WAIT))
    second = pool.submit(release.set)  # by the other thread; otherwise the first waits forever
    assert first.result(WAIT) is True and second.result(WAIT) is None
    pool.shutdown()


def test_slow_jobs_are_shared() -> None:
    seconds = itertools.count()
    pool = WorkerPool(2, "work", quick_seconds=0.5, clock=lambda: float(next(seconds)))
    for _ in range(5):
        met = threading.Barrier(2)
        for future in [pool.submit(lambda met=met: met.wait(WAIT))  # type: ignore[misc]
                       for _ in range(2)]:
            future.result(WAIT)
    pool.shutdown()


def test_a_thread_waits_for_its_next_job() -> None:
    pool = WorkerPool(3, "work")
    first = pool.submit(threading.current_thread).result(WAIT)
    wait_for(lambda: pool._idle > 0)
    again, threads = pool.submit(threading.current_thread).result(WAIT), len(pool._threads)
    pool.shutdown()
    assert again is first and threads == 1


def test_fewer_threads_end_at_once() -> None:
    """Not with the next job, which may never come."""
    pool = WorkerPool(3, "fewer-threads")
    assert busy(pool, 3, 3) == 3

    def alive() -> int:
        return sum(thread.name.startswith("fewer-threads") for thread in threading.enumerate())

    pool.resize(1)
    wait_for(lambda: alive() <= 1)
    pool.shutdown()


def test_the_end_of_a_directorys_load_cancels_what_waits() -> None:
    loading, begun, release = SegmentLoading("k", 2, LoadLevel.KAFKA), [], threading.Event()
    assert loading.pool is not None
    for _ in range(2):
        loading.pool.submit(lambda: begun.append(1) or release.wait(WAIT))
    wait_for(lambda: len(begun) == 2)
    waiting = loading.pool.submit(lambda: None)
    waiting.add_done_callback(lambda _: release.set())
    loading.close()
    assert waiting.cancelled()
