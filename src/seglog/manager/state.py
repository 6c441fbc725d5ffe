"""What the parts of a manager share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from seglog.log.failures import LogDirFailureChannel
from seglog.log.unified_log import LogContext, UnifiedLog
from seglog.manager.checkpoints import Checkpoints
from seglog.manager.configs import TopicConfigs
from seglog.manager.live import LiveDirectories
from seglog.manager.table import LogTable

__all__ = ["ManagerState"]


@dataclass(frozen=True, slots=True)
class ManagerState:
    """The logs of a manager, the directories they are in, and what logs are made with.

    `lock` is held by whoever creates, deletes or replaces a log; it is taken before the lock of any
    log, never after one.
    """

    directories: LiveDirectories
    table: LogTable
    failures: LogDirFailureChannel
    configs: TopicConfigs
    checkpoints: Checkpoints
    context: LogContext
    producer_id_expiration_ms: int
    lock: threading.RLock = field(default_factory=threading.RLock)

    def now_ms(self) -> int:
        """What the manager's clock says."""
        return self.context.time.milliseconds()

    def serve(self, log: UnifiedLog) -> None:
        """Gives a log that has just come into the table the settings that count now: they may have
        changed while it was loaded."""
        config = self.configs.of(log.topic_partition.topic)
        if log.config is not config:
            log.update_config(config)
