"""Checks that a JVM can start for Spark, because Spark's own error says little."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

__all__ = ["why_no_jvm"]

_JAVA_MIN = 17  # the minimum of Spark 4.0 and later


def why_no_jvm() -> str | None:
    """One sentence on why no JVM can start for this PySpark, or None if one can."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return (f"Spark needs Java {_JAVA_MIN} or newer on the driver, but no java is on the "
                "PATH: install a JDK, or set JAVA_HOME")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False,
                              timeout=60)
    except OSError as error:
        cause = f"JAVA_HOME is {home}, but " if home else ""
        return (f"Spark needs Java {_JAVA_MIN} or newer on the driver: {cause}{java} does not run "
                f"({error.strerror})")
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None or done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
        return f"Spark needs Java {_JAVA_MIN} or newer on the driver: {java} fails: {said[0]}"
    if int(found[1]) < _JAVA_MIN:
        return (f"Spark needs Java {_JAVA_MIN} or newer on the driver, and {java} is Java "
                f"{found[1]}: set JAVA_HOME to a newer one")
    return _why_another_spark()


def _why_another_spark() -> str | None:
    """One sentence if SPARK_HOME is a different release from PySpark, which never works."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return None
    jars = sorted(Path(home, "jars").glob("spark-core_*.jar"))
    if not jars:
        return f"SPARK_HOME is {home}, which has no Spark (jars/spark-core_*.jar): unset it"
    release = jars[0].stem.partition("-")[2].partition("_")[2].partition("-")[2]
    if release.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        return (f"SPARK_HOME is {home}, which is Spark {release}, and this Python has PySpark "
                f"{pyspark.__version__}: unset SPARK_HOME, or install pyspark=={release}")
    return None
