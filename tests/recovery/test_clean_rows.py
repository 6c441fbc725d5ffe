"""`open_data_dir`, `seglog ls` and a dry run with partitions as rows, beside the same without rows:
the same reports, events and lines."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from seglog._native.clean_load import CLEAN_DTYPE
from seglog.cli import ls
from seglog.cli.main import main
from seglog.cli.recover import RecoverySettings, dry_run
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import SeglogError
from seglog.recovery import clean_rows, directory_load
from seglog.recovery.callbacks import NullListener
from seglog.recovery.clean_rows import CleanRows, is_clean_candidate
from seglog.storage.paths import parse_directory_name
from tests.differential import registry as damages
from tests.differential.cases import plan
from tests.differential.sources import Source, Sources
from tests.support.golden import LOAD_CONFIG
from tests.support.effort import quick_each

SETTINGS = LogConfig.from_properties(LOAD_CONFIG)
SEED = int(os.environ.get("SEGLOG_CLEAN_SEED", "7"))


class Events(NullListener):
    """The events of each partition directory."""

    def __init__(self) -> None:
        self.heard: dict[str, list[Any]] = {}

    def note(self, directory: str | None, *what: Any) -> None:
        self.heard.setdefault(directory or "", []).append(what)

    def partition_started(self, directory: str) -> None:
        self.note(directory, "started")

    def segments_listed(self, directory: str, count: int) -> None:
        self.note(directory, "listed", count)

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        self.note(directory, "loaded", count)

    def finding(self, found: Any) -> None:
        self.note(found.directory, "finding", found)

    def partition_loaded(self, report: Any) -> None:
        self.note(report.directory, "report", report)


def loaded(root: Path, config: LogConfig, threads: int) -> dict[str, Any]:
    events = Events()
    with seglog.open_data_dir(root, log_config=config, num_segment_loading_threads=threads,
                              listener=events) as data:
        told = json.loads(data.report.to_json())
        del told["seconds"], told["thread_segments"]
        tables = {one.name: {
            name: getattr(table, name).tolist() for name in ("base_offsets", "flags", "log_size")}
            for one in data.directories if data._result.is_loaded(one.name)
            for table in [data.segments(one.name)]}
    return {"report": told, "events": events.heard, "tables": tables}


def listed(root: Path, capsysbinary: pytest.CaptureFixture[bytes], *options: str) -> Any:
    return main(["ls", str(root), "--all", *options]), capsysbinary.readouterr()


def dried(root: Path, config: LogConfig) -> Any:
    """What a dry run says, and the events of each partition directory."""
    events = Events()
    settings = RecoverySettings(
        BrokerConfig.from_properties({"sanity.check.all.logs.enabled": True}), config)
    assert settings.knows_rows
    try:
        part = dry_run(str(root), settings, events).part(settings)
    except SeglogError as error:
        return repr(error)
    del part.directory["seconds"]
    return part, events.heard


def no_rows(patch: pytest.MonkeyPatch) -> None:
    """after this call no partition is a row."""
    patch.setattr(CleanRows, "is_plain", property(
        lambda self: self.files["plain"] & False))
    patch.setattr(ls, "_clean_rows", lambda *_: iter(()))


def compare(root: Path, capsys: pytest.CaptureFixture[bytes], config: LogConfig = SETTINGS) -> int:
    """How many partitions were rows."""
    options = ([], ["--json"], ["--segments"], ["--json", "--segments"])
    with seglog.open_data_dir(root, log_config=config) as data:
        rows = len(data._result.rows)
    by_rows = [loaded(root, config, threads) for threads in (1, 2)]
    lists = [listed(root, capsys, *some) for some in options]
    dry = dried(root, config)
    with pytest.MonkeyPatch.context() as patch:
        no_rows(patch)
        for threads, found in zip((1, 2), by_rows, strict=True):
            assert found == loaded(root, config, threads)
        assert lists == [listed(root, capsys, *some) for some in options]
        assert dry == dried(root, config)
    return rows


@pytest.mark.parametrize("which", ["real/clean", "real/unclean"])
def test_what_kafka_closed(golden: Path, capsysbinary: pytest.CaptureFixture[bytes],
                           which: str) -> None:
    rows = compare(golden / which, capsysbinary)
    assert (rows >= 5) is (which == "real/clean")


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_drawn_damage(golden: Path, tmp_path: Path, first: int,
                      capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    sources = Sources(golden, tmp_path / "sources")
    for number in range(first, first + 8):
        case = plan(sources, SEED, number)
        root = tmp_path / f"case-{number}"
        case.build(sources, root)
        (root / "recovery-point-offset-checkpoint").touch()  # so that it is a data directory
        if number % 3:
            (root / ".kafka_cleanshutdown").touch()
        compare(root, capsysbinary, LogConfig.from_properties(dict(case.config)))
        shutil.rmtree(root)


@pytest.mark.parametrize("kind", quick_each(sorted(damages.kinds()), 4))
def test_one_damage_to_logs_that_were_closed_cleanly(
        golden: Path, tmp_path: Path, kind: str,
        capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    partition = ("plain-none-0", "txn-0")[zlib.crc32(kind.encode()) % 2]
    root = tmp_path / "k"
    Sources(golden, tmp_path / "sources").copy(Source("clean", partition), root)
    with seglog.LogManager([root], log_config=SETTINGS):
        pass
    damages.apply(kind, root, partition, f"{SEED}/{partition}")
    compare(root, capsysbinary)


@pytest.mark.parametrize(("name", "is_one"), [
    ("t-0", True), ("t-00", False), ("__cluster_metadata-0", False),
    *((f"t-0.{'a' * 32}-{kind}", False) for kind in ("delete", "future", "stray"))])
def test_which_directories_may_be_rows(name: str, is_one: bool) -> None:
    found = parse_directory_name(name)
    assert is_clean_candidate(name, found.topic_partition, found.kind) is is_one


def read(root: Path, name: str, *configs: LogConfig) -> CleanRows:
    return CleanRows.read(str(root), [parse_directory_name(name).topic_partition], configs,
                          start_offsets={}, recovery_points={}, high_watermarks={})


def test_tables_are_joined_with_their_producers(golden: Path) -> None:
    parts = [read(golden / "real/clean", name) for name in (
        "idempotent-0", "plain-none-0", "txn-0")]
    before = [part.files.tobytes() for part in parts]
    joined = CleanRows.joined(parts)
    assert [part.files.tobytes() for part in parts] == before
    assert [len(part.timestamps) for part in parts] == [6, 0, 3]
    for row, part in enumerate(parts):
        at, count = (int(joined.files[field][row]) for field in ("producers_at", "producers"))
        assert joined.timestamps[at:at + count].tolist() == part.timestamps.tolist()


def test_a_time_index_longer_than_the_settings_allow_is_no_row(golden: Path) -> None:
    for most, fits in ((240, True), (239, False)):
        found = read(golden / "real/clean", "txn-0", LogConfig(segment_index_bytes=most))
        assert found.files["time_index_size"].tolist() == [240]
        assert found.is_plain.tolist() == [fits]


@pytest.mark.parametrize(("size", "fits"), [(16, True), (17, False)])
def test_an_offset_index_longer_than_whole_entries_of_the_settings_is_no_row(
        golden: Path, monkeypatch: pytest.MonkeyPatch, size: int, fits: bool) -> None:
    files = np.zeros(1, CLEAN_DTYPE)
    files["plain"], files["index_size"] = True, size
    monkeypatch.setattr(clean_rows, "load_clean", lambda *_, **__: (files, files["size"], b""))
    assert read(golden, "t-0", LogConfig(segment_index_bytes=17)).is_plain.tolist() == [fits]


def test_a_log_without_a_recovery_point_is_recovered_from_0(golden: Path) -> None:
    """LogManager.loadLog. Its first segment is its last one."""
    name = parse_directory_name("dots.and_under-scores-0").topic_partition
    found = CleanRows.read(str(golden / "real/clean"), [name], [SETTINGS], start_offsets={},
                           recovery_points={}, high_watermarks={}, after_crash=True)
    assert found.recovery_points.tolist() == [0]
    assert found.is_plain.tolist() == [True]


def test_reports_of_rows_are_equal_to_any_sequence_of_them(golden: Path) -> None:
    with seglog.open_data_dir(golden / "real/clean") as data:
        found = data.report.partitions
        assert len(data._result.rows) > 1
    for same in (found[:], list(found), tuple(found)):
        assert found == same
    assert found != found[1:] and found != 5 and hash(found) == hash(found[:])


def test_partitions_that_are_read_in_parts_are_all_rows(
        golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_load, "PART_PARTITIONS", 2)
    with seglog.open_data_dir(golden / "real/clean") as data:
        assert len(data._result.rows) > 4


def test_the_metadata_log_is_no_row(golden: Path, tmp_path: Path) -> None:
    """The Raft layer opens it without any checkpoints."""
    root = Path(shutil.copytree(golden / "real/clean", tmp_path / "k"))
    with seglog.open_data_dir(root) as data:
        row = sorted(data._result.rows)[0]
    shutil.rmtree(root / "__cluster_metadata-0")
    (root / row).rename(root / "__cluster_metadata-0")
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\n__cluster_metadata 0 1\n")
    with seglog.open_data_dir(root) as data:
        found, = (one for one in data.report.partitions
                  if one.directory == "__cluster_metadata-0")
        assert found.directory not in data._result.rows
    assert found.recovery_point == 0


def test_a_topic_without_an_id_is_no_row(golden: Path, tmp_path: Path,
                                         capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Its report has a finding more."""
    root = Path(shutil.copytree(golden / "real/clean", tmp_path / "k"))
    before = compare(root, capsysbinary)
    with seglog.open_data_dir(root) as data:
        one = sorted(data._result.rows)[0]
    (root / one / "partition.metadata").unlink()
    assert compare(root, capsysbinary) == before - 1
    with seglog.open_data_dir(root) as data:
        assert data.report.counts["topic-id-missing"] == 1


def test_a_partition_that_vanishes_after_the_load(golden: Path, tmp_path: Path) -> None:
    """Its table is read at the first request."""
    root = Path(shutil.copytree(golden / "real/clean", tmp_path / "k"))
    with seglog.open_data_dir(root) as data:
        gone, other = sorted(data._result.rows)[:2]
        assert len(data.segments(other))
        shutil.rmtree(root / gone)
        assert data.segments(other) is data.segments(other)
        with pytest.raises(seglog.errors.UnknownTopicOrPartitionError, match=gone):
            data.segments(gone)
        with pytest.raises(seglog.KafkaStorageError):
            data.logs[parse_directory_name(gone).topic_partition]
