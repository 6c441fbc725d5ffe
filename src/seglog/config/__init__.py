"""Settings under Kafka's names, with Kafka's types, defaults, validators and error texts.

A field has Kafka's name in Python's spelling: `segment.index.bytes` is `segment_index_bytes`.
`BrokerConfig.from_file("server.properties")` has the settings of a broker's logs, and its
`log_config` returns a topic's.
"""

from __future__ import annotations

from seglog.config.broker import BrokerConfig, LoadConfig, read_properties
from seglog.config.log import LogConfig

__all__ = ["BrokerConfig", "LoadConfig", "LogConfig", "read_properties"]
