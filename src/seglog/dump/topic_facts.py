"""What a controller's log says of a topic: its number of partitions and its settings (KRaft)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Final

from seglog.dump.decoders import cluster_metadata_decoder
from seglog.errors import CorruptDataError
from seglog.model import TopicPartition
from seglog.storage.partition_log import PartitionLog

__all__ = ["TopicFacts", "read_topic_facts"]

_CLUSTER_METADATA: Final = TopicPartition("__cluster_metadata", 0)
_TOPIC_RESOURCE: Final = 2  # ConfigResource.Type.TOPIC


@dataclass(slots=True)
class TopicFacts:
    """A topic in the cluster's metadata. `config` has what was set for the topic itself."""

    partitions: int = 0
    config: dict[str, str] = field(default_factory=dict)


def read_topic_facts(data_dir: str | os.PathLike[str], topic: str) -> TopicFacts | None:
    """What `__cluster_metadata-0` in a data directory says of a topic now.

    None if it is not there, if the topic is not in it, if it cannot be read, or if it begins with a
    snapshot, which is not read here. Raises KafkaStorageError.
    """
    path = os.path.join(os.fspath(data_dir), str(_CLUSTER_METADATA))
    if not os.path.isdir(path):
        return None
    facts, topic_id, decode = TopicFacts(), None, cluster_metadata_decoder()
    try:
        with PartitionLog.open(path, topic_partition=_CLUSTER_METADATA) as log:
            if log.log_start_offset > 0:
                return None
            for columns in log.to_arrow(columns=["offset", "value"]):
                rows = columns.to_pylists()
                for offset, value in zip(rows["offset"], rows["value"], strict=True):
                    _, text = decode(offset, None, value)
                    if text is None or not text.startswith("{"):
                        continue  # a record that does not decode
                    record = json.loads(text)
                    kind, data = record["type"], record["data"]
                    if kind == "TOPIC_RECORD" and data["name"] == topic:
                        topic_id, facts.partitions = data["topicId"], 0
                    elif kind == "PARTITION_RECORD" and data["topicId"] == topic_id:
                        facts.partitions = max(facts.partitions, data["partitionId"] + 1)
                    elif kind == "REMOVE_TOPIC_RECORD" and data["topicId"] == topic_id:
                        topic_id, facts = None, TopicFacts()
                    elif kind == "CONFIG_RECORD" and (data["resourceType"], data["resourceName"]) \
                            == (_TOPIC_RESOURCE, topic):
                        _set(facts.config, data["name"], data["value"])
    except CorruptDataError:
        return None
    return None if topic_id is None else facts


def _set(config: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        config.pop(name, None)
    else:
        config[name] = value
