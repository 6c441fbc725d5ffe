"""What is wrong beside the batches changes nothing, and what is wrong in them is never silent."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.arrow import DecodeOptions, decode_range
from seglog.errors import CorruptDataError, CorruptRecordError
from seglog.storage import segment, stream
from seglog.model import MAX_TIMESTAMP
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from tests.oracle import files
from tests.oracle.batch import Batch, Record, encode
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import BuiltLog, LogConfig
from tests.support import damage_files  # noqa: F401  (registers its kinds)
from tests.support.damage import damage, poke
from tests.support.effort import quick_first
from tests.support.reading import collect, project, read_rows

INDEX_KINDS = ["every_index_gone", "index_gone", "index_odd_size", "index_rewritten",
               "index_entry_changed", "index_of_another_segment", "index_huge", "orphan_index",
               "index_is_no_file", "snapshot_damaged", "snapshots_gone", "odd_file_names"]


@pytest.fixture(autouse=True)
def small_logs_use_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "INDEX_BYTES_MIN", 0)
    monkeypatch.setattr(stream, "RANGE_BYTES", 2000)
    monkeypatch.setattr("seglog.storage.partition_log.RANGE_BYTES", 2000)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BuiltLog:
    return build_log(tmp_path_factory.mktemp("source") / "topic-0", 21,
                     Shape(batches=120, magics=(1, 2, 2, 2),
                           config=LogConfig(segment_bytes=30_000, index_interval_bytes=700)))


def copy(source: BuiltLog, tmp_path: Path) -> Path:
    shutil.copytree(source.path, tmp_path / "data" / "topic-0")
    return tmp_path / "data" / "topic-0"


def check(path: Path, built: BuiltLog, rnd: random.Random) -> None:
    """Every way of reading gives the truth of the undamaged log."""
    log = PartitionLog.open(path)
    assert log.log_end_offset == built.log_end_offset
    assert log.last_stable_offset == built.last_stable_offset
    for isolation in ("read_uncommitted", "read_committed"):
        want = project(built.rows(isolation=isolation))
        for threads in (0, 2):
            assert read_rows(log, isolation=isolation, threads=threads) == want  # type: ignore
        rows: list[dict[str, Any]] = []
        for planned in log.ranges(1500, isolation=isolation):  # type: ignore[arg-type]
            collect(decode_range(planned), rows)
        assert rows == want
    for _ in range(15):
        start = rnd.randint(0, built.log_end_offset)
        assert read_rows(log, start, start + 40, columns=["offset"]) == project(
            built.rows(start, start + 40), ["offset"])
        time = rnd.choice(built.entries).max_timestamp + rnd.choice([-1, 0, 1])
        found = log.offset_for_timestamp(max(0, time))
        assert (found and (found.timestamp, found.offset)) == \
            built.offset_for_timestamp(max(0, time))
    highest = log.offset_for_timestamp(MAX_TIMESTAMP)
    assert highest is not None
    assert (highest.timestamp, highest.offset) == built.offset_for_timestamp(highest.timestamp)
    assert built.offset_for_timestamp(highest.timestamp + 1) is None
    assert log.gaps == ()


@pytest.mark.parametrize("kind", INDEX_KINDS)
@pytest.mark.parametrize("seed", quick_first(range(6), 2))
def test_damage_beside_the_batches_changes_nothing(source: BuiltLog, tmp_path: Path, kind: str,
                                                   seed: int) -> None:
    path = copy(source, tmp_path)
    done = damage(path.parent, path.name, kind, seed)
    if done is None or ("txnindex" in done and "removed" in done):
        return  # a transaction index that is gone means no aborts, to Kafka and here
    check(path, source, random.Random(seed))


@pytest.mark.parametrize("seed", quick_first(range(12), 3))
def test_every_entry_of_every_index_may_lie(source: BuiltLog, tmp_path: Path, seed: int) -> None:
    path, rnd = copy(source, tmp_path), random.Random(seed)
    for index in [*path.glob("*.index"), *path.glob("*.timeindex")]:
        width = 8 if index.suffix == ".index" else 12
        data = bytearray(index.read_bytes())
        for at in range(0, len(data), width):
            if rnd.random() < .5:
                data[at + rnd.randrange(width)] ^= 1 << rnd.randrange(8)
        index.write_bytes(data)
    check(path, source, rnd)


def test_an_index_into_a_batch_inside_a_value(tmp_path: Path) -> None:
    """A record's value that is itself a sound batch, and an index that points at it."""
    inner = [encode(Batch(n, 0, [Record(n, 9, b"inner", b"lie")], base_timestamp=9,
                          max_timestamp=9)) for n in range(40)]
    path = tmp_path / "topic-0"
    path.mkdir()
    data, places, offset = b"", [], 0
    for n in range(40):
        batch = encode(Batch(offset, 0, [Record(offset, 5, b"outer", b"x" * 900 + inner[n])],
                             base_timestamp=5, max_timestamp=5))
        places.append((n, len(data) + batch.index(inner[n])))
        data, offset = data + batch, offset + 1
    (path / f"{0:020d}.log").write_bytes(data)
    for lies in (places[20:21], places[20:22], places, places[::3]):
        (path / f"{0:020d}.index").write_bytes(files.encode_offset_index(lies, 0))
        log = PartitionLog.open(path)
        for threads in (0, 2):
            rows = read_rows(log, columns=["offset", "key"], threads=threads)
            assert rows == [{"offset": n, "key": b"outer"} for n in range(40)]
        rows = []
        for planned in log.ranges(3000):
            collect(decode_range(planned, DecodeOptions(columns=("offset", "key"))), rows)
        assert rows == [{"offset": n, "key": b"outer"} for n in range(40)]


def flip(path: Path, at: int) -> None:
    poke(path, at, bytes([path.read_bytes()[at] ^ 0x10]))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_corrupt_batch_ends_a_stream_after_all_before_it(
        source: BuiltLog, tmp_path: Path, threads: int, isolation: Any) -> None:
    for number, entry in enumerate(source.entries[::17]):
        if isolation == "read_committed" and entry.base_offset >= source.last_stable_offset:
            continue  # such a reader does not come so far
        path = copy(source, tmp_path / str(number))
        file = path / f"{entry.segment:020d}.log"
        flip(file, entry.position + entry.size - 1)
        got: list[dict[str, Any]] = []
        with pytest.raises(CorruptDataError) as caught:
            collect(PartitionLog.open(path).to_arrow(isolation=isolation, threads=threads), got)
        assert (caught.value.file, caught.value.position) == (str(file), entry.position)
        assert isinstance(caught.value, CorruptRecordError)
        want = project(source.rows(None, entry.base_offset, isolation=isolation))
        assert got == want
        with pytest.raises(CorruptRecordError):
            list(PartitionLog.open(path).batches())


def test_a_fetch_ends_with_corrupt_bytes_as_a_stream_does(source: BuiltLog, tmp_path: Path) -> None:
    """What it gave there looked like the end of the log."""
    path, last = copy(source, tmp_path), source.entries[-1]
    file = path / f"{last.segment:020d}.log"
    flip(file, last.position + last.size - 1)
    log = PartitionLog.open(path)
    assert log.log_end_offset == last.base_offset
    with pytest.raises(CorruptRecordError) as caught:
        log.fetch(last.base_offset, 1000)
    assert (caught.value.file, caught.value.position) == (str(file), last.position)
    with file.open("r+b") as torn:  # what a writer has not written completely is the end
        torn.truncate(last.position + last.size - 1)
    log.refresh()
    assert log.fetch(last.base_offset, 1000).records == b""


def test_a_failed_pass_fails_again(source: BuiltLog, tmp_path: Path) -> None:
    """The next call must not report the end; a new iteration begins at the start."""
    path = copy(source, tmp_path)
    poke(sorted(path.glob("*.log"))[1], 40, b"\xff\xff")
    for threads in (0, 2):
        stream = PartitionLog.open(path).to_arrow(threads=threads)
        before = 0
        with pytest.raises(CorruptDataError) as first:
            for part in stream:
                before += len(part)
        for _ in range(2):
            with pytest.raises(CorruptDataError) as again:
                next(stream)
            assert str(again.value) == str(first.value)
        assert before > 0 and len(next(iter(stream))) > 0
        stream.close()
        assert next(stream, None) is None


def test_a_torn_last_segment_ends_the_log(source: BuiltLog, tmp_path: Path) -> None:
    for number, cut in enumerate([1, 16, 17, 18, 30, 60, 61, 62, -1]):
        path, last = copy(source, tmp_path / str(number)), source.entries[-1]
        os.truncate(path / f"{last.segment:020d}.log", last.position + cut % last.size)
        log = PartitionLog.open(path)
        assert log.log_end_offset == source.entries[-2].last_offset + 1
        assert read_rows(log) == project(source.rows(None, log.log_end_offset))
        assert log.gaps == ()


def test_zeros_behind_the_last_segment_end_the_log(source: BuiltLog, tmp_path: Path) -> None:
    for zeros in (1, 17, 18, 100, 70_000):
        path = copy(source, tmp_path / str(zeros))
        with open(path / f"{source.segments[-1]:020d}.log", "ab") as file:
            file.write(bytes(zeros))
        check(path, source, random.Random(zeros))


@pytest.mark.parametrize("threads", [0, 2])
def test_a_torn_segment_inside_the_log_is_a_gap_that_is_told(
        source: BuiltLog, tmp_path: Path, threads: int) -> None:
    heard: list[LogGap] = []
    path, middle = copy(source, tmp_path), source.segments[1]
    inside = [e for e in source.entries if e.segment == middle]
    cut = inside[len(inside) // 2]
    file = path / f"{middle:020d}.log"
    os.truncate(file, cut.position + 40)
    log = PartitionLog.open(path, on_gap=heard.append)
    lost = range(cut.base_offset, inside[-1].last_offset + 1)
    want = project(row for row in source.rows() if row["offset"] not in lost)
    assert read_rows(log, threads=threads) == want
    assert heard == [LogGap("torn_tail", str(file), cut.position, 40)] == list(log.gaps)
    assert read_rows(log) == want and len(heard) == 1
    assert [b.position for b in log.batches()] and len(heard) == 1
    # Zeros instead of the missing bytes are not batches either.
    with open(file, "r+b") as opened:
        opened.truncate(cut.position)
        opened.truncate(cut.position + 900)
    log = PartitionLog.open(path)
    assert read_rows(log, threads=threads) == want
    assert [gap.kind for gap in log.gaps] == ["zero_tail"]


def test_missing_segments(source: BuiltLog, tmp_path: Path) -> None:
    for number, gone in enumerate([[0], [1], [0, 1], [1, 2], [-1]]):
        path = copy(source, tmp_path / str(number))
        bases = {source.segments[n] for n in gone}
        for base in bases:
            for file in path.glob(f"{base:020d}.*"):
                file.unlink()
        rows = [row for e in source.entries if e.segment not in bases for row in e.rows
                if not row["is_control"]]
        log = PartitionLog.open(path)
        assert read_rows(log) == project(rows)
        assert log.log_start_offset == min(set(source.segments) - bases)


def swap(path: Path, base: int, suffix: str, *, keep: bool = False) -> None:
    """Renames (or copies) a segment's files as compaction does on its way."""
    for file in path.glob(f"{base:020d}.*"):
        if file.suffix in (".log", ".index", ".timeindex", ".txnindex"):
            if keep:
                shutil.copyfile(file, f"{file}{suffix}")
            else:
                file.rename(f"{file}{suffix}")


def test_a_completed_swap_is_the_truth(source: BuiltLog, tmp_path: Path) -> None:
    path = copy(source, tmp_path)
    one, two = source.segments[1], source.segments[2]
    merged = b"".join((path / f"{base:020d}.log").read_bytes() for base in (one, two))
    stale = (path / f"{one:020d}.log").read_bytes()
    swap(path, one, ".swap", keep=True)
    (path / f"{one:020d}.log.swap").write_bytes(merged)
    for old in (f"{one:020d}.log", f"{two:020d}.log"):
        flip(path / old, 30)  # the old ones are not to be read
    want = project(source.rows())
    log = PartitionLog.open(path)
    assert [s.base_offset for s in log.segments] == [b for b in source.segments if b != two]
    assert read_rows(log) == want and read_rows(log, threads=2) == want
    assert log.gaps == ()
    # With a .cleaned of the same number the replacement was not complete: the old ones count.
    swap(path, two, ".cleaned", keep=True)
    (path / f"{one:020d}.log.swap").rename(path / f"{two + 1:020d}.log.swap")
    (path / f"{one:020d}.log").write_bytes(stale)
    flip(path / f"{two:020d}.log", 30)
    log = PartitionLog.open(path)
    assert [s.base_offset for s in log.segments] == source.segments
    assert read_rows(log) == want


def test_deleted_and_cleaned_leftovers_are_ignored(source: BuiltLog, tmp_path: Path) -> None:
    path = copy(source, tmp_path)
    swap(path, source.segments[1], ".cleaned", keep=True)
    swap(path, source.segments[2], ".deleted", keep=True)
    check(path, source, random.Random(1))


def test_overlapping_segments_give_each_offset_once(source: BuiltLog, tmp_path: Path) -> None:
    """A merged segment beside an old one that was not deleted: the first one's records count."""
    path = copy(source, tmp_path)
    one, two = source.segments[1], source.segments[2]
    with open(path / f"{one:020d}.log", "ab") as file:
        file.write((path / f"{two:020d}.log").read_bytes())
    log = PartitionLog.open(path)
    want = project(source.rows())
    assert read_rows(log) == want and read_rows(log, threads=2) == want
    rows: list[dict[str, Any]] = []
    for planned in log.ranges(2000):
        collect(decode_range(planned), rows)
    assert rows == want
    assert read_rows(log, two + 1) == project(source.rows(two + 1))
    assert [(gap.kind, Path(gap.file).name) for gap in log.gaps] == [
        ("overlap", f"{one:020d}.log")]
    # The merged segment goes beyond an end among the records of the other.
    for end in (two - 1, two, two + 1, source.log_end_offset - 1):
        want = project(source.rows(None, end))
        assert read_rows(log, None, end) == read_rows(log, None, end, on_damage="skip") == want
        rows = []
        for planned in log.ranges(2000, None, end):
            collect(decode_range(planned), rows)
        assert rows == want
        assert all(batch.base_offset < end for batch in log.batches(None, end))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("number", [1, -1])
def test_a_length_beyond_the_file_is_no_end_when_batches_follow(
        source: BuiltLog, tmp_path: Path, threads: int, number: int) -> None:
    """The index knows better than a batch that claims all bytes to the end, and more."""
    path = copy(source, tmp_path)
    inside = [e for e in source.entries if e.segment == source.segments[number]]
    bad = inside[len(inside) // 3]
    file = path / f"{bad.segment:020d}.log"
    poke(file, bad.position + 8, (1 << 24).to_bytes(4, "big"))
    log = PartitionLog.open(path)
    assert log.log_end_offset == source.log_end_offset
    got: list[dict[str, Any]] = []
    with pytest.raises(CorruptRecordError) as caught:
        collect(log.to_arrow(threads=threads), got)
    assert (caught.value.file, caught.value.position) == (str(file), bad.position)
    assert got == project(source.rows(None, bad.base_offset))
    with pytest.raises(CorruptRecordError):
        list(log.batches())
    rows: list[dict[str, Any]] = []
    with pytest.raises(CorruptRecordError):
        for planned in log.ranges(1 << 30):
            collect(decode_range(planned), rows)
    assert rows == got


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("offset", [-1, 0, 1 << 20, 1 << 40])
def test_a_damaged_base_offset_is_an_error(source: BuiltLog, tmp_path: Path, threads: int,
                                           offset: int) -> None:
    """No CRC covers it. The next batch reveals one whose offset jumps ahead."""
    for number, entry in enumerate(source.entries[5:-1:23]):
        if entry.magic < 2:
            continue
        path = copy(source, tmp_path / str(number))
        poke(path / f"{entry.segment:020d}.log", entry.position,
             offset.to_bytes(8, "big", signed=True))
        got: list[dict[str, Any]] = []
        with pytest.raises(CorruptRecordError):
            collect(PartitionLog.open(path).to_arrow(threads=threads), got)
        before = project(source.rows(None, entry.base_offset))
        assert got[:len(before)] == before
        assert all(row["offset"] >= offset > 0 for row in got[len(before):])
