"""Names and settings that Kafka would not create, and what is loaded all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

import seglog
from seglog.arguments import shown
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import (
    ConfigError, IllegalArgumentError, InvalidTopicError, InvalidTopicPartitionError,
)
from seglog.log.scheduler import Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.storage.checkpoint_files import read_offset_checkpoint
from seglog.storage.discover import (
    find_directories, find_partitions, find_replicas, is_partition_directory,
)
from seglog.storage.meta import read_meta_properties
from seglog.storage.place import identify, require_data_directory, require_room_for_logs
from seglog.tiered.bucket import open_bucket
from seglog.tiered.metadata_lint import lint_metadata
from seglog.tiered.metadata_topic import read_metadata_topic
from seglog.tiered.restore import restore

TOPICS = {
    "": "the empty string is not allowed", ".": "'.' is not allowed", "..": "'..' is not allowed",
    "x" * 250: "longer than the max allowed length 249", "a b": "ASCII alphanumerics",
    "a/b": "ASCII alphanumerics", "\u00e9": "ASCII alphanumerics", "a\n": "ASCII alphanumerics"}


@pytest.mark.parametrize("topic", TOPICS)
def test_topics_that_kafka_would_not_create(tmp_path: Path, topic: str) -> None:
    key = seglog.TopicPartition(topic, 0)
    with pytest.raises(InvalidTopicError, match=TOPICS[topic]) as refused:
        seglog.open(tmp_path / "data", topic_partition=key)
    assert str(refused.value).startswith("Topic name is invalid: ")
    assert list(tmp_path.iterdir()) == []
    with seglog.LogManager(tmp_path / "m") as manager:
        with pytest.raises(InvalidTopicError, match=TOPICS[topic]):
            manager.get_or_create_log(key, is_new=True)
        assert not [one for one in (tmp_path / "m").iterdir() if one.is_dir()]


@pytest.mark.parametrize("name", ["t-00", "t-+1", "t-\u0663", "t-007"])
def test_other_spellings_of_a_partition(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidTopicPartitionError, match="is t-"):
        seglog.open(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with seglog.open(tmp_path / "t-5") as log:
        log.append(b"x")
    (tmp_path / "t-5").rename(tmp_path / name)  # as Kafka's loader takes it
    with seglog.LogManager(tmp_path) as manager:
        assert [log.log_end_offset for log in manager.all_logs] == [1]


@pytest.mark.parametrize("partition", [-1, 2**31, True, "0", 0.0, None])
def test_partitions_that_are_none(tmp_path: Path, partition: object) -> None:
    key = seglog.TopicPartition("t", partition)  # type: ignore[arg-type]
    with pytest.raises((TypeError, IllegalArgumentError), match="partition must be"):
        seglog.open(tmp_path, topic_partition=key)


def test_the_longest_name_is_fine(tmp_path: Path) -> None:
    with seglog.open(tmp_path / f"{'x' * 249}-0") as log:
        assert log.append(b"x") == 0


@pytest.mark.parametrize("act", [
    lambda given: seglog.open("never-0", config=given), LogConfig.from_properties,
    LogConfig().override, LogConfig.validate])
def test_unknown_settings_name_the_nearest(act: object, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert callable(act)
    for name, near in {"retention.mss": "retention.ms", "retention_ms": "retention.ms",
                       "Cleanup.policy": "cleanup.policy"}.items():
        with pytest.raises(ConfigError) as refused:
            act({name: 1})
        assert str(refused.value) == f"Unknown topic config name: {name} (did you mean {near}?)"
    with pytest.raises(ConfigError, match="^Unknown topic config name: zzzz$"):
        act({"zzzz": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_brokers_properties_may_hold_what_logs_do_not_need() -> None:
    assert BrokerConfig().log_config({"no.such": 1}) == BrokerConfig().log_config()  # as Kafka's
    assert BrokerConfig.from_properties({"listeners": "x", "log.dirs": "/a"}).data_dirs == ("/a",)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_manager_without_a_cleaner_says_so(tmp_path: Path, policy: str,
                                             caplog: pytest.LogCaptureFixture) -> None:
    topics = {name: LogConfig().override({"cleanup.policy": policy}) for name in ("a", "b")}
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING), seglog.LogManager(
                tmp_path / "m", topic_configs=topics) as manager:
            for number in range(2):
                for topic in ("a", "b", "plain"):
                    manager.get_or_create_log(seglog.TopicPartition(topic, number), is_new=True)
    said = [one.getMessage() for one in caplog.records if "compact" in one.getMessage()]
    assert said == ["2 topics are compacted (cleanup.policy=compact), but no cleaner runs: the "
                    "manager has no scheduler, or log.cleaner.enable is false: a, b"]


# What takes a path, and the name of that parameter.
PATHS: dict[str, tuple[Callable[[str], object], str]] = {
    "open": (seglog.open, "path"), "open_data_dir": (seglog.open_data_dir, "path"),
    "PartitionLog.open": (seglog.PartitionLog.open, "path"),
    "file URL": (lambda path: find_directories(f"file://{quote(path)}"), "path"),
    "find_directories": (find_directories, "path"), "find_partitions": (find_partitions, "path"),
    "find_replicas": (lambda path: find_replicas([path]), "path"),
    "is_partition_directory": (is_partition_directory, "path"), "identify": (identify, "path"),
    "require_data_directory": (require_data_directory, "path"),
    "require_room_for_logs": (require_room_for_logs, "path"),
    "BrokerConfig.from_file": (BrokerConfig.from_file, "path"),
    "UnifiedLog.create": (lambda path: UnifiedLog.create(path, LogConfig(), scheduler=Scheduler()),
                          "path"),
    "read_meta_properties": (read_meta_properties, "path"),
    "read_offset_checkpoint": (read_offset_checkpoint, "path"),
    "open_bucket": (open_bucket, "path"),
    "open_bucket, metadata": (lambda path: open_bucket(".", metadata=path), "metadata"),
    "lint_metadata": (lint_metadata, "data_dir"),
    "read_metadata_topic": (read_metadata_topic, "data_dir"),
    "restore": (lambda path: restore(None, path), "target")}  # type: ignore[arg-type]


@pytest.mark.parametrize("call", PATHS)
def test_a_null_byte_in_a_path(tmp_path: Path, call: str) -> None:
    path, (act, name) = f"{tmp_path}/t-0\0", PATHS[call]
    with pytest.raises(IllegalArgumentError) as refused:
        act(path)
    assert str(refused.value) == f"{name} is no name of a file: {shown(path)}"
