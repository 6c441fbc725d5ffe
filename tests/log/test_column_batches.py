"""Batches from columns of every library: arrays, lists, tables, and all codecs."""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog.errors import IllegalArgumentError
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.column_batches import (
    MAX_BATCH_BYTES_DEFAULT, SelectedRows, encode_batches, encode_spans,
)
from seglog.storage.partition_log import PartitionLog
from tests.oracle import batch as v2
from tests.oracle.batch import Record
from tests.oracle.log import entries


def _records(data: bytes) -> list[Record]:
    return [record for entry in entries(data) for record in v2.decode(entry.data).records]


def _values(data: bytes) -> list[bytes | None]:
    return [record.value for record in _records(data)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_those_of_the_builder(codec: str) -> None:
    values = [b"%d " % number * 5 for number in range(3000)]
    fields: dict[str, Any] = {
        "producer_id": 4, "producer_epoch": 2, "is_transactional": True,
        "partition_leader_epoch": 6, "codec": codec, "log_append_time": 99}
    built, sequence, offset = [], 2**31 - 100, 50
    for first in range(0, 3000, 700):
        builder = RecordBatchBuilder(base_offset=offset, base_sequence=sequence, **fields)
        for number, value in enumerate(values[first:first + 700], first):
            builder.append(number, None, value)
        built.append(builder.build())
        offset += builder.num_records
        sequence = v2.add_sequence(sequence, builder.num_records)
    spans = list(encode_spans({"value": values, "timestamp": np.arange(3000)}, max_records=700,
                              max_batch_bytes=2**20, span_bytes=1, base_offset=50,
                              base_sequence=2**31 - 100, **fields))
    assert b"".join(spans) == b"".join(built) and len(spans) > 3


def test_arrays_of_numpy_and_lists() -> None:
    times = np.array(["2024-01-01T00:00:00.123456", "NaT"], "M8[us]")
    for value, expected in (
            (np.array([b"d", b"ab\0c"]), [b"d", b"ab\0c"]),
            (np.array([b"", b""]), [b"", b""]),
            (np.array([b"ab", b"c"]).astype("V3"), [b"ab\0", b"c\0\0"]),
            (np.arange(8, dtype=np.uint8).reshape(2, 4), [b"\0\1\2\3", b"\4\5\6\7"]),
            (np.arange(8, dtype=np.uint8).reshape(4, 2).T, [b"\0\2\4\6", b"\1\3\5\7"]),
            (np.zeros((2, 0), np.uint8), [b"", b""]),
            (np.array([b"a", None], object), [b"a", None]),
            ([b"a", bytearray(b"bc")], [b"a", b"bc"]), ((None, memoryview(b"x")), [None, b"x"]),
            ([None, None], [None, None])):
        found = _records(encode_batches({"value": value, "timestamp": times}, timestamp=3))
        assert [record.value for record in found] == expected
        assert [record.timestamp for record in found] == [1704067200123, 3]


def test_masked_values_are_null() -> None:
    """A time below a mask was a record's time, and masked texts moved the values of later rows."""
    mask = [False, True, False]
    for value in (np.array([b"a", b"bc", b""]), np.array([b"a", b"bc", b""], object)):
        for times in (np.array([5, 0, 7]), np.array([5, 0, 7], object),
                      np.array([5000, 0, 7000], "M8[us]")):
            found = _records(encode_batches({
                "value": np.ma.array(value, mask=mask), "timestamp": np.ma.array(times, mask=mask)},
                timestamp=6))
            assert [record.value for record in found] == [b"a", None, b""]
            assert [record.timestamp for record in found] == [5, 6, 7]
    void = np.ma.array(np.array([b"ab", b"c"]).astype("V3"), mask=[False, True])
    assert [record.value for record in _records(encode_batches({"value": void}))] == [
        b"ab\0", None]


def test_headers_in_lists() -> None:
    rows = [[("a", b"1"), ("ä", None)], None, (), [(b"b", bytearray(b"")), ("", b"2")]]
    found = _records(encode_batches({"value": [b"x"] * 4, "headers": rows}, max_records=3))
    assert [record.headers for record in found] == [
        [(b"a", b"1"), ("ä".encode(), None)], [], [], [(b"b", b""), (b"", b"2")]]
    assert _records(encode_batches({"headers": [None, []]}))[1].headers == []


def test_timestamps_of_every_kind() -> None:
    for times in ([5, None, 7], np.array([5, None, 7], object), np.array([5, -1, 7]),
                  np.array([5, 0, 7], "M8[ms]"), np.array([5, 2, 7], np.uint16),
                  np.array([5, 9, 0, 9, 7])[::2]):
        found = _records(encode_batches({"value": [b""] * 3, "timestamp": times}, timestamp=6))
        assert [record.timestamp for record in found][::2] == [5, 7]
    for one, expected in ((np.array([7], "M8[2ms]"), 14), (np.array([2**62], np.uint64), 2**62)):
        assert _records(encode_batches({"timestamp": one}))[0].timestamp == expected
    days = np.array(["1970-01-02"], "M8[D]")
    assert _records(encode_batches({"timestamp": days}))[0].timestamp == 86_400_000
    before = time.time_ns() // 1_000_000
    assert before <= _records(encode_batches({"value": [b"a"]}))[0].timestamp <= before + 60_000


def test_wrong_columns() -> None:
    for data, error, message in (
            ({"value": ["a"]}, TypeError, "bytes or None, not str; encode 'a'"),
            ({"value": [b"a", 5]}, TypeError, "bytes or None, not 5"),
            ({"value": b"abc"}, TypeError, "column value must be a list or an array, not b'abc'"),
            ({"key": bytearray(b"ab"), "value": [b"a", b"b"]}, TypeError, "column key must be a"),
            ({"value": {b"k": b"v"}}, TypeError, "column value must be a list"),
            ({"value": iter([b"a"])}, TypeError, "column value must be a list"),
            ({"value": 5}, TypeError, "column value must be a list or an array, not 5"),
            ({"value": np.array(["a"])}, IllegalArgumentError, "values are arrays of bytes"),
            ({"key": np.array([1.0])}, IllegalArgumentError, "keys are arrays of bytes"),
            ({"key": np.zeros(2, np.uint8)}, IllegalArgumentError, "not uint8 in 1"),
            ({"key": np.zeros((2, 3), np.int8)}, IllegalArgumentError, "not int8 in 2"),
            ({"timestamp": np.array([1.5])}, IllegalArgumentError, "integers or datetime64"),
            ({"timestamp": [5, 1790000000.5]}, TypeError, "timestamp of row 1 must be an integer"),
            ({"timestamp": [datetime.now(UTC)]}, TypeError, "timestamp of row 0 must be an int"),
            ({"timestamp": ["12"]}, TypeError, "timestamp of row 0 must be an integer"),
            ({"timestamp": [None, 2**63]}, IllegalArgumentError, "timestamp of row 1 must be betw"),
            ({"timestamp": np.array([2**64 - 1], np.uint64)}, IllegalArgumentError, "above 2"),
            ({"key": {b"a"}}, TypeError, "column key must be a list or an array, not {b'a'}"),
            ({"headers": [[(None, b"")]]}, IllegalArgumentError, "null header key"),
            ({"headers": [[("k", "v")]]}, TypeError, "bytes or None, not str"),
            ({"headers": [(), {"k": b"v"}]}, TypeError, "headers of row 1 must be pairs"),
            ({"headers": [[b"k"]]}, TypeError, "headers of row 0 must be pairs"),
            ({"headers": [5]}, TypeError, "headers of row 0 must be pairs"),
            ({"valeu": [b""]}, IllegalArgumentError, "records have no column 'valeu'"),
            ({"key": [b"a"], "value": [b"a", b"b"]}, IllegalArgumentError, "different lengths"),
            ({}, ValueError, "no column to encode"), (5, TypeError, "int has neither"),
            ([b"a"], TypeError, "list has neither .* or a mapping of column names to columns")):
        with pytest.raises(error, match=message):
            encode_batches(data)


@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_a_bytearray_that_another_thread_shrinks(column: str) -> None:
    """Between any two calls: the record has all of it, or nothing, and never other memory."""
    found: set[bytes | None] = set()
    step, ended = 0, False
    while not ended:
        step += 1
        left, ended, changing = step, True, bytearray(b"v" * 40)
        cell = [("h", changing)] if column == "headers" else changing

        def shrink(*_: object, changing: bytearray = changing) -> None:
            nonlocal left, ended
            left -= 1
            if left == 0:
                ended = False
                with contextlib.suppress(BufferError):  # it is being read
                    changing.clear()

        sys.setprofile(shrink)
        try:
            data = encode_batches({column: [cell]})
        finally:
            sys.setprofile(None)
        record, = _records(data)
        found.add(record.headers[0][1] if column == "headers" else getattr(record, column))
    assert found == {b"v" * 40, b""}


def test_wrong_options() -> None:
    for options, message in (({"codec": 9}, "Unknown compression type id: 9"),
                             ({"codec": "zstd", "level": 99}, "zstd doesn't support given"),
                             ({"is_transactional": True}, "without a valid producer ID"),
                             ({"producer_epoch": 2**15}, "producer_epoch must be between"),
                             ({"producer_epoch": -2**15 - 1}, "producer_epoch must be between"),
                             ({"producer_id": 3, "producer_epoch": 0}, "negative sequence"),
                             ({"log_append_time": 1, "codec": "snappy", "level": 1}, "snappy")):
        with pytest.raises(IllegalArgumentError, match=message):
            encode_spans({"value": [b"a"]}, **options)


def test_nothing_is_no_span() -> None:
    assert encode_batches({"value": []}) == b"" and list(encode_spans({"value": []})) == []
    assert list(encode_spans({"value": np.array([], "S1")}, codec="lz4")) == []


def test_batches_end_where_the_producers_would() -> None:
    data = encode_batches({"value": [b"x" * 100] * 1000})
    sizes = [entry.size for entry in entries(data)]
    assert MAX_BATCH_BYTES_DEFAULT - 111 < min(sizes[:-1]) <= max(sizes) <= MAX_BATCH_BYTES_DEFAULT


@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas", "duckdb"])
def test_tables_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    keys, values = [b"a", None, b"ccc"], [b"1" * 20, b"", None]
    if library == "pyarrow":
        table = module.table({"key": keys, "value": values})
    elif library == "polars":
        table = module.DataFrame({"key": keys, "value": values})
    elif library == "pandas":
        pytest.importorskip("pyarrow")
        table = module.DataFrame({"key": keys, "value": values})
    else:
        table = module.sql("select * from (values ('a'::blob, repeat('1', 20)), (null, ''), "
                           "('ccc'::blob, null)) t(key, value)")
    found = _records(encode_batches(table, timestamp=1))
    assert [(record.key, record.value) for record in found] == list(zip(keys, values, strict=True))
    if library in ("polars", "pandas"):
        assert _values(encode_batches({"value": table["value"]})) == values


def test_a_column_with_one_of_arrows_two_interfaces() -> None:
    pa = pytest.importorskip("pyarrow")

    class Array:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return pa.array([b"a", None]).__arrow_c_array__(requested_schema)

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return pa.chunked_array([[b"a"], [None]]).__arrow_c_stream__(requested_schema)

    for column in (Array(), Stream()):
        assert _values(encode_batches({"value": column})) == [b"a", None]


def test_selected_rows() -> None:
    """As the same rows in a table of their own."""
    pa = pytest.importorskip("pyarrow")
    random = np.random.default_rng(7)
    tables = [pa.record_batch({
        "key": [None if n % 3 else b"%d" % n for n in range(rows)],
        "value": ["x" * (n % 50) for n in range(rows)],
        "timestamp": pa.array([n * 1000 for n in range(rows)], pa.timestamp("us")),
        "headers": pa.array([[("a", b"%d" % n)] * (n % 4) for n in range(rows)],
                            pa.map_(pa.string(), pa.binary())),
    }).slice(3) for rows in (400, 4, 90)]
    chosen = [random.integers(0, table.num_rows, size).astype(np.int32)
              for table, size in zip(tables, (500, 0, 77), strict=True)]
    taken = pa.Table.from_batches([table.take(pa.array(rows)) for table, rows
                                   in zip(tables, chosen, strict=True)])
    selected = SelectedRows([(table.__arrow_c_array__(), rows)
                             for table, rows in zip(tables, chosen, strict=True)])
    for options in ({"span_bytes": 3000}, {"codec": "lz4"}, {"max_records": 7}):
        found = list(encode_spans(selected, base_offset=5, timestamp=9, **options))
        assert found == list(encode_spans(taken, base_offset=5, timestamp=9, **options))
        assert len(found) > 0
    assert list(encode_spans(SelectedRows([]))) == []


def test_columns_that_are_missing_are_null() -> None:
    """Whatever the memory of the call held before."""
    for _ in range(50):
        list(encode_spans({"key": [b"k"] * 9, "value": [b"v"] * 9, "timestamp": np.arange(9),
                           "headers": [[("h", b"x")]] * 9}))
        span, = encode_spans({"value": [b"v"] * 3}, timestamp=4)
        assert [(one.key, one.value, len(one.headers), one.timestamp)
                for one in _records(span)] == [(None, b"v", 0, 4)] * 3


def test_what_was_read_can_be_written(tmp_path: Path) -> None:
    data = encode_batches({"value": [b"v%d" % n for n in range(100)], "timestamp": np.arange(100)},
                          max_records=7, codec="zstd", base_offset=0)
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020}.log").write_bytes(data)
    with PartitionLog.open(partition) as log:
        assert _records(encode_batches(log.to_arrow(), base_offset=0)) == _records(data)
