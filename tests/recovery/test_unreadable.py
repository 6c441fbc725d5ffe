"""Loads that only read, of directories and files that cannot be read: reported, and nothing else is
hidden."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from typing import Any, NoReturn

import pytest

import seglog
from seglog.errors import KafkaStorageError
from seglog.recovery import overlay, partition_plan, segment_files, snapshot_files
from seglog.recovery.findings import Severity
from seglog.recovery.loader_failures import FileVanished
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.scans import Extent
from seglog.storage.producer_state import SNAPSHOT_BYTES_MAX
from tests.log.test_fast_path import batch
from tests.recovery.test_load import LEVELS, codes, data_dir, name, only, partition
from tests.support.users import without_rights


@pytest.mark.parametrize("file", ["leader-epoch-checkpoint", "partition.metadata"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_file_of_a_partition_that_cannot_be_read_is_named(tmp_path: Path, file: str,
                                                            level: Any) -> None:
    with seglog.open(tmp_path / "t-0", topic_id=uuid.UUID(int=1 << 100)) as log:
        log.append_many([b"x"] * 5)
    (tmp_path / "t-0" / file).unlink()
    (tmp_path / "t-0" / file).mkdir()
    found = {one.code: one for one in seglog.open_data_dir(tmp_path, level=level).report.findings}
    assert found["file-unreadable"].severity is Severity.ERROR
    assert (found["file-unreadable"].directory, found["file-unreadable"].file) == ("t-0", file)
    assert found["file-kind"].found == "a directory"


@pytest.mark.parametrize("file", ["meta.properties", "log-start-offset-checkpoint"])
@pytest.mark.parametrize(("is_link", "code"), [(True, "file-kind"), (False, "file-unreadable")])
def test_a_file_of_the_directory_that_cannot_be_read_is_named(
        tmp_path: Path, file: str, is_link: bool, code: str) -> None:
    partition(data_dir(tmp_path / "k"), "t-0")
    path = tmp_path / "k" / file
    path.unlink(missing_ok=True)
    if is_link:
        path.symlink_to("elsewhere")
    else:
        path.mkdir()
    report = load_directory(str(tmp_path / "k"), LoadOptions()).report
    assert [(one.code, one.directory) for one in report.findings if one.file == file] == [
        (code, None)]


def test_a_partition_that_cannot_be_listed_is_not_left_out(tmp_path: Path) -> None:
    """A reader of the topic would miss its records and not know."""
    root = tmp_path / "data"
    for number in range(2):
        with seglog.open(root / f"t-{number}") as log:
            log.append(b"x")
    (root / "t-1").chmod(0)
    try:
        with without_rights(root), seglog.open_data_dir(root) as data:
            assert codes(data.report) >= {"directory-unreadable"} and data.topics == {"t": [0, 1]}
            with pytest.raises(KafkaStorageError, match="Permission denied"):
                list(data.to_arrow("t"))
            with pytest.raises(KafkaStorageError, match="Permission denied"):
                data.log("t", 1)
    finally:
        (root / "t-1").chmod(0o755)


@pytest.mark.parametrize(("number", "code"), [
    (errno.EMFILE, "directory-unreadable"), (errno.ENOENT, "file-missing")])
def test_a_partition_that_cannot_be_checked_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str) -> None:
    root = data_dir(tmp_path / "k", clean=False)
    partition(root, "t-0", segments=5)
    monkeypatch.setattr(partition_plan, "CHUNK_SEGMENTS", 2)

    def fail(path: str, *_: object, **__: object) -> None:
        raise KafkaStorageError(number, os.strerror(number), path)

    monkeypatch.setattr(partition_plan, "check_segments", fail)
    report = load_directory(str(root), LoadOptions()).report
    assert [one.directory for one in report.findings if one.code == code] == ["t-0"]


def test_a_log_that_vanishes_before_its_end_is_read_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker deletes a segment while its directory is loaded."""
    path = partition(data_dir(tmp_path / "k"), "t-0")
    (path / name(0, ".log")).write_bytes(batch(2))
    (path / "foreign").touch()  # so that it is no row

    def vanished(path: str) -> NoReturn:
        raise FileVanished(Path(path).name)

    monkeypatch.setattr(segment_files, "opened_log", vanished)
    report = load_directory(str(tmp_path / "k"), LoadOptions()).report
    found = only(report, "file-missing")
    assert (found.directory, found.file) == ("t-0", name(0, ".log"))
    assert [one.log_end_offset for one in report.partitions] == [None]


@pytest.mark.parametrize("level", LEVELS)
def test_one_log_that_cannot_be_read_hides_no_other(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Any) -> None:
    """The error of a file ended the load of the whole directory."""
    for number, count in enumerate((3, 5)):
        with seglog.open(tmp_path / f"t-{number}", topic_id=uuid.UUID(int=1 << 100)) as log:
            log.append_many([b"x"] * count)
    snapshot = tmp_path / "t-0" / name(3, ".snapshot")
    os.truncate(snapshot, SNAPSHOT_BYTES_MAX + 1)
    report = seglog.open_data_dir(tmp_path, level=level).report
    found = only(report, "file-unreadable")
    assert (found.directory, found.file) == ("t-0", snapshot.name)
    assert [(one.directory, one.kafka_error, one.log_end_offset) for one in report.partitions] == [
        ("t-0", "KafkaStorageException", None), ("t-1", None, 5)]
    monkeypatch.setattr(snapshot_files, "SNAPSHOT_BYTES_MAX", 1 << 62)
    read = overlay._read

    def vanished(extent: Extent, start: int, end: int) -> bytes:
        if extent.path == str(snapshot):  # a broker deletes it meanwhile
            raise KafkaStorageError(errno.ENOENT, os.strerror(errno.ENOENT), extent.path)
        return read(extent, start, end)

    monkeypatch.setattr(overlay, "_read", vanished)
    report = seglog.open_data_dir(tmp_path, level=level).report
    assert only(report, "file-missing").file == snapshot.name
    assert [(one.kafka_error, one.log_end_offset) for one in report.partitions] == [
        (None, None), (None, 5)]
