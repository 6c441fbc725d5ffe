"""The metadata manager over the topic of a real broker, which tiers into Kafka's
LocalTieredStorage at the same time."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import RemoteStorageError, RetriableRemoteStorageError
from seglog.remote_log.cluster_topic import ClusterMetadataTopic
from seglog.remote_log.topic_based_manager import TopicBasedRemoteLogMetadataManager
from seglog.tiered import RemoteLogSegmentState, TopicIdPartition, read_metadata_topic
from tests.kafka import harness
from tests.kafka.tiering_broker import TOPIC, tiering
from tests.remote_log.support import segment, update
from tests.support.waiting import wait_for

pytestmark = pytest.mark.judge

pytest.importorskip("confluent_kafka",
                    reason="confluent-kafka is not installed: pip install 'seglog[kafka]'")

OURS = TopicIdPartition(b"\x07" * 16, "ours", 3)


@contextmanager
def manager(bootstrap: str, **settings: object) -> Iterator[TopicBasedRemoteLogMetadataManager]:
    made = TopicBasedRemoteLogMetadataManager(ClusterMetadataTopic)
    made.configure({
        "remote.log.metadata.topic.num.partitions": 3, "broker.id": 7,
        "remote.log.metadata.topic.replication.factor": 1,
        "remote.log.metadata.common.client.bootstrap.servers": bootstrap, **settings})
    try:
        yield made
    finally:
        made.close()


@pytest.mark.usefixtures("kafka_lib")
def test_the_same_metadata_as_the_broker(tmp_path: Path) -> None:
    """It follows what the broker publishes, and what it publishes itself is read back; the
    broker's disk says the same afterwards."""
    broker = tiering(tmp_path / "broker")
    with manager(broker.bootstrap) as ours:
        ours.on_broker_ready()  # nothing listens yet: attempts fail until the broker serves
        with pytest.raises(RetriableRemoteStorageError):
            ours.list_all_remote_log_segments(OURS)
        with broker, harness.Client(broker.bootstrap) as client:
            wait_for(lambda: ours.is_initialized, 600)
            client.create_topic("tiered", 1, TOPIC)
            client.produce("tiered", ({"value": b"%d" % number, "timestamp": number}
                                      for number in range(100)), config={"batch.size": "1"})
            theirs = TopicIdPartition(_topic_id(broker, "tiered"), "tiered", 0)
            ours.on_partition_leadership_changes([OURS], [theirs])
            wait_for(lambda: ours.is_ready(OURS) and ours.is_ready(theirs), 600)
            one = segment(0, 9, key=OURS)
            ours.add_remote_log_segment_metadata(one).result(60)
            ours.update_remote_log_segment_metadata(update(one)).result(60)
            assert ours.remote_log_segment_metadata(OURS, 0, 5) == one.create_with_updates(
                update(one))
            wait_for(lambda: len(finished(ours, theirs)) >= 4, 600)
            broker.stop()
            live = {str(found) for found in finished(ours, theirs)}
    store = read_metadata_topic(broker.data_dir).store
    assert live <= {str(found) for found in store.list_all_remote_log_segments(theirs)}
    assert store.list_all_remote_log_segments(OURS) == [one.create_with_updates(update(one))]


@pytest.mark.usefixtures("kafka_lib")
def test_a_topic_that_it_creates(broker: harness.Broker) -> None:
    """With Kafka's settings; another count of partitions is refused; the next one reads all."""
    with manager(broker.bootstrap) as ours:
        ours.on_broker_ready()
        wait_for(lambda: ours.is_initialized, 600)
        ours.on_partition_leadership_changes([OURS], [])
        wait_for(lambda: ours.is_ready(OURS), 600)
        for start in range(0, 50, 10):
            ours.add_remote_log_segment_metadata(segment(start, start + 9, key=OURS)).result(60)
        with pytest.raises(RemoteStorageError, match="not assigned to the target partition"):
            for number in range(100):
                other = TopicIdPartition(bytes(16), "other", number)
                ours.add_remote_log_segment_metadata(segment(0, 9, key=other)).result(60)
    with manager(broker.bootstrap) as again:
        again.on_partition_leadership_changes([OURS], [])
        again.on_broker_ready()
        wait_for(lambda: again.is_ready(OURS), 600)
        assert len(again.list_all_remote_log_segments(OURS)) == 5
    assert _settings(broker) == {"retention.ms": "-1", "cleanup.policy": "delete",
                                 "remote.storage.enable": "false", "min.insync.replicas": "2"}
    with manager(broker.bootstrap,
                 **{"remote.log.metadata.topic.num.partitions": 4}) as other:
        other.on_broker_ready()
        wait_for(lambda: other.initialization_failure, 600)
        assert "Existing topic partition count 3 is not same as the expected partition count 4" \
            in str(other.initialization_failure)


def test_closing_while_no_broker_answers() -> None:
    """It does not wait for the attempt that is under way."""
    with manager("127.0.0.1:1") as ours:
        ours.on_broker_ready()
        closing = threading.Thread(target=ours.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive() and not ours.is_initialized


def finished(manager: TopicBasedRemoteLogMetadataManager, key: TopicIdPartition) -> list[object]:
    return [one for one in manager.list_all_remote_log_segments(key)
            if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]


def _admin(broker: harness.Broker) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": broker.bootstrap})


def _topic_id(broker: harness.Broker, topic: str) -> bytes:
    from confluent_kafka import TopicCollection

    admin = _admin(broker)
    found = admin.describe_topics(
        TopicCollection([topic]))[topic].result(60)
    return base64.urlsafe_b64decode(f"{found.topic_id}==")


def _settings(broker: harness.Broker) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource, ConfigSource

    resource = ConfigResource(ConfigResource.Type.TOPIC, "__remote_log_metadata")
    admin = _admin(broker)
    found = admin.describe_configs([resource])[resource].result(60)
    return {name: entry.value for name, entry in found.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
