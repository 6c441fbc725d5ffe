"""Logs in a bucket: reads there equal reads from the disk. A real server is a judge."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog import PartitionLog
from seglog.arrow import decode_range
from seglog.errors import KafkaStorageError, SeglogError
from seglog.storage.discover import find_partitions
from seglog.storage.stream import DecodeOptions, OnDamage
from tests.support.effort import quick_first
from tests.support.reading import rows_of


def partitions(root: Path) -> Iterator[str]:
    """Every directory below `root` that holds a log, relative."""
    for folder, _, names in os.walk(root):
        if any(name.endswith(".log") for name in names):
            yield os.path.relpath(folder, root)


def outcome(read: Callable[[], Any], root: str) -> Any:
    """The result or the error of a read, without its location."""
    try:
        return read()
    except SeglogError as error:
        return (type(error), getattr(error, "code", None), getattr(error, "position", None),
                str(error).replace(root, ""))


def everything(log: PartitionLog, root: str, **options: Any) -> Any:
    rows: list[Any] = []
    stream = log.to_arrow(on_gap=lambda gap: None, **options)

    def run() -> str:
        for columns in stream:
            rows.extend(rows_of(columns))
        return "end"

    end = outcome(run, root)
    gaps = [(gap.kind, gap.position, gap.size, gap.first_offset, gap.last_offset, gap.records)
            for gap in stream.gaps]
    return rows, end, gaps


def seen(path: str, root: str, seed: int, storage: dict[str, str] | None) -> list[Any]:
    """The results of all reads of one log, with filters drawn by seed."""
    chance = random.Random(seed)

    def facts() -> Any:
        with PartitionLog.open(path, storage_options=storage) as log:
            return (log.log_start_offset, log.log_end_offset, log.last_stable_offset,
                    log.topic_id, log.open_transactions, log.segments.sizes().tolist())

    found = [outcome(facts, root)]
    try:
        log = PartitionLog.open(path, storage_options=storage)
    except SeglogError:
        return found
    with log:
        found.append(outcome(lambda: list(log.leader_epochs), root))
        found.append(outcome(lambda: [batch[:14] for batch in log.batches()], root))
        for isolation in ("read_uncommitted", "read_committed"):
            for on_damage in ("raise", "skip"):
                found.append(outcome(lambda i=isolation, d=on_damage: everything(
                    log, root, isolation=i, on_damage=d), root))
        first, last = log.log_start_offset, log.log_end_offset
        bounds = sorted(chance.randint(first, max(first, last)) for _ in range(2))
        found.append(outcome(lambda: everything(
            log, root, start_offset=bounds[0], end_offset=bounds[1], threads=2,
            on_damage=chance.choice(["raise", "skip"])), root))
        stamps = [row["timestamp"] for row in found[3][0]] if isinstance(found[3][0], list) else []
        for stamp in (0, *chance.sample(stamps, min(3, len(stamps))), -1, -2, -3):
            found.append(outcome(lambda s=stamp: log.offset_for_timestamp(s), root))
        found.append(outcome(lambda: log.fetch(bounds[0], 3000), root))
    return found


@pytest.mark.parametrize("kind", quick_first(["old", "real", "damaged"], 1))
def test_every_golden_log_reads_as_from_the_disk(
        bucket: Path, any_s3: dict[str, str], kind: str) -> None:
    root = bucket / "golden"
    names = sorted(partitions(root / kind))
    assert len(names) > 5
    for seed, name in enumerate(names):
        local = seen(str(root / kind / name), f"{root}/", seed, None)
        remote = seen(f"s3://golden/{kind}/{name}", "s3://golden/", seed, any_s3)
        assert remote == local, name


@pytest.mark.parametrize("on_damage", quick_first(["raise", "skip"], 1))
def test_ranges_travel_to_another_process(
        bucket: Path, any_s3: dict[str, str], on_damage: OnDamage) -> None:
    """The pickled ranges of a Spark task include their file's location."""
    options = DecodeOptions(on_damage=on_damage)
    count = 0
    for name in sorted(partitions(bucket / "golden" / "real")):
        log = PartitionLog.open(f"s3://golden/real/{name}", storage_options=any_s3)
        parts, where = pickle.loads(pickle.dumps((log.ranges(3000, on_damage=on_damage),
                                                  log.where)))
        rows = [row for part in parts
                for columns in decode_range(part, options, on_gap=lambda gap: None, where=where)
                for row in rows_of(columns)]
        local = PartitionLog.open(bucket / "golden" / "real" / name)
        assert rows == [row for columns in local.to_arrow() for row in rows_of(columns)]
        again = pickle.loads(pickle.dumps(log))
        assert again.log_end_offset == local.log_end_offset
        count += len(parts)
    assert count > 100


def test_a_data_directory_is_found_below_a_url(bucket: Path, any_s3: dict[str, str]) -> None:
    folders = {folder.name: folder for folder in (bucket / "golden" / "real").iterdir()
               if folder.name != "truth" and folder.is_dir()}
    assert folders.keys() >= {"clean", "unclean"}
    for folder in folders.values():
        local = find_partitions(folder)
        assert local
        remote = find_partitions(f"s3://golden/real/{folder.name}/", any_s3)
        assert remote.keys() == local.keys()
        assert {path.rpartition("/")[2] for path in remote.values()} == {
            path.rpartition("/")[2] for path in local.values()}


@pytest.mark.parametrize("url, said", [
    ("s3://golden/nowhere", "no object below"),
    ("s3://golden/real", "no partition directory"),
    ("s3://nobucket/x-0", "NoSuchBucket"),
])
def test_other_places_are_named(any_s3: dict[str, str], url: str, said: str) -> None:
    with pytest.raises(KafkaStorageError, match=said) as caught:
        PartitionLog.open(url, storage_options=any_s3)
    assert url in str(caught.value)


@pytest.mark.judge
def test_a_wrong_secret_is_told_and_not_shown(s3: dict[str, str]) -> None:
    wrong = {**s3, "aws_secret_access_key": "not-the-secret-at-all"}
    with pytest.raises(KafkaStorageError, match="403") as caught:
        PartitionLog.open("s3://golden/real/x-0", storage_options=wrong)
    for secret in (wrong["aws_secret_access_key"], s3["aws_access_key_id"]):
        assert secret not in str(caught.value)


def test_a_file_url_is_the_local_path(bucket: Path) -> None:
    name = next(partitions(bucket / "golden" / "real"))
    path = bucket / "golden" / "real" / name
    assert PartitionLog.open(f"file://{path}").path == str(path)
