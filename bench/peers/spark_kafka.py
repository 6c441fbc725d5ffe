"""Spark's own Kafka source: the jars that the tests also use."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.kafka.harness import KafkaUnavailable
from tests.kafka.jars import spark_kafka_jars


@cache
def jars() -> tuple[tuple[Path, ...], str]:
    """The jars and "", or no jars and the reason."""
    try:
        return tuple(spark_kafka_jars()), ""
    except KafkaUnavailable as error:
        return (), str(error)
