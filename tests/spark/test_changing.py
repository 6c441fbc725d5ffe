"""Directories that change while a query is planned and read: retention, deletion of a topic."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import KafkaStorageError, UnknownTopicOrPartitionError
from seglog.spark import plan
from seglog.spark.read_options import parse_options
from seglog.spark.plan import plan_partitions
from seglog.spark.source_reader import SeglogReader
from tests.oracle.batch import Batch, Record
from tests.oracle.writer import LogConfig, LogWriter

pytestmark = pytest.mark.judge

END = 400
STEPS = ("choose_partitions", "resolve_offsets", "cut_tasks")


def write(path: Path) -> Path:
    writer = LogWriter(path, LogConfig(segment_bytes=1500))
    for offset in range(END):
        writer.append(Batch(offset, 0, [Record(offset, offset, None, b"%d" % offset)],
                            base_timestamp=offset, max_timestamp=offset))
    writer.close()
    return path


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def retire(path: Path, count: int = 3) -> int:
    """Deletes the first segments as retention does; returns the new log start offset."""
    for log in segments(path)[:count]:
        for file in path.glob(f"{log.stem}.*"):
            file.unlink()
    return int(segments(path)[0].stem)


def delete(path: Path) -> None:
    """Deletes a partition as the deletion of a topic does."""
    os.rename(path, path.with_name(f"{path.name}.{'0' * 32}-delete"))


def offsets(options: dict[str, str]) -> list[int]:
    parsed = parse_options(options)
    reader = SeglogReader(parsed, ("offset",))
    return [offset for task in plan_partitions(parsed) for batch in reader.read(task)
            for offset in batch.column(0).to_pylist()]


def once(monkeypatch: pytest.MonkeyPatch, step: str, before: bool, change: Callable[[], Any]
         ) -> None:
    """Calls `change` before or after the first run of one step of a plan."""
    original, done = getattr(plan, step), []

    def run(*args: Any, **kwargs: Any) -> Any:
        if before and not done:
            done.append(change())
        result = original(*args, **kwargs)
        if not done:
            done.append(change())
        return result

    monkeypatch.setattr(plan, step, run)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_while_a_query_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            step: str, before: bool, fails: str) -> None:
    path = write(tmp_path / "t-0")
    start: list[int] = []
    once(monkeypatch, step, before, lambda: start.append(retire(path)))
    try:
        found = offsets({"path": str(tmp_path), "failOnDataLoss": fails})
    except KafkaStorageError as error:
        # It was removed after planning, so the task reports it.
        assert fails == "true" and "was removed after the query was planned" in str(error)
    else:
        assert found in (list(range(start[0], END)), list(range(END)))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("strategy", [{}, {"subscribe": "t,u"}, {"subscribePattern": "."}])
def test_a_topic_that_is_deleted_while_a_query_is_planned(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bool,
        strategy: dict[str, str]) -> None:
    write(tmp_path / "u-0")
    once(monkeypatch, step, before, lambda: delete(tmp_path / "t-0"))
    write(tmp_path / "t-0")
    try:
        found = offsets({"path": str(tmp_path), **strategy})
    except UnknownTopicOrPartitionError as error:
        assert "subscribe" in strategy and "topic t is not here" in str(error)
    except KafkaStorageError as error:
        assert "was removed after the query was planned" in str(error)
    else:
        assert found == list(range(END)) and "subscribe" not in strategy


def test_what_goes_between_plan_and_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "t-0")
    for fails in ("true", "false"):
        options = parse_options({"path": str(path), "failOnDataLoss": fails})
        tasks = plan_partitions(options)
        gone = segments(path)[2]
        hidden = gone.rename(gone.with_suffix(".gone"))
        reader = SeglogReader(options, ("offset",))
        if fails == "true":
            with pytest.raises(KafkaStorageError) as caught:
                [batch for task in tasks for batch in reader.read(task)]
            assert str(gone) in str(caught.value) and "set failOnDataLoss to false" in str(
                caught.value)
        else:
            with caplog.at_level(logging.WARNING, "seglog.spark"):
                found = [offset for task in tasks for batch in reader.read(task)
                         for offset in batch.column(0).to_pylist()]
            lost = range(int(gone.stem), int(segments(path)[2].stem))
            assert found == [offset for offset in range(END) if offset not in lost]
            assert [str(gone) in record.getMessage() for record in caplog.records] == [True]
        hidden.rename(gone)


def test_planning_beside_a_broker_that_deletes(tmp_path: Path) -> None:
    """Threads delete and create segments and topics; each plan is of one moment."""
    for name in ("t-0", "u-0", "v-0"):
        write(tmp_path / name)
    ended, failed = threading.Event(), []

    def disturb() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            path = tmp_path / ("t-0", "u-0")[number % 2]
            if len(segments(path)) > 4:
                retire(path, 2)
            else:
                os.rename(path, path.with_name(f"{path.name}.{number:032x}-delete"))
                write(path)

    def query() -> None:
        options = parse_options({"path": str(tmp_path)})
        for _ in range(40):
            try:
                tasks = plan_partitions(options)
                assert {task.topic_partition.topic for task in tasks} >= {"v"}
            except KafkaStorageError as error:
                if "disappear while the query" not in str(error):
                    failed.append(error)
            except Exception as error:
                failed.append(error)

    disturbing = threading.Thread(target=disturb)
    querying = [threading.Thread(target=query) for _ in range(2)]
    for thread in (disturbing, *querying):
        thread.start()
    for thread in querying:
        thread.join()
    ended.set()
    disturbing.join()
    assert not failed, failed[:3]
