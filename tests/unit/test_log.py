"""PartitionLog on generated logs: offsets, bounds, both isolation levels, timestamps, fetches."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.arrow import DecodeOptions, decode_range
from seglog.errors import KafkaStorageError, MalformedCheckpointError, OffsetOutOfRangeError
from seglog.storage import place, segment
from seglog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from seglog.storage.partition_log import PartitionLog
from tests.oracle.builder import LogBuilder, Shape, build_log
from tests.oracle.log import entries
from tests.oracle.writer import BuiltLog, LogConfig, placed_at
from tests.support.reading import ALL_COLUMNS, collect, project, read_rows

SHAPES = {
    "v2": Shape(batches=90),
    "mixed": Shape(batches=90, magics=(0, 1, 2)),
    "old": Shape(batches=60, magics=(0, 1), epochs=False),
    "crashed": Shape(batches=70, clean=False, preallocated=True),
    "one segment": Shape(batches=120, config=LogConfig(segment_bytes=1 << 24)),
    "moved": Shape(batches=60, base_offset=1 << 40),
}
ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.fixture(params=[0, segment.INDEX_BYTES_MIN], ids=["indexed", "walked"], autouse=True)
def small_logs_use_indexes(request: pytest.FixtureRequest,
                           monkeypatch: pytest.MonkeyPatch) -> None:
    """These logs are so small that positions in them are walked to; both ways must agree."""
    monkeypatch.setattr(segment, "INDEX_BYTES_MIN", request.param)


@pytest.fixture(params=list(SHAPES))
def built(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltLog:
    return build_log(tmp_path / "topic-0", list(SHAPES).index(request.param) + 7,
                     SHAPES[request.param])


def read_ranges(log: PartitionLog, target: int, *args: Any, isolation: Any = "read_uncommitted",
                columns: tuple[str, ...] = ALL_COLUMNS) -> list[dict[str, Any]]:
    """What Spark does: ranges, shipped, each decoded alone."""
    rows: list[dict[str, Any]] = []
    for planned in log.ranges(target, *args, isolation=isolation):
        shipped = pickle.loads(pickle.dumps(planned))
        collect(decode_range(shipped, DecodeOptions(columns=columns)), rows)
    return rows


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_every_way_of_reading_gives_every_record(built: BuiltLog, isolation: Any) -> None:
    log = PartitionLog.open(built.path)
    want = project(built.rows(isolation=isolation), ALL_COLUMNS)
    for threads in (0, 1, 3):
        assert read_rows(log, columns=ALL_COLUMNS, isolation=isolation, threads=threads) == want
    for target in (1, 3000, 1 << 40):
        assert read_ranges(log, target, isolation=isolation) == want
    assert log.gaps == ()


def test_facts(built: BuiltLog) -> None:
    log = PartitionLog.open(built.path)
    assert log.log_start_offset == built.log_start_offset
    assert log.log_end_offset == built.log_end_offset
    assert log.last_stable_offset == built.last_stable_offset
    assert {t.producer_id: t.first_offset for t in log.open_transactions} == \
        built.open_transactions
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs] == built.leader_epochs
    assert [s.base_offset for s in log.segments] == built.segments
    assert log.topic_id == "Sl08ZXU2QW6uF5hIoSzc8w"
    assert str(log.topic_partition) == "topic-0"


def test_batches_are_the_entries_of_the_files(built: BuiltLog) -> None:
    log = PartitionLog.open(built.path)
    found = [(int(Path(b.file).name[:20]), b.position, b.size, b.magic, b.last_offset,
              b.max_timestamp) for b in log.batches()]
    assert found == [(e.segment, e.position, e.size, e.magic, e.last_offset, e.max_timestamp)
                     for e in built.entries]
    middle = built.entries[len(built.entries) // 2]
    found = [b.position for b in log.batches(middle.base_offset, middle.last_offset + 1)]
    assert found == [middle.position]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_bounds(built: BuiltLog, isolation: Any) -> None:
    """Any start and any end, also inside batches, in gaps, and between segments."""
    log, rnd = PartitionLog.open(built.path), random.Random(3)
    stable = log.last_stable_offset if isolation == "read_committed" else log.log_end_offset
    for _ in range(40):
        start = rnd.choice([rnd.choice(built.entries).base_offset, rnd.choice(built.segments),
                            rnd.randint(built.log_start_offset, built.log_end_offset)])
        end = rnd.choice([None, start, start + rnd.randint(0, 300), built.log_end_offset + 5])
        want = project(built.rows(start, stable if end is None else end, isolation=isolation))
        assert read_rows(log, start, end, isolation=isolation) == want, (start, end)
        if rnd.random() < .2:
            assert read_rows(log, start, end, isolation=isolation, threads=2) == want
            assert read_ranges(log, 2000, start, end, isolation=isolation,
                               columns=("offset",)) == project(want, ["offset"])
    for outside in (built.log_start_offset - 1, built.log_end_offset + 1):
        with pytest.raises(OffsetOutOfRangeError):
            log.to_arrow(outside)
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(outside, 100)


def test_fetch(built: BuiltLog) -> None:
    log, rnd = PartitionLog.open(built.path), random.Random(4)
    data = {e.segment: (built.path / f"{e.segment:020d}.log").read_bytes() for e in built.entries}
    for _ in range(60):
        start = rnd.randint(built.log_start_offset, built.log_end_offset)
        most = rnd.choice([0, 1, 500, 3000, 10**9])
        found, first = log.fetch(start, most), placed_at(built, start)
        if first is None or start == built.log_end_offset:
            assert found.records == b"" and found.position == -1
            continue
        assert (found.segment_base_offset, found.position) == (first.segment, first.position)
        assert data[first.segment][first.position:][:len(found.records)] == found.records
        inside = [e for e in built.entries if e.segment == first.segment
                  and first.position <= e.position < first.position + len(found.records)]
        assert sum(e.size for e in inside) == len(found.records)
        assert found.next_offset == inside[-1].last_offset + 1
        assert len(found.records) <= max(most, first.size)
        after = [e for e in built.entries if e.segment == first.segment
                 and e.position == first.position + len(found.records)]
        assert not after or len(found.records) + after[0].size > most


def test_committed_fetches_carry_their_aborted_transactions(built: BuiltLog) -> None:
    log, offset, got = PartitionLog.open(built.path), built.log_start_offset, []
    while (found := log.fetch(offset, 4000, "read_committed")).records:
        aborted = found.aborted_transactions
        assert aborted is not None and found.last_stable_offset == built.last_stable_offset
        for entry in entries(found.records + bytes(18)):
            got += [row["offset"] for row in entry.rows()
                    if row["offset"] >= offset and not row["is_control"] and not (
                        row["is_transactional"] and any(
                            row["producer_id"] == t.producer_id
                            and t.first_offset <= row["offset"] <= t.last_offset
                            for t in aborted))]
        offset = found.next_offset
    assert got == [row["offset"] for row in built.rows(isolation="read_committed")]


def test_timestamps(built: BuiltLog) -> None:
    log, rnd = PartitionLog.open(built.path), random.Random(5)
    times = [row["timestamp"] for e in built.entries for row in e.rows] or [0]
    for target in [0, max(times), max(times) + 1,
                   *(max(0, rnd.choice(times) + rnd.choice([-1, 0, 1])) for _ in range(60))]:
        found = log.offset_for_timestamp(target)
        assert (found and (found.timestamp, found.offset)) == built.offset_for_timestamp(target)
    assert log.offset_for_timestamp(LATEST_TIMESTAMP).offset == built.log_end_offset
    assert log.offset_for_timestamp(EARLIEST_TIMESTAMP).offset == built.log_start_offset
    highest = log.offset_for_timestamp(MAX_TIMESTAMP)
    if max(times) >= 0:
        assert (highest.timestamp, highest.offset) == built.offset_for_timestamp(max(times))
    else:
        assert highest is None
    with pytest.raises(ValueError):
        log.offset_for_timestamp(-9)


def test_translate_and_read_next_offset(built: BuiltLog) -> None:
    log = PartitionLog.open(built.path)
    for base in built.segments:
        inside = [e for e in built.entries if e.segment == base]
        view = log.segments.floor(base)
        assert view is not None and view.base_offset == base
        want = inside[-1].last_offset + 1 if inside else base
        if SHAPES["crashed"].preallocated is False or base != built.segments[-1]:
            assert view.read_next_offset() == want
        for entry in inside:
            for offset in {entry.base_offset, entry.last_offset}:
                found = view.translate_offset(offset)
                assert found is not None and found.position == entry.position


def test_log_start_offset_of_the_data_directory(tmp_path: Path) -> None:
    built = build_log(tmp_path / "topic-0", 11, Shape(batches=60))
    middle = built.entries[len(built.entries) // 2]
    start = middle.base_offset + (middle.last_offset > middle.base_offset)
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n2\ntopic 0 {start}\ntopic 1 9\n")
    log = PartitionLog.open(built.path)
    assert log.log_start_offset == start
    assert read_rows(log) == project(built.rows(start))
    assert PartitionLog.open(built.path, log_start_offset=0).log_start_offset == 0
    found = log.offset_for_timestamp(0)
    assert found is not None and found.offset >= start
    # Kafka deletes every segment of a log that ends below its start, and continues there.
    checkpoint.write_text(f"0\n1\ntopic 0 {built.log_end_offset + 100}\n")
    log = PartitionLog.open(built.path)
    assert (log.log_start_offset, log.log_end_offset) == (built.log_end_offset + 100,) * 2
    assert read_rows(log) == [] and log.fetch(log.log_end_offset, 10).records == b""
    checkpoint.write_text("nonsense\n")
    with pytest.raises(MalformedCheckpointError):
        PartitionLog.open(built.path)
    assert PartitionLog.open(built.path, log_start_offset=0).log_end_offset == \
        built.log_end_offset


def test_empty_and_missing_directories(tmp_path: Path) -> None:
    (tmp_path / "empty-0").mkdir()
    log = PartitionLog.open(tmp_path / "empty-0")
    assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 0, 0)
    assert read_rows(log) == [] and list(log.batches()) == [] and len(log.segments) == 0
    assert log.fetch(0, 100).records == b"" and log.topic_id is None
    assert log.offset_for_timestamp(0) is None and log.offset_for_timestamp(-3) is None
    (tmp_path / "file-0").write_text("no directory")
    for name in ("missing-0", "file-0"):
        with pytest.raises(KafkaStorageError):
            PartitionLog.open(tmp_path / name)


def test_a_copy_under_any_name_is_read(tmp_path: Path) -> None:
    built = build_log(tmp_path / "copy", 12, Shape(batches=20))
    log = seglog.PartitionLog.open(str(built.path))
    assert log.topic_partition is None
    assert read_rows(log) == project(built.rows())


def test_wrong_arguments(built: BuiltLog) -> None:
    log = PartitionLog.open(built.path)
    with pytest.raises(ValueError, match="isolation"):
        log.to_arrow(isolation="committed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no column"):
        log.to_arrow(columns=["offset", "nothing"])
    with pytest.raises(ValueError):
        log.fetch(0, -1)
    with pytest.raises(ValueError):
        log.ranges(0)
    with pytest.raises(ValueError):
        log.to_arrow(threads=-1)
    with pytest.raises(ValueError):
        PartitionLog.open(built.path, read_only=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_many_shapes(tmp_path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    shape = Shape(batches=rnd.randint(1, 120), magics=rnd.choice([(2,), (0, 1, 2), (1, 2)]),
                  base_offset=rnd.choice([0, 5, 1 << 33]), clean=rnd.random() < .5,
                  preallocated=rnd.random() < .5,
                  config=LogConfig(segment_bytes=rnd.choice([1500, 8000, 1 << 20]),
                                   index_interval_bytes=rnd.choice([0, 512, 5000])))
    built = LogBuilder(tmp_path / "topic-0", seed, shape).build()
    log = PartitionLog.open(built.path)
    for isolation in ISOLATIONS:
        want = project(built.rows(isolation=isolation))
        assert read_rows(log, isolation=isolation) == want
        assert read_ranges(log, 1000, isolation=isolation,
                           columns=("offset", "value")) == project(want, ["offset", "value"])


def test_the_first_segment_comes_while_the_log_is_opened(tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker makes the directory, and then the files."""
    source = build_log(tmp_path / "source-0", 7, SHAPES["one segment"])
    path = tmp_path / "topic-0"
    path.mkdir()

    def identify(where: str) -> Any:
        for file in Path(source.path).iterdir():
            (path / file.name).write_bytes(file.read_bytes())
        return place.identify(where)

    monkeypatch.setattr("seglog.storage.partition_log.identify", identify)
    log = PartitionLog.open(path)
    assert log.log_end_offset == PartitionLog.open(source.path).log_end_offset > 0


@pytest.mark.parametrize("names", [
    [], ["partition.metadata.tmp"], ["partition.metadata"], ["leader-epoch-checkpoint.tmp"],
    ["leader-epoch-checkpoint"], ["leader-epoch-checkpoint", "partition.metadata"],
    ["leader-epoch-checkpoint", "00000000000000000000.index"]])
@pytest.mark.parametrize("others", [False, True])
def test_a_log_that_has_no_segment_yet(tmp_path: Path, names: list[str], others: bool) -> None:
    """At each moment of its creation a log is empty, alone or beside logs that have records."""
    if others:
        build_log(tmp_path / "topic-1", 7, SHAPES["one segment"])
    path = tmp_path / "topic-0"
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"0\n0\n" if "epoch" in name else b"")
    with PartitionLog.open(path) as log:
        assert log.log_end_offset == 0
        assert read_rows(log) == []
    foreign = tmp_path / "topic-2"
    foreign.mkdir()
    (foreign / "notes.txt").touch()
    if others:  # elsewhere nothing says that this is a mistake
        with pytest.raises(KafkaStorageError, match="no partition directory.*notes.txt"):
            PartitionLog.open(foreign)
