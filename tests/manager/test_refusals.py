"""What a manager refuses: each error with all that it says."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.arguments import shown
from seglog.config import LoadConfig, LogConfig
from seglog.errors import ConfigError
from seglog.manager import live
from seglog.manager.configs import TopicConfigs
from seglog.model import TopicPartition
from seglog.storage.meta import format_uuid
from tests.manager.moving import N0, begin, manager_of, new_log
from tests.manager.support import make_dir, snapshot, write_meta
from tests.support.facts import refusal
from tests.support.waiting import wait_for

Manager: Callable[..., Any] = seglog.LogManager
A0, X0 = TopicPartition("a", 0), TopicPartition("x", 0)
CLUSTER = "l0CdkZGeTjaX9ux5Y2kFIg"
NODE = (". If you moved your data, make sure your configured node id matches. If you intend to "
        "create a new node, you should remove all data in your data directories.")


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / "k1", ["a-0"]), make_dir(tmp_path / "k2", [])]


def refused(call: Callable[[], object], kind: str, text: str, **facts: object) -> None:
    assert refusal(call) == {"class": kind, "text": text} | facts


def test_directories_that_are_none(roots: list[Path], tmp_path: Path) -> None:
    for how in ({}, {"config": LoadConfig()}, {"log_dirs": []}):
        refused(lambda how=how: Manager(**how), "ConfigError",  # type: ignore[misc]
                "At least one log directory must be defined via log.dirs or log.dir.")
    link = tmp_path / "link"
    link.symlink_to(roots[0])
    refused(lambda: Manager([roots[0], link]), "DuplicateLogDirError",
            f"Duplicate log directory found: {roots[0]}, {link}")
    file, nul = tmp_path / "file", f"{tmp_path}/nul\0"
    for dirs in ([tmp_path], [nul, tmp_path]):
        refused(lambda dirs=dirs: Manager(dirs), "KafkaStorageError",  # type: ignore[misc]
                "[Errno 22] not a place for logs: it holds 'k1', 'k2' and more, and a data "
                "directory holds nothing but logs; use a new or empty directory, such as "
                f"{tmp_path}/data: '{tmp_path}'",
                code="not_a_data_directory", errno=errno.EINVAL, file=str(tmp_path))
    file.write_text("")
    for given, number, why in (
            (file, errno.ENOTDIR, f"{file} is not a readable log directory."),
            (file / "x", errno.ENOTDIR, f"Failed to create data directory {file}/x: Not a "
                                        "directory"),
            (nul, errno.EIO, f"Failed to load {nul} during broker startup: log_dirs is no name of "
                             f"a file: {shown(nul)}")):
        refused(lambda given=given: Manager(given), "AllLogDirsFailedError",  # type: ignore[misc]
                f"[Errno {number}] No data directory can be used: none of the specified log dirs "
                f"from {given} can be created or validated: {why}",
                code="io", errno=number, cause="KafkaStorageError")


def test_identities_that_contradict(roots: list[Path]) -> None:
    files = [f"{root}/meta.properties" for root in roots]

    def differs(how: dict[str, object], text: str, number: int, **facts: object) -> None:
        refused(lambda: Manager(roots, **how), "InconsistentLogDirError", text, code="corrupt",
                file=files[number], **facts)

    def write(**properties: object) -> None:
        write_meta(roots[1], {"version": 1, "cluster.id": CLUSTER, "node.id": 1} | properties)

    differs({"cluster_id": "q"}, f"Invalid cluster.id in: {files[0]}. Expected q, but read "
                                 f"{CLUSTER}", 0, expected="q", found=CLUSTER)
    differs({"node_id": 9}, f"Stored node id 1 doesn't match previous node id 9 in {files[0]}"
            + NODE, 0, expected=9, found=1)
    write(**{"cluster.id": "d"})
    differs({}, f"Invalid cluster.id in: {files[1]}. Expected {CLUSTER}, but read d", 1,
            expected=CLUSTER, found="d")
    write(**{"node.id": 0})
    differs({}, f"Stored node id 0 doesn't match previous node id 1 in {files[1]}" + NODE, 1,
            expected=1, found=0)
    for number, is_reserved in ((0, True), (99, True), (100, False)):
        write(**{"directory.id": (text := format_uuid(uuid.UUID(int=number)))})
        if is_reserved:
            differs({}, f"Invalid reserved directory ID {text} found in {roots[1]}", 1, found=text)
        else:
            Manager(roots).shutdown()
    write_meta(roots[0], {"version": 1, "cluster.id": CLUSTER, "node.id": 1, "directory.id": text})
    differs({}, f"Duplicate directory ID Optional[{text}] found. It was the ID of {roots[0]}, but "
                f"also of {roots[1]}", 1, found=text)
    write(version=3)
    refused(lambda: Manager(roots[1]), "AllLogDirsFailedError",
            "[Errno 5] No data directory can be used: none of the specified log dirs from "
            f"{roots[1]} can be created or validated: Failed to load {roots[1]} during broker "
            "startup: Unknown meta.properties version number 3",
            code="io", errno=errno.EIO, cause="KafkaStorageError")


def test_calls_that_make_no_sense(roots: list[Path], tmp_path: Path) -> None:
    for name, kind in (("config", "LoadConfig"), ("log_config", "LogConfig"),
                       ("scheduler", "Scheduler"), ("time", "Time"),
                       ("metrics", "MetricsRegistry")):
        refused(lambda name=name: Manager(roots, **{name: 1}),  # type: ignore[misc]
                "TypeError", f"{name} must be of the class {kind}, not 1")
    manager: Any = manager_of(roots)[0]
    locked = refusal(lambda: Manager(roots))
    assert (locked.pop("command") or True) and locked == {
        "class": "LogDirLockedError", "holder_pid": os.getpid(), "log_dir": str(roots[0]), "text":
        f"Failed to acquire lock on file .lock in {roots[0]}. It is already open in this process "
        f"(process {os.getpid()}): close the LogManager or the log that has it first."}
    refused(lambda: manager.get_or_create_log(N0), "LogManagerStateError",
            "the log manager is new, not running")
    with manager:
        refused(manager.startup, "LogManagerStateError", "the log manager is running, not new")
        refused(lambda: manager.get_or_create_log(1), "TypeError",
                "topic_partition must be a TopicPartition, not 1")
        refused(lambda: manager.get_or_create_log(TopicPartition("..", 0)), "InvalidTopicError",
                "Topic name is invalid: '..' is not allowed")
        for call in (manager.open_log, manager.compact,
                     lambda key: manager.alter_replica_log_dir(key, roots[0])):
            refused(lambda call=call: call(X0),  # type: ignore[misc]
                    "UnknownTopicOrPartitionError", "there is no log of x-0 here")
        refused(lambda: manager.logs_in_dir(tmp_path), "LogDirNotFoundError",
                f"Log dir {tmp_path} is not found in the config.")
        refused(lambda: manager.directory_path(uuid.UUID(int=7)), "LogDirNotFoundError",
                "no log dir with the id AAAAAAAAAAAAAAAAAAAABw is online")
        refused(lambda: manager.truncate_to(1), "TypeError",
                "offsets must be a mapping of partitions, not 1")
        refused(lambda: manager.reconfigure_default_log_config(1), "TypeError",
                "log_config must be a LogConfig, not 1")
        refused(lambda: manager.compact(A0), "IllegalStateError",
                "a-0 is not compacted: its cleanup.policy is delete")
        refused(lambda: manager.update_topic_config("a", {"remote.storage.enable": "true"}),
                "ConfigError", "You have to delete all topics with the property "
                "remote.storage.enable=true before disabling tiered storage cluster-wide")
        refused(lambda: manager.update_topic_config(1, {}), "TypeError",
                "topic must be a str, not 1")
        refused(lambda: manager.reconfigure_cleaner({"b": 1, "a": 1}), "ConfigError",
                "Cannot update these configs dynamically: a, b")
        for what in ("recovery", "segment_loading"):
            refused(lambda what=what: getattr(  # type: ignore[misc]
                manager, f"resize_{what}_thread_pool")(0), "ConfigError",
                f"Invalid value 0 for configuration num.{what.replace('_', '.')}.threads.per.data."
                "dir: Value must be at least 1")
    refused(lambda: manager.get_or_create_log(N0), "LogManagerStateError",
            "the log manager is closed, not running")


#: Every call that needs a manager that runs.
CALLS: dict[str, Callable[[Any], object]] = {
    "get_or_create_log": lambda manager: manager.get_or_create_log(A0),
    "async_delete": lambda manager: manager.async_delete(A0),
    "async_delete_all": lambda manager: manager.async_delete_all([A0], on_error=print),
    "delete_logs": lambda manager: manager.delete_logs(),
    "alter_replica_log_dir": lambda manager: manager.alter_replica_log_dir(
        A0, manager.log_dirs[0]),
    "resume_move": lambda manager: manager.resume_move(A0),
    "replace_current_with_future_log":
        lambda manager: manager.replace_current_with_future_log(A0),
    "recover_abandoned_future_logs": lambda manager: manager.recover_abandoned_future_logs(print),
    "truncate_to": lambda manager: manager.truncate_to({A0: 0}),
    "truncate_fully_and_start_at": lambda manager: manager.truncate_fully_and_start_at(A0, 0),
    "compact": lambda manager: manager.compact(A0),
    "checkpoint_log_recovery_offsets": lambda manager: manager.checkpoint_log_recovery_offsets(),
    "checkpoint_log_start_offsets": lambda manager: manager.checkpoint_log_start_offsets(),
    "checkpoint_high_watermarks": lambda manager: manager.checkpoint_high_watermarks()}


def test_settings_of_topics_of_another_form(roots: list[Path]) -> None:
    """Refused before a directory is locked: the next manager of the process needs the lock."""
    refused(lambda: Manager(roots, topic_configs=7), "TypeError",
            "topic_configs must be a mapping of topics, not 7")
    refused(lambda: Manager(roots, topic_configs={7: LogConfig()}), "TypeError",
            "topic must be a str, not 7")
    refused(lambda: Manager(roots, topic_configs={"a": {"retention.ms": "1"}}), "TypeError",
            "topic_configs['a'] must be a LogConfig, not {'retention.ms': '1'}; "
            "LogConfig().override(...) makes one")
    with seglog.LogManager(roots, topic_configs={"a": LogConfig()}) as manager:
        assert manager.live_log_dirs == list(map(str, roots))


@pytest.mark.parametrize("name", CALLS)
def test_a_manager_that_does_not_run_changes_nothing(roots: list[Path], name: str) -> None:
    """Before its start, after its end, and without a directory."""
    manager, call = Manager(roots), CALLS[name]
    before = {root: snapshot(root) for root in roots}
    refused(lambda: call(manager), "LogManagerStateError", "the log manager is new, not running")
    manager.startup()
    for root in roots:
        manager.handle_log_dir_failure(root)
    wait_for(lambda: not manager.live_log_dirs)
    assert refusal(lambda: call(manager))["class"] == "AllLogDirsFailedError"
    manager.shutdown()
    assert refusal(lambda: call(manager))["class"] == "AllLogDirsFailedError"
    manager = Manager(roots)
    manager.startup()
    manager.shutdown()
    after = {root: snapshot(root) for root in roots}
    refused(lambda: call(manager), "LogManagerStateError", "the log manager is closed, not running")
    assert after == {root: snapshot(root) for root in roots}
    assert {name for root in roots for name in before[root]} <= {
        name for root in roots for name in after[root]} | {".lock"}


def test_what_a_failed_directory_makes_impossible(roots: list[Path]) -> None:
    manager: Any = manager_of(roots)[0]

    def storage(call: Callable[[], object], text: str) -> None:
        refused(call, "KafkaStorageError", text, code="io")

    with manager:
        storage(lambda: manager.replace_current_with_future_log(X0),
                "The current replica for x-0 is offline")
        new_log(manager, roots[0])
        storage(lambda: manager.replace_current_with_future_log(N0),
                "The future replica for new-0 is offline")
        manager.maybe_update_preferred_log_dir(A0, roots[1])
        manager._creation._preferred[A0] = str(roots[0])
        refused(lambda: manager.get_or_create_log(A0, is_future=True), "IllegalStateError",
                "Can not create the future log for a-0 in the current log directory of this "
                "partition")
        begin(manager, roots[1])
        manager.handle_log_dir_failure(roots[1], OSError(errno.EIO, "gone", "f"))
        wait_for(lambda: not manager.is_log_dir_online(roots[1]))
        storage(lambda: manager.alter_replica_log_dir(N0, roots[1]),
                f"Log directory {roots[1]} is offline")
        storage(lambda: manager.get_or_create_log(X0),
                f"Can not create log for x-0 because log directories {roots[1]} are offline")
        for is_future in (False, True):
            storage(lambda is_future=is_future:  # type: ignore[misc]
                    manager.async_delete(X0, is_future), "Failed to delete log for "
                    f"{'future' if is_future else ''} x-0 because it may be in one of the offline "
                    f"directories {roots[1]}")
        manager.maybe_update_preferred_log_dir(X0, roots[1])
        storage(lambda: manager.get_or_create_log(X0, is_new=True),
                f"No log directories available. Tried {roots[1]}")
        manager.handle_log_dir_failure(roots[0], OSError(errno.ENOSPC, "full"))
        wait_for(lambda: not manager.is_log_dir_online(roots[0]))
        for call in (lambda: manager.get_log(X0), manager.flush_logs, manager.delete_logs,
                     manager.checkpoint_log_recovery_offsets,
                     manager.checkpoint_log_start_offsets, manager.checkpoint_high_watermarks):
            refused(call, "AllLogDirsFailedError", "[Errno 5] No data directory is left: all log "
                    f"dirs in {roots[0]}, {roots[1]} have failed: f: gone", code="io",
                    errno=errno.EIO, cause="OSError")


@pytest.mark.parametrize("step", ["lock", "create_checkpoints"])
def test_a_directory_that_fails_before_its_logs(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """It is offline and not locked; the others are used."""
    def broken(directory: live.LogDirectory) -> None:
        if directory.path == str(roots[0]):
            raise OSError(errno.EROFS, "Read-only file system", f"{directory.path}/x")
        real(directory)

    real = getattr(live.LogDirectory, step)
    monkeypatch.setattr(live.LogDirectory, step, broken)
    told: list[seglog.LogDirFailure] = []
    manager = Manager(roots, on_log_dir_failure=told.append)
    assert manager.live_log_dirs == [str(roots[1])] and not (roots[0] / ".lock").exists()
    with manager:
        assert [(failure.log_dir, failure.message, str(failure.error)) for failure in told] == [(
            str(roots[0]), f"Disk error while locking directory {roots[0]}" if step == "lock"
            else f"Error while creating checkpoints in {roots[0]}",
            f"[Errno 30] Read-only file system: '{roots[0]}/x'")]
    refused(lambda: Manager(roots[0]), "AllLogDirsFailedError",
            f"[Errno 30] No data directory can be used: all log dirs in {roots[0]} have failed: "
            f"{roots[0]}/x: Read-only file system", code="io", errno=errno.EROFS, cause="OSError")
    assert not (roots[0] / ".lock").exists()


def test_a_second_future_log_and_a_log_after_the_end(roots: list[Path], tmp_path: Path) -> None:
    name = "a-0.0123456789abcdef0123456789abcde{}-future"
    twice = make_dir(tmp_path / "k3", [name.format(0), name.format(1)])
    refused(Manager(twice, config=LoadConfig(num_recovery_threads_per_data_dir=1)).__enter__,
            "DuplicatePartitionError", "Duplicate log directories found: "
            f"{twice / name.format(1)}, {twice / name.format(0)}")
    with Manager(roots) as manager:
        manager.get_or_create_log(N0)
    with Manager(roots) as manager:
        pass
    refused(lambda: manager.get_log(N0), "LogManagerStateError",
            "the log of new-0 was not opened before the log manager was closed")


def test_settings_of_a_tiered_topic_that_contradict_each_other_change_nothing() -> None:
    configs = TopicConfigs(LogConfig(), {}, remote_storage_enabled=True)
    configs.set_topic("t", {"remote.storage.enable": "true"})
    with pytest.raises(ConfigError, match="invalid to disable remote storage without deleting"):
        configs.set_topic("t", {})
    assert configs.of("t").remote_storage_enable
