"""`seglog.spark.verify` and `seglog verify --spark` give the same report as one process."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seglog.cli.report import load_part
from seglog.config import BrokerConfig
from seglog.errors import KafkaStorageError
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.load_report import LoadReport
from seglog.recovery.rows import exit_code
from seglog.scrub import NullListener
from seglog.spark import verify
from seglog.storage.discover import split_partition
from tests.support import damage, damage_files, damage_records
from tests.support.golden import LOAD_CONFIG, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.judge

assert damage_files and damage_records  # they add to damage.KINDS
DRAWN = 24
_HUGE = {"log_huge", "index_huge"}


def in_one_process(paths: Sequence[Path]) -> list[LoadReport]:
    """The reports of `seglog verify` for each path."""
    broker = BrokerConfig.from_properties(LOAD_CONFIG)
    reports = []
    for path in paths:
        directory, only = split_partition(str(path))
        report = load_directory(directory, LoadOptions(
            LoadLevel.VERIFY, broker, broker.log_config(dict(LOAD_CONFIG)), only)).report
        reports.append(report if only is None else replace(report, directory_findings=()))
    return reports


def assert_same(found: Sequence[LoadReport], expected: Sequence[LoadReport]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert list(one.findings) == list(other.findings), one.path
        assert one.partitions == other.partitions, one.path
        assert (one.path, one.clean_shutdown, one.level, one.in_use_by) == (
            other.path, other.clean_shutdown, other.level, other.in_use_by)


def code_of(reports: Sequence[LoadReport]) -> int:
    parts = [load_part(report.path, report) for report in reports]
    return exit_code([part.directory for part in parts],
                     [row for part in parts for row in part.partitions],
                     [row for part in parts for row in part.findings])


def golden_paths(golden: Path) -> list[Path]:
    """Every damaged directory, the undamaged ones, the old formats, and a single partition."""
    damaged = sorted(path for path in (golden / "damaged").iterdir() if path.is_dir())
    return [*damaged, golden / "real" / "clean", golden / "real" / "unclean",
            *sorted((golden / "real" / "clean").glob("compacted-*"))[:1]]


def drawn(golden: Path, root: Path, seed: int, count: int = DRAWN) -> list[Path]:
    """Copies of directories, each with one to three damaged places in one of its partitions."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        source = golden / "real" / rng.choice(["clean", "unclean"])
        names = sorted(path.name for path in source.iterdir()
                       if path.is_dir() and any(path.glob("*.log")))
        name, path = rng.choice(names), root / f"{number:02d}"
        path.mkdir()
        for file in source.iterdir():
            if file.is_file():
                shutil.copy2(file, path)
        shutil.copytree(source / name, path / name)
        for _ in range(rng.randint(1, 3)):
            try:
                damage.damage(path, name, rng.choice(sorted(set(damage.KINDS) - _HUGE)),
                              rng.randrange(1 << 30))
            except (AssertionError, OSError, IndexError, ValueError):
                pass  # earlier damage left nothing to damage here
        made.append(path)
    return made


def damaged(reports: Sequence[LoadReport], golden: Path) -> list[str]:
    """The paths of which something is reported that no undamaged directory has."""
    sound = in_one_process([golden / "real" / "clean", golden / "real" / "unclean"])
    known = {code for one in sound for code in one.counts}
    return [one.path for one in reports if not known.issuperset(one.counts)]


@pytest.mark.parametrize("task_bytes", [256 << 20, 1])
def test_golden_directories(spark: SparkSession, golden: Path, task_bytes: int) -> None:
    """Also if every segment is a separate piece with its neighbours in other tasks."""
    paths = golden_paths(golden) if task_bytes > 1 else golden_paths(golden)[::5]
    before = fingerprint(golden)
    found = verify(spark, paths, config=LOAD_CONFIG, task_bytes=task_bytes)
    assert fingerprint(golden) == before
    expected = in_one_process(paths)
    assert_same(found.reports, expected)
    assert sum(len(list(one.findings)) for one in expected) > 100
    assert found.exit_code == code_of(expected) == 1


@pytest.mark.parametrize("seed", [int(os.environ.get("SEGLOG_SEED", "11"))])
def test_drawn_damage(spark: SparkSession, golden: Path, tmp_path: Path, seed: int) -> None:
    paths = drawn(golden, tmp_path, seed)
    found = verify(spark, paths, config=LOAD_CONFIG, task_bytes=20_000)
    expected = in_one_process(paths)
    assert_same(found.reports, expected)
    assert found.exit_code == code_of(expected)
    rows = [tuple(row) for row in found.to_df(spark).collect()]
    assert len(rows) == sum(len(list(one.findings)) for one in expected)
    assert len(damaged(expected, golden)) > DRAWN // 2


def test_a_sound_directory(spark: SparkSession, golden: Path) -> None:
    found = verify(spark, golden / "real" / "clean", config=LOAD_CONFIG)
    assert found.exit_code == 0
    [report] = found.reports
    assert report.partitions[0].batches is not None and report.severity is not None


def test_more_problems_than_a_report_lists(spark: SparkSession, tmp_path: Path) -> None:
    """A report lists at most a thousand findings of a kind, wherever they were found."""
    folder = tmp_path / "data"
    for name in ("t-0", "t-1"):
        (folder / name).mkdir(parents=True)
        (folder / name / f"{0:020d}.log").touch()
        for number in range(1100):
            (folder / name / f"{number:020d}.log.deleted").touch()
    found = verify(spark, folder, config=LOAD_CONFIG)
    assert_same(found.reports, in_one_process([folder]))
    assert found.reports[0].counts["findings-omitted"] == 2


class Counting(NullListener):
    """Adds up the progress."""

    def __init__(self) -> None:
        self.listed = self.verified = self.size = self.loaded = 0

    def segments_listed(self, directory: str, count: int) -> None:
        self.listed += count

    def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
        self.verified += count
        self.size += size

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        self.loaded += count


def test_progress_adds_up(spark: SparkSession, golden: Path) -> None:
    hears = Counting()
    [report] = verify(spark, golden / "real" / "clean", config=LOAD_CONFIG,
                      listener=hears).reports
    assert hears.listed == hears.verified == report.segments > 10
    assert hears.size == report.size
    assert hears.loaded == report.segments  # and none to recover


def test_bad_paths(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("nothing of Kafka's")
    for path in (tmp_path / "missing", tmp_path / "notes"):
        with pytest.raises(KafkaStorageError, match=path.name):
            verify(spark, path)


def test_no_directory_at_all(spark: SparkSession, tmp_path: Path) -> None:
    """A data directory without partitions is valid, and no job runs."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    found = verify(spark, tmp_path)
    assert_same(found.reports, in_one_process([tmp_path]))
    assert found.exit_code == 0


# ---- the command -------------------------------------------------------------------------------

def seglog(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "seglog", *map(str, arguments)], text=True,
                          capture_output=True, timeout=1800, check=False)


def rows_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(result.stdout)
    for row in told["directories"]:  # these fields depend on how it was run
        row["threads"] = row["thread_segments"] = row["seconds"] = None
    return {name: told[name] for name in ("directories", "partitions", "findings", "totals",
                                          "exit_code")}


def test_the_command(golden: Path, tmp_path: Path) -> None:
    paths = [*golden_paths(golden)[:12], *drawn(golden, tmp_path, 5, 4)]
    alone = seglog("verify", *paths, "--json", "--config", "index.interval.bytes=512")
    spread = seglog("verify", "--spark", "local[2]", *paths, "--json", "--config",
                    "index.interval.bytes=512")
    assert spread.stdout, spread.stderr
    assert rows_of(spread) == rows_of(alone)
    assert spread.returncode == alone.returncode == 1


def test_refusals_of_the_command(tmp_path: Path) -> None:
    threads = seglog("verify", "--spark", "local[2]", "--threads", "2", tmp_path)
    assert threads.returncode == 2 and "--threads is for a run on this machine" in threads.stderr
    assert "Traceback" not in threads.stderr
