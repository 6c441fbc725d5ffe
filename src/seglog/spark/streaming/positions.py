"""The position of a stream: one offset a partition, in the JSON of Spark's Kafka source.

KafkaSourceOffset writes `{"orders":{"0":23,"1":7}}` (JsonUtils.partitionOffsets), so a checkpoint
or `startingOffsets` can move between the two sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seglog.model import TopicPartition
from seglog.spark.option_values import is_int

__all__ = ["OffsetDict", "Offsets", "as_dict", "as_json", "from_checkpoint"]

#: The next offset of each partition.
Offsets = Mapping[TopicPartition, int]
#: The next offsets by topic, then by partition as text.
OffsetDict = dict[str, dict[str, int]]


def as_dict(offsets: Offsets) -> OffsetDict:
    """The offsets by topic and partition, sorted because Spark compares offsets by their text."""
    found: OffsetDict = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return found


def as_json(offsets: Offsets) -> str:
    """The JSON that KafkaSourceOffset writes, for `startingOffsets` and `endingOffsets`."""
    return json.dumps(as_dict(offsets), separators=(",", ":"))


def from_checkpoint(found: Any) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint's JSON. Raises ValueError for another source's checkpoint."""
    try:
        offsets = {TopicPartition(topic, int(partition)): offset
                   for topic, partitions in found.items()
                   for partition, offset in partitions.items()}
    except (AttributeError, ValueError):
        raise _not_ours(found) from None
    if not all(is_int(offset) and offset >= 0 for offset in offsets.values()):
        raise _not_ours(found)
    return offsets


def _not_ours(found: Any) -> ValueError:
    text = json.dumps(found)
    return ValueError(
        f"the checkpoint holds the offset {text if len(text) < 200 else text[:200] + '...'}, and "
        'this source writes e.g. {"topicA":{"0":23}}: it belongs to a query of another source. '
        "Start this query with a checkpointLocation of its own")
