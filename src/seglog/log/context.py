"""What a log shares with the other logs of its process."""

from __future__ import annotations

from dataclasses import dataclass, field

from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.scheduler import Scheduler, Time
from seglog.log.stats import BrokerTopicStats

__all__ = ["LogContext"]


@dataclass(frozen=True, slots=True)
class LogContext:
    """The scheduler of its tasks, its clock, the channel of failed directories. Times are ms.

    `transaction_verification`: whether a client's transactional batch needs a verification guard
    (`transaction.partition.verification.enable`). Without `stats` nothing is counted.
    """

    scheduler: Scheduler
    time: Time = field(default_factory=Time)
    failures: LogDirFailureChannel = field(default_factory=LogDirFailureChannel)
    transaction_verification: bool = False
    max_transaction_timeout_ms: int = 900_000
    producer_id_expiration_check_interval_ms: int = 600_000
    remote_storage: bool = False
    stats: BrokerTopicStats | None = None
