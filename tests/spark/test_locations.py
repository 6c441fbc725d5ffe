"""Paths in the forms that Spark's users write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog.errors import IllegalArgumentError, KafkaStorageError
from seglog.spark.locations import directories
from seglog.spark.plan import plan_partitions
from seglog.spark.read_options import parse_options


def make(root: Path, *partitions: str) -> str:
    for name in partitions:
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / f"{0:020d}.log").touch()
    return str(root)


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    for name in ("disk1", "disk2", "disk10", ".hidden"):
        make(tmp_path / name / "kafka", "orders-0", "orders-1", "pay-0",
             "pay-1.0123456789abcdef0123456789abcdef-delete",
             "pay-2.0123456789abcdef0123456789abcdef-future")
    (tmp_path / "disk3" / "lost+found").mkdir(parents=True)
    return tmp_path


def names(disks: Path, *paths: str) -> list[str]:
    return [os.path.relpath(path, disks)
            for path in directories([path.replace("ROOT", str(disks)) for path in paths])]


@pytest.mark.parametrize(("paths", "found"), [
    (("ROOT/disk1/kafka",), ["disk1/kafka"]),
    (("ROOT/disk1/kafka, ROOT/disk2/kafka/",), ["disk1/kafka", "disk2/kafka"]),
    (("ROOT/disk1/kafka", "ROOT/disk1/../disk1/kafka", "ROOT/disk2/kafka"),
     ["disk1/kafka", "disk2/kafka"]),
    (("file:ROOT/disk1/kafka",), ["disk1/kafka"]),
    (("file://ROOT/disk1/kafka,file://localhostROOT/disk2/kafka",),
     ["disk1/kafka", "disk2/kafka"]),
    (("ROOT/disk*/kafka",), ["disk1/kafka", "disk10/kafka", "disk2/kafka"]),
    (("ROOT/*/kafka",), ["disk1/kafka", "disk10/kafka", "disk2/kafka"]),
    (("ROOT/.h*/kafka",), [".hidden/kafka"]),
    (("file:ROOT/disk?/kafka",), ["disk1/kafka", "disk2/kafka"]),
    (("ROOT/disk[^1]/kafka,ROOT/disk[1-1]/kafka",), ["disk2/kafka", "disk1/kafka"]),
    (("ROOT/disk{1,10}/kafka",), ["disk1/kafka", "disk10/kafka"]),
    (("ROOT/disk{1,{2,7}}/kafka/orders-0",), ["disk1/kafka/orders-0", "disk2/kafka/orders-0"]),
    (("ROOT/disk1/kafka/pay-*",), ["disk1/kafka/pay-0"]),
    (("ROOT/disk[12]/*/orders-[01]",),
     [f"disk{n}/kafka/orders-{p}" for n in (1, 2) for p in (0, 1)]),
])
def test_what_paths_mean(disks: Path, paths: tuple[str, ...], found: list[str]) -> None:
    assert names(disks, *paths) == found


def test_a_directory_with_such_a_name_is_itself(tmp_path: Path) -> None:
    for name in ("a,b", "a[1]", "{x}", "file:y", "what?"):
        path = make(tmp_path / name, "t-0")
        assert directories([path]) == [path]


def test_links_to_one_directory_are_read_once(disks: Path) -> None:
    (disks / "again").symlink_to(disks / "disk1")
    assert names(disks, "ROOT/again/kafka,ROOT/disk1/kafka") == ["again/kafka"]


@pytest.mark.parametrize(("path", "words"), [
    ("ROOT/dsk*/kafka", "nothing matches 'dsk*' in ROOT; did you mean 'disk1"),
    ("ROOT/disk1/kafak*", "did you mean 'kafka'"),
    ("ROOT/disk*/data", "nothing matches 'data'"),
    ("ROOT/xyz?/kafka", "which has disk1, disk10, disk2, disk3"),
    ("ROOT/disk*", "did you mean ROOT/disk1/kafka?"),
    ("ROOT/disk3/*", "this pattern matches no data directory: ROOT/disk3/lost+found"),
])
def test_a_glob_without_a_match_says_what_is_there(disks: Path, path: str, words: str) -> None:
    words = words.replace("ROOT", str(disks))
    with pytest.raises(KafkaStorageError) as caught:
        names(disks, path)
    if words.endswith("'disk1"):
        assert "did you mean 'disk" in str(caught.value)
    else:
        assert words in str(caught.value)


def test_a_query_of_a_glob_without_a_match_is_not_planned_again(disks: Path) -> None:
    """It said that files disappear while it is planned."""
    with pytest.raises(KafkaStorageError, match="nothing matches 'dsk[*]'"):
        plan_partitions(parse_options({"path": f"{disks}/dsk*/kafka"}))


@pytest.mark.parametrize(("path", "words"), [
    ("hdfs:/kafka", "hdfs: is not a supported"),
    ("s3a://bucket/*", "patterns match only directories"),
    ("file://host/kafka", "names the host 'host'"),
    ("ROOT/" + "{a,b}" * 20, "expands to more than"),
])
def test_other_urls_are_refused(disks: Path, path: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        names(disks, path)


def test_paths_that_no_directory_can_have() -> None:
    with pytest.raises(IllegalArgumentError, match="^path is no name of a file: '/d"):
        directories(["/d\0"])
    with pytest.raises(KafkaStorageError, match="the path is empty"):  # not the current directory
        directories(["/d", ""])
