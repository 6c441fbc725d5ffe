"""A real broker that tiers into Kafka's LocalTieredStorage."""

from __future__ import annotations

from pathlib import Path

from tests.kafka import harness, jars

TOPIC = {"remote.storage.enable": "true", "local.retention.bytes": "1",
         "retention.ms": "-1", "index.interval.bytes": "1", "segment.index.bytes": "96",
         "file.delete.delay.ms": "500"}


def tiering(home: Path) -> harness.Broker:
    """A broker that tiers into a directory."""
    return harness.Broker(home, {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name":
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jars.local_tiered_storage()),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(home / "remote"),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "300", "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300"})
