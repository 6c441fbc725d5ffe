"""Logs that lost nothing in a crash as rows, beside a start that recovers each with the loader: the
same logs, reports, messages, metrics, events, and the same files at every step."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

import seglog
from seglog.config import LogConfig
from seglog.log.scheduler import MockTime
from seglog.manager import clean_loading, unopened
from seglog.manager.loading import LogLoading
from seglog.model import ProducerStateEntry, TopicPartition
from seglog.storage.checkpoint_files import read_offset_checkpoint, write_offset_checkpoint
from seglog.storage.producer_state import encode_snapshot, read_snapshot
from tests.differential import registry as damages
from tests.differential.cases import plan
from tests.differential.sources import Source, Sources
from tests.manager.records import batch
from tests.manager.row_starts import (
    CLEAN, NOW_MS, PLAIN, SETTINGS, compare, idle_directory, restarted,
)
from tests.manager.support import snapshot
from tests.support.effort import quick_first
from tests.support.golden import LOAD_CONFIG

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
SEED = os.environ.get("SEGLOG_CLEAN_SEED", "7")


@pytest.fixture(scope="module")
def template(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs that a start has recovered and a shutdown has closed, without the marker."""
    root = idle_directory(golden, tmp_path_factory.mktemp("crash") / "k")
    (root / CLEAN).unlink()
    restarted(root)  # the indexes are those that a recovery writes
    (root / CLEAN).unlink()
    return root


def killed(root: Path, target: Path) -> Path:
    """What is left when a process dies that has opened every log of `root`."""
    with seglog.LogManager([root], log_config=SETTINGS) as manager:
        assert len(manager.all_logs) == len(PLAIN)
        shutil.copytree(root, target)
    return target


@pytest.fixture
def idle(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "idle"))


def test_idle_logs_are_rows(idle: Path, tmp_path: Path) -> None:
    """All but the one whose last segment aborts a transaction."""
    for threads in (1, 2):
        assert compare(idle, tmp_path / "k", threads=threads) == 4


def test_indexes_of_a_process_that_died(idle: Path, tmp_path: Path) -> None:
    """They are `segment.index.bytes` long, and are truncated to their entries."""
    image = killed(idle, tmp_path / "image")
    sizes = {path.stat().st_size for path in image.glob("t-0/*.index")}
    assert max(sizes) == SETTINGS.segment_index_bytes // 8 * 8
    assert compare(image, tmp_path / "k") == 4


def last_base(partition: Path) -> int:
    return max(int(path.stem) for path in partition.glob("*.log"))


def test_what_is_not_flushed(idle: Path, tmp_path: Path) -> None:
    """Any recovery point in the last segment; one before it, or none, means more segments."""
    points = dict(read_offset_checkpoint(idle / RECOVERY_POINTS))
    key = TopicPartition("t", 0)
    base = last_base(idle / "t-0")
    assert 0 < base < points[key] - 1
    for point, rows in ((points[key] - 1, 4), (points[key] + 1, 4), (base, 4), (base - 1, 3),
                        (2**63 - 1, 3), (None, 3)):
        changed = {one: at for one, at in points.items() if one != key}
        write_offset_checkpoint(idle / RECOVERY_POINTS,
                                changed if point is None else {**changed, key: point})
        assert compare(idle, tmp_path / "k") == rows


def appended(root: Path, target: Path, config: LogConfig = SETTINGS) -> Path:
    """What is left when a process dies that has appended to every log."""
    with seglog.LogManager([root], log_config=config,
                           time=MockTime(current_time_ms=NOW_MS)) as manager:
        for number, log in enumerate(manager.all_logs):
            for first in range(0, 3 * (number + 1), 3):
                log.append_as_leader(batch(3, timestamp=NOW_MS - number, sequence=first,
                                           producer_id=2**33 + number), 0)
        shutil.copytree(root, target)
    return target


def test_appends_before_the_crash(idle: Path, tmp_path: Path) -> None:
    """No index has the last entry that a recovery makes, there is no snapshot at the log's end, and
    the one of the shutdown before is in the middle of the segment."""
    image = appended(idle, tmp_path / "image")
    for threads in (1, 2):
        assert compare(image, tmp_path / "k", threads=threads) == 5
    # Twice the same crash: the snapshot is there the second time.
    with seglog.LogManager([image], log_config=SETTINGS,
                           time=MockTime(current_time_ms=NOW_MS)) as manager:
        assert len(manager._state.table.unopened_keys()) == 5
        shutil.copytree(image, tmp_path / "again")
    assert compare(tmp_path / "again", tmp_path / "k") == 5


def test_indexes_of_a_power_cut(idle: Path, tmp_path: Path) -> None:
    """They were never written back: zeros, other bytes, nothing, or too short. None: the loader
    creates it."""
    image = appended(idle, tmp_path / "image")
    for number, name in enumerate(("index", "timeindex") * 3):
        for partition in image.glob("*-*/"):
            path = partition / f"{last_base(partition):020d}.{name}"
            size = path.stat().st_size
            path.write_bytes((b"", bytes(size), b"\xff" * 24, b"seven b")[(number + size) % 4])
        assert compare(image, tmp_path / "k") == 5
    for partition in image.glob("*-*/"):
        (partition / f"{last_base(partition):020d}.index").unlink()
    assert compare(image, tmp_path / "k") == 0


def test_a_log_that_is_flushed_by_time(idle: Path, tmp_path: Path) -> None:
    """Its first flush is due some time after the start, opened or not."""
    config = LogConfig.from_properties({**LOAD_CONFIG, "flush.ms": "1000"})
    assert compare(idle, tmp_path / "k", config) == 4
    assert compare(appended(idle, tmp_path / "image"), tmp_path / "k", config) == 0


def test_a_shutdown_flushes_what_nobody_opened(
        idle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery points are those of before the crash until then."""
    image = appended(idle, tmp_path / "image")
    before = dict(read_offset_checkpoint(image / RECOVERY_POINTS))
    flushed: list[list[str]] = []
    sync = unopened.sync_clean
    monkeypatch.setattr(unopened, "sync_clean", lambda root, names, rows, *, logs: (
        flushed.append(sorted(names)), sync(root, names, rows, logs=logs)))
    with seglog.LogManager([image], log_config=SETTINGS) as manager:
        [logs] = manager._state.table.unopened()
        rows = set(logs)
        ends = {key: logs.number(key, "log_end_offset") for key in rows}
        manager.checkpoint_log_recovery_offsets()
        points = dict(read_offset_checkpoint(image / RECOVERY_POINTS))
        assert {key: points[key] for key in rows} == {key: before[key] for key in rows}
        assert all(points[key] < ends[key] for key in rows) and not flushed
    assert flushed == [sorted(map(str, rows))]
    points = dict(read_offset_checkpoint(image / RECOVERY_POINTS))
    assert {key: points[key] for key in rows} == ends
    assert (image / CLEAN).exists()


def test_a_flush_that_fails_leaves_no_marker(
        idle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = appended(idle, tmp_path / "image")
    before = (image / RECOVERY_POINTS).read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise seglog.KafkaStorageError(5, "Input/output error", str(image))

    with seglog.LogManager([image], log_config=SETTINGS) as manager:
        assert manager._state.table.unopened_keys()
        monkeypatch.setattr(unopened, "sync_clean", refuse)
    assert not (image / CLEAN).exists()
    assert (image / RECOVERY_POINTS).read_bytes() == before


def test_a_snapshot_that_a_recovery_replaces(idle: Path, tmp_path: Path) -> None:
    """Whatever the last snapshot says: the recovery writes what the segment says."""
    ends = {path: sorted(path.glob("*.snapshot"))[-1] for path in idle.glob("*-*")
            if any(path.glob("*.snapshot"))}
    assert any(read_snapshot(end) for end in ends.values())
    for content in (encode_snapshot([]), b"not a snapshot",
                    encode_snapshot([ProducerStateEntry(7, 0, -1, NOW_MS, None, ())])):
        for end in ends.values():
            end.write_bytes(content)
        assert compare(idle, tmp_path / "k") >= 3


def test_a_snapshot_of_a_shutdown_before_the_last_roll(idle: Path, tmp_path: Path) -> None:
    """A recovery deletes it, and reports that. (A row did not, and so a dry run.)"""
    where: dict[int, list[Path]] = {-1: [], 1: []}
    for path in [one for one in idle.iterdir() if one.is_dir()]:
        bases = sorted(int(log.stem) for log in path.glob("*.log"))
        for distance, paths in where.items():  # of one in the last segment nothing is said
            if len(bases) > 1:
                paths.append(path / f"{bases[-1] + distance:020d}.snapshot")
    for paths in where.values():
        for path in paths:
            assert not path.exists()
            path.write_bytes(encode_snapshot([]))
        assert compare(idle, tmp_path / "k") >= 3
        for path in paths:
            path.unlink()
    assert where[-1]


def test_producers_of_earlier_segments(idle: Path, tmp_path: Path) -> None:
    """They are in the snapshot at the last segment's base, and stay unless they have expired."""
    shutil.rmtree(idle / "t-0")
    time = MockTime(current_time_ms=NOW_MS)
    with seglog.LogManager([idle], log_config=SETTINGS, time=time) as manager:
        log = manager.get_or_create_log(TopicPartition("t", 0))
        for producer, age_ms in ((1, 0), (2**40, 1000), (3, 2 * 86_400_000), (17, 5)):
            log.append_as_leader(batch(2, producer_id=producer, sequence=0,
                                       timestamp=NOW_MS - age_ms), 0)
            if producer == 3:
                log.roll()
        log.append_as_leader(batch(2), 0)
    (idle / CLEAN).unlink()
    snapshot = idle / f"t-0/{10:020d}.snapshot"
    assert {one.producer_id for one in read_snapshot(snapshot)} == {1, 3, 17, 2**40}
    for _ in range(2):
        assert compare(idle, tmp_path / "k") == 4
        restarted(idle)
        (idle / CLEAN).unlink()
    assert {one.producer_id for one in read_snapshot(snapshot)} == {1, 17, 2**40}


def test_a_log_of_one_segment_that_begins_late(idle: Path, tmp_path: Path) -> None:
    """Retention has deleted what was before it. It begins without producers."""
    for log in sorted((idle / PLAIN["idempotent-0"]).glob("*.log"))[:-1]:
        for path in log.parent.glob(f"{log.stem}.*"):
            path.unlink()
    restarted(idle)
    (idle / CLEAN).unlink()
    assert compare(idle, tmp_path / "k") == 4


@pytest.mark.parametrize("first", quick_first(range(0, 32, 8), 1))
def test_drawn_damage(golden: Path, tmp_path: Path, first: int) -> None:
    """Directories as Kafka's loader is compared with ours, loaded once more after a crash."""
    sources = Sources(golden, tmp_path / "sources")
    for number in range(first, first + 8):
        case = plan(sources, int(SEED) + 1, number)
        root = tmp_path / f"case-{number}"
        case.build(sources, root)
        config = LogConfig.from_properties(dict(case.config))
        compare(root, tmp_path / "k", config)
        try:
            restarted(root, config)
        except seglog.SeglogError:
            continue
        (root / CLEAN).unlink(missing_ok=True)
        compare(root, tmp_path / "k", config)


@pytest.mark.parametrize("kind", sorted(damages.kinds()))
@pytest.mark.judge
def test_one_damage_to_an_idle_log(golden: Path, tmp_path: Path, kind: str) -> None:
    """Each of the kinds that Kafka's loader is compared by, to a log that would be a row: with
    batches in its last segment, or with producers and none."""
    partition = ("plain-none-0", "txn-0")[zlib.crc32(kind.encode()) % 2]
    root = tmp_path / "template"
    Sources(golden, tmp_path / "sources").copy(Source("clean", partition), root)
    with seglog.LogManager([root], log_config=SETTINGS) as manager:
        if partition == "txn-0":
            [log] = manager.all_logs
            log.roll()
    (root / CLEAN).unlink()
    restarted(root)
    (root / CLEAN).unlink()
    assert compare(root, tmp_path / "k") == 1
    damages.apply(kind, root, partition, f"{SEED}/{partition}")
    compare(root, tmp_path / "k")


def test_a_truncation_after_the_recovery(idle: Path, tmp_path: Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """LogSegment.truncateTo looks for the largest timestamp again if a recovery has found one."""
    left = []
    for by_rows in (True, False):
        monkeypatch.setattr(LogLoading, "_knows_rows", lambda self, by_rows=by_rows: by_rows)
        root = Path(shutil.copytree(idle, tmp_path / f"rows-{by_rows}"))
        with seglog.LogManager([root], log_config=SETTINGS) as manager:
            assert bool(manager._state.table.unopened_keys()) == by_rows
            for log in manager.all_logs:
                log.truncate_to(max(log.log_end_offset - 2, log.log_start_offset))
        left.append(snapshot(root))
    assert left[0] == left[1]


def test_a_file_system_that_does_not_sync(idle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory goes offline before anything is written to it."""
    def refuse(*_: object) -> None:
        raise seglog.KafkaStorageError(5, "Input/output error", str(idle))

    monkeypatch.setattr(clean_loading, "sync_clean", refuse)
    other = idle.with_name("other")
    other.mkdir()
    with seglog.LogManager([idle, other], log_config=SETTINGS) as manager:
        assert manager.offline_log_dirs == [str(idle)]
        assert not manager.all_logs and not manager.load_reports[str(idle)].partitions
    assert not (idle / CLEAN).exists() and (other / CLEAN).exists()
