"""Settings of a broker's tiering (Kafka: RemoteLogManagerConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from seglog.config.definition import Config, Kind, at_least, between, non_empty, setting
from seglog.config.log import LONG_MAX

__all__ = ["KAFKA_TOPIC_BASED_MANAGER", "RemoteLogManagerConfig"]

KAFKA_TOPIC_BASED_MANAGER = \
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


@dataclass(frozen=True, slots=True)
class RemoteLogManagerConfig(Config):
    """Settings of tiering, with Kafka's names, defaults and validators. Times are ms.

    Raises ConfigError. A plug-in's settings have its prefix, which is removed: they are
    `storage_properties` and `metadata_properties`.
    """

    enable: bool = setting("remote.log.storage.system.enable", Kind.BOOLEAN, False)
    storage_manager_class_name: str | None = setting(
        "remote.log.storage.manager.class.name", Kind.STRING, None, non_empty)
    storage_manager_class_path: str | None = setting(
        "remote.log.storage.manager.class.path", Kind.STRING, None)
    storage_manager_prefix: str = setting(
        "remote.log.storage.manager.impl.prefix", Kind.STRING, "rsm.config.", non_empty)
    metadata_manager_class_name: str = setting(
        "remote.log.metadata.manager.class.name", Kind.STRING, KAFKA_TOPIC_BASED_MANAGER,
        non_empty)
    metadata_manager_class_path: str | None = setting(
        "remote.log.metadata.manager.class.path", Kind.STRING, None)
    metadata_manager_prefix: str = setting(
        "remote.log.metadata.manager.impl.prefix", Kind.STRING, "rlmm.config.",
        non_empty)
    custom_metadata_max_bytes: int = setting(
        "remote.log.metadata.custom.metadata.max.bytes", Kind.INT, 128, at_least(0))
    index_file_cache_total_size_bytes: int = setting(
        "remote.log.index.file.cache.total.size.bytes", Kind.LONG, 1 << 30, at_least(1))
    index_file_cache_ttl_ms: int = setting(
        "remote.log.index.file.cache.ttl.ms", Kind.LONG, 900_000, at_least(-1))
    follower_thread_pool_size: int = setting(
        "remote.log.manager.follower.thread.pool.size", Kind.INT, 2, at_least(1))
    copier_thread_pool_size: int = setting(
        "remote.log.manager.copier.thread.pool.size", Kind.INT, 10, at_least(1))
    expiration_thread_pool_size: int = setting(
        "remote.log.manager.expiration.thread.pool.size", Kind.INT, 10, at_least(1))
    task_interval_ms: int = setting(
        "remote.log.manager.task.interval.ms", Kind.LONG, 30_000, at_least(1))
    task_retry_backoff_ms: int = setting(
        "remote.log.manager.task.retry.backoff.ms", Kind.LONG, 500, at_least(1))
    task_retry_backoff_max_ms: int = setting(
        "remote.log.manager.task.retry.backoff.max.ms", Kind.LONG, 30_000, at_least(1))
    task_retry_jitter: float = setting(
        "remote.log.manager.task.retry.jitter", Kind.DOUBLE, 0.2, between(0, 0.5))
    reader_threads: int = setting("remote.log.reader.threads", Kind.INT, 10, at_least(1))
    reader_max_pending_tasks: int = setting(
        "remote.log.reader.max.pending.tasks", Kind.INT, 100, at_least(1))
    copy_max_bytes_per_second: int = setting(
        "remote.log.manager.copy.max.bytes.per.second", Kind.LONG, LONG_MAX, at_least(1))
    copy_quota_window_num: int = setting(
        "remote.log.manager.copy.quota.window.num", Kind.INT, 11, at_least(1))
    copy_quota_window_size_seconds: int = setting(
        "remote.log.manager.copy.quota.window.size.seconds", Kind.INT, 1, at_least(1))
    fetch_max_bytes_per_second: int = setting(
        "remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, LONG_MAX, at_least(1))
    fetch_quota_window_num: int = setting(
        "remote.log.manager.fetch.quota.window.num", Kind.INT, 11, at_least(1))
    fetch_quota_window_size_seconds: int = setting(
        "remote.log.manager.fetch.quota.window.size.seconds", Kind.INT, 1, at_least(1))
    fetch_max_wait_ms: int = setting("remote.fetch.max.wait.ms", Kind.INT, 500, at_least(1))
    broker_id: int = setting("broker.id", Kind.INT, 0)

    #: For RemoteStorageManager.configure.
    storage_properties: Mapping[str, object] = field(default_factory=dict)
    #: For RemoteLogMetadataManager.configure.
    metadata_properties: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """From a broker's properties; `node.id` is `broker.id`, and the deprecated
        `remote.log.manager.thread.pool.size` is that of followers. Raises ConfigError."""
        given = dict(properties)
        for name, other in (("broker.id", "node.id"),
                            ("remote.log.manager.follower.thread.pool.size",
                             "remote.log.manager.thread.pool.size")):
            if name not in given and other in given:
                given[name] = given[other]
        plain = cls(**cls.pick(given))

        def own(prefix: str) -> dict[str, object]:
            found = {name.removeprefix(prefix): value for name, value in given.items()
                     if name.startswith(prefix)}
            return {**found, "broker.id": plain.broker_id}

        return cls(**cls.pick(given), storage_properties=own(plain.storage_manager_prefix),
                   metadata_properties=own(plain.metadata_manager_prefix))
