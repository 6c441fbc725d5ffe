"""Columns through the Arrow C data interface: what others import, and that all of it is freed."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog._native.columns import (
    COLUMNS,
    ORIGIN_COLUMNS,
    ColumnPool,
    RecordColumns,
    RecordOrigin,
    export_stream,
    live_columns,
    schema_capsule,
)
from seglog._native.records import RecordDecoder
from seglog.storage.codecs import decompress
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.effort import quick_first

pa = pytest.importorskip("pyarrow")

RECORDS = 2000


class Capsules:
    """Nothing but the protocol, so that no importer takes another way in."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._source.__arrow_c_array__(requested_schema)


class Stream:
    def __init__(self, columns: Any, names: tuple[str, ...] = COLUMNS) -> None:
        self._columns, self._names = columns, names

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return export_stream(self._columns, self._names)


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nulls, empties, headers, every fact of a batch, and all kinds of sizes."""
    chance = random.Random(7)
    path = tmp_path_factory.mktemp("arrow") / "00000000000000000000.log"
    with path.open("wb") as out:
        offset = 0
        while offset < RECORDS:
            count = chance.randint(1, 60)
            records = [Record(
                offset + i, 1_700_000_000_000 + offset + i * chance.choice((0, 1, 90_000)),
                chance.choice((None, b"", b"k" * chance.randrange(70))),
                chance.choice((None, b"", chance.randbytes(chance.choice((3, 63, 64, 65, 900))))),
                [(b"h%d" % i, chance.choice((None, b"", b"v"))) for i in range(
                    chance.choice((0, 0, 1, 3)))]) for i in range(count)]
            data = chance.random() < 0.5
            out.write(v2.encode(Batch(
                offset, count - 1, records, codec=chance.choice((0, 0, 4)),
                base_timestamp=1_700_000_000_000, max_timestamp=1_700_000_100_000,
                timestamp_type=chance.randrange(2), producer_id=8 if data else -1,
                producer_epoch=2 if data else -1, base_sequence=offset if data else -1,
                partition_leader_epoch=3, is_transactional=data)))
            offset += count
    return path


@pytest.fixture
def open_decoder(log_file: Path) -> Iterator[Callable[..., RecordDecoder]]:
    fd = os.open(log_file, os.O_RDONLY)

    def make(**options: Any) -> RecordDecoder:
        options = {"columns": COLUMNS, "decompress": decompress, "file": log_file, **options}
        return RecordDecoder(fd, 0, os.fstat(fd).st_size, **options)

    yield make
    os.close(fd)


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    gc.collect()
    before = live_columns()
    yield
    gc.collect()
    assert live_columns() <= before


def plain(table: Any) -> dict[str, list[Any]]:
    """Lists of a pyarrow table in the form of RecordColumns.to_pylists."""
    found: dict[str, list[Any]] = {name: table[name].to_pylist() for name in table.column_names}
    if "timestamp" in found:
        found["timestamp"] = table["timestamp"].cast(pa.int64()).to_pylist()
    if "headers" in found:
        found["headers"] = [[(h["key"], h["value"]) for h in row] for row in found["headers"]]
    return found


def merged(columns: list[RecordColumns]) -> dict[str, list[Any]]:
    lists = [part.to_pylists() for part in columns]
    return {name: [value for part in lists for value in part[name]] for name in lists[0]}


SCHEMA = pa.schema([
    ("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("timestamp_type", pa.int8()),
    ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("producer_id", pa.int64()), ("producer_epoch", pa.int16()), ("sequence", pa.int32()),
    ("partition_leader_epoch", pa.int32()), ("is_transactional", pa.bool_()),
    ("is_control", pa.bool_()), ("position", pa.int64()),
])


@pytest.mark.parametrize("max_rows", [1, 7, 8, 9, 300, 65536])
def test_pyarrow_takes_every_column(open_decoder: Callable[..., RecordDecoder],
                                    max_rows: int) -> None:
    parts = list(open_decoder(max_rows=max_rows))
    assert all(part.num_rows <= max_rows for part in parts)
    batches = [pa.record_batch(Capsules(part)) for part in parts]
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA
    expected = merged(parts)
    assert plain(pa.Table.from_batches(batches)) == expected
    assert expected["offset"] == list(range(len(expected["offset"])))
    assert parts[0].first_offset == 0 and parts[-1].last_offset == expected["offset"][-1]
    assert pa.schema(schema_type()) == SCHEMA


def schema_type() -> Any:
    class Schema:
        def __arrow_c_schema__(self) -> object:
            return schema_capsule(COLUMNS)

    return Schema()


@pytest.mark.parametrize("columns", [
    ("value",), ("key", "offset"), ("headers",), ("is_transactional", "sequence"), (),
    ("position", "timestamp_type", "value", "producer_epoch")])
def test_projections(open_decoder: Callable[..., RecordDecoder], columns: tuple[str, ...]) -> None:
    whole = merged(list(open_decoder()))
    parts = list(open_decoder(columns=columns))
    assert all(part.columns == columns for part in parts)
    assert sum(part.num_rows for part in parts) == len(whole["offset"])
    assert not columns or merged(parts) == {name: whole[name] for name in columns}
    batch = pa.record_batch(Capsules(parts[0]))
    assert batch.num_rows == parts[0].num_rows and batch.schema.names == list(columns)
    # Columns that were not requested use no memory.
    assert parts[0].nbytes <= batch.nbytes + 64 * (1 + len(columns))


@pytest.mark.parametrize("bounds", [(0, 1), (17, 18), (300, 1999), (1999, None), (None, 40),
                                    (500, 500), (10**6, None)])
def test_offset_bounds(open_decoder: Callable[..., RecordDecoder],
                       bounds: tuple[int | None, int | None]) -> None:
    start, end = bounds
    whole = merged(list(open_decoder()))
    keep = [i for i, offset in enumerate(whole["offset"])
            if offset >= (start or 0) and (end is None or offset < end)]
    for limits in ({}, {"max_rows": 5}, {"max_bytes": 100}):
        parts = list(open_decoder(start_offset=start, end_offset=end, **limits))
        if not keep:
            assert not parts
            continue
        assert merged(parts) == {name: [values[i] for i in keep] for name, values in whole.items()}


def test_bytes_bound_what_columns_hold(open_decoder: Callable[..., RecordDecoder]) -> None:
    for most in (1, 64, 1000, 5000):
        for part in open_decoder(columns=("key", "value"), max_bytes=most):
            lists = part.to_pylists()
            size = sum(len(blob) for name in lists for blob in lists[name] if blob is not None)
            assert size <= most or part.num_rows == 1


def test_others_take_streams(open_decoder: Callable[..., RecordDecoder]) -> None:
    expected = merged(list(open_decoder()))
    table = pa.table(Stream(open_decoder(max_rows=100)))
    table.validate(full=True)
    assert plain(table) == expected and table.schema == SCHEMA
    reader = pa.RecordBatchReader.from_stream(Stream(open_decoder(max_rows=100)))
    assert sum(batch.num_rows for batch in reader) == len(expected["offset"])
    del reader, table


def test_polars_takes_columns_and_streams(open_decoder: Callable[..., RecordDecoder]) -> None:
    polars = pytest.importorskip("polars")
    expected = merged(list(open_decoder()))
    frame = polars.DataFrame(Stream(open_decoder(max_rows=100)))
    for name in ("offset", "key", "value", "sequence", "is_transactional"):
        assert frame[name].to_list() == expected[name]
    assert [[(h["key"], h["value"]) for h in row] for row in frame["headers"].to_list()] == \
        expected["headers"]
    del frame


def test_duckdb_and_pandas(open_decoder: Callable[..., RecordDecoder]) -> None:
    duckdb = pytest.importorskip("duckdb")
    expected = merged(list(open_decoder()))
    stream = Stream(open_decoder(max_rows=100))  # noqa: F841  (DuckDB finds it by its name)
    connection = duckdb.connect()
    rows, = connection.sql(
        "select count(*), sum(\"offset\"), count(key) from stream").fetchall()
    assert rows == (len(expected["offset"]), sum(expected["offset"]),
                    sum(key is not None for key in expected["key"]))
    connection.close()
    pytest.importorskip("pandas")
    frame = pa.table(Stream(open_decoder())).to_pandas()
    assert frame["value"].tolist() == expected["value"]
    del frame


def test_columns_outlive_their_decoder(open_decoder: Callable[..., RecordDecoder]) -> None:
    decoder = open_decoder(max_rows=50)
    parts = [pa.record_batch(Capsules(part)) for part in decoder]
    assert live_columns() >= len(parts)
    del decoder
    # A child that is kept alone keeps its bytes; the parent's end does not touch them.
    values = [part.column("value") for part in parts]
    expected = [value.to_pylist() for value in values]
    del parts
    gc.collect()
    assert [value.to_pylist() for value in values] == expected
    del values


def test_unused_capsules_are_freed(open_decoder: Callable[..., RecordDecoder]) -> None:
    part = next(open_decoder())
    for _ in range(3):
        part.__arrow_c_array__()
        part.__arrow_c_schema__()
    Stream(open_decoder()).__arrow_c_stream__()
    del part


def test_memory_is_used_again(open_decoder: Callable[..., RecordDecoder]) -> None:
    """The pool reuses memory, but never while a consumer still holds it."""
    pool = ColumnPool(keep=2)
    expected = merged(list(open_decoder(max_rows=40)))
    for _ in range(3):
        seen, parts = [], []
        for number, part in enumerate(open_decoder(max_rows=40, pool=pool)):
            seen.append(part.to_pylists()["value"])
            if number % 3 == 0:
                parts.append((part, seen[-1]))
        assert [value for values in seen for value in values] == expected["value"]
        assert all(part.to_pylists()["value"] == values for part, values in parts)
    first = next(open_decoder(pool=pool, columns=("value",)))
    address = pa.record_batch(first).column(0).buffers()[2].address
    del first
    again = next(open_decoder(pool=pool, columns=("value",)))
    assert pa.record_batch(again).column(0).buffers()[2].address == address


def test_errors_pass_through_a_stream(open_decoder: Callable[..., RecordDecoder]) -> None:
    def broken() -> Iterator[RecordColumns]:
        yield next(open_decoder(max_rows=3))
        raise RuntimeError("the disk is gone")

    with pytest.raises(Exception, match="RuntimeError: the disk is gone"):
        pa.table(Stream(broken()))
    with pytest.raises(Exception, match="other columns"):
        pa.table(Stream([next(open_decoder(columns=("value",)))]))
    with pytest.raises(Exception, match="TypeError"):
        pa.table(Stream([5]))
    assert pa.table(Stream([])).num_rows == 0


def test_a_failed_stream_fails_again(open_decoder: Callable[..., RecordDecoder]) -> None:
    """A consumer that asks again must not take the records before the error for all of them."""
    def broken() -> Iterator[RecordColumns]:
        yield next(open_decoder(max_rows=3))
        raise RuntimeError("the disk is gone")

    reader = pa.RecordBatchReader.from_stream(Stream(broken()))
    assert reader.read_next_batch().num_rows == 3
    for _ in range(3):
        with pytest.raises(Exception, match="RuntimeError: the disk is gone"):
            reader.read_next_batch()


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_without_a_text_ends_no_stream_silently() -> None:
    def broken() -> Iterator[RecordColumns]:
        raise Wordless
        yield

    with pytest.raises(Exception, match="Wordless"):
        pa.RecordBatchReader.from_stream(Stream(broken())).read_all()


def test_two_threads_have_a_decoder_each(open_decoder: Callable[..., RecordDecoder]) -> None:
    pool = ColumnPool(keep=4)
    expected = merged(list(open_decoder()))
    found: list[dict[str, list[Any]]] = []

    def work() -> None:
        for _ in range(5):
            found.append(merged(list(open_decoder(max_rows=64, pool=pool))))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 15 and all(lists == expected for lists in found)
    found.clear()


def test_one_decoder_serves_one_thread(open_decoder: Callable[..., RecordDecoder]) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(codec: int, magic: int, payload: memoryview, into: memoryview) -> memoryview:
        entered.set()
        leave.wait(120)
        return decompress(codec, magic, payload, into)

    decoder = open_decoder(decompress=slow)
    thread = threading.Thread(target=decoder.next)
    thread.start()
    assert entered.wait(120)
    with pytest.raises(RuntimeError, match="another thread"):
        decoder.next()
    leave.set()
    thread.join()


def test_codecs_that_misbehave(open_decoder: Callable[..., RecordDecoder]) -> None:
    kept: list[memoryview] = []

    def greedy(codec: int, magic: int, payload: memoryview, into: memoryview) -> memoryview:
        kept.append(payload)
        return decompress(codec, magic, payload, into)

    assert merged(list(open_decoder(decompress=greedy))) == merged(list(open_decoder()))
    with pytest.raises(ValueError, match="released"):
        bytes(kept[0])

    def foreign(codec: int, magic: int, payload: memoryview, into: memoryview) -> memoryview:
        return memoryview(bytes(decompress(codec, magic, payload)))

    assert merged(list(open_decoder(decompress=foreign))) == merged(list(open_decoder()))

    def failing(codec: int, magic: int, payload: memoryview, into: memoryview) -> memoryview:
        raise KeyError("no such codec")

    decoder = open_decoder(decompress=failing)
    with pytest.raises(KeyError):
        while decoder.next() is not None:
            pass
    with pytest.raises(KeyError):
        decoder.next()


def test_wrong_arguments(open_decoder: Callable[..., RecordDecoder]) -> None:
    for options in ({"columns": ("nonsense",)}, {"columns": ("key", "key")}, {"max_rows": 0},
                    {"max_bytes": 2**31}, {"aborted": [1, 2, 3, 4]}):
        with pytest.raises(ValueError):
            open_decoder(**options)
    with pytest.raises(TypeError):
        open_decoder(columns="value")
    with pytest.raises(TypeError):
        RecordColumns()
    with pytest.raises(TypeError):
        RecordColumns.__new__(RecordColumns)
    empty = RecordDecoder.__new__(RecordDecoder)
    for attempt in (empty.next, lambda: empty.position):
        with pytest.raises(ValueError, match="never initialised"):
            attempt()
    assert "rows, offsets 0.." in repr(next(open_decoder()))


# ---- where records come from, and when they were written -----------------------------------------

@pytest.mark.parametrize("seed", quick_first(range(12), 3))
def test_rows_of_a_time_and_their_origin(open_decoder: Callable[..., RecordDecoder],
                                         seed: int) -> None:
    """Any projection, any times, any sizes: the rows that a slow filter keeps, and no other."""
    chance = random.Random(seed)
    whole = merged(list(open_decoder()))
    stamps = sorted(whole["timestamp"])
    names = chance.sample((*COLUMNS, *ORIGIN_COLUMNS), chance.randint(1, 15))
    pool = ColumnPool(keep=2)
    for _ in range(6):
        first, end = sorted(chance.choice((None, None, chance.choice(stamps) + chance.choice(
            (0, 1)))) or chance.choice((stamps[0] - 1, stamps[-1] + 1)) for _ in range(2))
        start, stop = chance.choice(((first, end), (first, None), (None, end), (None, None)))
        origin = RecordOrigin(names, topic="späte.topic", partition=2**31 - 1,
                              start_timestamp=start, end_timestamp=stop)
        keep = [i for i, stamp in enumerate(whole["timestamp"])
                if (start is None or stamp >= start) and (stop is None or stamp < stop)]
        expected = {name: [whole[name][i] for i in keep] for name in names if name in COLUMNS}
        expected |= {"topic": ["späte.topic"] * len(keep)} if "topic" in names else {}
        expected |= {"partition": [2**31 - 1] * len(keep)} if "partition" in names else {}
        decoder = open_decoder(columns=origin.decoded, pool=pool,
                               max_rows=chance.choice((1, 9, 70, 65536)))
        found: dict[str, list[Any]] = {name: [] for name in names}
        for part in decoder:
            marked = origin.apply(part)
            del part
            if marked is None:
                continue
            batch = pa.record_batch(Capsules(marked))
            batch.validate(full=True)
            lists = marked.to_pylists()
            assert plain(pa.Table.from_batches([batch])) == lists and list(lists) == names
            if "offset" in names:
                assert (marked.first_offset, marked.last_offset) == (
                    lists["offset"][0], lists["offset"][-1])
            for name, values in lists.items():
                found[name] += values
            del marked, batch
        assert found == expected


def test_origin_columns_have_arrow_types() -> None:
    class Schema:
        def __arrow_c_schema__(self) -> object:
            return schema_capsule(("topic", "value", "partition"))

    assert pa.schema(Schema()) == pa.schema([
        ("topic", pa.string()), ("value", pa.binary()), ("partition", pa.int32())])


def test_an_origin_takes_only_what_it_asked_for(
        open_decoder: Callable[..., RecordDecoder]) -> None:
    with pytest.raises(ValueError, match="no column 'place'; there are offset, .*, partition"):
        RecordOrigin(["place"], topic="t", partition=0)
    origin = RecordOrigin(["topic", "value"], topic="t", partition=0)
    part = next(open_decoder(columns=("offset",)))
    with pytest.raises(ValueError, match="columns offset, not"):
        origin.apply(part)
    part = next(open_decoder(columns=("value",)))
    held = pa.record_batch(Capsules(part))
    with pytest.raises(ValueError, match="somebody else holds"):
        origin.apply(part)
    del held
    marked = origin.apply(part)
    assert marked is not None and set(marked.to_pylists()["topic"]) == {"t"}
    with pytest.raises(ValueError, match="no column 'topic'"):
        open_decoder(columns=("topic",))
    with pytest.raises(OverflowError):
        RecordOrigin(["topic"], topic="t", partition=2**31)
