"""Reading a topic with Spark into `noop`: format("seglog"), a source that only hands Spark Arrow
batches which it made before, and format("kafka") from a broker on the same data. local[2]."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness import Against, Compare, pick
from bench.peers import spark_kafka
from tests.kafka import harness as real

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seglog[spark]'")

from bench.peers.ready_made import ReadyMade  # noqa: E402
from seglog.spark import register  # noqa: E402
from seglog.spark.options import parse_options  # noqa: E402
from seglog.spark.plan import plan_partitions  # noqa: E402

RECORDS = pick(20_000, 1_000_000, 4_000_000)
TOPIC, PARTITIONS = "bench", 2
ROOT = Path(__file__).resolve().parents[1]
#: A broker that is measured gets both compilers and the memory that the machine can spare.
BROKER_JVM = ["-Xmx768m", "-XX:-UsePerfData"]


@pytest.fixture(scope="module")
def broker(scratch: Path) -> Iterator[real.Broker]:
    """A broker with RECORDS records of 100 B, written by Kafka's own performance tool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "_JVM", BROKER_JVM)
        try:
            one = real.Broker(scratch / "broker")
            one.start()
        except real.KafkaUnavailable as error:
            pytest.skip(f"no real Kafka: {error}")
    try:
        with real.Client(one.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        real.run("org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records",
                 str(RECORDS), "--record-size", "100", "--throughput", "-1", "--producer-props",
                 f"bootstrap.servers={one.bootstrap}", "acks=1", "linger.ms=5")
        yield one
        one.stop()
    finally:
        one.kill()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Two cores, with Spark's Kafka source where its jars can be had."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import bench from here, and seglog from where this process has it.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    builder = (SparkSession.builder.master("local[2]").appName("seglog-bench")
               .config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
               .config("spark.driver.host", "127.0.0.1")
               .config("spark.driver.bindAddress", "127.0.0.1")
               .config("spark.sql.session.timeZone", "UTC"))
    jars, _ = spark_kafka.jars()
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    session.dataSource.register(ReadyMade)
    yield session
    session.stop()


def to_noop(frame: Any) -> Callable[[], None]:
    """Reads every row and every column, and forgets them."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def told(frame: Any) -> tuple[int, int, int]:
    """Rows, the sum of their offsets, and of the sizes of their values."""
    row = frame.selectExpr("count(*)", "sum(offset)", "sum(octet_length(value))").collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def own(spark: Any, broker: real.Broker) -> Any:
    return spark.read.format("seglog").option("subscribe", TOPIC).load(str(broker.data_dir))


def test_beside_ready_made_batches(compare: Compare, spark: Any, broker: real.Broker) -> None:
    """Goal: 70% of what Spark takes from a Python data source at most."""
    frame = own(spark, broker)
    rows, _, value_bytes = told(frame)
    assert (rows, value_bytes) == (RECORDS, RECORDS * 100)
    tasks = len(plan_partitions(parse_options(
        {"path": str(broker.data_dir), "subscribe": TOPIC})))
    ready = (spark.read.format("ready_made").option("rows", RECORDS).option("tasks", tasks)
             .load())
    assert ready.schema == frame.schema
    assert told(ready)[::2] == (RECORDS, RECORDS * 100)
    compare(f"Spark, all columns to noop, {RECORDS / 1e6:g}M rows", to_noop(frame),
            [Against("ready-made Arrow batches", to_noop(ready), goal=0.7)],
            work=RECORDS / 1e6, unit="Mrows", check=lambda _: None)


def test_beside_spark_kafka(compare: Compare, spark: Any, broker: real.Broker) -> None:
    """Goal: 5 times Spark's own Kafka source from a broker on loopback."""
    jars, why = spark_kafka.jars()
    if not jars:
        pytest.skip(why)
    frame = own(spark, broker)
    kafka = (spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
             .option("subscribe", TOPIC).load())
    assert kafka.schema == frame.schema
    assert told(kafka) == told(frame)
    compare(f"Spark, all columns to noop, {RECORDS / 1e6:g}M rows", to_noop(frame),
            [Against('format("kafka") from a loopback broker', to_noop(kafka), goal=5.0)],
            work=RECORDS / 1e6, unit="Mrows", check=lambda _: None)
