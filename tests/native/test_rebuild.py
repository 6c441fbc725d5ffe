"""Indexes rebuilt from batches, held to the loop of LogSegment.recover in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.batch import BATCH_DTYPE
from seglog._native.rebuild import IndexRebuild
from seglog._native.status import Status
from tests.oracle import rebuild as oracle
from tests.oracle.rebuild import Facts
from tests.support.effort import examples

BASE = 1000
STATUSES = {oracle.FULL: Status.INDEX_FULL, oracle.BACKWARDS: Status.INDEX_OFFSET_ORDER,
            oracle.OVERFLOW: Status.BATCH_OFFSET_RANGE}


def rows(batches: Sequence[Facts], start: int = 0) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    made, position = np.zeros(len(batches), BATCH_DTYPE), start
    for row, batch in zip(made, batches, strict=True):
        for name in ("base_offset", "last_offset", "max_timestamp", "size", "record_count"):
            row[name] = getattr(batch, name)
        row["position"] = position
        position += batch.size
    return made


def growing(count: int, size: int = 100) -> list[Facts]:
    return [Facts(BASE + n, BASE + n, 5000 + n, size) for n in range(count)]


def rebuilt(batches: Sequence[Facts], interval: int = 0, index_bytes: int = 1 << 20,
            pieces: Sequence[int] = (), start: int = 0) -> IndexRebuild:
    """Fed in pieces that end at the given rows, finished unless it was refused before."""
    made, found = rows(batches, start), IndexRebuild(
        BASE, start, interval_bytes=interval, index_bytes=index_bytes)
    bounds = [0, *sorted(min(piece, len(made)) for piece in pieces), len(made)]
    for low, high in zip(bounds, bounds[1:], strict=False):
        if found.feed(made[low:high]) < high - low:
            return found
    found.finish()
    return found


def test_records_are_those_of_the_headers() -> None:
    """A compacted batch may have none. An old wrapper has no count, and counts as one."""
    batches = [Facts(BASE + n, BASE + n, 5000, 100, count) for n, count in enumerate((0, -1, 1, 5))]
    found = rebuilt(batches)
    assert (found.batch_count, found.record_count) == (4, 7)


def test_the_first_batch_is_never_indexed() -> None:
    found = rebuilt(growing(4))
    assert found.offset_index.hex() == "000000010000006400000002000000c8000000030000012c"
    assert found.time_index.hex() == ("0000000000001389" "00000001" "000000000000138a" "00000002"
                                      "000000000000138b" "00000003")
    assert (found.batch_count, found.record_count, found.size) == (4, 4, 400)
    assert (found.last_offset, found.next_offset) == (BASE + 3, BASE + 4)
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (5003, BASE + 3)


def test_nothing_fed() -> None:
    found = rebuilt([])
    assert found.offset_index == found.time_index == b""
    assert (found.last_offset, found.next_offset, found.max_timestamp) == (None, BASE, -1)
    assert found.offset_of_max_timestamp == BASE


@pytest.mark.parametrize(("interval", "entries"), [(99, 9), (100, 4), (299, 3), (4096, 0)])
def test_the_interval_is_exceeded_strictly_and_from_start_to_start(interval: int,
                                                                   entries: int) -> None:
    found = rebuilt(growing(10), interval)
    assert found.offset_entries == entries
    assert found.time_entries == entries + (0 if interval in (99, 299) else 1)


def test_positions_count_from_the_start_of_the_extent() -> None:
    assert rebuilt(growing(9), start=12345).offset_index == rebuilt(growing(9)).offset_index


@pytest.mark.parametrize(("index_bytes", "status", "entries", "is_time"), [
    (24, Status.INDEX_FULL, (2, 1), True), (16, Status.INDEX_FULL, (1, 0), True),
    (12, Status.INDEX_FULL, (1, 0), True), (7, Status.INDEX_FULL, (0, 0), False)])
def test_a_full_index_refuses(index_bytes: int, status: Status, entries: tuple[int, int],
                              is_time: bool) -> None:
    found = rebuilt(growing(9), index_bytes=index_bytes)
    assert found.status == status and found.failed_is_time_index == is_time
    assert (found.offset_entries, found.time_entries) == entries
    assert len(found.offset_index) == 8 * entries[0] and len(found.time_index) == 12 * entries[1]


def test_the_last_slot_of_a_time_index_is_for_its_last_entry() -> None:
    batches = [Facts(BASE, BASE, 1, 10), Facts(BASE + 1, BASE + 1, 2, 10),
               Facts(BASE + 2, BASE + 2, 3, 10)]
    found = rebuilt(batches, interval=10, index_bytes=24)
    assert found.status == Status.OK and found.time_entries == 1
    found = rebuilt(batches[:2], interval=0, index_bytes=24)
    assert found.status == Status.OK and found.time_entries == 1
    full = rebuilt(batches[:1], index_bytes=11)  # not even that slot
    assert (full.status, full.expected, full.failed_is_time_index) == (Status.INDEX_FULL, 0, True)


def test_a_feed_can_be_undone() -> None:
    batches = growing(9)
    found = IndexRebuild(BASE, interval_bytes=0, index_bytes=1 << 20)
    found.feed(rows(batches)[:4])
    found.feed(rows(batches)[4:])
    found.undo()
    found.feed(rows(batches)[4:6])
    found.finish()
    assert found.offset_index == rebuilt(batches[:6]).offset_index
    assert found.time_index == rebuilt(batches[:6]).time_index


def test_what_is_no_row_is_refused() -> None:
    found = IndexRebuild(BASE, interval_bytes=0, index_bytes=1 << 20)
    with pytest.raises(ValueError, match="BATCH_DTYPE"):
        found.feed(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="BATCH_DTYPE"):
        found.feed(rows(growing(4))[::2])
    with pytest.raises(ValueError, match="nothing"):
        found.undo()


offsets = st.integers(-3, 40).map(lambda n: BASE + n) | st.sampled_from(
    [BASE + 2**31 - 1, BASE + 2**31, -2**63, 2**63 - 1])
times = st.integers(-2, 12) | st.sampled_from([-2**63, 2**63 - 1])
facts = st.builds(Facts, offsets, offsets, times, st.integers(26, 200), st.integers(-1, 3))


@settings(max_examples=examples(500))
@given(st.lists(facts, max_size=25) | st.lists(facts, max_size=25).map(
    lambda batches: sorted(batches, key=lambda batch: batch.last_offset)),
    st.sampled_from([0, 60, 250]), st.sampled_from([4, 12, 40, 1 << 20]),
    st.lists(st.integers(0, 25), max_size=3))
def test_against_kafkas_loop(batches: list[Facts], interval: int, index_bytes: int,
                             pieces: list[int]) -> None:
    expected = oracle.rebuild(batches, BASE, interval, index_bytes)
    found = rebuilt(batches, interval, index_bytes, pieces)
    assert (found.offset_index, found.time_index) == (expected.offset_index, expected.time_index)
    assert (found.batch_count, found.size) == (expected.taken, expected.valid)
    if expected.error is None:
        assert found.status == Status.OK and found.next_offset == expected.next_offset
        assert (found.max_timestamp, found.offset_of_max_timestamp) == expected.max_timestamp
    else:
        kind, where = expected.error
        assert found.status == STATUSES[kind]
        assert kind == oracle.OVERFLOW or found.failed_is_time_index == (where == "time")
