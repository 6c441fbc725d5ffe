"""Data directories with logs, and a manager of their cleaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seglog.cleaner import LogCleanerManager
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.log.unified_log import UnifiedLog
from seglog.manager.directories import LogDirectory
from seglog.model import TopicPartition
from tests.cleaner.support import NOW, append, opened, roll
from tests.manager.support import entries

KEY = TopicPartition("t", 0)


class Logs:
    """What a cleaner sees of logs: a dict."""

    def __init__(self) -> None:
        self.of: dict[TopicPartition, UnifiedLog] = {}
        self.moving: set[TopicPartition] = set()
        self.kept: set[TopicPartition] = set()

    def compacted(self) -> Iterator[tuple[TopicPartition, UnifiedLog]]:
        return ((key, log) for key, log in self.of.items() if log.config.compact)

    def serves(self, log: UnifiedLog) -> bool:
        key = log.topic_partition
        return self.of.get(key) is log and key not in self.moving

    def has(self, key: TopicPartition) -> bool:
        return key in self.of

    def keeps(self, log_dir: str, key: TopicPartition) -> bool:
        return key in self.of or key in self.kept


class World:
    """Two data directories, their logs and a manager of their cleaning."""

    def __init__(self, home: Path) -> None:
        self.home, self.logs = home, Logs()
        self.channel = LogDirFailureChannel()
        self.dirs = [LogDirectory(str(home / name), None, self.channel)
                     for name in ("one", "two")]
        for one in self.dirs:
            Path(one.path).mkdir()
        self.manager = LogCleanerManager(self.dirs, self.logs)

    def log(self, name: str = "t-0", where: str = "one", *, dirty: int = 3, **config: Any
            ) -> UnifiedLog:
        """A log with so many closed segments of a batch each."""
        log = opened(self.home / where / name, **config)
        for number in range(dirty):
            append(log, [(b"key %d" % number, bytes(100))])
            roll(log)
        self.logs.of[log.topic_partition] = log
        return log

    def grabbed(self, now_ms: int = NOW) -> str | None:
        found, _ = self.manager.grab_filthiest_compacted_log(now_ms)
        return None if found is None else str(found.topic_partition)

    def done(self, name: str, end: int) -> None:
        log = next(one for key, one in self.logs.of.items() if str(key) == name)
        self.manager.done_cleaning(log, log.parent_dir, end)

    def checkpoint(self, where: str = "one") -> dict[TopicPartition, int]:
        return entries(self.home / where / "cleaner-offset-checkpoint")
