"""Spark Connect: a separate server, and a client without a JVM or SparkContext."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import seglog
from seglog.scrub import finding_row
from tests.spark.environments import DRIVER, clean, environment, run, spark_home

pytestmark = pytest.mark.judge

pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'pyspark[connect]'")
pytest.importorskip("grpc_status",
                    reason="grpcio-status is not installed: pip install 'pyspark[connect]'")

_START_SECONDS = 600.0
READS = """
import json, sys
import seglog.spark
from seglog.errors import SparkSetupError
from seglog.spark import functions
server, data, made = sys.argv[1:]
try:
    spark = seglog.spark.session(server)
except SparkSetupError as error:
    sys.exit(f"SENTENCE {error}")
load = lambda path=data, **options: spark.read.format("seglog").options(**options).load(path)
found = {"session": type(spark).__module__}
found["rows"] = load().count()
found["some"] = load(subscribe="txn").where("offset < 3").count()
found["segments"] = load(table="segments").count()
found["headers"] = seglog.spark.count(spark, data).records
found["replicas"] = seglog.spark.replicas(spark, data, subscribe="txn").count()
found["hash"] = spark.sql("SELECT murmur2('foobar')").first()[0]
numbers = spark.range(100).selectExpr("cast(id as string) AS key", "cast(id as string) AS value")
encoded = functions.encode_batches(numbers)
found["decoded"] = functions.decode_batches(encoded, "batch").count()
(numbers.write.format("seglog").mode("append").option("topic", "made")
 .option("num.partitions", 2).save(made))
query = (spark.readStream.format("seglog").option("startingOffsets", "earliest").load(made)
         .writeStream.format("parquet").option("path", made + "-rows")
         .option("checkpointLocation", made + "-checkpoint").trigger(availableNow=True).start())
query.awaitTermination(1200)
found["streamed"] = spark.read.parquet(made + "-rows").count()
def refused(act):
    try:
        act()
    except Exception as error:
        return str(error).partition("JVM stacktrace")[0]
found["no path"] = refused(lambda: load("/no/such/place").count())
found["no option"] = refused(lambda: load(subscrib="txn").count())
verified = seglog.spark.verify(spark, [data])
found["verify"] = [verified.exit_code, verified.rows()]
print(json.dumps(found))
"""


@contextmanager
def connect_server(home: Path, python: Path | str) -> Iterator[str]:
    """Starts a Connect server whose workers run `python`; yields the URL for its clients."""
    home.mkdir()
    log, spark = home / "server.log", spark_home(home / "spark")
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": "0", "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "2"}
    with open(log, "wb") as out:
        server = subprocess.Popen(
            [spark / "bin" / "spark-submit", "--class",
             "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
             "--driver-memory", "1g",
             *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
             "spark-internal"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=home,
            env=clean(SPARK_HOME=str(spark), PYSPARK_PYTHON=str(python), SPARK_LOCAL_IP="127.0.0.1",
                      JAVA_HOME=os.environ.get("JAVA_HOME", "")), start_new_session=True)
    try:
        end = time.monotonic() + _START_SECONDS
        while (found := re.search(r"Connect server started at: (\S+)", log.read_text())) is None:
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield f"sc://{found[1]}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(timeout=300)


def answers(python: Path | str, server: str, data: Path, made: Path) -> tuple[str, str]:
    """Standard output, and the sentence on standard error; one of them is empty."""
    done = run(python, READS, server, str(data), str(made), env=clean(PYTHONPATH=_own_source()))
    sentence = re.search(r"^SENTENCE (.*)$", done.stderr, re.MULTILINE)
    assert done.returncode == (sentence is not None), done.stderr[-3000:]
    return done.stdout, sentence[1] if sentence else ""


def _own_source() -> str:
    return "" if os.environ.get("SEGLOG_INSTALLED") == "1" else str(
        Path(__file__).resolve().parents[2] / "src")


@pytest.fixture(autouse=True)
def java() -> None:
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")


def test_everything_works(golden: Path, tmp_path: Path) -> None:
    data = golden / "real" / "clean"
    with connect_server(tmp_path / "server", sys.executable) as server:
        printed, sentence = answers(sys.executable, server, data, tmp_path / "made")
    assert not sentence
    found = json.loads(printed.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["rows"] == found["headers"] > 5000
    assert found["some"] == 6 and found["segments"] > 20 and found["replicas"] == 2
    assert found["hash"] == -790332482
    assert found["decoded"] == found["streamed"] == 100
    assert "no such directory: '/no/such/place'" in found["no path"]
    assert "did you mean 'subscribe'?" in found["no option"]
    with seglog.open_data_dir(data, level="verify") as local:
        expected = [finding_row(str(data), one) for one in local.report.findings]
    assert len(expected) > 5
    assert found["verify"] == [0, json.loads(json.dumps(expected))]


def test_a_server_without_seglog_is_one_sentence(golden: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "python", set(DRIVER) - {"seglog", "pyspark_seglog"})
    with connect_server(tmp_path / "server", python) as server:
        _, sentence = answers(sys.executable, server, golden / "real" / "clean", tmp_path / "made")
    assert "has no seglog" in sentence and "install seglog[spark]" in sentence
