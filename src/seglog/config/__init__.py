"""Settings under Kafka's names, with Kafka's types, defaults, validators and error texts.

A field is the Kafka name in Python's spelling: `segment.index.bytes` is `segment_index_bytes`.
`BrokerConfig.from_file("server.properties")` has what a broker's logs need, its `log_config` what a
topic gets.
"""

from __future__ import annotations

from seglog.config.broker import BrokerConfig, LoadConfig, read_properties
from seglog.config.log import LogConfig

__all__ = ["BrokerConfig", "LoadConfig", "LogConfig", "read_properties"]
