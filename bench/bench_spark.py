"""Reads and writes of a topic with Spark, local[2].

Reads into `noop`: format("seglog"), a source that returns ready-made Arrow batches, and
format("kafka") from a broker on the same data. Writes: format("seglog") to a data directory,
format("kafka") to the broker.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness import SPARK_JVM, Against, Compare, equals, pick
from bench.peers import spark_kafka
from bench.pinned import pinned_spark
from tests.kafka import harness as real

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seglog[spark]'")

import pyspark

import seglog.spark
from bench.data import START_MS, write_log, write_records
from bench.peers.ready_made import ReadyMade
from seglog.config import LoadConfig
from seglog.recovery.loader import LoadOptions, load_directory
from seglog.recovery.partition_plan import LoadLevel
from seglog.spark import count, verify
from seglog.spark.filters import enable_pushdown
from seglog.spark.source import SeglogDataSource

RECORDS = pick(20_000, 1_000_000, 20_000_000)
WRITTEN = pick(20_000, 1_000_000, 4_000_000)
MANY, MANY_PARTITIONS = pick(20_000, 10_000_000, 100_000_000), 4
TOPIC, PARTITIONS = "bench", 2
ROOT = Path(__file__).resolve().parents[1]
#: The measured broker uses both compilers and as much memory as the machine can spare.
BROKER_JVM = ["-Xmx768m", "-XX:-UsePerfData"]


@pytest.fixture(scope="module")
def broker(scratch: Path) -> Iterator[real.Broker]:
    """A broker with RECORDS records of 100 B, written with Kafka's own performance tool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "_JVM", pick(real._JVM, BROKER_JVM, BROKER_JVM))
        with real.required():
            one = real.Broker(scratch / "broker")
            one.start()
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
    """A Spark session on two cores, with Spark's Kafka source if its jars are available."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    # Workers import bench from this directory, and seglog from this process's path.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    jars, _ = spark_kafka.jars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = seglog.spark.session("local[2]", "seglog-bench", {
            "spark.ui.enabled": False, "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": SPARK_JVM,
            "spark.sql.session.timeZone": "UTC", "spark.jars": ",".join(map(str, jars))})
    session.dataSource.register(ReadyMade)
    yield session
    session.stop()


def to_noop(frame: Any) -> Callable[[], None]:
    """Reads every row and column and discards them."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def checksum_of(frame: Any) -> tuple[int, int, int]:
    """The number of rows, the sum of offsets, and the sum of value sizes."""
    row = frame.selectExpr("count(*)", "sum(offset)", "sum(octet_length(value))").collect()[0]
    return int(row[0]), int(row[1]), int(row[2])


def own(spark: Any, broker: real.Broker) -> Any:
    return spark.read.format("seglog").option("subscribe", TOPIC).load(str(broker.data_dir))


@pytest.fixture(scope="module")
def many(scratch: Path) -> Iterator[Path]:
    """A directory of MANY records of 100 B in batches of 16 KiB, one record a millisecond."""
    root = scratch / "many"
    write_records(root, TOPIC, MANY, MANY_PARTITIONS)
    yield root
    shutil.rmtree(root)


def load(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("seglog").options(**options).load(str(path))


def test_columns(compare: Compare, spark: Any, many: Path) -> None:
    """Goal: two numeric columns in a quarter of the time of all columns. Also compares with
    ready-made batches, Spark's upper limit."""
    few, full = load(spark, many, columns="offset,timestamp"), load(spark, many)
    assert few.selectExpr("sum(offset)").collect() == full.selectExpr("sum(offset)").collect()
    ready = ready_made(spark, MANY, tasks_of({"path": str(many), "columns": "offset,timestamp"}),
                       columns="offset,timestamp")
    assert ready.schema == few.schema
    compare(f"Spark, columns=offset,timestamp to noop, {MANY / 1e6:g}M rows", to_noop(few),
            [Against("all columns", to_noop(full), goal=4.0),
             Against("ready-made Arrow batches of these two", to_noop(ready), goal=0.95)],
            work=MANY / 1e6, unit="Mrows", rounds=3)


def tasks_of(options: dict[str, str]) -> int:
    """The number of tasks of a seglog read."""
    reader = SeglogDataSource(options)
    return len(reader.reader(reader.schema()).partitions())


def ready_made(spark: Any, rows: int, tasks: int, **options: str) -> Any:
    return (spark.read.format("ready_made").options(**options).option("rows", rows)
            .option("tasks", tasks).load())


@pytest.mark.parametrize("column", ["offset", "timestamp", "newest timestamp"])
def test_one_percent(compare: Compare, spark: Any, many: Path, column: str) -> None:
    """Goal: a filter on the middle or newest 1% in a thirtieth of the time of all rows."""
    if not enable_pushdown(spark):
        pytest.skip("this Spark pushes no filters into Python data sources")
    each = MANY // MANY_PARTITIONS
    first = each - each // 100 if column.startswith("newest") else each // 2
    last = first + each // 100
    full = load(spark, many)
    query = f"offset >= {first} AND offset < {last}"
    if column != "offset":
        query = (f"timestamp >= timestamp_millis({START_MS + first}) AND "
                 f"timestamp < timestamp_millis({START_MS + last})")
    one = load(spark, many).where(query)
    assert one.count() == (last - first) * MANY_PARTITIONS
    compare(f"Spark, 1% by {column} to noop, of {MANY / 1e6:g}M rows", to_noop(one),
            [Against("all rows", to_noop(full), goal=30.0)], work=MANY / 1e6, unit="Mrows",
            rounds=3)


def test_count(compare: Compare, spark: Any, many: Path) -> None:
    """Goal: 50 times a count of rows, and under a second for 100M rows."""
    frame = load(spark, many)
    compare(f"Spark, count by headers, {MANY / 1e6:g}M rows",
            lambda: count(spark, str(many)).records,
            [Against("df.count()", frame.count, goal=50.0)], work=MANY / 1e6, unit="Mrows",
            check=equals(MANY), rounds=3)


def test_beside_ready_made_batches(compare: Compare, spark: Any, broker: real.Broker) -> None:
    """Goal: 95% of Spark's upper limit for a Python data source."""
    frame = own(spark, broker)
    rows, _, value_bytes = checksum_of(frame)
    assert (rows, value_bytes) == (RECORDS, RECORDS * 100)
    ready = ready_made(spark, RECORDS, tasks_of({"path": str(broker.data_dir),
                                                 "subscribe": TOPIC}))
    assert ready.schema == frame.schema
    assert checksum_of(ready)[::2] == (RECORDS, RECORDS * 100)
    compare(f"Spark, all columns to noop, {RECORDS / 1e6:g}M rows", to_noop(frame),
            [Against("ready-made Arrow batches", to_noop(ready), goal=0.95)],
            work=RECORDS / 1e6, unit="Mrows", rounds=3)


def test_beside_spark_kafka(compare: Compare, spark: Any, broker: real.Broker) -> None:
    """Goal: 4 times Spark's own Kafka source from a broker on the loopback."""
    jars, why = spark_kafka.jars()
    if not jars:
        pytest.skip(why)
    frame = own(spark, broker)
    kafka = (spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
             .option("subscribe", TOPIC).load())
    assert kafka.schema == frame.schema
    assert checksum_of(kafka) == checksum_of(frame)
    compare(f"Spark, all columns to noop, {RECORDS / 1e6:g}M rows", to_noop(frame),
            [Against('format("kafka") from a loopback broker', to_noop(kafka), goal=4.0)],
            work=RECORDS / 1e6, unit="Mrows", rounds=3)


def test_writing_beside_the_kafka_sink(compare: Compare, spark: Any, broker: real.Broker,
                                       scratch: Path) -> None:
    """Goal: 3 times Spark's own Kafka sink into a broker on the loopback (acks=1; ours is synced).
    The rows are cached before, so that only the sinks are compared."""
    jars, why = spark_kafka.jars()
    if not jars:
        pytest.skip(why)
    target, topic = scratch / "written", "written"
    with real.Client(broker.bootstrap) as client:
        client.create_topic(topic, PARTITIONS)
    frame = spark.range(0, WRITTEN, 1, PARTITIONS).selectExpr(
        "cast(id as string) AS key", "rpad(cast(id as string), 100, 'x') AS value").persist()
    assert frame.count() == WRITTEN
    sink = frame.write.mode("append").option("topic", topic)

    def ours() -> None:
        shutil.rmtree(target, ignore_errors=True)
        (sink.format("seglog").option("num.partitions", PARTITIONS).save(str(target)))

    def kafka() -> None:
        (sink.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
         .option("kafka.acks", "1").save())

    ours()
    assert spark.read.format("seglog").load(str(target)).count() == WRITTEN
    compare(f"Spark, writing {WRITTEN / 1e6:g}M rows with keys", ours,
            [Against('format("kafka") into a loopback broker', kafka, goal=3.0)],
            work=WRITTEN / 1e6, unit="Mrows")
    frame.unpersist()


#: Records of 100 B values, about 112 B each in the file: 4 GiB.
ONE_PARTITION = pick(20_000, 10_000_000, 38_000_000)


@pytest.fixture(scope="module")
def one_partition(scratch: Path) -> Iterator[Path]:
    """A directory with one partition of ONE_PARTITION records."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    root = scratch / "one"
    write_records(root, TOPIC, ONE_PARTITION, 1)
    yield root
    shutil.rmtree(root)


is_all = equals(ONE_PARTITION)


def measure_of(root: Path) -> str:
    size = sum(log.stat().st_size for log in root.glob("*/*.log"))
    return f"Spark, all columns of one partition of {size / 2**30:.1f} GiB"


def test_two_cores(compare: Compare, one_partition: Path) -> None:
    """Goal: 1.7 times one core on one partition, with Spark and its workers pinned to the CPUs."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cpus) < 2:
        pytest.skip("there are no two CPUs to pin to")
    with pinned_spark(cpus[:1], one_partition) as one, pinned_spark(cpus[:2], one_partition) as two:
        compare(f"{measure_of(one_partition)}, 2 cores", two.read_all,
                [Against("1 core", one.read_all, goal=1.7, check=is_all)],
                work=ONE_PARTITION / 1e6, unit="Mrows", check=is_all, rounds=3)


def test_sockets(compare: Compare, one_partition: Path) -> None:
    """The gain from unix domain sockets between the JVM and Python, which `session` sets."""
    if pyspark.__version__ < "4.1":
        pytest.skip("this Spark has no unix domain sockets to its workers")
    cpus = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else [0, 1]
    without = {"spark_python_unix_domain_socket_enabled": "false"}
    with (pinned_spark(cpus, one_partition) as unix,
          pinned_spark(cpus, one_partition, **without) as tcp):
        compare(f"{measure_of(one_partition)}, unix domain sockets", unix.read_all,
                [Against("TCP on the loopback", tcp.read_all, check=is_all)],
                work=ONE_PARTITION / 1e6, unit="Mrows", check=is_all, rounds=3)


SCRUB_RECORDS, SCRUB_PARTITIONS = pick(20_000, 2_000_000, 4_000_000), pick(2, 32, 64)


@pytest.fixture(scope="module")
def scrubbed(scratch: Path) -> Path:
    """A data directory after a clean shutdown. Its partitions are links to one log, so everything
    stays in the page cache and the disk is not measured."""
    root = scratch / "scrub"
    first = write_log(root / "t-0", SCRUB_RECORDS).path.parent
    for number in range(1, SCRUB_PARTITIONS):
        (root / f"t-{number}").mkdir()
        for file in first.iterdir():
            os.link(file, root / f"t-{number}" / file.name)
    (root / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return root


def test_scrub_job(compare: Compare, spark: Any, scrubbed: Path) -> None:
    """Goal: 0.7 of the native scrub in one process, with two threads and two task slots."""
    options = LoadOptions(LoadLevel.VERIFY, LoadConfig(num_segment_loading_threads_per_data_dir=2))
    size = sum(log.stat().st_size for log in scrubbed.glob("*/*.log"))

    def alone() -> Any:
        return load_directory(str(scrubbed), options).report

    def spread() -> Any:
        [report] = verify(spark, scrubbed).reports
        return report

    assert list(alone().findings) == list(spread().findings)
    compare(f"Spark, scrub of {size / 1e9:.1f} GB on 2 cores", spread,
            [Against("seglog verify, 2 threads of one process", alone, goal=0.7)],
            work=size / 1e9, unit="GB")
