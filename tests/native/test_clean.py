"""The offset map and the choice of records, by an oracle written from the reference."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog._native.clean import BatchCleaner, CleanStep, OffsetMap, retain
from seglog._native.encode import BatchEncoder
from seglog._native.validate import RecordSource, RecordWalk, Refusal, frames, transfer
from seglog.errors import IllegalArgumentError
from seglog.storage import codecs
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.oracle.cleaning import SkimpyMap

SLOT = 24
KEYS = st.binary(max_size=150) | st.sampled_from([b"a", b"b", b"x" * 55, b"x" * 56, b"x" * 64])


@given(st.integers(1, 40), st.lists(st.tuples(KEYS, st.integers(0, 2**62)), max_size=120))
def test_map(slots: int, puts: list[tuple[bytes, int]]) -> None:
    ours, oracle = OffsetMap(slots * SLOT + SLOT - 1), SkimpyMap(slots)
    assert ours.slots == slots
    for key, offset in puts:
        if len(oracle) == slots:
            with pytest.raises(IllegalArgumentError, match=f"entries: {slots}, slots: {slots}"):
                ours.put(key, offset)
        else:
            oracle.put(key, offset)
            ours.put(key, offset)
            assert ours.latest_offset == offset
        assert len(ours) == len(oracle)
    assert all(ours.get(key) == oracle.get(key) for key, _ in puts)
    ours.latest_offset = 7
    assert ours.latest_offset == 7
    ours.clear()
    assert (len(ours), ours.latest_offset) == (0, -1)
    assert all(ours.get(key) == -1 for key, _ in puts)


def test_nearly_full_map() -> None:
    """Long chains of probes, and keys of every length around the blocks of MD5."""
    source = random.Random(3)
    ours, oracle = OffsetMap(700 * SLOT), SkimpyMap(700)
    keys = [source.randbytes(length % 200) for length in range(695)]
    for offset in range(3000):
        key = source.choice(keys)
        ours.put(key, offset)
        oracle.put(key, offset)
    assert [ours.get(key) for key in keys] == [oracle.get(key) for key in keys]


@pytest.mark.parametrize("memory", [0, 23, -5, 2**31])
def test_map_of_no_size(memory: int) -> None:
    with pytest.raises(IllegalArgumentError, match=f"an offset map of {memory} bytes"):
        OffsetMap(memory)


RECORDS = st.lists(st.tuples(st.none() | KEYS, st.none() | st.binary(max_size=9)), max_size=90)


def walk_of(rows: list[tuple[bytes | None, bytes | None]], base: int = 100) -> RecordWalk:
    records = [Record(base + number, 5, key, value) for number, (key, value) in enumerate(rows)]
    raw = v2.encode(Batch(base, max(len(rows) - 1, 0), records, base_timestamp=5, max_timestamp=5))
    return RecordWalk(frames(raw).batches, 0, raw[61:], source=RecordSource.BUFFER)


@given(RECORDS, st.integers(90, 150), st.integers(1, 60))
def test_keys_of_a_batch(rows: list[tuple[bytes | None, bytes | None]], start: int,
                         limit: int) -> None:
    ours, oracle, read = OffsetMap(1000 * SLOT), SkimpyMap(1000), 0
    for number, (key, _) in enumerate(rows):
        if key is not None and 100 + number >= start:
            if len(oracle) >= limit:
                break
            oracle.put(key, 100 + number)
        read += 1
    found = ours.add_records(walk_of(rows), start, limit)
    assert found == (Refusal.NO_MORE, read, read < len(rows))
    assert all(ours.get(key) == oracle.get(key) for key, _ in rows if key is not None)


@given(RECORDS, RECORDS, st.integers(90, 150), st.booleans(), st.booleans(), st.booleans())
def test_records_that_stay(later: list[tuple[bytes | None, bytes | None]],
                           rows: list[tuple[bytes | None, bytes | None]], latest: int, all_: bool,
                           none: bool, tombstones: bool) -> None:
    offsets, known = OffsetMap(1000 * SLOT), dict[bytes, int]()
    for number, (key, _) in enumerate([*rows[::2], *later]):
        if key is not None:
            offsets.put(key, 100 + number * 2)
            known[key] = 100 + number * 2
    offsets.latest_offset = latest
    wanted, invalid = bytearray(len(rows)), 0
    for number, (key, value) in enumerate(rows):
        offset = 100 + number
        if not none and (all_ or offset > latest):
            wanted[number] = 1
        elif not none and key is None:
            invalid += 1
        elif not none and key is not None:
            wanted[number] = offset >= known.get(key, -1) and (value is not None or tombstones)
    found = retain(walk_of(rows), offsets, keeps_all=all_, keeps_none=none,
                   keeps_tombstones=tombstones)
    assert (found.refusal, found.kept) == (Refusal.NO_MORE, wanted)
    assert (found.read_count, found.kept_count) == (len(rows), sum(wanted))
    assert found.invalid_count == invalid
    kept = [number for number, stays in enumerate(wanted) if stays]
    assert found.max_offset == (100 + kept[-1] if kept else -1)
    assert found.has_tombstone == any(rows[number][1] is None for number in kept)
    encoder = BatchEncoder(100)
    assert transfer(walk_of(rows), encoder, 0, kept=found.kept) == Refusal.NO_MORE
    assert encoder.record_count == len(kept)
    if kept:
        decoded = v2.decode(encoder.seal())
        assert [(one.offset, one.key, one.value) for one in decoded.records] == [
            (100 + number, *rows[number]) for number in kept]


def test_a_bad_record_ends_the_walk() -> None:
    rows = [(b"k%d" % number, b"v") for number in range(50)]
    raw = bytearray(v2.encode(Batch(100, 49, [Record(100 + number, 5, *row) for number, row
                                              in enumerate(rows)], base_timestamp=5,
                                    max_timestamp=5)))
    for source in (RecordSource.BUFFER, RecordSource.STREAM):
        cut = RecordWalk(frames(raw).batches, 0, raw[61:-4], source=source)
        offsets = OffsetMap(100 * SLOT)
        refusal, read, is_full = offsets.add_records(cut, 0, 90)
        assert refusal not in (Refusal.NO_MORE, Refusal.ACCEPTED) and not is_full
        assert offsets.get(b"k48") == 148 and offsets.get(b"k49") == -1
        cut = RecordWalk(frames(raw).batches, 0, raw[61:-4], source=source)
        assert retain(cut, offsets).refusal == refusal
    # A map that is full before never comes to it.
    cut = RecordWalk(frames(raw).batches, 0, raw[61:-4], source=RecordSource.BUFFER)
    assert OffsetMap(100 * SLOT).add_records(cut, 0, 49)[0] != Refusal.NO_MORE
    cut = RecordWalk(frames(raw).batches, 0, raw[61:-4], source=RecordSource.BUFFER)
    assert OffsetMap(100 * SLOT).add_records(cut, 0, 48) == (Refusal.NO_MORE, 48, True)


class NoTransactions:
    def on_batch(self, producer_id: int, last_offset: int, is_transactional: bool) -> bool:
        return False

    def pass_over(self, offset: int) -> None:
        self.offset = offset


def test_batches_are_inside_of_their_span() -> None:
    raw = v2.encode(Batch(100, 0, [Record(100, 5, b"a", b"v")], base_timestamp=5,
                          max_timestamp=5))
    seen, offsets = NoTransactions(), OffsetMap(100 * SLOT)
    cleaner = BatchCleaner(offsets, transactions=seen, direct=codecs.DIRECT,
                           compress=codecs.compress)
    rows = frames(raw).batches
    assert cleaner.map(raw, rows, 0, 0, 90) == (CleanStep.DONE, 1) and seen.offset == 100
    cleaner.rule(now_ms=5, new_horizon=9, upper_bound=101, producers=[], last_offsets=[])
    cleaner.begin(raw, uses_marks=True)
    assert cleaner.filter(rows, 0) == 1
    assert cleaner.end() == raw and cleaner.max_offset == 100
    assert cleaner.counts == (len(raw), 1, 0, 1)
    cleaner.begin(raw[:-1], uses_marks=True)
    for wrong in (lambda: cleaner.filter(rows, 0), lambda: cleaner.map(raw[:-1], rows, 0, 0, 90),
                  lambda: cleaner.keep(0, len(raw), 100), lambda: cleaner.filter(rows[:0], 0),
                  lambda: cleaner.filter(rows, 2)):
        with pytest.raises((ValueError, IndexError)):
            wrong()
    with pytest.raises(ValueError, match="one array each"):
        cleaner.rule(now_ms=5, new_horizon=9, upper_bound=101, producers=[1], last_offsets=[])
    assert cleaner.map(raw, rows, 0, 0, 0) == (CleanStep.FULL, 0)
