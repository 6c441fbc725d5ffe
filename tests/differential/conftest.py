"""Tests that need Kafka itself ask for `kafka_lib`, and are skipped with the reason without it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.judge import Judge
from tests.support.scratch import scratch
from tests.differential.ours import load_aloud
from tests.kafka.conftest import kafka_lib

__all__ = ["kafka_lib"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in memory where there is room for one."""
    path = scratch()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def judge(kafka_lib: Path, golden: Path) -> Iterator[Judge]:
    """Kafka's loader and seglog's, beside each other."""
    with Judge(golden, load_aloud) as running:
        yield running


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of damaged logs have much to say, which a failure would print."""
    logger = logging.getLogger("seglog")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
