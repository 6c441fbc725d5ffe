"""What was probably meant instead of a place that is no data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import KafkaStorageError
from seglog.storage.place import PlaceKind, identify, require_data_directory


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


def test_a_path_below_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert identify(tmp_path / "file").kind is PlaceKind.FILE
    assert identify(tmp_path / "file" / "k").kind is PlaceKind.MISSING
    assert identify(tmp_path / "k").kind is PlaceKind.MISSING


@pytest.mark.parametrize(("count", "named"), [
    (1, "'0'"), (2, "'0', '1'"), (3, "'0', '1' and more")])
def test_other_things_are_named_up_to_two(tmp_path: Path, count: int, named: str) -> None:
    for number in range(count):
        (tmp_path / str(number)).touch()
    assert identify(tmp_path).others() == named
