"""`_native.validate`: what a client's bytes may not do to it, and what its contract says."""

from __future__ import annotations

import numpy as np
import pytest

from seglog._native.batch import BATCH_DTYPE
from seglog._native.encode import BatchEncoder
from seglog._native.producers import Origin
from seglog._native.validate import (
    RecordSource, RecordWalk, Refusal, analyze, assign, check_client_header, frames,
    transfer,
)
from tests.oracle import batch as v2

RECORDS = [v2.Record(n, 1000 + n, b"k", b"v", [(b"h\xff", None)] if n == 1 else [])
           for n in range(3)]


def batch(**fields: int) -> bytes:
    given = {"base_timestamp": 1000, "max_timestamp": 1002, "partition_leader_epoch": -1, **fields}
    return v2.encode(v2.Batch(0, 2, RECORDS, **given))  # type: ignore[arg-type]


def found(data: bytes, origin: Origin = Origin.CLIENT, **how: int) -> Refusal:
    given = {"leader_epoch": 0, "batch_bytes_max": 1 << 20, "needs_order": False, **how}
    return Refusal(analyze(data, origin=origin, **given).refusal)  # type: ignore[arg-type]


def test_batches_and_what_they_come_to() -> None:
    data = batch() + batch()
    result = analyze(data + b"cut", origin=Origin.CLIENT, leader_epoch=0,
                     batch_bytes_max=len(data), needs_order=False)
    assert result.refusal == Refusal.NO_MORE
    assert (result.valid_bytes, result.last_offset, result.max_timestamp) == (len(data), 2, 1002)
    assert list(result.batches["position"]) == [0, len(data) // 2]
    assert found(data, needs_order=True) is Refusal.ORDER
    assert found(data, batch_bytes_max=10) is Refusal.SIZE
    assert found(data[:-1] + b"x") is Refusal.CRC


def test_more_batches_than_there_is_room_for_at_first() -> None:
    result = frames(batch() * 1000)
    assert len(result.batches) == 1000
    assert result.batches["position"][-1] == 999 * len(batch())


def test_batches_of_a_later_epoch_do_not_count() -> None:
    data = batch(partition_leader_epoch=1) + batch(partition_leader_epoch=7) + batch()
    result = analyze(data, origin=Origin.REPLICATION, leader_epoch=1, batch_bytes_max=1 << 20,
                     needs_order=False)
    assert (len(result.batches), len(result.skipped)) == (1, 2)
    assert result.valid_bytes == len(data) // 3


def test_a_walk_goes_on_behind_what_the_rules_refuse() -> None:
    rows = frames(batch()).batches
    walk = RecordWalk(rows, 0, batch()[61:], source=RecordSource.BUFFER,
                      rules=(False, True, 1000, 0, 0))
    assert [walk.run() for _ in range(3)] == [Refusal.TIMESTAMP] * 2 + [Refusal.NO_MORE]
    assert (walk.index, walk.max_timestamp, walk.is_sequential) == (3, 1002, True)
    walk = RecordWalk(rows, 0, batch()[61:-1], source=RecordSource.STREAM)
    assert (walk.run(), walk.index) == (Refusal.BODY_END, 2)


def test_assignment_is_in_the_bytes_and_in_the_row() -> None:
    data, rows = bytearray(batch()), frames(batch()).batches.copy()
    assign(data, rows, 0, next_offset=70, count=3, leader_epoch=5, has_append_time=True,
           max_timestamp=9000)
    decoded = v2.decode(bytes(data))
    assert (decoded.base_offset, decoded.partition_leader_epoch) == (70, 5)
    assert (decoded.timestamp_type, decoded.max_timestamp) == (1, 9000)
    assert frames(bytes(data)).batches.tolist() == rows.tolist()


def test_records_move_to_another_batch() -> None:
    encoder = BatchEncoder(50)
    walk = RecordWalk(frames(batch()).batches, 0, batch()[61:], source=RecordSource.BUFFER)
    assert transfer(walk, encoder, 50) == Refusal.NO_MORE
    made = v2.decode(encoder.seal(producer_id=-1))
    assert [record.offset for record in made.records] == [50, 51, 52]
    assert made.records[1].headers == [(b"h\xef\xbf\xbd", None)]
    assert [record.timestamp for record in made.records] == [1000, 1001, 1002]


def test_a_client_header() -> None:
    rows = frames(batch(producer_id=1)).batches
    assert check_client_header(rows, 0) == Refusal.SEQUENCE


@pytest.mark.parametrize("rows", [np.zeros(2), np.zeros((4,), BATCH_DTYPE)[::2]])
def test_rows_of_another_kind_are_refused(rows: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match="BATCH_DTYPE"):
        check_client_header(rows, 0)


def test_a_row_that_is_not_there() -> None:
    rows = frames(batch()).batches
    with pytest.raises(IndexError):
        check_client_header(rows, 1)
    with pytest.raises(IndexError):
        check_client_header(rows, -1)
    with pytest.raises(ValueError, match="not in these bytes"):
        assign(bytearray(60), rows.copy(), 0, next_offset=0, count=1, leader_epoch=0,
               has_append_time=False, max_timestamp=0)
    with pytest.raises(ValueError, match="no such"):
        analyze(b"", origin=4, leader_epoch=0, batch_bytes_max=1, needs_order=False)
    with pytest.raises(ValueError, match="no such"):
        RecordWalk(rows, 0, b"", source=3)
