"""Columns that an encoder takes: rows of tables that are selected by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native import murmur2
from seglog._native.encode_columns import ColumnEncoder
from seglog._native.encode_sources import arrow_source, buffer_source, selected_source
from seglog.errors import IllegalArgumentError
from tests.support.effort import examples

pa = pytest.importorskip("pyarrow")

text = st.none() | st.text(max_size=6)
tables = st.lists(st.tuples(text, text, st.none() | st.integers(-1, 9)), min_size=1, max_size=12)


def table_of(rows: list[Any], dropped: int) -> Any:
    """A record batch whose columns begin `dropped` rows into their buffers."""
    keys, values, times = zip(*(rows[:1] * dropped + rows), strict=True)
    return pa.record_batch({"key": pa.array(keys, pa.large_string()),
                            "value": pa.array(values, pa.string()),
                            "timestamp": pa.array(times, pa.int64())}).slice(dropped)


@given(pieces=st.lists(st.tuples(tables, st.integers(0, 9), st.lists(st.integers(0, 99))),
                       max_size=4), span=st.integers(1, 400))
@settings(max_examples=examples(200))
def test_selected_rows_are_as_taken_ones(pieces: list[Any], span: int) -> None:
    selected, taken = [], []
    for rows, dropped, numbers in pieces:
        table, chosen = table_of(rows, dropped), np.array(numbers, np.int32) % len(rows)
        selected.append((table.__arrow_c_array__(), chosen.astype(np.int32)))
        taken.append(table.take(pa.array(chosen)))
    whole = pa.Table.from_batches(taken, table_of([(None, None, None)], 0).schema)
    assert list(ColumnEncoder([selected_source(selected)], base_offset=3, span_bytes=span)) == list(
        ColumnEncoder([arrow_source(whole)], base_offset=3, span_bytes=span))


@pytest.mark.parametrize("row", [-1, 3, 2**31 - 1, -2**31])
def test_selected_rows_that_do_not_exist(row: int) -> None:
    table = pa.record_batch({"value": [b"a", b"b", b"c", b"d"]}).slice(1)
    rows = np.array([2, 0, row], np.int32)
    with pytest.raises(IllegalArgumentError, match="row 2"):
        list(ColumnEncoder([selected_source([(table.__arrow_c_array__(), rows)])]))


def test_wrong_pieces() -> None:
    table = pa.record_batch({"value": [b"a"]}).__arrow_c_array__()
    column = buffer_source("timestamp", "l", 1, [np.zeros(1, np.int64)], None)
    with pytest.raises(ValueError, match="all columns of their tables"):
        ColumnEncoder([selected_source([(table, np.zeros(1, np.int32))]), column])
    other = pa.record_batch({"payload": [b"a"]}).__arrow_c_array__()
    for piece, error in (((table, np.zeros(1, np.int64)), ValueError),
                         ((table, None), TypeError), ((other, np.zeros(1, np.int32)), ValueError),
                         (((1, 2), np.zeros(1, np.int32)), ValueError), ((table,), ValueError)):
        with pytest.raises(error):
            list(ColumnEncoder([selected_source([piece])]))


class _OneStream:
    """Gives everybody the same stream."""

    def __init__(self, data: Any) -> None:
        self.stream = data.__arrow_c_stream__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.stream


class _OneArray:
    """Gives everybody the same array."""

    def __init__(self, data: Any) -> None:
        self.array = data.__arrow_c_array__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.array


def test_data_that_somebody_has_taken() -> None:
    table = pa.record_batch({"value": [b"a"]})
    stream, array = _OneStream(pa.table(table.to_pydict())), _OneArray(table)
    pa.RecordBatchReader.from_stream(stream).read_all()
    pa.record_batch(array)
    for call in (lambda: arrow_source(stream), lambda: arrow_source(array),
                 lambda: murmur2.hashes(array), lambda: list(ColumnEncoder([
                     selected_source([(array.array, np.zeros(1, np.int32))])]))):
        with pytest.raises(ValueError, match="somebody has taken this Arrow (stream|schema)"):
            call()
