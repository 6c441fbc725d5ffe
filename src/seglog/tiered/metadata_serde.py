"""Records of __remote_log_metadata as bytes and back (KIP-405, Kafka: RemoteLogMetadataSerde).

All messages have version 0 and are flexible (KIP-482): unknown tagged fields are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from seglog._native.dump import java_utf8
from seglog.errors import IllegalArgumentError, MetadataParseError, UncheckedError
from seglog.tiered.api_frames import (
    FRAME_VERSION, read_frame, read_unsigned_varint, unsigned_varint,
)
from seglog.tiered.remote_records import (
    ID_BYTES, RemoteLogMetadata, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, TopicIdPartition, check_id,
)
from seglog.tiered.segment_states import RemoteLogSegmentState, RemotePartitionDeleteState

__all__ = ["deserialize", "serialize", "unknown_tags"]

_STRING_MAX = 0x7FFF
_SEGMENT_STATES = tuple(RemoteLogSegmentState)
_DELETE_STATES = tuple(RemotePartitionDeleteState)
# startOffset endOffset brokerId maxTimestampMs eventTimestampMs
_SEGMENT = struct.Struct(">qqiqq")
_EPOCH = struct.Struct(">iq")
_SIZE = struct.Struct(">i")
_PARTITION = struct.Struct(">i")
_EVENT = struct.Struct(">iq")  # brokerId eventTimestampMs
_STATE = struct.Struct(">b")


def serialize(metadata: RemoteLogMetadata) -> bytes:
    """The bytes of the record's value. Raises IllegalArgumentError for a field that does not
    fit."""
    try:
        if isinstance(metadata, RemoteLogSegmentMetadata):
            key = 0
            body = _segment_id_bytes(metadata.remote_log_segment_id) + _segment_bytes(metadata)
        elif isinstance(metadata, RemoteLogSegmentMetadataUpdate):
            key = 1
            body = (_segment_id_bytes(metadata.remote_log_segment_id)
                    + _EVENT.pack(metadata.broker_id, metadata.event_timestamp_ms)
                    + _custom_bytes(metadata.custom_metadata) + _STATE.pack(metadata.state) + b"\0")
        elif isinstance(metadata, RemotePartitionDeleteMetadata):
            key = 2
            body = (_partition_bytes(metadata.topic_id_partition) + b"\0"
                    + _EVENT.pack(metadata.broker_id, metadata.event_timestamp_ms)
                    + _STATE.pack(metadata.state) + b"\0")
        elif isinstance(metadata, RemoteLogSegmentMetadataSnapshot):
            key, body = 3, check_id(metadata.segment_id) + _segment_bytes(metadata)
        else:
            raise IllegalArgumentError(f"RemoteLogMetadataTransform for given RemoteStorageMetadata"
                                       f" class: {type(metadata).__name__} does not exist.")
    except struct.error as error:
        raise IllegalArgumentError(f"{metadata} does not fit its record: {error}") from None
    return bytes((FRAME_VERSION, key, 0)) + body


def _segment_id_bytes(segment_id: RemoteLogSegmentId) -> bytes:
    return (_partition_bytes(segment_id.topic_id_partition) + b"\0" + check_id(segment_id.id)
            + b"\0")


@lru_cache(maxsize=4096)
def _partition_bytes(partition: TopicIdPartition) -> bytes:
    """The encoded partition without tagged fields."""
    name = partition.topic.encode("utf-8", "replace")  # Java also writes a lone surrogate as `?`
    if len(name) > _STRING_MAX:
        raise IllegalArgumentError("'name' field is too long to be serialized")
    return (unsigned_varint(len(name) + 1) + name + check_id(partition.topic_id)
            + _PARTITION.pack(partition.partition))


def _custom_bytes(data: bytes | None) -> bytes:
    return b"\0" if data is None else unsigned_varint(len(data) + 1) + data


def _segment_bytes(metadata: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataSnapshot) -> bytes:
    epochs = metadata.segment_leader_epochs
    return b"".join((
        _SEGMENT.pack(metadata.start_offset, metadata.end_offset, metadata.broker_id,
                      metadata.max_timestamp_ms, metadata.event_timestamp_ms),
        unsigned_varint(len(epochs) + 1),
        *(_EPOCH.pack(*entry) + b"\0" for entry in epochs),
        _SIZE.pack(metadata.segment_size_in_bytes), _custom_bytes(metadata.custom_metadata),
        _STATE.pack(metadata.state), b"\1\0\1\1" if metadata.txn_idx_empty else b"\0"))


def deserialize(data: bytes | None) -> RemoteLogMetadata:
    """Decodes the record in a value.

    Raises MetadataParseError, also for a record without a value: `kafka_name` is Kafka's exception,
    `position` the byte of the value where the body, or surplus bytes after it, begin.
    """
    if data is None:
        raise MetadataParseError("The record has no value", kafka_name="NullPointerException")
    key, version, start = read_frame(data)
    if key not in _RECORDS:
        raise MetadataParseError("org.apache.kafka.common.errors.UnsupportedVersionException: "
                                 f"Unknown metadata id {key}", position=start,
                                 expected=f"0 to {len(_RECORDS) - 1}", found=key)
    read, build = _RECORDS[key]
    try:
        fields, end = read(data, start, version, [])
    except (IndexError, ValueError, struct.error):
        raise MetadataParseError(f"Failed to deserialize record with type {key}",
                                 position=start) from None
    if end < len(data):
        raise MetadataParseError(f"Found {len(data) - end} byte(s) of garbage after {key}",
                                 position=end, expected=end, found=len(data))
    try:
        return build(*fields)
    except (IllegalArgumentError, UncheckedError) as error:
        raise MetadataParseError(str(error), position=start,
                                 kafka_name=error.kafka_name) from None


def unknown_tags(data: bytes) -> list[tuple[int, int]]:
    """(tag, its byte in the value) of each tagged field that the messages do not have, for a value
    that `deserialize` takes."""
    key, version, start = read_frame(data)
    found: _Tags = []
    _RECORDS[key][0](data, start, version, found)
    return found


# The readers return the fields of a message and the position after it, and note the tagged fields
# that they skip. As in Kafka's generated code, structures inside a message refuse a newer version,
# and the message itself does not.

_Fields = tuple[tuple[Any, ...], int]
#: (tag, its byte in the value) of each.
_Tags = list[tuple[int, int]]


def _read_segment(data: bytes, position: int, version: int, unknown: _Tags) -> _Fields:
    segment_id, position = _read_segment_id(data, position, version, unknown)
    fields, position = _read_segment_fields(data, position, version, unknown)
    return (segment_id, *fields), position


def _read_snapshot(data: bytes, position: int, version: int, unknown: _Tags) -> _Fields:
    raw, position = _read_bytes(data, position, ID_BYTES)
    fields, position = _read_segment_fields(data, position, version, unknown)
    return (raw, *fields), position


def _read_segment_fields(data: bytes, position: int, version: int, unknown: _Tags) -> _Fields:
    start, end, broker_id, max_timestamp, event_timestamp = _SEGMENT.unpack_from(data, position)
    epochs, position = _read_epochs(data, position + _SEGMENT.size, version, unknown)
    size, = _SIZE.unpack_from(data, position)
    custom, position = _read_custom(data, position + _SIZE.size)
    state, = _STATE.unpack_from(data, position)
    txn_index_empty, position = _read_tags(data, position + 1, unknown, has_flag=True)
    return (start, end, max_timestamp, broker_id, event_timestamp, size, epochs, custom, state,
            txn_index_empty), position


def _read_update(data: bytes, position: int, version: int, unknown: _Tags) -> _Fields:
    segment_id, position = _read_segment_id(data, position, version, unknown)
    broker_id, event_timestamp = _EVENT.unpack_from(data, position)
    custom, position = _read_custom(data, position + _EVENT.size)
    state, = _STATE.unpack_from(data, position)
    _, position = _read_tags(data, position + 1, unknown)
    return (segment_id, event_timestamp, custom, state, broker_id), position


def _read_delete(data: bytes, position: int, version: int, unknown: _Tags) -> _Fields:
    partition, position = _read_partition(data, position, version, unknown)
    broker_id, event_timestamp = _EVENT.unpack_from(data, position)
    state, = _STATE.unpack_from(data, position + _EVENT.size)
    _, position = _read_tags(data, position + _EVENT.size + 1, unknown)
    return (partition, state, event_timestamp, broker_id), position


def _read_segment_id(data: bytes, position: int, version: int, unknown: _Tags
                     ) -> tuple[RemoteLogSegmentId, int]:
    partition, position = _read_partition(data, position, version, unknown)
    raw, position = _read_bytes(data, position, ID_BYTES)
    _, position = _read_tags(data, position, unknown)
    return RemoteLogSegmentId(partition, raw), position


def _read_partition(data: bytes, position: int, version: int, unknown: _Tags
                    ) -> tuple[TopicIdPartition, int]:
    if version > 0:
        raise ValueError(version)
    length, start = read_unsigned_varint(data, position)
    if not 0 < length <= _STRING_MAX + 1:
        raise ValueError(length)
    raw, position = _read_bytes(data, start, length - 1 + ID_BYTES + _PARTITION.size)
    _, position = _read_tags(data, position, unknown)
    return _partition_of(raw), position


@lru_cache(maxsize=4096)
def _partition_of(raw: bytes) -> TopicIdPartition:
    """A partition from name, id and number. Cached, because all records of a partition repeat
    them."""
    name = raw[:-ID_BYTES - _PARTITION.size]
    number, = _PARTITION.unpack_from(raw, len(name) + ID_BYTES)
    return TopicIdPartition(raw[len(name):-_PARTITION.size], java_utf8(name).decode(), number)


def _read_epochs(data: bytes, position: int, version: int, unknown: _Tags
                 ) -> tuple[list[tuple[int, int]], int]:
    length, position = read_unsigned_varint(data, position)
    if not 0 < length <= len(data) - position + 1 or (length > 1 and version > 0):
        raise ValueError(length)
    epochs = []
    for _ in range(length - 1):
        epochs.append(_EPOCH.unpack_from(data, position))
        _, position = _read_tags(data, position + _EPOCH.size, unknown)
    return epochs, position


def _read_custom(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_unsigned_varint(data, position)
    if -2**31 < length <= 0:  # Java subtracts 1, so the least int32 becomes the greatest
        return None, position
    return _read_bytes(data, position, length - 1)


def _read_bytes(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if size < 0 or end > len(data):
        raise ValueError(size)
    return data[position:end], end


def _read_tags(data: bytes, position: int, unknown: _Tags, *, has_flag: bool = False
               ) -> tuple[bool, int]:
    """Whether tag 0 (TxnIndexEmpty, where a message has it) is true; other tags are skipped."""
    if data[position] == 0:
        return False, position + 1
    flag = False
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        start = position
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        if tag == 0 and has_flag:
            flag, position = data[position] != 0, position + 1  # Kafka does not check the size
        else:
            _, position = _read_bytes(data, position, size)
            unknown.append((tag, start))
    return flag, position


def _build_segment(*fields: Any) -> RemoteLogSegmentMetadata:
    state = fields[-2]
    # Kafka checks the offsets and epochs before the state.
    known = _SEGMENT_STATES[state] if 0 <= state < len(_SEGMENT_STATES) else _SEGMENT_STATES[0]
    metadata = RemoteLogSegmentMetadata(*_with_state(fields, known))
    _segment_state(state)
    return metadata


def _build_delete(partition: TopicIdPartition, state: int, event_timestamp: int,
                  broker_id: int) -> RemotePartitionDeleteMetadata:
    if not 0 <= state < len(_DELETE_STATES):
        raise UncheckedError("null", "NullPointerException")
    return RemotePartitionDeleteMetadata(partition, _DELETE_STATES[state], event_timestamp,
                                         broker_id)


def _build(kind: Callable[..., RemoteLogMetadata], *fields: Any) -> RemoteLogMetadata:
    return kind(*_with_state(fields, _segment_state(fields[-2])))


def _with_state(fields: tuple[Any, ...], state: RemoteLogSegmentState) -> list[Any]:
    """The fields, of which the last but one is the number of this state."""
    return [*fields[:-2], state, fields[-1]]


def _segment_state(number: int) -> RemoteLogSegmentState:
    if not 0 <= number < len(_SEGMENT_STATES):
        raise UncheckedError("state can not be null", "NullPointerException")
    return _SEGMENT_STATES[number]


_Read = Callable[[bytes, int, int, _Tags], _Fields]
_RECORDS: dict[int, tuple[_Read, Callable[..., RemoteLogMetadata]]] = {
    0: (_read_segment, _build_segment),
    1: (_read_update, partial(_build, RemoteLogSegmentMetadataUpdate)),
    2: (_read_delete, _build_delete),
    3: (_read_snapshot, partial(_build, RemoteLogSegmentMetadataSnapshot)),
}
