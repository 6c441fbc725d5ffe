"""Deferred checks (KIP-263) with threads: what is counted is exact, whatever the timing."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from seglog.recovery.deferred_checks import CHUNK_SEGMENTS, DeferredChecks
from tests.support.waiting import wait_for


class Disk:
    """Segments that may be damaged, and a count of everything that was done with them."""

    def __init__(self, count: int, damaged: Sequence[int] = (), pause: float = 0.0) -> None:
        self.damaged, self.pause = set(damaged), pause
        self.checked: Counter[int] = Counter()
        self.recovered: list[int] = []
        self.unchecked_at_recovery: list[int] = []
        self.used_while_recovering = 0
        self.recovering = False
        self.lock = threading.Lock()
        checked = np.zeros(count, np.bool_)
        checked[-1] = True  # the active segment
        self.checks = DeferredChecks(np.arange(count, dtype=np.int64) * 10, checked, self.check,
                                     self.recover)

    def check(self, start: int, stop: int) -> list[int]:
        with self.lock:
            self.checked.update(range(start, stop))
        time.sleep(self.pause)
        return [row for row in range(start, stop) if row in self.damaged]

    def recover(self, rows: Sequence[int]) -> None:
        with self.lock:
            self.recovering = True
            self.unchecked_at_recovery += [row for row in range(max(rows))
                                           if not self.checked[row]]
            self.recovered += rows
        time.sleep(self.pause * 5)
        with self.lock:
            self.damaged.difference_update(rows)
            self.recovering = False

    def use(self, row: int) -> None:
        self.checks.ensure_offset(row * 10)
        with self.lock:
            assert row not in self.damaged, f"segment {row} was used before its recovery"


def run(threads: Sequence[Callable[[], None]]) -> None:
    """All at the same moment; the first exception of any is raised."""
    barrier = threading.Barrier(len(threads))
    errors: list[BaseException] = []

    def work(job: Callable[[], None]) -> None:
        barrier.wait()
        try:
            job()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work, args=(job,), daemon=True) for job in threads]
    for one in running:
        one.start()
    for one in running:
        one.join(60)
        assert not one.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


def test_a_segment_is_checked_once_however_many_threads_arrive() -> None:
    disk = Disk(50, pause=0.002)
    run([lambda: disk.use(7)] * 24)
    assert disk.checked == {7: 1}
    assert disk.checks.remaining == 48


def test_only_what_is_touched_is_checked() -> None:
    disk = Disk(50)
    disk.checks.ensure_offset(123)  # inside of segment 12
    assert disk.checked == {12: 1}
    disk.use(49)
    assert disk.checked == {12: 1}, "the active segment was checked at load"


def test_an_offset_before_the_first_segment_is_one_of_the_first() -> None:
    """As of a tiered log, which begins before its segments."""
    checked: list[range] = []

    def check(start: int, stop: int) -> list[int]:
        checked.append(range(start, stop))
        return []

    checks = DeferredChecks(np.array([10, 20, 30]), np.zeros(3, np.bool_), check, lambda rows: None)
    run([lambda: checks.ensure_offset(5)])
    assert checked == [range(1)]


def test_background_threads_and_first_touch_share_the_work() -> None:
    count = CHUNK_SEGMENTS * 4 + 17
    disk = Disk(count)
    rng = random.Random(5)

    def reader(rows: list[int]) -> Callable[[], None]:
        return lambda: [disk.use(row) for row in rows] and None

    run([*[disk.checks.ensure_all] * 4,
         *(reader([rng.randrange(count) for _ in range(300)]) for _ in range(12))])
    assert disk.checks.remaining == 0
    assert disk.checked == dict.fromkeys(range(count - 1), 1)


def test_damage_makes_everything_before_it_checked_first() -> None:
    disk = Disk(40, damaged=[30])
    disk.use(30)
    assert disk.checked == dict.fromkeys(range(31), 1), "and nothing behind it"
    assert disk.recovered == [30]
    assert disk.unchecked_at_recovery == []


def test_earlier_damage_is_found_and_recovered_in_order() -> None:
    disk = Disk(40, damaged=[30, 4, 17, 35])
    disk.use(30)
    assert disk.recovered == [4, 17, 30]
    disk.use(35)
    assert disk.recovered == [4, 17, 30, 35]


def test_nobody_uses_the_log_while_it_is_repaired() -> None:
    disk = Disk(64, damaged=[40], pause=0.002)
    inside = threading.Event()
    recover = disk.recover

    def slow(rows: Sequence[int]) -> None:
        inside.set()
        recover(rows)

    disk.checks._recover = slow
    seen: list[bool] = []

    def other(row: int) -> Callable[[], None]:
        def use() -> None:
            inside.wait(120)
            disk.use(row)
            seen.append(disk.recovering)
        return use

    run([lambda: disk.use(40), *(other(row) for row in (0, 5, 40, 41, 63, 63))])
    assert seen == [False] * 6


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_checks_once_and_recovers_once(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([2, 9, 300, CHUNK_SEGMENTS * 2 + 5])
    damaged = [row for row in range(count - 1) if rng.random() < rng.choice([0.0, 0.02, 0.3])]
    disk = Disk(count, damaged, pause=0.0003)

    def reader(rows: list[int]) -> Callable[[], None]:
        return lambda: [disk.use(row) for row in rows] and None

    jobs: list[Callable[[], None]] = [
        reader([rng.randrange(count) for _ in range(40)]) for _ in range(10)]
    run([*jobs, disk.checks.ensure_all, disk.checks.ensure_all])
    assert disk.checked == dict.fromkeys(range(count - 1), 1)
    assert sorted(disk.recovered) == damaged
    assert disk.unchecked_at_recovery == []
    assert disk.checks.remaining == 0


def test_a_check_that_fails_fails_for_everybody() -> None:
    disk = Disk(20)

    def fail(start: int, stop: int) -> list[int]:
        raise OSError(5, "Input/output error")

    disk.checks._check = fail
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            disk.use(3)
    with pytest.raises(OSError, match="Input/output error"):
        disk.use(4)


def test_a_recovery_that_fails_leaves_nobody_waiting() -> None:
    disk = Disk(20, damaged=[9], pause=0.002)

    def fail(rows: Sequence[int]) -> None:
        raise ValueError("no luck")

    disk.checks._recover = fail
    failed: list[int] = []

    def use(row: int) -> Callable[[], None]:
        def job() -> None:
            try:
                disk.use(row)
            except ValueError:
                failed.append(row)
        return job

    run([use(9)] * 8)
    assert failed == [9] * 8


def test_a_segment_whose_recovery_failed_is_used_by_nobody() -> None:
    disk = Disk(5, damaged=[2])

    def fail(rows: Sequence[int]) -> None:
        raise OSError("the disk is full")

    disk.checks = DeferredChecks(np.arange(5) * 10, np.zeros(5, np.bool_), disk.check, fail)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            disk.use(2)


def test_a_check_that_fails_ends_the_wait_for_it() -> None:
    began, go, errors = threading.Event(), threading.Event(), list[OSError]()

    def check(start: int, stop: int) -> list[int]:
        began.set()
        assert go.wait(60)
        raise OSError("unreadable")

    def use() -> None:
        try:
            checks.ensure_offset(0)
        except OSError as error:
            errors.append(error)

    checks = DeferredChecks(np.arange(2) * 10, np.zeros(2, np.bool_), check, lambda rows: None)
    threads = [threading.Thread(target=use, daemon=True) for _ in range(2)]
    threads[0].start()
    assert began.wait(60)
    threads[1].start()
    wait_for(lambda: checks._changed._waiters)  # type: ignore[attr-defined]
    go.set()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 2


def test_a_recovery_may_read_the_log_that_it_repairs() -> None:
    disk = Disk(20, damaged=[9])
    recover = disk.recover

    def reading(rows: Sequence[int]) -> None:
        disk.checks.ensure_offset(30)
        recover(rows)

    disk.checks._recover = reading
    disk.use(9)
    assert disk.recovered == [9]


def test_stop_leaves_the_rest_alone() -> None:
    disk = Disk(20)
    disk.use(3)
    disk.checks.stop()
    disk.checks.ensure_all()
    assert disk.checked == {3: 1}


def test_stop_waits_for_a_recovery() -> None:
    begun, released, done = threading.Event(), threading.Event(), list[int]()

    def recover(rows: Sequence[int]) -> None:
        begun.set()
        assert released.wait(120)
        done.extend(rows)

    checks = DeferredChecks(np.arange(2, dtype=np.int64), np.zeros(2, np.bool_),
                            lambda start, stop: [0], recover)
    finder = threading.Thread(target=checks.ensure_offset, args=(0,), daemon=True)
    stopper = threading.Thread(target=lambda: (checks.stop(), done.append(-1)), daemon=True)
    finder.start()
    assert begun.wait(120)
    stopper.start()
    wait_for(lambda: checks._changed._waiters)  # type: ignore[attr-defined]
    released.set()
    for one in (finder, stopper):
        one.join(60)
        assert not one.is_alive()
    assert done == [0, -1]


def eight_segments(begun: threading.Event, released: threading.Event,
                   recover: Callable[[list[int]], object]) -> DeferredChecks:
    """Row 5 is damaged; the check of row 0 says that it has begun, and waits."""
    def check(start: int, stop: int) -> list[int]:
        if start == 0:
            begun.set()
            assert released.wait(120)
        return [row for row in range(start, stop) if row == 5]

    return DeferredChecks(np.arange(8, dtype=np.int64), np.zeros(8, np.bool_), check, recover)


def test_stop_ends_all_waits_for_a_check() -> None:
    """Those of a thread that needs the same segment, and of one that has found later damage."""
    begun, released = threading.Event(), threading.Event()
    checks = eight_segments(begun, released, lambda rows: pytest.fail("no recovery runs"))
    checker, user, finder = (threading.Thread(target=checks.ensure_offset, args=(row,), daemon=True)
                             for row in (0, 0, 5))
    checker.start()
    assert begun.wait(120)
    user.start()
    finder.start()
    wait_for(lambda: len(checks._changed._waiters) == 2)  # type: ignore[attr-defined]
    checks.stop()
    for one in (user, finder):
        one.join(60)
        assert not one.is_alive()
    assert checker.is_alive()
    released.set()
    checker.join(120)
    assert not checker.is_alive() and checks.remaining == 3


@pytest.mark.parametrize("damaged", [(), (3,), (0, 3), (1, 3, 6)])
def test_a_thread_with_the_logs_lock_waits_for_no_other(damaged: Sequence[int]) -> None:
    """Retention, a move and a look-up come with the lock that a recovery in the background waits
    for."""
    lock, begun = threading.RLock(), threading.Event()
    recovered: list[int] = []
    sound, seen = set[int](), set[int]()

    def check(start: int, stop: int) -> list[int]:
        if threading.current_thread().name == "background":
            begun.set()
            with lock:
                pass
        return [row for row in range(start, stop) if row in damaged and row not in sound]

    def recover(rows: Sequence[int]) -> None:
        with lock:
            recovered.extend(rows)
            sound.update(rows)

    checks = DeferredChecks(np.arange(8, dtype=np.int64) * 10, np.zeros(8, np.bool_), check,
                            recover, holds_lock=lock._is_owned)  # type: ignore[attr-defined]
    background = threading.Thread(target=checks.ensure_all, name="background", daemon=True)
    done = threading.Event()

    def work() -> None:
        with lock:
            background.start()
            assert begun.wait(120)
            checks.ensure_offset(40)
            checks.ensure_offset(30)
            seen.update(sound)
        done.set()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert done.wait(120), "both threads wait for each other"
    assert seen >= {row for row in damaged if row <= 3}
    background.join(120)
    assert not background.is_alive() and checks.remaining == 0
    assert sound == set(damaged)


def test_what_a_thread_with_the_logs_lock_has_repaired_is_repaired_once() -> None:
    """The thread that found the damage was still checking the segments before it."""
    begun, released, recovered = threading.Event(), threading.Event(), list[int]()

    def check(start: int, stop: int) -> list[int]:
        if start == 0 and threading.current_thread() is finder:
            begun.set()
            assert released.wait(120)
        return [row for row in range(start, stop) if row == 3]

    checks = DeferredChecks(
        np.arange(8, dtype=np.int64) * 10, np.zeros(8, np.bool_), check, recovered.extend,
        holds_lock=lambda: threading.current_thread() is not finder)
    finder = threading.Thread(target=checks.ensure_offset, args=(30,), daemon=True)
    finder.start()
    assert begun.wait(120)
    checks.ensure_offset(30)
    released.set()
    finder.join(120)
    assert not finder.is_alive() and recovered == [3]


def test_what_a_thread_with_the_logs_lock_has_checked_is_waited_for_no_longer() -> None:
    """Neither until it gives the lock away."""
    begun, released = threading.Event(), threading.Event()

    def check(start: int, stop: int) -> list[int]:
        if threading.current_thread() is checker:
            begun.set()
            assert released.wait(120)
        return []

    checks = DeferredChecks(
        np.arange(3, dtype=np.int64), np.zeros(3, np.bool_), check, lambda rows: None,
        holds_lock=lambda: threading.current_thread() not in (checker, user))
    checker, user = (threading.Thread(target=checks.ensure_offset, args=(0,), daemon=True)
                     for _ in range(2))
    checker.start()
    assert begun.wait(120)
    user.start()
    wait_for(lambda: checks._changed._waiters)  # type: ignore[attr-defined]
    checks.ensure_offset(0)
    user.join(60)
    assert not user.is_alive() and checker.is_alive()
    released.set()
    checker.join(120)
    assert not checker.is_alive()


def test_a_thread_with_the_logs_lock_checks_nothing_after_stop() -> None:
    checked: list[int] = []

    def check(start: int, stop: int) -> list[int]:
        checked.append(start)
        return []

    checks = DeferredChecks(np.arange(3, dtype=np.int64), np.zeros(3, np.bool_), check,
                            lambda rows: None, holds_lock=lambda: True)
    checks.ensure_offset(1)
    checks.stop()
    checks.ensure_all()
    assert checked == [1] and checks.remaining == 2


def test_a_check_that_fails_under_the_logs_lock_fails_for_everybody() -> None:
    failures = [OSError(5, "Input/output error")]

    def check(start: int, stop: int) -> list[int]:
        if failures:
            raise failures.pop()
        return []

    checks = DeferredChecks(np.arange(3, dtype=np.int64), np.zeros(3, np.bool_), check,
                            lambda rows: None, holds_lock=lambda: True)
    for offset in (1, 1, 2):
        with pytest.raises(OSError, match="Input/output error"):
            checks.ensure_offset(offset)


def test_who_finds_damage_repairs_it_after_the_checks_of_others() -> None:
    """It leaves that to none of them, so that nobody uses the log in between."""
    begun, released, repairers = threading.Event(), threading.Event(), list[str]()
    checks = eight_segments(begun, released,
                            lambda rows: repairers.append(threading.current_thread().name))
    other = threading.Thread(target=checks.ensure_offset, args=(0,), daemon=True)
    finder = threading.Thread(target=checks.ensure_offset, args=(5,), name="finder", daemon=True)
    other.start()
    assert begun.wait(120)
    finder.start()
    wait_for(lambda: len(checks._changed._waiters) == 1)  # type: ignore[attr-defined]
    released.set()
    for one in (finder, other):
        one.join(120)
        assert not one.is_alive()
    assert repairers == ["finder"] and checks.remaining == 2
