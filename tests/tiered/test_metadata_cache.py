"""The cache by leader epoch: life cycles, unclean elections, many segments in any order, threads.

tests/kafka/test_remote_metadata_in_kafka.py compares random histories with Kafka's own cache.
"""

from __future__ import annotations

import random
import threading

import pytest

from seglog.errors import IllegalArgumentError, RemoteResourceNotFoundError
from seglog.tiered import (
    RemoteLogMetadataCache, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition,
)

S = RemoteLogSegmentState
PARTITION = TopicIdPartition(bytes(range(16)), "t", 0)


def segment_id(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, number.to_bytes(16, "big"))


def add(cache: RemoteLogMetadataCache, number: int, start: int, end: int,
        epochs: dict[int, int] | None = None, *states: S) -> RemoteLogSegmentId:
    """A copy that begins, and the states after it."""
    one = segment_id(number)
    cache.add_copy_in_progress_segment(RemoteLogSegmentMetadata(
        one, start, end, 1, 2, 3, 4, epochs or {0: start}))
    for state in states or (S.COPY_SEGMENT_FINISHED,):
        move(cache, number, state)
    return one


def move(cache: RemoteLogMetadataCache, number: int, state: S) -> None:
    cache.update_remote_log_segment_metadata(
        RemoteLogSegmentMetadataUpdate(segment_id(number), 9, b"here", state, 5))


def found(cache: RemoteLogMetadataCache, epoch: int, offset: int) -> RemoteLogSegmentId | None:
    metadata = cache.remote_log_segment_metadata(epoch, offset)
    return None if metadata is None else metadata.remote_log_segment_id


def listed(cache: RemoteLogMetadataCache, epoch: int) -> list[int]:
    return [int.from_bytes(one.remote_log_segment_id.id, "big")
            for one in cache.list_remote_log_segments(epoch)]


def test_the_life_of_a_segment() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    cache.mark_initialized()
    one = segment_id(1)
    metadata = RemoteLogSegmentMetadata(one, 10, 29, 1, 2, 3, 4, {0: 10, 3: 20}, b"early")
    cache.add_copy_in_progress_segment(metadata)
    assert found(cache, 0, 10) is None and cache.highest_offset_for_epoch(0) is None
    assert cache.list_remote_log_segments(3) == [metadata]
    move(cache, 1, S.COPY_SEGMENT_FINISHED)
    assert [found(cache, *at) for at in ((0, 9), (0, 19), (0, 20), (3, 19), (3, 29), (3, 30))] == [
        None, one, None, None, one, None]
    assert [cache.highest_offset_for_epoch(epoch) for epoch in (0, 1, 3)] == [19, None, 29]
    assert cache.remote_log_segment_metadata(3, 20) == metadata._replace(
        broker_id=5, event_timestamp_ms=9, custom_metadata=b"here", state=S.COPY_SEGMENT_FINISHED)
    move(cache, 1, S.DELETE_SEGMENT_STARTED)
    assert found(cache, 3, 20) is None and listed(cache, 3) == [1]
    move(cache, 1, S.DELETE_SEGMENT_FINISHED)
    assert listed(cache, 3) == [] and cache.list_all_remote_log_segments() == []
    assert cache.highest_offset_for_epoch(3) == 29
    with pytest.raises(RemoteResourceNotFoundError):
        move(cache, 1, S.DELETE_SEGMENT_FINISHED)


def test_an_unclean_election() -> None:
    """A longer copy of the same offsets replaces the former leader's; a shorter one does not."""
    cache = RemoteLogMetadataCache(PARTITION)
    add(cache, 1, 0, 100)
    add(cache, 2, 101, 190)
    longer = add(cache, 3, 5, 200)
    assert found(cache, 0, 150) == longer and found(cache, 0, 3) == segment_id(1)
    assert listed(cache, 0) == [1, 3, 2]
    shorter = add(cache, 4, 50, 60)
    assert found(cache, 0, 55) == shorter
    assert found(cache, 0, 150) is None, "Kafka does not fall through to the segment below"
    assert cache.highest_offset_for_epoch(0) == 200


def test_events_that_the_state_does_not_allow_are_dropped() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    move(cache, 7, S.COPY_SEGMENT_FINISHED)  # its first event is older than the topic
    add(cache, 1, 0, 9)
    move(cache, 1, S.DELETE_SEGMENT_FINISHED)
    move(cache, 1, S.COPY_SEGMENT_STARTED)
    assert found(cache, 0, 5) == segment_id(1)
    cache.add_copy_in_progress_segment(RemoteLogSegmentMetadata(
        segment_id(1), 0, 99, 1, 2, 3, 4, {0: 0}))
    assert found(cache, 0, 50) is None
    with pytest.raises(IllegalArgumentError, match="COPY_SEGMENT_FINISHED"):
        cache.add_copy_in_progress_segment(RemoteLogSegmentMetadata(
            segment_id(2), 0, 9, 1, 2, 3, 4, {0: 0}, None, S.COPY_SEGMENT_FINISHED))


def test_numbers_that_do_not_fit_and_other_partitions_change_nothing() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    add(cache, 1, 0, 9)
    before = cache.list_all_remote_log_segments()
    for changed in ({"end_offset": 2**63}, {"broker_id": 2**31}, {
            "remote_log_segment_id": segment_id(2)._replace(
                topic_id_partition=PARTITION._replace(partition=1))}):
        metadata = RemoteLogSegmentMetadata(segment_id(2), 0, 9, 1, 2, 3, 4, {0: 0})
        with pytest.raises(IllegalArgumentError):
            cache.add_copy_in_progress_segment(metadata._replace(**changed))
    with pytest.raises(IllegalArgumentError):
        cache.update_remote_log_segment_metadata(RemoteLogSegmentMetadataUpdate(
            segment_id(1), 2**63, None, S.DELETE_SEGMENT_STARTED, 5))
    assert cache.list_all_remote_log_segments() == before
    assert found(cache, 0, 5) == segment_id(1)


def test_epochs_after_the_end_of_a_segment_end_the_search_for_transactions() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    cache.add_copy_in_progress_segment(RemoteLogSegmentMetadata(
        segment_id(1), 0, 9, 1, 2, 3, 4, {0: 0, 1: 1000}, txn_idx_empty=True))
    move(cache, 1, S.COPY_SEGMENT_FINISHED)
    assert found(cache, 0, 500) == segment_id(1)
    assert cache.next_segment_with_txn_index(0, 0) is None


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_many_segments_in_any_order_of_copies_and_deletions(order: str) -> None:
    """Against a dict: the map of offsets splits and drops its chunks."""
    rng = random.Random(3)
    cache, count = RemoteLogMetadataCache(PARTITION), 6000
    add(cache, count, 10 * count, 10 * count + 9)  # the highest, so that no copy replaces another
    numbers = list(range(count))
    if order == "descending":
        numbers.reverse()
    elif order == "shuffled":
        rng.shuffle(numbers)
    for number in numbers:
        add(cache, number, 10 * number, 10 * number + 9)
    gone = set(rng.sample(range(count), 2 * count // 3)) | set(range(2500))
    for number in gone:
        move(cache, number, S.DELETE_SEGMENT_STARTED)
        move(cache, number, S.DELETE_SEGMENT_FINISHED)
    for number in range(count):
        expected = None if number in gone else segment_id(number)
        assert found(cache, 0, 10 * number + rng.randrange(10)) == expected
    assert listed(cache, 0) == [number for number in range(count + 1) if number not in gone]
    assert len(cache) == count + 1 - len(gone)


def test_readers_beside_a_writer() -> None:
    """While segments come and go, an answer is a segment that holds the offset, or none."""
    cache, wrong, done = RemoteLogMetadataCache(PARTITION), list[object](), threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            offset = rng.randrange(30_000)
            try:
                metadata = cache.remote_log_segment_metadata(0, offset)
                if metadata and not metadata.start_offset <= offset <= metadata.end_offset:
                    wrong.append((offset, metadata))
                cache.list_remote_log_segments(0)
            except Exception as error:
                wrong.append(error)
                raise

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3000):
            add(cache, number, 10 * number, 10 * number + 9)
            if number >= 500:
                move(cache, number - 500, S.DELETE_SEGMENT_STARTED)
                move(cache, number - 500, S.DELETE_SEGMENT_FINISHED)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[0]
