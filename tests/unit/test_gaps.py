"""The gaps that a reader of damaged segments reports, and the batches that it still finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seglog.errors import CorruptIndexError, CorruptRecordError, OffsetOutOfRangeError
from seglog.model import TimestampOffset
from seglog.storage import salvage
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from seglog.storage.stream import DecodeOptions, decode_range, read_batch_headers
from tests.oracle.batch import Batch, Record, encode, seal
from tests.oracle.legacy import Message
from tests.oracle.legacy import encode as encode_old
from tests.support.reading import read_rows, rows_of

SKIPS = DecodeOptions(("offset",), on_damage="skip")


def batch(offset: int, value: bytes = b"v", timestamp: int = 5) -> bytes:
    return encode(Batch(offset, 0, [Record(offset, timestamp, b"k", value)],
                        base_timestamp=timestamp, max_timestamp=timestamp))


def name(base: int) -> str:
    return f"{base:020d}.log"


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def longer(data: bytes, size: int) -> bytes:
    """A batch that claims to be `size` bytes long."""
    return data[:8] + (size - 12).to_bytes(4, "big") + data[12:]


def offsets_of(log: PartitionLog, start: int | None = None, end: int | None = None) -> list[int]:
    return [row["offset"] for row in read_rows(log, start, end, columns=["offset"],
                                               on_damage="skip")]


def offsets_by_ranges(log: PartitionLog) -> tuple[list[int], list[LogGap]]:
    """As Spark reads: each range alone, of the smallest size."""
    gaps: list[LogGap] = []
    ranges = list(log.ranges(1, on_damage="skip", on_gap=gaps.append))
    return [row["offset"] for one in ranges
            for columns in decode_range(one, SKIPS, on_gap=gaps.append)
            for row in rows_of(columns)], gaps


def test_the_ranges_of_a_segment_are_its_bytes(tmp_path: Path) -> None:
    data = batch(0, b"v" * 2000)
    (tmp_path / name(0)).write_bytes(data)
    (tmp_path / name(1)).touch()
    (tmp_path / name(5)).write_bytes(batch(5))
    with PartitionLog.open(tmp_path) as log:
        assert [(one.base_offset, one.start, one.end)
                for one in log.ranges(1, on_damage="skip")] == [
            (0, 0, 1024), (0, 1024, 2048), (0, 2048, len(data)), (5, 0, len(batch(5)))]


def test_a_segment_of_zeros_is_one_gap_however_it_is_divided(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(bytes(3000))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        offsets, [gap] = offsets_by_ranges(log)
    assert offsets == [9]
    assert (gap.kind, gap.position, gap.size, gap.first_offset, gap.last_offset) == (
        "zero_tail", 0, 3000, 0, 8)


@pytest.mark.parametrize(("kind", "rest"), [
    ("zero_tail", bytes(100)), ("torn_tail", batch(1)[:-1])], ids=["zeros", "torn"])
def test_a_range_ends_in_the_gap_of_its_segment(tmp_path: Path, kind: str, rest: bytes) -> None:
    """Also for a reader that skips no damage: records follow."""
    (tmp_path / name(0)).write_bytes(batch(0) + rest)
    (tmp_path / name(9)).write_bytes(batch(9))
    gaps: list[LogGap] = []
    with PartitionLog.open(tmp_path) as log:
        ranges = log.ranges(1 << 20)
        assert [one.base_offset for one in log.batches()] == [0, 9]
        gaps += log.gaps
    for one in ranges:
        list(decode_range(one, on_gap=gaps.append))
        list(read_batch_headers(one, on_gap=gaps.append))
    assert gaps == 3 * [LogGap(kind, str(tmp_path / name(0)), len(batch(0)), len(rest))]


@pytest.mark.parametrize("start", [1, 2, 5, 8])
def test_damage_below_its_start_does_not_hide_a_segment_from_a_read(tmp_path: Path, start: int
                                                                     ) -> None:
    """Nothing tells where in the segment the offsets begin."""
    (tmp_path / name(0)).write_bytes(batch(0) + longer(batch(1), 20) + batch(2))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        with pytest.raises(CorruptRecordError) as caught:
            log.segments[0].translate_offset(start)
        assert caught.value.position == len(batch(0))
        with pytest.raises(CorruptRecordError):
            read_rows(log, start)


def test_a_range_inside_of_a_bad_batch_finds_what_its_length_hides(tmp_path: Path) -> None:
    """The length leads from one batch to the next, over sound ones."""
    hidden = b"".join(batch(offset, b"v" * 500) for offset in range(2, 6))
    bad = longer(batch(1), len(batch(1)) + len(hidden)) + hidden
    (tmp_path / name(0)).write_bytes(batch(0) + bad + batch(6) + batch(7))
    (tmp_path / name(8)).write_bytes(batch(8))
    with PartitionLog.open(tmp_path) as log:
        offsets, [gap] = offsets_by_ranges(log)
        assert offsets == offsets_of(log) == [0, 2, 3, 4, 5, 6, 7, 8]
    assert (gap.position, gap.size) == (len(batch(0)), len(batch(1)))


def test_a_last_batch_of_other_offsets_is_a_gap(tmp_path: Path) -> None:
    """All batches are in order, but it belongs to the next segment, which lacks it."""
    (tmp_path / name(10)).write_bytes(batch(10) + batch(20))
    (tmp_path / name(20)).write_bytes(batch(22))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [10, 22]
        [gap] = log.gaps
    assert (gap.kind, gap.first_offset, gap.last_offset) == ("batch_offset_range", 11, 19)


def test_a_length_into_a_later_batch_hides_none(tmp_path: Path) -> None:
    """It leads nowhere, so the next sound batch ends the gap."""
    size = len(batch(0))
    bad = longer(batch(1), 2 * size + size // 2)
    (tmp_path / name(0)).write_bytes(batch(0) + bad + batch(2) + batch(3) + batch(4))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [0, 2, 3, 4]
        [gap] = log.gaps
    assert (gap.kind, gap.position, gap.size) == ("batch_crc", size, size)


@pytest.mark.parametrize("last", [batch(1), flipped(batch(1))], ids=["sound", "damaged"])
def test_a_range_that_ends_inside_a_batch_was_cut_by_a_wrong_index(tmp_path: Path, last: bytes
                                                                   ) -> None:
    (tmp_path / name(0)).write_bytes(batch(0) + last)
    with PartitionLog.open(tmp_path) as log:
        planned, = log.ranges(1 << 20)
    cut = replace(planned, end=len(batch(0)) + 30, sound_end=0)
    for read in (decode_range, read_batch_headers):
        with pytest.raises(CorruptIndexError):
            list(read(cut))


def test_two_lengths_may_lead_to_the_same_place_that_leads_nowhere(tmp_path: Path) -> None:
    size = len(batch(0))
    (tmp_path / name(0)).write_bytes(batch(0) + longer(batch(1), 3 * size) + batch(2)
                                     + flipped(batch(3)) + b"\xff" * 30 + batch(4))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [0, 2, 4]
        assert [(gap.position, gap.size) for gap in log.gaps] == [
            (size, size), (3 * size, size + 30)]


def test_the_kind_of_a_gap_is_its_cause(tmp_path: Path) -> None:
    """A length beyond the end of the segment is wrong if batches follow, else the rest is lost."""
    data = [batch(0), flipped(batch(1)), batch(2), longer(batch(3), 1 << 20), batch(4),
            batch(5)[:-1]]
    (tmp_path / name(0)).write_bytes(b"".join(data))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [0, 2, 4, 9]
        assert [gap.kind for gap in log.gaps] == ["batch_crc", "batch_length", "torn_tail"]


@pytest.mark.parametrize(("before", "stored", "after", "expected"), [
    (b"", 9, encode_old(Message(0, 1, value=b"v", timestamp=5)), [0, 9]),
    (batch(0), 8, batch(1), [0, 1, 9])], ids=["offset 0", "magic 2"])
def test_what_no_wrapper_can_contain_counts_after_a_damaged_entry(
        tmp_path: Path, before: bytes, stored: int, after: bytes, expected: list[int]) -> None:
    """Messages below the offset stored in it do not, if that is an offset of the segment."""
    bad = stored.to_bytes(8, "big") + (1 << 30).to_bytes(4, "big") + b"x" * 40
    (tmp_path / name(0)).write_bytes(before + bad + after)
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == expected


def test_the_end_is_after_all_that_damage_hides(tmp_path: Path) -> None:
    """A read may begin there; the length of a bad batch leads over two others."""
    hidden = batch(2) + batch(3)
    bad = longer(batch(1), len(batch(1)) + len(hidden))
    (tmp_path / name(0)).write_bytes(batch(0) + bad + hidden)
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log, 3) == [3] and offsets_of(log, 4) == []
    with PartitionLog.open(tmp_path) as log:
        assert log.end_offset(on_damage="skip") == 4


def test_no_read_begins_after_a_last_batch_that_is_damaged(tmp_path: Path) -> None:
    """Whatever was read before."""
    (tmp_path / name(0)).write_bytes(batch(0) + flipped(batch(1)) + batch(2) + flipped(batch(3)))
    with PartitionLog.open(tmp_path) as log:
        for start, expected in ((4, None), (3, []), (1, [2]), (4, None)):
            if expected is not None:
                assert offsets_of(log, start) == expected
                continue
            with pytest.raises(OffsetOutOfRangeError):
                offsets_of(log, start)
        assert log.end_offset(on_damage="skip") == 3


def test_a_wrapper_that_does_not_decompress_may_begin_anywhere(tmp_path: Path) -> None:
    """Its header holds only its last offset."""
    (tmp_path / name(0)).write_bytes(b"".join(map(encode_old, (
        Message(0, 1, value=b"v", timestamp=5), Message(5, 1, value=b"x", timestamp=5, codec=1)))))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [0]
        [gap] = log.gaps
    assert (gap.kind, gap.first_offset, gap.last_offset) == ("codec_data", None, 5)


def test_gaps_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Whether a CRC or a record shows the damage."""
    no_record = seal(1, 0, 0, 0, 5, 5, -1, -1, -1, 1, b"\x7f")
    (tmp_path / name(0)).write_bytes(flipped(batch(0)) + no_record + flipped(batch(2)) + batch(3))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [3]
        assert [(one.kind, one.first_offset, one.records) for one in log.gaps] == [
            ("batch_crc", 0, 1), ("record_length", 1, 1), ("batch_crc", 2, 1)]


def test_records_that_cannot_be_decoded_are_a_gap_though_no_crc_is_checked(tmp_path: Path) -> None:
    no_record = flipped(seal(1, 0, 0, 0, 5, 5, -1, -1, -1, 1, b"\x7f"))
    (tmp_path / name(0)).write_bytes(batch(0) + no_record + batch(2))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip", check_crcs=False)
        assert [row["offset"] for row in rows] == [0, 2]
        assert [(one.kind, one.first_offset) for one in log.gaps] == [("record_length", 1)]


def test_a_read_reports_the_gaps_of_its_own_offsets(tmp_path: Path) -> None:
    parts = [flipped(batch(offset)) if offset in (1, 4, 7) else batch(offset)
             for offset in range(9)]
    (tmp_path / name(0)).write_bytes(b"".join(parts))
    for start, end, expected in ((None, None, [1, 4, 7]), (2, 6, [4]), (4, 5, [4]), (5, 7, []),
                                 (2, 4, []), (5, None, [7])):
        with PartitionLog.open(tmp_path) as log:
            offsets_of(log, start, end)
            assert [gap.first_offset for gap in log.gaps] == expected, (start, end)


def test_after_too_many_gaps_the_rest_of_a_segment_is_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_GAPS_MAX", 2)
    parts = [flipped(batch(offset)) if offset % 2 else batch(offset) for offset in range(9)]
    (tmp_path / name(0)).write_bytes(b"".join(parts))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [0, 2, 4, 9]
        assert [(gap.first_offset, gap.last_offset) for gap in log.gaps] == [
            (1, 1), (3, 3), (5, 8)]


def test_lengths_are_followed_for_a_bounded_number_of_bytes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the rest of the segment is a gap."""
    size = len(batch(0))
    monkeypatch.setattr(salvage, "_BUDGET_TIMES", 1)
    parts = [batch(0), flipped(batch(1)), flipped(batch(2)), batch(3)]
    (tmp_path / name(0)).write_bytes(b"".join(parts))
    (tmp_path / name(9)).write_bytes(batch(9))
    for budget, expected, gaps in ((size, [0, 9], [(1, 8)]),
                                   (3 * size - 1, [0, 9], [(1, 1), (1, 8)]),
                                   (3 * size, [0, 3, 9], [(1, 1), (2, 2)])):
        monkeypatch.setattr(salvage, "_BUDGET_BYTES", budget - 4 * size)
        with PartitionLog.open(tmp_path) as log:
            assert offsets_of(log) == expected
            assert [(gap.first_offset, gap.last_offset) for gap in log.gaps] == gaps


def test_lengths_that_lead_through_many_bad_batches_are_followed_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "_BUDGET_BYTES", 0)
    (tmp_path / name(0)).write_bytes(b"".join(map(flipped, map(batch, range(30)))) + batch(30))
    (tmp_path / name(40)).write_bytes(batch(40))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [30, 40]
        assert [gap.first_offset for gap in log.gaps] == [*range(30)]


def test_a_batch_that_only_overlaps_one_before_it_was_moved_there(tmp_path: Path) -> None:
    """The CRC does not cover its base offset, so what is missing is where it lies."""
    def pair(first: int) -> bytes:
        return encode(Batch(first, 1, [Record(first, 5), Record(first + 1, 5)], base_timestamp=5,
                            max_timestamp=5))

    (tmp_path / name(0)).write_bytes(b"".join(map(pair, (0, 6, 1, 10))))
    with PartitionLog.open(tmp_path) as log:
        assert offsets_of(log) == [0, 1, 6, 7, 10, 11]
        assert [(gap.first_offset, gap.last_offset) for gap in log.gaps] == [(8, 9)]


def test_a_search_by_time_passes_segments_that_are_older(tmp_path: Path) -> None:
    for base in range(3):
        (tmp_path / name(base)).write_bytes(batch(base, timestamp=10 * base))
    with PartitionLog.open(tmp_path) as log:
        for timestamp, offset in ((0, 0), (1, 1), (10, 1), (11, 2), (20, 2)):
            assert log.offset_for_timestamp(timestamp, on_damage="skip") == TimestampOffset(
                10 * offset, offset, 0)


def test_a_search_by_time_ends_where_the_log_did_when_it_was_opened(tmp_path: Path) -> None:
    """Later appends belong to a later view, also if the file has to be opened again."""
    for base in range(9):
        (tmp_path / name(base)).write_bytes(batch(base))
    with PartitionLog.open(tmp_path, max_open_segments=1) as log:
        with (tmp_path / name(8)).open("ab") as file:
            file.write(batch(9, timestamp=9))
        assert offsets_of(log, 0, 8) == list(range(8))
        assert log.offset_for_timestamp(9, on_damage="skip") is None
