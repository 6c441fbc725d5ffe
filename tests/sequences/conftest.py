"""Tests that need Kafka itself ask for `kafka_lib`, and are skipped with the reason without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.conftest import kafka_lib

__all__ = ["kafka_lib"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "kafka_lib" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
