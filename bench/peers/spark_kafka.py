"""The jars of Spark's own Kafka source, each fetched from Maven Central by itself.

Maven cannot resolve the source with its dependencies for every Spark (their parent names a mirror
that does not answer everywhere), so the four that work together are named here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

SPARK = "4.2.0"
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


@cache
def jars() -> tuple[tuple[Path, ...], str]:
    """The jars and "", or none and the reason."""
    import pyspark

    if pyspark.__version__ != SPARK:
        return (), f"Spark's Kafka source is fetched for Spark {SPARK}, not {pyspark.__version__}"
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seglog-bench/jars"
    wanted = {artifact: root / "{1}-{2}.jar".format(*artifact.split(":"))
              for artifact in ARTIFACTS}
    missing = [artifact for artifact, path in wanted.items() if not path.is_file()]
    maven = shutil.which("mvn")
    if missing and maven is None:
        return (), "mvn is missing, and with it the jars of Spark's Kafka source"
    for artifact in missing:
        done = subprocess.run(
            [str(maven), "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy",
             f"-Dartifact={artifact}", f"-DoutputDirectory={root}"],
            capture_output=True, text=True, check=False)
        if done.returncode:
            cause = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
            return (), f"Maven could not fetch {artifact}: {cause[0]}"
    return tuple(wanted.values()), ""
