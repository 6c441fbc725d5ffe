"""What was probably meant instead of a place that is no data directory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seglog.errors import KafkaStorageError
from seglog.storage.discover import (
    find_directories, find_partitions, is_gone, split_partition,
)
from seglog.storage.log_store import LocalFiles
from seglog.storage.place import (
    PlaceKind, identify, require_data_directory, require_room_for_logs,
)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition directory in a data directory."""
    path = tmp_path / "data" / "t-0"
    path.mkdir(parents=True)
    (path / f"{0:020d}.log").touch()
    return path


@pytest.mark.parametrize(("inside", "is_found"), [
    ("", True), (f"{0:020d}.log", True), ("sub", True), ("sub/sub", False)])
def test_the_data_directory_may_be_two_levels_above(
        partition: Path, inside: str, is_found: bool) -> None:
    """So that the path of a segment is enough to find it."""
    (partition / "sub" / "sub").mkdir(parents=True)
    with pytest.raises(KafkaStorageError) as caught:
        require_data_directory(partition / inside)
    assert (f"did you mean {partition.parent}?" in str(caught.value)) is is_found


def test_logs_may_be_created_two_levels_below_a_stray_segment(tmp_path: Path) -> None:
    """Such as one that somebody left in /tmp."""
    (tmp_path / f"{0:020d}.log").touch()
    (tmp_path / "home").mkdir()
    assert require_room_for_logs(tmp_path / "home" / "new") == str(tmp_path / "home" / "new")
    for name in ("home", "new"):
        with pytest.raises(KafkaStorageError, match="inside of the partition directory"):
            require_room_for_logs(tmp_path / name)


def test_a_path_is_of_a_data_directory_or_of_one_partition(
        partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = partition.parent
    for name in (f"odd/{0:020d}.log", "data-0/meta.properties", f"data-1/{0:020d}.log/file"):
        (data / name).parent.mkdir(parents=True)
        (data / name).touch()
    monkeypatch.chdir(data)
    for path, expected in ((partition, "t-0"), (Path("t-0"), "t-0"), (Path(".."), None), *(
            (data / name, None) for name in ("", "odd", "data-0", "data-1", "none-0"))):
        directory = path.resolve()
        assert split_partition(str(path)) == (str(directory.parent if expected else directory),
                                              expected)


def test_a_url_without_partitions_says_what_is_there() -> None:
    where: Any = SimpleNamespace(entries=lambda path: [("c", False), ("a", True), ("b-1", False)])
    with pytest.raises(KafkaStorageError, match="no partition with a segment, but 'a', 'b-1': "):
        find_directories("s3://bucket/data", where)


def test_only_a_local_directory_is_gone(partition: Path) -> None:
    """Whether an object is there would be a request."""
    assert [is_gone(path) for path in (str(partition), f"{partition}x", "s3://bucket/t-0")] == [
        False, True, False]


def test_a_path_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert identify(tmp_path / "file").kind is PlaceKind.FILE
    assert identify(tmp_path / "file" / "k").kind is PlaceKind.MISSING
    assert identify(tmp_path / "k").kind is PlaceKind.MISSING


@pytest.mark.parametrize("named", [None, "other"])
def test_an_error_is_of_the_file_that_the_system_names_else_of_the_path(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    def fail(*where: object) -> None:
        raise OSError(5, "Input/output error", named)

    monkeypatch.setattr(LocalFiles, "entries", fail)
    with pytest.raises(KafkaStorageError) as caught:
        identify(tmp_path)
    assert (caught.value.errno, caught.value.file) == (5, named or str(tmp_path))


@pytest.mark.parametrize(("count", "named"), [
    (1, "'0'"), (2, "'0', '1'"), (3, "'0', '1' and more")])
def test_other_things_are_named_up_to_two(tmp_path: Path, count: int, named: str) -> None:
    for number in range(count):
        (tmp_path / str(number)).touch()
    assert identify(tmp_path).others() == named


def data_at(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "meta.properties").touch()


def test_data_directories_are_looked_for_two_levels_below(tmp_path: Path) -> None:
    """The nearest first, by name, none in a hidden directory, none inside of another."""
    for name in ("z", "a/deep", "a/b/too-deep", ".hidden", "z/inner", "b/c"):
        data_at(tmp_path / name)
    (tmp_path / "a.file").touch()
    assert identify(tmp_path).data_directories() == [
        str(tmp_path / name) for name in ("z", "a/deep", "b/c")]
    assert identify(tmp_path / "a" / "b").data_directories() == [str(tmp_path / "a/b/too-deep")]


@pytest.mark.parametrize(("count", "words"), [
    (1, "d0?"), (3, "d0, ROOT/d1, ROOT/d2?"), (4, "d0, ROOT/d1, ROOT/d2 and 1 more?")])
def test_up_to_three_are_named(tmp_path: Path, count: int, words: str) -> None:
    for number in range(count):
        data_at(tmp_path / f"d{number}")
    assert identify(tmp_path).describe() == (
        f"this is no data directory: there are no logs in it; did you mean ROOT/{words}"
    ).replace("ROOT", str(tmp_path)).replace(
        "there are no logs in it", "it has no meta.properties, no checkpoint file and no "
        f"partition with a segment, but {identify(tmp_path).others()}")


def test_the_search_ends_after_200_directories(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number:03d}").mkdir()
    data_at(tmp_path / "zzz")
    assert identify(tmp_path).data_directories() == []
    (tmp_path / "000").rmdir()
    assert identify(tmp_path).data_directories() == [str(tmp_path / "zzz")]


def test_a_missing_path_is_one_whose_name_differs_a_little(tmp_path: Path) -> None:
    data_at(tmp_path / "kafka" / "data")
    (tmp_path / "kafka" / "t-0").mkdir()
    (tmp_path / "kafka" / "t-0" / f"{0:020d}.log").touch()
    (tmp_path / "kafka" / "file").touch()
    for given, meant in (("kafka/dota", "kafka/data"), ("kofka/data", "kafka/data"),
                         ("kofka/dota", None), ("kafka/t0", "kafka/t-0"), ("kafka/fil", "kafka"),
                         ("kafka/xyz", "kafka"), ("xyz/data", None),
                         ("kafka/data/t-0", "kafka/data")):
        assert identify(tmp_path / given).data_directories() == (
            [] if meant is None else [str(tmp_path / meant)]), given


def test_a_reader_names_what_was_meant_by_a_missing_path(tmp_path: Path) -> None:
    data_at(tmp_path / "data")
    for given in ("dota", "data/meta.properties"):
        with pytest.raises(KafkaStorageError) as caught:
            find_partitions(tmp_path / given)
        assert f"did you mean {tmp_path}/data?" in str(caught.value)


@pytest.mark.parametrize(("names", "kind"), [
    ([], PlaceKind.EMPTY), ([".lock", "lost+found/", ".gitkeep"], PlaceKind.EMPTY),
    (["meta.properties.tmp"], PlaceKind.EMPTY), ([".seglog-1"], PlaceKind.EMPTY),
    (["seglog_unfinished_commit/"], PlaceKind.EMPTY), (["x"], PlaceKind.OTHER),
    (["t-0/"], PlaceKind.EMPTY), (["t-0/partition.metadata"], PlaceKind.EMPTY),
    (["t-0/x"], PlaceKind.OTHER), (["t-0/00000000000000000000.log/"], PlaceKind.OTHER),
    (["t-0/00000000000000000000.log"], PlaceKind.DATA_DIRECTORY),
    (["t-0/5.log"], PlaceKind.OTHER), (["x", "t-0/00000000000000000000.log"],
                                       PlaceKind.DATA_DIRECTORY),
    (["t-0/00000000000000000000.index.new.deleted"], PlaceKind.EMPTY),
    (["00000000000000000000.log"], PlaceKind.PARTITION_DIRECTORY),
    (["00000000000000000000.log/"], PlaceKind.OTHER),
    (["replication-offset-checkpoint/"], PlaceKind.DATA_DIRECTORY),
    (["bin/kafka-server-start.sh", "libs/"], PlaceKind.INSTALLATION),
    (["bin/kafka-server-start.sh"], PlaceKind.OTHER),
    ([".lock", "partition.metadata"], PlaceKind.OTHER),
    (["partition.metadata", "x"], PlaceKind.OTHER),
    (["partition.metadata", "x/"], PlaceKind.OTHER)], ids=str)
@pytest.mark.parametrize("name", ["place", "place-0"])
def test_what_makes_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str],
                            kind: PlaceKind, name: str) -> None:
    """In any order. A directory whose name is a partition's may be a log that gets its first
    files."""
    root = tmp_path / name
    root.mkdir()
    for one in names:
        path = root / one
        path.parent.mkdir(exist_ok=True)
        if one.endswith("/"):
            path.mkdir()
        else:
            path.touch()
    if name == "place-0" and names[-1:] == ["partition.metadata"]:
        kind = PlaceKind.PARTITION_DIRECTORY
    entries = LocalFiles.entries
    for backwards in (False, True):
        monkeypatch.setattr(LocalFiles, "entries", lambda *where, backwards=backwards: sorted(
            entries(*where), reverse=backwards))
        found = identify(root)
        assert found.kind is kind and bool(found.foreign) is (kind is PlaceKind.OTHER)
