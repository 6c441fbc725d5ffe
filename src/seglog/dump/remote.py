"""Records of __remote_log_metadata as Kafka's own classes print them (KIP-405).

Kafka turns each message into an object, which checks its values, and prints that object.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

from seglog.dump.messages import MessageError

__all__ = ["remote_log_metadata"]

_SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED",
                   "DELETE_SEGMENT_FINISHED")
_PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED",
                     "DELETE_PARTITION_FINISHED")


def remote_log_metadata(name: str, values: dict[str, Any]) -> str:
    """The text of one message of family `remote`. Raises MessageError for values Kafka refuses."""
    return {"RemoteLogSegmentMetadataRecord": _segment,
            "RemoteLogSegmentMetadataUpdateRecord": _update,
            "RemotePartitionDeleteMetadataRecord": _partition_delete,
            "RemoteLogSegmentMetadataSnapshotRecord": _snapshot}[name](values)


def _segment(values: dict[str, Any]) -> str:
    segment_id = _segment_id(values["remoteLogSegmentId"])
    start, end = values["startOffset"], values["endOffset"]
    if start < 0:
        raise MessageError(f"Unexpected start offset = {start}. StartOffset for a remote segment "
                           "cannot be negative")
    if end < start:
        raise MessageError(f"Unexpected end offset = {end}. EndOffset for a remote segment cannot "
                           f"be less than startOffset = {start}")
    epochs = _leader_epochs(values)
    state = _state(values["remoteLogSegmentState"], _SEGMENT_STATES)
    return (f"RemoteLogSegmentMetadata{{remoteLogSegmentId={segment_id}, startOffset={start}, "
            f"endOffset={end}, brokerId={values['brokerId']}, "
            f"maxTimestampMs={values['maxTimestampMs']}, "
            f"eventTimestampMs={values['eventTimestampMs']}, segmentLeaderEpochs={epochs}, "
            f"segmentSizeInBytes={values['segmentSizeInBytes']}, "
            f"customMetadata={_custom(values)}, state={state}, "
            f"txnIdxEmpty={_bool(values['txnIndexEmpty'])}}}")


def _update(values: dict[str, Any]) -> str:
    segment_id = _segment_id(values["remoteLogSegmentId"])
    state = _state(values["remoteLogSegmentState"], _SEGMENT_STATES)
    return (f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={segment_id}, "
            f"customMetadata={_custom(values)}, state={state}, "
            f"eventTimestampMs={values['eventTimestampMs']}, brokerId={values['brokerId']}}}")


def _partition_delete(values: dict[str, Any]) -> str:
    # Kafka's check of the state has no text of its own here.
    state = _state(values["remotePartitionDeleteState"], _PARTITION_STATES, "null")
    return (f"RemotePartitionDeleteMetadata{{topicPartition={_partition(values)}, state={state}, "
            f"eventTimestampMs={values['eventTimestampMs']}, brokerId={values['brokerId']}}}")


def _snapshot(values: dict[str, Any]) -> str:
    state = _state(values["remoteLogSegmentState"], _SEGMENT_STATES)
    epochs = _leader_epochs(values)
    return (f"RemoteLogSegmentMetadataSnapshot{{segmentId={_uuid(values['segmentId'])}, "
            f"startOffset={values['startOffset']}, endOffset={values['endOffset']}, "
            f"maxTimestampMs={values['maxTimestampMs']}, segmentLeaderEpochs={epochs}, "
            f"segmentSizeInBytes={values['segmentSizeInBytes']}, "
            f"customMetadata={_custom(values)}, state={state}, "
            f"txnIdxEmpty={_bool(values['txnIndexEmpty'])}}}")


def _segment_id(entry: dict[str, Any]) -> str:
    return (f"RemoteLogSegmentId{{topicIdPartition={_partition(entry)}, "
            f"id={_uuid(entry['id'])}}}")


def _partition(entry: dict[str, Any]) -> str:
    partition = entry["topicIdPartition"]
    return f"{_uuid(partition['id'])}:{partition['name']}-{partition['partition']}"


def _leader_epochs(values: dict[str, Any]) -> str:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in values["segmentLeaderEpochs"]}
    if not epochs:
        raise MessageError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _state(number: int, names: tuple[str, ...], error: str = "state can not be null") -> str:
    if not 0 <= number < len(names):
        raise MessageError(error)
    return names[number]


def _custom(values: dict[str, Any]) -> str:
    data = values["customMetadata"]
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _uuid(data: bytes) -> str:
    return urlsafe_b64encode(data)[:22].decode()


def _bool(value: bool) -> str:
    return "true" if value else "false"
