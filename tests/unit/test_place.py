"""What was probably meant instead of a place that is no data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import KafkaStorageError
from seglog.storage.place import require_data_directory


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
