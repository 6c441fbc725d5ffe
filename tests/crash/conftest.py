"""The box of faults, for writers, and a place for what is written without power."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import box
from tests.support.scratch import scratch

__all__ = ["box", "memory"]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory: where the loss of power is simulated, a sync only costs time."""
    path = scratch()
    yield path
    shutil.rmtree(path, ignore_errors=True)
