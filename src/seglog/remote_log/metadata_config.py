"""Settings of the topic-based metadata manager, without their prefix `rlmm.config.`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from seglog.config.definition import Config, Kind, at_least, invalid, setting
from seglog.tiered.metadata_topic import METADATA_PARTITIONS_DEFAULT

__all__ = ["CLIENT_PREFIXES", "TopicBasedRemoteLogMetadataManagerConfig"]

#: Prefixes of each client's settings; those of `common` are defaults for all clients.
CLIENT_PREFIXES = {kind: f"remote.log.metadata.{kind}"
                   for kind in ("common.client.", "producer.", "consumer.", "admin.")}


@dataclass(frozen=True, slots=True)
class TopicBasedRemoteLogMetadataManagerConfig(Config):
    """How __remote_log_metadata is created, written and read (Kafka:
    TopicBasedRemoteLogMetadataManagerConfig).

    Times are ms. Raises ConfigError. `log.dir`, which Kafka requires but does not use, may be
    absent.
    """

    metadata_topic_replication_factor: int = setting(
        "remote.log.metadata.topic.replication.factor", Kind.SHORT, 3, at_least(1))
    metadata_topic_partitions_count: int = setting(
        "remote.log.metadata.topic.num.partitions", Kind.INT,
        METADATA_PARTITIONS_DEFAULT, at_least(1))
    metadata_topic_retention_ms: int = setting(
        "remote.log.metadata.topic.retention.ms", Kind.LONG, -1)
    metadata_topic_min_isr: int = setting(
        "remote.log.metadata.topic.min.isr", Kind.SHORT, 2, at_least(1))
    #: How long a write waits until it is read back.
    consume_wait_ms: int = setting(
        "remote.log.metadata.consume.wait.ms", Kind.LONG, 120_000, at_least(0))
    initialization_retry_max_timeout_ms: int = setting(
        "remote.log.metadata.initialization.retry.max.timeout.ms", Kind.LONG, 120_000,
        at_least(0))
    initialization_retry_interval_ms: int = setting(
        "remote.log.metadata.initialization.retry.interval.ms", Kind.LONG, 100, at_least(0))
    broker_id: int = setting("broker.id", Kind.INT, 0)

    #: Settings for clients of a Kafka cluster, by kind and name.
    client_properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Config.__post_init__(self)
        if self.metadata_topic_retention_ms != -1 and self.metadata_topic_retention_ms <= 0:
            raise invalid("remote.log.metadata.topic.retention.ms",
                          self.metadata_topic_retention_ms, "Value must be -1 or positive")

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """From properties with Kafka's names. Raises ConfigError."""
        clients = {kind: {name.removeprefix(prefix): str(value)
                          for name, value in properties.items() if name.startswith(prefix)}
                   for kind, prefix in CLIENT_PREFIXES.items()}
        return cls(**cls.pick(properties), client_properties=clients)

    def client(self, kind: str) -> dict[str, str]:
        """Settings of the `producer`, `consumer` or `admin`, including its client id."""
        own = self.client_properties.get(f"{kind}.", {})
        return {**self.client_properties.get("common.client.", {}), **own,
                "client.id": f"__remote_log_metadata_client_{self.broker_id}_{kind}"}

    @property
    def has_cluster(self) -> bool:
        """Whether the topic is one of a Kafka cluster."""
        return "bootstrap.servers" in self.client_properties.get("common.client.", {})

    def topic_configs(self) -> dict[str, str]:
        """The settings that the topic is created with."""
        return {"retention.ms": str(self.metadata_topic_retention_ms),
                "cleanup.policy": "delete", "remote.storage.enable": "false",
                "min.insync.replicas": str(self.metadata_topic_min_isr)}
