"""What a listener of a load hears, and in which order."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import seglog
from seglog._native.scan import list_partition
from seglog.model import TopicPartition
from seglog.recovery import partition_plan
from seglog.recovery.callbacks import NullListener
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.findings import Finding
from seglog.recovery.load_progress import LogProgress
from seglog.recovery.load_report import LoadReport, PartitionReport
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.root import read_root
from seglog.recovery.segment_loading import SegmentLoading
from tests.oracle.batch import Batch, Record, encode
from tests.recovery.test_load import data_dir, name, partition
from tests.support.held import threads_since


class Recorder(NullListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def load_started(self, partitions: int, threads: int) -> None:
        self.heard.append(("load_started", partitions, threads))

    def partition_started(self, directory: str) -> None:
        self.heard.append(("partition_started", directory))

    def segments_listed(self, directory: str, count: int) -> None:
        self.heard.append(("segments_listed", directory, count))

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        self.heard.append(("segments_loaded", directory, count))

    def recovery_started(self, directory: str, count: int, size: int) -> None:
        self.heard.append(("recovery_started", directory, count, size))

    def segments_recovered(self, directory: str, count: int, size: int) -> None:
        self.heard.append(("segments_recovered", directory, count))

    def finding(self, found: Finding) -> None:
        self.heard.append(("finding", found.code))

    def partition_loaded(self, report: PartitionReport) -> None:
        self.heard.append(("partition_loaded", report.directory))

    def done(self, report: LoadReport) -> None:
        self.heard.append(("done", report.segments))


def test_a_dry_recovery_reports_each_segment_once(tmp_path: Path) -> None:
    root = data_dir(tmp_path, clean=False)
    path = partition(root, "t-0")
    for base in range(4):
        data = encode(Batch(base, 0, [Record(base, 5)], base_timestamp=5, max_timestamp=5))
        for suffix in (".log", ".index", ".timeindex"):
            (path / name(base, suffix)).write_bytes(data if suffix == ".log" else b"")
    heard = Recorder()
    load_directory(str(root), LoadOptions(LoadLevel.VERIFY), heard)
    assert [one[2] for one in heard.heard if one[0] == "segments_recovered"] == [1, 1, 1, 1]
    assert heard.heard.count(("recovery_started", "t-0", 4, 4 * len(data))) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_the_checks_of_a_log_tell_their_progress(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(partition_plan, "CHUNK_SEGMENTS", 2)
    path, told = partition(data_dir(tmp_path), "t-0", 5), list[int]()
    loading = SegmentLoading(str(tmp_path), threads, LoadLevel.KAFKA)
    plan = loading.check(list_partition(str(path)), lambda count, thread: told.append(count))
    loading.close()
    assert told == [2, 2, 1] and len(plan.segments) == 5


def test_checks_that_no_caller_consumes_are_cancelled(tmp_path: Path) -> None:
    submitted: list[Future[Any]] = []

    def submit(_: object) -> Future[Any]:
        submitted.append(Future())
        return submitted[-1]

    loading = SegmentLoading(str(tmp_path), 2, LoadLevel.KAFKA)
    pool, loading.pool = loading.pool, SimpleNamespace(submit=submit)  # type: ignore[assignment]
    results = loading.run(int for _ in range(100))
    threading.Timer(0.01, lambda: submitted[0].set_result((0, 0))).start()
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    assert len(submitted) > 1 and all(one.cancelled() for one in submitted[1:])
    loading.pool = pool
    loading.close()


def test_threads_that_ended_during_a_load_count(tmp_path: Path) -> None:
    """Their number was reduced meanwhile."""
    with DirectoryLoad(str(tmp_path), LoadLevel.KAFKA, NullListener(), 2) as loads:
        loads.count_segments(3, 5)
        assert loads.report(True).thread_segments == (0, 0, 0, 5)


def test_no_thread_of_a_load_remains(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with DirectoryLoad(str(tmp_path), LoadLevel.KAFKA, NullListener(), 2) as loads:
        assert loads.segments.pool is not None
        assert loads.segments.pool.submit(int).result(60) == 0
    assert not threads_since(before)


def test_nothing_remains_of_a_load_that_is_abandoned(tmp_path: Path) -> None:
    partition(data_dir(tmp_path), "t-0")
    with DirectoryLoad(str(tmp_path), LoadLevel.KAFKA, NullListener(), 1) as loads:
        loads.start(read_root(str(tmp_path), lambda found: None).partitions)
        assert loads.remaining == 1
        loads.abandon()
        assert loads.remaining == 0


def test_the_progress_of_a_log(tmp_path: Path) -> None:
    """Segments and bytes, of a log whose second segment has no file."""
    told: list[tuple[Any, ...]] = []

    class Hearing(NullListener):
        def recovery_started(self, directory: str, count: int, size: int) -> None:
            told.append(("started", count, size))

        def segments_recovered(self, directory: str, count: int, size: int) -> None:
            told.append(("recovered", count, size))

        def segments_loaded(self, directory: str, count: int, thread: int) -> None:
            told.append(("loaded", count, thread))

    to_load: list[int] = []
    to_recover: list[int] = []
    progress = LogProgress("t-0", Hearing(), to_load.append, to_recover.append)
    listing: Any = SimpleNamespace(base_offsets=range(4))
    plan: Any = SimpleNamespace(segments=SimpleNamespace(log_size=np.array([10, -1, 30, 40])))
    progress.listed(listing)
    for count, thread in ((2, 1), (1, 0), (1, 1)):
        progress.checked(count, thread)
    progress.planned(plan)
    for left in (3, 2, 1, 1, 0):
        progress.remaining(left)
    assert told == [("loaded", 2, 1), ("loaded", 1, 0), ("loaded", 1, 1), ("started", 3, 70),
                    ("recovered", 1, 0), ("recovered", 1, 30), ("recovered", 0, 0),
                    ("recovered", 1, 40)]
    assert (to_load, to_recover) == ([4, 2, 1, 0, 0], [3, 2, 1, 1, 0])
    assert progress.thread_segments == {1: 3, 0: 1}
    failed = LogProgress("t-0", Hearing()).report(TopicPartition("t", 0), 0, None, OSError())
    assert (failed.segments, failed.size) == (0, 0), "it ended before they were listed"
    other = LogProgress("t-0", Hearing())
    other.planned(plan)
    other.remaining(5)
    assert told[-1] == ("started", 5, 80), "a split makes more segments than were planned"


def test_what_a_listener_hears(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    partition(root, "a-0", segments=3)
    (partition(root, "b-0") / "x").touch()
    recorder = Recorder()
    report = seglog.open_data_dir(root, listener=recorder).report
    assert report.in_use_by is None and 0 < report.seconds < 60
    assert recorder.heard == [
        ("load_started", 2, 1),
        ("partition_started", "a-0"), ("segments_listed", "a-0", 3),
        ("partition_started", "b-0"), ("segments_listed", "b-0", 1),
        ("segments_loaded", "a-0", 3), ("segments_loaded", "b-0", 1),
        ("partition_loaded", "a-0"), ("finding", "file-foreign"), ("partition_loaded", "b-0"),
        ("done", 4)]
    heard = Recorder()
    seglog.open_data_dir(root, listener=heard, num_segment_loading_threads=4)
    assert sorted(heard.heard[1:]) == sorted(recorder.heard[1:])
    assert [code for event, code, *_ in heard.heard if event == "finding"] == list(report.counts)


def test_what_a_listener_raises_ends_the_load(golden: Path) -> None:
    class Full(NullListener):
        """A progress bar whose pipe is closed."""

        def partition_loaded(self, report: PartitionReport) -> None:
            raise BrokenPipeError

    for threads in (1, 3):
        with pytest.raises(BrokenPipeError):
            seglog.open_data_dir(golden / "real/clean", listener=Full(),
                                 num_segment_loading_threads=threads)


def test_a_listener_hears_what_is_found_in_the_data_directory(tmp_path: Path) -> None:
    data_dir(tmp_path / "k")
    (tmp_path / "k" / "log-start-offset-checkpoint").write_text("no checkpoint")
    heard: list[Finding] = []

    class Hearing(NullListener):
        def finding(self, found: Finding) -> None:
            heard.append(found)

    with seglog.open_data_dir(tmp_path / "k", listener=Hearing()) as data:
        assert heard and list(data.report.findings) == heard


@pytest.mark.parametrize("clean", [False, True])
def test_a_listener_hears_of_each_segment_that_is_verified(tmp_path: Path, clean: bool) -> None:
    partition(data_dir(tmp_path / "k", clean=clean), "t-0", 3)
    heard: list[tuple[str, int, int]] = []
    recovered: list[tuple[str, str, int] | tuple[str, str, int, int]] = []

    class Hearing(NullListener):
        def recovery_planned(self, directory: str, count: int) -> None:
            recovered.append(("planned", directory, count))

        def segments_recovered(self, directory: str, count: int, size: int) -> None:
            recovered.append(("done", directory, count, size))

        def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
            heard.append((directory, count, size))

    load_directory(str(tmp_path / "k"), LoadOptions(LoadLevel.VERIFY), Hearing())
    assert heard == [("t-0", 1, 0)] * 3
    assert recovered == ([("planned", "t-0", 0)] if clean else
                         [("planned", "t-0", 3)] + [("done", "t-0", 1, 0)] * 3)
