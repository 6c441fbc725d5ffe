"""Segments and metadata that seglog tiered, read by a broker, and read back by seglog.

A broker with Kafka's LocalTieredStorage creates a topic and stops. A LogManager writes to its
directory, copies segments into the store, announces them in the broker's metadata topic, and
deletes them locally. The broker starts: its consumers get every record, in both isolations. It
appends, tiers and stops, and seglog continues where the broker ended.
"""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from seglog.config import BrokerConfig
from seglog.errors import IllegalStateError, RemoteStorageError
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.scheduler import MockTime, Scheduler
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_log_manager import RemoteLogManager
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.markers import ControlType
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import RemoteLogSegmentState, TopicIdPartition, read_metadata_topic
from tests.kafka import harness
from tests.kafka.tiering_broker import TOPIC, tiering
from tests.remote_log.local_tiered_storage import LocalTieredStorage
from tests.support import reading
from tests.support.waiting import wait_for

pytestmark = pytest.mark.judge

KEY = TopicPartition("tiered", 0)
ISOLATIONS = ("read_uncommitted", "read_committed")


class Ours:
    """The broker's directory, opened by seglog with tiering on."""

    def __init__(self, home: Path, *, lost: uuid.UUID | None = None) -> None:
        """With `lost`, the topic's id, the log is new and only followed."""
        self._lost = lost
        properties = {
            "remote.log.storage.system.enable": "true", "node.id": "1",
            "transaction.partition.verification.enable": "false",
            "rsm.config.dir": str(home / "remote"), "remote.fetch.max.wait.ms": "120000",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "3"}
        self.clock = MockTime()
        self.manager = LogManager(
            [home / "data"], config=BrokerConfig.from_properties(properties), time=self.clock,
            scheduler=self.clock.scheduler)
        self.manager.update_topic_config("tiered", TOPIC)
        self.storage = LocalTieredStorage()
        config = RemoteLogManagerConfig.from_properties(properties)
        self.storage.configure(config.storage_properties)
        idle = Scheduler()  # tasks run when the test says so
        self.tiering = RemoteLogManager(self.manager, config, storage=self.storage,
                                        time=self.clock, schedulers=(idle, idle, idle))

    def __enter__(self) -> Ours:
        self.manager.startup()
        if self._lost is None:
            self.tiering.on_leadership_change([KEY])
        else:
            self.manager.get_or_create_log(KEY, topic_id=self._lost)
            self.tiering.on_leadership_change((), [KEY])
        wait_for(lambda: self.tiering.is_partition_ready(KEY))
        return self

    def __exit__(self, *_: object) -> None:
        self.tiering.close()
        self.manager.shutdown()

    @property
    def log(self) -> UnifiedLog:
        found = self.manager.get_log(KEY)
        assert found is not None
        return found

    def copy(self) -> None:
        found = self.log.topic_id
        assert found is not None
        key = TopicIdPartition(found.bytes, KEY.topic, KEY.partition)
        self.tiering._tasks.of(key)[CopyTask].run()


def write(log: UnifiedLog, rng: random.Random, batches: int) -> None:
    """All codecs, and transactions of which some are aborted."""
    latest = log.leader_epochs.latest
    epoch = 0 if latest is None else latest.epoch
    for number in range(batches):
        producer = 1000 + rng.randrange(10**6)
        is_transactional = rng.random() < 0.4
        builder = RecordBatchBuilder(
            codec=CODEC_NAMES[number % len(CODEC_NAMES)], is_transactional=is_transactional,
            producer_id=producer, producer_epoch=0, base_sequence=0)
        for _ in range(rng.randrange(1, 4)):
            builder.append(log.now_ms() - 1000, rng.randbytes(4), rng.randbytes(60))
        log.append_as_leader(builder.build(), epoch)
        if is_transactional:
            kind = rng.choice([ControlType.COMMIT, ControlType.ABORT])
            log.append_as_leader(end_transaction_marker(
                producer, 0, kind, coordinator_epoch=0, timestamp=log.now_ms()), epoch,
                origin=AppendOrigin.COORDINATOR, transaction_version=1)
    log.update_high_watermark(log.log_end_offset)
    log.flush()


def consumed(broker: harness.Broker) -> dict[str, list[dict[str, Any]]]:
    with harness.Client(broker.bootstrap) as client:
        return {isolation: client.consume("tiered", 0, isolation)
                for isolation in ISOLATIONS}


def make_topic(home: Path) -> None:
    """The life of a broker that creates the tiered topic."""
    broker = tiering(home)
    with broker:
        with harness.Client(broker.bootstrap) as client:
            client.create_topic("tiered", 1, TOPIC)
        wait_for(lambda: len(list(home.glob("data/__remote_log_metadata-*"))) == 3, 600)
        broker.stop()


def rows_in_both(ours: Ours) -> dict[str, list[dict[str, Any]]]:
    with ours.manager.open_log(KEY) as reader:
        return {isolation: reading.read_rows(reader, isolation=isolation)
                for isolation in ISOLATIONS}


@pytest.mark.usefixtures("kafka_lib")
def test_there_and_back(tmp_path: Path) -> None:
    home = tmp_path / "broker"
    make_topic(home)
    with Ours(home) as ours:
        write(ours.log, random.Random(1), 200)
        with ours.log.lock:
            local = ours.log.segments.base_offsets.tolist()
        assert len(local) > 10
        written = rows_in_both(ours)
        ours.copy()
        assert ours.storage.starts() == local[:-1]
        ours.log.delete_old_segments()
        assert ours.log.local_log_start_offset == local[-1] and ours.log.log_start_offset == 0
        end = ours.log.log_end_offset
    broker = tiering(home)
    with broker:
        rows = consumed(broker)
        assert rows == written
        assert 0 < len(rows["read_committed"]) < len(rows["read_uncommitted"])
        with harness.Client(broker.bootstrap) as client:
            client.produce("tiered", ({"value": b"%d" % number} for number in range(40)))
        broker.stop()
    with Ours(home) as ours:
        assert ours.log.log_start_offset == 0 and ours.log.log_end_offset >= end + 40
        ours.copy()
        found, offset = list[int](), 0
        while offset < ours.log.high_watermark:  # from remote storage, and then from here
            found += offsets_in(ours.tiering.read(KEY, offset, 1 << 20).records)
            assert found[-1] >= offset
            offset = found[-1] + 1
        assert found == sorted(set(found)) and offset >= end + 40
    topic = read_metadata_topic(home / "data")
    assert not topic.skipped
    (key,) = [one for one in topic.store.partitions if one.topic == "tiered"]
    states = {one.state for one in topic.store.list_all_remote_log_segments(key)}
    assert states == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
    assert uuid.UUID(bytes=key.topic_id).version == 4


@pytest.mark.usefixtures("kafka_lib")
def test_a_lost_disk(tmp_path: Path) -> None:
    """The log continues after its remote segments, and a broker gets all of it from seglog."""
    home = tmp_path / "broker"
    make_topic(home)
    with Ours(home) as ours:
        write(ours.log, random.Random(4), 120)
        topic_id = ours.log.topic_id
        written = rows_in_both(ours)
        ours.copy()
    shutil.rmtree(home / "data" / "tiered-0")
    with Ours(home, lost=topic_id) as ours:
        assert (ours.log.log_start_offset, ours.log.log_end_offset) == (0, 0)
        start = ours.tiering.start_at_remote_end(KEY)
        assert (ours.log.log_start_offset, ours.log.local_log_start_offset,
                ours.log.log_end_offset, ours.log.high_watermark) == (0, start, start, start)
        last = max((home / "remote").glob("*/tiered-0-*/*.snapshot"))
        assert (home / "data" / "tiered-0" / f"{start:020d}.snapshot").read_bytes() == \
            last.read_bytes()
        assert (home / "data" / "tiered-0" / "leader-epoch-checkpoint").read_text() == \
            last.with_suffix(".leader_epoch_checkpoint").read_text()
        assert ours.tiering.start_at_remote_end(KEY, leader=(0, start - 1)) == start  # again
        ours.tiering.on_leadership_change([KEY])
        write(ours.log, random.Random(5), 60)
        with pytest.raises(IllegalStateError, match="they are not lost"):
            ours.tiering.start_at_remote_end(KEY)
        with pytest.raises(RemoteStorageError, match="offset 12345 of epoch 7"):
            ours.tiering.start_at_remote_end(KEY, leader=(7, 12345))
        later = rows_in_both(ours)
        ours.copy()
        ours.log.delete_old_segments()
        assert ours.log.local_log_start_offset > start
    broker = tiering(home)
    with broker:
        rows = consumed(broker)
        broker.stop()
    for isolation in ISOLATIONS:
        before = [row for row in written[isolation] if row["offset"] < start]
        assert before and later[isolation]
        assert rows[isolation] == [*before, *later[isolation]]
    log = PartitionLog.open(home / "data" / "tiered-0", remote=home / "remote")
    assert reading.read_rows(log) == rows["read_uncommitted"]


def offsets_in(data: bytes) -> list[int]:
    """Last offsets of the whole batches."""
    found, at = [], 0
    while at + 27 <= len(data) and at + (size := int.from_bytes(data[at + 8:at + 12]) + 12) <= len(
            data):
        found.append(int.from_bytes(data[at:at + 8]) + int.from_bytes(data[at + 23:at + 27]))
        at += size
    return found
