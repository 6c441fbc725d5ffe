"""Every library that speaks Arrow takes what to_arrow gives, and so does one with nothing else."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.arrow import COLUMNS, DEFAULT_COLUMNS, DecodeOptions, RecordSchema, read
from seglog.errors import IllegalStateError
from seglog.model import TopicPartition
from seglog.storage import stream as streams
from seglog.storage.stream import RecordBatchStream
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import BuiltLog
from tests.support.reading import ALL_COLUMNS, project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltLog:
    return build_log(tmp_path_factory.mktemp("arrow") / "topic-0", 41, Shape(batches=80))


class OnlyTheStream:
    """A producer that has the protocol and nothing else."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._stream.__arrow_c_stream__(requested_schema)


def test_pyarrow(built: BuiltLog) -> None:
    pa = pytest.importorskip("pyarrow")
    with seglog.PartitionLog.open(built.path) as log:
        reader = pa.RecordBatchReader.from_stream(OnlyTheStream(
            log.to_arrow(columns=ALL_COLUMNS, threads=2, batch_rows=7)))
        assert reader.schema == pa.schema(RecordSchema(ALL_COLUMNS))
        table = reader.read_all()
    table.validate(full=True)
    rows = table.to_pylist()
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    for row, time in zip(rows, times, strict=True):
        row["timestamp"] = time
    assert rows == project(built.rows(), ALL_COLUMNS)
    assert max(len(batch) for batch in table.to_batches()) <= 7


def test_polars(built: BuiltLog) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(read(built.path, columns=["offset", "value"]))
    assert frame.to_dicts() == project(built.rows(), ["offset", "value"])


def test_pandas(built: BuiltLog) -> None:
    pandas = pytest.importorskip("pandas")
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("pandas before 3.0 takes no Arrow stream")
    frame = pandas.DataFrame.from_arrow(read(built.path, columns=["offset"]))
    assert frame["offset"].tolist() == [row["offset"] for row in built.rows()]


def test_duckdb(built: BuiltLog) -> None:
    duckdb = pytest.importorskip("duckdb")
    records = read(built.path, isolation="read_committed")  # noqa: F841  (found by its name)
    found = duckdb.sql('select count(*), min("offset"), max("offset") from records').fetchall()
    offsets = [row["offset"] for row in built.rows(isolation="read_committed")]
    assert found == [(len(offsets), min(offsets), max(offsets))]


def test_an_interrupted_pass_does_not_look_like_the_end(
        built: BuiltLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes on after Ctrl-C must not take the records before it for all."""
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with seglog.PartitionLog.open(built.path) as log:
        stream = log.to_arrow(columns=["offset"], batch_rows=7)
        with monkeypatch.context() as patched:
            patched.setattr(streams, "_tell", interrupt)
            with pytest.raises(KeyboardInterrupt):
                list(stream)
        for _ in range(2):
            with pytest.raises(IllegalStateError, match="interrupted before its end"):
                next(stream)
        assert sum(len(part) for part in stream) == len(built.rows())


@pytest.mark.parametrize("threads", [0, 2])
def test_a_stream_may_be_used_again(built: BuiltLog, threads: int) -> None:
    """Every iteration and every consumer of the C stream gets all of it; a pass that was begun and
    not finished continues."""
    pa = pytest.importorskip("pyarrow")
    offsets = [row["offset"] for row in built.rows()]
    with seglog.PartitionLog.open(built.path) as log:
        stream = log.to_arrow(columns=["offset"], threads=threads, batch_rows=7)

        def rest() -> list[int]:
            return [offset for part in stream for offset in part.to_pylists()["offset"]]

        assert rest() == rest() == offsets
        readers = [pa.RecordBatchReader.from_stream(OnlyTheStream(stream)) for _ in range(2)]
        assert [reader.read_all()["offset"].to_pylist() for reader in readers] == [offsets] * 2
        first = next(iter(stream)).to_pylists()["offset"]
        assert first == offsets[:7] and rest() == offsets[7:] and rest() == offsets
        next(iter(stream))
        assert pa.table(OnlyTheStream(stream))["offset"].to_pylist() == offsets[7:]
        next(iter(stream))
        stream.close()
        assert rest() == offsets
        fresh = log.to_arrow()
        fresh.close()
        with pytest.raises(StopIteration):
            next(fresh)
        assert repr(stream) == (f"<RecordBatchStream topic-0 [{log.log_start_offset}, "
                                f"{log.log_end_offset}), read_uncommitted, offset>")


def test_duckdb_reads_a_stream_twice(built: BuiltLog) -> None:
    duckdb = pytest.importorskip("duckdb")
    records = read(built.path, columns=["offset"])  # noqa: F841  (found by its name)
    count = len(built.rows())
    for _ in range(2):
        assert duckdb.sql("select count(*) from records").fetchall() == [(count,)]


def test_an_error_reaches_the_consumer_with_its_text(built: BuiltLog, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "topic-0"
    path.mkdir()
    data = bytearray((built.path / f"{built.segments[0]:020d}.log").read_bytes())
    data[-1] ^= 1
    (path / f"{0:020d}.log").write_bytes(data)
    reader = pa.RecordBatchReader.from_stream(read(path, batch_rows=1))
    first = reader.read_next_batch()
    assert first.num_rows == 1
    with pytest.raises(OSError, match=r"CorruptRecordError: .*\.log: .* at byte \d+"):
        reader.read_all()


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_an_error_that_names_a_file_in_no_encoding_ends_no_stream(built: BuiltLog,
                                                                  tmp_path: Path) -> None:
    """A consumer that got no error would take the records before it for the whole log."""
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / os.fsdecode(b"copy\xff") / "topic-0"
    path.mkdir(parents=True)
    data = bytearray((built.path / f"{built.segments[0]:020d}.log").read_bytes())
    data[-1] ^= 1
    (path / f"{0:020d}.log").write_bytes(data)
    with pytest.raises(OSError, match=r"CorruptRecordError: .*copy\\udcff.*\.log: .* at byte \d+"):
        pa.table(OnlyTheStream(read(path)))


def test_columns_are_projected_in_the_order_asked_for(built: BuiltLog) -> None:
    assert set(DEFAULT_COLUMNS) < set(COLUMNS) == set(ALL_COLUMNS)
    with pytest.raises(ValueError):
        RecordSchema(["offset", "offset"])
    columns = next(read(built.path, columns=["value", "offset"]))
    assert columns.columns == ("value", "offset")
    assert repr(RecordSchema(["value"])) == "RecordSchema(value)"


@pytest.mark.parametrize("options", [
    {"batch_rows": 2**31 - 1}, {"batch_bytes": 2**63 - 1, "threads": 2}])
def test_any_bound_of_a_batch_that_is_accepted_serves(built: BuiltLog, options: Any) -> None:
    found = [row for columns in read(built.path, **options)
             for row in columns.to_pylists()["offset"]]
    assert found == [row["offset"] for row in built.rows()]


def test_public_names() -> None:
    assert len(seglog.__all__) <= 24
    for name in seglog.__all__:
        assert getattr(seglog, name) is not None
    assert dir(seglog) == sorted(seglog.__all__)
    with pytest.raises(AttributeError):
        seglog.nothing  # noqa: B018


def test_a_wrong_column_is_told_before_the_first_read(tmp_path: Path) -> None:
    """`topic` is one only where the stream knows whose records it has."""
    options = DecodeOptions(columns=("topic", "offset"))
    with pytest.raises(ValueError, match="topic"):
        RecordBatchStream(lambda: pytest.fail("nothing is read"), options)
    known = dataclasses.replace(options, origin=TopicPartition("t", 0))
    assert RecordBatchStream(lambda: pytest.fail("nothing is read"), known).gaps == []
