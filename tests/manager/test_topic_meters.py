"""The meters of topics: of those that have a log here."""

from __future__ import annotations

from pathlib import Path

import seglog
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from tests.manager.records import fill
from tests.support.waiting import wait_for

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


def appended(manager: seglog.LogManager, key: TopicPartition) -> None:
    fill(manager.get_or_create_log(key, is_new=True), 1)


def topics(registry: MetricsRegistry) -> set[str]:
    """The topics with metrics of any kind."""
    return {value for name, _ in registry for tag, value in name.tags if tag == "topic"}


def test_topics_without_a_log_have_no_meters(tmp_path: Path) -> None:
    registry = MetricsRegistry()
    with seglog.LogManager([tmp_path / "k", tmp_path / "l"], metrics=registry) as manager:
        a1 = TopicPartition("a", 1)
        for key in (A0, a1, B0):
            appended(manager, key)
        manager.async_delete(A0)
        assert topics(registry) == {"a", "b"}
        manager.async_delete(a1)
        assert topics(registry) == {"b"}
        manager.async_delete_all([B0], on_error=print)
        assert topics(registry) == set()
        appended(manager, B0)
        assert topics(registry) == {"b"}
        failed = manager.get_or_create_log(B0).parent_dir
        manager.handle_log_dir_failure(failed)
        wait_for(lambda: topics(registry) == set())
