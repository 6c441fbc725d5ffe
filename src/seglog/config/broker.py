"""The settings of a broker, under the names of `server.properties`.

Kafka: ServerLogConfigs, CleanerConfig, TransactionLogConfig, ServerConfigs, KafkaConfig.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from seglog.arguments import given_path
from seglog.config.definition import Config, Kind, at_least, list_of, one_of, setting
from seglog.config.log import LONG_MAX, LogConfig
from seglog.errors import ConfigError, storage_errors
from seglog.java.properties import parse_properties

__all__ = ["BrokerConfig", "LoadConfig", "read_properties"]

#: Far larger than any server.properties.
PROPERTIES_BYTES_MAX = 16 << 20
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads a Java properties file such as `server.properties`.

    Raises KafkaStorageError (missing, unreadable) or ConfigError (above 16 MiB, a bad escape), and
    as `given_path`.
    """
    name = given_path(path)
    with storage_errors(name), open(name, "rb") as stream:
        content = stream.read(PROPERTIES_BYTES_MAX + 1)
    if len(content) > PROPERTIES_BYTES_MAX:
        raise ConfigError(f"{name}: larger than {PROPERTIES_BYTES_MAX} bytes")
    try:
        return parse_properties(content)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def topic_default(topic: str, name: str | None = None) -> Any:
    """The broker's setting `name` of a default for topics: as LogConfig's attribute `topic`."""
    own = LogConfig.settings()[topic]
    return field(default=own.default, metadata={
        "topic": topic, "setting": replace(own, name=name or own.name)})


@dataclass(frozen=True, slots=True)
class LoadConfig(Config):
    """Settings of the load of a data directory. Raises ConfigError."""

    #: Threads that open and check segments; 1 uses only the calling thread (KIP-1346).
    num_segment_loading_threads_per_data_dir: int = setting(
        "num.segment.loading.threads.per.data.dir", Kind.INT, 1, at_least(1))
    #: Logs loaded concurrently.
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", Kind.INT, 2, at_least(1))
    #: Producers idle for longer expire when state is loaded.
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", Kind.INT, _DAY_MS, at_least(1))
    #: False: after a clean shutdown only active segments are checked at load (KIP-263).
    sanity_check_all_logs_enabled: bool = setting(
        "sanity.check.all.logs.enabled", Kind.BOOLEAN, True)
    #: `kafka` checks that the index exists and that the transaction index is sound; `full` checks
    #: every index against its log. The name is seglog's own.
    sanity_check_level: str = setting(
        "sanity.check.level", Kind.STRING, "kafka", one_of("kafka", "full"))


@dataclass(frozen=True, slots=True)
class BrokerConfig(LoadConfig):
    """Settings of a broker that its logs need, with Kafka's names, types, defaults and validators.

    `log_config` makes a LogConfig of the topic defaults (`log.segment.bytes`). Sizes are in bytes,
    times in ms. Raises ConfigError with Kafka's text.
    """

    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs", Kind.LIST, None, list_of())
    #: Used if `log_dirs` is not set; may name several directories.
    log_dir: tuple[str, ...] = setting(
        "log.dir", Kind.LIST, ("/tmp/kafka-logs",), list_of())
    cordoned_log_dirs: tuple[str, ...] = setting(
        "cordoned.log.dirs", Kind.LIST, (), list_of(may_be_empty=True))
    metadata_log_dir: str | None = setting("metadata.log.dir", Kind.STRING, None)
    background_threads: int = setting("background.threads", Kind.INT, 10, at_least(1))
    log_dir_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms", Kind.LONG, 30_000, at_least(1))
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", Kind.LONG, 30_000, at_least(0))
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", Kind.LONG, 300_000, at_least(1))
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", Kind.LONG, LONG_MAX)
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000, at_least(0))
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms", Kind.INT, 60_000, at_least(0))
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5_000)
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", Kind.INT, 600_000, at_least(1))
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", Kind.INT, 900_000, at_least(1))
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable", Kind.BOOLEAN, True)
    remote_log_storage_system_enable: bool = setting(
        "remote.log.storage.system.enable", Kind.BOOLEAN, False)

    # The cleaner.
    log_cleaner_enable: bool = setting("log.cleaner.enable", Kind.BOOLEAN, True)
    log_cleaner_threads: int = setting("log.cleaner.threads", Kind.INT, 1, at_least(0))
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20)
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size", Kind.INT, 512 << 10, at_least(0))
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9)
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, 1.7976931348623157e308)
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", Kind.LONG, 15_000, at_least(0))

    # Topic defaults.
    log_segment_bytes: int = topic_default("segment_bytes", "log.segment.bytes")
    log_roll_ms: int | None = setting("log.roll.ms", Kind.LONG, None)
    log_roll_hours: int = setting("log.roll.hours", Kind.INT, 168, at_least(1))
    log_roll_jitter_ms: int | None = setting("log.roll.jitter.ms", Kind.LONG, None)
    log_roll_jitter_hours: int = setting("log.roll.jitter.hours", Kind.INT, 0, at_least(0))
    log_retention_ms: int | None = setting("log.retention.ms", Kind.LONG, None)
    log_retention_minutes: int | None = setting("log.retention.minutes", Kind.INT, None)
    log_retention_hours: int = setting("log.retention.hours", Kind.INT, 168)
    log_retention_bytes: int = topic_default("retention_bytes", "log.retention.bytes")
    log_local_retention_ms: int = topic_default("local_retention_ms", "log.local.retention.ms")
    log_local_retention_bytes: int = topic_default(
        "local_retention_bytes", "log.local.retention.bytes")
    log_cleanup_policy: tuple[str, ...] = topic_default("cleanup_policy", "log.cleanup.policy")
    log_index_size_max_bytes: int = topic_default(
        "segment_index_bytes", "log.index.size.max.bytes")
    log_index_interval_bytes: int = topic_default(
        "index_interval_bytes", "log.index.interval.bytes")
    log_preallocate: bool = topic_default("preallocate", "log.preallocate")
    log_flush_interval_messages: int = topic_default(
        "flush_messages", "log.flush.interval.messages")
    log_flush_interval_ms: int | None = setting("log.flush.interval.ms", Kind.LONG, None)
    log_segment_delete_delay_ms: int = topic_default(
        "file_delete_delay_ms", "log.segment.delete.delay.ms")
    log_message_timestamp_type: str = topic_default(
        "message_timestamp_type", "log.message.timestamp.type")
    log_message_timestamp_before_max_ms: int = topic_default(
        "message_timestamp_before_max_ms", "log.message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = topic_default(
        "message_timestamp_after_max_ms", "log.message.timestamp.after.max.ms")
    log_cleaner_min_cleanable_ratio: float = topic_default(
        "min_cleanable_dirty_ratio", "log.cleaner.min.cleanable.ratio")
    log_cleaner_delete_retention_ms: int = topic_default(
        "delete_retention_ms", "log.cleaner.delete.retention.ms")
    log_cleaner_min_compaction_lag_ms: int = topic_default(
        "min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = topic_default(
        "max_compaction_lag_ms", "log.cleaner.max.compaction.lag.ms")
    message_max_bytes: int = topic_default("max_message_bytes", "message.max.bytes")
    min_insync_replicas: int = topic_default("min_insync_replicas")
    unclean_leader_election_enable: bool = topic_default("unclean_leader_election_enable")
    compression_type: str = topic_default("compression_type")
    compression_gzip_level: int = topic_default("compression_gzip_level")
    compression_lz4_level: int = topic_default("compression_lz4_level")
    compression_zstd_level: int = topic_default("compression_zstd_level")

    def __post_init__(self) -> None:
        Config.__post_init__(self)
        if self.log_roll_time_ms < 1:
            raise ConfigError("log.roll.ms must be greater than or equal to 1")
        if self.log_roll_time_jitter_ms < 0:
            raise ConfigError("log.roll.jitter.ms must be greater than or equal to 0")
        if self.log_retention_time_ms == 0:
            raise ConfigError("log.retention.ms must be unlimited (-1) or, greater than or equal "
                              "to 1")
        if "*" in self.cordoned_log_dirs:
            if len(self.cordoned_log_dirs) > 1:
                raise ConfigError("When cordoned.log.dirs is set to *, it must not contain other "
                                  "values")
        elif unknown := [one for one in self.cordoned_log_dirs if one not in self.data_dirs]:
            raise ConfigError("All entries in cordoned.log.dirs must be present in log.dirs or "
                              f"log.dir. Missing entries : {', '.join(unknown)}")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a `server.properties`. Raises as `read_properties` does, and ConfigError."""
        return cls.from_properties(read_properties(path))

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """The data directories: `log.dirs`, or `log.dir` if that is not set."""
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def log_roll_time_ms(self) -> int:
        """`log.roll.ms`, or `log.roll.hours`."""
        return self.log_roll_hours * _HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def log_roll_time_jitter_ms(self) -> int:
        """`log.roll.jitter.ms`, or `log.roll.jitter.hours`."""
        return self.log_roll_jitter_hours * _HOUR_MS if self.log_roll_jitter_ms is None \
            else self.log_roll_jitter_ms

    @property
    def log_retention_time_ms(self) -> int:
        """`log.retention.ms`, `log.retention.minutes` or `log.retention.hours`, in ms.

        Any negative number becomes -1, unlimited.
        """
        if self.log_retention_ms is not None:
            found = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            found = self.log_retention_minutes * _MINUTE_MS
        else:
            found = self.log_retention_hours * _HOUR_MS
        return max(found, -1)

    @property
    def log_flush_time_ms(self) -> int:
        """`log.flush.interval.ms`, or `log.flush.scheduler.interval.ms`."""
        return self.log_flush_scheduler_interval_ms if self.log_flush_interval_ms is None \
            else self.log_flush_interval_ms

    def log_config(self, overrides: Mapping[str, object] | None = None) -> LogConfig:
        """The settings of a topic with these overrides (Kafka: extractLogConfigMap, fromProps).

        Raises ConfigError, also for a broker's value that is invalid for a topic. Ignores names
        that are not log settings, as a broker does when it loads a topic; LogConfig.override,
        which serves changes of settings, rejects them.
        """
        same = {one.metadata["topic"]: getattr(self, one.name)
                for one in fields(self) if "topic" in one.metadata}
        defaults = LogConfig(
            **same, segment_ms=self.log_roll_time_ms, retention_ms=self.log_retention_time_ms,
            segment_jitter_ms=self.log_roll_time_jitter_ms, flush_ms=self.log_flush_time_ms)
        return defaults.override(
            {name: value for name, value in (overrides or {}).items() if LogConfig.knows(name)})
