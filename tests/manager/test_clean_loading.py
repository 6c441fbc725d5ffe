"""Compares a start that loads cleanly closed logs as rows with one that uses Kafka's loader for
each: the same logs, reports, messages, metrics, events, and the same files at every step."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import BrokerConfig, LoadConfig, LogConfig
from seglog.errors import DuplicatePartitionError, KafkaStorageError, LogManagerStateError
from seglog.log.scheduler import MockTime
from seglog.manager.loading import LogLoading
from seglog.metrics import Gauge, MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.open_log import load_log
from seglog.storage.paths import parse_directory_name
from tests.differential import registry as damages
from tests.differential.cases import plan
from tests.differential.sources import Source, Sources
from tests.manager.records import batch
from tests.manager.row_starts import (
    CHECKPOINTS, CLEAN, NOW_MS, PLAIN, SETTINGS, compare, idle_directory, restarted,
)
from tests.manager.support import entries, snapshot
from tests.support.effort import quick_each, quick_first
from tests.support.golden import LOAD_CONFIG


@pytest.fixture(scope="module")
def template(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return idle_directory(golden, tmp_path_factory.mktemp("clean") / "k")


def test_plain_logs_are_rows(template: Path, tmp_path: Path) -> None:
    for threads in (1, 2):
        assert compare(template, tmp_path / "k", threads=threads) == len(PLAIN)


def test_what_kafka_closed(golden: Path, tmp_path: Path) -> None:
    """As it is, and closed once more by us."""
    before = compare(golden / "real/clean", tmp_path / "k")
    shutil.copytree(golden / "real/clean", tmp_path / "restarted")
    assert compare(restarted(tmp_path / "restarted"), tmp_path / "k") >= max(before, 5)


def test_the_snapshot_of_the_shutdown_before(template: Path, tmp_path: Path) -> None:
    """Every start deletes it, of every log that was written to since."""
    home = Path(shutil.copytree(template, tmp_path / "template"))
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        for log in manager.all_logs:
            log.append_as_leader(batch(2), 0)
    strays = [path for path in home.glob("*/*.snapshot")
              if not path.with_suffix(".log").exists() and path != max(path.parent.glob("*.snap*"))]
    assert len(strays) >= 3
    assert compare(home, tmp_path / "k") == len(PLAIN)
    for path in strays[:1]:
        path.unlink()
        path.mkdir()
    assert compare(home, tmp_path / "k") == len(PLAIN) - 1


def test_a_stray_snapshot_at_offset_0(template: Path, tmp_path: Path) -> None:
    """Of a log that begins later."""
    home = Path(shutil.copytree(template, tmp_path / "template"))
    key = TopicPartition("later", 0)
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        # Of an id whose text begins with A, as one in 64 does.
        log = manager.get_or_create_log(key, topic_id=uuid.UUID(int=1 << 120))
        manager.truncate_fully_and_start_at(key, 7)
        log.append_as_leader(batch(2), 0)
    restarted(home)  # deletes the files of the segment before
    last, = (home / "later-0").glob("*.snapshot")
    shutil.copyfile(last, last.with_name(f"{0:020d}.snapshot"))
    assert compare(home, tmp_path / "k") == len(PLAIN) + 1


def test_a_row_leaves_no_offset_when_it_is_deleted(template: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(template, tmp_path / "k"))
    with seglog.LogManager([root], log_config=SETTINGS) as manager:
        [rows] = manager._state.table.unopened()
        key = rows.rows.keys[0]
        manager.async_delete(key)
        for name in CHECKPOINTS[::2]:
            before = entries(template / name)
            assert entries(root / name) == {one: before[one] for one in before if one != key}


@pytest.mark.parametrize("first", quick_first(range(0, 24, 8), 1))
def test_drawn_damage(golden: Path, tmp_path: Path, first: int) -> None:
    """Directories as Kafka's loader is compared with ours, with and without marker."""
    seed = int(os.environ.get("SEGLOG_CLEAN_SEED", "7"))
    sources = Sources(golden, tmp_path / "sources")
    for number in range(first, first + 8):
        case = plan(sources, seed, number)
        root = tmp_path / f"case-{number}"
        case.build(sources, root)
        if number % 3:
            (root / CLEAN).touch()
        compare(root, tmp_path / "k", LogConfig.from_properties(dict(case.config)))
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def closed(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log of a broker that was closed once more by us, by its name."""
    home = tmp_path_factory.mktemp("closed")
    for partition in ("plain-none-0", "txn-0"):
        Sources(golden, home / "sources").copy(Source("clean", partition), home / partition)
        restarted(home / partition)
    return {path.name: path for path in home.glob("*-0")}


@pytest.mark.parametrize("kind", quick_each(sorted(damages.kinds()), 4))
def test_one_damage_to_logs_that_were_closed_cleanly(closed: dict[str, Path], tmp_path: Path,
                                                     kind: str) -> None:
    """Each of the kinds that Kafka's loader is compared by."""
    seed = os.environ.get("SEGLOG_CLEAN_SEED", "7")
    partition = ("plain-none-0", "txn-0")[zlib.crc32(kind.encode()) % 2]
    root = shutil.copytree(closed[partition], tmp_path / "template")
    damages.apply(kind, root, partition, f"{seed}/{partition}")
    compare(root, tmp_path / "k")


# ---- while they are rows ------------------------------------------------------------------------


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "k"))


def unopened(manager: seglog.LogManager) -> int:
    return len(manager._state.table.unopened_keys())


def test_a_start_and_a_shutdown_touch_no_log(home: Path) -> None:
    def seen() -> dict[str, tuple[int, int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ctime_ns, path.stat().st_ino)
                for folder in home.iterdir() if folder.is_dir()
                for path in [folder, *folder.iterdir()]}

    before, checkpoints = seen(), {name: (home / name).read_bytes() for name in CHECKPOINTS}
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        assert unopened(manager) == len(PLAIN)
        assert not (home / CLEAN).exists()
        manager.checkpoint_log_recovery_offsets()
        manager.checkpoint_log_start_offsets()
        manager.checkpoint_high_watermarks()
        assert unopened(manager) == len(PLAIN)
    assert seen() == before
    assert (home / CLEAN).exists()
    assert {name: (home / name).read_bytes() for name in CHECKPOINTS} == checkpoints


def test_a_log_is_made_when_somebody_asks(home: Path) -> None:
    key = TopicPartition("t", 0)
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        log = manager.get_log(key)
        assert log is not None and manager.get_log(key) is log
        assert unopened(manager) == len(PLAIN) - 1
        assert manager.get_log(TopicPartition("t", 5)) is None
        assert manager.get_log(key, is_future=True) is None
        end = log.log_end_offset
        log.append_as_leader(batch(1), 0)
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        assert unopened(manager) == len(PLAIN)
        log = manager.get_log(key)
        assert log is not None and log.log_end_offset == end + 1
        assert len(manager.all_logs) == len(manager.current_logs) == len(PLAIN)
        assert not unopened(manager)
        assert log in manager.all_logs


def test_threads_get_the_same_log(home: Path) -> None:
    keys = [parse_directory_name(name).topic_partition for name in PLAIN.values()]
    with (seglog.LogManager([home], log_config=SETTINGS) as manager,
          ThreadPoolExecutor(8) as pool):
        found = list(pool.map(manager.get_log, keys * 16))
        assert len({id(log) for log in found}) == len(keys)
        assert [log.topic_partition for log in found if log] == keys * 16


def test_nothing_is_opened_after_the_end(home: Path) -> None:
    manager = seglog.LogManager([home], log_config=SETTINGS)
    manager.startup()
    log = manager.get_log(TopicPartition("t", 0))
    manager.shutdown()
    assert log is not None and manager.get_log(TopicPartition("t", 0)) is log and log.is_closed
    before = snapshot(home)
    for ask in (lambda: manager.get_log(TopicPartition("t", 1)), lambda: manager.all_logs):
        with pytest.raises(LogManagerStateError):
            ask()
    assert snapshot(home) == before


def test_a_partition_that_is_there_twice(home: Path, tmp_path: Path) -> None:
    """Both are rows, or one of them is not: the broker refuses to start either way."""
    for damage in (None, "k", "l"):
        other = tmp_path / "l"
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        shutil.copytree(home / "t-0", other / "t-0")
        (other / CLEAN).touch()
        if damage is not None:
            (tmp_path / damage / "t-0/notes").touch()
        manager = seglog.LogManager([home, other], log_config=SETTINGS)
        with pytest.raises(DuplicatePartitionError, match="Duplicate log directories for t-0"):
            manager.startup()
        manager.shutdown()


def test_a_directory_that_fails(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "l"
    other.mkdir()
    shutil.copytree(home / "t-0", other / "u-0")
    (other / CLEAN).touch()
    told: list[Any] = []
    heard = threading.Event()
    with seglog.LogManager([home, other], log_config=SETTINGS, on_log_dir_failure=lambda failure: (
            told.append(failure), heard.set())) as manager:
        manager.get_log(TopicPartition("t", 1))
        manager.handle_log_dir_failure(home)
        assert heard.wait(120)
        assert sorted(map(str, told[0].partitions)) == sorted(PLAIN.values())
        assert [str(log.topic_partition) for log in manager.all_logs] == ["u-0"]
        assert manager.get_log(TopicPartition("t", 0)) is None
    assert not (home / CLEAN).exists() and (other / CLEAN).exists()


def test_a_log_that_does_not_open_any_more(home: Path) -> None:
    """Its index was removed meanwhile: as for any log, the directory goes offline."""
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        shutil.rmtree(home / "t-0")
        with pytest.raises(KafkaStorageError):
            manager.get_log(TopicPartition("t", 0))


def test_settings_that_change_before_a_log_is_opened(home: Path) -> None:
    """Its segments keep those that they were loaded with, the log has the new ones."""
    with seglog.LogManager([home], log_config=SETTINGS) as manager:
        manager.update_topic_config("t", {"segment.index.bytes": "4096"})
        log = manager.get_log(TopicPartition("t", 0))
        assert log is not None
        assert log.config.segment_index_bytes == 4096
        assert max((home / "t-0").glob("*.index")).stat().st_size == 16384


def test_tiering_that_begins_before_a_log_is_opened(tmp_path: Path) -> None:
    """The start of a tiered log is what its checkpoint says, not its first segment's base
    (LogManager.checkpointLogStartOffsetsInDir, LogLoader.load)."""
    root, key = tmp_path / "k", TopicPartition("t", 0)
    tiering = BrokerConfig(remote_log_storage_system_enable=True)
    with seglog.LogManager([root], config=tiering) as manager:
        log = manager.get_or_create_log(key)
        manager.truncate_fully_and_start_at(key, 500)
        log.append_as_leader(batch(3), 0)
    with seglog.LogManager([root], config=tiering):
        pass  # removes the files of the first segment
    with seglog.LogManager([root], config=tiering) as manager:
        assert manager._state.table.unopened_keys() == [key]
        manager.update_topic_config("t", {"remote.storage.enable": "true"})
    own = {"t": LogConfig().override({"remote.storage.enable": "true"})}
    with seglog.LogManager([root], config=tiering, topic_configs=own) as manager:
        log = manager.get_log(key)
        assert log is not None and (log.log_start_offset, log.log_end_offset) == (500, 503)


def test_deleting_and_counting(home: Path, tmp_path: Path) -> None:
    (tmp_path / "l").mkdir()
    with seglog.LogManager([home, tmp_path / "l"], log_config=SETTINGS) as manager:
        assert manager.next_log_dirs() == [str(tmp_path / "l"), str(home)]
        assert unopened(manager) == len(PLAIN)
        manager.async_delete(TopicPartition("t", 0))
        assert manager.get_log(TopicPartition("t", 0)) is None
        assert not (home / "t-0").exists()
        assert TopicPartition("t", 0) not in manager.current_logs


def test_gauges(home: Path) -> None:
    registry = MetricsRegistry()
    with seglog.LogManager([home], log_config=SETTINGS, metrics=registry) as manager:
        name = "kafka.log:type=Log,name=LogEndOffset,topic=t,partition=0"
        meter = "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t"
        assert meter in registry and f"{meter}x" not in registry
        gauge, count = registry.get(name), len(registry)
        assert isinstance(gauge, Gauge) and gauge.value == 625
        assert registry.get(name.replace("=0", "=9")) is None
        log = manager.get_log(TopicPartition("t", 0))
        assert log is not None
        log.append_as_leader(batch(1), 0)
        again = registry.get(name)
        assert isinstance(again, Gauge) and again.value == 626
        assert len(registry) == count == len(list(registry))
        producers = registry.get("kafka.server:type=ReplicaManager,name=ProducerIdCount")
        assert isinstance(producers, Gauge)


@pytest.mark.parametrize("config", [
    {}, {"retention.ms": "-1"}, {"retention.ms": "1000"}, {"retention.bytes": "1"},
    {"retention.bytes": "50000", "retention.ms": "-1"}, {"cleanup.policy": "compact"},
    {"retention.bytes": "60000", "retention.ms": "999999999999999"},
    {"cleanup.policy": "compact,delete", "retention.ms": "1"}], ids=str)
def test_retention(template: Path, tmp_path: Path, config: dict[str, str]) -> None:
    """What is deleted is the same, and a log of which nothing is stays a row."""
    settings = LogConfig.from_properties({**LOAD_CONFIG, **config})
    results = []
    for rows in (False, True):
        home = tmp_path / "k"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(template, home)
        clock = MockTime(current_time_ms=NOW_MS)
        registry = MetricsRegistry()
        with pytest.MonkeyPatch.context() as patch:
            if not rows:
                patch.setattr(LogLoading, "_knows_rows", lambda self: False)
            # Without the cleaner, whose threads open what is compacted.
            broker = BrokerConfig.from_properties({
                "log.dirs": str(home), "log.cleaner.enable": "false"})
            with seglog.LogManager(config=broker, log_config=settings, time=clock,
                                   metrics=registry, scheduler=clock.scheduler) as manager:
                clock.sleep(400_000)
                left = unopened(manager)
                gauges = {name: value for name, value in registry.snapshot().items()
                          if "type=Log," in name}
                found = {key: (log.log_start_offset, log.segments.base_offsets.tolist(),
                               log.last_flush_ms) for key, log in manager.current_logs.items()}
        results.append((found, gauges, snapshot(home)))
        assert left == 0 if not rows else left >= 1  # the empty log has nothing to delete
    assert results[0] == results[1]
    if config.get("retention.ms") == "-1" and "retention.bytes" not in config:
        assert left == len(PLAIN)


def test_messages_for_those_who_look_for_faults(home: Path,
                                                caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "seglog"), \
            seglog.LogManager([home], log_config=SETTINGS) as manager:
        assert not unopened(manager)


@pytest.mark.parametrize("how", [
    {"is_stray": lambda log: False}, {"load": load_log},
    {"config": LoadConfig(sanity_check_level="full")},
    {"config": LoadConfig(sanity_check_all_logs_enabled=False)}], ids=[
        "is_stray", "load", "full", "deferred"])
def test_what_concerns_each_log_loads_each(home: Path, how: dict[str, Any]) -> None:
    with seglog.LogManager([home], log_config=SETTINGS, **how) as manager:
        assert not unopened(manager) and manager.current_logs
