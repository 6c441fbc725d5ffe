"""Tests that need Kafka itself ask for `kafka_lib`, and are skipped with the reason without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.conftest import kafka_lib
from tests.sequences.judge import Judge

__all__ = ["judge", "kafka_lib"]


@pytest.fixture(scope="module")
def judge(kafka_lib: Path) -> Iterator[Judge]:
    """Both sides, beside each other."""
    with Judge() as running:
        yield running
