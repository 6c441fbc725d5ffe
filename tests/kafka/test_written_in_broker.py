"""A data directory that seglog wrote, taken over by a broker, and back.

A broker makes the topics and stops. A LogManager writes to them: all codecs, idempotent producers,
transactions, segments rolled for every reason, preallocated, truncated, retained, and one topic
deleted; one more is written by `seglog.open`. The broker then starts without recovery, its
consumers see exactly what was written, its tools find nothing, it appends on, and seglog takes the
directory back.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from seglog import LogManager
from seglog.config import LogConfig
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.column_batches import encode_spans
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TopicPartition
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.markers import ControlType
from tests.kafka import harness, workload
from tests.kafka.harness import Broker, Client
from tests.support import reading

pytestmark = pytest.mark.judge

Row = dict[str, Any]

ISOLATIONS = ("read_uncommitted", "read_committed")
SMALL = {**workload.SMALL, "retention.ms": "-1"}
TOPICS: dict[str, dict[str, str]] = {
    "codecs": SMALL,
    "columns": {**SMALL, "compression.type": "producer"},
    "recompressed": {**SMALL, "compression.type": "lz4"},
    "append-time": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "idempotent": SMALL,
    "transactional": SMALL,
    "hanging": SMALL,
    "by-time": {**SMALL, "segment.ms": "60000"},
    "by-index": {**SMALL, "index.interval.bytes": "1", "segment.index.bytes": "96"},
    "by-offset": SMALL,
    "preallocated": {**SMALL, "preallocate": "true"},
    "truncated": SMALL,
    "emptied": SMALL,
    "retained": {**SMALL, "retention.bytes": "40000"},
    "started": SMALL,
    "embedded": SMALL,
    "untouched": SMALL,
    "deleted": SMALL,
}
WRITTEN = [topic for topic in TOPICS if topic not in ("untouched", "deleted")]
NOW = time.time_ns() // 1_000_000 - 3_600_000


@dataclass
class Writer:
    """One log, and what consumers must get from it."""

    log: UnifiedLog
    random: random.Random
    rows: list[Row] = field(default_factory=list)
    #: By producer, the offsets of its open transaction.
    open: dict[int, list[int]] = field(default_factory=dict)
    #: Those that ended: producer, offsets, offset of the marker, whether it was a commit.
    ended: list[tuple[int, list[int], int, bool]] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    #: Below the log start offset; the first segment may still have some of them.
    below_start: list[int] = field(default_factory=list)
    #: First and last offset.
    batches: list[tuple[int, int]] = field(default_factory=list)
    clock: int = NOW

    @property
    def epoch(self) -> int:
        latest = self.log.leader_epochs.latest
        return 0 if latest is None else latest.epoch

    def records(self, count: int) -> list[Row]:
        found = workload.records(self.random, count)
        for record in found:
            self.clock += self.random.randint(0, 20)
            record["timestamp"] = self.clock - self.random.choice([0, 0, 5000])
        return found

    def build(self, records: list[Row], **options: Any) -> bytes:
        builder = RecordBatchBuilder(**options)
        for record in records:
            builder.append(record["timestamp"], record["key"], record["value"], record["headers"])
        return builder.build()

    def note(self, records: list[Row], offset: int, timestamp: int | None = None) -> None:
        self.rows += [{
            "offset": offset + number, "key": record["key"], "value": record["value"],
            "timestamp": record["timestamp"] if timestamp is None else timestamp,
            "timestamp_type": int(timestamp is not None),
            "headers": [{"key": key, "value": value} for key, value in record["headers"]]}
            for number, record in enumerate(records)]

    def append(self, count: int = 0, *, producer: int = -1, transactional: bool = False,
               codec: str | None = None) -> bytes:
        """A batch of so many records; its bytes."""
        records = self.records(count or self.random.randint(1, 30))
        options: dict[str, Any] = {"codec": codec or self.random.choice(CODEC_NAMES)}
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            options |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence,
                        "is_transactional": transactional}
            self.sequences[producer] = sequence + len(records)
        batch, guard = self.build(records, **options), None
        if transactional:  # what a broker does before it asks the coordinator
            guard = self.log.producer_manager.maybe_start_transaction_verification(
                producer, options["base_sequence"], 0, False)
        info = self.log.append_as_leader(batch, self.epoch, verification_guard=guard)
        assert info.last_offset - info.first_offset == len(records) - 1
        if transactional:
            self.open.setdefault(producer, []).extend(
                range(info.first_offset, info.last_offset + 1))
        self.batches.append((info.first_offset, info.last_offset))
        stamped = info.log_append_time if info.log_append_time >= 0 else None
        self.note(records, info.first_offset, stamped)
        return batch

    def end(self, producer: int, *, commit: bool) -> None:
        marker = end_transaction_marker(
            producer, 0, ControlType.COMMIT if commit else ControlType.ABORT,
            timestamp=self.clock, coordinator_epoch=0)
        info = self.log.append_as_leader(marker, self.epoch, origin=AppendOrigin.COORDINATOR,
                                         transaction_version=1)
        self.ended.append((producer, self.open.pop(producer), info.first_offset, commit))

    def cut(self, start: int, end: int) -> None:
        """The log is no more than [start, end): a transaction without its marker is open again."""
        self.below_start += [row["offset"] for row in self.rows if row["offset"] < start]
        self.rows = [row for row in self.rows if start <= row["offset"] < end]
        ended, self.ended = self.ended, []
        for producer, offsets, marker, commit in ended:
            if marker < end:
                self.ended.append((producer, offsets, marker, commit))
            elif offsets[0] < end:
                self.open[producer] = [offset for offset in offsets if offset < end]

    def expected(self, isolation: str) -> list[Row]:
        if isolation == "read_uncommitted":
            return self.rows
        aborted = {offset for _, offsets, _, commit in self.ended if not commit
                   for offset in offsets}
        stable = min((offset for offsets in self.open.values() for offset in offsets),
                     default=self.log.log_end_offset)
        return [row for row in self.rows
                if row["offset"] < stable and row["offset"] not in aborted]


# ---- what is written, by topic -------------------------------------------------------------------

def codecs(writer: Writer) -> None:
    for codec in CODEC_NAMES * 6:
        writer.append(codec=codec)


def columns(writer: Writer) -> None:
    for codec in CODEC_NAMES:
        records = [{"timestamp": writer.clock + n, "key": b"%d" % n if n % 3 else None,
                    "value": b"v" * (n % 200), "headers": []} for n in range(500)]
        given = {"key": [record["key"] for record in records],
                 "value": [record["value"] for record in records],
                 "timestamp": np.arange(500) + writer.clock}
        first = writer.log.log_end_offset
        for span in encode_spans(given, codec=codec, max_batch_bytes=2000, span_bytes=16384):
            writer.log.append_each_as_leader(span, writer.epoch)
        writer.note(records, first)
        writer.clock += 500


def many(writer: Writer) -> None:
    for _ in range(40):
        writer.append()


def idempotent(writer: Writer) -> None:
    for number in range(40):
        batch = writer.append(producer=500 + number % 3)
        if number % 5 == 0:  # a producer that heard no answer: nothing is written again
            end = writer.log.log_end_offset
            writer.log.append_as_leader(batch, writer.epoch)
            assert writer.log.log_end_offset == end


def transactional(writer: Writer) -> None:
    for _ in range(80):
        producer = writer.random.randrange(900, 904)
        if producer in writer.open and writer.random.random() < .4:
            writer.end(producer, commit=writer.random.random() < .5)
        elif writer.random.random() < .2:
            writer.append(3)
        else:
            writer.append(producer=producer, transactional=True)
    for producer in sorted(writer.open):
        writer.end(producer, commit=producer % 2 == 0)


def hanging(writer: Writer) -> None:
    writer.append()
    writer.append(producer=77, transactional=True)
    writer.end(77, commit=False)
    writer.append(producer=78, transactional=True)
    writer.append()


def by_time(writer: Writer) -> None:
    for _ in range(12):
        writer.append(3)
        writer.clock += 25_000


def by_offset(writer: Writer) -> None:
    many(writer)
    for _ in range(2):
        records = writer.records(4)
        offset = writer.log.log_end_offset + 2**31
        writer.log.append_as_follower(writer.build(
            records, base_offset=offset, partition_leader_epoch=writer.epoch), writer.epoch)
        writer.note(records, offset)
    writer.append()


def preallocated(writer: Writer) -> None:
    many(writer)
    writer.log.roll()
    writer.append()


def truncated(writer: Writer) -> None:
    transactional(writer)
    # As in Kafka a batch that holds the offset goes whole, and the log ends at the offset all the
    # same.
    first, last = next((first, last) for first, last in writer.batches[len(writer.batches) // 2:]
                       if last > first)
    offset = (first + last + 1) // 2
    assert writer.log.truncate_to(offset) and writer.log.log_end_offset == offset
    writer.cut(0, first)
    assert first < offset and writer.open
    for producer in sorted(writer.open):  # as a coordinator ends what timed out
        writer.end(producer, commit=False)
    many(writer)


def emptied(writer: Writer) -> None:
    many(writer)
    writer.log.truncate_fully_and_start_at(5000)
    writer.rows = []
    writer.append()


def retained(writer: Writer) -> None:
    many(writer)
    many(writer)
    writer.log.update_high_watermark(writer.log.log_end_offset)
    assert writer.log.delete_old_segments() > 0
    writer.cut(writer.log.log_start_offset, 2**63)


def started(writer: Writer) -> None:
    many(writer)
    start = writer.rows[len(writer.rows) // 2 + 1]["offset"]
    writer.log.update_high_watermark(writer.log.log_end_offset)
    assert writer.log.maybe_increment_log_start_offset(
        start, StartOffsetReason.CLIENT_RECORD_DELETION)
    writer.log.delete_old_segments()
    writer.cut(start, 2**63)


def embedded(data_dir: Path) -> Writer:
    """What a program writes with `seglog.open`, before the manager has the directory."""
    with seglog.open(data_dir / "embedded-0", config=SMALL, batch_bytes=3000) as log:
        writer = Writer(log.log, random.Random("embedded"))

        def given(count: int) -> list[tuple[Any, ...]]:
            records = writer.records(count)
            writer.note(records, log.log_end_offset)
            return [(-1, record["timestamp"], record["key"], record["value"], record["headers"])
                    for record in records]

        for _, timestamp, key, value, headers in given(40):
            log.append(value, key=key, headers=headers, timestamp=timestamp)
        log.append_many(given(300))
        for producer, commit in ((7001, True), (7002, False), (7001, False)):
            with suppress(KeyError), log.transaction(producer) as transaction:
                offsets = transaction.append_many(given(100))
                if not commit:
                    raise KeyError
            writer.ended.append((producer, list(offsets), offsets.stop, commit))
        log.append_columns({"value": [b"column"], "timestamp": np.array([writer.clock])})
        writer.note([{"timestamp": writer.clock, "key": None, "value": b"column", "headers": []}],
                    log.log_end_offset - 1)
    return writer


WRITE = {"codecs": codecs, "columns": columns, "idempotent": idempotent,
         "transactional": transactional, "hanging": hanging, "by-time": by_time,
         "by-offset": by_offset, "preallocated": preallocated, "truncated": truncated,
         "emptied": emptied, "retained": retained, "started": started}


def _manager(data_dir: Path) -> LogManager:
    return LogManager(data_dir, topic_configs={
        topic: LogConfig().override(config) for topic, config in TOPICS.items()})


@pytest.fixture(scope="module")
def written(kafka_lib: Path, tmp_path_factory: pytest.TempPathFactory
            ) -> Iterator[tuple[Broker, dict[str, Writer]]]:
    """A broker that is down, and what was written to its data directory meanwhile."""
    broker = Broker(tmp_path_factory.mktemp("written"))
    with broker, Client(broker.bootstrap) as client:
        for topic, config in TOPICS.items():
            client.create_topic(topic, config=config)
        client.produce("untouched", workload.records(random.Random(3), 20))
        broker.stop()
    writers = {"embedded": embedded(broker.data_dir)}
    with _manager(broker.data_dir) as manager:
        for topic in WRITTEN:
            log = manager.get_log(TopicPartition(topic, 0))
            assert log is not None
            writer = writers.setdefault(topic, Writer(log, random.Random(topic)))
            if topic == "embedded":
                assert log.log_end_offset == writer.rows[-1]["offset"] + 1
                writer.log = log
            else:
                WRITE.get(topic, many)(writer)
            log.update_high_watermark(log.log_end_offset)
        gone = manager.get_log(TopicPartition("deleted", 0))
        assert gone is not None
        many(Writer(gone, random.Random(1)))
        manager.async_delete(TopicPartition("deleted", 0))
        assert writers["by-time"].log.segments.base_offsets.size > 3
        assert writers["by-index"].log.segments.base_offsets.size > 3
        assert writers["by-offset"].log.log_end_offset > 2 * 2**31
    yield broker, writers


def _files(broker: Broker, *suffixes: str) -> list[Path]:
    return sorted(path for topic in WRITTEN for suffix in suffixes
                  for path in (broker.data_dir / f"{topic}-0").glob(f"*{suffix}"))


def test_kafkas_tools_find_nothing(written: tuple[Broker, dict[str, Writer]]) -> None:
    broker, writers = written
    indexes = _files(broker, ".index", ".timeindex")
    said = harness.dump_log(indexes, "--index-sanity-check")
    passed = [path for path in indexes if f"{path} passed sanity check." in said]
    assert len(passed) > 60
    assert not [path for path in indexes if path.stat().st_size and path not in passed]
    said = harness.dump_log([*_files(broker, ".log"), *indexes, *_files(broker, ".txnindex")],
                            "--deep-iteration")
    records = sum(line.startswith("| offset: ") for line in said.splitlines())
    markers = sum("endTxnMarker" in line for line in said.splitlines())
    assert records - markers == sum(
        len(writer.rows) + sum(offset >= writer.log.segments.base_offsets[0]
                               for offset in writer.below_start) for writer in writers.values())
    for complaint in ("Mismatches in", "Non-consecutive offsets", "isvalid: false",
                      "Found timestamp mismatch", "Index timestamp", "corrupt", "invalid"):
        assert complaint not in said, complaint
    for snapshot in _files(broker, ".snapshot"):
        assert "producerId" in harness.dump_log([snapshot]) or snapshot.stat().st_size == 10


def _check_start(broker: Broker) -> None:
    """The broker took everything for cleanly shut down."""
    log = (broker.home / "broker.log").read_text(errors="replace")
    assert re.search(r"Skipping recovery of \d+ logs from \S+ since clean shutdown file was found",
                     log)
    assert not broker.rebuilt()


def _consume(client: Client) -> dict[tuple[str, str], list[Row]]:
    return {(topic, isolation): client.consume(topic, isolation=isolation)
            for topic in WRITTEN for isolation in ISOLATIONS}


def test_a_broker_takes_over_and_gives_back(written: tuple[Broker, dict[str, Writer]]) -> None:
    broker, writers = written
    with broker, Client(broker.bootstrap) as client:
        _check_start(broker)
        for (topic, isolation), rows in _consume(client).items():
            assert rows == writers[topic].expected(isolation), (topic, isolation)
        assert client.consume("deleted") == [] and len(client.consume("untouched")) == 20
        ends = {}
        for topic, writer in writers.items():
            records = writer.records(5)
            offsets = client.produce(topic, records)
            assert offsets[0] == writer.log.log_end_offset, topic
            ends[topic] = offsets[-1] + 1
        client.produce("transactional", workload.records(random.Random(5), 3), producer="t",
                       config={"transactional.id": "t"})
        client.end_transaction("t", commit=False)
        truth = _consume(client)
        broker.stop()
    with _manager(broker.data_dir) as manager:
        for (topic, isolation), rows in truth.items():
            with manager.open_log(TopicPartition(topic, 0)) as opened:
                assert reading.read_rows(opened, isolation=isolation) == rows, (topic, isolation)
        for topic, end in ends.items():
            log = manager.get_log(TopicPartition(topic, 0))
            assert log is not None and log.log_end_offset >= end
            writers[topic].log = log
            writers[topic].append(4)
            assert writers[topic].rows[-1]["offset"] == log.log_end_offset - 1
