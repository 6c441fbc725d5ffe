"""Names of files and directories, by Kafka's patterns and error texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidTopicPartitionError
from seglog.model import TopicPartition
from seglog.storage import paths
from seglog.storage.paths import DirectoryKind, FileKind, FileName, FileState

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(("name", "topic", "partition", "kind", "unique_id"), [
    ("a-0", "a", 0, DirectoryKind.LIVE, None),
    ("dots.and_under-scores-2", "dots.and_under-scores", 2, DirectoryKind.LIVE, None),
    ("a--1", "a-", 1, DirectoryKind.LIVE, None),
    ("a-+1", "a", 1, DirectoryKind.LIVE, None),
    ("a-007", "a", 7, DirectoryKind.LIVE, None),
    ("a-2147483647", "a", 2147483647, DirectoryKind.LIVE, None),
    ("a-\u0664", "a", 4, DirectoryKind.LIVE, None),
    ("__cluster_metadata-0", "__cluster_metadata", 0, DirectoryKind.LIVE, None),
    (f"a-0.{HEX}-delete", "a", 0, DirectoryKind.DELETED, HEX),
    (f"a.b-c-10.{HEX}-future", "a.b-c", 10, DirectoryKind.FUTURE, HEX),
    (f"a-3.{HEX}-stray", "a", 3, DirectoryKind.STRAY, HEX),
    ("a-0.x-delete", "a", 0, DirectoryKind.DELETED, "x"),
    ("a-0.1.x-delete", None, None, None, None),  # the topic-partition is all before the last dot
    ("-delete-0", "-delete", 0, DirectoryKind.LIVE, None),
])
def test_directory_names(name: str, topic: str | None, partition: int | None,
                         kind: DirectoryKind | None, unique_id: str | None) -> None:
    if topic is None:
        with pytest.raises(InvalidTopicPartitionError):
            paths.parse_directory_name(name)
        return
    found = paths.parse_directory_name(f"/data/{name}")
    assert found.topic_partition == TopicPartition(topic, partition or 0)
    assert (found.kind, found.unique_id) == (kind, unique_id)


@pytest.mark.parametrize("name", [
    "", "a", "-", "a-", "-0", "a-b", "a-0.5", "lost+found", "a-2147483648", "a- 1", "a-1 ", "a-1_0",
    "a-\U0001d7d9", "topic-delete", "a-0-delete", f"a0.{HEX}-delete", f"a b-0.{HEX}-delete",
    f"a-0.{HEX}-futur", "a-0.-stray", "a-+", "a-0\n",
])
def test_names_that_are_no_partition(name: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(InvalidTopicPartitionError) as caught:
        paths.parse_directory_name(f"{link}/{name}" if name else "/")
    real = os.path.realpath(f"{tmp_path}/{name}") if name else "/"
    assert str(caught.value) == (
        f"Found directory {real}, '{name}' is not in the form of topic-partition or "
        "topic-partition.uniqueId-delete (if marked for deletion).\n"
        "Kafka's log directories (and children) should only contain Kafka topic data.")


def test_written_directory_names() -> None:
    long = TopicPartition("t" * 249, 12)
    for make, kind in ((paths.delete_dir_name, DirectoryKind.DELETED),
                       (paths.stray_dir_name, DirectoryKind.STRAY)):
        name = make(long, HEX)
        assert len(name) == 255
        found = paths.parse_directory_name(name)
        assert (found.kind, found.unique_id) == (kind, HEX)
        assert found.topic_partition.partition == 12
        assert long.topic.startswith(found.topic_partition.topic)
    assert paths.delete_dir_name(TopicPartition("a", 1), HEX) == f"a-1.{HEX}-delete"
    future = paths.future_dir_name(long, HEX)
    assert len(future) > 255
    assert paths.parse_directory_name(future).topic_partition == long


@given(topic=st.from_regex(r"[a-zA-Z0-9._-]{1,60}", fullmatch=True),
       partition=st.integers(0, 2**31 - 1))
def test_directory_names_round_trip(topic: str, partition: int) -> None:
    made = TopicPartition(topic, partition)
    assert paths.parse_directory_name(str(made)).topic_partition == made
    assert paths.parse_directory_name(paths.future_dir_name(made, HEX)).topic_partition == made


@pytest.mark.parametrize(("name", "kind", "state", "offset", "canonical"), [
    ("00000000000000000042.log", FileKind.LOG, FileState.LIVE, 42, True),
    ("00000000000000000000.index", FileKind.INDEX, FileState.LIVE, 0, True),
    ("09223372036854775807.timeindex", FileKind.TIME_INDEX, FileState.LIVE, 2**63 - 1, True),
    ("00000000000000000042.txnindex", FileKind.TXN_INDEX, FileState.LIVE, 42, True),
    ("00000000000000000042.snapshot", FileKind.SNAPSHOT, FileState.LIVE, 42, True),
    ("00000000000000000042.log.cleaned", FileKind.LOG, FileState.CLEANED, 42, True),
    ("00000000000000000042.index.swap", FileKind.INDEX, FileState.SWAP, 42, True),
    ("00000000000000000042.snapshot.deleted", FileKind.SNAPSHOT, FileState.DELETED, 42, True),
    ("5.log", FileKind.LOG, FileState.LIVE, 5, False),
    ("-00000000000000000005.log", FileKind.LOG, FileState.LIVE, -5, False),
    ("5.foo.log", FileKind.LOG, FileState.LIVE, 5, False),
    ("foo.log", FileKind.LOG, FileState.LIVE, None, False),
    (".log", FileKind.LOG, FileState.LIVE, None, False),
    ("99999999999999999999.log", FileKind.LOG, FileState.LIVE, None, False),
    ("foo.cleaned", FileKind.OTHER, FileState.CLEANED, None, False),
    ("12.swap", FileKind.OTHER, FileState.SWAP, 12, False),
    ("foo.txt", FileKind.OTHER, FileState.LIVE, None, False),
    ("00000000000000000042.LOG", FileKind.OTHER, FileState.LIVE, None, False),
    ("leader-epoch-checkpoint", FileKind.TEXT, FileState.LIVE, None, True),
    ("leader-epoch-checkpoint.tmp", FileKind.TEXT, FileState.TMP, None, True),
    ("partition.metadata", FileKind.TEXT, FileState.LIVE, None, True),
    ("00000000000000000118-0000000002.checkpoint", FileKind.CHECKPOINT, FileState.LIVE, 118, True),
    ("00000000000000000118-0000000002-7.checkpoint.part", FileKind.CHECKPOINT, FileState.PART, 118,
     True),
    ("bootstrap.checkpoint", FileKind.CHECKPOINT, FileState.LIVE, None, False),
])
def test_file_names(name: str, kind: FileKind, state: FileState, offset: int | None,
                    canonical: bool) -> None:
    assert paths.parse_file_name(name) == FileName(kind, state, offset, canonical)


def test_written_file_names() -> None:
    assert paths.log_name(0) == "00000000000000000000.log"
    assert paths.index_name(42) == "00000000000000000042.index"
    assert paths.time_index_name(42) == "00000000000000000042.timeindex"
    assert paths.txn_index_name(42) == "00000000000000000042.txnindex"
    assert paths.snapshot_name(2**63 - 1) == "09223372036854775807.snapshot"
    assert paths.log_name(-5) == "-00000000000000000005.log"
    assert paths.log_name(-1) == "-00000000000000000001.log"
    for offset in (-2**63 - 1, 2**63):
        with pytest.raises(ValueError, match="outside"):
            paths.log_name(offset)


def test_offset_from_file_name() -> None:
    assert paths.offset_from_file_name("5.log") == 5
    for name in ("5", "foo.log", ".log", "1 .log"):
        with pytest.raises(ValueError):
            paths.offset_from_file_name(name)


# A file name holds anything but a zero.
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_no_name_is_an_unexpected_error(name: str) -> None:
    paths.parse_file_name(name)
    try:
        paths.parse_directory_name(name)
    except InvalidTopicPartitionError:
        pass


def test_golden_names(golden: Path) -> None:
    files = [file for folder in (golden / "real").glob("*clean/*-*/") if folder.is_dir()
             for file in folder.iterdir()]
    assert len(files) > 300
    for file in files:
        paths.parse_directory_name(file.parent)
        found = paths.parse_file_name(file.name)
        assert found.kind is not FileKind.OTHER and found.canonical, file


def test_a_link_leads_to_a_directory_if_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    for target in ("directory", "file", "nothing", "link to itself"):
        (tmp_path / f"link to {target.removeprefix('link to ')}").symlink_to(target)
    with os.scandir(tmp_path) as entries:
        assert {entry.name for entry in entries if paths.leads_to_directory(entry)} == {
            "directory", "link to directory"}
