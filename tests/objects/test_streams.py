"""Streams over a bucket that is synced from a live directory, with the reader called as by Spark's
driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seglog[spark]'")

import seglog
from seglog.errors import KafkaStorageError, OffsetOutOfRangeError
from seglog.spark.streaming.bounds import WatchedLogs
from seglog.storage.remote import RemoteFiles
from tests.objects.faulty import Faulty
from tests.spark.test_stream_reader import Driver

TOPIC = "orders"


class Bucket:
    """A log, and its copy in a bucket as of the last `sync`."""

    def __init__(self, live: Path, faulty: Faulty) -> None:
        self.live, self.copy = live, faulty.root / "data" / "logs"
        self.log = seglog.open(live / f"{TOPIC}-0", config={"internal.segment.bytes": 4096})

    def append(self, count: int) -> None:
        for number in range(count):
            self.log.append(b"value %d" % number)
        self.log.flush()

    def sync(self) -> None:
        """Works as `aws s3 sync --delete`: replaces each object as a whole."""
        shutil.copytree(self.live, self.copy, dirs_exist_ok=True)
        there = {path.relative_to(self.live) for path in self.live.rglob("*")}
        for path in list(self.copy.rglob("*")):
            if path.relative_to(self.copy) not in there:
                path.unlink()


@pytest.fixture
def synced(tmp_path: Path, faulty: Faulty) -> Any:
    made = Bucket(tmp_path / "live", faulty)
    yield made
    made.log.close()


def stream(options: dict[str, str], **more: object) -> Driver:
    given = {f"storage__{name}": text for name, text in options.items()}  # "__" is a dot
    return Driver("s3://data/logs", startingOffsets="earliest",  # type: ignore[arg-type]
                  **{**given, **more})


@pytest.mark.parametrize("is_old", [False, True])
def test_what_is_synced_is_read_once(synced: Bucket, hasty: dict[str, str], is_old: bool) -> None:
    synced.append(10)
    synced.sync()
    driver = stream(hasty, is_old=is_old)
    driver.drain()
    for count in (1, 40, 3):
        synced.append(count)
        assert not driver.trigger()  # not yet in the bucket
        synced.sync()
        if count == 40:
            driver.restart()
        driver.drain()
    assert driver.records() == {(TOPIC, 0): list(range(54))}


def test_an_idle_trigger_costs_lists_alone(synced: Bucket, faulty: Faulty, hasty: dict[str, str]
                                           ) -> None:
    synced.append(30)
    synced.sync()
    driver = stream(hasty)
    driver.drain()
    faulty.asked.clear()
    assert not driver.trigger()
    assert 0 < len(faulty.asked) <= 6
    assert all(asked.key == "" or asked.method == "HEAD" for asked in faulty.asked)


def test_the_list_that_shows_a_change_is_used(
        synced: Bucket, hasty: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is also the log's new state: no check of a log lists it twice for that."""
    synced.append(30)
    synced.sync()
    driver = stream(hasty)
    driver.drain()
    calls = {"look": 0, "stamp": 0}

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: object) -> Any:
            calls[name] += 1
            return call(*args)

        return counting

    monkeypatch.setattr(WatchedLogs, "_look_at", counted("look", WatchedLogs._look_at))
    monkeypatch.setattr(RemoteFiles, "stamp", counted("stamp", RemoteFiles.stamp))
    synced.append(1)
    synced.sync()
    driver.drain()
    assert calls["look"] == calls["stamp"] > 0
    assert driver.records() == {(TOPIC, 0): list(range(31))}


def test_lost_data_is_not_passed_over(synced: Bucket, hasty: dict[str, str]) -> None:
    synced.append(100)
    synced.sync()
    driver = stream(hasty, maxOffsetsPerTrigger=10)
    driver.trigger()
    (synced.copy / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 60\n")
    with pytest.raises(OffsetOutOfRangeError, match="its log now starts at 60"):
        driver.trigger()
    shutil.rmtree(synced.copy / f"{TOPIC}-0")
    with pytest.raises((OffsetOutOfRangeError, KafkaStorageError), match="is gone|no partition"):
        driver.trigger()


def test_an_object_that_is_replaced_under_a_task(synced: Bucket, hasty: dict[str, str]) -> None:
    """The task fails with the reason; the batch, planned again, has every record once."""
    synced.append(5)
    synced.sync()
    driver = stream(hasty)

    def replace(where: str) -> None:
        if where == "before the tasks":
            synced.append(5)
            synced.sync()

    with pytest.raises(KafkaStorageError, match="the object changed") as caught:
        driver.trigger(replace)
    assert caught.value.code == "object_changed"
    driver.restart()
    driver.drain()
    assert driver.records() == {(TOPIC, 0): list(range(10))}


def test_the_high_watermark_of_a_bucket(synced: Bucket, hasty: dict[str, str]) -> None:
    synced.append(20)
    synced.sync()
    mark = synced.copy / "replication-offset-checkpoint"
    mark.write_text(f"0\n1\n{TOPIC} 0 7\n")
    driver = stream(hasty, endAt="highWatermark")
    driver.drain()
    assert driver.records() == {(TOPIC, 0): list(range(7))}
    mark.write_text(f"0\n1\n{TOPIC} 0 19\n")
    driver.drain()
    assert driver.records() == {(TOPIC, 0): list(range(19))}
