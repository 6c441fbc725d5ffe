"""Loading data directories: threads, levels, hostile contents, and that nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import KafkaStorageError, UnknownTopicOrPartitionError
from seglog.model import TopicPartition
from seglog.recovery import partition_plan
from seglog.recovery.callbacks import NullListener
from seglog.recovery.findings import Finding, Severity
from seglog.recovery.load_report import FINDINGS_PER_CODE_MAX, LoadReport
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.root import read_root
from seglog.storage.lock_holder import LockHolder
from tests.support.effort import IS_QUICK
from tests.support.fingerprint import fingerprint
from tests.support.users import without_rights

LEVELS = ("kafka", "full", "verify")


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def data_dir(root: Path, *, clean: bool = True) -> Path:
    root.mkdir(exist_ok=True)
    (root / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    if clean:
        (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return root


def partition(root: Path, directory: str, segments: int = 1) -> Path:
    """A partition of empty segments, which hard links make cheap."""
    path = root / directory
    path.mkdir()
    (path / "leader-epoch-checkpoint").write_text("0\n0\n")
    (path / "partition.metadata").write_text("version: 0\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w")
    for suffix in (".log", ".index", ".timeindex"):
        first = path / name(0, suffix)
        first.touch()
        for base in range(1, segments):
            os.link(first, path / name(base, suffix))
    return path


def codes(report: LoadReport) -> set[str]:
    return set(report.counts)


def only(report: LoadReport, code: str) -> Finding:
    [found] = [one for one in report.findings if one.code == code]
    return found


# ---- the same whatever the threads --------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("which", ["real/clean", "real/unclean"])
def test_threads_change_nothing(golden: Path, which: str, level: Any) -> None:
    def load(threads: int) -> dict[str, Any]:
        with seglog.open_data_dir(golden / which, level=level,
                                  num_segment_loading_threads=threads) as data:
            told = json.loads(data.report.to_json())
        assert sum(told.pop("thread_segments")) == told["totals"]["segments"]
        del told["seconds"], told["threads"]
        return dict(told)

    assert load(1) == load(2) == load(7)


@pytest.mark.judge
def test_a_thousand_partitions(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    for number in range(1000):
        partition(root, f"topic-{number}", segments=number % 4)
    for threads in (1, 4):
        with seglog.open_data_dir(root, num_segment_loading_threads=threads) as data:
            assert len(data.logs) == 1000
            assert data.topics == {"topic": list(range(1000))}
            assert [len(data.segments(f"topic-{n}")) for n in range(4)] == [1, 1, 2, 3]
            assert data.report.severity_counts["error"] == 0


def test_one_thread_needs_no_executor(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", None)
    seglog.open_data_dir(golden / "real/clean", level="verify").close()


def test_segments_take_little_memory(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    partition(root, "t-0", segments=20_000)
    with seglog.open_data_dir(root, num_segment_loading_threads=3) as data:
        table = data.segments("t-0")
        assert len(table) == 20_000 and table.nbytes < 100 * len(table)
        assert table.base_offsets.tolist() == list(range(20_000))
        assert len(data.report.thread_segments) == 3
        assert sum(data.report.thread_segments) == 20_000


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_without_work_are_counted_too(tmp_path: Path, threads: int) -> None:
    root = data_dir(tmp_path / "data")
    for names in ((), ("t-0",)):
        for name in names:
            partition(root, name, segments=1)
        with seglog.open_data_dir(root, num_segment_loading_threads=threads) as data:
            assert sorted(data.report.thread_segments) == [0] * (threads - len(names)) + [
                1] * len(names)


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data", clean=False)
    partitions = 4 if IS_QUICK else 20
    for number in range(partitions):
        partition(root, f"t-{number}", segments=200)
    program = textwrap.dedent("""
        import resource, sys
        import seglog
        import seglog.datadir
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        for level in ("kafka", "full", "verify"):
            with seglog.open_data_dir(sys.argv[1], level=level,
                                      num_segment_loading_threads=8) as data:
                assert data.report.segments == int(sys.argv[2]), data.report
                assert not data.report.severity_counts["error"], data.report.counts
    """)
    subprocess.run([sys.executable, "-c", program, str(root), str(partitions * 200)], check=True)


# ---- nothing is written -------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["real/clean", "real/unclean", "damaged"])
def test_a_load_writes_nothing(golden_copy: Callable[[str], Path], source: str) -> None:
    copy = golden_copy(source)
    roots = sorted(path for path in copy.iterdir() if path.is_dir()) if source == "damaged" else [
        copy]
    before = fingerprint(copy)
    for root in roots:
        for level in LEVELS:
            with seglog.open_data_dir(root, level=level, num_segment_loading_threads=2) as data:
                for log in data.logs.values():
                    assert log.log_start_offset >= 0
    assert fingerprint(copy) == before


def test_a_directory_without_write_permission_loads(golden_copy: Callable[[str], Path]) -> None:
    copy = golden_copy("real/clean")
    before = seglog.open_data_dir(copy, level="verify").report
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with without_rights(copy):
        with pytest.raises(PermissionError):
            (copy / "file").touch()
        report = seglog.open_data_dir(copy, level="verify").report
    assert report.severity == Severity.INFO and report.counts == before.counts
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755)


# ---- what a data directory may look like --------------------------------------------------------


def test_directories_that_are_none(golden: Path, tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError) as missing:
        seglog.open_data_dir(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(KafkaStorageError, match="partition directory, not a data directory"):
        seglog.open_data_dir(golden / "real/clean/txn-0")
    (tmp_path / "file").touch()
    with pytest.raises(KafkaStorageError):
        seglog.open_data_dir(tmp_path / "file")
    for bad in (0, -1):
        with pytest.raises(ValueError, match="must be between 1 and 1024"):
            seglog.open_data_dir(tmp_path, num_segment_loading_threads=bad)
    with pytest.raises(ValueError, match="sloppy"):
        seglog.open_data_dir(tmp_path, level="sloppy")  # type: ignore[arg-type]


def test_an_empty_directory_is_no_data_directory_until_something_says_so(tmp_path: Path) -> None:
    with pytest.raises(KafkaStorageError, match="there are no logs in it"):
        seglog.open_data_dir(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    with seglog.open_data_dir(tmp_path) as data:
        assert len(data.logs) == 0 and data.topics == {} and not data.had_clean_shutdown
        assert codes(data.report) == {"meta-properties-missing"}


def test_directories_of_every_kind(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    tail = "0" * 32
    for directory in ("a-0", "a-+0", f"b-1.{tail}-delete", f"c-2.{tail}-future",
                      f"d-3.{tail}-stray", "__cluster_metadata-0", "remote-log-index-cache",
                      "lost+found", "e-x", os.fsdecode(b"f\xff-0"), "seglog_unfinished_commit",
                      "t-0"):
        partition(root, directory)
    (root / ".seglog-job-7").write_text("x")  # no partition, whatever its name
    (root / "file-0").write_text("x")
    (root / "gone-1").symlink_to(tmp_path / "not mounted")
    (root / f"g-2.{tail}-delete").write_text("x")  # no broker creates it
    (root / "notes.txt").write_text("x")
    with seglog.open_data_dir(root) as data:
        assert [(found.directory, found.severity) for found in data.report.directory_findings
                if found.code == "directory-is-file"] == [
            ("file-0", Severity.WARNING), ("gone-1", Severity.WARNING)]
        named = {(found.code, found.directory) for found in data.report.directory_findings}
        assert named >= {
            ("directory-deleted", f"b-1.{tail}-delete"), ("directory-stray", f"d-3.{tail}-stray"),
            ("directory-future", f"c-2.{tail}-future"), ("duplicate-partition", "a-0"),
            ("directory-metadata", "__cluster_metadata-0"), ("directory-name", "lost+found"),
            ("directory-name", "e-x"), ("commit-unfinished", "seglog_unfinished_commit")}
        assert {key.topic for key in data.logs} == {
            "a", "__cluster_metadata", os.fsdecode(b"f\xff"), "t"}
        assert {one.log_start_offset for one in data.report.partitions} == {0}
        assert json.loads(data.report.to_json().encode())


@pytest.mark.parametrize("is_locked", [False, True])
def test_who_writes_to_a_directory_is_told_unless_the_caller_does(
        tmp_path: Path, is_locked: bool) -> None:
    told: list[Finding] = []
    with seglog.open(data_dir(tmp_path) / "t-0"):
        found = read_root(str(tmp_path), told.append, is_locked=is_locked)
    holder = None if is_locked else LockHolder(os.getpid(), None)
    assert found.holder == holder
    assert [one.code for one in told] == [
        "unclean-shutdown" if is_locked else "directory-in-use"]


def test_malformed_top_level_files_are_findings(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data", clean=False)
    partition(root, "t-0")
    (root / "meta.properties").write_text("version=7\n")
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 x\n")
    (root / "log-start-offset-checkpoint").write_text("9\n")
    (root / "replication-offset-checkpoint").mkdir()
    with seglog.open_data_dir(root) as data:
        found = {one.file: one for one in data.report.directory_findings}
        assert found["recovery-point-offset-checkpoint"].code == "checkpoint-malformed"
        assert "offline" not in found["recovery-point-offset-checkpoint"].action
        assert "offline" in found["log-start-offset-checkpoint"].action
        assert found["replication-offset-checkpoint"].code == "file-unreadable"
        assert found["meta.properties"].severity == Severity.FATAL
        assert found[".kafka_cleanshutdown"].code == "unclean-shutdown"
        assert data.recovery_points == data.log_start_offsets == data.high_watermarks == {}
        assert data.meta_properties is None


def test_a_link_in_the_place_of_a_checkpoint_is_a_finding_of_its_own(tmp_path: Path) -> None:
    """Kafka reads through it (CheckpointFile.read), so no directory goes offline."""
    root = data_dir(tmp_path / "data")
    (tmp_path / "elsewhere").write_text("0\n1\nt 0 3\n")
    (root / "log-start-offset-checkpoint").symlink_to(tmp_path / "elsewhere")
    with seglog.open_data_dir(root) as data:
        found = {one.file: one for one in data.report.directory_findings}[
            "log-start-offset-checkpoint"]
        assert (found.code, "offline" in found.action) == ("file-kind", False)


@pytest.mark.parametrize(("content", "what"), [
    (b"", "node"), (bytes(40), "node"), (b"version=0\nbroker.id=1\n", "cluster")])
def test_an_empty_meta_properties_is_a_finding(tmp_path: Path, content: bytes, what: str) -> None:
    """Empty or zeros, as a power cut leaves a file: it parses, and a broker stops."""
    root = data_dir(tmp_path / "data")
    partition(root, "t-0")
    (root / "meta.properties").write_bytes(content)
    with seglog.open_data_dir(root) as data:
        (found,) = data.report.directory_findings
        assert (found.code, found.severity) == ("meta-properties-malformed", Severity.FATAL)
        assert found.message == f"Error: {what} ID not found in {root}"


def test_hostile_files_in_a_partition(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    path = partition(root, "t-0", segments=3)
    (path / name(1, ".index")).unlink()
    (path / name(1, ".index")).symlink_to("/dev/zero")
    (path / name(7, ".log")).mkdir()
    os.mkfifo(path / name(8, ".log"))
    (path / name(9, ".snapshot")).symlink_to("/dev/zero")
    (path / "notes.txt").touch()
    (path / "5.log").touch()
    (path / name(4, ".timeindex")).touch()
    for level in LEVELS:
        report = seglog.open_data_dir(root, level=level).report
        named = {(one.code, one.file) for one in report.findings}
        assert named >= {
            ("file-kind", name(1, ".index")), ("index-missing", name(1, ".index")),
            ("file-kind", name(7, ".log")), ("file-kind", name(8, ".log")),
            ("file-kind", name(9, ".snapshot")), ("file-foreign", "notes.txt"),
            ("name-not-canonical", "5.log"), ("orphan-index", name(4, ".timeindex"))}


def test_findings_name_their_segments_in_every_chunk(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_plan, "CHUNK_SEGMENTS", 2)
    path = partition(data_dir(tmp_path), "t-0", 6)
    wrong = [name(base, ".index") for base in (3, 4)]
    for one in wrong:
        (path / one).unlink()
        (path / one).write_bytes(bytes(5))
    with seglog.open_data_dir(tmp_path, level="full") as data:
        assert [one.file for one in data.report.findings if one.code == "index-size"] == wrong


def test_a_name_that_kafka_dies_of(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    (partition(root, "t-0") / "foo.log").touch()
    report = seglog.open_data_dir(root).report
    assert only(report, "name-not-a-number").severity == Severity.FATAL
    [told] = report.partitions
    assert told.kafka_error == "NumberFormatException"
    assert told.log_end_offset is None


def test_digits_of_another_script_are_a_number_to_java(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    (partition(root, "t-0", segments=9) / ("\u0660" * 19 + "\u0665.log")).touch()
    report = seglog.open_data_dir(root).report
    assert set(report.counts) == {"name-not-canonical"}
    assert report.partitions[0].kafka_error is None


def test_too_many_findings_are_counted(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "data")
    path = partition(root, "t-0")
    for number in range(FINDINGS_PER_CODE_MAX + 5):
        (path / f"stray-{number}").touch()
    report = seglog.open_data_dir(root).report
    assert report.counts["file-foreign"] == FINDINGS_PER_CODE_MAX
    assert only(report, "findings-omitted").found == FINDINGS_PER_CODE_MAX + 5


def test_logs_open_lazily_and_once(golden: Path) -> None:
    with seglog.open_data_dir(golden / "real/clean") as data:
        key = TopicPartition("startoffset", 0)
        log = data.logs[key]
        assert log is data.logs[key] is data.log("startoffset", 0)
        assert log.log_start_offset == data.log_start_offsets[key] == 253
        with pytest.raises(UnknownTopicOrPartitionError):
            data.log("startoffset", 1)
        with pytest.raises(KeyError):
            data.logs[TopicPartition("nothing", 0)]
        with pytest.raises(UnknownTopicOrPartitionError):
            data.segments("nothing-0")
        assert data.had_clean_shutdown
        assert data.meta_properties is not None and data.meta_properties.node_id is not None


# ---- while others change it ---------------------------------------------------------------------


class Vandal(NullListener):
    """Removes things between the steps of a load."""

    def __init__(self, act: Callable[[str], None], moment: str) -> None:
        self.act, self.moment = act, moment

    def partition_started(self, directory: str) -> None:
        if self.moment == "started":
            self.act(directory)

    def segments_listed(self, directory: str, count: int) -> None:
        if self.moment == "listed":
            self.act(directory)

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        if self.moment == "loaded":
            self.act(directory)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("moment", ["started", "listed", "loaded"])
@pytest.mark.parametrize("level", LEVELS)
def test_what_vanishes_during_a_load(tmp_path: Path, level: Any, moment: str,
                                     threads: int) -> None:
    root = data_dir(tmp_path / "data")
    for number in range(6):
        partition(root, f"t-{number}", segments=5)

    def act(directory: str) -> None:
        path = root / directory
        if directory == "t-1":
            shutil.rmtree(path, ignore_errors=True)
        if directory == "t-2":
            for file in (*path.glob("*3.log"), *path.glob("*3.index")):
                file.rename(path / (file.name + ".deleted"))
        if directory == "t-3":
            (path / "leader-epoch-checkpoint").unlink(missing_ok=True)
            (path / "partition.metadata").unlink(missing_ok=True)

    report = seglog.open_data_dir(root, level=level, listener=Vandal(act, moment),
                                  num_segment_loading_threads=threads).report
    told = {one.directory for one in report.partitions}
    assert told >= {"t-0", "t-2", "t-3", "t-4", "t-5"}
    assert report.severity_counts["fatal"] == 0
    for one in report.partitions:
        if one.directory in ("t-0", "t-4", "t-5"):
            assert not one.findings and one.segments == 5


@pytest.mark.parametrize(("end", "start", "code"), [
    (0, 0, set()), (0, 1, {"epochs-beyond-end"}), (2, 1, set()), (2, 2, {"epochs-beyond-end"})])
def test_an_epoch_begins_below_the_end_or_with_an_empty_log(
        tmp_path: Path, end: int, start: int, code: set[str]) -> None:
    path = partition(data_dir(tmp_path / "k"), "t-0", segments=end + 1)
    (path / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {start}\n")
    report = load_directory(str(tmp_path / "k"), LoadOptions(LoadLevel.FULL)).report
    assert codes(report) & {"epochs-beyond-end"} == code


def test_a_load_of_one_partition(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "k")
    for number in range(3):
        partition(root, f"t-{number}")
    report = load_directory(str(root), LoadOptions(only="t-1")).report
    assert [one.directory for one in report.partitions] == ["t-1"]


def test_only_the_last_segment_has_room_in_its_indexes(tmp_path: Path) -> None:
    """A crash leaves it there."""
    path = partition(data_dir(tmp_path / "k"), "t-0", segments=2)
    for base in (0, 1):
        (path / name(base, ".index")).unlink()
        (path / name(base, ".index")).write_bytes(bytes(80))
    report = load_directory(str(tmp_path / "k"), LoadOptions(LoadLevel.FULL)).report
    assert {one.file: one.severity is Severity.INFO for one in report.findings
            if one.file is not None} == {name(0, ".index"): False, name(1, ".index"): True}


def test_partitions_after_the_cache_of_remote_indexes_are_loaded(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "k")
    (root / "remote-log-index-cache").mkdir()
    for name in ("a-0", "t-0"):
        partition(root, name)
    with seglog.open_data_dir(root) as data:
        assert data.topics == {"a": [0], "t": [0]}


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_directory_that_was_listed_is_loaded(tmp_path: Path, is_clean: bool) -> None:
    with seglog.open(tmp_path / "t-0") as log:
        log.append(b"x")
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    result = load_directory(str(tmp_path), LoadOptions())
    assert [result.is_loaded(name) for name in ("t-0", "t-1")] == [True, False]
