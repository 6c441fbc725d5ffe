"""The partitions of __remote_log_metadata in a data directory: a real broker's, and damage."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import seglog.tiered as tiered_room
from seglog.errors import (
    CorruptRecordError, DuplicatePartitionError, IllegalArgumentError, KafkaStorageError,
    MetadataParseError, SeglogError, UnknownTopicOrPartitionError,
)
from seglog.model import TopicPartition
from seglog.storage.epochs import read_leader_epochs
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import (
    MetadataTopic, RemoteLogMetadata, RemoteLogMetadataTopicPartitioner, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteLogSegmentMetadataSnapshot, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, RemotePartitionDeleteMetadata, RemotePartitionDeleteState,
    TopicIdPartition, read_metadata_events, read_metadata_topic, serialize,
)
from seglog.tiered.metadata_source import MetadataSource
from seglog.tiered.metadata_store import RemotePartitionMetadataStore
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support import golden as golden_data

PARTITION = TopicIdPartition(bytes(range(16)), "t", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.fixture(scope="module")
def tiered() -> Path:
    """The unpacked golden directory of a broker with remote storage."""
    return golden_data.unpack(archive_path=golden_data.TIERED_ARCHIVE) / "tiered"


def text(raw: bytes) -> str:
    return urlsafe_b64encode(raw)[:22].decode()


# ---- a real broker's

def test_the_brokers_events_name_every_file_in_the_bucket(tiered: Path) -> None:
    topic = read_metadata_topic(tiered / "data")
    assert topic.skipped == () and topic.events > 70
    announced, unfinished = {}, []
    for partition in topic.store.partitions:
        folder = f"{partition.topic}-{partition.partition}-{text(partition.topic_id)}"
        for one in topic.store.list_all_remote_log_segments(partition):
            if one.state != FINISHED:
                unfinished.append((partition.topic, one.start_offset, one.state))
            name = f"{one.start_offset:020}-{text(one.remote_log_segment_id.id)}"
            announced[f"{folder}/{name}.log"] = one.segment_size_in_bytes
    bucket = tiered / "remote" / "kafka-tiered-storage"
    assert announced == {str(path.relative_to(bucket)): path.stat().st_size
                         for path in bucket.rglob("*.log")}
    # The broker was stopped between the end of this copy and the event about it.
    assert unfinished == [("t-start", 187, RemoteLogSegmentState.COPY_SEGMENT_STARTED)]


def test_every_record_below_the_local_log_is_in_a_segment_of_its_epoch(tiered: Path) -> None:
    store, asked = read_metadata_topic(tiered / "data").store, 0
    for partition in store.partitions:
        name = f"{partition.topic}-{partition.partition}"
        epochs = read_leader_epochs(str(tiered / "data" / name / "leader-epoch-checkpoint"))
        local = PartitionLog.open(tiered / "data" / name)
        with gzip.open(tiered / "truth" / f"{name}.jsonl.gz", "rt") as lines:
            offsets = [json.loads(line)["offset"] for line in lines]
        for offset in offsets:
            if offset < local.segments.base_offsets[0]:
                epoch = epochs.epoch_for_offset(offset)
                assert epoch is not None
                found = store.remote_log_segment_metadata(partition, epoch, offset)
                assert found is not None, (name, offset)
                assert found.start_offset <= offset <= found.end_offset
                asked += 1
        local.close()
    assert asked > 1000


def test_the_brokers_partitions_are_where_the_partitioner_puts_them(tiered: Path) -> None:
    partitioner, count = RemoteLogMetadataTopicPartitioner(3), 0
    for number in range(3):
        with PartitionLog.open(tiered / "data" / f"__remote_log_metadata-{number}") as log:
            values = [value for columns in log.to_arrow(columns=["value"])
                      for value in columns.to_pylists()["value"]]
            for (_, event), value in zip(read_metadata_events(log), values, strict=True):
                assert isinstance(event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
                assert serialize(event) == value
                assert partitioner.metadata_partition(event.topic_id_partition) == number
                count += 1
    assert count > 70


# ---- written here

def segment(number: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, number.to_bytes(16, "big")), 10 * number, 10 * number + 9,
        1, 2, 3, 4, {0: 10 * number})


def finished(number: int) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(segment(number).remote_log_segment_id, 5, None, FINISHED,
                                          2)


def copied(count: int) -> list[RemoteLogMetadata]:
    return [event for number in range(count) for event in (segment(number), finished(number))]


def write(data_dir: Path, values: Sequence[bytes | None], *, key: bytes | None = None,
          number: int = 0, base_offset: int = 0) -> list[int]:
    """One batch a record; gives where each begins, and the size."""
    data, positions = b"", []
    for offset, value in enumerate(values, base_offset):
        positions.append(len(data))
        data += v2.encode(Batch(
            base_offset=offset, last_offset_delta=0, base_timestamp=5, max_timestamp=5,
            records=[Record(offset=offset, timestamp=5, key=key, value=value)]))
    folder = data_dir / f"__remote_log_metadata-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base_offset:020}.log").write_bytes(data)
    return [*positions, len(data)]


def found(topic: MetadataTopic) -> set[int]:
    """Numbers of the copied segments of PARTITION."""
    if PARTITION not in topic.store.partitions:
        return set()
    return {int.from_bytes(one.remote_log_segment_id.id, "big")
            for one in topic.store.list_all_remote_log_segments(PARTITION) if one.state == FINISHED}


def test_records_that_do_not_decode_are_skipped_and_named(tmp_path: Path) -> None:
    """Keyed and null-valued records too (KIP-1266), and what the store refuses."""
    values: list[bytes | None] = [serialize(event) for event in copied(3)]
    snapshot = RemoteLogSegmentMetadataSnapshot.create(segment(9))
    values[2:2] = [None, b"", b"\1\0\0", serialize(segment(8)) + b"x", serialize(snapshot)]
    values.append(serialize(segment(7)._replace(state=FINISHED)))
    write(tmp_path, values, key=b"a key")
    topic = read_metadata_topic(tmp_path)
    assert found(topic) == {0, 1, 2} and topic.events == 6
    assert [(one.partition, one.offset, one.next_offset) for one in topic.skipped] == [
        (0, offset, offset + 1) for offset in (2, 3, 4, 5, 6, 11)]
    assert [type(one.error) for one in topic.skipped] == [
        *[MetadataParseError] * 4, *[IllegalArgumentError] * 2]
    assert str(topic.skipped[3]) == ("__remote_log_metadata-0, offset 5: Found 1 byte(s) of "
                                     "garbage after 0")
    assert topic.store.is_initialized(PARTITION)


def flip(data_dir: Path, base_offset: int, position: int) -> Path:
    path = data_dir / "__remote_log_metadata-0" / f"{base_offset:020}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return path


def test_a_damaged_batch_is_skipped_and_named(tmp_path: Path) -> None:
    values = [serialize(event) for event in copied(6)]
    first, last = write(tmp_path, values[:8]), write(tmp_path, values[8:], base_offset=8)
    paths = [flip(tmp_path, 0, first[4] + 70), flip(tmp_path, 8, last[2] - 1)]
    topic = read_metadata_topic(tmp_path)
    assert [(one.offset, one.next_offset) for one in topic.skipped] == [(4, 5), (9, None)]
    assert "offsets 9 to the end" in str(topic.skipped[1])
    assert all(isinstance(one.error, CorruptRecordError) for one in topic.skipped)
    assert [(one.error.file, one.error.position) for one in topic.skipped
            if isinstance(one.error, CorruptRecordError)] == [
        (str(paths[0]), first[4]), (str(paths[1]), last[1])]
    assert found(topic) == {0, 1, 3}


def test_after_a_length_that_is_damaged_the_next_segment_is_read(tmp_path: Path) -> None:
    values = [serialize(event) for event in copied(6)]
    positions = write(tmp_path, values[:6])
    write(tmp_path, values[6:], base_offset=6)
    path = tmp_path / "__remote_log_metadata-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[positions[3] + 8:positions[3] + 12] = b"\0\0\0\1"
    path.write_bytes(data)
    topic = read_metadata_topic(tmp_path)
    assert [(one.offset, one.next_offset) for one in topic.skipped] == [(3, 6)]
    assert "offsets 3 to 5" in str(topic.skipped[0])
    assert found(topic) == {0, 3, 4, 5}


@pytest.mark.parametrize("seed", range(60))
def test_any_damage_leaves_what_is_sound(tmp_path: Path, seed: int, tiered: Path) -> None:
    """Bytes of a real partition are changed: the reader ends, and every finding names offsets."""
    rng = random.Random(seed)
    source = tiered / "data" / f"__remote_log_metadata-{seed % 3}"
    shutil.copytree(source, tmp_path / source.name)
    path = next((tmp_path / source.name).glob("*.log"))
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    for place in {at, *(rng.randrange(len(data)) for _ in range(seed % 3))}:
        data[place] = rng.choice([0, 1, 255, data[place] ^ 1 << rng.randrange(8)])
    path.write_bytes(data[:rng.randrange(at, len(data) + 1)] if seed % 5 == 0 else data)
    whole = sum(1 for _ in read_metadata_events(PartitionLog.open(source)))
    try:
        topic = read_metadata_topic(tmp_path)
    except SeglogError as error:
        pytest.fail(f"{type(error)}: {error}")
    assert topic.events <= whole
    for one in topic.skipped:
        assert one.next_offset is None or one.next_offset > one.offset
        assert "offset" in str(one)


def test_a_deleted_partition_is_gone_and_may_come_back(tmp_path: Path) -> None:
    states = RemotePartitionDeleteState
    deletions = [RemotePartitionDeleteMetadata(PARTITION, state, 1, 2) for state in states]
    values = [serialize(event) for event in [*copied(1), *deletions[:2]]]
    write(tmp_path, values)
    topic = read_metadata_topic(tmp_path)
    assert found(topic) == {0} and topic.events == len(values)
    write(tmp_path, [*values, serialize(deletions[2])])
    topic = read_metadata_topic(tmp_path)
    assert topic.store.partitions == ()
    write(tmp_path, [*values, serialize(deletions[2]), serialize(segment(4)),
                     serialize(finished(4))])
    assert found(read_metadata_topic(tmp_path)) == {4}


def test_directories_that_do_not_do(tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="__remote_log_metadata"):
        read_metadata_topic(tmp_path)
    with pytest.raises(KafkaStorageError):
        read_metadata_topic(tmp_path / "absent")
    write(tmp_path / "one", [], number=1)
    write(tmp_path / "two", [serialize(event) for event in copied(1)], number=2)
    (tmp_path / "two" / "remote-log-index-cache").mkdir()
    (tmp_path / "two" / "__remote_log_metadata-7").write_bytes(b"a file")
    (tmp_path / "two" / "__remote_log_metadata-5.0123456789abcdef0123456789abcdef-delete").mkdir()
    topic = read_metadata_topic(tmp_path / "one", tmp_path / "two")
    assert found(topic) == {0} and topic.skipped == ()
    write(tmp_path / "one", [], number=2)
    with pytest.raises(DuplicatePartitionError):
        read_metadata_topic(tmp_path / "one", tmp_path / "two")


def test_everything_of_the_room_can_be_imported() -> None:
    assert all(getattr(tiered_room, name) for name in tiered_room.__all__)
    assert dir(tiered_room) == sorted(tiered_room.__all__)
    with pytest.raises(AttributeError, match="'seglog.tiered' has no attribute 'nothing'"):
        _ = tiered_room.nothing


def test_a_partition_that_the_topic_names_a_moment_later(
        tiered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer is of one state of the topic: it is not announced yet, or it is."""
    whole = read_metadata_topic(tiered / "data")
    states = iter([replace(whole, store=RemotePartitionMetadataStore()), whole])
    monkeypatch.setattr(MetadataSource, "topic", property(lambda _: next(states)))
    source = MetadataSource(str(tiered / "data"))
    assert source.announced(TopicPartition("t-gzip", 0), None) == (None, ())
    found, _ = source.announced(TopicPartition("t-gzip", 0), None)
    assert found
