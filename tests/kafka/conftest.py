"""Everything in this directory runs Kafka itself, or is skipped with the reason why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka import harness, jars
from tests.support.effort import IS_QUICK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def kafka_lib() -> Path:
    """The jars of Apache Kafka; skips when they, or Java, cannot be had."""
    with harness.required():
        harness.java_command()
        harness.compiled("Oracle")
        jars.cramjams_zstd()
        if not IS_QUICK:  # which starts few JVMs
            harness.archive_classes()
        return harness.library()


@pytest.fixture(scope="module")
def broker(kafka_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    """A running broker of the module's own."""
    with harness.Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: harness.Broker) -> Iterator[harness.Client]:
    with harness.Client(broker.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(kafka_lib: Path) -> Iterator[harness.Client]:
    """A client that only decodes: no broker answers."""
    with harness.Client("127.0.0.1:1") as running:
        yield running
