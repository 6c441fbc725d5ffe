"""What a manager does not destroy when it fails, and how a tool gets past logs that do not load."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from seglog.config import LoadConfig
from seglog.errors import InvalidTopicPartitionError, KafkaStorageError, SeglogError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.manager.directories import LogDirectory
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.storage import paths
from seglog.storage.checkpoint_files import read_offset_checkpoint
from tests.manager.support import break_load, entries, input_output_error

CHECKPOINTS = (paths.RECOVERY_POINT_CHECKPOINT, paths.LOG_START_OFFSET_CHECKPOINT)


@pytest.fixture
def root(golden: Path, tmp_path: Path) -> Path:
    """A killed broker's directory with two of its logs."""
    source, target = golden / "real" / "unclean", tmp_path / "data"
    target.mkdir()
    for name in ("txn-0", "startoffset-0"):
        shutil.copytree(source / name, target / name)
    for name in CHECKPOINTS:
        shutil.copy(source / name, target)
    return target


def test_a_manager_that_never_loaded_keeps_the_checkpoints(root: Path) -> None:
    before = [(root / name).read_bytes() for name in CHECKPOINTS]
    LogManager([root]).shutdown()
    assert [(root / name).read_bytes() for name in CHECKPOINTS] == before
    # A start that ends at a foreign directory has not come as far as to know the logs.
    (root / "lost+found").mkdir()
    with pytest.raises(InvalidTopicPartitionError), LogManager([root]):
        pass
    assert [(root / name).read_bytes() for name in CHECKPOINTS] == before
    assert not (root / paths.CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.parametrize("clean", [False, True])
def test_going_on(root: Path, clean: bool) -> None:
    (root / "lost+found").mkdir()
    (root / "txn-0" / "leader-epoch-checkpoint").write_text("0\n-1\n")
    if clean:
        (root / paths.CLEAN_SHUTDOWN_FILE).write_text("")
    heard: dict[str, Exception] = {}
    points = read_offset_checkpoint(root / paths.RECOVERY_POINT_CHECKPOINT)
    with LogManager([root], on_load_error=heard.__setitem__) as manager:
        assert [str(log.topic_partition) for log in manager.all_logs] == ["startoffset-0"]
        assert manager.live_log_dirs == [str(root)]
        end = manager.all_logs[0].log_end_offset
    assert sorted(Path(path).name for path in heard) == ["lost+found", "txn-0"]
    assert all(isinstance(error, SeglogError) for error in heard.values())
    # The log that failed is recovered next time, from where it would have been this time.
    assert not (root / paths.CLEAN_SHUTDOWN_FILE).exists()
    after = {str(key): offset for key, offset in read_offset_checkpoint(
        root / paths.RECOVERY_POINT_CHECKPOINT).items()}
    assert after["startoffset-0"] == end
    assert after["txn-0"] == next(
        offset for key, offset in points.items() if str(key) == "txn-0")


@pytest.mark.parametrize("foreign", [False, True])
def test_the_other_logs_of_a_clean_shutdown_are_not_recovered(
        golden: Path, tmp_path: Path, foreign: bool) -> None:
    """The directory gets no marker, but what was closed cleanly is loaded as such: a recovery
    would cut it at a damaged batch."""
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "clean", root)
    for name in os.listdir(root):
        if (root / name).is_dir() and name not in ("startoffset-0", "txn-0", "epochs-0"):
            shutil.rmtree(root / name)
    if foreign:
        (root / "lost+found").mkdir()
    else:
        (root / "epochs-0" / "leader-epoch-checkpoint").write_text("0\n-1\n")
    log = max((root / "txn-0").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[70] ^= 1  # in the first batch, of which only a recovery reads the CRC
    log.write_bytes(damaged)
    # At this level no log is a row.
    with LogManager([root], config=LoadConfig(sanity_check_level="full"),
                    on_load_error=lambda *_: None) as manager:
        assert manager.load_reports[str(root)].clean_shutdown
        assert manager.get_log(TopicPartition("txn", 0)) is not None
        assert manager.get_log(TopicPartition("startoffset", 0)) is not None
    assert log.read_bytes() == damaged
    assert not (root / paths.CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.parametrize("name", ["my topic-0", os.fsdecode(b"caf\xe9-0")])
def test_a_topic_that_no_checkpoint_can_hold(root: Path, name: str,
                                             caplog: pytest.LogCaptureFixture) -> None:
    """Kafka loads `my topic-0`, writes a checkpoint that it cannot read, and its next start takes
    the directory offline; it does not see the other directory."""
    shutil.copytree(root / "startoffset-0", root / name)
    for clean in (False, True, True):
        assert (root / paths.CLEAN_SHUTDOWN_FILE).exists() == clean
        caplog.clear()
        with caplog.at_level(logging.WARNING), LogManager([root]) as manager:
            assert len(manager.all_logs) == 3 and manager.live_log_dirs == [str(root)]
        assert [one.getMessage() for one in caplog.records if repr(name) in one.getMessage()] == [
            f"{name!r} in {root}: no checkpoint can hold the offsets of a topic with blanks or "
            "bytes that are not UTF-8 in its name. After a crash it is recovered from its first "
            "segment; it is not compacted."]
        for checkpoint in (*CHECKPOINTS, paths.HIGH_WATERMARK_CHECKPOINT):
            assert {str(key) for key in read_offset_checkpoint(root / checkpoint)} <= {
                "txn-0", "startoffset-0"}


def test_what_the_hook_raises_stops_the_start(root: Path) -> None:
    (root / "txn-0" / "leader-epoch-checkpoint").write_text("0\n-1\n")

    def refuse(path: str, error: Exception) -> None:
        raise RuntimeError(path) from error

    with pytest.raises(RuntimeError, match="txn-0"), LogManager([root], on_load_error=refuse):
        pass


def test_a_log_that_did_not_load_is_not_created_anew(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its recovery, and with the records that were deleted: it may load next time."""
    break_load(monkeypatch, "startoffset-0", input_output_error)
    key = TopicPartition("startoffset", 0)
    with LogManager([root, root.parent / "other"], on_load_error=lambda *_: None) as manager:
        for is_new in (False, True):
            with pytest.raises(KafkaStorageError) as caught:
                manager.get_or_create_log(key, is_new=is_new)
            assert str(caught.value) == (
                f"Can not create log for startoffset-0 because its log in {root} did not load")
        assert manager.get_log(key) is None and manager.live_log_dirs[0] == str(root)
    monkeypatch.undo()
    start = read_offset_checkpoint(root / paths.LOG_START_OFFSET_CHECKPOINT)[key]
    with LogManager([root]) as manager:
        log = manager.get_log(key)
        assert log is not None and log.log_start_offset == start > 0


@pytest.mark.parametrize("stays_online", [False, True])
def test_a_malformed_checkpoint_counts_as_empty_and_an_unreadable_one_only_offline(
        tmp_path: Path, stays_online: bool) -> None:
    directory = LogDirectory(str(tmp_path), None, LogDirFailureChannel())
    malformed, unreadable = CHECKPOINTS
    (tmp_path / malformed).write_text("x")
    (tmp_path / unreadable).mkdir()
    assert directory.read_or_reset(malformed, stays_online) == {}
    if stays_online:
        with pytest.raises(KafkaStorageError):
            directory.read_or_reset(unreadable, stays_online)
    else:
        assert directory.read_or_reset(unreadable) == {}


def test_only_the_starts_of_loaded_logs_stay_in_the_files(tmp_path: Path) -> None:
    """With `keep_log_starts`."""
    key, names = TopicPartition("t", 0), (*CHECKPOINTS, paths.HIGH_WATERMARK_CHECKPOINT)
    directory = LogDirectory(str(tmp_path), None, LogDirFailureChannel(), keep_log_starts=True)
    directory.keep_on_file({name: {key: 7} for name in names}, {key})
    directory.forget_on_file(key)
    for name in names:
        directory.write_checkpoint(name, {})
    assert [entries(tmp_path / name) for name in names] == [{}, {key: 7}, {}]
