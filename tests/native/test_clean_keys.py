"""Keys that are hashed ahead put what the batches themselves would put."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog._native.clean import BatchCleaner, OffsetMap, CleanStep
from seglog._native.clean_keys import BatchKeys
from seglog._native.validate import frames
from seglog.cleaner.transaction_metadata import CleanedTransactionMetadata
from seglog.storage import codecs
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

SLOT = 24
KEYS = st.none() | st.binary(max_size=80) | st.sampled_from([b"a", b"b", b"c"])
BATCHES = st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=70), st.integers(0, 4),
                             st.booleans(), st.booleans()), min_size=1, max_size=8)


def span(drawn: list[tuple[list[bytes | None], int, bool, bool]]) -> bytes:
    """Batches of these keys; the last flag: its number of records is wrong."""
    parts, base = [], 0
    for keys, codec, is_transactional, is_bad in drawn:
        records = [Record(base + at, 5, key, b"v" * at) for at, key in enumerate(keys)]
        data = bytearray(v2.encode(Batch(
            base, len(keys) - 1, records, base_timestamp=5, max_timestamp=5, codec=codec,
            producer_id=7 if is_transactional else -1, producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1, is_transactional=is_transactional)))
        if is_bad:
            data[60] += 1
        parts.append(bytes(data))
        base += len(keys)
    return b"".join(parts)


def mapped(data: bytes, start: int, limit: int, ahead: bool) -> object:
    """What a map has after the batches, and what ended each call."""
    rows = frames(data).batches
    offsets = OffsetMap(400 * SLOT)
    cleaner = BatchCleaner(offsets, transactions=CleanedTransactionMetadata(),
                           direct=codecs.DIRECT, compress=codecs.compress)
    keys = None
    if ahead:
        keys = BatchKeys(codecs.DIRECT)
        keys.read(data, rows, 0)
        keys.read(data, rows, start)  # again, which forgets the first
    ends, row = [], 0
    while row < len(rows):
        step, row = cleaner.map(data, rows, row, start, limit, keys)
        ends.append((step, row))
        if step is CleanStep.FULL:
            break
        row += step is not CleanStep.DONE
    return (ends, len(offsets), offsets.latest_offset, cleaner.map_bytes, cleaner.map_messages,
            [offsets.get(b"%c" % one) for one in b"abc"])


@given(BATCHES, st.integers(0, 60), st.sampled_from([3, 20, 300]))
def test_hashed_ahead(drawn: list[tuple[list[bytes | None], int, bool, bool]], start: int,
                      limit: int) -> None:
    data = span(drawn)
    assert mapped(data, start, limit, True) == mapped(data, start, limit, False)


def test_there_is_room_for_so_many() -> None:
    """The batches after 32,768 keys are read when they are put."""
    keys: list[bytes | None] = [b"%d" % (at % 300) for at in range(900)]
    data = span([(keys, 0, False, False)] * 40)
    assert mapped(data, 0, 400, True) == mapped(data, 0, 400, False)


def test_keys_of_other_batches() -> None:
    data = span([([b"a"], 0, False, False)])
    rows = frames(data).batches
    keys = BatchKeys(codecs.DIRECT)
    cleaner = BatchCleaner(OffsetMap(SLOT), transactions=CleanedTransactionMetadata(),
                           direct=codecs.DIRECT, compress=codecs.compress)
    keys.read(data, rows, 0)
    for other, start in ((rows, 1), (rows.copy(), 0)):
        with pytest.raises(ValueError, match="the keys are of other batches"):
            cleaner.map(data, other, 0, start, 9, keys)
    with pytest.raises(ValueError, match="the batch is not in these bytes"):
        keys.read(data[:-1], rows, 0)
    with pytest.raises(ValueError, match="the keys are of other batches"):
        cleaner.map(data, rows, 0, 0, 9, keys)
    with pytest.raises(IndexError):
        keys.read(data, rows[:0], 0)
    with pytest.raises(ValueError, match="rows of BATCH_DTYPE"):
        keys.read(data, np.zeros(1), 0)


def test_room_for_the_records_of_a_large_batch_is_bounded() -> None:
    """The reference path reads what is not decompressed within it."""
    header = bytearray(v2.encode(Batch(0, 0, [Record(0, 5, b"k", b"v")], codec=3))[:61])
    header[8:12] = (49 + (16 << 20)).to_bytes(4, "big")
    data = bytes(header) + bytes(16 << 20)
    tracemalloc.start()
    try:
        BatchKeys(codecs.DIRECT).read(data, frames(data).batches, 0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 65 << 20
