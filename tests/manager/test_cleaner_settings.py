"""Settings of a manager's log cleaner, at its start and at run time."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from seglog.config import LogConfig
from seglog.errors import ConfigError
from seglog.manager.configs import TopicConfigs
from seglog.manager.log_cleaning import _ServedLogs
from seglog.model import TopicPartition
from tests.manager.compacting import COMPACT, T0, cleaned, cleaners_since, manager_of, new_log
from tests.manager.compacting import roots as roots  # the fixture
from tests.support.waiting import wait_for


def test_settings_at_run_time(roots: list[Path]) -> None:
    before = set(threading.enumerate())
    with manager_of(roots[0]) as manager:
        with pytest.raises(ConfigError, match="Cannot update these configs dynamically: log.dirs"):
            manager.reconfigure_cleaner({"log.dirs": "/x"})
        with pytest.raises(ConfigError, match="more than double"):
            manager.reconfigure_cleaner({"log.cleaner.threads": "3"})
        manager.reconfigure_cleaner({"log.cleaner.threads": "2",
                                     "log.cleaner.io.max.bytes.per.second": "1e9"})
        assert cleaners_since(before) == {
            "kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"}
        new_log(manager, roots[0])
        wait_for(cleaned(roots[0], 6))
    manager.reconfigure_cleaner({"log.cleaner.threads": "1"})
    assert not cleaners_since(before), "the manager is closed"


def test_a_cleaner_that_is_off(roots: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    with caplog.at_level(logging.WARNING), manager_of(
            roots[0], log_cleaner_enable="false") as manager:
        new_log(manager, roots[0])
        assert not cleaners_since(before)
        assert len(manager.compact(T0)) == 1
    assert not caplog.messages
    with caplog.at_level(logging.WARNING), manager_of(roots[0], log_cleaner_enable="false"):
        pass
    assert caplog.messages == [
        "1 topics are compacted (cleanup.policy=compact), but no cleaner runs: the manager has no "
        "scheduler, or log.cleaner.enable is false: t"]


def test_a_start_without_tasks_names_the_topics_that_stay_as_they_are(
        roots: list[Path], caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0], scheduled=False) as manager:
        new_log(manager, roots[0])
    with caplog.at_level(logging.WARNING), manager_of(roots[0], scheduled=False) as manager:
        assert len(caplog.messages) == 1 and "no cleaner runs" in caplog.text
        manager._tasks.start(is_quiet=True)
        assert len(caplog.messages) == 1
        for count, named in ((5, "t0, t1, t2, t3, t4"), (6, "t0, t1, t2, t3, t4, ...")):
            monkeypatch.setattr(_ServedLogs, "compacted_partitions", lambda logs, count=count: [
                TopicPartition(f"t{number // 2}", number % 2) for number in range(2 * count)])
            manager._tasks.start()
            assert caplog.messages[-1].startswith(f"{count} topics are compacted")
            assert caplog.messages[-1].endswith(f"is false: {named}")


def test_new_settings_start_no_cleaner(roots: list[Path]) -> None:
    """A manager without a scheduler has none; its rounds on demand take the settings."""
    with manager_of(roots[0], scheduled=False) as manager:
        manager.reconfigure_cleaner({
            "log.cleaner.threads": "2", "log.cleaner.io.max.bytes.per.second": "9"})
        cleaner = manager._state.cleaning.cleaner
        assert cleaner.config.threads == 2 and not cleaner.threads
        assert cleaner.throttler.desired_rate == 9
    with manager_of(roots[0]) as manager:
        cleaner = manager._state.cleaning.cleaner
        assert len(cleaner.threads) == 1
    manager._state.cleaning.reconfigure({"log.cleaner.threads": "2"})
    assert not cleaner.threads, "it has ended"


def test_settings_that_leave_a_log_compacted_end_no_round(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """LogManager.updateTopicConfig; a future log has no round that could end."""
    with manager_of(*roots, scheduled=False) as manager:
        new_log(manager, roots[0], segments=0)
        assert manager.alter_replica_log_dir(T0, roots[1]) is not None
        ended: list[TopicPartition] = []
        monkeypatch.setattr(manager._state.cleaning.cleaner.manager, "abort_cleaning",
                            ended.append)
        manager.update_topic_config("t", {**COMPACT, "segment.ms": "5000"})
        assert not ended
        manager.update_topic_config("t", {"cleanup.policy": "delete"})
        assert ended == [T0]
        manager.update_topic_config("t", {"cleanup.policy": "delete", "segment.ms": "5000"})
        assert ended == [T0]


def test_settings_that_change_while_a_log_gets_them(roots: list[Path],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the newer ones in the end."""
    with manager_of(roots[0], scheduled=False) as manager:
        log, of = new_log(manager, roots[0]), TopicConfigs.of
        manager.update_topic_config("t", COMPACT)
        log.update_config(LogConfig())

        def old(self: TopicConfigs, topic: str) -> LogConfig:
            found = of(self, topic)
            monkeypatch.undo()
            manager.update_topic_config("t", COMPACT | {"segment.bytes": "2000000"})
            return found

        monkeypatch.setattr(TopicConfigs, "of", old)
        manager._state.configs.serve(log)
        assert log.config is manager.topic_config("t") and log.config.segment_size == 2_000_000
