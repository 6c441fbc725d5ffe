"""The builder of batches: bytes as the oracle's, limits and refusals as Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from seglog._native.validate import RecordSource, RecordWalk, Refusal, frames
from seglog.errors import IllegalArgumentError, IllegalStateError
from seglog.log.batch_builder import (
    RecordBatchBuilder, RecordsInfo, batch_of_one, end_transaction_marker,
)
from seglog.storage.markers import ControlType, parse_marker
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Headers, Record

RECORDS: list[tuple[int, bytes | None, bytes | None, Headers]] = [
    (1000, b"k", b"v", [(b"h", b"\1\2"), (b"n", None), ("ä".encode(), b"")]),
    (900, None, b"", []), (-1, b"", None, []), (5000, b"x" * 100, b"y" * 20000, []),
]


def _oracle(base_offset: int = 0, **fields: object) -> bytes:
    records = [Record(base_offset + n, timestamp, key, value, headers)
               for n, (timestamp, key, value, headers) in enumerate(RECORDS)]
    known: dict[str, Any] = {"base_timestamp": 1000, "max_timestamp": 5000,
                             "partition_leader_epoch": -1, **fields}
    return v2.encode(Batch(base_offset, len(records) - 1, records, **known))


def _filled(builder: RecordBatchBuilder) -> RecordBatchBuilder:
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp, key, value, headers)
    return builder


def test_an_uncompressed_batch_has_the_bytes_of_the_oracle() -> None:
    assert _filled(RecordBatchBuilder()).build() == _oracle()
    assert _filled(RecordBatchBuilder(base_offset=2**40, partition_leader_epoch=7)).build() == \
        _oracle(2**40, partition_leader_epoch=7)


@pytest.mark.parametrize("codec", [0, "gzip"])
@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_a_batch_of_one_record_has_the_bytes_of_the_builder(record: Any, codec: int | str) -> None:
    timestamp, key, value, headers = record
    builder = RecordBatchBuilder(codec=codec)
    builder.append(timestamp, key, value, headers)
    assert batch_of_one(timestamp, key, value, headers, codec) == builder.build()


@pytest.mark.parametrize("record", [(-2, None, b""), (2**63, None, b""), (0, "key", b""),
                                    (0, None, 7), (0, None, b"", "ab"), (0, None, b"", [(1, b"")])])
def test_a_batch_of_one_refuses_what_the_builder_refuses(record: Any) -> None:
    with pytest.raises((IllegalArgumentError, TypeError)) as refused:
        RecordBatchBuilder().append(*record)
    with pytest.raises(type(refused.value)) as again:
        batch_of_one(*record)
    assert str(again.value) == str(refused.value)


def test_every_field_of_the_header() -> None:
    built = _filled(RecordBatchBuilder(
        log_append_time=77, producer_id=2**40, producer_epoch=3, base_sequence=2**31 - 2,
        is_transactional=True, delete_horizon_ms=123)).build()
    assert built == _oracle(timestamp_type=1, max_timestamp=77, producer_id=2**40,
                            producer_epoch=3, base_sequence=2**31 - 2, is_transactional=True,
                            base_timestamp=123, has_delete_horizon=True)


@pytest.mark.parametrize("horizon", [-1, 0, 123])
def test_a_delete_horizon_is_the_base_timestamp(horizon: int) -> None:
    built = _filled(RecordBatchBuilder(delete_horizon_ms=horizon)).build()
    assert built == (_oracle() if horizon < 0 else
                     _oracle(base_timestamp=horizon, has_delete_horizon=True))


@pytest.mark.parametrize("append_time", [None, 77])
def test_a_batch_without_records_has_no_offset_for_a_time_index(append_time: int | None) -> None:
    builder = RecordBatchBuilder(base_offset=5, log_append_time=append_time)
    assert builder.info == RecordsInfo(-1 if append_time is None else append_time, -1)
    _filled(builder)
    last = builder.info.shallow_offset_of_max_timestamp
    assert last == builder.last_offset == 4 + len(RECORDS)


@pytest.mark.parametrize(("field", "bits"), [("producer_epoch", 16), ("base_sequence", 32),
                                             ("partition_leader_epoch", 32)])
def test_a_number_that_does_not_fit_is_named(field: str, bits: int) -> None:
    most = (1 << bits - 1) - 1
    for number in (-2 - most, 1 + most):
        with pytest.raises(IllegalArgumentError, match=field):
            _filled(RecordBatchBuilder(**{field: number})).build()
    _filled(RecordBatchBuilder(**{field: most})).build()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_hold_the_records(codec: str) -> None:
    builder = _filled(RecordBatchBuilder(codec=codec))
    found, plain = v2.decode(builder.build()), v2.decode(_oracle())
    assert found.records == plain.records
    assert len(builder.build()) - 61 < 0.2 * (builder.uncompressed_bytes_written - 61)


def test_lz4_blocks_are_independent() -> None:
    builder = RecordBatchBuilder(codec="lz4")
    builder.append(0, None, b"abc" * 100_000)
    assert builder.build()[61:68] == b"\x04\x22\x4d\x18\x60\x40\x82"


def test_no_records_are_no_bytes() -> None:
    for codec in range(5):
        assert RecordBatchBuilder(codec=codec).build() == b""


def test_keys_and_values_may_be_any_buffer() -> None:
    plain, other = RecordBatchBuilder(), RecordBatchBuilder()
    plain.append(1, b"key", b"value", [("h", b"v")])
    other.append(1, bytearray(b"key"), memoryview(b"xvaluex")[1:-1],
                 ((b"h", bytearray(b"v")) for _ in range(1)))
    assert plain.build() == other.build()


@pytest.mark.parametrize(("given", "text"), [
    ({"key": "k"}, "key must be bytes or None, not str; encode 'k'"),
    ({"key": 5}, "key must be bytes or None, not 5"),
    ({"value": "v"}, "value must be bytes or None, not str; encode 'v'"),
    ({"value": memoryview(b"abcd")[::2]}, "value must be bytes or None, not <memory at "),
    ({"headers": "ab"}, "headers must be pairs of a key and a value, not 'ab'"),
    ({"headers": {"a": b"b"}}, "headers must be pairs of a key and a value, not {'a': b'b'}"),
    ({"headers": [("h", b"v"), "ab"]}, "a header must be a pair of a key and a value, not 'ab'"),
    ({"headers": [("a",)]}, "a header must be a pair of a key and a value, not ('a',)"),
    ({"headers": [(1, b"x")]}, "the key of a header must be a str or bytes, not 1"),
    ({"headers": [("a", "b")]},
     "the value of a header must be bytes or None, not str; encode 'b'"),
    ({"headers": [(b"a", 3)]}, "the value of a header must be bytes or None, not 3")])
def test_a_field_of_a_wrong_type_is_named(given: dict[str, Any], text: str) -> None:
    builder = RecordBatchBuilder()
    builder.append(0, None, None)
    for act in (builder.append, builder.has_room_for):
        with pytest.raises(TypeError) as caught:
            act(**{"timestamp": 0, "key": b"k", "value": b"v", **given})
        assert str(caught.value).startswith(text) and builder.num_records == 1


@pytest.mark.parametrize(("field", "limits"), [
    ("producer_epoch", (-(1 << 15), (1 << 15) - 1)), ("base_sequence", (-(1 << 31), (1 << 31) - 1)),
    ("partition_leader_epoch", (-(1 << 31), (1 << 31) - 1)),
    ("producer_id", (-(1 << 63), (1 << 63) - 1)), ("log_append_time", (-(1 << 63), (1 << 63) - 1))])
def test_a_number_out_of_range_is_named_with_its_range(field: str, limits: tuple[int, int]
                                                      ) -> None:
    """The other fields are large, and in range."""
    sound = {"producer_id": 1 << 40, "producer_epoch": 300, "base_sequence": 1 << 20,
             "partition_leader_epoch": 1 << 20, "log_append_time": 1 << 50}
    least, most = limits
    with pytest.raises(IllegalArgumentError) as caught:
        _filled(RecordBatchBuilder(**{**sound, field: most + 1})).build()
    assert str(caught.value) == f"{field} must be between {least} and {most}, not {most + 1}"


def test_markers_are_those_of_the_oracle() -> None:
    for kind in (ControlType.COMMIT, ControlType.ABORT):
        built = end_transaction_marker(5, 2, kind, timestamp=99, coordinator_epoch=8,
                                       base_offset=40, partition_leader_epoch=6)
        assert built == v2.encode(v2.marker(40, 5, 2, kind, 99, coordinator_epoch=8,
                                            leader_epoch=6))
        marker = parse_marker(built)
        assert marker is not None and marker.is_abort is (kind is ControlType.ABORT)
    with pytest.raises(IllegalArgumentError, match="Invalid control record type for end tran"):
        end_transaction_marker(5, 2, ControlType.LEADER_CHANGE, timestamp=0)
    with pytest.raises(IllegalArgumentError, match="requires a valid producerId"):
        end_transaction_marker(-1, 2, ControlType.ABORT, timestamp=0)


@pytest.mark.parametrize("kind", [0, "ABORT", None])
def test_the_type_of_a_control_record_is_a_control_type(kind: Any) -> None:
    builder = RecordBatchBuilder(is_control_batch=True)
    for append in (lambda: builder.append_control_record(0, kind, None),
                   lambda: builder.append_end_txn_marker(0, kind, 0)):
        with pytest.raises(TypeError):
            append()
    assert builder.num_records == 0


def test_offsets_may_have_gaps_but_rise() -> None:
    builder = RecordBatchBuilder(base_offset=10)
    builder.append_with_offset(12, 5, None, b"a")
    with pytest.raises(IllegalArgumentError, match="Illegal offset 12 following previous offset"):
        builder.append_with_offset(12, 5, None, b"b")
    with pytest.raises(IllegalArgumentError, match="Maximum offset delta exceeded, base offset: "):
        builder.append_with_offset(10 + 2**31, 5, None, b"b")
    with pytest.raises(IllegalArgumentError, match=f"offset {-2**63} following previous offset 12"):
        builder.append_with_offset(2**63, 5, None, b"b")
    builder.append(6, None, b"b")
    builder.override_last_offset(20)
    found = v2.decode(builder.build())
    assert [record.offset for record in found.records] == [12, 13]
    assert found.last_offset == 20 == builder.last_offset


def test_the_record_after_an_overridden_last_offset_has_the_next_one() -> None:
    """MemoryRecordsBuilder.nextSequentialOffset."""
    builder = RecordBatchBuilder(base_offset=10)
    builder.append(5, None, b"a")
    builder.override_last_offset(20)
    with pytest.raises(IllegalArgumentError, match="offset 20 following previous offset 20 "):
        builder.append_with_offset(20, 6, None, b"b")
    with pytest.raises(IllegalArgumentError, match="^Invalid negative timestamp -2$"):
        builder.append(-2, None, b"b")
    builder.append(-1, None, b"b")
    found = v2.decode(builder.build())
    assert [(record.offset, record.timestamp) for record in found.records] == [(10, 5), (21, -1)]
    assert found.last_offset == 21 == builder.last_offset


def test_what_kafka_refuses() -> None:
    builder = RecordBatchBuilder()
    with pytest.raises(IllegalArgumentError, match="^Invalid negative timestamp -2$"):
        builder.append(-2, None, None)
    with pytest.raises(IllegalArgumentError, match="Invalid null header key found in headers"):
        builder.append(0, None, None, [(None, b"")])  # type: ignore[list-item]
    with pytest.raises(IllegalArgumentError, match="can only be appended to control batches"):
        builder.append_control_record(0, ControlType.ABORT, None)
    assert builder.num_records == 0
    markers = RecordBatchBuilder(is_control_batch=True)
    for append in (markers.append, markers.try_append):
        with pytest.raises(IllegalArgumentError, match="can only be appended to control batches"):
            append(0, b"", b"")
    for fields, message in (
            ({"is_transactional": True}, "without a valid producer ID"),
            ({"producer_id": 1}, "Invalid negative producer epoch"),
            ({"producer_id": 1, "producer_epoch": 0}, "Invalid negative sequence number used")):
        with pytest.raises(IllegalArgumentError, match=message):
            RecordBatchBuilder(**fields).build()  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="Unknown compression name: brotli"):
        RecordBatchBuilder(codec="brotli")
    with pytest.raises(IllegalArgumentError, match="gzip doesn't support given compression lev"):
        RecordBatchBuilder(codec="gzip", level=10)


def test_a_built_batch_takes_nothing_more() -> None:
    builder = _filled(RecordBatchBuilder(codec="lz4"))
    first = builder.build()
    assert builder.build() is first and builder.is_closed and builder.is_full
    with pytest.raises(IllegalStateError, match="closed for record appends"):
        builder.append(0, None, None)
    with pytest.raises(IllegalStateError, match="Trying to set producer state"):
        builder.set_producer_state(1, 1, 1, False)
    builder.reopen_and_rewrite_producer_state(9, 1, 5, True)
    found = v2.decode(builder.build())
    assert (found.producer_id, found.base_sequence, found.is_transactional) == (9, 5, True)
    assert found.records == v2.decode(first).records
    builder.abort()
    with pytest.raises(IllegalStateError, match="closed for record appends"):
        builder.append(0, None, b"")
    with pytest.raises(IllegalStateError, match="aborted record batch"):
        builder.build()


def test_room_ends_where_the_limit_is() -> None:
    builder = RecordBatchBuilder(write_limit=200)
    assert builder.has_room_for(0, None, b"x" * 1000), "the first record passes any limit"
    assert not RecordBatchBuilder(write_limit=1).is_full
    builder.append(0, None, b"x" * 60)
    assert builder.estimated_size_in_bytes == 61 + 60 + 8 == builder.uncompressed_bytes_written
    assert builder.has_room_for(0, None, b"x" * 63) and builder.has_room_for_bytes(71)
    assert not builder.has_room_for(0, None, b"x" * 64) and not builder.has_room_for_bytes(72)
    builder.append(0, None, b"x" * 62)
    assert not builder.is_full
    builder.append(0, None, b"")
    assert builder.is_full and not builder.has_room_for(0, None, None)
    unlimited = RecordBatchBuilder()
    for _ in range(2):
        unlimited.append(0, None, b"x" * 1000)
    assert not unlimited.is_full and unlimited.has_room_for_bytes(1 << 30)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("limit", [1, 100, 500, 501, 502, 2000])
def test_a_record_is_tried_as_it_is_asked_for_and_appended(codec: str, limit: int) -> None:
    one = RecordBatchBuilder(codec=codec, write_limit=limit)
    two = RecordBatchBuilder(codec=codec, write_limit=limit)
    for number in range(100):
        fields = (number, b"k" * number, b"v" * (number * 7 % 40), [("h", b"x")] * (number % 3))
        has_room = one.has_room_for(*fields)
        assert two.try_append(*fields) is has_room
        if has_room:
            one.append(*fields)
    assert one.build() == two.build() and not two.try_append(1, None, None)
    assert 0 < one.num_records < 100


def _walk(count: int) -> RecordWalk:
    """The records of a batch from offset 40 on."""
    builder = RecordBatchBuilder(base_offset=40)
    for number in range(count):
        builder.append(1000 + number, b"k", b"%d" % number)
    data = builder.build()
    return RecordWalk(frames(data).batches, 0, data[61:], source=RecordSource.BUFFER)


@pytest.mark.parametrize(("kept", "offsets"), [
    (None, [7, 8, 9]), (b"\1\1\1", [40, 41, 42]), (b"\1\0\1", [40, 42]), (b"\1\1\0", [40, 41]),
    (b"\0\0\0", [])])
def test_a_record_follows_those_of_a_walk(kept: bytes | None, offsets: list[int]) -> None:
    """At the offset after the last one that was taken."""
    builder = RecordBatchBuilder(base_offset=7)
    refusal = builder.append_all(_walk(3)) if kept is None else builder.append_kept(_walk(3), kept)
    assert refusal == Refusal.NO_MORE and builder.num_records == len(offsets)
    builder.append(2000, b"k", b"next")
    found = v2.decode(builder.build())
    following = offsets[-1] + 1 if offsets else 7
    assert [record.offset for record in found.records] == [*offsets, following]
    assert (found.base_offset, found.last_offset) == (7, following)


def test_compressed_records_are_estimated() -> None:
    builder = RecordBatchBuilder(codec="zstd", write_limit=1000)
    builder.append(0, None, b"x" * 992)
    assert builder.estimated_size_in_bytes == 61 + 1051 and builder.is_full
    builder.estimated_compression_ratio = 0.5
    assert builder.estimated_size_in_bytes == 61 + 525 and not builder.is_full
    built = builder.build()
    assert builder.estimated_size_in_bytes == len(built) < 100


def test_the_time_index_is_told_the_last_offset() -> None:
    builder = _filled(RecordBatchBuilder(base_offset=10))
    assert builder.info == RecordsInfo(5000, 13)
    builder = RecordBatchBuilder(base_offset=10)
    builder.append(-1, None, None)
    assert builder.info == RecordsInfo(-1, -1)
    assert _filled(RecordBatchBuilder(log_append_time=7)).info == RecordsInfo(7, 3)
