"""Records out of remote segments (KIP-405), against the same segments on the local disk and against
a consumer of the broker that tiered them; and segments into a tier."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.data import START_MS, Log, write_log
from bench.harness import SPARK_JVM, Against, Compare, Timed, equals, pick
from seglog._native.crc32c import crc32c
from seglog.storage import codecs
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import encode_snapshot
from seglog.tiered import (
    LOCAL_TIERED_STORAGE, AivenWriter, LayoutStorageManager, LogSegmentData, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteTree, TopicIdPartition, open_bucket,
)
from seglog.tiered.aiven_writer import zstd_frame
from seglog.tiered.plain_layout import WritableLayout
from tests.kafka import harness as real
from tests.kafka.tiering_broker import tiering

RECORDS = pick(20_000, 2_000_000, 8_000_000)
PARTITION = TopicIdPartition(bytes(range(16)), "orders", 0)
CHUNK = 4 << 20  # Aiven's default
LOCAL_GOAL, COPY_GOAL, SPARK_GOAL, CONSUMER_GOAL = 0.9, 0.7, 0.6, 10.0
CONSUMED = pick(40_000, 1_000_000, 4_000_000)
SEGMENT_BYTES = pick(1 << 20, 16 << 20, 64 << 20)
BROKER_JVM = ["-Xmx768m", "-XX:-UsePerfData"]  # both compilers
LAYOUTS: dict[str, WritableLayout] = {
    "local": LOCAL_TIERED_STORAGE, "aiven": AivenWriter(),
    "aiven, zstd": AivenWriter(compression=True)}


@dataclass(frozen=True)
class Tier:
    """A log on the disk, and as it lies in tiers by layout."""

    log: Log
    roots: dict[str, Path]
    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData


@pytest.fixture(scope="module")
def tier(scratch: Path) -> Tier:
    """One segment of records of 100 B in every layout."""
    log = write_log(scratch / "tiered" / "orders-0", RECORDS)
    epochs = b"0\n1\n0 0\n"
    files = {suffix: log.path.with_suffix(suffix) for suffix in (".timeindex", ".snapshot")}
    files[".timeindex"].touch()
    files[".snapshot"].write_bytes(encode_snapshot(()))
    data = LogSegmentData(os.fspath(log.path), os.fspath(log.path.with_suffix(".index")),
                          os.fspath(files[".timeindex"]), None, os.fspath(files[".snapshot"]),
                          epochs)
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, bytes(16)), 0, log.records - 1, START_MS, 1, START_MS,
        log.size, {0: 0})
    roots = {}
    for name, layout in LAYOUTS.items():
        roots[name] = scratch / "tiered" / base64.b16encode(name.encode()).decode()
        LayoutStorageManager(RemoteTree(roots[name]), layout).copy_log_segment_data(metadata, data)
    return Tier(log, roots, metadata, data)


def read(log: PartitionLog) -> int:
    """Records of a log, all default columns."""
    with log:
        return sum(columns.num_rows for columns in log.to_arrow())


@pytest.mark.parametrize("name", ["local", "aiven", "aiven, zstd"])
def test_read(compare: Compare, tier: Tier, name: str) -> None:
    """All columns by Arrow, from opening on."""
    has_all = equals(tier.log.records)

    def local() -> int:
        return read(PartitionLog.open(tier.log.path.parent))

    others = [Against("local segments", local, goal=None if "zstd" in name else LOCAL_GOAL,
                      check=has_all)]
    if "zstd" in name:
        frames, into = zstd_frames(tier), bytearray(CHUNK)

        def alone() -> int:
            return sum(len(codecs.decompress(codecs.ZSTD, 2, frame, into, max_bytes=CHUNK))
                       for frame in frames)

        others += [Against("its zstd frames alone", alone, check=equals(tier.log.size)),
                   Against("its zstd frames, then local segments",
                           lambda: (alone(), local())[1], goal=LOCAL_GOAL, check=has_all)]
    compare(f"tier, layout {name}: {tier.log.size / 1e6:.0f} MB of records of 100 B",
            lambda: read(open_bucket(tier.roots[name]).log("orders", 0)), others,
            work=tier.log.size / 1e6, unit="MB", check=has_all)


def zstd_frames(tier: Tier) -> list[bytes]:
    """The chunks of the log, each compressed as the layout does."""
    with tier.log.path.open("rb") as stream:
        return [zstd_frame(chunk) for chunk in iter(lambda: stream.read(CHUNK), b"")]


@pytest.mark.parametrize("name", ["local", "aiven"])
def test_copy(compare: Compare, tier: Tier, scratch: Path, name: str) -> None:
    """A closed segment into a tier on the same file system, against cp, a sync and a checksum."""
    target, copied = scratch / "copied", scratch / "cp"

    def ours() -> Path:
        LayoutStorageManager(RemoteTree(target), LAYOUTS[name]).copy_log_segment_data(
            tier.metadata, tier.data)
        log, = target.rglob("*.log")
        return log

    def floor() -> Path:
        subprocess.run(["cp", tier.log.path, copied], check=True)
        with copied.open("rb") as stream:
            os.fsync(stream.fileno())
            value = 0
            while block := stream.read(1 << 20):
                value = crc32c(block, value)
        return copied

    def is_whole(path: Path) -> None:
        assert path.stat().st_size == tier.log.size

    def clear() -> None:
        shutil.rmtree(target, ignore_errors=True)
        copied.unlink(missing_ok=True)

    compare(f"copy a segment of {tier.log.size / 1e6:.0f} MB, layout {name}", ours,
            [Against("cp, fsync and CRC-32C", floor, goal=COPY_GOAL, check=is_whole)],
            work=tier.log.size / 1e6, unit="MB", check=is_whole, before=clear)
    clear()


def test_spark(compare: Compare, tier: Tier, scratch: Path) -> None:
    """A topic of which nothing is local any more, against the same topic on the disk."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'seglog[spark]'")
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark needs a JDK of at least 17")
    import seglog.spark

    left, full = scratch / "left", tier.log.path.parent.parent
    (left / "orders-0").mkdir(parents=True)
    (left / "orders-0" / f"{tier.log.records:020d}.log").touch()
    spark = seglog.spark.session("local[2]", "seglog-bench", {
        "spark.ui.enabled": False, "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": SPARK_JVM,
        "spark.sql.session.timeZone": "UTC"})
    try:
        def frame(path: Path, **options: str) -> Any:
            return (spark.read.format("seglog").options(**options).option("subscribe", "orders")
                    .load(os.fspath(path)))

        def to_noop(one: Any) -> None:
            one.write.format("noop").mode("overwrite").save()

        local, tiered = frame(full), frame(left, remote=os.fspath(tier.roots["local"]))
        assert local.count() == tiered.count() == tier.log.records
        compare(f"Spark, a tier of {tier.log.records / 1e6:g}M rows to noop",
                lambda: to_noop(tiered),
                [Against("local segments", lambda: to_noop(local), goal=SPARK_GOAL)],
                work=tier.log.records / 1e6, unit="Mrows", rounds=3)
    finally:
        spark.stop()


@pytest.fixture(scope="module")
def tiered_topic(scratch: Path) -> Iterator[tuple[real.Broker, int]]:
    """A broker, and the end of what is in its LocalTieredStorage and no longer on its disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "_JVM", pick(real._JVM, BROKER_JVM, BROKER_JVM))
        with real.required():
            broker = tiering(scratch / "broker")
            broker.start()
        try:
            with real.Client(broker.bootstrap) as client:
                client.create_topic("orders", 1, {
                    "remote.storage.enable": "true", "local.retention.bytes": "1",
                    "retention.ms": "-1", "segment.bytes": str(SEGMENT_BYTES),
                    "file.delete.delay.ms": "500"})
            real.run("org.apache.kafka.tools.ProducerPerformance", "--topic", "orders",
                     "--num-records", str(CONSUMED), "--record-size", "100", "--throughput", "-1",
                     "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1",
                     "linger.ms=5")
            directory, deadline = broker.data_dir / "orders-0", time.monotonic() + 300
            while len(logs := sorted(directory.glob("*.log"))) > 1:
                assert time.monotonic() < deadline, "the broker did not tier in 5 minutes"
                time.sleep(0.2)
            yield broker, int(logs[0].stem)
            broker.stop()
        finally:
            broker.kill()


def test_beside_a_consumer(compare: Compare, tiered_topic: tuple[real.Broker, int]) -> None:
    """Goal: 10 times Kafka's own consumer, of the same remote segments from the broker that tiered
    them. The consumer counts from its first fetch, its start does not count."""
    broker, end = tiered_topic

    def consumer() -> Timed:
        told = real.run("org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server",
                        broker.bootstrap, "--topic", "orders", "--num-records", str(end),
                        "--group", os.urandom(8).hex(), timeout=900)
        names, values = (line.split(", ") for line in told.strip().splitlines()[-2:])
        row = dict(zip(names, values, strict=True))
        return Timed(int(row["fetch.time.ms"]) / 1000, int(row["data.consumed.in.nMsg"]))

    def has_all(records: int) -> None:
        assert records >= end

    compare(f"tier of a broker, {end / 1e6:.1f}M records of 100 B",
            lambda: read(open_bucket(broker.home / "remote").log("orders", 0)),
            [Against("Kafka's consumer of that broker", consumer, goal=CONSUMER_GOAL, once=True,
                     check=has_all)],
            work=end / 1e6, unit="Mrecords", check=has_all)
