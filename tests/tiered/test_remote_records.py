"""Records of __remote_log_metadata: Kafka's bytes, what it refuses, and invalid bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.errors import IllegalArgumentError, MetadataParseError
from seglog.tiered import (
    RemoteLogMetadata, RemoteLogMetadataTopicPartitioner, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataSnapshot, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
    TopicIdPartition, deserialize, serialize,
)
from tests.support.effort import examples
from tests.tiered.remote_events import damaged, random_record, random_value

FOO = TopicIdPartition(bytes.fromhex("00112233445566778899aabbccddeeff"), "foo", 3)
SEGMENT = RemoteLogSegmentId(FOO, bytes.fromhex("0102030405060708090a0b0c0d0e0f10"))
STARTED = RemoteLogSegmentMetadata(SEGMENT, 100, 199, 1700000000000, 7, 1700000001000, 4096,
                                   {5: 150, 0: 100})
FINISHED = RemoteLogSegmentMetadataUpdate(SEGMENT, 1700000002000, b"\0\1\2\3",
                                          RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 7)
_ID = "04666f6f00112233445566778899aabbccddeeff00000003000102030405060708090a0b0c0d0e0f1000"
# By Kafka 4.3.1's RemoteLogMetadataSerde.
VECTORS: list[tuple[RemoteLogMetadata, str]] = [
    (STARTED, f"010000{_ID}000000000000006400000000000000c7000000070000018bcfe56800"
              "0000018bcfe56be803000000000000000000000064000000000500000000000000960000001000"
              "000000"),
    (STARTED._replace(txn_idx_empty=True),
     f"010000{_ID}000000000000006400000000000000c7000000070000018bcfe568000000018bcfe56be8"
     "03000000000000000000000064000000000500000000000000960000001000000001000101"),
    (FINISHED, f"010100{_ID}000000070000018bcfe56fd005000102030100"),
    (RemotePartitionDeleteMetadata(FOO, RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
                                   1700000003000, 7),
     "01020004666f6f00112233445566778899aabbccddeeff0000000300000000070000018bcfe573b80000"),
    (RemoteLogSegmentMetadataSnapshot.create(STARTED.create_with_updates(FINISHED)),
     "0103000102030405060708090a0b0c0d0e0f10000000000000006400000000000000c700000007"
     "0000018bcfe568000000018bcfe56fd00300000000000000000000006400000000050000000000000096"
     "0000001000" "05000102030100"),
]


@pytest.mark.parametrize(("record", "text"), VECTORS)
def test_vectors(record: RemoteLogMetadata, text: str) -> None:
    assert serialize(record).hex() == text
    assert deserialize(bytes.fromhex(text)) == record


def test_unknown_tags_are_skipped() -> None:
    data = serialize(FINISHED)
    assert deserialize(data[:-1] + b"\2\x07\3abc\x63\0") == FINISHED


def test_records_of_any_kind_come_back() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        record = random_record(rng)
        assert deserialize(serialize(record)) == record


@pytest.mark.parametrize(("data", "name", "text"), [
    (b"", "MetadataParseException", "Error while reading frame version"),
    (b"\0\0\0", "MetadataParseException", "Could not deserialize metadata record with frame "),
    (b"\2\0\0", "MetadataParseException", "unknown frame version 2"),
    (b"\1\x09\0", "MetadataParseException", "Unknown metadata id 9"),
    (serialize(STARTED)[:-1], "MetadataParseException", "Failed to deserialize record with type 0"),
    (serialize(STARTED) + b"\0\0", "MetadataParseException", "Found 2 byte(s) of garbage after 0"),
    (serialize(FINISHED)[:-2] + b"\x09\0", "NullPointerException", "state can not be null"),
    (serialize(STARTED).replace(bytes([0, 0, 0, 100]), b"\0\0\xff\xff", 1),
     "IllegalArgumentException", "EndOffset for a remote segment cannot be less than"),
])
def test_what_is_refused(data: bytes, name: str, text: str) -> None:
    with pytest.raises(MetadataParseError) as caught:
        deserialize(data)
    assert text in str(caught.value)
    assert caught.value.kafka_name == name
    assert caught.value.position is not None and 0 <= caught.value.position <= len(data)


@settings(max_examples=examples(500))
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_record_or_a_typed_error(data: bytes, is_framed: bool) -> None:
    try:
        record = deserialize(b"\1" + bytes([len(data) % 5]) + b"\0" + data if is_framed else data)
    except MetadataParseError:
        return
    assert deserialize(serialize(record)) == record


@settings(max_examples=examples(500))
@given(st.integers(0, 2**32))
def test_damaged_records_are_records_or_typed_errors(seed: int) -> None:
    rng = random.Random(seed)
    value = rng.choice([random_value(rng), damaged(serialize(random_record(rng)), rng)])
    try:
        record = deserialize(value)
    except MetadataParseError:
        return
    assert deserialize(serialize(record)) == record


def test_a_count_that_the_bytes_cannot_hold_is_refused_at_once() -> None:
    data = serialize(STARTED)
    for count in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\x7f"):
        with pytest.raises(MetadataParseError):  # of epochs
            deserialize(data[:81] + count + data[82:])
        with pytest.raises(MetadataParseError):  # of tagged fields
            deserialize(data[:-1] + count)


@pytest.mark.parametrize("record", [
    STARTED._replace(start_offset=2**63), STARTED._replace(broker_id=2**31),
    STARTED._replace(segment_leader_epochs=((2**31, 0),)),
    FINISHED._replace(event_timestamp_ms=2**63),
    FINISHED._replace(remote_log_segment_id=SEGMENT._replace(id=b"short")),
    FINISHED._replace(remote_log_segment_id=SEGMENT._replace(
        topic_id_partition=FOO._replace(topic="x" * 40_000))),
])
def test_fields_that_do_not_fit_are_not_written(record: RemoteLogMetadata) -> None:
    with pytest.raises(IllegalArgumentError):
        serialize(record)


def test_metadata_checks_its_offsets_and_epochs() -> None:
    for start, end, epochs in ((-1, 5, {0: 0}), (5, 4, {0: 5}), (0, 5, {})):
        with pytest.raises(IllegalArgumentError):
            RemoteLogSegmentMetadata(SEGMENT, start, end, 0, 0, 0, 0, epochs)
    other = FINISHED._replace(remote_log_segment_id=RemoteLogSegmentId.generate_new(FOO))
    with pytest.raises(IllegalArgumentError, match="remoteLogSegmentId"):
        STARTED.create_with_updates(other)


def test_transitions() -> None:
    segment, partition = RemoteLogSegmentState, RemotePartitionDeleteState
    assert [[int(segment.is_valid_transition(source, target)) for target in segment]
            for source in (None, *segment)] == [
        [1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert [[int(partition.is_valid_transition(source, target)) for target in partition]
            for source in (None, *partition)] == [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]]


def test_partitioner() -> None:
    """Values of Kafka 4.3.1's RemoteLogMetadataTopicPartitioner."""
    partitioner = RemoteLogMetadataTopicPartitioner(50)
    assert [partitioner.metadata_partition(FOO._replace(partition=number))
            for number in range(6)] == [5, 31, 16, 49, 7, 15]
    with pytest.raises(IllegalArgumentError):
        RemoteLogMetadataTopicPartitioner(0)
    with pytest.raises(IllegalArgumentError, match="16 bytes"):
        partitioner.metadata_partition(FOO._replace(topic_id=b"short"))
