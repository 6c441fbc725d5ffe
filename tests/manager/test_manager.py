"""LogManager: what it opens, what it leaves behind, and in which order it does it."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog.config import BrokerConfig, LoadConfig
from seglog.errors import (
    AllLogDirsFailedError, ConfigError, DuplicateLogDirError, DuplicatePartitionError,
    IllegalArgumentError, InconsistentLogDirError, InvalidTopicPartitionError, LogDirLockedError,
    LogDirNotFoundError, LogManagerStateError,
)
from seglog.manager import closing
from seglog.model import TopicPartition
from seglog.log.scheduler import Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.recovery.disk import RealDisk
from tests.manager.records import fill
from tests.manager.support import (
    break_load, copy, entries, input_output_error, make_dir, snapshot, write_meta,
)
from tests.support.held import threads_since
from tests.support.synced import syncs
from tests.support.waiting import wait_for

MARKER = ".kafka_cleanshutdown"
RECOVERY = "recovery-point-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
WATERMARKS = "replication-offset-checkpoint"


def test_a_clean_directory_opens_and_closes(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "a-1", "b-7"])
    before = snapshot(root)
    with seglog.LogManager([root]) as manager:
        assert not (root / MARKER).exists(), "a crash from here on is one"
        assert (root / ".lock").exists()
        assert sorted(manager.current_logs) == [TopicPartition("a", 0), TopicPartition("a", 1),
                                                TopicPartition("b", 7)]
        log = manager.get_log(TopicPartition("b", 7))
        assert log is not None and log.path == str(root / "b-7")
        assert manager.get_log(TopicPartition("b", 8)) is None
        ends = {key: log.log_end_offset for key, log in manager.current_logs.items()}
    assert not (root / ".lock").exists()
    assert (root / MARKER).read_text() == '{"version":0,"brokerEpoch":-1}'
    assert entries(root / RECOVERY) == ends
    changed = {name for name, content in snapshot(root).items() if before.get(name) != content}
    assert {MARKER} <= changed <= {MARKER, RECOVERY, WATERMARKS}, "the order of lines says nothing"


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    """Where a program prints them, or a notebook shows them."""
    root = make_dir(tmp_path / "k", ["a-0", "a-1"])
    manager = seglog.LogManager([root])
    assert repr(manager) == f"LogManager({str(root)!r}, new)"
    with manager:
        assert repr(manager) == f"LogManager({str(root)!r}, running)"
    assert repr(manager) == f"LogManager({str(root)!r}, closed)"
    with seglog.open_data_dir(root) as data:
        assert repr(data.logs) == f"<2 logs of {str(root)!r}>"


def test_an_unclean_directory_is_clean_afterwards(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "a-1"], clean=False)
    with seglog.LogManager([root]) as manager:
        states = {log.topic_partition: log.state() for log in manager.all_logs}
    assert (root / MARKER).exists()
    with seglog.LogManager([root]) as manager:
        for log in manager.all_logs:
            state, old = log.state(), states[log.topic_partition]
            assert state["log_end_offset"] == old["log_end_offset"] == state["recovery_point"]
            assert state["producers"] == old["producers"]


def test_the_marker_carries_the_broker_epoch(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / name, ["a-0"] if name == "k1" else []) for name in ("k1", "k2")]
    manager = seglog.LogManager(roots)
    assert manager.read_broker_epoch_from_clean_shutdown_files() == 10
    manager.startup()
    assert manager.read_broker_epoch_from_clean_shutdown_files() is None
    manager.shutdown(broker_epoch=77)
    assert (roots[1] / MARKER).read_text() == '{"version":0,"brokerEpoch":77}'
    (roots[0] / MARKER).write_text('{"version":0,"brokerEpoch":78}')
    manager = seglog.LogManager(roots)
    assert manager.read_broker_epoch_from_clean_shutdown_files() is None
    manager.shutdown()


def test_missing_directories_are_created(tmp_path: Path) -> None:
    root = tmp_path / "x" / "y" / "k"
    with seglog.LogManager(root) as manager:
        assert manager.live_log_dirs == [str(root)] and manager.all_logs == []
        assert {path.name for path in root.iterdir()} == {".lock", RECOVERY, STARTS}
    assert (root / MARKER).exists()


def test_one_directory_twice_is_refused(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", [])
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(DuplicateLogDirError, match=re.escape(
            f"Duplicate log directory found: {root}, {tmp_path / 'link'}")):
        seglog.LogManager([root, tmp_path / "link"])
    assert not (root / ".lock").exists()


def test_a_trailing_slash_and_a_relative_path_are_the_same_directory(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    monkeypatch.chdir(tmp_path)
    for given in (f"{root}/", "k", "./k//"):
        with seglog.LogManager([given]) as manager:
            assert manager.is_log_dir_online(given) and manager.live_log_dirs == [str(root)]
            assert len(manager.logs_in_dir(given)) == 1


def test_a_locked_directory_is_refused_and_not_touched(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / name, ["a-0"] if name == "k1" else []) for name in ("k1", "k2")]
    holder = seglog.LogManager([roots[1]])
    before = snapshot(tmp_path)
    with pytest.raises(LogDirLockedError, match=f"Failed to acquire lock on file .lock in "
                                                f"{roots[1]}.*process {os.getpid()}") as caught:
        seglog.LogManager(roots)
    assert caught.value.holder_pid == os.getpid()
    assert snapshot(tmp_path) == before
    holder.shutdown()


def test_checkpoints_hold_what_kafka_writes(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "b-0", "c-0"])
    with seglog.LogManager([root]) as manager:
        first = manager.get_log(TopicPartition("a", 0))
        assert first is not None
        start = first.log_start_offset + 1
        first.update_high_watermark(start + 1)
        assert first.maybe_increment_log_start_offset(
            start, StartOffsetReason.CLIENT_RECORD_DELETION)
        manager.checkpoint_log_recovery_offsets()
        manager.checkpoint_log_start_offsets()
        manager.checkpoint_high_watermarks()
        logs = manager.current_logs
        assert entries(root / RECOVERY) == {key: log.recovery_point for key, log in logs.items()}
        starts = entries(root / STARTS)
        assert starts[TopicPartition("a", 0)] == first.log_start_offset
        assert starts == {key: log.log_start_offset for key, log in logs.items()
                          if log.log_start_offset > log.segments.base_offsets[0]}
        marks = entries(root / WATERMARKS)
        assert marks == {key: log.high_watermark for key, log in logs.items()}
    assert entries(root / WATERMARKS) == marks
    with seglog.LogManager([root]) as manager:
        again = manager.get_log(TopicPartition("a", 0))
        assert again is not None and again.log_start_offset == first.log_start_offset
        assert again.high_watermark == first.high_watermark


def test_a_truncation_that_fails_for_one_log_is_written_down_for_the_others(
        tmp_path: Path) -> None:
    """What is written at the truncated offsets must not count as flushed after a crash."""
    root = make_dir(tmp_path / "k", ["a-0", "b-0"])
    a0, b0 = TopicPartition("a", 0), TopicPartition("b", 0)
    with seglog.LogManager([root]) as manager:
        before = entries(root / RECOVERY)
        with pytest.raises(IllegalArgumentError, match="to a negative offset"):
            manager.truncate_to({a0: 1, b0: -1})
        log = manager.get_log(a0)
        assert log is not None and log.log_end_offset < before[a0]
        assert entries(root / RECOVERY) == {a0: log.log_end_offset, b0: before[b0]}


def test_deleted_future_and_stray_directories(tmp_path: Path,
                                              caplog: pytest.LogCaptureFixture) -> None:
    name = "0123456789abcdef0123456789abcdef"
    root = make_dir(tmp_path / "k", [
        "a-0", f"b-0.{name}-delete", f"c-0.{name}-future", f"d-0.{name}-stray", "e-0"])
    with caplog.at_level(logging.WARNING), seglog.LogManager(
            [root], is_stray=lambda log: log.topic_partition.topic == "e") as manager:
        assert [key.topic for key in manager.current_logs] == ["a"]
        assert [key.topic for key in manager.future_logs] == ["c"]
        assert sorted(key.topic for key in manager.stray_logs) == ["d", "e"]
        assert [log.topic_partition.topic for log in manager.logs_to_be_deleted] == ["b"]
        assert manager.get_log(TopicPartition("c", 0)) is None
        assert manager.get_log(TopicPartition("c", 0), is_future=True) is not None
        renamed = manager.stray_logs[TopicPartition("e", 0)].path
    assert re.fullmatch(r"e-0\.[0-9a-f]{32}-stray", os.path.basename(renamed))
    assert not (root / "e-0").exists() and os.path.isdir(renamed)
    assert sorted(key.topic for key in entries(root / RECOVERY)) == ["a", "c"]
    said = [record.getMessage() for record in caplog.records]
    assert f"Loaded stray log: {root}/d-0.{name}-stray" in said
    assert f"Log in {root / 'e-0'} marked stray and renamed to {renamed}" in said


def test_two_directories_with_one_partition(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / name, ["a-0"]) for name in ("k1", "k2")]
    with pytest.raises(DuplicatePartitionError) as caught:
        seglog.LogManager(roots).__enter__()
    text = str(caught.value)
    assert caught.value.kafka_name == "IllegalStateException"
    assert text.startswith("Duplicate log directories for a-0 are found in both ")
    assert str(roots[0] / "a-0") in text and str(roots[1] / "a-0") in text
    assert text.endswith("Recover broker from this failure by manually deleting one of the two "
                         "directories for this partition. It is recommended to delete the "
                         "partition in the log directory that is known to have failed recently.")
    assert not any((root / ".lock").exists() for root in roots)


def test_a_foreign_subdirectory_is_fatal_and_a_file_is_not(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "t-0"])
    (root / "notes.txt").write_text("hello")
    (root / "remote-log-index-cache").mkdir()
    (root / "__cluster_metadata-0").mkdir()
    with seglog.LogManager([root]) as manager:
        assert len(manager.all_logs) == 2
    (root / "lost+found").mkdir()
    with pytest.raises(InvalidTopicPartitionError, match="lost\\+found"):
        seglog.LogManager([root]).__enter__()
    assert (root / MARKER).exists(), "nothing was loaded, and the marker comes back"


def test_a_log_that_does_not_load_leaves_its_checkpoint_line(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "b-0"], clean=False)
    (root / RECOVERY).write_text("0\n3\na 0 1\nb 0 2\ngone 0 3\n")
    (root / STARTS).write_text("0\n1\nb 0 1\n")
    break_load(monkeypatch, "b-0", lambda path: ValueError("no luck"))
    manager = seglog.LogManager([root])
    with pytest.raises(ValueError, match="no luck"):
        manager.startup()
    manager.shutdown()
    assert not (root / MARKER).exists(), "the log needs its recovery still"
    points = entries(root / RECOVERY)
    assert set(points) == {TopicPartition("a", 0), TopicPartition("b", 0)}
    assert points[TopicPartition("b", 0)] == 2
    assert entries(root / STARTS) == {TopicPartition("b", 0): 1}
    with pytest.raises(LogManagerStateError):
        manager.startup()


def test_a_log_that_does_not_close_keeps_its_directory_unclean(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    roots = [make_dir(tmp_path / "k1", ["a-0", "a-1"]), make_dir(tmp_path / "k2", ["b-0"])]
    before = (roots[0] / RECOVERY).read_bytes()
    close = UnifiedLog.close

    def broken(log: UnifiedLog) -> None:
        if log.topic_partition == TopicPartition("a", 0):
            raise input_output_error(log.path)
        close(log)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(UnifiedLog, "close", broken)
        with seglog.LogManager(roots):
            pass
    assert not (roots[0] / MARKER).exists() and (roots[1] / MARKER).exists()
    assert (roots[0] / RECOVERY).read_bytes() == before
    assert not any((root / ".lock").exists() for root in roots)
    assert any("There was an error in one of the threads during LogManager shutdown" in
               record.getMessage() for record in caplog.records)


def test_shutdown_writes_files_then_checkpoints_then_the_marker(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0"], clean=False)
    order: list[str] = []
    for owner, name in ((UnifiedLog, "flush"), (UnifiedLog, "close"),
                        (closing.LogDirectory, "write_checkpoint"),
                        (closing.LogDirectory, "write_clean_shutdown_marker"),
                        (closing.LogDirectory, "unlock")):
        original = getattr(owner, name)

        def noted(self: object, *args: object, _name: str = name,
                  _original: object = original) -> object:
            order.append(" ".join([_name, *(str(arg) for arg in args[:1]
                                            if isinstance(arg, str))]))
            return _original(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, noted)
    with seglog.LogManager([root]):
        pass
    assert order == ["write_checkpoint " + WATERMARKS, "flush", "close",
                     f"write_checkpoint {STARTS}", f"write_checkpoint {RECOVERY}",
                     "write_clean_shutdown_marker", "unlock"]


def test_the_marker_is_durably_gone_before_logs_are_loaded(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    assert (root / MARKER).exists()
    with syncs() as synced, seglog.LogManager([root]):
        names = [content for path, content in synced if path == root]
    assert names and MARKER not in names[0]


def test_an_empty_directory_is_a_marker_too(tmp_path: Path) -> None:
    """As Kafka's File.exists and Files.deleteIfExists have it; the data directory went offline."""
    root = make_dir(tmp_path / "k", ["a-0"])
    (root / MARKER).unlink()
    (root / MARKER).mkdir()
    with seglog.LogManager([root]) as manager:
        assert manager.offline_log_dirs == [] and not (root / MARKER).exists()
    assert (root / MARKER).is_file()


def test_states(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    manager = seglog.LogManager([root])
    assert not manager.is_running
    manager.startup()
    assert manager.is_running
    with pytest.raises(LogManagerStateError):
        manager.startup()
    manager.shutdown()
    manager.shutdown()
    assert not manager.is_running
    with pytest.raises(LogDirNotFoundError):
        manager.is_log_dir_online(tmp_path / "other")


def test_no_thread_outlives_a_shutdown(tmp_path: Path) -> None:
    root = make_dir(tmp_path / "k", ["a-0", "b-0"])
    before = set(threading.enumerate())
    with seglog.LogManager([root], scheduler=Scheduler(2)) as manager:
        assert manager.all_logs and threads_since(before)
    wait_for(lambda: not threads_since(before))


def test_identities_are_compared(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / name, []) for name in ("k1", "k2")]
    with seglog.LogManager(roots, cluster_id="l0CdkZGeTjaX9ux5Y2kFIg", node_id=1) as manager:
        assert sorted(manager.directory_ids) == [str(root) for root in roots]
        assert manager.meta_properties[str(roots[0])].node_id == 1
    before = snapshot(tmp_path)
    with pytest.raises(InconsistentLogDirError, match="Stored node id 1 doesn't match previous "
                                                      "node id 4 in"):
        seglog.LogManager(roots, node_id=4)
    write_meta(roots[1], {"version": 1, "cluster.id": "other", "node.id": 1})
    with pytest.raises(InconsistentLogDirError, match=re.escape(
            f"Invalid cluster.id in: {roots[1]}/meta.properties. Expected l0CdkZGeTjaX9ux5Y2kFIg, "
            "but read other")):
        seglog.LogManager(roots)
    (roots[1] / "meta.properties").write_bytes((roots[0] / "meta.properties").read_bytes())
    with pytest.raises(InconsistentLogDirError, match="Duplicate directory ID Optional"):
        seglog.LogManager(roots)
    write_meta(roots[1], {"version": 1, "cluster.id": "l0CdkZGeTjaX9ux5Y2kFIg", "node.id": 1,
                          "directory.id": "AAAAAAAAAAAAAAAAAAAAAQ"})
    with pytest.raises(InconsistentLogDirError, match="Invalid reserved directory ID"):
        seglog.LogManager(roots)
    after = snapshot(tmp_path)
    assert {name for name in before if before[name] != after.get(name)} == {"k2/meta.properties"}


def test_a_directory_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    root, other = make_dir(tmp_path / "k1", ["a-0"]), make_dir(tmp_path / "k2", ["b-0"])
    write_meta(root, {"version": 2, "cluster.id": "l0CdkZGeTjaX9ux5Y2kFIg", "node.id": 1})
    before = snapshot(root)
    with pytest.raises(AllLogDirsFailedError, match="Unknown meta.properties version number 2"):
        seglog.LogManager([root])
    with seglog.LogManager([root, other]) as manager:
        assert manager.offline_log_dirs == [str(root)]
        assert [key.topic for key in manager.current_logs] == ["b"]
    assert snapshot(root) == before


def test_configuration_from_server_properties(tmp_path: Path) -> None:
    roots = [make_dir(tmp_path / "k1", ["a-0"]), make_dir(tmp_path / "k2", ["b-0"])]
    config = BrokerConfig.from_properties({
        "log.dirs": f"{roots[0]},{roots[1]}", "num.recovery.threads.per.data.dir": "3"})
    with seglog.LogManager(config=config) as manager:
        assert manager.live_log_dirs == [str(root) for root in roots]
        assert len(manager.all_logs) == 2
    with pytest.raises(ConfigError):
        seglog.LogManager(config=LoadConfig())
    with pytest.raises(ConfigError):
        seglog.LogManager([])


def test_the_same_bytes_with_any_number_of_threads(tmp_path: Path) -> None:
    names = [f"t{number}-0" for number in range(6)]
    source = make_dir(tmp_path / "source", names, clean=False, batches=40)
    seen = []
    for recovery, segments in ((1, 1), (3, 1), (1, 4), (4, 3)):
        root = copy(source, tmp_path / f"copy-{recovery}-{segments}" / "k")
        with seglog.LogManager([root], config=LoadConfig(
                num_recovery_threads_per_data_dir=recovery,
                num_segment_loading_threads_per_data_dir=segments)):
            pass
        files = snapshot(root)
        files[RECOVERY] = b"".join(sorted(files[RECOVERY].splitlines(keepends=True)))
        seen.append(files)
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("flush", [seglog.LogManager.flush_logs, seglog.LogManager.shutdown])
def test_a_flush_of_all_logs_syncs_an_empty_segment(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        flush: Callable[[seglog.LogManager], None]) -> None:
    """Its name must be durable too, or a power cut takes it."""
    with seglog.LogManager([tmp_path / "k"]) as manager:
        log = manager.get_or_create_log(TopicPartition("a", 0))
        fill(log, 1)
        log.roll()
        manager.flush_logs()
        end, synced = log.log_end_offset, list[str]()
        monkeypatch.setattr(RealDisk, "open_for_sync",
                            lambda disk, names: synced.extend(names) or [])
        flush(manager)
        assert f"{end:020d}.log" in synced
        assert log.recovery_point == end
