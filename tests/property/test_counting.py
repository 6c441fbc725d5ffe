"""Headers of batches and what is counted by them, against the oracle's rows."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seglog.arrow import DecodeOptions, batch_headers, decode_range
from seglog.errors import CorruptDataError
from seglog.storage import batches, codecs, record_counts
from seglog.storage.record_counts import RecordCount, count_range
from seglog.storage.partition_log import PartitionLog
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.batch import Batch, Record
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import BuiltLog, LogConfig
from tests.support.effort import examples
from tests.support.held import open_files

SHAPES = (
    Shape(batches=40), Shape(batches=40, magics=(0, 1, 2)), Shape(batches=30, magics=(1,)),
    Shape(batches=40, clean=False, preallocated=True), Shape(batches=0),
    Shape(batches=60, config=LogConfig(segment_bytes=1500, index_interval_bytes=0)),
)
MANY = settings(max_examples=examples(150),
                suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def built() -> Iterator[list[BuiltLog]]:
    with tempfile.TemporaryDirectory() as folder:
        yield [build_log(Path(folder) / f"counted-{number}", 500 + number, shape)
               for number, shape in enumerate(SHAPES * 2)]


def counted(path: Path, start: int | None = None, end: int | None = None, target: int = 1 << 30,
            isolation: Any = "read_uncommitted", *, exact: bool = False, **options: Any
            ) -> RecordCount:
    with PartitionLog.open(path) as log:
        on_damage = options.get("on_damage", "raise")
        return sum((count_range(planned, DecodeOptions(**options), exact=exact) for planned in
                    log.ranges(target, start, end, isolation, on_damage=on_damage)), RecordCount())


def check(found: RecordCount, rows: list[dict[str, Any]], *, exact: bool) -> None:
    assert found.records == len(rows)
    if not rows:
        assert found == RecordCount()
        return
    offsets, stamps = [[row[name] for row in rows] for name in ("offset", "timestamp")]
    assert (found.min_offset, found.max_offset) == (offsets[0], offsets[-1])
    assert found.max_timestamp == max(stamps)
    assert found.min_timestamp is not None
    if exact or found.min_timestamp_is_exact:
        assert found.min_timestamp_is_exact and found.min_timestamp == min(stamps)
    else:
        assert min(stamps) <= found.min_timestamp <= max(stamps)


@MANY
@given(data=st.data())
def test_counts_are_those_of_the_rows(built: list[BuiltLog], data: st.DataObject) -> None:
    log = data.draw(st.sampled_from(built), label="log")
    edges = [edge + step for entry in log.entries for edge in (entry.base_offset, entry.last_offset)
             for step in (0, 1) if log.log_start_offset <= edge + step <= log.log_end_offset]
    offset = st.one_of(st.none(), st.sampled_from(edges or [log.log_start_offset]),
                       st.integers(log.log_start_offset, log.log_end_offset))
    start, end = data.draw(offset, label="start"), data.draw(offset, label="end")
    isolation = data.draw(st.sampled_from(["read_uncommitted", "read_committed"]))
    exact, target = data.draw(st.booleans()), data.draw(st.sampled_from([1, 400, 5000, 1 << 30]))
    rows = log.rows(start, end, isolation=isolation)
    check(counted(log.path, start, end, target, isolation, exact=exact), rows, exact=exact)
    check(counted(log.path, start, end, target, isolation, on_damage="skip"), rows, exact=True)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches were decoded, each time."""
    found: list[int] = []
    count = record_counts._Decoding.count
    monkeypatch.setattr(record_counts._Decoding, "count", lambda self, batches: (
        found.append(len(batches)), count(self, batches))[1])
    return found


def test_little_is_decoded(built: list[BuiltLog], decoded: list[int]) -> None:
    """Of whole ranges of magic 2 the outermost batches at most, and only where compaction was."""
    log = built[0]
    assert counted(log.path).records == len(log.rows())
    assert sum(decoded) <= 2 and len(log.entries) > 30


@pytest.mark.parametrize("magic", [0, 1])
def test_of_old_formats_only_wrappers_are_decoded(tmp_path: Path, decoded: list[int], magic: int
                                                  ) -> None:
    plain = [legacy.Message(n, magic, b"k", b"v", 1000 if magic else -1) for n in range(5)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(map(legacy.encode, (
        *plain[:3], legacy.wrap(plain[3:], codecs.GZIP)))))
    assert counted(tmp_path).records == 5 and decoded == [1]
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_control_records(tmp_path: Path, magic: int) -> None:
    """Nor transactions: the bits of both mean nothing there."""
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(legacy.encode(legacy.Message(
        n, magic, b"k", b"v", timestamp_type=bits)) for n, bits in enumerate((0, 2, 4, 6))))
    for on_damage in ("raise", "skip"):
        assert counted(tmp_path, on_damage=on_damage).records == 4


def write(path: Path, *batches: Batch) -> Path:
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(b"".join(map(v2.encode, batches)))
    return path


def test_batches_that_compaction_left(tmp_path: Path) -> None:
    """Empty ones, and ones whose first and last records are gone, at both ends."""
    def made(base: int, *kept: int, horizon: bool = False) -> Batch:
        return Batch(base, 9, [Record(base + n, 1000 + base + n) for n in kept],
                     base_timestamp=7 if horizon else 1000 + base, max_timestamp=1009 + base,
                     has_delete_horizon=horizon)

    path = write(tmp_path / "t-0", made(0), made(10), made(20, 3, 5), made(30, *range(10)),
                 made(40, 0, 9), made(50, 4, horizon=True), made(60))
    for exact in (False, True):
        found = counted(path, exact=exact)
        assert (found.records, found.min_offset, found.max_offset) == (15, 23, 54)
        assert found.min_timestamp_is_exact is exact
        if exact:
            assert (found.min_timestamp, found.max_timestamp) == (1023, 1054)
    assert counted(path, 24, 31).records == 2
    assert counted(path, 30, 39).records == 9
    assert counted(path, 0, 23) == counted(path, 56) == RecordCount()


@pytest.mark.parametrize(("records", "append_time", "horizon", "is_exact", "smallest"), [
    (1, False, False, True, 1000), (2, False, False, False, 1000), (2, True, False, True, 1005),
    (1, False, True, False, 1005), (1, True, True, True, 1005), (2, True, True, True, 1005)])
def test_a_header_tells_the_smallest_time_of_one_record_or_of_its_append(
        tmp_path: Path, records: int, append_time: bool, horizon: bool, is_exact: bool,
        smallest: int) -> None:
    """The base timestamp is that of the first record, unless it is a delete horizon."""
    whole = [Batch(records * n, records - 1, [Record(records * n + k, 1000)
                                              for k in range(records)], base_timestamp=1000,
                   max_timestamp=1005, timestamp_type=int(append_time),
                   has_delete_horizon=horizon) for n in range(3)]
    found = counted(write(tmp_path / "t-0", *whole))
    assert (found.records, found.min_offset, found.max_offset, found.max_timestamp) == (
        3 * records, 0, 3 * records - 1, 1005)
    assert (found.min_timestamp_is_exact, found.min_timestamp) == (is_exact, smallest)
    exact = counted(tmp_path / "t-0", exact=True)
    assert exact.min_timestamp_is_exact and exact.min_timestamp == (1005 if append_time else 1000)


def test_transactions_of_several_producers_that_were_aborted_in_turn(tmp_path: Path) -> None:
    """Each batch belongs to the last aborted transaction of its producer that begins before it."""
    whole = [Batch(n, 0, [Record(n, 5)], base_timestamp=5, max_timestamp=5, producer_id=n % 2 + 3,
                   producer_epoch=0, base_sequence=n, is_transactional=n < 20) for n in range(24)]
    path = write(tmp_path / "t-0", *whole)
    with PartitionLog.open(path) as log:
        planned, = log.ranges(1 << 30)
    for aborted, expected in (
            (((3, 0, 4), (4, 5, 9), (3, 8, 12)), {0, 2, 4, 5, 7, 9, 8, 10, 12}),
            (((3, 8, 12), (4, 5, 9), (3, 0, 4)), {0, 2, 4, 5, 7, 9, 8, 10, 12}),
            (((3, 0, 23),), set(range(0, 20, 2))), (((9, 0, 23),), set()),
            (((3, 1, 1), (4, 2, 2)), set()), (((4, 19, 19),), {19})):
        cut = replace(planned, aborted=aborted)
        rows = [offset for columns in decode_range(cut, DecodeOptions(columns=("offset",)))
                for offset in columns.to_pylists()["offset"]]
        assert rows == [n for n in range(24) if n not in expected]
        assert count_range(cut, DecodeOptions()).records == len(rows)


def test_headers_as_arrow_and_as_numpy(built: list[BuiltLog]) -> None:
    pa = pytest.importorskip("pyarrow")
    for log in built:
        with PartitionLog.open(log.path) as opened:
            headers = list(opened.batches(check_crcs=False))
            chunks = [chunk for planned in opened.ranges(1 << 30)
                      for chunk in batch_headers(planned)]
        assert [row for chunk in chunks for row in chunk.batches.tolist()] == [
            tuple(header)[:-1] for header in headers]
        assert len(headers) == len(log.entries)
        for chunk in chunks:
            arrow = pa.record_batch(chunk)
            arrow.validate(full=True)
            assert arrow.num_rows == len(chunk) and chunk.file.endswith(".log")
            assert tuple(arrow.schema.names) == chunk.batches.dtype.names
            for name in arrow.schema.names:
                column = arrow.column(name)
                if pa.types.is_timestamp(column.type):
                    assert str(column.type) == "timestamp[ms, tz=UTC]"
                    column = column.cast(pa.int64())
                assert column.to_pylist() == chunk.batches[name].tolist()
            # A consumer may take a column out and drop the rest.
            kept = arrow.column("base_offset")
            del arrow
            assert kept.to_pylist() == chunk.batches["base_offset"].tolist()


@pytest.mark.parametrize("cached", [True, False, None])
def test_chunks_of_any_size_are_all_batches(built: list[BuiltLog], cached: bool | None,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones where the file is cached, or small ones that are read ahead."""
    monkeypatch.setattr(batches, "_CHUNK_BYTES", 700)
    if cached is not None:
        monkeypatch.setattr(batches, "_is_cached", lambda *_: cached)
    numbers = []
    for log in built:
        with PartitionLog.open(log.path) as opened:
            chunks = [chunk for planned in opened.ranges(1 << 30)
                      for chunk in batch_headers(planned)]
        offsets = [offset for chunk in chunks for offset in chunk.batches["base_offset"].tolist()]
        numbers.append(len(chunks))
        assert len(offsets) == len(log.entries) and offsets == sorted(offsets)
    assert max(numbers) > 2


def test_nothing_is_cached_beyond_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    with open(tmp_path / "file", "rb") as file:
        assert not batches._is_cached(file.fileno(), 0, 101)
        assert not batches._is_cached(file.fileno(), 0, 0)


def test_damage_is_the_typed_error(tmp_path: Path) -> None:
    whole = [Batch(10 * n, 9, [Record(10 * n + k, 5) for k in range(10)], base_timestamp=5,
                   max_timestamp=5) for n in range(5)]
    path = write(tmp_path / "t-0", *whole)
    file = path / f"{0:020d}.log"
    good = file.read_bytes()
    size = len(v2.encode(whole[0]))
    for at, value in ((size + 8, struct.pack(">i", 3)), (size, struct.pack(">q", -7))):
        file.write_bytes(good[:at] + value + good[at + len(value):])
        with pytest.raises(CorruptDataError):
            counted(path)
        with pytest.raises(CorruptDataError), PartitionLog.open(path) as log:
            for planned in log.ranges(1 << 30):
                list(batch_headers(planned))
        assert counted(path, on_damage="skip").records == 40
    # A record that is damaged is only found by those who read it.
    file.write_bytes(good[:size + 70] + b"\xff" + good[size + 71:])
    assert counted(path).records == 50
    assert counted(path, on_damage="skip").records == 40
