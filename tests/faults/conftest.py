"""The box of faults: built and started once, for every test here that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.box import Box, build_shim, why_not
from tests.faults.directories import Damaged, damaged_directories


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A process with the shim between it and its files."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    box = Box(build_shim(tmp_path_factory.mktemp("shim") / "shim.so"))
    yield box
    box.close()


@pytest.fixture(scope="session")
def damaged(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Damaged]:
    """The damaged directories by name."""
    found = damaged_directories(golden, tmp_path_factory.mktemp("damaged"))
    return {one.name: one for one in found}
