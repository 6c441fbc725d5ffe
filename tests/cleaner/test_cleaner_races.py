"""Rounds of cleaning beside what takes their log away, and threads that come and go at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner import Cleaner, CleanerConfig, cleaner_manager
from seglog.cleaner.chunks import SegmentSource
from seglog.cleaner.cleaner_manager import LogCleanerManager
from seglog.cleaner.log_cleaner import LogCleaner
from seglog.cleaner.record_filter import RecordFilter
from seglog.errors import LogCleaningAbortedError
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TopicPartition
from tests.cleaner.support import NOW, append, leftovers, records, roll
from tests.cleaner.test_log_cleaner import Running
from tests.cleaner.world import KEY, World
from tests.support.held import threads_since
from tests.support.waiting import PATIENCE, wait_for


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("number", [1, 3, 4, 6])
def test_a_segment_that_retention_takes_while_it_is_read(
        world: World, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """For the map (three segments), or to be copied: the round ends, and the log stays
    cleanable."""
    log, opened, count = world.log(), Cleaner.open_source, 0

    @contextlib.contextmanager
    def open_then_delete(self: Cleaner, log: UnifiedLog, base: int) -> Iterator[SegmentSource]:
        nonlocal count
        with opened(self, log, base) as source:
            count += 1
            if count == number:
                log.maybe_increment_log_start_offset(3, StartOffsetReason.CLIENT_RECORD_DELETION)
                log.delete_old_segments()
            yield source

    monkeypatch.setattr(Cleaner, "open_source", open_then_delete)
    running = Running(world)
    with pytest.raises(LogCleaningAbortedError, match=r"was removed|changed"):
        running.cleaner.clean_now(log)
    assert count == number and not leftovers(log)
    assert running.cleaner.clean_now(log) == []  # nothing is left to clean


@pytest.mark.parametrize("is_full", [False, True])
def test_later_records_that_a_truncation_takes(
        world: World, monkeypatch: pytest.MonkeyPatch, is_full: bool) -> None:
    """An earlier record of their key must stay. The manager ends a round before; a truncation of
    the log itself does not."""
    log = world.log(dirty=0, internal_segment_bytes=150)
    for value in (b"old", b"new", b"newer"):
        append(log, [(b"key", value + bytes(60))])
        roll(log)
    real: Any = RecordFilter.filter

    def truncate_and_filter(*args: Any, **how: Any) -> Any:
        monkeypatch.undo()
        if is_full:
            log.truncate_fully_and_start_at(7)
        else:
            log.truncate_to(1)
        return real(*args, **how)

    monkeypatch.setattr(RecordFilter, "filter", truncate_and_filter)
    with pytest.raises(LogCleaningAbortedError):
        Running(world).cleaner.clean_now(log)
    assert [one.value for one in records(log)] == ([] if is_full else [b"old" + bytes(60)])
    assert not leftovers(log)


def test_two_callers_end_one_round(world: World) -> None:
    """A deletion, say, beside a truncation: both wait for its end."""
    manager, _ = world.manager, world.log()
    assert world.grabbed() == "t-0"
    errors: list[Exception] = []

    def end() -> None:
        try:
            manager.abort_cleaning(KEY)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=end) for _ in range(2)]
    for thread in threads:
        thread.start()
    threads[1].join(.3)
    assert not errors and all(thread.is_alive() for thread in threads)
    world.done("t-0", 3)
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors and manager.cleaning_state(KEY) is None


def test_a_failure_concerns_the_log_that_failed(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that was created under its name meanwhile."""
    log, done = world.log(), LogCleanerManager.done_cleaning

    def fails(*_: object, **__: object) -> Any:
        raise RuntimeError("no")

    def done_then_created_again(self: LogCleanerManager, *args: Any) -> None:
        monkeypatch.undo()
        done(self, *args)
        del world.logs.of[KEY]
        log.delete()
        world.log()

    monkeypatch.setattr(RecordFilter, "filter", fails)
    monkeypatch.setattr(LogCleanerManager, "done_cleaning", done_then_created_again)
    with Running(world) as running:
        running.await_cleaned(KEY, 3)
        assert not running.cleaner.manager.uncleanable_partitions(log.parent_dir)


def test_a_busy_log_holds_up_no_other(world: World) -> None:
    """An append of records that come slowly has the lock of its log."""
    busy, other = world.log("busy-0"), world.log("other-0")

    def clean() -> None:
        with contextlib.suppress(LogCleaningAbortedError):
            running.cleaner.clean_now(other)

    with Running(world) as running, busy.lock:
        time.sleep(.2)  # the cleaner's thread waits for that lock
        calls = [clean, partial(running.cleaner.manager.abort_cleaning, other.topic_partition)]
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        is_free = [not thread.is_alive() for thread in threads]
    assert is_free == [True, True]


@pytest.mark.parametrize("begins", [
    lambda world: world.grabbed(), lambda world: world.manager.grab(world.logs.of[KEY], NOW)])
def test_a_round_that_ends_while_the_log_is_measured(
        world: World, monkeypatch: pytest.MonkeyPatch, begins: Callable[[World], object]) -> None:
    """It is not cleaned again from where that one began."""
    log, real = world.log(), cleaner_manager.max_compaction_delay

    def measured(*args: Any) -> int:
        monkeypatch.undo()
        delay = real(*args)
        Running(world).cleaner.clean_now(log)
        return delay

    monkeypatch.setattr(cleaner_manager, "max_compaction_delay", measured)
    assert begins(world) is None and world.manager.cleaning_state(KEY) is None


def test_the_checkpoint_of_a_log_is_in_its_directory(world: World) -> None:
    """Another directory may have a line of an earlier log: one that a crash left there twice."""
    log = world.log()
    for path, offset in ((world.dirs[0].path, 1), (world.dirs[1].path, 3)):
        world.manager.update_checkpoints(path, add=(KEY, offset))
    found, _ = world.manager.grab_filthiest_compacted_log(NOW)
    assert found is not None and (found.log, found.first_dirty_offset) == (log, 1)


def test_a_line_of_an_earlier_log(world: World) -> None:
    """It goes when a log of that name is created."""
    path = world.home / "one" / "cleaner-offset-checkpoint"
    path.write_text("0\n2\nt 0 4\nt 1 2\n")
    log = world.log()
    world.log("t-1")
    for one in world.logs.of.values():
        world.manager.opened(one)
    assert log.log_end_offset == 3 and world.checkpoint() == {TopicPartition("t", 1): 2}


# ---- threads -------------------------------------------------------------------------------------


def cleaners(before: set[threading.Thread]) -> list[str]:
    return [one.name for one in threads_since(before) if one.name.startswith("kafka-log-cleaner")]


@pytest.mark.parametrize("meanwhile", ["shutdown", "reconfigure"])
def test_threads_are_replaced_once(world: World, monkeypatch: pytest.MonkeyPatch,
                                   meanwhile: str) -> None:
    """A shutdown, or other new settings, between the end of the old threads and the start of the
    new ones."""
    before, config = set(threading.enumerate()), CleanerConfig(backoff_ms=5)
    real, others = LogCleaner._shutdown_threads, list[threading.Thread]()
    running = Running(world)

    def shut_down_threads(self: LogCleaner) -> None:
        monkeypatch.undo()
        real(self)
        what = {"shutdown": (self.shutdown, ()), "reconfigure": (self.reconfigure, (config,))}
        target, args = what[meanwhile]
        others.append(threading.Thread(target=target, args=args))
        others[0].start()
        others[0].join(.3)

    with running:
        monkeypatch.setattr(LogCleaner, "_shutdown_threads", shut_down_threads)
        running.cleaner.reconfigure(config)
        others[0].join(PATIENCE)
        assert len(cleaners(before)) == (0 if meanwhile == "shutdown" else 1)
    wait_for(lambda: not cleaners(before))
    assert not [name for name in running.metrics.snapshot() if "LogCleaner" in name]
