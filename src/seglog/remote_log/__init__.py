"""Tiering of a LogManager (KIP-405): its metadata manager, the tasks that copy and expire segments,
and reads of remote segments.

    properties = seglog.config.read_properties("server.properties")
    manager = seglog.LogManager(config=BrokerConfig.from_properties(properties),
                                scheduler=seglog.Scheduler())
    tiering = RemoteLogManager(manager, RemoteLogManagerConfig.from_properties(properties))
    with manager:
        tiering.on_leadership_change(manager.current_logs)
"""

from __future__ import annotations

from seglog.remote_log.index_rebuild import (
    IndexState, RebuiltIndex, RebuiltSegment, rebuild_indexes,
)
from seglog.remote_log.metadata_manager import BrokerReadyCallback, RemoteLogMetadataManager
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from seglog.remote_log.remote_log_manager import RemoteLogManager
from seglog.remote_log.topic_based_manager import TopicBasedRemoteLogMetadataManager

__all__ = ["BrokerReadyCallback", "IndexState", "RebuiltIndex", "RebuiltSegment",
           "RemoteLogManager", "RemoteLogManagerConfig", "RemoteLogMetadataManager",
           "TopicBasedRemoteLogMetadataManager", "rebuild_indexes"]
