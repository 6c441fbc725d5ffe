"""Managers of remote log metadata over a LogManager of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seglog.config import BrokerConfig
from seglog.errors import RetriableRemoteStorageError
from seglog.log.scheduler import MockTime, Time
from seglog.manager.manager import LogManager
from seglog.remote_log.embedded_topic import EmbeddedMetadataTopic
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.remote_log.topic_based_manager import TopicBasedRemoteLogMetadataManager
from seglog.tiered import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, TopicIdPartition,
)
from tests.support.waiting import wait_for

NOW_MS = 1_700_000_000_000
ORDERS = TopicIdPartition(bytes(range(16)), "orders", 0)
RLMM = {"remote.log.metadata.topic.num.partitions": 3, "broker.id": 1}


class LateTopic(EmbeddedMetadataTopic):
    """The topic of a broker that serves nothing before a moment of its clock."""

    def __init__(self, logs: LogManager, config: TopicBasedRemoteLogMetadataManagerConfig,
                 clock: Time, serves_from_ms: int) -> None:
        super().__init__(logs, config, clock)
        self._serves_from_ms = serves_from_ms
        self.asked: list[int] = []

    def partition_count(self) -> int | None:
        now = self._time.milliseconds()
        self.asked.append(now)
        if now < self._serves_from_ms:
            raise RetriableRemoteStorageError("the broker does not serve requests yet")
        return super().partition_count()


@contextmanager
def running_manager(path: Path, clock: Time | None = None,
                    broker: Mapping[str, object] | None = None) -> Iterator[LogManager]:
    """A started LogManager; with a MockTime its tasks run when the clock is moved."""
    config = BrokerConfig.from_properties(
        {"remote.log.storage.system.enable": "true", **(broker or {})})
    scheduler = clock.scheduler if isinstance(clock, MockTime) else None
    with LogManager([path], config=config, time=clock, scheduler=scheduler) as manager:
        yield manager


@contextmanager
def metadata_manager(logs: LogManager, properties: Mapping[str, object] | None = None, *,
                     ready: bool = True) -> Iterator[TopicBasedRemoteLogMetadataManager]:
    """Over the embedded topic, with threads of its own."""
    clock = Time()
    made = TopicBasedRemoteLogMetadataManager(
        lambda config: EmbeddedMetadataTopic(logs, config, clock), time=clock)
    made.configure({**RLMM, **(properties or {})})
    try:
        if ready:
            made.on_broker_ready()
            wait_for(lambda: made.is_initialized)
        yield made
    finally:
        made.close()


def segment(start: int, end: int, *, key: TopicIdPartition = ORDERS, number: int | None = None,
            epochs: Mapping[int, int] | None = None) -> RemoteLogSegmentMetadata:
    """The first event of a segment."""
    raw = (start if number is None else number).to_bytes(16, "big")
    return RemoteLogSegmentMetadata(RemoteLogSegmentId(key, raw), start, end, NOW_MS, 1, NOW_MS,
                                    1000, epochs or {0: start})


def update(of: RemoteLogSegmentMetadata,
           state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
           ) -> RemoteLogSegmentMetadataUpdate:
    """A later event of a segment."""
    return RemoteLogSegmentMetadataUpdate(of.remote_log_segment_id, NOW_MS + 1, None, state, 1)
