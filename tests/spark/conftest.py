"""One small local Spark for all tests of this folder. Skips them without PySpark or Java."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.harness import KafkaUnavailable
from tests.kafka.jars import spark_kafka_jars
from tests.spark import environments
from tests.spark.environments import archive_classes, jvm
from tests.support.effort import IS_QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seglog[spark]'")
os.environ.update(jvm())  # also for the processes that tests start
#: More files of tests than this start so many JVMs that it pays to archive their classes first.
_FILES_OF_FEW = 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def quick_jvms(request: pytest.FixtureRequest) -> None:
    """JVMs that start in half of the time, in a run of all tests."""
    if not IS_QUICK and len({item.path for item in request.session.items}) > _FILES_OF_FEW:
        archive_classes()
        os.environ.update(jvm())


def _peer_jars() -> list[Path]:
    """Spark's own Kafka source if it is available; its tests give the reason if it is not."""
    try:
        return spark_kafka_jars()
    except KafkaUnavailable:
        return []


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environments.spark_home(tmp_path_factory.mktemp("spark") / "home")


@pytest.fixture(scope="session")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    from pyspark.sql import SparkSession

    # Workers run the Python on the PATH by default, which may not be this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if os.environ.get("SEGLOG_INSTALLED") != "1":
        source = str(Path(__file__).resolve().parents[2] / "src")
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (source, os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("SPARK_HOME", str(spark_home))
        # PySpark leaves sockets and pipes to the garbage collector.
        warnings.simplefilter("ignore")
        session = (SparkSession.builder.master("local[2]").appName("seglog-tests")
                   .config("spark.ui.enabled", "false")
                   .config("spark.driver.memory", "1g")
                   .config("spark.driver.host", "127.0.0.1")
                   .config("spark.driver.bindAddress", "127.0.0.1")
                   .config("spark.sql.shuffle.partitions", "2")
                   # A task that another's failure ends may have passed its worker on, which Spark
                   # then stops 2 s later all the same (PythonRunner.MonitorThread names the race).
                   .config("spark.python.task.killTimeout", "1h")
                   .config("spark.sql.session.timeZone", "UTC")
                   .config("spark.jars", ",".join(map(str, _peer_jars())))
                   .getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
