"""What a reader that skips damage reports of zeros, and where a wrong index hides other damage."""

from __future__ import annotations

import os
from itertools import combinations, pairwise, product
from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError
from seglog.model import MAX_TIMESTAMP, TimestampOffset
from seglog.storage import salvage, segment
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from seglog.storage.salvage import SegmentExtent, Surveys
from seglog.storage.timestamps import find_offset_of_max_timestamp
from tests.oracle.batch import COMMIT, Batch, Record, encode, marker
from tests.oracle.files import encode_offset_index
from tests.oracle.legacy import Message
from tests.oracle.legacy import encode as encode_old
from tests.support.effort import IS_QUICK
from tests.support.reading import read_rows


def batch(offset: int, value: bytes = b"v") -> bytes:
    return encode(Batch(offset, 0, [Record(offset, 5, b"k", value)], base_timestamp=5,
                        max_timestamp=5))


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


THREE = b"".join(map(batch, range(3)))


def test_zeros_before_the_next_segment_hide_the_offsets_in_between(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(THREE + bytes(100))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [0, 1, 2, 9]
        [gap] = log.gaps
    assert (gap.kind, gap.position, gap.size, gap.first_offset, gap.last_offset) == (
        "zero_tail", len(THREE), 100, 3, 8)


@pytest.mark.parametrize("threads", [0, 2])
def test_damage_behind_a_wrong_boundary_is_reported(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """The index chains two batches inside of a value; the segment, not the last, ends in zeros."""
    monkeypatch.setattr(segment, "INDEX_BYTES_MIN", 0)
    lie = batch(7) + batch(8)
    log_file, data = tmp_path / name(0), batch(0) + batch(1, lie + b"x" * 2000) + batch(2)
    log_file.write_bytes(data + bytes(50))
    inside = data.index(lie)
    monkeypatch.setattr("seglog.storage.partition_log.RANGE_BYTES", inside + 1)
    (tmp_path / name(0, ".index")).write_bytes(encode_offset_index(
        [(7, inside), (8, inside + len(batch(7)))], 0))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        assert log.segments[0].boundary_after(inside + 1) == inside + len(batch(7))
        rows = read_rows(log, columns=["offset"], threads=threads)
        assert [row["offset"] for row in rows] == [0, 1, 2, 9]
        assert log.gaps == (LogGap("zero_tail", str(log_file), len(data), 50),)


@pytest.mark.parametrize("check_crcs", [False, True])
def test_batches_end_with_the_error_of_a_header(tmp_path: Path, check_crcs: bool) -> None:
    """Also if only headers are read; the batches before it come first."""
    bad = bytearray(batch(3))
    bad[8:12] = (5).to_bytes(4, "big")
    (tmp_path / name(0)).write_bytes(THREE + bad)
    found: list[int] = []
    with PartitionLog.open(tmp_path) as log, pytest.raises(CorruptRecordError) as caught:
        for one in log.batches(check_crcs=check_crcs):
            found.append(one.base_offset)
    assert found == [0, 1, 2] and log.gaps == ()
    assert (caught.value.code, caught.value.position) == ("batch_length", len(THREE))


@pytest.mark.parametrize(("order", "row", "expected"), [
    ((0, 3, 1), 2, 4), ((0, 1, 1), 2, 2), ((0, 1, 3, 2, 4), 3, 4)])
def test_batches_end_with_the_error_of_an_offset(
        tmp_path: Path, order: tuple[int, ...], row: int, expected: int) -> None:
    (tmp_path / name(0)).write_bytes(b"".join(map(batch, order)))
    found: list[int] = []
    with PartitionLog.open(tmp_path) as log, pytest.raises(CorruptRecordError) as caught:
        for one in log.batches():
            found.append(one.base_offset)
    error = caught.value
    assert tuple(found) == order[:row]
    assert (error.code, error.position, error.expected, error.found) == (
        "batch_offset_order", row * len(batch(0)), expected, order[row])


@pytest.mark.parametrize(("order", "expected"), [
    ((0, 1, 3, 2, 4, 5), {(3, 3), (2, 2)}), ((0, 4, 2, 3, 1, 5), {(1, 1), (4, 4)}),
    ((0, 1, 2, 2, 3, 4), {(2, 2)}), ((0, 4, 2, 3, 5, 1, 6), {(1, 4), (1, 1)})])
def test_batches_out_of_order_are_gaps_of_their_own_offsets(
        tmp_path: Path, order: tuple[int, ...], expected: set[tuple[int, int]]) -> None:
    """One of two that are swapped is read, or both are missing; one of two equal ones is read."""
    (tmp_path / name(0)).write_bytes(b"".join(map(batch, order)))
    (tmp_path / name(max(order) + 1)).write_bytes(batch(max(order) + 1))
    with PartitionLog.open(tmp_path) as log:
        offsets = [row["offset"] for row in read_rows(log, columns=["offset"], on_damage="skip")]
        assert offsets == sorted(set(offsets)) and offsets[-1] == max(order) + 1
        found = {(gap.first_offset, gap.last_offset) for gap in log.gaps}
        assert found <= expected
        assert set(order) - set(offsets) <= {offset for gap in log.gaps for offset in range(
            gap.first_offset or 0, (gap.last_offset or 0) + 1)}


def test_a_batch_out_of_order_before_a_hole_is_a_gap_from_its_first_offset_on(tmp_path: Path
                                                                              ) -> None:
    def pair(first: int) -> bytes:
        return encode(Batch(first, 1, [Record(first, 5), Record(first + 1, 5)], base_timestamp=5,
                            max_timestamp=5))

    (tmp_path / name(0)).write_bytes(b"".join(map(pair, (0, 4, 6, 2, 10))))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [0, 1, 4, 5, 6, 7, 10, 11]
        assert [(gap.first_offset, gap.last_offset) for gap in log.gaps] == [(2, 9)]


def longest(offsets: tuple[int, ...]) -> int:
    """The number of the longest rising selection."""
    return max(size for size in range(len(offsets) + 1) for chosen in combinations(offsets, size)
               if all(low < high for low, high in pairwise(chosen)))


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_of_batches_in_any_order_the_most_are_read(tmp_path: Path, first: int) -> None:
    """The others are gaps, each with what was expected in its place."""
    (tmp_path / name(9)).write_bytes(batch(9))
    size = len(batch(0))
    orders = [order for order in product(range(4), repeat=4) if order[0] == first]
    for order in orders[::1 if not IS_QUICK else 2]:
        (tmp_path / name(0)).write_bytes(b"".join(map(batch, order)))
        with PartitionLog.open(tmp_path) as log:
            offsets = [row["offset"] for row in read_rows(log, columns=["offset"],
                                                          on_damage="skip")][:-1]
            gaps = log.gaps
        assert len(offsets) == longest(order), order
        places = {gap.position // size: gap for gap in gaps}
        assert len(places) == len(gaps) == 4 - len(offsets)
        assert [offset for place, offset in enumerate(order) if place not in places] == offsets
        for place, gap in places.items():
            assert (gap.kind, gap.size) == ("batch_offset_order", size)
            before = [order[one] for one in range(place) if one not in places]
            least = before[-1] + 1 if before else 0
            assert gap.cause == (f"offset {order[place]} goes backwards (expected {least} or more),"
                                 f" at byte {size * place}")
        lost = set(order) - set(offsets)
        named = {offset for gap in gaps for offset in range(gap.first_offset or 0,
                                                            (gap.last_offset or 0) + 1)}
        assert lost <= named


@pytest.mark.parametrize(("claimed", "count", "following", "expected"), [
    ((4, 7), None, 8, (4, 7, 4)), ((5, 7), None, 8, (5, 7, 3)), ((3, 7), None, 8, (4, 7, None)),
    ((4, 6), None, 8, (4, 7, None)), ((4, 7), None, None, (4, 7, 4)),
    ((5, 6), None, None, (5, 6, 2)), ((3, 6), None, None, (4, 7, None)),
    ((5, 7), 0, 8, (5, 7, None)), ((5, 7), -1, 8, (4, 7, None))])
def test_what_a_damaged_batch_claims_counts_only_where_it_fits(
        tmp_path: Path, claimed: tuple[int, int], count: int | None, following: int | None,
        expected: tuple[int, int, int | None]) -> None:
    """Between the batch before, which ends at 3, and the next one, or the next segment at 8."""
    def of(first: int, last: int) -> bytes:
        return encode(Batch(first, last - first, [Record(offset, 5) for offset in
                                                  range(first, last + 1)], base_timestamp=5,
                            max_timestamp=5))

    bad = of(*claimed)
    if count is not None:
        bad = bad[:57] + count.to_bytes(4, "big", signed=True) + bad[61:]
    (tmp_path / name(0)).write_bytes(of(0, 3) + bad[:-1] + bytes([bad[-1] ^ 1])
                                     + (of(following, 9) if following else b""))
    upper = 10 if following else 8
    (tmp_path / name(upper)).write_bytes(batch(upper))
    with PartitionLog.open(tmp_path) as log:
        read_rows(log, columns=["offset"], on_damage="skip")
        [gap] = log.gaps
    assert (gap.first_offset, gap.last_offset, gap.records) == expected


def test_an_empty_segment_has_nothing_to_salvage(tmp_path: Path) -> None:
    (tmp_path / name(5)).touch()
    with PartitionLog.open(tmp_path) as log, log.segments[0].opened() as handle:
        for checked in (False, True):
            found = Surveys().of(handle, SegmentExtent("f", 5, 0, None), checked=checked)
            assert (found.spans, found.gaps, found.next_offset) == ((), (), 5)
            assert found.is_checked is checked


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_headers_are_followed_from_one_chunk_of_batches_to_the_next(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(salvage, "_BATCHES_PER_SCAN", most)
    (tmp_path / name(0)).write_bytes(THREE + bytes(9))
    with PartitionLog.open(tmp_path) as log, log.segments[0].opened() as handle:
        found = Surveys().of(handle, SegmentExtent("f", 0, len(THREE) + 9, 5))
    gap, = found.gaps
    assert (found.spans, found.next_offset, found.is_checked) == (((0, len(THREE)),), 3, False)
    assert (gap.kind, gap.first_offset, gap.last_offset) == ("zero_tail", 3, 4)


def test_the_surveys_that_were_used_last_are_kept(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(THREE)
    surveys = Surveys(most=2)
    with PartitionLog.open(tmp_path) as log, log.segments[0].opened() as handle:
        made = [surveys.of(handle, SegmentExtent(file, 0, len(THREE), None)) for file in "abacacb"]
    assert [[one is other for other in made].index(True) for one in made] == [0, 1, 0, 3, 0, 3, 6]


@pytest.mark.parametrize("kept", [0, 61, 5000])
def test_a_segment_that_is_cut_meanwhile_is_read_up_to_there(tmp_path: Path, kept: int) -> None:
    """A broker truncates or empties what a reader has listed."""
    data = b"".join(batch(offset, b"v" * 900) for offset in range(30))
    size = len(data) // 30
    (tmp_path / name(0)).write_bytes(data)
    with PartitionLog.open(tmp_path) as log, log.segments[0].opened() as handle:
        os.truncate(tmp_path / name(0), kept)
        found = Surveys().of(handle, SegmentExtent("f", 0, len(data), 40))
    whole = kept // size
    assert found.spans == (((0, whole * size),) if whole else ())
    [gap] = found.gaps
    assert (gap.kind, gap.position, gap.size, gap.first_offset, gap.last_offset) == (
        "file_shrank", whole * size, len(data) - whole * size, whole, 39)


def test_a_batch_out_of_order_at_the_end_of_the_log_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(b"".join(map(batch, (0, 2, 3, 1))))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [0, 2, 3]
        [gap] = log.gaps
    assert (gap.first_offset, gap.last_offset) == (1, None)


def test_of_two_equal_batches_the_first_is_read(tmp_path: Path) -> None:
    """As without damage skipped."""
    (tmp_path / name(0)).write_bytes(b"".join(map(batch, (0, 1, 1, 2))))
    with PartitionLog.open(tmp_path) as log:
        assert [row["offset"] for row in read_rows(log, columns=["offset"], on_damage="skip")] == [
            0, 1, 2]
        gap, = log.gaps
    assert gap.position == 2 * len(batch(0))


@pytest.mark.parametrize("size", [1, 2, 30])
def test_the_batch_after_any_junk_is_found(tmp_path: Path, size: int) -> None:
    (tmp_path / name(0)).write_bytes(THREE + b"\xff" * size + batch(3))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [0, 1, 2, 3]
        [gap] = log.gaps
    assert (gap.position, gap.size) == (len(THREE), size)


@pytest.mark.parametrize("junk", [bytes(100), b"\xff" * 100, b"\xff" * 7, b"\xff" * 8])
def test_a_gap_where_no_offset_is_missing_has_no_offsets(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / name(0)).write_bytes(THREE + junk)
    (tmp_path / name(3)).write_bytes(batch(3))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [0, 1, 2, 3]
        [gap] = log.gaps
    assert (gap.position, gap.size, gap.first_offset, gap.last_offset) == (
        len(THREE), len(junk), None, None)
    assert "offsets" not in str(gap)


@pytest.mark.parametrize(("stored", "offsets"), [(8, [0, 9]), (9, [0, 1, 9])])
def test_messages_below_the_offset_of_a_damaged_entry_are_its_own(
        tmp_path: Path, stored: int, offsets: list[int]) -> None:
    """Unless it is no offset of the segment, which ends below 9."""
    bad = stored.to_bytes(8, "big") + (1 << 30).to_bytes(4, "big") + b"x" * 40
    (tmp_path / name(0)).write_bytes(
        encode_old(Message(0, 1, value=b"v", timestamp=5)) + bad
        + encode_old(Message(1, 1, value=b"v", timestamp=5)))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == offsets


@pytest.mark.parametrize("count", [1, 3, 4, 5, 36, 37])
@pytest.mark.parametrize("again", [0, 1])
def test_a_walk_in_order_ends_at_an_offset_that_it_had(
        tmp_path: Path, count: int, again: int) -> None:
    """Also where one chunk of batches ends and the next begins: after 4 and after 36."""
    data = b"".join(map(batch, range(count))) + batch(count - again)
    (tmp_path / name(0)).write_bytes(data)
    with PartitionLog.open(tmp_path) as log:
        walked = list(log.segments[0].walk_in_order())
    assert sum(len(one.batches) for one in walked) == count + 1 - again
    error = walked[-1].error
    assert (error is None) is (not again)
    if isinstance(error, CorruptRecordError):
        assert (error.code, error.position, error.expected, error.found) == (
            "batch_offset_order", len(data) - len(batch(0)), count, count - 1)


@pytest.mark.parametrize("wrong", [9, 20])
def test_a_batch_of_other_offsets_is_a_gap_of_its_bytes(tmp_path: Path, wrong: int) -> None:
    """Below its segment's base, or in the next one's range."""
    size = len(batch(0))
    (tmp_path / name(10)).write_bytes(batch(10) + batch(wrong) + batch(14))
    (tmp_path / name(20)).write_bytes(batch(20))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [10, 14, 20]
        gap, = log.gaps
        assert gap == LogGap(
            "batch_offset_range", f"{tmp_path}/{name(10)}", size, size, first_offset=11,
            last_offset=13, cause=gap.cause)


@pytest.mark.parametrize("wrong", [9, 20])
def test_a_search_passes_batches_of_other_offsets(tmp_path: Path, wrong: int) -> None:
    junk = b"\xff" * 50 + batch(wrong) + batch(wrong)
    (tmp_path / name(10)).write_bytes(batch(10) + junk + batch(14))
    (tmp_path / name(20)).write_bytes(batch(20))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == [10, 14, 20]
        gap, = log.gaps
    assert (gap.position, gap.size, gap.first_offset, gap.last_offset) == (
        len(batch(10)), len(junk), 11, 13)


def test_a_walk_in_order_expects_the_offset_after_the_last_batch(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(batch(0) + batch(1) + batch(1) + batch(2))
    with PartitionLog.open(tmp_path) as log:
        walked, = log.segments[0].walk_in_order()
    assert walked.batches["base_offset"].tolist() == [0, 1]
    error = walked.error
    assert error is not None and walked.position == len(batch(0)) * 2
    assert (error.code, error.expected, error.found) == ("batch_offset_order", 2, 1)


def test_the_largest_timestamp_is_that_from_an_offset_on(tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(b"".join(
        encode(Batch(offset, 0, [Record(offset, timestamp, b"k", b"v")], base_timestamp=timestamp,
                     max_timestamp=timestamp)) for offset, timestamp in enumerate((9, 5, 7))))
    with PartitionLog.open(tmp_path) as log:
        found = [find_offset_of_max_timestamp(iter(log.segments), start) for start in (0, 1, 3)]
    assert found == [TimestampOffset(9, 0, 0), TimestampOffset(7, 2, 0), None]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_batch_inside_of_a_bad_one_leads_to_its_end(tmp_path: Path, is_last: bool) -> None:
    """The first does not, so the second counts."""
    inside = batch(1) + b"junk" + batch(2)
    bad = bytearray(batch(1)[:61] + inside)
    bad[8:12] = (len(bad) - 12).to_bytes(4, "big")
    (tmp_path / name(0)).write_bytes(batch(0) + bad + (b"" if is_last else batch(3)))
    with PartitionLog.open(tmp_path) as log:
        rows = read_rows(log, columns=["offset"], on_damage="skip")
        assert [row["offset"] for row in rows] == ([0, 2] if is_last else [0, 2, 3])
        gap, = log.gaps
        assert (gap.position, gap.size) == (len(batch(0)), len(bad) - len(batch(2)))


def test_markers_count_in_searches_by_time(tmp_path: Path) -> None:
    """As in Kafka, which looks at the records of every batch."""
    (tmp_path / name(0)).write_bytes(batch(0) + encode(marker(1, 7, 0, COMMIT, 9)) + batch(2))
    with PartitionLog.open(tmp_path) as log:
        for on_damage in ("raise", "skip"):
            found = [log.offset_for_timestamp(timestamp, on_damage=on_damage)
                     for timestamp in (5, 6, 9, 10, MAX_TIMESTAMP)]
            assert [one and (one.timestamp, one.offset) for one in found] == [
                (5, 0), (9, 1), (9, 1), None, (9, 1)]


def test_a_segment_that_cannot_be_opened_does_not_end_a_search_by_time(tmp_path: Path) -> None:
    """Of a reader that skips damage."""
    (tmp_path / name(0)).mkdir()
    (tmp_path / name(5)).write_bytes(batch(5))
    with PartitionLog.open(tmp_path) as log:
        for timestamp in (5, MAX_TIMESTAMP):
            found = log.offset_for_timestamp(timestamp, on_damage="skip")
            assert found is not None and (found.timestamp, found.offset) == (5, 5)


def test_zeros_after_a_marker_are_reported(tmp_path: Path) -> None:
    """No record is returned before them."""
    data = encode(marker(0, 7, 0, COMMIT, 5))
    (tmp_path / name(0)).write_bytes(data + bytes(50))
    (tmp_path / name(9)).write_bytes(batch(9))
    with PartitionLog.open(tmp_path) as log:
        assert [row["offset"] for row in read_rows(log, columns=["offset"])] == [9]
        assert log.gaps == (LogGap("zero_tail", str(tmp_path / name(0)), len(data), 50),)
