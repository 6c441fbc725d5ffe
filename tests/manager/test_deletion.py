"""Deleting logs: renamed at once, gone after file.delete.delay.ms (LogManager.asyncDelete)."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from itertools import pairwise
from pathlib import Path

import pytest

import seglog
from seglog.config import LogConfig
from seglog.errors import KafkaStorageError
from seglog.log.scheduler import MockTime, Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.offset_checkpoints import Checkpoints
from seglog.model import TopicPartition
from tests.manager.records import fill
from tests.manager.support import directories, entries, input_output_error, make_dir
from tests.support.held import open_files
from tests.support.synced import syncs
from tests.support.waiting import wait_for

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RECOVERY = "recovery-point-offset-checkpoint"
DELAY = 1_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_dir(tmp_path / "k", ["a-0", "a-1", "b-0"])


def manager_of(*roots: Path, time: MockTime | None = None,
               **how: object) -> tuple[seglog.LogManager, MockTime]:
    time = time or MockTime()
    return seglog.LogManager(roots, scheduler=time.scheduler, time=time,
                             log_config=LogConfig(file_delete_delay_ms=DELAY),
                             **how), time  # type: ignore[arg-type]


def test_a_log_goes_in_two_steps(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager, time = manager_of(root)
    with caplog.at_level(logging.INFO), manager:
        time.sleep(40_000)  # the first run is after log.initial.task.delay.ms
        log = manager.async_delete(A0)
        assert log is not None and manager.get_log(A0) is None
        assert manager.logs_to_be_deleted == [log] and not len(log.leader_epochs)
        renamed = log.path
        assert directories(root) == ["a-0-delete", "a-1", "b-0"]
        assert f"Log for partition a-0 is renamed to {renamed} and is scheduled for deletion" in \
            caplog.messages
        assert set(entries(root / RECOVERY)) == {A1, B0}
        time.sleep(DELAY - 1)
        assert os.path.isdir(renamed)
        time.sleep(DELAY + 1)
        assert directories(root) == ["a-1", "b-0"] and not manager.logs_to_be_deleted
        assert f"Deleted log for partition a-0 in {renamed}." in caplog.messages
        assert manager.async_delete(A0) is None
    assert set(entries(root / RECOVERY)) == {A1, B0}


def test_the_order_and_the_times_of_several(root: Path) -> None:
    manager, time = manager_of(root)
    with manager:
        time.sleep(40_000)
        first = manager.async_delete(A0)
        time.sleep(600)
        second = manager.async_delete(A1)
        assert manager.logs_to_be_deleted == [first, second]
        time.sleep(400)
        assert directories(root) == ["a-1-delete", "b-0"]
        assert manager.delete_logs() == 600
        time.sleep(600)
        assert directories(root) == ["b-0"]


def test_who_reads_a_deleted_log_is_not_disturbed_until_it_is_gone(root: Path) -> None:
    manager, time = manager_of(root)
    with manager:
        log = manager.get_or_create_log(TopicPartition("new", 0))
        end = fill(log, 4)
        manager.async_delete(log.topic_partition)
        assert log.log_end_offset == end
        log.flush(True)  # a caller's flusher
        time.sleep(40_000)
        assert "new" not in " ".join(directories(root))
        with pytest.raises(KafkaStorageError):
            fill(log, 1)


def test_a_partition_can_be_made_again_at_once(root: Path) -> None:
    manager, time = manager_of(root)
    with manager:
        manager.async_delete(A0)
        log = manager.get_or_create_log(A0)
        assert log.log_end_offset == 0 and directories(root).count("a-0") == 1
        fill(log, 2)
        time.sleep(40_000)
        assert directories(root) == ["a-0", "a-1", "b-0"] and log.log_end_offset == 6


def test_what_is_found_at_a_start_is_deleted_too(root: Path) -> None:
    manager, _ = manager_of(root)
    with manager:
        manager.async_delete(A0)
        manager.async_delete(B0)
    assert directories(root) == ["a-0-delete", "a-1", "b-0-delete"]
    manager, time = manager_of(root)
    with manager:
        assert len(manager.logs_to_be_deleted) == 2
        time.sleep(29_999)
        assert len(directories(root)) == 3
        time.sleep(1)
        assert directories(root) == ["a-1"]


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_deletion_that_was_interrupted(root: Path, left: int) -> None:
    manager, _ = manager_of(root)
    with manager:
        log = manager.async_delete(A0)
        assert log is not None
    files = sorted(os.listdir(log.path))
    for name in files[:len(files) * left // 4]:
        os.unlink(os.path.join(log.path, name))
    if not left:  # killed right after the rename, before the checkpoints
        (root / ".kafka_cleanshutdown").unlink()
        (root / RECOVERY).write_text("0\n1\na 0 5\n")
    manager, time = manager_of(root)
    with manager:
        assert set(manager.current_logs) == {A1, B0}
        time.sleep(40_000)
        assert directories(root) == ["a-1", "b-0"]
    assert set(entries(root / RECOVERY)) == {A1, B0}


def test_stray_ones_are_kept(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager, time = manager_of(root)
    with manager:
        log = manager.async_delete(A0, is_stray=True)
        assert log is not None and manager.stray_logs == {A0: log}
        assert f"Log for partition a-0 is marked as stray and renamed to {log.path}" in \
            caplog.messages
        time.sleep(1_000_000)
        assert directories(root) == ["a-0-stray", "a-1", "b-0"]


def test_many_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, _ = manager_of(root)
    rename, failed, broken_logs = UnifiedLog.rename_dir, [], list[UnifiedLog]()
    with manager:
        def broken(log: UnifiedLog, *args: object, **how: object) -> None:
            if log.topic_partition == A1:
                broken_logs.append(log)
                raise KafkaStorageError("no")
            rename(log, *args, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(UnifiedLog, "rename_dir", broken)
        manager.async_delete_all([A0, A1, TopicPartition("none", 0)],
                                 on_error=lambda key, error: failed.append((key, str(error))))
        assert directories(root) == ["a-0-delete", "a-1", "b-0"]
        assert failed == [(A1, "no")] and [log.is_closed for log in broken_logs] == [True]
        assert set(entries(root / RECOVERY)) == {B0}


def test_many_deletions_write_the_checkpoint_once(root: Path) -> None:
    """Each write costs as much as all logs of the directory."""
    manager, _ = manager_of(root)
    with manager, syncs() as synced:
        manager.async_delete_all([A0, A1, B0], on_error=lambda key, error: None)
        assert sum(RECOVERY in path.name for path, _ in synced) == 1
        assert entries(root / RECOVERY) == {}


def test_one_that_may_be_offline(root: Path, tmp_path: Path) -> None:
    other = make_dir(tmp_path / "k2", ["c-0"])
    manager, _ = manager_of(root, other)
    with manager:
        manager.handle_log_dir_failure(root)
        wait_for(lambda: not manager.is_log_dir_online(root))
        with pytest.raises(KafkaStorageError, match="^Failed to delete log for  a-0 because it "
                           f"may be in one of the offline directories {root}$"):
            manager.async_delete(A0)
        with pytest.raises(KafkaStorageError, match="for future a-0 because"):
            manager.async_delete(A0, is_future=True)


def test_one_that_cannot_be_deleted_keeps_no_other(
        root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    other = make_dir(tmp_path / "k2", ["c-0"])
    manager, time = manager_of(root, other)
    with manager:
        manager.async_delete(A0)
        manager.async_delete(TopicPartition("c", 0))
        remove = shutil.rmtree

        def broken(path: str, *args: object, **how: object) -> None:
            if str(path).startswith(f"{root}/"):
                raise input_output_error(str(path))
            remove(path, *args, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(shutil, "rmtree", broken)
        time.sleep(40_000)
        assert directories(other) == []
        wait_for(lambda: not manager.is_log_dir_online(root))
        assert any(message.startswith("Exception while deleting Log(dir=")
                   for message in caplog.messages)
        assert manager.is_log_dir_online(other)


def test_one_that_cannot_be_deleted_is_closed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, time = manager_of(root)
    with manager:
        log = manager.get_log(A0)
        assert log is not None
        fill(log, 6)
        log.roll()
        fill(log, 6)
        manager.async_delete(A0)

        def refused(log: UnifiedLog) -> None:
            raise KafkaStorageError(f"Error while deleting log for {log.topic_partition}")

        monkeypatch.setattr(UnifiedLog, "delete", refused)
        assert open_files(log.path) != []
        time.sleep(40_000)
        assert open_files(log.path) == []


def test_a_change_of_the_delay_counts_at_once(root: Path) -> None:
    manager, time = manager_of(root)
    with manager:
        time.sleep(40_000)
        manager.async_delete(A0)
        manager.reconfigure_default_log_config(LogConfig(file_delete_delay_ms=5_000))
        time.sleep(2 * DELAY)
        assert "a-0-delete" in directories(root)
        time.sleep(5_000)
        assert "a-0-delete" not in directories(root)


def test_with_threads(root: Path) -> None:
    scheduler = Scheduler(2)
    config = seglog.config.BrokerConfig.from_properties({"log.initial.task.delay.ms": "0"})
    with seglog.LogManager([root], config=config, scheduler=scheduler,
                           log_config=LogConfig(file_delete_delay_ms=1)) as manager:
        manager.async_delete(A0)
        wait_for(lambda: not manager.logs_to_be_deleted
                 and "a-0-delete" not in directories(root))
        assert scheduler.is_started
    assert not scheduler.is_started and not scheduler.pending_tasks


@pytest.mark.parametrize(("owner", "task"), [
    ("_deletion", "delete_logs"), ("_tasks", "flush_dirty_logs")])
def test_a_shutdown_waits_for_a_task_that_has_begun(
        root: Path, monkeypatch: pytest.MonkeyPatch, owner: str, task: str) -> None:
    scheduler, begun, may_end = Scheduler(2), threading.Event(), threading.Event()
    scheduler.startup()  # another's, which no manager stops
    config = seglog.config.BrokerConfig.from_properties({"log.initial.task.delay.ms": "0"})
    manager = seglog.LogManager([root], config=config, scheduler=scheduler)
    monkeypatch.setattr(getattr(manager, owner), task,
                        lambda: (begun.set(), may_end.wait(60), 1000)[-1])
    manager.startup()
    assert begun.wait(60)
    ends = threading.Thread(target=manager.shutdown)
    ends.start()
    ends.join(0.3)
    assert ends.is_alive()
    may_end.set()
    ends.join(60)
    assert not ends.is_alive() and not scheduler.pending_tasks
    scheduler.shutdown()


def test_no_descriptor_outlives_its_log(root: Path, tmp_path: Path) -> None:
    other = make_dir(tmp_path / "k2", [])
    manager, time = manager_of(root, other)
    with manager:
        logs = []
        for number, log_dir in enumerate((root, other, other)):
            manager.maybe_update_preferred_log_dir(TopicPartition("new", number), log_dir)
            log = manager.get_or_create_log(TopicPartition("new", number))
            fill(log, 5)
            log.read(0, 1_000)
            logs.append(log)
        manager.async_delete(logs[1].topic_partition)
        time.sleep(40_000)
        assert not [path for path in open_files(other) if "new-1" in path]
        assert [path for path in open_files(other) if "new-2" in path]
        manager.handle_log_dir_failure(other)
        wait_for(lambda: not open_files(other))
        assert open_files(root)
    assert open_files(root) == []


def test_without_a_delay_the_next_check_is_a_moment_later(root: Path) -> None:
    """LogManager.deleteLogs: not at once, without end."""
    manager, _ = manager_of(root)
    with manager:
        manager.reconfigure_default_log_config(LogConfig(file_delete_delay_ms=0))
        assert manager.delete_logs() == 1


def test_a_check_that_fails_is_repeated_after_the_delay(
        root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    manager, time = manager_of(root)
    with manager:
        time.sleep(40_000)
        manager.async_delete(A0)
        began: list[int] = []

        def failing() -> int:
            began.append(time.milliseconds())
            raise ValueError

        monkeypatch.setattr(manager._deletion, "delete_logs", failing)
        for _ in range(8):
            time.sleep(DELAY // 2)
        assert [later - one for one, later in pairwise(began)] == [DELAY] * 3
    assert caplog.messages.count("Exception in kafka-delete-logs thread.") == 4


def test_the_deleted_logs_of_a_directory_that_fails_are_forgotten(
        root: Path, tmp_path: Path) -> None:
    other = make_dir(tmp_path / "other", ["c-0"])
    manager, _ = manager_of(root, other)
    with manager:
        manager.async_delete(A0)
        kept = manager.async_delete(TopicPartition("c", 0))
        manager.handle_log_dir_failure(root)
        wait_for(lambda: not manager.is_log_dir_online(root))
        assert manager.logs_to_be_deleted == [kept]


@pytest.mark.parametrize("many", [False, True])
def test_a_log_that_is_created_before_the_checkpoints_of_a_deletion(
        root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    """The machine fails then. The new log does not begin at the start of the deleted one, where its
    flushed records would be deleted."""
    real, image, ends = Checkpoints.recovery_offsets, tmp_path / "image", list[int]()

    def meanwhile(checkpoints: Checkpoints, log_dir: str | None = None) -> None:
        log = manager.get_or_create_log(A0)
        ends.append(fill(log, 1))
        log.flush()
        shutil.copytree(root, image)
        real(checkpoints, log_dir)

    manager, _ = manager_of(root)
    with manager:
        log = manager.get_log(A0)
        assert log is not None and log.log_end_offset > 10
        start = log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
        manager.checkpoint_log_recovery_offsets()
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "recovery_offsets", meanwhile)
            if many:
                manager.async_delete_all([A0], on_error=print)
            else:
                manager.async_delete(A0)
    with seglog.LogManager(image) as after:
        found = after.get_log(A0)
        assert found is not None
        assert [(found.log_start_offset, found.log_end_offset)] == [(0, ends[0])]


def test_a_log_behind_a_link(root: Path, tmp_path: Path) -> None:
    """As Kafka deletes it: its segments with their snapshots, and the link itself. The directory
    went offline."""
    shutil.move(root / "a-0", tmp_path / "elsewhere")
    (root / "a-0").symlink_to(tmp_path / "elsewhere")
    manager, time = manager_of(root)
    with manager:
        time.sleep(40_000)
        manager.get_or_create_log(A0).roll()
        assert manager.async_delete(A0) is not None
        time.sleep(3 * DELAY)
        assert manager.live_log_dirs == [str(root)] and not manager.logs_to_be_deleted
        assert directories(root) == ["a-1", "b-0"]
    assert not list(root.glob("a-0*"))
    left = {path.suffix for path in (tmp_path / "elsewhere").iterdir()}
    assert not left & {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".deleted"}
