"""The id of a log's topic, and the file that holds it (Kafka: PartitionMetadataFile)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from seglog.errors import InconsistentTopicIdError
from seglog.storage.meta import format_uuid, write_partition_metadata
from seglog.storage.paths import PARTITION_METADATA

if TYPE_CHECKING:
    from seglog.log.unified_log import UnifiedLog

__all__ = ["assign_topic_id", "flush_metadata"]


def assign_topic_id(log: UnifiedLog, topic_id: uuid.UUID, *, at_creation: bool = False) -> None:
    """Takes the id for a log that has none, and writes it down later; InconsistentTopicIdError for
    one that has another."""
    if log.topic_id is None:
        log.topic_id = log.unwritten_topic_id = topic_id
        log.context.scheduler.schedule_once("flush-metadata-file", log.flush_metadata)
    elif log.topic_id != topic_id:
        given = format_uuid(topic_id)
        told = f"Optional[{given}]" if at_creation else given
        raise InconsistentTopicIdError(
            f"Tried to assign topic ID {told} to log for topic partition {log.topic_partition},"
            f"{'' if at_creation else ' '}but log already contained topic ID "
            f"{format_uuid(log.topic_id)}")


def flush_metadata(log: UnifiedLog) -> None:
    """Writes the file if that is still to be done."""
    if log.unwritten_topic_id is None:
        return
    with log.lock, log.guarded(f"Error while writing partition metadata file {log.path}"):
        if log.unwritten_topic_id is not None:
            write_partition_metadata(f"{log.path}/{PARTITION_METADATA}", log.unwritten_topic_id)
            log.unwritten_topic_id = None
