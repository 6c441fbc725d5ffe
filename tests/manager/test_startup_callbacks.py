"""Startup callbacks: once, in order, never before, and a failing one stops no other."""

from __future__ import annotations

import logging
import threading

import pytest

from seglog.manager.startup_callbacks import StartupCallbacks


def test_in_order_once_and_never_before() -> None:
    callbacks, ran = StartupCallbacks(), list[int]()
    for n in range(5):
        callbacks.register(lambda n=n: ran.append(n))  # type: ignore[misc]
    assert ran == []
    callbacks.fire()
    assert ran == [0, 1, 2, 3, 4]
    callbacks.fire()
    assert ran == [0, 1, 2, 3, 4]


def test_a_failing_one_is_reported_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    callbacks, ran = StartupCallbacks(), list[str]()
    error = ValueError("not today")

    def fail() -> None:
        raise error

    callbacks.register(lambda: ran.append("before"))
    callbacks.register(fail)
    callbacks.register(lambda: ran.append("after"))
    with caplog.at_level(logging.ERROR):
        callbacks.fire()
    assert ran == ["before", "after"]
    assert [(one.callback, one.error) for one in callbacks.failures] == [(fail, error)]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


def test_late_ones_run_at_once() -> None:
    callbacks, ran = StartupCallbacks(), list[str]()
    callbacks.fire()
    callbacks.register(lambda: ran.append("late"))
    assert ran == ["late"]


def test_a_callback_that_registers_another() -> None:
    callbacks, ran = StartupCallbacks(), list[str]()
    callbacks.register(lambda: (callbacks.register(lambda: ran.append("c")), ran.append("a")))
    callbacks.register(lambda: ran.append("b"))
    callbacks.fire()
    assert ran == ["a", "b", "c"]


def test_threads_that_register_meanwhile() -> None:
    callbacks, ran = StartupCallbacks(), list[int]()
    barrier = threading.Barrier(9)

    def register(n: int) -> None:
        barrier.wait(120)
        for k in range(100):
            callbacks.register(lambda k=k: ran.append(n * 100 + k))  # type: ignore[misc]

    threads = [threading.Thread(target=register, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    barrier.wait(120)
    callbacks.fire()
    for thread in threads:
        thread.join(120)
    assert sorted(ran) == list(range(800))
    assert all([k for k in ran if k // 100 == n] == list(range(n * 100, n * 100 + 100))
               for n in range(8)), "those of one thread are in its order"
