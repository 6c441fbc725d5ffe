"""The id of a log's topic, and the file that holds it (Kafka: PartitionMetadataFile)."""

from __future__ import annotations

import uuid
from typing import Any

from seglog.arguments import shown
from seglog.errors import IllegalArgumentError, InconsistentTopicIdError
from seglog.log.local_log import LocalLog
from seglog.storage.meta import format_uuid, write_partition_metadata
from seglog.storage.paths import PARTITION_METADATA

__all__ = ["LogTopicId", "topic_id_of"]


def topic_id_of(value: Any) -> uuid.UUID:
    """A topic's id. Raises TypeError, and IllegalArgumentError for the zero id, which stands for
    none: no log with it loads."""
    if not isinstance(value, uuid.UUID):
        raise TypeError(f"topic_id must be a uuid.UUID, not {shown(value)}")
    if not value.int:
        raise IllegalArgumentError("topic_id must not be the zero id, which stands for no topic")
    return value


class LogTopicId:
    """The topic id, and whether `partition.metadata` still has to be written."""

    def __init__(self, local: LocalLog, topic_id: uuid.UUID | None) -> None:
        self._local = local
        self.topic_id = topic_id
        self.is_dirty = False

    def assign(self, topic_id: uuid.UUID, *, at_creation: bool = False) -> None:
        """Sets the id of a log that has none, to be written later. Raises InconsistentTopicIdError
        if the log has another id. The caller holds the lock."""
        local = self._local
        if self.topic_id is None:
            self.topic_id, self.is_dirty = topic_id, True
            local.fast_path.disarm()
            local.context.scheduler.schedule_once("flush-metadata-file", self.flush)
        elif self.topic_id != topic_id:
            given = format_uuid(topic_id)
            shown = f"Optional[{given}]" if at_creation else given
            raise InconsistentTopicIdError(
                f"Tried to assign topic ID {shown} to log for topic partition "
                f"{local.topic_partition},{'' if at_creation else ' '}but log already contained "
                f"topic ID {format_uuid(self.topic_id)}")

    def flush(self) -> None:
        """Writes the file if that is still to be done."""
        if not self.is_dirty:
            return
        local = self._local
        with local.lock, local.guarded(
                f"Error while writing partition metadata file {local.path}"):
            if self.is_dirty:  # otherwise another thread has written it
                assert self.topic_id is not None
                write_partition_metadata(f"{local.path}/{PARTITION_METADATA}", self.topic_id)
                self.is_dirty = False
