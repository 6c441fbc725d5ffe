"""The settings of logs, and their changes at run time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from seglog.config import LogConfig
from seglog.errors import ConfigError
from seglog.log.unified_log import UnifiedLog

__all__ = ["TopicConfigs", "at_least_one", "warn_of_compacted"]

_log = logging.getLogger(__name__)
_TOPICS_SHOWN = 5


class TopicConfigs:
    """Which settings a topic has: its own on top of the defaults. Safe from any thread.

    A topic's settings know which of them are its own (`LogConfig.override`); those follow it when
    the defaults change. A LogConfig that was made otherwise has none of its own and stays as it is.
    """

    def __init__(self, default: LogConfig, topics: Mapping[str, LogConfig],
                 remote_storage_enabled: bool) -> None:
        self._default = default
        self._topics = dict(topics)
        self._remote_storage_enabled = remote_storage_enabled
        self._lock = threading.Lock()

    @property
    def default(self) -> LogConfig:
        """Of topics without settings of their own."""
        return self._default

    def of(self, topic: str) -> LogConfig:
        """What counts for a topic."""
        with self._lock:
            return self._topics.get(topic, self._default)

    def set_topic(self, topic: str, properties: Mapping[str, object]) -> None:
        """Replaces the topic's own settings. ConfigError; then nothing has changed."""
        with self._lock:
            found = self._default.override(properties)
            if found.remote_storage_enable and not self._remote_storage_enabled:
                raise ConfigError(
                    "You have to delete all topics with the property remote.storage.enable=true "
                    "before disabling tiered storage cluster-wide")
            if found.overridden_configs:
                self._topics[topic] = found
            else:
                self._topics.pop(topic, None)

    def set_default(self, default: LogConfig) -> None:
        """Replaces the defaults."""
        with self._lock:
            self._default = default
            for topic, found in self._topics.items():
                if found.overridden_configs:
                    self._topics[topic] = _rebased(found, default)


def warn_of_compacted(logs: Iterable[UnifiedLog]) -> None:
    """One line for all logs whose topics are compacted, as long as nothing here compacts them."""
    found = set()
    for log in logs:
        if isinstance(log, UnifiedLog):  # and not what `load` put in its place
            found |= {log.topic_partition.topic} if log.config.compact else set()
    if topics := sorted(found):
        _log.warning("%d topics are compacted (cleanup.policy=compact): their logs are kept whole, "
                     "seglog does not compact them yet: %s%s", len(topics),
                     ", ".join(topics[:_TOPICS_SHOWN]),
                     ", ..." if len(topics) > _TOPICS_SHOWN else "")


def at_least_one(name: str, value: int) -> None:
    """Refuses a setting as Kafka's validator does. ConfigError."""
    if value < 1:
        raise ConfigError(
            f"Invalid value {value} for configuration {name}: Value must be at least 1")


def _rebased(config: LogConfig, default: LogConfig) -> LogConfig:
    """What a topic set itself, on top of other defaults."""
    own = {attribute: getattr(config, attribute)
           for attribute, setting in LogConfig.settings().items()
           if setting.name in config.overridden_configs}
    return replace(default, **own, overridden_configs=config.overridden_configs)
