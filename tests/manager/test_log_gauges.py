"""The gauges of logs show the logs that are served, and no log that had the name before."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

import seglog
from seglog.config import LogConfig
from seglog.log.scheduler import MockTime
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from tests.manager.records import NOW_MS, fill

N0, N1 = TopicPartition("new", 0), TopicPartition("new", 1)
SETTINGS = LogConfig(file_delete_delay_ms=500)
END = "kafka.log:type=Log,name=LogEndOffset,topic=new,partition={}"


def ends(registry: MetricsRegistry) -> dict[str, object]:
    """The log ends of all gauges, by partition."""
    return {name.rpartition("partition=")[2]: values["Value"]
            for name, values in registry.snapshot().items() if name.startswith(END.format(""))}


def copied(root: Path, kind: str) -> None:
    """A directory of another log of new-0: what a restart finds after a deletion."""
    shutil.copytree(root / "new-0", root / f"new-0.{uuid.uuid4().hex}-{kind}")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["delete", "stray"])
def test_logs_that_are_put_aside_have_none(tmp_path: Path, kind: str, clean: bool) -> None:
    """In Kafka the gauges are those of the log that is loaded first, also when it is deleted."""
    root, time, registry = tmp_path / "k", MockTime(current_time_ms=NOW_MS), MetricsRegistry()
    with seglog.LogManager(root) as manager:
        log = manager.get_or_create_log(N0)
        fill(log, 1)
        log.flush()
        copied(root, kind)
        fill(log, 2)
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    with seglog.LogManager(root, log_config=SETTINGS, scheduler=time.scheduler, time=time,
                           metrics=registry) as manager:
        assert ends(registry) == {"0": 9}
        found = manager.get_log(N0)
        assert found is not None
        fill(found, 1)
        assert ends(registry) == {"0": 12}
        time.sleep(100_000)
        assert ends(registry) == {"0": 12} and not manager.logs_to_be_deleted


def test_a_log_that_is_found_stray_leaves_its_name_to_the_next(tmp_path: Path) -> None:
    root, registry = tmp_path / "k", MetricsRegistry()
    with seglog.LogManager(root) as manager:
        fill(manager.get_or_create_log(N0), 1)
    with seglog.LogManager(root, metrics=registry, is_stray=lambda log: True) as manager:
        assert ends(registry) == {}
        fill(manager.get_or_create_log(N0), 2)
        assert ends(registry) == {"0": 6}


def test_a_manager_takes_its_gauges_along(tmp_path: Path) -> None:
    """The next manager of the process may have the same registry, which a server exports."""
    registry = MetricsRegistry()
    with seglog.LogManager(tmp_path / "k", metrics=registry) as manager:
        for key in (N0, N1):
            fill(manager.get_or_create_log(key), 1)
    assert ends(registry) == {}
    for times in (2, 3):
        with seglog.LogManager(tmp_path / "k", metrics=registry) as manager:
            log = manager.get_log(N0)
            assert log is not None
            fill(log, 1)
            assert ends(registry) == {"0": 3 * times, "1": 3}
            assert len(list(registry)) == len(dict(registry)) == len(registry)
        assert ends(registry) == {}
