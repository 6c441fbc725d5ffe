"""Packed metadata of remote segments beside the objects, and the map of offsets beside a dict."""

from __future__ import annotations

import bisect
import random

import pytest

from seglog._native.remote_segments import (
    SegmentsByOffset, SegmentUnpacker, pack_segment, segment_epoch_end, segment_epochs,
    segment_state, update_segment,
)
from seglog.errors import IllegalArgumentError
from seglog.tiered import (
    RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState, TopicIdPartition,
)
from tests.tiered.remote_events import random_record

STATES = tuple(RemoteLogSegmentState)
PARTITION = TopicIdPartition(bytes(16), "t", 0)


def segment(number: int, epochs: dict[int, int] | None = None) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, number.to_bytes(16, "big")), 0, 99, 1, 2, 3, 4,
        epochs or {0: 0})


def unpacked(packed: bytes, partition: TopicIdPartition = PARTITION) -> RemoteLogSegmentMetadata:
    return SegmentUnpacker(partition, RemoteLogSegmentMetadata, RemoteLogSegmentId, STATES)(packed)


def test_any_record_comes_back_as_it_was() -> None:
    rng, updates = random.Random(1), 0
    segments = list[RemoteLogSegmentMetadata]()
    while len(segments) < 300:
        record = random_record(rng)
        if isinstance(record, RemoteLogSegmentMetadata):
            packed = pack_segment(record)
            back = unpacked(packed, record.topic_id_partition)
            assert back == record and str(back) == str(record) and hash(back) == hash(record)
            assert type(back) is type(record) and type(back.state) is RemoteLogSegmentState
            assert type(back.txn_idx_empty) is bool
            assert segment_state(packed) == record.state
            assert segment_epochs(packed) == record.segment_leader_epochs
            segments.append(record)
        elif isinstance(record, RemoteLogSegmentMetadataUpdate) and segments:
            old = segments[-1]
            update = record._replace(remote_log_segment_id=old.remote_log_segment_id)
            assert unpacked(update_segment(pack_segment(old), update), old.topic_id_partition) \
                == old.create_with_updates(update)
            updates += 1
    assert updates > 50


def test_where_epochs_end() -> None:
    packed = pack_segment(segment(1, {1: 10, 3: 40, 7: -2**63}))
    assert [segment_epoch_end(packed, epoch) for epoch in (0, 1, 2, 3, 6, 7, 8)] == [
        9, 39, 39, 2**63 - 1, 2**63 - 1, 99, 99]


def test_what_does_not_fit_is_refused() -> None:
    good = segment(1)
    for wrong in ({"end_offset": 2**63}, {"broker_id": 2**31}, {"max_timestamp_ms": -2**63 - 1},
                  {"segment_size_in_bytes": -2**31 - 1}, {"segment_leader_epochs": ((2**31, 0),)}):
        with pytest.raises(IllegalArgumentError, match="does not fit its fields"):
            pack_segment(good._replace(**wrong))
    with pytest.raises(IllegalArgumentError, match="An id has 16 bytes, not 3"):
        pack_segment(good._replace(remote_log_segment_id=RemoteLogSegmentId(PARTITION, b"abc")))
    with pytest.raises(IllegalArgumentError, match="does not fit its fields"):
        update_segment(pack_segment(good), RemoteLogSegmentMetadataUpdate(
            good.remote_log_segment_id, 0, None, STATES[1], 2**31))


def test_bytes_that_are_no_segment() -> None:
    packed = pack_segment(segment(1)._replace(custom_metadata=b"here"))
    entry = len(packed) - 4
    for wrong in (b"", packed[:-1], packed + b"\0", packed[:entry], packed[:20]):
        for read in (segment_state, segment_epochs, unpacked, lambda one: segment_epoch_end(one, 0),
                     lambda one: SegmentsByOffset().put(0, one)):
            with pytest.raises(ValueError, match="not the packed metadata"):
                read(wrong)
    with pytest.raises(ValueError, match="state 0 of 0"):
        SegmentUnpacker(PARTITION, RemoteLogSegmentMetadata, RemoteLogSegmentId, ())(packed)
    with pytest.raises(TypeError, match="dict is no tuple"):
        SegmentUnpacker(PARTITION, dict, RemoteLogSegmentId, STATES)  # type: ignore[type-var]


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_the_map_beside_a_dict(order: str) -> None:
    rng, ours, model = random.Random(order), SegmentsByOffset(), dict[int, bytes]()
    assert ours.find(0, 5) is None and list(ours) == []
    ours.remove(3, bytes(16))
    offsets = [10 * number for number in range(-2000, 4000)]
    if order == "descending":
        offsets.reverse()
    elif order == "random":
        rng.shuffle(offsets)
    for number, offset in enumerate(offsets):
        model[offset] = pack_segment(segment(number)._replace(end_offset=offset + 4))
        ours.put(offset, model[offset])
    for number in range(9000):
        offset = rng.choice(offsets)
        if rng.random() < 0.5:
            model.pop(offset, None)
            held = ours.find(0, offset)
            ours.remove(offset, held[:16] if held else bytes(16))
        elif rng.random() < 0.5:
            model[offset] = pack_segment(segment(10**6 + number)._replace(end_offset=offset + 4))
            ours.put(offset, model[offset])
        else:
            ours.remove(offset, b"\xff" * 16)  # of another segment: nothing changes
    keys = sorted(model)
    assert list(ours) == [model[key] for key in keys] and len(ours) == len(keys)
    for offset in [*range(-20_010, 40_010, 3), -2**63, 2**63 - 1]:
        at = bisect.bisect_right(keys, offset) - 1
        assert ours.find(0, offset) == (
            None if at < 0 else model[keys[at]] if offset <= keys[at] + 4 else b"")
    assert ours.find(0, 2**63) is None and ours.find(0, -2**80) is None
    while keys:  # from the end, at a key or before it
        count = min(rng.choice([1, 2, 700, 1500]), len(keys))
        at, newest = keys[-count] - rng.choice([0, 5]), model[keys[-1]]
        assert ours.put_last(at, newest) == [model[key] for key in reversed(keys[-count:])]
        del keys[-count:]
        assert list(ours) == [*(model[key] for key in keys), newest]
        ours.remove(at, newest[:16])
        assert list(ours) == [model[key] for key in keys] and len(ours) == len(keys)
    assert ours.find(0, 0) is None and ours.put_last(3, newest) == []
