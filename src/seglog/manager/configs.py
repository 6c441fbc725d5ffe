"""The settings of logs, and their changes at run time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from seglog.arguments import shown, text
from seglog.config import LogConfig
from seglog.errors import ConfigError
from seglog.log.unified_log import UnifiedLog

__all__ = ["TopicConfigs"]


class TopicConfigs:
    """The settings of each topic: its own on top of the defaults. Safe from any thread.

    A topic's settings record which of them are its own (`LogConfig.override`); the others follow
    changes of the defaults. A LogConfig that was created otherwise has none of its own and does not
    change.
    """

    def __init__(self, default: LogConfig, topics: Mapping[str, LogConfig],
                 remote_storage_enabled: bool) -> None:
        """Raises TypeError for `topics` of another form, such as unparsed settings."""
        if not isinstance(topics, Mapping):
            raise TypeError(f"topic_configs must be a mapping of topics, not {shown(topics)}")
        for topic, config in topics.items():
            text("topic", topic)
            if not isinstance(config, LogConfig):
                raise TypeError(f"topic_configs[{topic!r}] must be a LogConfig, not "
                                f"{shown(config)}; LogConfig().override(...) makes one")
        #: The settings of topics without settings of their own.
        self.default = default
        self._topics = dict(topics)
        self._remote_storage_enabled = remote_storage_enabled
        self._lock = threading.Lock()

    def of(self, topic: str) -> LogConfig:
        """The effective settings of a topic."""
        with self._lock:
            return self._topics.get(topic, self.default)

    def serve(self, log: UnifiedLog) -> None:
        """Sets the current settings of a log that was just added to the table: they may have
        changed while it was loaded."""
        # Again, in case others were set between the two steps: theirs must not be replaced.
        while log.config is not (config := self.of(log.topic_partition.topic)):
            log.update_config(config)

    def set_topic(self, topic: str, properties: Mapping[str, object]) -> None:
        """Replaces the topic's own settings. Raises ConfigError, and then changes nothing."""
        with self._lock:
            found = self.default.override(properties)
            if found.remote_storage_enable and not self._remote_storage_enabled:
                raise ConfigError(
                    "You have to delete all topics with the property remote.storage.enable=true "
                    "before disabling tiered storage cluster-wide")
            found.check_tiering(self._topics.get(topic))
            if found.overridden_configs:
                self._topics[topic] = found
            else:
                self._topics.pop(topic, None)

    def set_default(self, default: LogConfig) -> None:
        """Replaces the defaults."""
        with self._lock:
            self.default = default
            for topic, found in self._topics.items():
                if found.overridden_configs:
                    self._topics[topic] = _rebased(found, default)


def _rebased(config: LogConfig, default: LogConfig) -> LogConfig:
    """The topic's own settings, on top of other defaults."""
    own = {attribute: getattr(config, attribute)
           for attribute, setting in LogConfig.settings().items()
           if setting.name in config.overridden_configs}
    return replace(default, **own, overridden_configs=config.overridden_configs)
