"""Where new logs go, and when there is none (LogManager.getOrCreateLog)."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import (
    IllegalStateError, InconsistentTopicIdError, KafkaStorageError, LogDirNotFoundError,
    LogManagerStateError,
)
from seglog.log.unified_log import UnifiedLog
from seglog.manager import creation
from seglog.model import TopicPartition
from seglog.storage.meta import format_uuid
from tests.manager.records import fill
from tests.manager.support import entries, make_dir
from tests.support.facts import refusal
from tests.support.synced import syncs
from tests.support.waiting import wait_for

A0, A1, B0, C0, D0 = (TopicPartition(*key) for key in (
    ("a", 0), ("a", 1), ("b", 0), ("c", 0), ("d", 0)))


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / "k1", ["a-0", "a-1"]), make_dir(tmp_path / "k2", ["b-0"]),
            make_dir(tmp_path / "k3", ["c-0"])]


def test_a_log_that_is_there_is_given_back(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        assert manager.get_or_create_log(A0) is manager.get_log(A0)


def test_the_directory_with_the_fewest_logs(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        assert manager.next_log_dirs() == [str(roots[1]), str(roots[2]), str(roots[0])]
        for number, root in enumerate((1, 2, 0, 1, 2, 0)):
            log = manager.get_or_create_log(TopicPartition("new", number))
            assert log.path == str(roots[root] / f"new-{number}")
            assert os.path.isdir(log.path) and manager.get_log(log.topic_partition) is log


def test_a_new_log_has_settings_that_changed_while_it_was_made(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with seglog.LogManager(roots) as manager:
        make = creation.load_unified_log

        def changing(*args: Any, **how: Any) -> UnifiedLog:
            log = make(*args, **how)
            manager.update_topic_config("new", {"retention.ms": "5"})
            return log

        monkeypatch.setattr(creation, "load_unified_log", changing)
        assert manager.get_or_create_log(TopicPartition("new", 0)).config.retention_ms == 5


def test_a_new_log_does_not_get_the_offsets_of_a_deleted_one(
        roots: list[Path], tmp_path: Path) -> None:
    """A crash came between the deletion and its checkpoints, and another one after the flush."""
    key, lines = TopicPartition("new", 0), {"log-start-offset-checkpoint": 50,
                                            "recovery-point-offset-checkpoint": 90}
    for name, offset in lines.items():
        (roots[1] / name).write_text(f"0\n1\nnew 0 {offset}\n")
    with seglog.LogManager(roots[1:]) as manager:
        manager.maybe_update_preferred_log_dir(key, roots[1])
        log = manager.get_or_create_log(key)
        end = fill(log, 5)
        log.flush()
        shutil.copytree(roots[1], tmp_path / "crashed")
    (tmp_path / "crashed" / ".lock").unlink(missing_ok=True)
    with seglog.LogManager([tmp_path / "crashed"]) as manager:
        found = manager.get_log(key)
        assert found is not None
        assert (found.log_start_offset, found.log_end_offset) == (0, end)


def test_a_new_log_works_and_is_there_at_the_next_start(
        roots: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    settings = LogConfig().override({"segment.bytes": "2097152", "compression.type": "lz4",
                                     "preallocate": "false"})
    with caplog.at_level(logging.INFO), seglog.LogManager(
            roots[1:], topic_configs={"new": settings}) as manager:
        log = manager.get_or_create_log(TopicPartition("new", 0), is_new=True)
        assert log.config is settings
        end = fill(log, 5)
        log.update_high_watermark(end - 4)
    assert (f"Created log for partition new-0 in {roots[1]}/new-0 with properties "
            '{compression.type="lz4", preallocate=false, segment.bytes=2097152}') in caplog.messages
    for name, offset in (("recovery-point-offset-checkpoint", end),
                         ("replication-offset-checkpoint", end - 4)):
        assert entries(roots[1] / name)[TopicPartition("new", 0)] == offset
    with seglog.LogManager(roots[1:]) as manager:
        again = manager.get_log(TopicPartition("new", 0))
        assert again is not None and again.log_end_offset == end
        assert again.high_watermark == end - 4


def test_a_directory_with_the_future_log_is_not_preferred_again(roots: list[Path]) -> None:
    """LogManager.maybeUpdatePreferredLogDir."""
    with seglog.LogManager(roots) as manager:
        assert manager.alter_replica_log_dir(B0, roots[0]) is not None
        manager.maybe_update_preferred_log_dir(B0, roots[0])
        manager.async_delete(B0, is_future=True)
        manager.async_delete(B0)
        assert manager.get_or_create_log(B0).parent_dir == str(roots[1]), "which has fewer logs"


def test_a_preferred_directory(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        manager.maybe_update_preferred_log_dir(D0, roots[0])
        assert manager.get_or_create_log(D0).parent_dir == str(roots[0])
        # It was for one log; and where a log is, none is wanted.
        assert manager.get_or_create_log(TopicPartition("d", 1)).parent_dir != str(roots[0])
        manager.maybe_update_preferred_log_dir(A0, roots[0])
        with pytest.raises(IllegalStateError, match="^Can not create the future log for a-0 "
                                                    "without having a preferred log directory$"):
            manager.get_or_create_log(A0, is_future=True)
        with pytest.raises(LogDirNotFoundError):
            manager.maybe_update_preferred_log_dir(D0, "/nowhere")


def test_a_directory_by_its_id(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        wanted = manager.directory_id(roots[0])
        assert wanted is not None and manager.directory_path(wanted) == str(roots[0])
        log = manager.get_or_create_log(D0, target_log_directory_id=wanted)
        assert log.parent_dir == str(roots[0])
        # A preferred directory comes before an id; an unknown id and the reserved ones say nothing.
        manager.maybe_update_preferred_log_dir(TopicPartition("d", 1), roots[2])
        log = manager.get_or_create_log(TopicPartition("d", 1), target_log_directory_id=wanted)
        assert log.parent_dir == str(roots[2])
        for number, none in enumerate((uuid.UUID(int=1), uuid.UUID(int=2), uuid.uuid4())):
            log = manager.get_or_create_log(TopicPartition("e", number),
                                            target_log_directory_id=none)
            assert log.parent_dir != str(roots[0])
        with pytest.raises(LogDirNotFoundError):
            manager.directory_path(uuid.uuid4())


def test_cordoned_directories(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        manager.update_cordoned_log_dirs(roots[1:])
        assert manager.cordoned_log_dirs == {str(root) for root in roots[1:]}
        assert manager.next_log_dirs() == [str(roots[0])]
        assert manager.get_or_create_log(B0).parent_dir == str(roots[1]), "served as before"
        gauges = manager.metrics.snapshot()
        assert gauges["kafka.log:type=LogManager,name=CordonedLogDirectoryCount"]["Value"] == 2
        assert [gauges["kafka.log:type=LogManager,name=LogDirectoryCordoned,"
                       f'logDirectory="{root}"']["Value"] for root in roots] == [0, 1, 1]
        manager.update_cordoned_log_dirs(["*"])
        assert manager.next_log_dirs() == [str(roots[0])], "all: the first"
        manager.update_cordoned_log_dirs([])
        assert len(manager.next_log_dirs()) == 3
    assert not manager.metrics.snapshot().keys() & {
        "kafka.log:type=LogManager,name=CordonedLogDirectoryCount"}


def test_nothing_is_made_while_a_directory_is_offline(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        manager.handle_log_dir_failure(roots[0])
        wait_for(lambda: not manager.is_log_dir_online(roots[0]))
        with pytest.raises(KafkaStorageError, match=f"^Can not create log for a-0 because log "
                                                    f"directories {roots[0]} are offline$"):
            manager.get_or_create_log(A0)
        assert manager.get_or_create_log(B0).topic_partition == B0
        log = manager.get_or_create_log(D0, is_new=True)
        assert log.parent_dir in map(str, roots[1:])
        manager.maybe_update_preferred_log_dir(TopicPartition("d", 1), roots[0])
        with pytest.raises(KafkaStorageError, match=f"^No log directories available. Tried "
                                                    f"{roots[0]}$"):
            manager.get_or_create_log(TopicPartition("d", 1), is_new=True)


def test_a_directory_that_takes_no_new_ones_is_passed_over(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    make = os.makedirs

    def full(path: str, *args: object, **how: object) -> None:
        if str(path).startswith(str(roots[1])):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        make(path, *args, **how)  # type: ignore[arg-type]

    with seglog.LogManager(roots) as manager:
        monkeypatch.setattr(creation.os, "makedirs", full)
        assert manager.get_or_create_log(D0).parent_dir == str(roots[2])
        wait_for(lambda: not manager.is_log_dir_online(roots[1]))
    assert f"Error while creating log for d-0 in dir {roots[1]}" in caplog.messages


def test_topic_ids(roots: list[Path]) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    with seglog.LogManager(roots) as manager:
        log = manager.get_or_create_log(D0, topic_id=first)
        fill(log, 1)
        assert log.topic_id == first and manager.get_or_create_log(D0, topic_id=first) is log
        assert manager.get_or_create_log(D0) is log
        with pytest.raises(InconsistentTopicIdError) as caught:
            manager.get_or_create_log(D0, topic_id=second)
        assert str(caught.value) == (
            f"Tried to assign topic ID {format_uuid(second)} to log for topic partition d-0,but "
            f"log already contained topic ID {format_uuid(first)}")
    with seglog.LogManager(roots) as manager:
        found = manager.get_log(D0)
        assert found is not None and found.topic_id == first


@pytest.mark.parametrize(("how", "kind", "text"), [
    ({"topic_id": "AAAAAAAAAAAAAAAAAAAABQ"}, "TypeError",
     "topic_id must be a uuid.UUID, not 'AAAAAAAAAAAAAAAAAAAABQ'"),
    ({"topic_id": uuid.UUID(int=0)}, "IllegalArgumentError",
     "topic_id must not be the zero id, which stands for no topic"),
    ({"target_log_directory_id": "x"}, "TypeError",
     "target_log_directory_id must be of the class UUID, not 'x'")], ids=str)
def test_ids_that_are_none(roots: list[Path], how: dict[str, Any], kind: str, text: str) -> None:
    """Such a log could not be written to or closed, or the next start ended at it."""
    with seglog.LogManager(roots) as manager:
        assert refusal(lambda: manager.get_or_create_log(D0, **how)) == {
            "class": kind, "text": text}
        assert manager.get_log(D0) is None
        if "topic_id" in how:
            log = manager.get_or_create_log(D0)
            assert refusal(lambda: log.assign_topic_id(**how)) == {"class": kind, "text": text}
            assert refusal(lambda: seglog.open(roots[0].parent / "p" / "t-0", **how)) == {
                "class": kind, "text": text}
    assert not (roots[0].parent / "p").exists()


def test_a_name_that_no_directory_can_have(roots: list[Path]) -> None:
    """It took the data directory offline, as in Kafka."""
    long = TopicPartition("t" * 249, 0)
    with seglog.LogManager(roots) as manager:
        wrong = {"class": "InvalidTopicError", "text": "The topic name is too long."}
        key = TopicPartition(long.topic, 123456)
        assert refusal(lambda: manager.get_or_create_log(key)) == wrong
        manager.maybe_update_preferred_log_dir(long, roots[0])
        assert refusal(lambda: manager.get_or_create_log(long, is_future=True)) == wrong
        assert manager.get_or_create_log(long).parent_dir == str(roots[0])
        assert manager.live_log_dirs == list(map(str, roots))


def test_a_future_log(roots: list[Path]) -> None:
    with seglog.LogManager(roots) as manager:
        manager.maybe_update_preferred_log_dir(A0, roots[1])
        log = manager.get_or_create_log(A0, is_future=True)
        assert log.is_future and log.parent_dir == str(roots[1])
        assert manager.get_log(A0, is_future=True) is log and manager.get_log(A0) is not log
        assert os.path.basename(log.path).startswith("a-0.")
        assert len(os.path.basename(log.path)) == len("a-0.") + 32 + len("-future")
        assert manager.next_log_dirs()[-1] in (str(roots[0]), str(roots[1])), "it counts"
    with seglog.LogManager(roots) as manager:
        assert set(manager.future_logs) == {A0}


def test_a_manager_that_does_not_run(roots: list[Path]) -> None:
    manager = seglog.LogManager(roots)
    with pytest.raises(LogManagerStateError):
        manager.get_or_create_log(D0)
    manager.startup()
    manager.shutdown()
    with pytest.raises(LogManagerStateError):
        manager.get_or_create_log(D0)
    assert not any((root / "d-0").exists() for root in roots)


def test_the_brokers_settings_are_those_of_new_logs(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties({"log.dirs": f"{tmp_path}/x,{tmp_path}/y",
                                           "log.index.interval.bytes": "77"})
    with seglog.LogManager(config=config) as manager:
        assert manager.get_or_create_log(A0).config.index_interval_bytes == 77


def test_the_name_of_a_new_data_directory_is_durable(tmp_path: Path) -> None:
    there = make_dir(tmp_path / "there", [])
    with syncs() as synced, seglog.LogManager([there, tmp_path / "new"]):
        assert (tmp_path / "new").is_dir()
    assert [names for path, names in synced if path == tmp_path] == [["new", "there"]]


def test_the_name_of_a_new_log_is_durable(roots: list[Path]) -> None:
    with seglog.LogManager(roots[:1]) as manager, syncs() as synced:
        manager.get_or_create_log(D0)
        assert (roots[0], sorted(os.listdir(roots[0]))) in synced


def test_the_logs_of_a_directory_are_opened_on_request(tmp_path: Path) -> None:
    root = tmp_path / "k"
    with seglog.LogManager([root]) as manager:
        manager.get_or_create_log(A0)
    with seglog.LogManager([root]) as manager:
        table = manager._state.table
        assert not table.opened(str(root))
        assert [log.topic_partition for log in table.served_in(str(root))] == [A0]
        assert len(table.opened(str(root))) == 1
