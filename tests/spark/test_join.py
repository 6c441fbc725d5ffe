"""`session` and `register` with an active session, and readers that are unpickled on executors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.cloudpickle import dumps

import seglog
from seglog.errors import SparkSetupError
from seglog.spark import register, session
from seglog.spark.executors import probe_executors, shortfall
from seglog.spark.read_options import parse_options
from seglog.spark.source_reader import SeglogReader
from seglog.spark.shipping import pack
from tests.spark.environments import clean, environment, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.judge


def test_an_active_session_is_taken_as_it_is(spark: SparkSession, golden: Path) -> None:
    before = spark.sparkContext.appName
    joined = session(app_name="another", conf={"spark.sql.shuffle.partitions": 3})
    try:
        assert joined is spark and spark.sparkContext.appName == before
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert joined.read.format("seglog").load(str(golden / "real" / "clean" / "txn-0")).count()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    with pytest.raises(SparkSetupError, match=r"session on local\[2\] is active, so none was "
                                              r"started on local\[7\]: stop it first"):
        session("local[7]")
    with pytest.raises(SparkSetupError, match="spark.executor.memory can only be set when one "
                                              "starts"):
        session(conf={"spark.executor.memory": "2g"})


class Closed:
    """A session whose platform hides the context, as on shared clusters of Databricks."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def sparkContext(self) -> Any:
        raise RuntimeError("method public org.apache.spark... is not whitelisted")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_j"):
            raise RuntimeError("not whitelisted")
        return getattr(self._spark, name)


def test_a_session_without_a_context_is_registered_too(spark: SparkSession) -> None:
    register(Closed(spark))  # type: ignore[arg-type]


def test_executors_say_what_they_are(spark: SparkSession) -> None:
    found = probe_executors(spark, 2)
    assert len(found) == 1 and found[0]["missing"] == {}
    assert found[0]["versions"]["seglog"] == seglog.__version__
    assert shortfall(found[0]) is None
    old = {**found[0], "versions": {**found[0]["versions"], "seglog": "0.0.9"}}
    lacking = shortfall(old)
    assert lacking is not None and lacking.packages == ("seglog",)
    assert f"with seglog 0.0.9, but the driver has seglog {seglog.__version__}" in lacking.sentence
    broken = {**found[0], "missing": {"numpy": "ImportError: libfoo.so.1: cannot open"}}
    lacking = shortfall(broken)
    assert lacking is not None and lacking.packages == ("numpy",)
    assert "which cannot import numpy (ImportError: libfoo.so.1" in lacking.sentence


def arrive(python: Path, reader: bytes, tmp_path: Path, **more: str
           ) -> subprocess.CompletedProcess[str]:
    """Unpickles a reader as an executor does."""
    file = tmp_path / "reader.pickle"
    file.write_bytes(reader)
    zips = Path(pyspark.__file__).parent / "python" / "lib"
    path = os.pathsep.join([*map(str, zips.glob("*.zip")), *filter(None, [more.pop("path", "")])])
    return run(python, "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')))",
               str(file), env=clean(PYTHONPATH=path, **more))


def test_a_reader_is_checked_where_it_arrives(tmp_path: Path) -> None:
    reader = dumps(SeglogReader(parse_options({"path": "/data"}), ["offset"]))
    bare = environment(tmp_path / "bare", ("numpy", "pyarrow"))
    said = arrive(bare, reader, tmp_path).stderr.splitlines()[-1]
    assert f"runs {bare} (Python 3." in said and "which cannot import seglog: install " in said
    fake = tmp_path / "fake" / "seglog"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("__version__ = '0.0.9'\n")
    (fake / "spark").mkdir()
    (fake / "spark" / "__init__.py").touch()
    (fake / "spark" / "source_reader.py").write_text("class SeglogReader: pass\n")
    said = arrive(bare, reader, tmp_path, path=str(tmp_path / "fake")).stderr.splitlines()[-1]
    assert f"with seglog 0.0.9, but the driver has {seglog.__version__}: install the same" in said


def test_a_shipped_package_is_enough_for_a_bare_python(tmp_path: Path) -> None:
    """The shipped packages include native libraries, and nothing comes from this environment."""
    import zipfile

    archive = tmp_path / "packages.zip"
    pack(("pyarrow", "numpy", "cramjam", "seglog"), str(archive))
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "packages")
    reader = dumps(SeglogReader(parse_options({"path": "/data"}), ["offset"]))
    bare = environment(tmp_path / "bare", ())
    done = arrive(bare, reader, tmp_path, path=str(tmp_path / "packages"))
    assert "SeglogReader object" in done.stdout, done.stderr
