"""The metadata topic of a cluster that does not answer."""

from __future__ import annotations

import pytest

from seglog.errors import IllegalStateError, RemoteStorageError
from seglog.remote_log import cluster_topic
from seglog.remote_log.cluster_topic import ClusterMetadataTopic
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig


def test_a_write_that_was_not_delivered_fails_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that waits for its event waited for ever."""
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (the extra [kafka])")
    monkeypatch.setattr(cluster_topic, "_REQUEST_SECONDS", 0.1)
    topic = ClusterMetadataTopic(TopicBasedRemoteLogMetadataManagerConfig.from_properties({
        "remote.log.metadata.common.client.bootstrap.servers": "127.0.0.1:1",
        "remote.log.metadata.common.client.log_level": 0}))
    topic.open()
    sent = topic.publish(0, b"event")
    topic.close()
    with pytest.raises(RemoteStorageError, match="closed"):
        sent.result(0)
    with pytest.raises(IllegalStateError):
        topic.publish(0, b"event")
