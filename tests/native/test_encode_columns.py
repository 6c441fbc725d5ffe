"""Batches from columns: every layout of Arrow, pieces of any size, and inputs that contradict."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.batch import scan
from seglog._native.encode_columns import ColumnEncoder
from seglog._native.encode_sources import arrow_source, buffer_source
from seglog.errors import IllegalArgumentError
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.oracle.log import entries
from tests.support.effort import examples

pa = pytest.importorskip("pyarrow")

Row = dict[str, Any]

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
BINARIES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(),
            pa.string_view()]
HEADERS = [pa.list_(HEADER), pa.large_list(HEADER), pa.map_(pa.string(), pa.binary()),
           pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.binary())])),
           pa.list_(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))]

texts = st.none() | st.text(st.characters(codec="ascii"), max_size=40)
pairs = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
                           st.none() | st.binary(max_size=30)), max_size=3)
rows = st.lists(st.fixed_dictionaries({
    "key": texts, "value": texts, "timestamp": st.none() | st.integers(-1, 2**62),
    "headers": st.none() | pairs}), max_size=60)


def _decoded(data: bytes) -> tuple[list[Record], list[Batch]]:
    """Records and batches; the scan says that every CRC is right."""
    assert scan(data, strict=True).status_name == "end"
    batches = [v2.decode(entry.data) for entry in entries(data)]
    return [record for batch in batches for record in batch.records], batches


def _blob(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _expected(found: list[Row], default: int, base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + number, default if row["timestamp"] is None else row["timestamp"],
                   _blob(row["key"]), _blob(row["value"]),
                   [(key.encode(), value) for key, value in row["headers"] or []])
            for number, row in enumerate(found)]


def _arrow_headers(found: list[Row], kind: Any) -> Any:
    if pa.types.is_map(kind):
        return pa.array([row["headers"] for row in found], kind)
    return pa.array([None if row["headers"] is None else
                     [{"key": key, "value": value} for key, value in row["headers"]]
                     for row in found], kind)


def _table(found: list[Row], key: Any, value: Any, headers: Any) -> Any:
    def column(name: str, kind: Any) -> Any:
        return pa.array([row[name] for row in found], pa.string()).cast(kind)

    return pa.record_batch({
        "key": column("key", key), "value": column("value", value),
        "timestamp": pa.array([row["timestamp"] for row in found], pa.int64()),
        "headers": _arrow_headers(found, headers)})


def _encode(*data: Any, **options: Any) -> bytes:
    return b"".join(ColumnEncoder([arrow_source(one) for one in data], **options))


@given(found=rows, key=st.sampled_from(BINARIES), value=st.sampled_from(BINARIES),
       headers=st.sampled_from(HEADERS), cut=st.integers(0, 8),
       span=st.none() | st.integers(1, 500))
@settings(max_examples=examples(300))
def test_every_layout_gives_the_oracles_bytes(found: list[Row], key: Any, value: Any, headers: Any,
                                              cut: int, span: int | None) -> None:
    table, expected = _table(found, key, value, headers).slice(cut), found[cut:]
    data = _encode(table, base_offset=7, timestamp=5, span_bytes=span)
    records = _expected(expected, 5, 7)
    if not records:
        assert data == b""
        return
    assert data == v2.encode(Batch(
        7, len(records) - 1, records, base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records), partition_leader_epoch=-1))


@given(found=rows, sizes=st.lists(st.integers(0, 20), max_size=8), span=st.integers(1, 2000),
       most_bytes=st.integers(1, 400), most=st.integers(1, 30), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=examples(200))
def test_pieces_spans_and_limits(found: list[Row], sizes: list[int], span: int, most_bytes: int,
                                 most: int, seed: int) -> None:
    """However the rows come in and go out, the records are the same, and no batch is too large."""
    table = _table(found, pa.binary(), pa.string_view(), pa.list_(HEADER))
    pieces, at = [], 0
    for size in sizes:
        pieces.append(table.slice(at, size))
        at = min(at + size, len(table))
    pieces.append(table.slice(at))
    options = {"timestamp": 1, "max_batch_bytes": most_bytes, "max_records": most, "base_offset": 0,
               "producer_id": 9, "producer_epoch": 1, "base_sequence": seed}
    compress = {"attributes": 4, "compress": bytes} if seed % 2 else {}
    spans = list(ColumnEncoder([arrow_source(pa.Table.from_batches(pieces))], span_bytes=span,
                               **options, **compress))
    for one in spans:
        assert len(one) <= span or len(list(entries(one))) == 1
    data = _encode(table, **options)
    if not compress:
        assert data == b"".join(spans)
    assert len(data) == sum(map(len, spans))
    records, batches = _decoded(data)
    assert records == _expected(found, 1)
    sequence = seed
    for batch, entry in zip(batches, entries(data), strict=True):
        assert batch.base_sequence == sequence and len(batch.records) <= most
        assert entry.size <= most_bytes or len(batch.records) == 1
        sequence = v2.add_sequence(sequence, len(batch.records))
    for one, two in zip(batches, batches[1:], strict=False):
        # No batch ends early: the next record would not have fitted.
        more = v2.encode_record(two.records[0], one.base_offset, one.base_timestamp)
        size = len(v2.encode(one)) + len(more)
        assert size > most_bytes or len(one.records) == most


def test_batches_that_are_sent_begin_at_0() -> None:
    table = pa.record_batch({"value": [b"%d" % n for n in range(10)]})
    for compress in ({}, {"attributes": 4, "compress": bytes}):
        sent = list(entries(_encode(table, max_records=4, **compress)))
        assert [v2.HEADER.unpack_from(entry.data)[0] for entry in sent] == [0, 0, 0]
    batches = [v2.decode(entry.data) for entry in entries(_encode(table, max_records=4))]
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [(0, 3), (0, 3), (0, 1)]
    assert [record.offset for batch in batches for record in batch.records] == [
        0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    data = _encode(table, max_records=4, base_offset=5)
    assert [(batch.base_offset, batch.last_offset) for batch in _decoded(data)[1]] == [
        (5, 8), (9, 12), (13, 14)]


def test_columns_of_different_pieces_are_one_table() -> None:
    keys = pa.chunked_array([[b"a", b"b"], [], [b"c"]])
    values = pa.chunked_array([[b"1"], [b"2", b"3"]])
    data = b"".join(ColumnEncoder([arrow_source(keys, "key"), arrow_source(values, "value"),
                                   arrow_source(pa.array([4, 5, 6]), "timestamp")]))
    assert [(r.key, r.value, r.timestamp) for r in _decoded(data)[0]] == [
        (b"a", b"1", 4), (b"b", b"2", 5), (b"c", b"3", 6)]
    for short in (pa.array([b"1"]), pa.chunked_array([[b"1"], [b"2", b"3", b"4"]])):
        with pytest.raises(IllegalArgumentError, match="columns have different lengths"):
            list(ColumnEncoder([arrow_source(keys, "key"), arrow_source(short, "value")]))


@pytest.mark.parametrize(("unit", "number", "expected"), [
    ("s", 7, 7000), ("ms", 7, 7), ("us", 7999, 7), ("us", -1000, -1), ("ns", 7_999_999, 7),
    ("ns", -1_000_000, -1), ("s", (2**63 - 1) // 1000, 2**63 - 1 - 807)])
def test_timestamps_are_milliseconds(unit: str, number: int, expected: int) -> None:
    for zone in (None, "UTC", "Europe/Berlin"):
        column = pa.array([number], pa.int64()).cast(pa.timestamp(unit, zone))
        assert _decoded(_encode(pa.record_batch({"timestamp": column})))[0][0].timestamp == expected


@pytest.mark.parametrize("column", [
    pa.array([-2], pa.int64()), pa.array([-1001], pa.int64()).cast(pa.timestamp("us")),
    # Rounded down they would be -1, "no timestamp".
    pa.array([-1], pa.int64()).cast(pa.timestamp("us")),
    pa.array([-999_999], pa.int64()).cast(pa.timestamp("ns")),
    pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))])
def test_timestamps_out_of_bounds_name_their_row(column: Any) -> None:
    good = pa.nulls(5, column.type)
    encoder = ColumnEncoder([arrow_source(pa.chunked_array([good, column]), "timestamp")],
                            max_records=2, span_bytes=1)
    with pytest.raises(IllegalArgumentError, match="^row 5: Invalid negative timestamp"):
        list(encoder)
    with pytest.raises(IllegalArgumentError, match="^row 5: Invalid negative timestamp"):
        encoder.next()
    assert encoder.records == 4


def test_fixed_size_and_null_columns() -> None:
    nulls = pa.nulls(3)
    table = pa.record_batch({"key": pa.array([b"abc", None, b"def"], pa.binary(3)),
                             "value": nulls, "timestamp": nulls, "headers": nulls})
    assert [(r.key, r.value) for r in _decoded(_encode(table))[0]] == [
        (b"abc", None), (None, None), (b"def", None)]
    empty = pa.record_batch({"value": pa.array([b"", None], pa.binary(0))})
    assert [r.value for r in _decoded(_encode(empty))[0]] == [b"", None]


def test_long_views_in_many_blocks() -> None:
    values = [bytes([n]) * n for n in range(200)]
    column = pa.concat_arrays([pa.array(values[n:n + 10], pa.binary_view())
                               for n in range(0, 200, 10)])
    assert len(column.buffers()) > 4
    data = _encode(pa.record_batch({"value": column.slice(3)}))
    assert [record.value for record in _decoded(data)[0]] == values[3:]


def test_header_keys_are_never_null() -> None:
    for item in ({"key": None, "value": b"1"}, None):
        column = pa.array([[], [{"key": "a", "value": None}], [item]], pa.list_(HEADER))
        with pytest.raises(IllegalArgumentError,
                           match="^row 2: Invalid null header key found in headers$"):
            _encode(pa.record_batch({"headers": column}))


@pytest.mark.parametrize(("name", "column"), [
    ("key", pa.array([1])), ("value", pa.array(["a"]).dictionary_encode()),
    ("value", pa.array([[b"a"]])), ("timestamp", pa.array(["1"])), ("timestamp", pa.array([1.0])),
    ("timestamp", pa.array([1], pa.int32())), ("headers", pa.array([b"a"])),
    ("headers", pa.array([[b"a"]])),
    ("headers", pa.array([[{"name": "a", "value": b""}]])),
    ("headers", pa.array([[{"key": 1, "value": b""}]]))])
def test_types_that_a_column_cannot_have(name: str, column: Any) -> None:
    takes = {"timestamp": "int64 or a timestamp", "headers": "a list of structs"}
    said = (f"^column '{name}' of Arrow type (dictionary of )?'.*', "
            f"not {takes.get(name, 'binary or text')}.*: a column")
    with pytest.raises(IllegalArgumentError, match=said):
        _encode(pa.record_batch({name: column}))
    with pytest.raises(IllegalArgumentError, match=said):
        list(ColumnEncoder([arrow_source(column, name)]))


def test_a_refused_column_is_refused_again() -> None:
    """It must not become a column of nulls at the next call."""
    table = pa.record_batch({"key": pa.array([b"a"]), "value": pa.array([1])})
    encoder = ColumnEncoder([arrow_source(table)])
    for _ in range(2):
        with pytest.raises(IllegalArgumentError, match="column 'value' of Arrow type"):
            encoder.next()


def test_columns_that_records_do_not_have() -> None:
    with pytest.raises(IllegalArgumentError, match="records have no column 'Value'"):
        _encode(pa.record_batch({"Value": pa.array([b"a"])}))
    with pytest.raises(IllegalArgumentError, match="two columns are named 'value'"):
        _encode(pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, ["value", "value"]))
    with pytest.raises(IllegalArgumentError, match="a table is an Arrow struct, not of type 'l'"):
        _encode(pa.array([1]))
    with pytest.raises(IllegalArgumentError, match="records have no column 'offset'"):
        arrow_source(pa.array([1]), "offset")
    with pytest.raises(IllegalArgumentError, match="a table whose rows are null"):
        _encode(pa.array([{"value": b"a"}, None]))
    with pytest.raises(TypeError, match="int has neither"):
        arrow_source(1)
    assert len(_decoded(_encode(pa.record_batch({"offset": [5], "value": [b"a"]})))[0]) == 1


# ---- what contradicts itself ---------------------------------------------------------------------

def _buffers(name: str, format: str, rows: int, *arrays: Any) -> bytes:
    return b"".join(ColumnEncoder([buffer_source(name, format, rows, arrays, None)]))


@pytest.mark.parametrize("offsets", [[0, 5, 3, 8], [-1, 2, 3, 8], [0, 9, 9, 8], [0, 2**30, 5, 8],
                                     [0, 1, 2, -8], [3, 2, 8, 8]])
@pytest.mark.parametrize("format", ["z", "Z", "u"])
def test_offsets_out_of_order(offsets: list[int], format: str) -> None:
    width = np.int64 if format == "Z" else np.int32
    with pytest.raises(IllegalArgumentError, match="offsets out of order"):
        _buffers("value", format, 3, np.array(offsets, width), np.frombuffer(b"12345678", np.uint8))


@pytest.mark.parametrize("view", [
    struct.pack("<i12s", -1, b""), struct.pack("<i4sii", 13, b"1234", 1, 0),
    struct.pack("<i4sii", 13, b"1234", -1, 0), struct.pack("<i4sii", 13, b"1234", 0, 8),
    struct.pack("<i4sii", 2**31 - 1, b"1234", 0, 0), struct.pack("<i4sii", 13, b"1234", 0, -1)])
def test_views_outside_of_their_blocks(view: bytes) -> None:
    block, sizes = np.frombuffer(b"x" * 20, np.uint8), np.array([20], np.int64)
    good = struct.pack("<i4sii", 13, b"xxxx", 0, 7)
    views = np.frombuffer(good * 2, np.uint8)
    assert [r.value for r in _decoded(_buffers("value", "vz", 2, views, block, sizes))[0]] == [
        b"x" * 13] * 2
    with pytest.raises(IllegalArgumentError, match="^row 1: offsets out of order"):
        _buffers("value", "vz", 2, np.frombuffer(good + view, np.uint8), block, sizes)


def test_a_record_above_two_gibibytes() -> None:
    """A value too large for memory, given by offsets alone."""
    column = np.zeros(1, np.uint8)
    for size in (2**31 - 61, 2**62):
        with pytest.raises(IllegalArgumentError, match="above the largest of 2147483647"):
            _buffers("value", "Z", 1, np.array([0, size], np.int64), column)
    assert _buffers("value", "w:0", 2, column) != b""
    with pytest.raises(ValueError, match="4 buffers are more than a column has"):
        _buffers("value", "vz", 1, column, column, column, column)
    for format in ("w:", "w:-1", "w:x", "w:99999999999999999999"):
        with pytest.raises(IllegalArgumentError, match="cannot have this type"):
            _buffers("value", format, 1, column)


# ---- streams and use -----------------------------------------------------------------------------

def test_a_stream_that_fails_says_why() -> None:
    def pieces() -> Iterator[Any]:
        yield pa.record_batch({"value": [b"a"]})
        raise RuntimeError("the disk is gone")

    schema = pa.schema([("value", pa.binary())])
    encoder = ColumnEncoder([arrow_source(pa.RecordBatchReader.from_batches(schema, pieces()))])
    with pytest.raises((OSError, ValueError), match="the disk is gone"):
        list(encoder)


def test_compressed_batches_are_what_compress_gives() -> None:
    seen: list[int] = []

    def reverse(records: memoryview) -> bytes:
        seen.append(len(records))
        return bytes(records)[::-1]

    table = pa.record_batch({"value": [b"x" * 90] * 10})
    plain = list(entries(_encode(table, max_batch_bytes=300)))
    data = _encode(table, max_batch_bytes=300, attributes=1, compress=reverse, span_bytes=400)
    assert scan(data).status_name == "end" and len(seen) == 5
    for one, two in zip(plain, entries(data), strict=True):
        assert one.data[61:] == two.data[61:][::-1] and two.data[22] == 1
        assert one.data[23:61] == two.data[23:61]

    def refuse(records: memoryview) -> bytes:
        raise RuntimeError("no such codec")

    with pytest.raises(RuntimeError, match="no such codec"):
        _encode(table, attributes=1, compress=refuse)


def test_wrong_arguments() -> None:
    for options, message in (({"base_offset": -1}, "base offset -1 is negative"),
                             ({"max_records": 0}, "lie between 1 and"),
                             ({"max_batch_bytes": 2**31}, "lie between 1 and"),
                             ({"span_bytes": 0}, "not positive"),
                             ({"attributes": 1}, "if and only if compress is given")):
        with pytest.raises(ValueError, match=message):
            _encode(pa.record_batch({"value": [b"a"]}), **options)
    with pytest.raises(ValueError, match="no column to encode"):
        ColumnEncoder([])
    with pytest.raises(ValueError, match="never initialised"):
        ColumnEncoder.__new__(ColumnEncoder).next()
    with pytest.raises(IllegalArgumentError, match="Maximum offset delta exceeded"):
        _encode(pa.record_batch({"value": [b"a"]}), base_offset=2**63 - 1)


def test_two_threads_do_not_share_an_encoder() -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait(records: memoryview) -> bytes:
        inside.set()
        assert leave.wait(120)
        return bytes(records)

    encoder = ColumnEncoder([arrow_source(pa.record_batch({"value": [b"a"]}))],
                            attributes=1, compress=wait)
    thread = threading.Thread(target=encoder.next)
    thread.start()
    assert inside.wait(120)
    with pytest.raises(RuntimeError, match="another thread"):
        encoder.next()
    leave.set()
    thread.join()


_WITHOUT_MEMORY = """
import resource
import sys
import numpy as np
from seglog._native.encode_columns import ColumnEncoder
from seglog._native.encode_sources import buffer_source

SIZE, ROWS = 1 << 20, 64
offsets = np.arange(ROWS + 1, dtype=np.int32) * SIZE
values = buffer_source("value", "z", ROWS, (offsets, np.zeros(SIZE * ROWS, np.uint8)), None)
compress = bytes if sys.argv[1] == "compressed" else None
encoder = ColumnEncoder([values], max_records=1, attributes=int(compress is not None),
                        compress=compress)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
more = 100 << 20 if compress else 40 << 20
resource.setrlimit(resource.RLIMIT_AS, (held + more, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        span = encoder.next()
        print(None if span is None else len(span) // SIZE)
    except MemoryError:
        print("no memory")
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists() or "LD_PRELOAD" in os.environ,
                    reason="bounds the memory of a process, which a sanitizer reserves")
@pytest.mark.parametrize(("how", "said"), [
    ("plain", ["no memory"] * 3), ("compressed", ["no memory", "64", "None"])])
def test_no_batch_is_missing_after_an_error_for_want_of_memory(how: str, said: list[str]) -> None:
    """The memory of plain batches went with the error; compressed ones are still there."""
    ran = subprocess.run([sys.executable, "-c", _WITHOUT_MEMORY, how], capture_output=True,
                         text=True, check=True)
    assert ran.stdout.split("\n")[:-1] == said
