"""Kafka's lookups among the base offsets of segments, beside plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglog.storage.segment_table import SegmentTable, total_bytes

OFFSETS = st.integers(0, 40)


@given(st.sets(OFFSETS), OFFSETS, OFFSETS)
@example({5, 9}, 4, 5)
@example({5, 9}, 5, 9)
@example({5, 9}, 9, 10)
@example(set(), 0, 1)
def test_lookups_agree_with_plain_python(some: set[int], start: int, end: int) -> None:
    """LogSegments: floorSegment, higherSegment, contains and values."""
    bases, table = sorted(some), SegmentTable(np.array(sorted(some), np.int64))
    floors = [row for row, base in enumerate(bases) if base <= start]
    assert len(table) == len(bases)
    assert table.floor_row(start) == (floors[-1] if floors else -1)
    assert table.higher_base(start) == min((base for base in bases if base > start), default=None)
    assert (start in table) == (start in some)
    if start in some:
        assert table.row(start) == bases.index(start)
    else:
        with pytest.raises(KeyError):
            table.row(start)
    first = floors[-1] if floors else 0
    assert table.bases(table.rows(start)) == bases[first:]
    if start > end:
        with pytest.raises(ValueError, match="Invalid log segment range"):
            table.rows(start, end)
    else:
        assert table.bases(table.rows(start, end)) == (
            [] if start == end else [base for base in bases[first:] if base < end])


def test_missing_files_have_no_bytes() -> None:
    assert total_bytes(np.array([3, -1, 4], np.int64)) == 7
    assert total_bytes(np.empty(0, np.int64)) == 0
