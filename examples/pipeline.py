"""Turns a dead broker's disk into tables, and a changed topic into a log that a broker serves.

    python examples/pipeline.py [DIRECTORY]

In a clone of seglog the disk is that of a real broker that was killed; elsewhere the program makes
one. DIRECTORY keeps the output: a recovered copy, Parquet, a picture, and the data directory with
the new topic. Needs seglog[spark] and Java 17; the last step needs a clone.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seglog
import seglog.spark
from seglog.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CLONE = Path(__file__).resolve().parents[1]
SUMMARY = """
    SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS records,
           count(DISTINCT key) AS keys, coalesce(sum(length(value)), 0) AS value_bytes,
           min(timestamp) AS first, max(timestamp) AS last
    FROM records GROUP BY topic ORDER BY records DESC, topic"""
REDACTED = """
    SELECT key, sha2(value, 256) AS value, timestamp, headers
    FROM records WHERE topic = '{topic}' ORDER BY partition, offset"""


class Bar(seglog.LoadListener):
    """A progress bar of verified segments on a terminal."""

    def __init__(self) -> None:
        self.segments = self.verified = 0

    def segments_listed(self, directory: str, count: int) -> None:
        self.segments += count

    def segments_verified(self, directory: str, count: int, size: int, thread: int) -> None:
        self.verified += count
        if sys.stderr.isatty():
            filled = 30 * self.verified // max(self.segments, 1)
            bar = f"{'#' * filled}{'.' * (30 - filled)}"
            print(f"\r  [{bar}] {self.verified}/{self.segments} segments", file=sys.stderr,
                  end="\n" if self.verified >= self.segments else "", flush=True)


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def dead_disk(work: Path) -> Path:
    """The data directory of a killed broker."""
    golden = CLONE / "tests" / "golden" / "golden.tar.xz"
    if golden.is_file():
        with tarfile.open(golden) as archive:
            archive.extractall(work, filter="data", members=[
                member for member in archive if "real/unclean/" in member.name])
        return work / "real" / "unclean"
    from seglog.cli.demo_data import make_directories

    make_directories(work)
    return work / "unclean"


def verify(disk: Path) -> None:
    """Reads every batch and every index, and writes nothing."""
    title("1. The disk, every batch checked")
    with seglog.open_data_dir(disk, level="verify", num_segment_loading_threads=2,
                              listener=Bar()) as data:
        counts = data.report.severity_counts
        print(f"  {len(data.logs)} partitions; findings: {counts}")


def recover(disk: Path, copy: Path) -> None:
    """Recovers a copy as a broker's start would."""
    title("2. A copy, recovered")
    shutil.copytree(disk, copy)
    with seglog.LogManager(copy) as manager:
        print(f"  {len(manager.all_logs)} logs; done: {manager.load_reports[str(copy)].counts}")


def summarize(spark: SparkSession, copy: Path, parquet: Path) -> list[Row]:
    """Summarizes each topic in one row with SQL, and writes the rows as Parquet."""
    title("3. SQL over the records, aggregated to Parquet")
    rows = spark.read.format("seglog").option("includeHeaders", True).load(str(copy))
    rows.createOrReplaceTempView("records")
    spark.sql(SUMMARY).coalesce(1).write.parquet(str(parquet))
    summary = spark.read.parquet(str(parquet))
    summary.orderBy("records", ascending=False).drop("first", "last").show(truncate=False)
    return summary.orderBy("records", "topic", ascending=[False, True]).collect()


def draw(summary: list[Row], picture: Path) -> None:
    """Draws records by topic as bars in the terminal and as an SVG."""
    title(f"4. A picture: {picture}")
    most, lines = max(row.records for row in summary), []
    for number, row in enumerate(summary):
        print(f"  {row.topic:24} {'█' * max(1, 40 * row.records // most)} {row.records}")
        y, width = 24 * number, max(1, 400 * row.records // most)
        lines.append(f'<text x="190" y="{y + 15}" text-anchor="end">{escape(row.topic)}</text>'
                     f'<rect x="200" y="{y + 3}" width="{width}" height="16" fill="#2a6f97"/>'
                     f'<text x="{206 + width}" y="{y + 15}">{row.records:,}</text>')
    picture.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{24 * len(summary)}" '
        f'font-family="sans-serif" font-size="12">\n' + "\n".join(lines) + "\n</svg>\n")


def write_back(spark: SparkSession, topic: str, name: str, target: Path) -> DataFrame:
    """Writes a new topic with the SHA-256 of each value of the old one."""
    title(f"5. {topic} with hashed values, written as {name} into {target}")
    changed = spark.sql(REDACTED.format(topic=topic))
    (changed.write.format("seglog").mode("append").option("topic", name)
     .option("num.partitions", 2).option("compression.type", "zstd").save(str(target)))
    written = spark.read.format("seglog").option("subscribe", name).load(str(target))
    print(f"  {written.count()} records written")
    with seglog.open_data_dir(target, level="verify") as data:
        problems = [found for found in data.report.findings
                    if (found.directory or "").startswith(name)]
        print(f"  verified: {len(problems)} findings")
    return written


def stopped_broker(home: Path, topic: str) -> Any:
    """A stopped real broker that has the topic; prints why and returns None if there is none."""
    sys.path.append(str(CLONE))
    try:
        from tests.kafka.harness import Broker, Client, KafkaUnavailable
    except ImportError:
        print("  no broker: one comes with a clone of seglog (tests/kafka)")
        return None
    broker = Broker(home)
    try:
        with broker, Client(broker.bootstrap) as client:
            client.create_topic(topic, partitions=2)
            broker.stop()
    except KafkaUnavailable as error:
        print(f"  no broker: {error}")
        return None
    return broker


def serve(broker: Any, topic: str, written: DataFrame) -> None:
    """Starts the broker on the directory and consumes the records that Spark wrote."""
    from tests.kafka.harness import Client

    with broker, Client(broker.bootstrap) as client:
        served = sorted((p, row["offset"], row["key"], row["value"])
                        for p in range(2) for row in client.consume(topic, p))
        broker.stop()
    ours = sorted((row.partition, row.offset, row.key and bytes(row.key), bytes(row.value))
                  for row in written.dropna(subset="value").collect())
    same = [row for row in served if row[3] is not None] == ours
    print(f"  a consumer got {len(served)} records, {'the same' if same else 'OTHERS'}")


def main(work: Path) -> None:
    """Runs all steps; each run starts over."""
    for name in ("real", "unclean", "copy", "summary.parquet", "broker", "target"):
        shutil.rmtree(work / name, ignore_errors=True)
    disk, copy = dead_disk(work), work / "copy"
    verify(disk)
    recover(disk, copy)
    try:
        spark = seglog.spark.session("local[2]", "pipeline", {"spark.ui.enabled": False,
                                                              "spark.sql.shuffle.partitions": 2})
    except SparkSetupError as error:
        sys.exit(f"The rest is left out. {error}")
    summary = summarize(spark, copy, work / "summary.parquet")
    draw(summary, work / "records.svg")
    topic = summary[0].topic
    title("   A broker for the new topic")
    broker = stopped_broker(work / "broker", f"{topic}-hashed")
    target = work / "target" if broker is None else broker.data_dir
    written = write_back(spark, topic, f"{topic}-hashed", target)
    if broker is not None:
        title("6. A real broker, started on it")
        serve(broker, f"{topic}-hashed", written)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
