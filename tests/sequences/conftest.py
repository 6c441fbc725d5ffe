"""Tests that need Kafka itself ask for `kafka_lib`, and are skipped with the reason without it."""

from __future__ import annotations

from tests.kafka.conftest import kafka_lib

__all__ = ["kafka_lib"]
