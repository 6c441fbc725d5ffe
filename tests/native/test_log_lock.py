"""`_native.log_lock`: the lock of a log."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from seglog._native.crc32c import crc32c
from seglog._native.log_lock import LogLock


def test_the_lock_excludes_other_threads_until_its_last_exit() -> None:
    lock, entered = LogLock(), threading.Event()

    def enter() -> None:
        assert not lock.is_mine
        with lock:
            entered.set()

    other = threading.Thread(target=enter)
    with lock, lock:
        other.start()
        lock.__exit__()
        assert lock.is_mine and not entered.wait(.2)
        lock.__enter__()
    assert entered.wait(60) and not lock.is_mine
    other.join()


def test_many_threads_hold_the_lock_one_after_the_other() -> None:
    lock, counts = LogLock(), [0]

    def count() -> None:
        for _ in range(2000):
            with lock, lock:
                before = counts[0]
                os.sched_yield()
                counts[0] = before + 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert counts == [8000]


def test_a_thread_that_takes_the_lock_in_a_loop_lets_another_in() -> None:
    """Also if it has the GIL whenever the lock is free, as one that appends in a loop."""
    lock, data, taken = LogLock(), bytes(20_000), 0
    over: list[bool] = []

    def loop() -> None:
        while not over:
            with lock:
                crc32c(data)  # without the GIL

    other, end = threading.Thread(target=loop), threading.Timer(10, over.append, [True])
    other.start()
    end.start()
    while taken < 20 and not over:
        with lock:
            taken += 1
        time.sleep(.001)
    end.cancel()
    over.append(True)
    other.join()
    assert taken == 20


def test_a_stranger_cannot_release_the_lock() -> None:
    lock = LogLock()
    with pytest.raises(RuntimeError, match="cannot release a lock that this thread does not hold"):
        lock.__exit__()
    with lock:
        pass
    with pytest.raises(RuntimeError, match="cannot release"):
        lock.__exit__()


def hold_and_signal(lock: LogLock, held: threading.Event, done: threading.Event,
                    seconds: float) -> None:
    """Holds the lock until `done`, and signals the main thread again and again."""
    with lock:
        held.set()
        while not done.wait(seconds):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def test_a_signal_ends_a_wait_for_the_lock() -> None:
    """As with threading.RLock: Ctrl-C reaches a thread that waits for a slow disk."""
    lock, held, done = LogLock(), threading.Event(), threading.Event()

    def refuse(*_: object) -> None:
        raise InterruptedError("by a signal")

    before = signal.signal(signal.SIGUSR1, refuse)
    holder = threading.Thread(target=hold_and_signal, args=(lock, held, done, .05))
    try:
        with pytest.raises(InterruptedError, match="by a signal"):
            holder.start()
            held.wait()
            lock.__enter__()
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        done.set()
        holder.join()
        signal.signal(signal.SIGUSR1, before)
    with lock:
        assert lock.is_mine


def test_an_interrupted_wait_takes_no_wake_from_another_thread() -> None:
    """The wake that it leaves behind is one too many, and those who wait next still exclude each
    other."""
    lock, counts = LogLock(), [0]
    due: list[bool] = []  # the handler raises once, and only in the wait

    def refuse(*_: object) -> None:
        if due:
            due.pop()
            raise InterruptedError("by a signal")

    def count() -> None:
        for _ in range(200):
            with lock:
                seen = counts[0]
                os.sched_yield()
                counts[0] = seen + 1

    before = signal.signal(signal.SIGUSR1, refuse)
    try:
        for _ in range(20):
            held, done = threading.Event(), threading.Event()
            threads = [threading.Thread(target=hold_and_signal, args=(lock, held, done, .001)),
                       *(threading.Thread(target=count) for _ in range(2))]
            threads[0].start()
            held.wait()
            for one in threads[1:]:
                one.start()
            with pytest.raises(InterruptedError):
                due.append(True)
                lock.__enter__()
            done.set()
            for one in threads:
                one.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert counts == [8000] and not lock.is_mine
