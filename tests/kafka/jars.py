"""Single jars beside Kafka's own, fetched once from Maven Central."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.kafka.harness import KafkaUnavailable, cache_dir
from tests.support.locks import locked


def spark_kafka_jars() -> list[Path]:
    """The jars of Spark's own Kafka source, to compare with.

    One by one, without their parents: dependency resolution asks for artifacts that are not there.
    """
    return _fetched("spark-kafka-4.2.0", (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.1",
    ))


def cramjams_zstd() -> Path:
    """zstd-jni with the libzstd of cramjam 2.14 (Kafka 4.3.1 comes with that of 1.5.6).

    What one libzstd makes of the same records another may write a byte shorter, so only with the
    same one can files be compared. It goes before Kafka's jars in the class path.
    """
    return _fetched("zstd-jni-1.5.7", ("com.github.luben:zstd-jni:1.5.7-6",))[0]


def hadoop_jars() -> list[Path]:
    """A name node and data nodes for tests, and what they stand on."""
    return _fetched("hadoop-3.5.0", (
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        "org.apache.hadoop:hadoop-client-api:3.5.0",
        "org.apache.hadoop:hadoop-client-runtime:3.5.0",
        "org.slf4j:slf4j-api:2.0.17",
        "commons-logging:commons-logging:1.3.5",
    ))


def local_tiered_storage() -> Path:
    """Kafka's test jar with LocalTieredStorage, a RemoteStorageManager over a directory."""
    return _fetched("kafka-storage-test-4.3.1", ("org.apache.kafka:kafka-storage:4.3.1:jar:test",)
                    )[0]


def _file_name(artifact: str) -> str:
    """Of `group:artifact:version`, or with `:jar:classifier` behind that."""
    _, name, version, *rest = artifact.split(":")
    return f"{'-'.join([name, version, *rest[1:]])}.jar"


def _fetched(name: str, artifacts: Iterable[str]) -> list[Path]:
    """The jars, out of the cache's `name`. KafkaUnavailable where they cannot be had."""
    home = cache_dir() / name
    jars = [home / _file_name(artifact) for artifact in artifacts]
    if all(jar.is_file() for jar in jars):
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"mvn is missing and {home} does not hold all of its jars")
    with locked(home.parent), tempfile.TemporaryDirectory(dir=home.parent) as fresh:
        if all(jar.is_file() for jar in jars):
            return jars  # another process was first
        for artifact in artifacts:
            done = subprocess.run(
                [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}",
                 f"-DoutputDirectory={fresh}"],
                capture_output=True, text=True, check=False, cwd=fresh)
            if done.returncode:
                cause = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
                raise KafkaUnavailable(f"Maven could not fetch {artifact}: {cause[0]}")
        home.mkdir(exist_ok=True)
        for jar in Path(fresh).glob("*.jar"):
            os.replace(jar, home / jar.name)
    return jars
