"""Forks while other threads hold every lock there is: no child waits for one of them.

SEGLOG_FORK_SECONDS=600 for longer. Each child has its own deadline (`children.CHILD_SECONDS`).
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from seglog.config import BrokerConfig
from seglog.embedded.embedded_log import EmbeddedLog
from seglog.errors import ForkedProcessError
from seglog.log.scheduler import Scheduler
from seglog.metrics import MetricsRegistry
from tests.processes.children import CHILD_SECONDS, in_child
from tests.support.effort import how_many

SECONDS = how_many("SEGLOG_FORK_SECONDS", 4, 1)
#: Children of a test, however slow the machine is.
LEAST = 6
SMALL = {"internal.segment.bytes": 4096, "retention.bytes": 40_000, "file.delete.delay.ms": 0}

SEGMENTS = {"internal.segment.bytes": 20_000}


@contextlib.contextmanager
def busy(*jobs: Callable[[], object]) -> Iterator[None]:
    """Repeats each job in a thread of its own; raises their exceptions here."""
    stop, errors = threading.Event(), []

    def run(job: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def forks(act: Callable[[], object]) -> Iterator[object]:
    """What `act` gave in one child after another, forked at any moment."""
    chance, until, count = random.Random(7), time.monotonic() + SECONDS, 0
    while time.monotonic() < until or count < LEAST:
        time.sleep(chance.random() * 0.003)
        yield in_child(act)
        count += 1


def refused(*acts: Callable[[], object]) -> bool:
    for act in acts:
        with pytest.raises(ForkedProcessError):
            act()
    return True


def use_embedded(log: EmbeddedLog, own: Path) -> bool:
    """What a child does that knows no better."""
    refused(lambda: log.append(b"x"), lambda: log.append_many([b"x"]), lambda: log.flush(),
            lambda: log.to_arrow(), lambda: next(log.records()), lambda: log.follow(0),
            lambda: log.delete_before(1),
            lambda: log.offset_for_timestamp(0), lambda: log.transaction().__enter__(),
            lambda: log.log.delete_old_segments())
    with seglog.open(own / f"t-{os.getpid()}", config=SMALL,
                     batch_bytes=500) as mine:
        assert mine.append_many([b"y" * 100] * 50) == range(50)
        assert len(list(mine.records())) == 50
    log.close()
    return True


def test_children_of_a_busy_log(tmp_path: Path) -> None:
    # Time lookups are left out: they wait for what other threads do with these segments.
    appended: list[tuple[int, bytes]] = []
    with seglog.open(tmp_path / "d" / "t-0", config={**SMALL, "retention.bytes": -1}) as log:
        def append() -> None:
            value = b"%d" % len(appended)
            appended.append((log.append(value), value))

        def follow() -> None:
            with log.follow(0, timeout=0.01) as follower:
                for _ in follower:
                    pass

        with busy(append, follow, log.flush, lambda: list(log.to_arrow()), lambda: repr(log)):
            children = sum(1 for used in forks(lambda: use_embedded(log, tmp_path / "own"))
                           if used)
        assert children >= LEAST
        assert [(one.offset, one.value) for one in log.records()] == appended
    with seglog.open(tmp_path / "d" / "t-0") as log:
        assert [(one.offset, one.value) for one in log.records()] == appended


def test_children_of_a_process_that_opens_and_closes(tmp_path: Path) -> None:
    """Forks in the midst of an open, a close, a load: the registries of the module are locked."""
    numbers = iter(range(1_000_000))

    def reopen() -> None:
        with seglog.open(tmp_path / "d" / f"t-{next(numbers) % 8}", config=SMALL,
                         batch_bytes=500) as log:
            log.append_many([b"x" * 200] * 100)

    def start() -> None:
        with seglog.LogManager(tmp_path / "m", scheduler=Scheduler()) as manager:
            manager.get_or_create_log(seglog.TopicPartition("t", next(numbers)), is_new=True)

    def act() -> bool:
        with seglog.open(tmp_path / "own" / "t-0", config=SMALL) as own:
            own.append(b"x")
        with seglog.LogManager(tmp_path / "own") as manager:
            return len(manager.all_logs) == 1

    with busy(reopen, start):
        assert all(forks(act))


def test_children_of_a_process_that_imports() -> None:
    """Each round is a process that imports the package in a thread, and forks meanwhile."""
    program = textwrap.dedent("""
        import os, threading, time, warnings, seglog
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=lambda: seglog.LogManager)
        thread.start()
        time.sleep(%s)
        child = os.fork()
        if not child:
            seglog.LogManager
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
    """)
    for milliseconds in (0, 10, 20, 80):
        subprocess.run([sys.executable, "-c", program % (milliseconds / 1000)], check=True,
                       timeout=CHILD_SECONDS)


@pytest.mark.parametrize(("package", "name"), [
    ("seglog", "PartitionLog"), ("seglog.tiered", "MetadataLint"),
])
def test_no_fork_begins_while_a_package_imports(package: str, name: str) -> None:
    """Python's import lock would be held in the child for ever."""
    program = textwrap.dedent(f"""
        import sys, threading, {package}
        from seglog import forks
        holds = []

        class Finder:
            def find_spec(self, *_):
                thread = threading.Thread(target=look)
                thread.start()
                thread.join()

        def look():
            if is_free := forks.imports.acquire(blocking=False):
                forks.imports.release()
            holds.append(not is_free)

        sys.meta_path.insert(0, Finder())
        {package}.{name}
        assert holds and all(holds), holds
    """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=CHILD_SECONDS)


def test_children_of_a_busy_manager(tmp_path: Path) -> None:
    registry, scheduler = MetricsRegistry(), Scheduler(2)
    broker = BrokerConfig(log_initial_task_delay_ms=1, log_retention_check_interval_ms=1,
                          log_flush_scheduler_interval_ms=1,
                          log_flush_offset_checkpoint_interval_ms=1)
    keys = [seglog.TopicPartition("t", number) for number in range(4)]
    batch = one_batch()
    with seglog.LogManager([tmp_path / "m1", tmp_path / "m2"], config=broker, scheduler=scheduler,
                           metrics=registry) as manager:
        logs = [manager.get_or_create_log(key, is_new=True) for key in keys]

        def append() -> None:
            for log in logs:
                log.append_as_leader(batch, 0)
                log.update_high_watermark(log.log_end_offset)

        def act() -> bool:
            refused(lambda: manager.startup(), lambda: manager.flush_logs(),
                    lambda: manager.all_logs,
                    lambda: manager.get_log(keys[0]), lambda: logs[0].append_as_leader(batch, 0),
                    lambda: logs[0].flush(), lambda: scheduler.schedule("x", print),
                    lambda: scheduler.pending_tasks, lambda: manager.on_become_leader(keys),
                    lambda: manager.open_log(keys[0]), lambda: logs[0].read(0, 10))
            manager.shutdown()
            manager.__exit__(None, None, None)
            scheduler.shutdown()
            len(registry)
            return True

        with busy(append, manager.flush_logs, registry.snapshot,
                  manager.checkpoint_log_recovery_offsets,
                  lambda: [manager.open_log(key).close() for key in keys]):
            assert all(forks(act))
        ends = {log.topic_partition: log.log_end_offset for log in logs}
        assert not list(tmp_path.rglob(".kafka_cleanshutdown"))
    assert len(list(tmp_path.rglob(".kafka_cleanshutdown"))) == 2
    with seglog.LogManager([tmp_path / "m1", tmp_path / "m2"]) as manager:
        assert {log.topic_partition: log.log_end_offset for log in manager.all_logs} == ends


def one_batch() -> bytes:
    from seglog.log.batch_builder import RecordBatchBuilder

    builder = RecordBatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, b"x" * 100)
    return builder.build()


def test_children_read_what_was_opened_for_reading(tmp_path: Path) -> None:
    values = [b"%d" % number * 50 for number in range(3000)]
    with seglog.open(tmp_path / "d" / "t-0", config=SEGMENTS, batch_bytes=2000) as log:
        log.append_many(values)
    own_cache = seglog.PartitionLog.open(tmp_path / "d" / "t-0", max_open_segments=1)
    shared = seglog.PartitionLog.open(tmp_path / "d" / "t-0")
    data = seglog.open_data_dir(tmp_path / "d")

    def read(log: seglog.PartitionLog, threads: int) -> list[bytes]:
        found: list[bytes] = []
        with log.to_arrow(columns=["value"], threads=threads) as stream:
            for batch in stream:
                found += batch.to_pylists()["value"]
        return found

    def act() -> bool:
        logs = [own_cache, shared, data.log("t", 0)]
        for threads in (0, 2):
            assert all(read(log, threads) == values for log in logs)
        for log in logs:
            log.refresh()
            assert log.log_end_offset == len(values)
            log.close()
        return True

    with busy(lambda: read(own_cache, 0), lambda: read(shared, 2), own_cache.close, shared.refresh,
              lambda: data.log("t", 0).offset_for_timestamp(0), data.close):
        assert all(forks(act))


def test_streams_that_were_begun_before_the_fork(tmp_path: Path) -> None:
    """Without threads a child reads on, at its own place; with threads it has none, and says so."""
    values = [b"%d" % number for number in range(1000)]
    with seglog.open(tmp_path / "t-0", config=SEGMENTS, batch_bytes=500) as log:
        log.append_many(values)
    log_ = seglog.PartitionLog.open(tmp_path / "t-0")
    alone, ahead = (log_.to_arrow(columns=["value"], threads=threads, batch_rows=10)
                    for threads in (0, 2))
    unbegun = log_.to_arrow(columns=["value"], threads=2, batch_rows=10)
    first = [next(stream).to_pylists()["value"] for stream in (alone, ahead)]
    assert first == [values[:10]] * 2

    def rest(stream: seglog.RecordBatchStream) -> list[bytes]:
        return [value for batch in stream for value in batch.to_pylists()["value"]]

    def act() -> tuple[list[bytes], list[bytes], str]:
        with pytest.raises(ForkedProcessError) as error:
            rest(ahead)
        ahead.close()
        return rest(alone), rest(unbegun), str(error.value)

    read, whole, message = in_child(act)
    assert (read, whole) == (values[10:], values)
    assert message.startswith("This stream that decodes ahead was opened by process")
    assert rest(alone) == rest(ahead) == values[10:]
    assert rest(unbegun) == values
