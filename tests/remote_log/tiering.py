"""A LogManager with tiering on, whose clock and tasks the test moves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seglog.config import BrokerConfig
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.manager import LogManager
from seglog.model import TopicPartition
from seglog.remote_log.copy_task import CopyTask
from seglog.remote_log.expiration_task import ExpirationTask
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_log_manager import RemoteLogManager
from seglog.remote_log.remote_task import FollowerTask, RemoteLogTask
from seglog.storage.isolation import Isolation
from seglog.tiered import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tests.remote_log.local_tiered_storage import LocalTieredStorage
from tests.remote_log.support import NOW_MS
from tests.support.waiting import wait_for

KEY = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=0x0F0E0D0C0B0A09080706050403020100)
ID_KEY = TopicIdPartition(TOPIC_ID.bytes, "orders", 0)
#: Of `segment.bytes`: five batches of one record of 100 bytes.
BATCH_VALUE = b"v" * 100
TASK_MS = 30_000


class Tiering:
    """Everything of a broker that tiers `orders`, under a clock that stands still."""

    def __init__(self, root: Path, *, topic: Mapping[str, object] | None = None,
                 settings: Mapping[str, object] | None = None, is_leader: bool = True,
                 current_time_ms: int = NOW_MS,
                 storage: Any = LocalTieredStorage,
                 data: Sequence[str] = ("data",)) -> None:
        properties: dict[str, Any] = {
            "remote.log.storage.system.enable": "true", "node.id": "1",
            "log.segment.delete.delay.ms": "0", "rsm.config.dir": str(root / "remote"),
            "remote.fetch.max.wait.ms": "120000",  # of a real clock, on a loaded machine
            "rlmm.config.remote.log.metadata.topic.num.partitions": "3", **(settings or {})}
        self.clock = MockTime(current_time_ms=current_time_ms)
        self.manager = LogManager(
            [root / one for one in data], config=BrokerConfig.from_properties(properties),
            time=self.clock, scheduler=self.clock.scheduler)
        config = RemoteLogManagerConfig.from_properties(properties)
        self.storage: Any = storage() if storage is LocalTieredStorage else storage
        if self.storage is not None:  # else the settings name it
            self.storage.configure(config.storage_properties)
        self.manager.update_topic_config("orders", {
            "remote.storage.enable": "true", "internal.segment.bytes": 850,
            "index.interval.bytes": 0, "file.delete.delay.ms": 0, "retention.ms": -1,
            **(topic or {})})
        self.tiering = RemoteLogManager(
            self.manager, config, storage=self.storage, time=self.clock,
            schedulers=(self.clock.scheduler,) * 3)
        self.manager.startup()
        self.log: UnifiedLog = self.manager.get_or_create_log(KEY, topic_id=TOPIC_ID)
        wait_for(lambda: getattr(self.tiering.metadata, "is_initialized", True))
        if is_leader:
            self.tiering.on_leadership_change([KEY])
        else:
            self.tiering.on_leadership_change([], [KEY])
        wait_for(lambda: self.tiering.metadata.is_ready(ID_KEY))

    def append(self, count: int, epoch: int = 0, *, timestamp: int | None = None,
               value: bytes = BATCH_VALUE) -> None:
        """Batches of one record, committed."""
        for _ in range(count):
            builder = RecordBatchBuilder()
            at = self.log.log_end_offset
            builder.append(NOW_MS + at if timestamp is None else timestamp, b"%d" % at, value)
            self.log.append_as_leader(builder.build(), epoch)
        self.log.update_high_watermark(self.log.log_end_offset)

    def task(self, kind: type[RemoteLogTask]) -> RemoteLogTask:
        return self.tiering._tasks.of(ID_KEY)[kind]

    def copy(self) -> None:
        self.task(CopyTask).run()

    def expire(self) -> None:
        self.task(ExpirationTask).run()

    def follow(self) -> None:
        self.task(FollowerTask).run()

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        return sorted(self.tiering.metadata.list_all_remote_log_segments(ID_KEY),
                      key=lambda one: one.start_offset)

    def states(self) -> list[RemoteLogSegmentState]:
        return [one.state for one in self.segments()]

    def bases(self) -> list[int]:
        with self.log.lock:
            return self.log.segments.base_offsets.tolist()

    def gauge(self, name: str, **tags: object) -> object:
        label = "".join(f",{key}={value}" for key, value in tags.items())
        found = self.manager.metrics.get(
            f"kafka.server:type=BrokerTopicMetrics,name={name}{label}")
        assert found is not None, name
        return found.attributes().get("Value", found.attributes().get("Count"))

    def close(self) -> None:
        self.tiering.close()
        self.manager.shutdown()


Make = Callable[..., Tiering]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Tiering] = []

    def one(**how: object) -> Tiering:
        made.append(Tiering(tmp_path, **how))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for tiering in made:
        tiering.close()


def contents(tiering: Tiering, start: int = 0, isolation: Isolation = "read_uncommitted"
             ) -> list[bytes]:
    """Whole batches up to the end, as fetches of a consumer get them."""
    found, offset = [], start
    while offset < tiering.log.high_watermark:
        data = tiering.tiering.read(KEY, offset, 400, isolation).records
        before = offset
        while len(data) >= 12:
            size = int.from_bytes(data[8:12]) + 12
            if size > len(data):
                break
            offset = int.from_bytes(data[:8]) + int.from_bytes(data[23:27]) + 1
            found.append(data[:size])
            data = data[size:]
        assert offset > before
    return found
