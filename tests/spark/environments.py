"""Python environments with only some packages, and programs that run in them."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tests.support import class_archive

#: The packages of `pip install 'seglog[spark]'`, which a driver needs.
DRIVER = ("seglog", "pyspark_seglog", "cramjam", "numpy", "pyarrow", "pyspark", "py4j", "pandas",
          "dateutil", "six")

#: JVMs of tests are short-lived: quick to be up rather than quick later, with half of the
#: processor's time.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(9).selectExpr("sum(id)").collect())
spark.stop()
"""


@functools.cache
def _classes() -> Path | None:
    """The archive of a driver's classes, in the virtual environment that has the jars."""
    java = shutil.which("java")
    if java is None or sys.prefix == sys.base_prefix:
        return None
    return class_archive.path_of(Path(sys.prefix), "spark", java, version("pyspark"))


def archive_classes() -> None:
    """Makes that archive where there is none."""
    def run_driver(options: Sequence[str]) -> None:
        given = " ".join([_QUICK, *options])
        run(sys.executable, _PROGRAM, env={**os.environ, "SPARK_SUBMIT_OPTS": given})

    archive = _classes()
    if archive is not None:
        class_archive.make(archive, run_driver)


def jvm() -> dict[str, str]:
    """What Spark's scripts give to drivers, to their own launcher, and to daemons."""
    quick = " ".join([_QUICK, *class_archive.using(_classes())])
    return {"SPARK_SUBMIT_OPTS": quick, "SPARK_LAUNCHER_OPTS": _QUICK,
            "SPARK_DAEMON_JAVA_OPTS": quick}


def spark_home(home: Path) -> Path:
    """Spark with a zip of PySpark's modules that are compiled: of its own zip each worker that
    starts compiles what it imports, which takes most of its time."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    library = home / "python" / "lib"
    library.mkdir(parents=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)
    for path in (installed / "python" / "lib").glob("*.zip"):
        if path.name != "pyspark.zip":
            (library / path.name).symlink_to(path)
            continue
        with zipfile.ZipFile(path) as plain, zipfile.ZipFile(library / path.name, "w") as made:
            for entry in plain.namelist():
                source = plain.read(entry)
                made.writestr(entry, source)
                if (code := _code(installed.parent / entry, source)) is not None:
                    made.writestr(f"{entry}c", code)
    return home


def _code(module: Path, source: bytes) -> bytes | None:
    """The code of an installed module that has this source, to be taken without a check of times
    (PEP 552)."""
    if module.suffix != ".py":
        return None
    try:
        code = Path(importlib.util.cache_from_source(str(module))).read_bytes()
        return code[:4] + b"\1" + bytes(11) + code[16:] if module.read_bytes() == source else None
    except OSError:
        return None  # installed without it


def environment(home: Path, packages: Iterable[str]) -> Path:
    """Makes a virtual environment with links to `packages` of this one; returns its python."""
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        source = Path(spec.origin)
        source = source.parent if source.name == "__init__.py" else source
        if name == "pyspark":
            spark_home(site / name)
            shutil.copy(source / "find_spark_home.py", site / name)  # finds where it is itself
            for path in source.iterdir():
                if not (site / name / path.name).exists():
                    (site / name / path.name).symlink_to(path)
        else:
            (site / source.name).symlink_to(source)
        libraries = source.with_name(f"{name}.libs")
        if libraries.is_dir():
            (site / libraries.name).symlink_to(libraries)
    return home / "bin" / "python"


def clean(path: str | None = None, **more: str) -> dict[str, str]:
    """The environment of a shell without an active virtual environment or exported variables."""
    left_out = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "JAVA_HOME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    kept["PATH"] = path if path is not None else os.environ["PATH"]
    return {**kept, **jvm(), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(python: Path | str, program: str, *args: str, env: Mapping[str, str],
        timeout: float = 1800.0) -> subprocess.CompletedProcess[str]:
    """Runs the text of a program."""
    return subprocess.run([str(python), "-c", program, *args], capture_output=True, text=True,
                          env=dict(env), timeout=timeout, check=False)


