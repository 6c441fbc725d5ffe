"""Random logs, random questions: seglog's answers are the oracle's."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seglog
from seglog.arrow import DecodeOptions, decode_range
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import BuiltLog, LogConfig, placed_at
from tests.support import reading
from tests.support.effort import examples

SHAPES = (
    Shape(batches=40), Shape(batches=40, magics=(0, 1, 2)), Shape(batches=30, magics=(0,)),
    Shape(batches=30, magics=(1,)), Shape(batches=40, clean=False, preallocated=True),
    Shape(batches=40, base_offset=2**40, codecs=(0, 4)), Shape(batches=0),
    Shape(batches=60, config=LogConfig(segment_bytes=1500, index_interval_bytes=0)),
)
ISOLATIONS = ("read_uncommitted", "read_committed")
MANY = settings(max_examples=examples(60),
                suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def built() -> Iterator[list[BuiltLog]]:
    """A few logs of every shape; every example asks one of them."""
    with tempfile.TemporaryDirectory() as folder:
        yield [build_log(Path(folder) / f"built-{number}", seed * 1000 + number, shape)
               for number, shape in enumerate(SHAPES * 2) for seed in [number // len(SHAPES)]]


def _some_log(data: st.DataObject, built: list[BuiltLog]) -> BuiltLog:
    return built[data.draw(st.integers(0, len(built) - 1), label="log")]


def _some_offset(data: st.DataObject, log: BuiltLog, label: str) -> int | None:
    """None, a boundary of an entry, or any offset at all around the log."""
    edges = [edge + step for entry in log.entries[::7]
             for edge in (entry.base_offset, entry.last_offset) for step in (0, 1)]
    return data.draw(st.one_of(
        st.none(), st.sampled_from(edges or [0]),
        st.integers(log.log_start_offset, log.log_end_offset)).filter(
            lambda offset: offset is None
            or log.log_start_offset <= offset <= log.log_end_offset), label=label)


@MANY
@given(data=st.data())
def test_rows_are_the_oracles(built: list[BuiltLog], data: st.DataObject) -> None:
    log = _some_log(data, built)
    start, end = _some_offset(data, log, "start"), _some_offset(data, log, "end")
    isolation = data.draw(st.sampled_from(ISOLATIONS), label="isolation")
    control = data.draw(st.booleans(), label="control")
    columns = data.draw(st.lists(st.sampled_from(reading.ALL_COLUMNS), unique=True, min_size=1),
                        label="columns")
    options = {
        "threads": data.draw(st.sampled_from([0, 1, 2, 3]), label="threads"),
        "batch_rows": data.draw(st.sampled_from([1, 3, 50, 65536]), label="rows"),
        "batch_bytes": data.draw(st.sampled_from([1, 500, 1 << 26]), label="bytes"),
    }
    with seglog.PartitionLog.open(log.path) as opened:
        assert (opened.log_start_offset, opened.log_end_offset) == \
            (log.log_start_offset, log.log_end_offset)
        assert opened.last_stable_offset == log.last_stable_offset
        rows, sizes = [], []
        for batch in opened.to_arrow(start, end, columns, isolation, include_control=control,
                                     **options):
            sizes.append(batch.num_rows)
            rows += reading.rows_of(batch)
    expected = log.rows(start, end, isolation=isolation, control=control)
    assert rows == reading.project(expected, columns)
    assert all(0 < size <= options["batch_rows"] for size in sizes)


@MANY
@given(data=st.data())
def test_timestamps_find_what_kafka_finds(built: list[BuiltLog], data: st.DataObject) -> None:
    log = _some_log(data, built)
    stamps = [row["timestamp"] for entry in log.entries[::3] for row in entry.rows[:2]]
    near = [max(0, stamp + step) for stamp in stamps for step in (-1, 0, 1)]
    target = data.draw(st.one_of(st.sampled_from(near or [0]), st.integers(0, 2**62)),
                       label="timestamp")
    with seglog.PartitionLog.open(log.path) as opened:
        found = opened.offset_for_timestamp(target)
    assert (found and (found.timestamp, found.offset)) == log.offset_for_timestamp(target)


@MANY
@given(data=st.data())
def test_ranges_cover_the_log_once(built: list[BuiltLog], data: st.DataObject) -> None:
    """The rows of all ranges, one after the other, are the rows of the whole."""
    log = _some_log(data, built)
    start, end = _some_offset(data, log, "start"), _some_offset(data, log, "end")
    target = data.draw(st.sampled_from([1, 300, 5000, 1 << 30]), label="target")
    isolation = data.draw(st.sampled_from(ISOLATIONS), label="isolation")
    with seglog.PartitionLog.open(log.path) as opened:
        rows = []
        for part in opened.ranges(target, start, end, isolation):
            rows += reading.collect(decode_range(
                pickle.loads(pickle.dumps(part)), DecodeOptions(columns=reading.ALL_COLUMNS)))
    assert rows == log.rows(start, end, isolation=isolation)


@MANY
@given(data=st.data())
def test_a_fetch_begins_with_the_batch_of_its_offset(built: list[BuiltLog],
                                                     data: st.DataObject) -> None:
    log = _some_log(data, built)
    if not log.entries:
        return
    offset = data.draw(st.integers(log.log_start_offset, log.log_end_offset - 1), label="offset")
    most = data.draw(st.sampled_from([0, 1, 700, 10**6]), label="bytes")
    entry = placed_at(log, offset)
    assert entry is not None
    with seglog.PartitionLog.open(log.path) as opened:
        fetched = opened.fetch(offset, most)
    raw = (log.path / f"{entry.segment:020d}.log").read_bytes()[entry.position:]
    assert raw.startswith(bytes(fetched.records)) and len(fetched.records) >= min(most, entry.size)
