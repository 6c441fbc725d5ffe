"""Which files the last pass of a load works on."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog._native.scan import list_partition
from seglog.config import LogConfig
from seglog.recovery.disk import RealDisk
from seglog.recovery.findings import Finding
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.loading_passes import ListedFiles, tidy
from tests.recovery.test_log_loader import at


def listed(path: Path, *names: str) -> ListedFiles:
    """The files of a directory with these empty ones."""
    for name in names:
        (path / name).touch()
    return tidy(list_partition(str(path)), RealDisk(str(path)), LogConfig(), lambda found: None)


@pytest.mark.parametrize(("name", "offset"), [
    ("7.log", 7), ("-5.log", -5), ("-1.log", -1),
    # These are the names that Kafka gives to the log of a negative offset.
    (f"-{5:020d}.log", -5), (f"-{1:020d}.log", -1)])
def test_a_log_is_opened_whatever_its_number(tmp_path: Path, name: str, offset: int) -> None:
    found = listed(tmp_path, f"{0:020d}.log", name)
    assert found.opened == {name: offset} and found.base_offsets.tolist() == [0]


@pytest.mark.parametrize("offset", [0, 7])
def test_a_log_counts_once_under_two_names_of_its_number(tmp_path: Path, offset: int) -> None:
    found = listed(tmp_path, f"{offset:020d}.log", f"{offset}.log")
    assert not found.opened and found.base_offsets.tolist() == [offset]


def test_a_swapped_log_without_padding_comes_with_the_files_of_its_number(tmp_path: Path) -> None:
    """LogLoader opens the segment of the number, and renames what that creates as well."""
    found = listed(tmp_path, f"{0:020d}.log", "7.log.swap")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{0:020d}.log", f"{7:020d}.index", f"{7:020d}.log", "7.log"]
    assert found.opened == {f"{7:020d}.log": 7} and found.base_offsets.tolist() == [0]


def test_a_swap_takes_the_numbered_files_of_its_offsets(tmp_path: Path) -> None:
    """LogLoader.load: [base, end), whatever they are; no other swap, and nothing without a
    number."""
    (tmp_path / f"{2:020d}.log.swap").write_bytes(at(2) + at(4))
    kept = ["1.other", "5.other", "5.snapshot", "other"]
    listed(tmp_path, *kept, "2.other", "4.other", "4.snapshot", f"{3:020d}.timeindex")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([
        f"{2:020d}.log", f"{2:020d}.index", *kept])


@pytest.mark.parametrize("name", ["7.log", "7.index", f"{7:020d}.log", f"{7:020d}.index"])
def test_a_directory_with_the_name_of_a_file_is_not_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    found = listed(tmp_path, f"{0:020d}.log")
    assert (found.opened, found.orphans, found.base_offsets.tolist()) == ({}, {}, [0])


def test_a_swapped_snapshot_is_one_of_the_log(tmp_path: Path) -> None:
    found = listed(tmp_path, f"{0:020d}.log", f"{7:020d}.snapshot.swap")
    assert 7 in found.snapshots


@pytest.mark.parametrize("name", ["7.snapshot", "+7.snapshot", f"{7:020d}.snapshot"])
def test_a_snapshot_counts_however_its_number_is_written(tmp_path: Path, name: str) -> None:
    found = listed(tmp_path, f"{0:020d}.log", "!other", name, "~other")
    assert list(found.snapshots.offsets) == [7] and found.snapshots[7] == name
    assert not found.orphans


def test_a_swapped_file_of_no_segment_is_only_renamed(tmp_path: Path) -> None:
    name = f"{7:020d}.log.cleaned"
    found = listed(tmp_path, f"{0:020d}.log", f"{name}.swap")
    assert (found.opened, found.orphans, found.base_offsets.tolist()) == ({}, {}, [0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}.log", name]


@pytest.mark.parametrize("state", ["cleaned", "swap"])
def test_a_temporary_log_without_a_number_ends_a_load(tmp_path: Path, state: str) -> None:
    """LogLoader.removeTempFilesAndCollectSwapFiles asks for the offset of each."""
    with pytest.raises(LoaderFailure, match='For input string: "x"') as caught:
        listed(tmp_path, f"{0:020d}.log", f"x.log.{state}")
    assert caught.value.kafka_error == "NumberFormatException"


def test_a_replacement_that_was_not_complete_is_reported(tmp_path: Path) -> None:
    swap, cleaned = f"{7:020d}.log.swap", f"{7:020d}.index.cleaned"
    for name in (f"{0:020d}.log", swap, cleaned):
        (tmp_path / name).touch()
    found: list[Finding] = []
    tidy(list_partition(str(tmp_path)), RealDisk(str(tmp_path)), LogConfig(), found.append)
    assert sorted((one.code, one.file) for one in found) == [
        ("swap-incomplete", swap), ("temporary-cleaned", cleaned)]
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}.log"]


def test_swapped_segments_take_the_files_between_them(tmp_path: Path) -> None:
    """LogLoader.load: from the least base offset to the largest next offset of all."""
    (tmp_path / f"{2:020d}.log.swap").write_bytes(at(2) + at(4))
    (tmp_path / f"{8:020d}.log.swap").write_bytes(at(8))
    gone = [f"{4:020d}.log", f"{4:020d}.index", f"{6:020d}.timeindex", f"{7:020d}.log"]
    kept = [f"{1:020d}.log", f"{9:020d}.timeindex", f"{10:020d}.log"]
    found = listed(tmp_path, *gone, *kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([
        *kept, *(f"{base:020d}.{kind}" for base in (2, 8) for kind in ("log", "index"))])
    assert found.orphans == {f"{9:020d}.timeindex": 9}
    assert found.base_offsets.tolist() == [1, 10]


def test_a_directory_in_a_log_is_foreign_unless_its_name_is_a_files(tmp_path: Path) -> None:
    names = ("other", f"{7:020d}.log", "other.deleted")
    for name in names:
        (tmp_path / name).mkdir()
    found: list[Finding] = []
    tidy(list_partition(str(tmp_path)), RealDisk(str(tmp_path)), LogConfig(), found.append)
    assert {one.file: one.code for one in found} == dict(
        zip(names, ("file-foreign", "file-kind", "file-kind"), strict=True))
