"""A load while it runs: its gauges, events and callbacks, and what may happen meanwhile."""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from bench.data import write_segments
from seglog.config import LoadConfig
from seglog.errors import ConfigError, LogManagerStateError
from seglog.manager import loading
from seglog.recovery import segment_loading
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.callbacks import NullListener
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.findings import Finding
from seglog.log.unified_log import UnifiedLog
from seglog.recovery.load_report import LoadReport, PartitionReport
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from tests.manager.records import fill
from tests.manager.support import copy, make_dir, snapshot
from tests.support.waiting import PATIENCE, wait_for

MARKER = ".kafka_cleanshutdown"
RECOVERY = "recovery-point-offset-checkpoint"
PREFIX = "kafka.log:type=LogManager,name="


def config(recovery: int = 2, segments: int = 1) -> LoadConfig:
    return LoadConfig(num_recovery_threads_per_data_dir=recovery,
                      num_segment_loading_threads_per_data_dir=segments)


def names_of(registry: MetricsRegistry, *names: str) -> list[str]:
    return sorted(str(name) for name, _ in registry if name.name in names)


class Seen:
    """Calls a function at each load of a log, with the manager's gauges as they are then."""

    def __init__(self, patch: pytest.MonkeyPatch, look: Callable[[], None]) -> None:
        load = loading.load_unified_log

        def looking(path: str, *args: Any, **kwargs: Any) -> UnifiedLog:
            remaining = kwargs["remaining"]

            def told(count: int) -> None:
                remaining(count)
                look()

            look()
            return load(path, *args, **{**kwargs, "remaining": told})

        patch.setattr(loading, "load_unified_log", looking)


GAUGES = ("remainingLogsToRecover", "remainingSegmentsToRecover", "RemainingSegmentsToLoad")


@pytest.mark.parametrize("segment_threads", [1, 3])
def test_gauges_are_there_while_logs_are_loaded(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_threads: int) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "a-1", "a-2"], clean=False, batches=60)
    (root / RECOVERY).write_text("0\n0\n")
    registry, seen = MetricsRegistry(), list[dict[str, object]]()
    Seen(monkeypatch, lambda: seen.append(
        {name: values.get("Value") for name, values in registry.snapshot().items()}))
    manager = seglog.LogManager([root], config=config(1, segment_threads), metrics=registry)
    assert names_of(registry, *GAUGES) == []
    manager.startup()
    assert names_of(registry, *GAUGES) == []
    [report] = manager.load_reports.values()
    assert {one.recovery_point for one in report.partitions} == {0}, "none is in the checkpoint"
    logs = f'{PREFIX}remainingLogsToRecover,dir="{root}"'
    segments = f'{PREFIX}remainingSegmentsToRecover,dir="{root}",threadNum=0'
    to_load = f'{PREFIX}RemainingSegmentsToLoad,dir="{root}",threadNum=0'
    wanted = {logs, segments} | ({to_load} if segment_threads > 1 else set())
    for one in seen:
        assert {name for name in one if any(gauge in name for gauge in GAUGES)} == wanted
    assert seen[0][segments] is None, "no thread has recovered anything yet"
    assert sorted({one[logs] for one in seen}) == [1, 2, 3]
    counts = [one[segments] for one in seen if one[segments] is not None]
    each = {log.topic_partition: len(log.segments) for log in manager.all_logs}
    assert max(counts) == max(each.values()) and counts[-1] == 0
    assert all(before - after == 1 or before == 0 or after == before
               for before, after in zip(counts, counts[1:], strict=False)), counts
    if segment_threads > 1:
        assert seen[0][to_load] is None
        assert all(one[to_load] == 0 for one in seen[1:] if one[segments] not in (None, 0))
    manager.shutdown()
    assert [name for name in registry.snapshot() if "LogDirectory" in name] == []


def test_gauges_of_every_directory_and_thread(tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    (tmp_path / "file").write_text("")
    registry, seen = MetricsRegistry(), list[list[str]]()
    Seen(monkeypatch, lambda: seen.append(names_of(registry, *GAUGES)))
    with seglog.LogManager([root, tmp_path / "file"], config=config(2, 2), metrics=registry):
        pass
    assert len(seen[0]) == 2 + 4 + 4
    assert f'{PREFIX}RemainingSegmentsToLoad,dir="{tmp_path / "file"}",threadNum=1' in seen[0]


def test_no_executor_with_one_thread_and_a_pool_with_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_segments(tmp_path / "k", 9000)
    used: set[str] = set()
    check = segment_loading.check_chunk

    def noting(*args: Any) -> Any:
        used.add(threading.current_thread().name)
        wait_for(lambda: len(used) >= threads)  # otherwise one may do all before others begin
        return check(*args)

    monkeypatch.setattr(segment_loading, "check_chunk", noting)
    for threads, names in ((1, set[str]()),  # C loads the whole log in one call
                           (3, {f"segment-loading-{root}-{n}" for n in range(3)})):
        used.clear()
        with seglog.LogManager([root], config=config(1, threads)) as manager:
            assert [len(log.segments) for log in manager.all_logs] == [9000]
            assert sum(manager.load_reports[str(root)].thread_segments) == 9000
        assert used == names


def test_the_pools_are_resized_while_they_work(tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}-0" for number in range(6)]
    root = make_dir(tmp_path / "k", names)
    meeting = threading.Barrier(4)
    load = loading.load_unified_log
    managers: list[seglog.LogManager] = []
    first = threading.Lock()

    def waiting(path: str, *args: Any, **kwargs: Any) -> UnifiedLog:
        if first.acquire(blocking=False):
            managers[0].resize_recovery_thread_pool(4)
        if not meeting.broken and Path(path).name in names[:4]:
            meeting.wait(120)  # four logs at the same time, or never
        return load(path, *args, **kwargs)

    monkeypatch.setattr(loading, "load_unified_log", waiting)
    managers.append(seglog.LogManager([root], config=config(1)))
    with managers[0] as manager:
        assert len(manager.all_logs) == 6 and not meeting.broken
        manager.resize_segment_loading_thread_pool(2)
        for resize in (manager.resize_recovery_thread_pool,
                       manager.resize_segment_loading_thread_pool):
            with pytest.raises(ConfigError, match="Value must be at least 1"):
                resize(0)


def test_the_pools_of_segments_are_resized_while_they_work(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_segments(tmp_path / "k", 9000)
    used: set[str] = set()
    first = threading.Lock()
    check = segment_loading.check_chunk
    managers: list[seglog.LogManager] = []

    def noting(*args: Any) -> Any:
        if first.acquire(blocking=False):
            managers[0].resize_segment_loading_thread_pool(3)
        used.add(threading.current_thread().name)
        wait_for(lambda: len(used) >= 3)
        return check(*args)

    monkeypatch.setattr(segment_loading, "check_chunk", noting)
    managers.append(seglog.LogManager([root], config=config(1, 2)))
    with managers[0] as manager:
        assert [len(log.segments) for log in manager.all_logs] == [9000]
    assert used == {f"segment-loading-{root}-{number}" for number in range(3)}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_load_gets_no_more_threads_than_it_is_told(threads: int) -> None:
    """One that began without an executor stays without."""
    load = segment_loading.SegmentLoading("d", threads, LoadLevel.KAFKA)
    load.resize(3)
    assert load.threads == 3 and (load.pool is None) == (threads == 1)
    if load.pool is not None:
        assert load.pool.size == 3
        load.pool.shutdown()


def test_startup_callbacks_run_when_everything_is_loaded(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "a-1"])
    happened: list[str] = []
    Seen(monkeypatch, lambda: happened.append("load"))
    manager = seglog.LogManager([root])

    def ready() -> None:
        assert manager.is_running and len(manager.all_logs) == 2
        log = manager.get_log(TopicPartition("a", 1))
        assert log is not None
        happened.append("ready")

    def fail() -> None:
        raise ValueError("no luck")

    manager.register_startup_callback(ready)
    manager.register_startup_callback(fail)
    manager.register_startup_callback(lambda: happened.append("second"))
    assert happened == []
    manager.startup()
    assert happened == ["load", "load", "ready", "second"]
    assert [type(one.error) for one in manager.startup_callback_failures] == [ValueError]
    manager.shutdown()
    assert happened[2:] == ["ready", "second"]


def test_startup_callbacks_do_not_run_when_the_start_fails(
        tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    (root / "lost+found").mkdir()
    ran: list[int] = []
    manager = seglog.LogManager([root])
    manager.register_startup_callback(lambda: ran.append(1))
    with pytest.raises(seglog.SeglogError):
        manager.startup()
    manager.shutdown()
    assert ran == []


class Recorder(NullListener):
    """Notes every event; from any thread."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, int]] = []
        self.reports: list[PartitionReport] = []
        self.done_report: LoadReport | None = None

    def load_started(self, partitions: int, threads: int) -> None:
        self.events.append(("load_started", partitions, threads))

    def partition_started(self, directory: str) -> None:
        self.events.append(("partition_started", directory, 0))

    def segments_listed(self, directory: str, count: int) -> None:
        self.events.append(("segments_listed", directory, count))

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        self.events.append(("segments_loaded", directory, count))

    def recovery_started(self, directory: str, count: int, size: int) -> None:
        self.events.append(("recovery_started", directory, count))

    def segments_recovered(self, directory: str, count: int, size: int) -> None:
        self.events.append(("segments_recovered", directory, count))

    def finding(self, found: Finding) -> None:
        self.events.append(("finding", found.code, 0))

    def partition_loaded(self, report: PartitionReport) -> None:
        self.reports.append(report)
        self.events.append(("partition_loaded", report.directory, report.segments))

    def done(self, report: LoadReport) -> None:
        self.done_report = report
        self.events.append(("done", report.path, 0))


def test_a_listener_hears_of_everything(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "b-0"], clean=False, batches=60)
    (root / RECOVERY).write_text("0\n0\n")
    heard = Recorder()
    with seglog.LogManager([root], config=config(2, 2), listener=heard) as manager:
        counts = {os.path.basename(log.path): len(log.segments) for log in manager.all_logs}
    assert heard.events[0] == ("load_started", 2, 2) and heard.events[-1][0] == "done"
    for directory, count in counts.items():
        mine = [(name, number) for name, about, number in heard.events if about == directory]
        assert mine[0] == ("partition_started", 0) and mine[-1] == ("partition_loaded", count)
        for event in ("segments_loaded", "segments_recovered"):
            assert sum(number for name, number in mine if name == event) == count
        assert ("recovery_started", count) in mine and ("segments_listed", count) in mine
    assert {(one.directory, one.recovery_segments, one.kafka_error) for one in heard.reports} \
        == {(directory, count, None) for directory, count in counts.items()}
    report = heard.done_report
    assert report is not None and not report.clean_shutdown
    assert report.segments == sum(counts.values()) == sum(report.thread_segments)


def test_a_listener_that_raises_ends_the_start(tmp_path: Path) -> None:
    class Raising(NullListener):
        def segments_listed(self, directory: str, count: int) -> None:
            raise KeyError(directory)

    root = make_dir(tmp_path / "k", ["a-0", "b-0", "c-0"])
    manager = seglog.LogManager([root], listener=Raising())
    with pytest.raises(KeyError):
        manager.startup()
    assert not [thread for thread in threading.enumerate() if "log-recovery" in thread.name]
    manager.shutdown()


def killed_after_a_roll(root: Path, point: int | None) -> Path:
    """A log of two segments, the first with one record, and its recovery point."""
    make_dir(root, [])
    with seglog.LogManager([root]) as manager:
        log = manager.get_or_create_log(TopicPartition("a", 0))
        fill(log, 1, count=1)
        log.roll()
        fill(log, 1, count=2)
    (root / MARKER).unlink()
    (root / RECOVERY).write_text("0\n0\n" if point is None else f"0\n1\na 0 {point}\n")
    return root


@pytest.mark.parametrize(("point", "recovered"), [(None, 2), (0, 2), (1, 1)])
def test_a_log_without_checkpoints_begins_and_is_recovered_at_0(
        tmp_path: Path, point: int | None, recovered: int) -> None:
    for torn in (False, True):
        root = killed_after_a_roll(tmp_path / f"k{torn:d}", point)
        first = root / "a-0" / f"{0:020d}.log"
        first.write_bytes(first.read_bytes() + b"torn" * torn)
        planned, = load_directory(str(root), LoadOptions()).report.partitions
        heard = Recorder()
        with seglog.LogManager([root], listener=heard) as manager:
            log, = manager.all_logs
            assert (log.log_start_offset, log.log_end_offset) == (
                0, 1 if torn and recovered == 2 else 3)
        assert [one.recovery_segments for one in (planned, *heard.reports)] == [recovered] * 2


def test_rows_of_a_crash_report_the_segment_that_they_recovered(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", [])
    with seglog.LogManager([root]) as manager:
        fill(manager.get_or_create_log(TopicPartition("a", 0)), 2)
    (root / MARKER).unlink()
    heard = Recorder()
    with seglog.LogManager([root], listener=heard) as manager:
        assert not manager._state.table.opened()
        assert [log.log_start_offset for log in manager.all_logs] == [0]
    assert [event for event in heard.events if event[1] == "a-0"] == [
        ("partition_started", "a-0", 0), ("segments_listed", "a-0", 1),
        ("segments_loaded", "a-0", 1), ("recovery_started", "a-0", 1),
        ("segments_recovered", "a-0", 1), ("partition_loaded", "a-0", 1)]


def test_messages_are_kafkas(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clean, unclean = (make_dir(tmp_path / "clean", ["a-0"]),
                      make_dir(tmp_path / "unclean", ["b-0"], clean=False))
    with caplog.at_level(logging.INFO, "seglog.manager"), \
            seglog.LogManager([clean, unclean, tmp_path / "new"]):
        pass
    said = "\n".join(record.getMessage() for record in caplog.records)
    for pattern in (
            f"Log directory {tmp_path}/new not found, creating it.",
            f"Loading logs from log dirs {clean}, {unclean}, {tmp_path}/new",
            f"Skipping recovery of 1 logs from {clean} since clean shutdown file was found",
            f"Recovering 1 logs from {unclean} since no clean shutdown file was found",
            f"No logs found to be loaded in {tmp_path}/new",
            rf"Completed load of Log\(dir={clean}/a-0, topicId=\S+, topic=a, partition=0, "
            r"highWatermark=\d+, lastStableOffset=\d+, logStartOffset=\d+, logEndOffset=\d+\) "
            r"with \d+ segments, local-log-start-offset \d+ and log-end-offset \d+ in \d+ms "
            rf"\(1/1 completed in {clean}\)",
            rf"Loaded 2 logs in \d+ms \(unclean log dirs = {unclean}\)",
            "Shutting down.", "Shutdown complete."):
        assert re.search(pattern, said), f"{pattern}\n{said}"


def test_shutdown_while_logs_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log that is being loaded is finished; the directory stays unclean, and its lines stay."""
    root = make_dir(tmp_path / "k", ["a-0", "b-0", "c-0"], clean=False)
    points = sorted((root / RECOVERY).read_text().splitlines())
    begun, release = threading.Event(), threading.Event()
    load = loading.load_unified_log

    def slow(path: str, *args: Any, **kwargs: Any) -> UnifiedLog:
        begun.set()
        release.wait(120)
        return load(path, *args, **kwargs)

    monkeypatch.setattr(loading, "load_unified_log", slow)
    manager = seglog.LogManager([root], config=config(1))
    errors: list[BaseException] = []

    def start() -> None:
        try:
            manager.startup()
        except LogManagerStateError as error:
            errors.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    assert begun.wait(PATIENCE)
    load_cancel = DirectoryLoad.cancel

    def cancel(directory: DirectoryLoad) -> None:
        pool = directory._pool
        assert pool is not None

        def go_on() -> None:
            wait_for(lambda: pool._closed)
            release.set()

        going_on = threading.Thread(target=go_on)
        going_on.start()
        load_cancel(directory)
        going_on.join()

    monkeypatch.setattr(DirectoryLoad, "cancel", cancel)
    manager.shutdown()
    starting.join(120)
    assert len(errors) == 1 and not manager.is_running
    assert not (root / MARKER).exists() and not (root / ".lock").exists()
    after = sorted((root / RECOVERY).read_text().splitlines())
    assert [line.split()[:2] for line in after] == [line.split()[:2] for line in points]
    assert len(set(after) - set(points)) <= 1, "only the log that was loaded has moved"


LOAD = """
import sys
import threading
import seglog
from seglog.config import LoadConfig
from seglog.recovery.callbacks import NullListener

lock = threading.Lock()

class Steps(NullListener):
    # Goes on from event to event as it is told.
    def step(self, *_):
        with lock:
            print("step", flush=True)
            sys.stdin.readline()
    partition_started = segments_listed = segments_loaded = recovery_started = step
    segments_recovered = finding = partition_loaded = step

seglog.LogManager([sys.argv[1]], listener=Steps(), config=LoadConfig(
    num_recovery_threads_per_data_dir=2, num_segment_loading_threads_per_data_dir=2)).startup()
"""


def load_until(root: Path, steps: int) -> int:
    """Starts a manager in a process of its own, and kills it at that event; events that there were
    (fewer when it came to its end)."""
    process = subprocess.Popen([sys.executable, "-c", LOAD, str(root)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin, process.stdout:
        for step in range(steps):
            if not process.stdout.readline():
                return step
            process.stdin.write("\n")
            process.stdin.flush()
        process.send_signal(signal.SIGKILL)
    return steps


@pytest.mark.judge
def test_a_start_that_is_killed_starts_again_with_the_same_result(tmp_path: Path) -> None:
    names = ["a-0", "b-0", "c-0"]
    source = make_dir(tmp_path / "source", names, clean=False, batches=150)
    (source / RECOVERY).write_text("0\n0\n")
    for path in sorted(source.rglob("*.log"))[1::4]:
        path.with_suffix(".index").unlink(missing_ok=True)
    for name in names:  # a torn tail
        with open(max((source / name).glob("*.log")), "ab") as stream:
            stream.write(bytes(range(1, 100)))

    def finish(root: Path) -> dict[str, bytes]:
        with seglog.LogManager([root]) as manager:
            assert len(manager.all_logs) == 3
        files = snapshot(root)
        files[RECOVERY] = b"".join(sorted(files[RECOVERY].splitlines(keepends=True)))
        return files

    wanted = finish(copy(source, tmp_path / "wanted" / "k"))
    events = load_until(copy(source, tmp_path / "whole" / "k"), 10_000)
    assert events > 50
    for step in sorted(random.Random(17).sample(range(1, events), 6)):
        root = copy(source, tmp_path / f"killed-{step}" / "k")
        assert load_until(root, step) == step and (root / ".lock").exists()
        found = finish(root)
        assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
        assert [name for name in found if found[name] != wanted[name]] == [], step
