"""A start and a shutdown by Kafka's LogManager and by ours: the same files with the same bytes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog.config import LoadConfig, LogConfig
from tests.kafka import harness
from tests.manager.support import snapshot
from tests.support.effort import quick_first

CONFIG = {"internal.segment.bytes": "16384", "index.interval.bytes": "512",
          "segment.index.bytes": "16384"}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


def by_kafka(*roots: Path, strays: tuple[str, ...] = ()) -> list[str]:
    """What Kafka's LogManager held, or how its start ended."""
    asked = {"roots": [str(root) for root in roots], "config": CONFIG, "tiered": False,
             "strays": strays}
    answer = json.loads(harness.run("Manager", given=f"{json.dumps(asked)}\n"))
    if "error" in answer:
        return [f"{answer['error']}: {answer['message']}"]
    return sorted(log["partition"] for log in answer["logs"].values())


def by_us(*roots: Path, strays: tuple[str, ...] = ()) -> list[str]:
    """The same of ours."""
    manager = seglog.LogManager(
        roots, log_config=LogConfig.from_properties(CONFIG),
        config=LoadConfig(producer_id_expiration_ms=2**31 - 1,
                          num_segment_loading_threads_per_data_dir=3),
        **({"is_stray": lambda log: str(log.topic_partition) in strays} if strays else {}))
    try:
        manager.startup()
        return sorted(str(log.topic_partition) for log in manager.all_logs)
    except seglog.SeglogError as error:
        return [f"{error.kafka_name}: {error}"]
    finally:
        manager.shutdown(broker_epoch=5)


def files(root: Path) -> dict[str, bytes]:
    """All files; the lines of a checkpoint have no order. High watermarks are not Kafka's
    LogManager's to write, but its ReplicaManager's."""
    found = snapshot(root)
    found.pop("replication-offset-checkpoint", None)
    for name in CHECKPOINTS:
        found[name] = b"".join(sorted(found[name].splitlines(keepends=True)))
    return found


def differences(kafka: Path, ours: Path) -> list[str]:
    theirs, mine = files(kafka), files(ours)
    return sorted(name for name in theirs.keys() | mine.keys()
                  if theirs.get(name) != mine.get(name))


def remove_points(root: Path) -> None:
    (root / CHECKPOINTS[0]).write_text("0\n0\n")


def remove_marker(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)


def tear_tails(root: Path) -> None:
    remove_marker(root)
    for number, path in enumerate(sorted(root.glob("*-0"))):
        logs = sorted(path.glob("*.log"))
        if logs and number % 2:
            os.truncate(logs[-1], max(logs[-1].stat().st_size - 7 * number, 0))


def remove_indexes(root: Path) -> None:
    for number, path in enumerate(sorted(root.glob("*/*.index"))):
        if number % 3 == 0:
            path.unlink()


def odd_directories(root: Path) -> None:
    unique = "0123456789abcdef0123456789abcdef"
    (root / "plain-gzip-0").rename(root / f"plain-gzip-0.{unique}-future")
    (root / "plain-lz4-0").rename(root / f"plain-lz4-0.{unique}-stray")
    (root / "plain-none-0").rename(root / f"plain-none-0.{unique}-delete")
    (root / "remote-log-index-cache").mkdir()


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("name", quick_first(["unclean", "clean"], 1))
@pytest.mark.parametrize("change", quick_first([
    tear_tails, None, remove_points, remove_marker, remove_indexes, odd_directories], 1))
def test_files_are_kafkas(golden: Path, tmp_path: Path, name: str,
                          change: Callable[[Path], None] | None) -> None:
    roots = [tmp_path / who / "k" for who in ("kafka", "ours")]
    for root in roots:
        shutil.copytree(golden / "real" / name, root)
        if change is not None:
            change(root)
    held = by_us(roots[1])
    assert held == by_kafka(roots[0]) and len(held) > 15
    assert (roots[0] / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":5}'
    assert differences(*roots) == []


@pytest.mark.usefixtures("kafka_lib")
def test_one_partition_in_two_directories(golden: Path, tmp_path: Path) -> None:
    said = []
    for who, start in (("kafka", by_kafka), ("ours", by_us)):
        roots = [tmp_path / who / name for name in ("k1", "k2")]
        for root in roots:
            shutil.copytree(golden / "real/clean/txn-0", root / "txn-0")
            shutil.copy(golden / "real/clean/.kafka_cleanshutdown", root)
        text, = start(*roots)
        # Which of the two is found second is a race.
        text = text.replace(str(tmp_path / who), "").replace("/k1/", "/k?/")
        said.append(text.replace("/k2/", "/k?/"))
    assert said[0] == said[1] and said[0].startswith("IllegalStateException: Duplicate log ")


@pytest.mark.usefixtures("kafka_lib")
def test_a_foreign_directory(golden: Path, tmp_path: Path) -> None:
    said = []
    for who, start in (("kafka", by_kafka), ("ours", by_us)):
        root = tmp_path / who / "k"
        shutil.copytree(golden / "real/clean/txn-0", root / "txn-0")
        (root / "lost+found").mkdir()
        said.append("\n".join(start(root)).replace(str(tmp_path / who), ""))
    assert said[0] == said[1] and "lost+found" in said[0]


def two_directories(golden: Path, home: Path) -> list[Path]:
    """Two that were closed cleanly, with a partition each: txn-0 and plain-none-0."""
    roots = [home / "k1", home / "k2"]
    for root, partition in zip(roots, ("txn-0", "plain-none-0"), strict=True):
        shutil.copytree(golden / "real/clean" / partition, root / partition)
        shutil.copy(golden / "real/clean/.kafka_cleanshutdown", root)
    return roots


@pytest.mark.usefixtures("kafka_lib")
def test_a_directory_that_is_offline_takes_no_other_along(golden: Path, tmp_path: Path) -> None:
    """Kafka's start ends at the log that is loaded after the failure, because the error of
    LocalLog.maybeHandleIOException has no cause."""
    theirs, ours = (two_directories(golden, tmp_path / who) for who in ("kafka", "ours"))
    for root in (theirs[0], ours[0]):
        (root / CHECKPOINTS[0]).write_text("0\nx\n")
    assert by_kafka(*theirs, strays=("txn-0",)) == [
        f"KafkaStorageException: The log dir {theirs[0]} is already offline due to a previous IO "
        "exception."]
    assert by_us(*ours, strays=("txn-0",)) == ["plain-none-0"]


@pytest.mark.usefixtures("kafka_lib")
def test_a_directory_in_the_place_of_the_lock(golden: Path, tmp_path: Path) -> None:
    """Nobody knows who else uses the directory: Kafka loads its logs anyway, and fails at the name.
    Here the data directory is offline, and left as it is."""
    theirs, ours = (two_directories(golden, tmp_path / who) for who in ("kafka", "ours"))
    for root in (theirs[0], ours[0]):
        (root / ".lock").mkdir()
    assert by_kafka(*theirs)[0].startswith(f"KafkaException: Found directory {theirs[0]}/.lock, ")
    before = snapshot(ours[0])
    assert by_us(*ours) == ["plain-none-0"]
    assert snapshot(ours[0]) == before


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_directory_in_the_place_of_an_older_index(golden: Path, tmp_path: Path,
                                                    suffix: str) -> None:
    """Kafka opens it when the segment is read. Here the data directory is offline at once."""
    theirs, ours = (two_directories(golden, tmp_path / who) for who in ("kafka", "ours"))
    for root in (theirs[0], ours[0]):
        index = min((root / "txn-0").glob(f"*{suffix}"))
        index.unlink()
        index.mkdir()
    assert by_kafka(*theirs) == ["plain-none-0", "txn-0"]
    assert by_us(*ours) == ["plain-none-0"]


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("name", quick_first([
    CHECKPOINTS[0], "meta.properties", "txn-0/partition.metadata",
    "txn-0/leader-epoch-checkpoint"], 1))
def test_a_link_in_the_place_of_a_text(golden: Path, tmp_path: Path, name: str) -> None:
    """Kafka follows it."""
    theirs, ours = (two_directories(golden, tmp_path / who) for who in ("kafka", "ours"))
    for root in (theirs[0], ours[0]):
        (root / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
        (root / CHECKPOINTS[0]).write_text("0\n0\n")
        (root / name).rename(root.with_name("elsewhere"))
        (root / name).symlink_to(root.with_name("elsewhere"))
    assert by_kafka(*theirs) == ["plain-none-0", "txn-0"]
    assert by_us(*ours) == ["plain-none-0"]
