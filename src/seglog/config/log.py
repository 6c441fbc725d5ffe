"""The settings of one log, under a topic's names (Kafka: LogConfig, TopicConfig)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from seglog.arguments import shown
from seglog.config.definition import (
    Config, Kind, at_least, between, invalid, list_of, one_of, setting,
)
from seglog.errors import ConfigError

__all__ = ["COMPRESSION_TYPES", "LONG_MAX", "LogConfig", "gzip_level", "throttled_replicas"]

LONG_MAX = (1 << 63) - 1
_DAY_MS = 24 * 60 * 60 * 1000
_REPLICA = re.compile(r"(?:[0-9]+:[0-9]+)?")
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def gzip_level(name: str, value: int) -> int:
    """Checks for a level of java.util.zip.Deflater, or -1 for its default."""
    if value != -1 and not 1 <= value <= 9:
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")
    return value


def throttled_replicas(name: str, value: tuple[str, ...]) -> tuple[str, ...]:
    """Checks for pairs of numbers, or a single `*` (Kafka: ThrottledReplicaListValidator)."""
    if "".join(value) != "*" and not all(_REPLICA.fullmatch(one) for one in value):
        raise invalid(name, f"[{', '.join(value)}]",
                      f"{name} must be the literal '*' or a list of replicas in the following "
                      "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
    return value


@dataclass(frozen=True, slots=True)
class LogConfig(Config):
    """Settings of one log: a topic's names in Python's spelling, with Kafka's defaults.

    `segment.index.bytes` is `segment_index_bytes`. Sizes are in bytes, times in ms; -1 means
    unlimited where it does in Kafka. Raises ConfigError with Kafka's text for an invalid value.
    """

    segment_bytes: int = setting("segment.bytes", Kind.INT, 1 << 30, at_least(1 << 20))
    #: Replaces `segment_bytes` if set; for tests, without a minimum.
    internal_segment_bytes: int | None = setting("internal.segment.bytes", Kind.INT, None)
    segment_index_bytes: int = setting("segment.index.bytes", Kind.INT, 10 << 20, at_least(4))
    index_interval_bytes: int = setting("index.interval.bytes", Kind.INT, 4096, at_least(0))
    preallocate: bool = setting("preallocate", Kind.BOOLEAN, False)
    segment_ms: int = setting("segment.ms", Kind.LONG, 7 * _DAY_MS, at_least(1))
    segment_jitter_ms: int = setting("segment.jitter.ms", Kind.LONG, 0, at_least(0))
    flush_messages: int = setting("flush.messages", Kind.LONG, LONG_MAX, at_least(1))
    flush_ms: int = setting("flush.ms", Kind.LONG, LONG_MAX, at_least(0))
    retention_bytes: int = setting("retention.bytes", Kind.LONG, -1)
    retention_ms: int = setting("retention.ms", Kind.LONG, 7 * _DAY_MS, at_least(-1))
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy", Kind.LIST, ("delete",), list_of("compact", "delete", may_be_empty=True))
    file_delete_delay_ms: int = setting("file.delete.delay.ms", Kind.LONG, 60_000, at_least(0))
    max_message_bytes: int = setting("max.message.bytes", Kind.INT, (1 << 20) + 12, at_least(0))
    min_insync_replicas: int = setting("min.insync.replicas", Kind.INT, 1, at_least(1))
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", Kind.BOOLEAN, False)
    compression_type: str = setting(
        "compression.type", Kind.STRING, "producer", one_of(*COMPRESSION_TYPES))
    compression_gzip_level: int = setting("compression.gzip.level", Kind.INT, -1, gzip_level)
    compression_lz4_level: int = setting("compression.lz4.level", Kind.INT, 9, between(1, 17))
    compression_zstd_level: int = setting(
        "compression.zstd.level", Kind.INT, 3, between(-131072, 22))
    message_timestamp_type: str = setting(
        "message.timestamp.type", Kind.STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"))
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", Kind.LONG, LONG_MAX, at_least(0))
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", Kind.LONG, 3_600_000, at_least(0))
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5, between(0, 1))
    delete_retention_ms: int = setting("delete.retention.ms", Kind.LONG, _DAY_MS, at_least(0))
    min_compaction_lag_ms: int = setting("min.compaction.lag.ms", Kind.LONG, 0, at_least(0))
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", Kind.LONG, LONG_MAX, at_least(1))
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas", Kind.LIST, (), throttled_replicas)
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas", Kind.LIST, (), throttled_replicas)
    remote_storage_enable: bool = setting("remote.storage.enable", Kind.BOOLEAN, False)
    #: -2 means `retention_ms`.
    local_retention_ms: int = setting("local.retention.ms", Kind.LONG, -2, at_least(-2))
    #: -2 means `retention_bytes`.
    local_retention_bytes: int = setting("local.retention.bytes", Kind.LONG, -2, at_least(-2))
    remote_log_copy_disable: bool = setting("remote.log.copy.disable", Kind.BOOLEAN, False)
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", Kind.BOOLEAN, False)

    #: Kafka's names of the settings that the topic overrides.
    overridden_configs: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def segment_size(self) -> int:
        """The size in bytes at which a segment is full."""
        return self.segment_bytes if self.internal_segment_bytes is None \
            else self.internal_segment_bytes

    @property
    def compression_level(self) -> int | None:
        """The level of the topic's own codec; None if it has no codec of its own, or that no
        levels."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    @property
    def compact(self) -> bool:
        """Whether the cleaner compacts the log."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    def check_tiering(self, before: LogConfig | None) -> None:
        """Refuses settings of a tiered topic that contradict each other, and to switch tiering off
        (`before` has it on) without deleting what is remote (Kafka: validateTopicLogConfigValues).

        ConfigError with Kafka's text.
        """
        if not self.remote_storage_enable:
            if (before is not None and before.remote_storage_enable
                    and not self.remote_log_delete_on_disable):
                raise ConfigError(
                    "It is invalid to disable remote storage without deleting remote data. If you "
                    "want to keep the remote data and turn to read only, please set "
                    "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to "
                    "disable remote storage and delete all remote data, please set "
                    "`remote.storage.enable=false,remote.log.delete.on.disable=true`.")
            return
        if self.cleanup_policy not in ((), ("delete",)):
            raise ConfigError("Remote log storage only supports topics with cleanup.policy=delete "
                              "or cleanup.policy being an empty list.")
        limits = (("bytes", self.retention_bytes, self.local_retention_bytes),
                  ("ms", self.retention_ms, self.local_retention_ms))
        for unit, whole, local in limits:
            name = f"local.retention.{unit}"
            if (whole > -1 if unit == "bytes" else whole != -1) and local != -2:
                if local == -1:
                    raise invalid(name, local, f"Value must not be -1 as retention.{unit} value is "
                                  f"set as {whole}.")
                if local > whole:
                    raise invalid(name, local, f"Value must not be more than retention.{unit} "
                                  f"property value: {whole}")
        for unit, whole, local in limits:
            if self.remote_log_copy_disable and local not in (-2, whole):
                raise ConfigError(
                    f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` "
                    f"and `retention.{unit}` must be set to the identical value because there will "
                    "be no more logs copied to the remote storage.")

    def override(self, properties: Mapping[str, object]) -> LogConfig:
        """A copy with a topic's own settings on top (Kafka: LogConfig.fromProps).

        Raises ConfigError, also for a name that is not a log setting, as Kafka does when a topic
        is created or altered.
        """
        self._check_names(properties)
        own = self.pick(properties)
        if not own:
            return self
        names = frozenset(self.settings()[attribute].name for attribute in own)
        return replace(self, **own, overridden_configs=self.overridden_configs | names)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Reads a mapping of Kafka names to strings or values of the right type.

        Raises ConfigError with Kafka's text, also for a name that is not a log setting.
        """
        cls._check_names(properties)
        return cls(**cls.pick(properties))

    @classmethod
    def _check_names(cls, properties: Mapping[str, object]) -> None:
        if not isinstance(properties, Mapping):
            raise ConfigError(
                f"settings are a mapping of Kafka's names to values, not {shown(properties)}")
        known = [one.name for one in cls.settings().values()]
        for name in properties:
            if name not in known:
                near = difflib.get_close_matches(str(name).replace("_", "."), known, 1)
                raise ConfigError(f"Unknown topic config name: {name}"
                                  + (f" (did you mean {near[0]}?)" if near else ""))

    @classmethod
    def validate(cls, properties: Mapping[str, object]) -> LogConfig:
        """Validates a topic's own settings as Kafka does when a topic is created or altered.

        Raises ConfigError for an invalid value, an unknown name, or a minimum above its maximum.
        An existing log loads whatever its topic's settings.
        """
        found = cls.from_properties(properties)
        if found.min_compaction_lag_ms > found.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms "
                f"({found.min_compaction_lag_ms}) > max.compaction.lag.ms "
                f"({found.max_compaction_lag_ms})")
        return found
