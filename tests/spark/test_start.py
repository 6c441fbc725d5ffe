"""`session` and `register` with something missing: the read works, or fails in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.environments import DRIVER, clean, environment, run

pytestmark = pytest.mark.judge

SESSION = """
import sys, seglog.spark
try:
    spark = seglog.spark.session("local[1]", conf={"spark.ui.enabled": False})
except seglog.errors.SparkSetupError as error:
    sys.exit(f"SENTENCE {error}")
print("ROWS", spark.read.format("seglog").load(sys.argv[1]).count())
"""
OWN_BUILDER = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("ROWS", spark.range(3).count())
import seglog.spark
try:
    seglog.spark.register(spark)
except seglog.errors.SparkSetupError as error:
    sys.exit(f"SENTENCE {error}")
print("ROWS", spark.read.format("seglog").load(sys.argv[1]).count())
"""
ROWS = 170  # of txn-0
HERE = ".".join(map(str, sys.version_info[:2]))


_LAST_WORDS = ("Traceback (most recent call last):", "  ", "BrokenPipeError")


def outcome(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence that ended a program, or the last number of rows that it printed."""
    before, found, after = done.stderr.partition("SENTENCE ")
    if found:
        sentence, _, rest = after.partition("\n")
        assert "Traceback" not in before and "at org.apache" not in done.stderr, done.stderr
        # PySpark's daemon may be stopped while it prints.
        assert all(line.startswith(_LAST_WORDS) for line in rest.splitlines()), done.stderr
        assert "seglog/spark" not in rest, done.stderr
        return sentence.strip()
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of a complete environment that is not activated."""
    return environment(tmp_path_factory.mktemp("driver") / "venv", DRIVER)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A python without any package."""
    return environment(tmp_path_factory.mktemp("bare") / "venv", ())


@pytest.fixture(scope="module")
def java() -> str:
    """A PATH with java and the tools of Spark's scripts, but without our Python."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    return f"{Path(shutil.which('java') or '').parent}:/usr/bin:/bin"


@pytest.mark.parametrize("program", [SESSION, OWN_BUILDER], ids=["session", "own-builder"])
def test_an_environment_that_is_not_activated_reads(driver: Path, bare: Path, java: str,
                                                    golden: Path, program: str) -> None:
    """PYSPARK_PYTHON is not set, and the python3 on the PATH has no packages."""
    done = run(driver, program, str(golden / "real" / "clean" / "txn-0"),
               env=clean(f"{bare.parent}:{java}"))
    assert outcome(done) == f"ROWS {ROWS}"
    assert "Traceback" not in done.stderr and "at org.apache" not in done.stderr, done.stderr


def test_a_package_on_a_path_of_the_program_is_found_by_workers(java: str, golden: Path,
                                                               tmp_path: Path) -> None:
    """After a notebook's `sys.path.insert`, workers of the same interpreter would lack seglog."""
    python = environment(tmp_path / "venv", (name for name in DRIVER if "seglog" not in name))
    extra = tmp_path / "extra"
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    environment(tmp_path / "other", ("seglog", "pyspark_seglog"))
    shutil.copytree(next((tmp_path / "other").glob("lib/python*/site-packages")), extra,
                    symlinks=True)
    assert not (site / "seglog").exists()
    done = run(python, f"import sys; sys.path.insert(0, {str(extra)!r})\n{SESSION}",
               str(golden / "real" / "clean" / "txn-0"), env=clean(java))
    assert outcome(done) == f"ROWS {ROWS}"


def test_a_named_python_without_packages_is_one_sentence(driver: Path, bare: Path, java: str,
                                                         golden: Path) -> None:
    said = outcome(run(driver, SESSION, str(golden), env=clean(java, PYSPARK_PYTHON=str(bare))))
    assert re.match(rf"Spark's workers run {re.escape(str(bare))}, which has no seglog; install "
                    r"seglog\[spark\] \S+ there, or name a Python that has it in PYSPARK_PYTHON",
                    said), said


def test_a_named_python_that_is_not_there_is_one_sentence(driver: Path, java: str,
                                                          golden: Path) -> None:
    said = outcome(run(driver, SESSION, str(golden),
                       env=clean(java, PYSPARK_PYTHON="/no/such/python")))
    assert "cannot run /no/such/python" in said and "PYSPARK_PYTHON" in said


def test_workers_without_pyarrow_are_one_sentence(driver: Path, java: str, golden: Path,
                                                  tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", (name for name in DRIVER if name != "pyarrow"))
    said = outcome(run(driver, SESSION, str(golden), env=clean(java, PYSPARK_PYTHON=str(python))))
    assert f"run {python}, which has no pyarrow" in said


def test_another_minor_version_is_one_sentence(driver: Path, java: str, golden: Path) -> None:
    other = _other_python()
    if other is None:
        pytest.skip("no other minor version of Python: install one, of 3.10 or newer")
    said = outcome(run(driver, SESSION, str(golden), env=clean(java, PYSPARK_PYTHON=other[0])))
    assert f"which is Python {other[1]}, and the driver is Python {HERE}" in said


def _other_python() -> tuple[str, str] | None:
    homes = [*Path.home().glob(".pyenv/versions/*/bin/python"), *Path("/usr/bin").glob("python3.*"),
             *Path("/usr/local/bin").glob("python3.*")]
    for python in sorted(homes):
        done = subprocess.run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                              capture_output=True, text=True, check=False)
        version = done.stdout.strip()
        # Older Pythons cannot even parse PySpark's worker.
        if done.returncode == 0 and version != HERE \
                and tuple(map(int, version.split("."))) >= (3, 10):
            return str(python), version
    return None


def fake_java(folder: Path, script: str) -> Path:
    """A JAVA_HOME whose java is a shell script."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(("said", "sentence"), [
    ('openjdk version "11.0.22" 2024-01-16', "is Java 11: set JAVA_HOME to a newer one."),
    ('java version "1.8.0_402"', "is Java 8: set JAVA_HOME to a newer one."),
    ("Error: could not open libjvm.so", "fails: Error: could not open libjvm.so."),
])
def test_java_that_will_not_do_is_one_sentence(driver: Path, bare: Path, golden: Path,
                                               tmp_path: Path, said: str, sentence: str) -> None:
    home = fake_java(tmp_path / "jdk", f"echo '{said}' >&2")
    for env in (clean("/usr/bin:/bin", JAVA_HOME=str(home)), clean(f"{home}/bin:/usr/bin:/bin")):
        found = outcome(run(driver, SESSION, str(golden), env=env))
        assert found.startswith("Spark needs Java 17 or newer on the driver"), found
        assert str(home) in found and found.endswith(sentence), found


def test_no_java_is_one_sentence(driver: Path, bare: Path, golden: Path, tmp_path: Path) -> None:
    found = outcome(run(driver, SESSION, str(golden), env=clean(str(bare.parent))))
    assert "no java is on the PATH: install a JDK, or set JAVA_HOME." in found
    found = outcome(run(driver, SESSION, str(golden),
                        env=clean(str(bare.parent), JAVA_HOME=str(tmp_path))))
    assert f"JAVA_HOME is {tmp_path}, but {tmp_path}/bin/java does not run" in found


def test_another_spark_home_is_one_sentence(driver: Path, java: str, golden: Path,
                                            tmp_path: Path) -> None:
    found = outcome(run(driver, SESSION, str(golden), env=clean(java, SPARK_HOME=str(tmp_path))))
    assert f"SPARK_HOME is {tmp_path}, which has no Spark" in found
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    found = outcome(run(driver, SESSION, str(golden), env=clean(java, SPARK_HOME=str(tmp_path))))
    assert f"SPARK_HOME is {tmp_path}, which is Spark 3.5.1, and this Python has PySpark 4" in found


def test_a_python_without_spark_is_one_sentence(tmp_path: Path) -> None:
    for left_out in ("pyspark", "pyarrow"):
        python = environment(tmp_path / left_out, (name for name in DRIVER if name != left_out))
        done = run(python, "import seglog.spark", env=clean(os.environ["PATH"]))
        assert done.stderr.splitlines()[-1] == (
            f"ImportError: seglog.spark needs pyarrow and PySpark 4.0 or newer, and {python} has "
            f"no {left_out}: pip install 'seglog[spark]'")
    old = next((tmp_path / "pyspark").glob("lib/python*/site-packages")) / "pyspark"
    (old / "sql").mkdir(parents=True)
    (old / "__init__.py").write_text("__version__ = '3.5.1'\n")
    (old / "sql" / "__init__.py").touch()
    done = run(tmp_path / "pyspark" / "bin" / "python", "import seglog.spark",
               env=clean(os.environ["PATH"]))
    assert "has PySpark 3.5.1: pip install" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("master", ["nonsense", "local[x]"])
def test_a_master_that_is_none(master: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seglog", "verify", str(Path(__file__).parent), "--spark", master],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)})
    assert done.returncode == 2 and done.stdout == ""
    assert "Traceback" not in done.stderr
    assert f"seglog: error: Spark does not start on {master}: " in done.stderr.splitlines()[-1]
