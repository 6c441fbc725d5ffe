"""Cleaner threads: what they clean, what ends them, what they leave to the others."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner import CleanerConfig, LogCleaner, cleanable
from seglog.cleaner.cleaning_states import ABORTED
from seglog.cleaner.throttler import Throttler
from seglog.errors import ConfigError, KafkaStorageError, LogCleaningAbortedError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from tests.cleaner.support import NOW, SLOT, append, leftovers, records, roll
from tests.cleaner.world import KEY, Logs, World
from tests.oracle.cleaning import last_values
from tests.support.waiting import wait_for


class Running:
    """Cleaner threads over the logs of a World."""

    def __init__(self, world: World, **config: Any) -> None:
        self.world, self.metrics = world, MetricsRegistry()
        self.channel = LogDirFailureChannel()
        settings: dict[str, Any] = {"dedupe_buffer_size": 1 << 16, "backoff_ms": 5} | config
        self.cleaner = LogCleaner(CleanerConfig(**settings), world.dirs, world.logs, self.channel,
                                  MockTime(current_time_ms=NOW), self.metrics)

    def __enter__(self) -> Running:
        self.cleaner.startup()
        return self

    def __exit__(self, *_: object) -> None:
        self.cleaner.shutdown()

    def await_cleaned(self, key: TopicPartition, offset: int) -> None:
        """Waits until a partition is clean up to `offset`."""
        wait_for(lambda: self.cleaner.manager.all_cleaner_checkpoints().get(key, -1) >= offset)

    def gauge(self, name: str, of: str = "LogCleaner", **tags: str) -> Any:
        metric: Any = self.metrics.get(
            self.metrics.group("kafka.log", of).name(name, tags))
        return metric.value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path)


def test_all_logs_are_cleaned(world: World) -> None:
    names = [f"t{number}-0" for number in range(5)]
    for number, name in enumerate(names):
        log = world.log(name, "two" if number % 2 else "one", dirty=0)
        for value in range(3):
            append(log, [(b"a", b"%d" % value), (b"b%d" % value, b"x")])
            roll(log)
    with Running(world, threads=2) as running:
        for log in world.logs.of.values():
            running.await_cleaned(log.topic_partition, 6)
            assert [(one.key, one.value) for one in records(log)] == [
                (b"b0", b"x"), (b"b1", b"x"), (b"a", b"2"), (b"b2", b"x")]
        wait_for(lambda: running.gauge("max-dirty-percent", "LogCleanerManager") == 0)
        assert running.gauge("cleaner-recopy-percent") in range(1, 100)
        assert running.gauge("DeadThreadCount") == 0
        assert running.cleaner.throttler.meter is not None
        assert running.cleaner.throttler.meter.count > 5 * 4 * 61
        assert len(running.metrics) == 5 + 2 + 2 * 2 + 1
    assert len(running.metrics) == 1 and not running.cleaner.threads


def test_the_thread_works_while_others_append(world: World) -> None:
    log = world.log(dirty=0, internal_segment_bytes=2000, min_cleanable_dirty_ratio=0)
    written: list[tuple[bytes, bytes | None]] = []
    lock = threading.Lock()

    def write(writer: int) -> None:
        for number in range(300):
            row = (b"key %d" % (number * 7 % 11), b"%d of %d" % (number, writer))
            with lock:
                append(log, [row])
                written.append(row)
                log.update_high_watermark(log.log_end_offset)

    with Running(world, threads=2) as running:
        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for one in writers:
            one.start()
        for one in writers:
            one.join()
        roll(log)
        running.await_cleaned(KEY, log.log_end_offset)
        rounds = running.cleaner.threads[0].last_stats.bytes_read
        assert rounds > 0 or running.cleaner.threads[1].last_stats.bytes_read > 0
    kept = [(one.key or b"", one.value) for one in records(log)]
    assert len(kept) == 11 and last_values(kept) == dict(written)


def damage(log: UnifiedLog, base: int = 1, batch: int = 0) -> None:
    """A batch whose length cannot be, in a closed segment."""
    with (Path(log.path) / f"{base:020d}.log").open("r+b") as file:
        for _ in range(batch):
            file.seek(int.from_bytes(file.read(12)[8:], "big"), os.SEEK_CUR)
        file.seek(8, os.SEEK_CUR)
        file.write(b"\0\0\0\x05")


@pytest.mark.parametrize("batch", [0, 1])
def test_a_log_that_cannot_be_cleaned(world: World, caplog: pytest.LogCaptureFixture,
                                      batch: int) -> None:
    """A first batch fails while a log is chosen, before a round: Kafka reads its timestamp."""
    bad, good = world.log(), world.log("good-0", dirty=2)
    append(bad, [(b"k", b"a")])
    append(bad, [(b"k", b"b")])
    roll(bad)
    damage(bad, 3, batch)
    before = {path.name: path.read_bytes() for path in Path(bad.path).iterdir()}
    with Running(world) as running:
        running.await_cleaned(good.topic_partition, 2)
        where = {"logDirectory": bad.parent_dir}
        wait_for(lambda: running.gauge("uncleanable-partitions-count", "LogCleanerManager",
                                       **where) == 1)
        assert running.gauge("uncleanable-bytes", "LogCleanerManager", **where) > 0
        assert {path.name: path.read_bytes() for path in Path(bad.path).iterdir()} == before
        assert running.gauge("DeadThreadCount") == 0
        assert world.checkpoint().get(KEY) == (0 if batch else None)  # where the round began
        assert not running.channel.failed
    assert "Marking its partition (t-0) as uncleanable" in caplog.text
    assert ("Record size 5 is less than the minimum" if batch else
            "Found record size 5 smaller than minimum record overhead") in caplog.text


@pytest.mark.parametrize("number, is_offline", [
    (errno.ENOSPC, True), (errno.EIO, True), (errno.EMFILE, False)])
def test_what_the_file_system_refuses(world: World, number: int, is_offline: bool) -> None:
    """The directory goes offline; not for too many open files, then the round is tried again."""
    log = world.log()
    disk: Any = log.disk
    real, calls = disk.create, 0

    def create(name: str, size: int = 0) -> None:
        nonlocal calls
        calls += name.endswith(".log.cleaned")
        if calls <= 2 and name.endswith(".cleaned"):
            raise OSError(number, os.strerror(number), name)
        real(name, size)

    disk.create = create
    with Running(world) as running:
        if is_offline:
            wait_for(lambda: running.channel.failed == {log.parent_dir})
        else:
            running.await_cleaned(KEY, 3)
            assert not running.channel.failed and calls > 2
    assert not leftovers(log) and not running.cleaner.manager.uncleanable_partitions(log.parent_dir)


def test_too_many_open_files_while_a_log_is_chosen(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory stays online, and the log cleanable."""
    log, real, calls = world.log(), cleanable.opened_log, 0

    def opened(path: str) -> Any:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path)

    monkeypatch.setattr(cleanable, "opened_log", opened)
    with Running(world) as running:
        manager = running.cleaner.manager
        wait_for(lambda: manager.all_cleaner_checkpoints().get(KEY) == 3
                 or log.context.failures.is_any_offline)
        assert calls > 2 and not log.context.failures.is_any_offline
        assert not manager.uncleanable_partitions(log.parent_dir)


@pytest.mark.parametrize("number, is_offline", [(errno.EIO, True), (errno.EMFILE, False)])
def test_retention_that_cannot_read_a_timestamp(world: World, monkeypatch: pytest.MonkeyPatch,
                                                number: int, is_offline: bool) -> None:
    log = world.log(cleanup_policy="compact,delete", retention_ms=1000, min_cleanable_dirty_ratio=1)
    log.context.time.sleep(2000)
    disk: Any = log.disk

    def refused(name: str, position: int, size: int) -> bytes:
        raise OSError(number, os.strerror(number), name)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "read", refused)
        with pytest.raises(KafkaStorageError) as caught:
            log.delete_old_segments()
        assert caught.value.errno == number
    assert log.context.failures.is_any_offline == is_offline
    if not is_offline:
        with Running(world):
            wait_for(lambda: log.log_start_offset == 3)


def test_a_shutdown_does_not_wait_for_a_round(world: World) -> None:
    """Nor for the sleep of a low rate."""
    log, slept = world.log(), threading.Event()
    running = Running(world, io_max_bytes_per_second=.001)
    time_ = running.cleaner.time
    assert isinstance(time_, MockTime)

    def sleep(ms: int) -> None:
        slept.set()
        time.sleep(.001)

    # Before the threads begin: a round that the clock says took no time is not throttled.
    time_.sleep = sleep  # type: ignore[method-assign]
    time_.set_current_time_ms(NOW + 1000)
    with running:
        assert slept.wait(120)
    assert len(records(log)) == 3 and not leftovers(log)
    assert running.cleaner.manager.cleaning_state(KEY) is None


def test_settings_change(world: World) -> None:
    with Running(world) as running:
        cleaner, old = running.cleaner, running.cleaner.threads[0]
        for threads, why in ((0, "at least 1"), (3, "more than double the current value 1")):
            with pytest.raises(ConfigError, match=why):
                cleaner.reconfigure(CleanerConfig(threads=threads))
        assert cleaner.threads == [old] and old.is_alive()
        cleaner.reconfigure(CleanerConfig(threads=2, io_max_bytes_per_second=9, backoff_ms=5))
        assert not old.is_alive() and [one.name for one in cleaner.threads] == [
            "kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"]
        assert cleaner.throttler.desired_rate == 9
        cleaner.reconfigure(CleanerConfig(threads=4, backoff_ms=5))
        with pytest.raises(ConfigError, match="less than half the current value 4"):
            cleaner.reconfigure(CleanerConfig(threads=1))


def test_a_dead_thread_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Logs) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Logs, "compacted", fails)
    with Running(world) as running:
        wait_for(lambda: running.gauge("DeadThreadCount") == 1)
        monkeypatch.undo()
        log = world.log()
        running.cleaner.reconfigure(running.cleaner.config)
        assert running.gauge("DeadThreadCount") == 0
        running.await_cleaned(log.topic_partition, 3)


def test_the_retention_of_compacted_logs(world: World) -> None:
    both = world.log("both-0", cleanup_policy="compact,delete", retention_ms=1000)
    only = world.log("only-0", retention_ms=1000)
    with Running(world) as running:
        running.await_cleaned(only.topic_partition, 3)
        both.context.time.sleep(2000)
        wait_for(lambda: both.log_start_offset == 3)
    assert only.log_start_offset == 0 and len(records(only)) == 3


def test_on_demand(world: World) -> None:
    """However dirty; as many rounds as the map needs."""
    log = world.log(min_cleanable_dirty_ratio=1)
    running = Running(world, dedupe_buffer_size=2 * SLOT, io_buffer_load_factor=.5)
    rounds = running.cleaner.clean_now(log)  # a map of one key
    assert len(rounds) == 3 and world.checkpoint() == {KEY: 3}
    assert rounds[0].buffer_utilization == .5
    assert running.cleaner.clean_now(log) == []
    append(log, [(b"key 0", b"new")])
    roll(log)
    assert len(running.cleaner.clean_now(log)) == 1
    assert [one.offset for one in records(log)] == [1, 2, 3]
    append(log, [(b"key 1", b"new")])
    roll(log)
    none = Running(world, dedupe_buffer_size=SLOT, io_buffer_load_factor=.5)
    assert len(none.cleaner.clean_now(log)) == 1  # no room for a key: does not loop


def test_on_demand_beside_a_fast_writer(world: World) -> None:
    """What it adds is left to the next call."""
    log, running, written = world.log(), Running(world), 0

    def write(size: int) -> None:
        nonlocal written
        written += 1
        assert written < 50
        append(log, [(b"key 0", b"%d" % written)])
        roll(log)

    assert len(running.cleaner.clean_now(log, write)) == 1 and world.checkpoint() == {KEY: 3}
    end = log.log_end_offset
    assert len(running.cleaner.clean_now(log)) == 1 and world.checkpoint() == {KEY: end}


def test_on_demand_of_a_damaged_log(world: World) -> None:
    log = world.log()
    damage(log)
    running = Running(world)
    for _ in range(2):
        with pytest.raises(Exception, match="Found record size 5 smaller than minimum"):
            running.cleaner.clean_now(log)
        assert running.cleaner.manager.cleaning_state(KEY) is None


def test_a_round_on_demand_is_aborted(world: World) -> None:
    log, running = world.log(), Running(world)
    manager = running.cleaner.manager
    check = manager.check_cleaning_aborted
    pausing = threading.Thread(target=manager.abort_and_pause_cleaning, args=(KEY,))

    def checked(key: TopicPartition) -> None:
        if not pausing.is_alive():
            pausing.start()
        wait_for(lambda: manager.cleaning_state(KEY) == ABORTED)
        check(key)

    manager.check_cleaning_aborted = checked  # type: ignore[method-assign]
    with pytest.raises(LogCleaningAbortedError):
        running.cleaner.clean_now(log)
    pausing.join(120)
    assert len(records(log)) == 3 and not leftovers(log)


@pytest.mark.parametrize("rate, chunk", [(1000, 100), (10**6, 10**5), (50, 1000)])
def test_the_throttle(rate: float, chunk: int) -> None:
    clock = MockTime(current_time_ms=NOW)
    throttler, began = Throttler(rate, clock), clock.nanoseconds()
    for _ in range(100):
        throttler.maybe_throttle(chunk)
        clock.sleep(10)
    taken = (clock.nanoseconds() - began) / 1e9
    # It measures in periods of 300 ms, as Kafka does: the chunks of the last one may not count yet.
    assert (100 - 31) * chunk / rate <= taken <= 100 * chunk / rate + 1


@pytest.mark.parametrize("rate", [1.7976931348623157e308, math.inf, math.nan, -1.0])
def test_no_throttle(rate: float) -> None:
    """A broker starts with any double, and sleeps neither for NaN nor for a negative rate."""
    clock = MockTime(current_time_ms=NOW)
    throttler = Throttler(rate, clock)
    for _ in range(100):
        throttler.maybe_throttle(1 << 30)
        clock.sleep(10)
    assert clock.milliseconds() == NOW + 1000


def test_a_check_ends_the_sleep() -> None:
    clock = MockTime(current_time_ms=NOW)
    throttler, left = Throttler(0, clock), 3

    def check() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise LogCleaningAbortedError("enough")

    clock.sleep(400)
    with pytest.raises(LogCleaningAbortedError):
        throttler.maybe_throttle(1, check)


def test_another_rate_ends_the_sleep() -> None:
    """Of this thread, and of all that come after it."""
    clock = MockTime(current_time_ms=NOW)
    throttler, began = Throttler(0, clock), clock.milliseconds()
    clock.sleep(301)

    def check() -> None:
        throttler.desired_rate = 10**9
        assert clock.milliseconds() < began + 10_000

    for _ in range(2):
        throttler.maybe_throttle(1000, check)
    assert clock.milliseconds() <= began + 501
