"""The objects that a log shares with the other logs of its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from seglog.config import LogConfig
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import Scheduler, Time
from seglog.log.stats import BrokerTopicStats
from seglog.model import TimestampOffset, TopicPartition

__all__ = ["LogContext", "RemoteLookups"]

#: Kafka: Topic.isInternal, and the topics of metadata.
_NEVER_REMOTE: Final = frozenset((
    "__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata",
    "__cluster_metadata"))


@dataclass(slots=True)
class RemoteLookups:
    """The lookups of logs in remote storage, set by the component that tiers them.

    `offset_by_timestamp(partition, timestamp_ms, start_offset)` finds the first record in remote
    segments, None if there is none.
    """

    offset_by_timestamp: Callable[[TopicPartition, int, int], TimestampOffset | None] | None = None


@dataclass(frozen=True, slots=True)
class LogContext:
    """The scheduler, the clock, and the channel of failed directories. Times are ms.

    `transaction_verification`: whether a client's transactional batch needs a verification guard
    (`transaction.partition.verification.enable`). `remote_storage`: whether tiering is on
    (`remote.log.storage.system.enable`). Without `stats` nothing is counted. `checkpoint()` writes
    the logs' starts and recovery points durably, for an owner that does not write them itself after
    each truncation; a log calls it with its lock.
    """

    scheduler: Scheduler
    time: Time = field(default_factory=Time)
    failures: LogDirFailureChannel = field(default_factory=LogDirFailureChannel)
    transaction_verification: bool = False
    max_transaction_timeout_ms: int = 900_000
    producer_id_expiration_check_interval_ms: int = 600_000
    remote_storage: bool = False
    stats: BrokerTopicStats | None = None
    remote: RemoteLookups = field(default_factory=RemoteLookups)
    checkpoint: Callable[[], object] | None = None

    def is_remote(self, config: LogConfig, topic: str) -> bool:
        """Whether segments of a topic may be in remote storage (UnifiedLog.isRemoteLogEnabled)."""
        return (self.remote_storage and config.remote_storage_enable and not config.compact
                and topic not in _NEVER_REMOTE)
