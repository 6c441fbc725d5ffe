"""What a type checker makes of the public names: checked by `make typecheck`, never run.

`assert_type` holds what is inferred. An ignored error holds what must be refused: mypy complains
about an ignore that ignores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import seglog
from seglog.config import BrokerConfig, LoadConfig, LogConfig
from seglog.errors import CorruptRecordError, SeglogError
from seglog.metrics import Gauge, MetricsRegistry, Timer
from seglog.model import OpenTransaction
from seglog.storage.batches import BatchHeader, FetchData
from seglog.storage.ranges import LogGap


def opening(path: Path) -> None:
    assert_type(seglog.PartitionLog.open(path), seglog.PartitionLog)
    assert_type(seglog.PartitionLog.open("orders-0", max_open_segments=8), seglog.PartitionLog)
    with seglog.PartitionLog.open(path, read_only=True) as log:
        assert_type(log, seglog.PartitionLog)
        assert_type(log.path, str)
        assert_type(log.topic_partition, seglog.TopicPartition | None)
        assert_type(log.topic_id, str | None)
    seglog.PartitionLog.open(path, read_only=False)  # type: ignore[arg-type]
    seglog.PartitionLog.open(path, True)  # type: ignore[call-arg]
    seglog.PartitionLog.open(17)  # type: ignore[arg-type]



async def embedding(path: Path) -> None:
    with seglog.open(path, durability="append", config={"retention.ms": 1000}) as log:
        assert_type(log, seglog.EmbeddedLog)
        assert_type(log.append(b"value", key=None, headers=[("h", None)]), int)
        assert_type(log.append_many([b"v", (b"k", b"v"), None]), range)
        assert_type(log.latest(b"k"), bytes | None)
        assert_type(log.keys(), list[bytes])
        assert_type(log.compact()[0].messages_written, int)
        assert_type(next(log.records()).value, bytes | None)
        for event in log.follow(0, timeout=1.5).records():
            assert_type(event, seglog.Record)
        async for batch in log.follow_async(isolation="read_committed"):
            assert_type(batch.num_rows, int)
        async for one in log.follow_async(0).records():
            assert_type(one, seglog.Record)
        with log.transaction() as transaction:
            assert_type(transaction.append(bytearray(b"v"), headers=[("h", b"v")]), int)
            transaction.append_many(["text"])  # type: ignore[list-item]
    seglog.open(path, durability="always")  # type: ignore[arg-type]
    log.append("text")  # type: ignore[arg-type]
    log.to_arrow(isolation="committed")  # type: ignore[arg-type]


def offsets(log: seglog.PartitionLog) -> None:
    assert_type(log.log_start_offset, int)
    assert_type(log.log_end_offset, int)
    assert_type(log.last_stable_offset, int)
    assert_type(log.open_transactions, tuple[OpenTransaction, ...])
    assert_type(log.gaps, tuple[LogGap, ...])
    assert_type(log.offset_for_timestamp(1_700_000_000_000), seglog.TimestampOffset | None)
    log.log_end_offset = 3  # type: ignore[misc]


def reading(log: seglog.PartitionLog) -> None:
    stream = log.to_arrow(10, 20, ["offset", "value"], "read_committed", threads=2)
    assert_type(stream, seglog.RecordBatchStream)
    for columns in stream:
        assert_type(columns.num_rows, int)
        assert_type(columns.columns, tuple[str, ...])
    assert_type(log.batches(), Iterator[BatchHeader])
    assert_type(log.fetch(0, 1 << 20), FetchData)
    assert_type(log.ranges(64 << 20), list[seglog.LogRange])
    log.to_arrow(isolation="serializable")  # type: ignore[arg-type]
    log.to_arrow(columns="value", threads="2")  # type: ignore[arg-type]


def reading_any_log(directory: seglog.PartitionLog, program: seglog.EmbeddedLog) -> None:
    readers: list[seglog.LogReader] = [directory, program, program.log]
    for reader in readers:
        assert_type(reader.topic_partition, seglog.TopicPartition | None)
        assert_type(reader.last_stable_offset, int)
        assert_type(reader.fetch(0, 1 << 20, "read_committed"), FetchData)
        assert_type(reader.to_arrow(0, 9, ["key"], "log_end", threads=2), seglog.RecordBatchStream)
        assert_type(next(reader.records(0, isolation="read_committed")).key, bytes | None)
        assert_type(reader.offset_for_timestamp(-1), seglog.TimestampOffset | None)
        with reader.follow(0, timeout=1.5, columns=["value"]) as records:
            for columns in records:
                assert_type(columns.num_rows, int)
            assert_type(next(records.records()), seglog.Record)
        reader.log_end_offset = 3  # type: ignore[misc]
    readers.append(directory.segments)  # type: ignore[arg-type]


def values(partition: seglog.TopicPartition) -> None:
    assert_type(partition.topic, str)
    assert_type(partition.partition, int)
    assert_type(sorted([partition]), list[seglog.TopicPartition])
    partition.topic = "other"  # type: ignore[misc]


def errors(error: CorruptRecordError) -> None:
    assert_type(error.file, str | None)
    assert_type(error.position, int | None)
    assert_type(error.code, str)
    base: SeglogError = error
    builtin: ValueError = error
    assert_type(seglog.__version__, str)
    print(base, builtin)


def settings(path: Path) -> None:
    broker = BrokerConfig.from_file(path)
    assert_type(broker, BrokerConfig)
    load: LoadConfig = broker
    assert_type(load.num_segment_loading_threads_per_data_dir, int)
    assert_type(broker.data_dirs, tuple[str, ...])
    assert_type(broker.log_config({"segment.bytes": "2000000"}), LogConfig)
    assert_type(LogConfig.from_properties({"preallocate": True}).cleanup_policy, tuple[str, ...])
    assert_type(LogConfig().internal_segment_bytes, int | None)
    LogConfig(segment_bytes="large")  # type: ignore[arg-type]
    LogConfig().preallocate = True  # type: ignore[misc]


def metrics(registry: MetricsRegistry) -> None:
    group = registry.group("kafka.log", "LogManager")
    assert_type(group.gauge("OfflineLogDirectoryCount", lambda: 3, {"dir": "/d"}), Gauge[int])
    assert_type(group.timer("LogFlushRateAndTimeMs"), Timer)
    assert_type(registry.snapshot(), dict[str, dict[str, object]])
    group.gauge("OfflineLogDirectoryCount", 3)  # type: ignore[arg-type]
