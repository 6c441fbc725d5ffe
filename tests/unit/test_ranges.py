"""Ranges of a log at their edges: sizes, cuts, and what makes an end an error."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from seglog.arrow import DecodeOptions, decode_range
from seglog.errors import (
    CorruptRecordError, IllegalArgumentError, KafkaStorageError, OffsetOutOfRangeError,
)
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap, LogRange, check_torn, pack, upper_offset
from tests.oracle.batch import Batch, Record, encode
from tests.oracle.builder import BuiltLog, Shape, build_log
from tests.oracle.files import encode_offset_index
from tests.support.reading import project, read_rows


@dataclass(frozen=True)
class Piece:
    """A thing with a size."""

    size: int


@pytest.mark.parametrize(("sizes", "target", "expected"), [
    ([], 10, []), ([3, 3, 4], 10, [[3, 3, 4]]), ([3, 3, 5], 10, [[3, 3], [5]]),
    ([20, 1], 10, [[20], [1]]), ([1, 20], 10, [[1], [20]]), ([0, 0], 0, [[0, 0]]),
    ([5, 5, 5, 5], 10, [[5, 5], [5, 5]]), ([5, 6, 5], 10, [[5], [6], [5]]),
    ([1, 1], 1, [[1], [1]])])
def test_pieces_are_grouped_up_to_the_target(sizes: list[int], target: int,
                                             expected: list[list[int]]) -> None:
    groups = list(pack([Piece(size) for size in sizes], target))
    assert [[one.size for one in group] for group in groups] == expected


def a_range(start: int, end: int, *, segment_end: int = 100, sound_end: int = 80) -> LogRange:
    return LogRange("f", 0, start, end, 0, None, segment_end, sound_end)


def test_a_range_knows_its_size_and_whether_it_ends_the_segment() -> None:
    assert a_range(10, 30).size == 20
    assert [a_range(0, end).is_segment_end for end in (99, 100)] == [False, True]


def test_an_end_is_an_error_only_before_sound_batches() -> None:
    for position in (80, 81):
        check_torn(a_range(0, 100), position)
    with pytest.raises(CorruptRecordError, match="up to byte 80") as error:
        check_torn(a_range(0, 100), 79)
    assert (error.value.file, error.value.position, error.value.expected, error.value.found,
            error.value.code) == ("f", 79, 80, 79, "batch_length")


@pytest.mark.parametrize(("gap", "text"), [
    (LogGap("io", "f", 5, 7), "f: skipped 7 bytes at byte 5: io"),
    (LogGap("io", "f", 5, 7, cause="why"), "f: skipped 7 bytes at byte 5: why"),
    (LogGap("io", "f", 5, 7, first_offset=1), "f: skipped 7 bytes at byte 5, offsets 1 to ?: io"),
    (LogGap("io", "f", 5, 7, last_offset=0), "f: skipped 7 bytes at byte 5, offsets ? to 0: io"),
    (LogGap("io", "f", 5, 7, first_offset=1, last_offset=1, records=0),
     "f: skipped 7 bytes at byte 5, offsets 1 to 1 (up to 0 records): io")])
def test_a_gap_says_what_it_lost(gap: LogGap, text: str) -> None:
    assert str(gap) == text


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltLog:
    """A log of some segments."""
    return build_log(tmp_path_factory.mktemp("ranges") / "t-0", 5, Shape(batches=120))


@pytest.mark.parametrize("target", [1, 500, 4096, 1 << 62])
def test_ranges_are_the_segments_in_pieces_near_the_target(built: BuiltLog, target: int) -> None:
    with PartitionLog.open(built.path) as log:
        ranges, segments = log.ranges(target), list(log.segments)
    for segment in segments:
        own = [one for one in ranges if one.base_offset == segment.base_offset]
        assert not segment.size or own[0].start == 0 and own[-1].end == segment.size
        assert [one.end for one in own[:-1]] == [one.start for one in own[1:]]
        # A piece is cut after the target; a rest of less than half of it stays with the last one.
        assert all(one.size >= target for one in own[:-1])
        assert all(one.segment_end == segment.size for one in own)
        if len(own) > 1:
            assert own[-1].size >= target // 2 or own[-1].start + target > own[-1].end
    assert len(ranges) == len({one.base_offset for one in ranges}) or target < 1 << 62


def test_an_end_offset_ends_the_ranges_in_its_batch(built: BuiltLog) -> None:
    with PartitionLog.open(built.path) as log:
        for batch in list(log.batches())[::7]:
            ranges = log.ranges(1 << 62, end_offset=batch.base_offset)
            ends = [one.end for one in ranges if one.file == batch.file]
            # The whole batch that holds the end, because one of an old format begins below it.
            assert not ends or ends[-1] <= batch.position + batch.size
            assert all(one.base_offset < batch.base_offset for one in ranges)


def test_a_reader_that_skips_damage_gets_an_overlap_once(built: BuiltLog, tmp_path: Path) -> None:
    """A merged segment beside the one that it replaced: its records count."""
    path = Path(shutil.copytree(built.path, tmp_path / "t-0"))
    one, two, three = built.segments[1:4]
    with open(path / f"{one:020d}.log", "ab") as file:
        file.write((path / f"{two:020d}.log").read_bytes())
    gaps: list[LogGap] = []
    with PartitionLog.open(path) as log:
        rows = read_rows(log, on_damage="skip", on_gap=gaps.append)
        ranges = log.ranges(1 << 62, on_damage="skip")
        late = log.ranges(1 << 62, two + 1, on_damage="skip")
    assert rows == project(built.rows())
    assert [(gap.kind, Path(gap.file).name, gap.next_offset) for gap in gaps] == [
        ("overlap", f"{one:020d}.log", three)]
    found = {one.base_offset: (one.start_offset, one.upper_offset) for one in ranges}
    first = built.segments[0]
    assert found[first] == (first, one) and found[one] == (first, three)
    assert found[two] == (three, three) and found[three][0] == three
    # What begins inside the second one may lie in the merged one, and only there.
    assert [one.base_offset for one in late][:2] == [one, two]


def test_an_overlap_leaves_no_transaction_in_doubt(tmp_path: Path) -> None:
    """What a merged segment holds after the next base offset is no damage, so no marker is lost."""
    def written(first: int, *offsets: int) -> None:
        (tmp_path / f"{first:020d}.log").write_bytes(b"".join(
            encode(Batch(offset, 0, [Record(offset, 5)], base_timestamp=5, max_timestamp=5,
                         producer_id=7 if offset == 1 else -1, producer_epoch=0,
                         base_sequence=0, is_transactional=offset == 1)) for offset in offsets))

    written(0, 0, 1, 2, 3)
    written(2, 2, 3)
    written(4, 4)
    with PartitionLog.open(tmp_path) as log:
        stream = log.to_arrow(isolation="read_committed", on_damage="skip")
        assert [row for columns in stream for row in columns.to_pylists()["offset"]] == [0]
        assert log.end_offset("read_committed", "skip") == log.last_stable_offset == 1
        assert [gap.kind for gap in log.gaps] == ["overlap"]


def test_a_segment_that_cannot_be_opened_is_a_gap(built: BuiltLog, tmp_path: Path) -> None:
    path = Path(shutil.copytree(built.path, tmp_path / "t-0"))
    one, two = built.segments[1:3]
    gaps: list[LogGap] = []
    with PartitionLog.open(path) as log:
        (path / f"{one:020d}.log").unlink()
        ranges = log.ranges(1 << 62, on_damage="skip", on_gap=gaps.append)
    gap, = gaps
    assert (Path(gap.file).name, gap.position, gap.size, gap.next_offset, gap.first_offset,
            gap.last_offset) == (f"{one:020d}.log", 0, 0, two, one, two - 1)
    assert {planned.base_offset for planned in ranges} == {*built.segments} - {one}


def test_only_the_segment_that_holds_the_end_is_bounded(built: BuiltLog) -> None:
    """A whole segment has no bound: a damaged offset in it must not look like the end."""
    one, two = built.segments[1:3]
    with PartitionLog.open(built.path) as log:
        bounds = {end: {planned.base_offset: planned.end_offset
                        for planned in log.ranges(1 << 62, end_offset=end)}
                  for end in (two - 1, two, two + 1)}
    assert bounds[two - 1][one] == two - 1
    assert bounds[two][one] is None and two not in bounds[two]
    assert bounds[two + 1][one] is None and bounds[two + 1][two] == two + 1


def test_a_start_offset_begins_at_its_batch(built: BuiltLog) -> None:
    with PartitionLog.open(built.path) as log:
        inside = [batch for batch in log.batches() if batch.position][::9]
        for batch in inside:
            planned = log.ranges(1 << 62, batch.last_offset)[0]
            assert (planned.file, planned.start) == (batch.file, batch.position)


def test_the_first_segment_may_hold_the_start_offset_too(built: BuiltLog, tmp_path: Path) -> None:
    path = Path(shutil.copytree(built.path, tmp_path / "t-0"))
    first, one = built.segments[:2]
    with open(path / f"{first:020d}.log", "ab") as file:
        file.write((path / f"{one:020d}.log").read_bytes())
    with PartitionLog.open(path) as log:
        for options in ({}, {"on_damage": "skip"}):
            ranges = log.ranges(1 << 62, one + 1, **options)  # type: ignore[arg-type]
            bases = [planned.base_offset for planned in ranges]
            assert bases[0] == first and bases == sorted(bases)
        assert read_rows(log, one + 1) == project(built.rows(one + 1))


@pytest.mark.parametrize(("count", "expected"), [
    (1, [1]), (4, [4]), (5, [5]), (6, [4, 2]), (7, [4, 3]), (8, [4, 4]), (9, [4, 5]),
    (10, [4, 4, 2])])
def test_a_rest_of_half_the_target_is_a_range(tmp_path: Path, count: int, expected: list[int]
                                              ) -> None:
    batches = [encode(Batch(n, 0, [Record(n, 5, b"k", b"v")], base_timestamp=5, max_timestamp=5))
               for n in range(count)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    size = len(batches[0])
    with PartitionLog.open(tmp_path) as log:
        assert [planned.size // size for planned in log.ranges(4 * size)] == expected


def test_a_read_that_skips_damage_divides_anywhere_but_not_finely(built: BuiltLog) -> None:
    """Each range surveys its whole segment."""
    with PartitionLog.open(built.path) as log:
        for target, wanted in ((1, 1024), (1024, 1024), (1025, 1025)):
            for planned in log.ranges(target, on_damage="skip"):
                assert planned.size == wanted or planned.is_segment_end and planned.size < wanted


def test_a_merged_segment_overlaps_the_ones_that_it_replaced(built: BuiltLog, tmp_path: Path
                                                              ) -> None:
    path = Path(shutil.copytree(built.path, tmp_path / "t-0"))
    first, one, two, three = built.segments[:4]
    with open(path / f"{one:020d}.log", "ab") as file:
        file.write((path / f"{two:020d}.log").read_bytes())
    gaps: list[LogGap] = []
    with PartitionLog.open(path, on_gap=gaps.append) as log:
        found = {planned.base_offset: planned.start_offset
                 for planned in log.ranges(1 << 62)}
        assert gaps == [LogGap("overlap", str(path / f"{one:020d}.log"), 0, 0, three)]
        assert (found[first], found[one], found[three]) == (first, first, three)
        for _ in log.ranges(1 << 62, on_damage="skip", on_gap=gaps.append):
            pass
        assert gaps[1:] == gaps[:1], "a reader that skips damage is told the same"
        assert two not in found
        # What begins in the second one lies in the merged one.
        for start in (two, two + 1):
            bases = [planned.base_offset for planned in log.ranges(1 << 62, start)]
            assert bases[0] == one and two not in bases
    gaps.clear()
    with PartitionLog.open(path, on_gap=gaps.append) as log:  # one that was told of no gap yet
        assert [planned.base_offset for planned in log.ranges(1 << 62, end_offset=two)] == [
            first, one]
        assert not gaps, "a read that ends there meets no overlap"
        assert log.ranges(1 << 62, end_offset=two + 1) and len(gaps) == 1


def test_damaged_records_move_no_boundaries(tmp_path: Path) -> None:
    """Ranges end where headers say, so that a reader meets the damage in its own range."""
    batches = [encode(Batch(n, 0, [Record(n, 5, b"k", b"v")], base_timestamp=5, max_timestamp=5))
               for n in range(8)]
    size = len(batches[0])
    batches[1] = batches[1][:-1] + b"x"
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        assert [(one.start // size, one.end // size) for one in log.ranges(3 * size)] == [
            (0, 3), (3, 6), (6, 8)]


def test_an_unreadable_segment_below_the_start_does_not_matter(built: BuiltLog, tmp_path: Path
                                                               ) -> None:
    path = Path(shutil.copytree(built.path, tmp_path / "t-0"))
    one, two = built.segments[1:3]
    (path / f"{one:020d}.log").unlink()
    (path / f"{one:020d}.log").mkdir()
    with PartitionLog.open(path) as log:
        assert log.ranges(1 << 62, two)[0].base_offset == two


@pytest.mark.parametrize("options", [{}, {"on_damage": "skip"}])
def test_no_read_begins_behind_the_end(built: BuiltLog, options: dict[str, str]) -> None:
    end, damage = built.log_end_offset, options.get("on_damage", "raise")
    with PartitionLog.open(built.path) as log:
        found = log.ranges(1 << 62, end, on_damage=damage)  # type: ignore[arg-type]
        # To skip damage, also the end of the last segment is looked at.
        assert [one.start_offset for one in found] == ([end] if damage == "skip" else [])
        with pytest.raises(OffsetOutOfRangeError):
            log.ranges(1 << 62, end + 1, on_damage=damage)  # type: ignore[arg-type]


@pytest.mark.parametrize(("second", "is_sound"), [(2, True), (3, True), (4, False), (9, False)])
def test_an_index_entry_is_a_boundary_only_if_offsets_rise_to_it(
        tmp_path: Path, second: int, is_sound: bool) -> None:
    """The walk from the entry before must arrive there, with offsets below those of the batch."""
    batches = [encode(Batch(base, 0, [Record(base, 5, b"k", b"v")], base_timestamp=5,
                            max_timestamp=5)) for base in (0, second, 4)]
    size = len(batches[0])
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        segment = log.segments[0]
        assert segment.is_boundary((4, 2 * size), (second, size)) is is_sound
        assert segment.is_boundary((second, size), (0, 0)) and not segment.is_boundary(
            (second, size), (0, 1))
        assert not segment.is_boundary((4, 2 * size), (-1, -1))
        assert not segment.is_boundary((4, 2 * size + 1), (0, 0))
        assert not segment.is_boundary((second + 1, size), (0, 0))


def test_a_gap_belongs_to_the_range_in_which_it_begins(tmp_path: Path) -> None:
    batches = [bytearray(encode(Batch(base, 0, [Record(base, 5, b"k", b"v")], base_timestamp=5,
                                      max_timestamp=5))) for base in range(4)]
    batches[2][8:12] = b"\x7f\xff\xff\xff"  # its length
    size = len(batches[0])
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    with PartitionLog.open(tmp_path) as log:
        whole, = log.ranges(1 << 20, on_damage="skip")
    for cut, expected in ((2 * size, [0, 1]), (2 * size + 1, [1, 0]), (3 * size, [1, 0])):
        found: list[int] = []
        for planned in (replace(whole, end=cut), replace(whole, start=cut)):
            gaps: list[LogGap] = []
            list(decode_range(planned, DecodeOptions(on_damage="skip"), on_gap=gaps.append))
            found.append(len(gaps))
        assert found == expected, cut


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_gap_says_which_records_the_damaged_batch_claims(tmp_path: Path, at: int) -> None:
    batches = [bytearray(encode(Batch(base, 2, [Record(base, 5, b"k", b"v")] * 2, base_timestamp=5,
                                      max_timestamp=5))) for base in (0, 3, 6)]
    batches[at][-1] ^= 1
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batches))
    (tmp_path / f"{9:020d}.log").touch()
    gaps: list[LogGap] = []
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, on_damage="skip", on_gap=gaps.append)
    assert len(rows) == 4
    assert [(one.first_offset, one.last_offset, one.records) for one in gaps] == [
        (3 * at, 3 * at + 2, 2)]


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
@pytest.mark.parametrize("name", ["start_offset", "end_offset"])
def test_offsets_of_a_read_have_64_bits(built: BuiltLog, on_damage: Any, name: str) -> None:
    """Whatever the reader does with damage."""
    with PartitionLog.open(built.path) as log:
        for number in (1 << 63, -(1 << 63) - 1):
            with pytest.raises(IllegalArgumentError, match=name):
                log.ranges(1000, **{name: number}, on_damage=on_damage)
            with pytest.raises(IllegalArgumentError, match=name):
                log.to_arrow(**{name: number}, on_damage=on_damage)
        for wrong in ("5", 5.0):
            with pytest.raises(TypeError, match=name):
                log.ranges(1000, **{name: wrong}, on_damage=on_damage)


def test_a_segment_that_ends_beyond_the_log_is_an_error_even_if_its_index_hides_where(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entries chain batches inside of the last value; the one after them is beyond the log."""
    def batch(offset: int, value: bytes = b"v") -> bytes:
        return encode(Batch(offset, 0, [Record(offset, 5, b"k", value)], base_timestamp=5,
                            max_timestamp=5))

    monkeypatch.setattr("seglog.storage.segment.INDEX_BYTES_MIN", 0)
    lie = batch(7) + batch(8)
    first, last = batch(0), batch(9, lie)
    inside = len(first) + last.index(lie)
    (tmp_path / f"{0:020d}.log").write_bytes(first + last)
    (tmp_path / f"{5:020d}.log").write_bytes(batch(5))
    for entries, position in (([], len(first)), ([(7, inside), (8, inside + len(batch(7))),
                                                  (10, 1 << 20)], 0)):
        (tmp_path / f"{0:020d}.index").write_bytes(encode_offset_index(entries, 0))
        with PartitionLog.open(tmp_path) as log, pytest.raises(CorruptRecordError) as caught:
            log.ranges(1 << 20)
        assert (Path(caught.value.file or "").name, caught.value.position, caught.value.found) == (
            f"{0:020d}.log", position, 9)


@pytest.mark.parametrize("base", [(1 << 62) + 10, (1 << 63) - 7])
def test_a_segment_overlaps_the_next_at_any_offset(tmp_path: Path, base: int) -> None:
    for first, offsets in ((base, (base, base + 5)), (base + 3, (base + 5,))):
        (tmp_path / f"{first:020d}.log").write_bytes(b"".join(
            encode(Batch(offset, 0, [Record(offset, 5, b"k", b"v")], base_timestamp=5,
                         max_timestamp=5)) for offset in offsets))
    with PartitionLog.open(tmp_path) as log:
        assert upper_offset(log.segments, 0) == base + 6


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_segment_that_was_merged_with_records_newer_than_the_listing(
        tmp_path: Path, is_gone: bool) -> None:
    """It holds offsets beyond the end that was read: no damage, if the next segment has gone."""

    def write(first: int, end: int) -> None:
        (tmp_path / f"{first:020d}.log").write_bytes(b"".join(
            encode(Batch(at, 0, [Record(at, 5, b"k", b"v")], base_timestamp=5, max_timestamp=5))
            for at in range(first, end)))

    for first, end in ((0, 3), (3, 6), (6, 8)):
        write(first, end)
    with PartitionLog.open(tmp_path) as log:
        assert log.log_end_offset == 8
        write(3, 11)
        write(11, 12)
        if is_gone:
            (tmp_path / f"{6:020d}.log").unlink()
        with pytest.raises(KafkaStorageError if is_gone else CorruptRecordError) as caught:
            read_rows(log, columns=["offset"])
        assert caught.value.file == str(tmp_path / f"{6 if is_gone else 3:020d}.log")
        if is_gone:
            log.refresh()
            assert [row["offset"] for row in read_rows(log, columns=["offset"])] == list(range(12))
