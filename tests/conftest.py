"""Fixtures that every test may use. Golden data: tests/golden/README.md."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import golden as golden_data


@pytest.fixture(scope="session")
def golden() -> Iterator[Path]:
    """The unpacked golden data. Nobody writes there, and the end of the session proves it."""
    root = golden_data.unpack()
    before = golden_data.fingerprint(root)
    yield root
    assert golden_data.fingerprint(root) == before, f"a test changed the golden data in {root}"


@pytest.fixture
def golden_copy(golden: Path, tmp_path: Path) -> Callable[[str], Path]:
    """`golden_copy("real/clean")`: a fresh, writable copy of one directory, times kept."""

    def copy(name: str) -> Path:
        target = tmp_path / name.replace("/", "_") / Path(name).name
        number = 1
        while target.exists():
            target = tmp_path / f"{name.replace('/', '_')}_{number}" / Path(name).name
            number += 1
        shutil.copytree(golden / name, target)
        return target

    return copy
