"""The jars of Spark's own Kafka source, to compare with; fetched once from Maven Central."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.kafka.harness import KafkaUnavailable, cache_dir

#: One by one, without their parents: dependency resolution asks for artifacts that are not there.
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


def spark_kafka_jars() -> list[Path]:
    """The four jars. KafkaUnavailable, with the reason, where they cannot be had."""
    home = cache_dir() / "spark-kafka-4.2.0"
    jars = [home / "{1}-{2}.jar".format(*artifact.split(":")) for artifact in ARTIFACTS]
    if all(jar.is_file() for jar in jars):
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"mvn is missing and {home} holds no jars of Spark's Kafka source")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as fresh:
        for artifact in ARTIFACTS:
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
