"""Offsets by timestamp and ranges since a time, beside a search of all records."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from seglog.arrow import DecodeOptions, decode_range
from seglog.errors import CorruptRecordError
from seglog.model import (
    EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, EpochEntry, TimestampOffset,
)
from seglog.storage.partition_log import PartitionLog
from seglog.storage.paths import LEADER_EPOCH_CHECKPOINT
from seglog.storage.salvage import Salvage, SegmentExtent, Surveys
from seglog.storage.segment import LogSegment
from seglog.storage.timestamps import (
    find_offset_by_timestamp, find_offset_of_max_timestamp, find_past_damage_by_timestamp,
    find_past_damage_max_timestamp, ranges_since,
)
from tests.oracle.batch import Batch, Record, encode
from tests.oracle.files import encode_offset_index
from tests.oracle.writer import LogConfig, LogWriter

#: (timestamp, offset, leader epoch) of each record
Rows = list[tuple[int, int, int | None]]


def write(path: Path, seed: int) -> Rows:
    """A log of small segments."""
    draw = random.Random(seed)
    times = draw.choice([(-1,), (0,), (-1, 0), (0, 1), (-1, 0, 3, 5), (5,), (3, 5, 7, 9)])
    writer = LogWriter(path, LogConfig(segment_bytes=draw.choice((200, 500)),
                                       index_interval_bytes=draw.choice((0, 4096))), 10)
    rows: Rows = []
    offset = 10
    for number in range(draw.randint(1, 9)):
        stamps = [draw.choice(times) for _ in range(draw.randint(1, 3))]
        epoch = number // 3 - 1
        writer.append(Batch(offset, len(stamps) - 1, [
            Record(offset + n, stamp) for n, stamp in enumerate(stamps)], base_timestamp=stamps[0],
            max_timestamp=max(stamps), partition_leader_epoch=epoch))
        rows += [(stamp, offset + n, epoch if epoch >= 0 else None)
                 for n, stamp in enumerate(stamps)]
        offset += len(stamps)
    writer.close()
    if draw.random() < 0.3:
        for index in path.glob("*.timeindex"):
            index.unlink()
    return rows


def first(rows: Rows, timestamp: int, start: int) -> TimestampOffset | None:
    return next((TimestampOffset(*row) for row in rows
                 if row[0] >= timestamp and row[1] >= start), None)


def survey(segment: LogSegment) -> Salvage:
    with segment.opened() as handle:
        extent = SegmentExtent(segment.files.log, segment.base_offset, segment.size,
                               segment.next_base_offset)
        return Surveys().of(handle, extent, checked=True)


@pytest.mark.parametrize("seed", range(24))
def test_a_search_finds_the_first_record_of_all(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "t-0"
    rows = write(path, seed)
    with PartitionLog.open(path) as log:
        segments = log.segments
        for start in range(10, rows[-1][1] + 2):
            for timestamp in range(11):
                expected = first(rows, timestamp, start)
                assert find_offset_by_timestamp(segments.values(start), timestamp, start
                                                ) == expected
                assert find_past_damage_by_timestamp(segments.values(start), timestamp, start,
                                                     survey) == expected
            late = [row for row in rows if row[1] >= start and row[0] >= 0]
            most = first(late, max((row[0] for row in late), default=0), start)
            assert find_offset_of_max_timestamp(segments.values(start), start) == most
            assert find_past_damage_max_timestamp(segments.values(start), start, survey) == most


@pytest.mark.parametrize("seed", range(24))
def test_the_ranges_of_a_time_leave_out_what_is_too_early(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "t-0"
    rows = write(path, seed)
    with PartitionLog.open(path) as log:
        latest = {segment.base_offset: max(row[0] for row in rows if segment.base_offset <= row[1]
                                           < (segment.next_base_offset or 1 << 60))
                  for segment in log.segments if segment.size}
        for timestamp, target in product(range(11), (100, 1 << 30)):
            whole = log.ranges(target)
            ranges = list(ranges_since(log.segments, whole, timestamp))
            offsets = [offset for planned in ranges for columns in decode_range(
                planned, DecodeOptions(columns=("offset",)))
                for offset in columns.to_pylists()["offset"]]
            assert offsets == sorted(set(offsets))
            assert set(offsets) >= {offset for time, offset, _ in rows if time >= timestamp}
            assert {planned.base_offset for planned in ranges} <= {
                base for base, time in latest.items() if time >= timestamp}
            ends = {(one.base_offset, one.end): one.start for one in whole}
            for planned in ranges:
                assert ends[planned.base_offset, planned.end] <= planned.start < planned.end


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("junk", [b"", bytes(8) + b"\xff" * 4 + bytes(40)])
def test_damage_is_no_end_of_a_search(tmp_path: Path, start: int, junk: bytes) -> None:
    """A header claims a time that none of its records has; after it comes the end, or damage."""
    data = b"".join(encode(Batch(offset, 0, [Record(offset, 5, b"k", b"v")], base_timestamp=5,
                                 max_timestamp=50)) for offset in range(2))
    (tmp_path / f"{0:020d}.log").write_bytes(data + junk)
    (tmp_path / f"{9:020d}.log").touch()
    with PartitionLog.open(tmp_path, log_start_offset=start) as log:
        for timestamp in (40, -3):
            if junk and (timestamp > 0 or not start):
                with pytest.raises(CorruptRecordError) as caught:
                    log.offset_for_timestamp(timestamp)
                assert caught.value.position == len(data)
            else:
                assert log.offset_for_timestamp(timestamp) == (
                    None if timestamp > 0 or not start else TimestampOffset(5, 1, 0))
        assert log.offset_for_timestamp(5) == TimestampOffset(5, start, 0)


def test_damage_may_hide_the_first_record_of_a_time(tmp_path: Path) -> None:
    """A search goes on to the next segment only if this one is known to hold no such record."""
    for base in (0, 9):
        data = b"".join(encode(Batch(offset, 0, [Record(offset, offset, b"k", b"v")],
                                     base_timestamp=offset, max_timestamp=offset))
                        for offset in range(base, base + 3))
        (tmp_path / f"{base:020d}.log").write_bytes(data)
    path, size = tmp_path / f"{0:020d}.log", len(data) // 3
    content = bytearray(path.read_bytes())
    content[size + 8:size + 12] = b"\xff" * 4  # the length of the second batch
    with PartitionLog.open(tmp_path) as log:
        assert log.offset_for_timestamp(2) == TimestampOffset(2, 2, 0)
        assert log.offset_for_timestamp(3) == TimestampOffset(9, 9, 0)
        path.write_bytes(content)
        assert log.offset_for_timestamp(0) == TimestampOffset(0, 0, 0)
        for timestamp, past_damage in ((1, 2), (2, 2), (3, 9), (12, None)):
            with pytest.raises(CorruptRecordError) as caught:
                log.offset_for_timestamp(timestamp)
            assert caught.value.position == size
            found = log.offset_for_timestamp(timestamp, on_damage="skip")
            assert (None if found is None else found.offset) == past_damage


def test_of_two_records_with_the_largest_time_the_first_counts(tmp_path: Path) -> None:
    """Also if the header of the second claims a later one."""
    for offset, most in enumerate((5, 50)):
        (tmp_path / f"{offset:020d}.log").write_bytes(encode(Batch(
            offset, 0, [Record(offset, 5)], base_timestamp=5, max_timestamp=most)))
    with PartitionLog.open(tmp_path) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP, on_damage="skip") == TimestampOffset(5, 0, 0)


def test_damage_below_the_start_does_not_end_a_search_for_the_latest(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an index leads past it."""
    monkeypatch.setattr("seglog.storage.segment.INDEX_BYTES_MIN", 0)
    parts = [encode(Batch(offset, 0, [Record(offset, timestamp)], base_timestamp=timestamp,
                          max_timestamp=timestamp))
             for offset, timestamp in enumerate((50, 5, 6, 9, 7))]
    size = len(parts[0])
    parts[1] = b"\xff" * size
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(parts))
    (tmp_path / f"{0:020d}.index").write_bytes(encode_offset_index(
        [(offset, offset * size) for offset in (2, 3, 4)], 0))
    with PartitionLog.open(tmp_path, log_start_offset=3) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(9, 3, 0)
    (tmp_path / f"{0:020d}.index").unlink()
    with (PartitionLog.open(tmp_path, log_start_offset=3) as log,
          pytest.raises(CorruptRecordError) as caught):
        log.offset_for_timestamp(MAX_TIMESTAMP)
    assert caught.value.position == size


def test_a_segment_is_before_the_times_after_its_largest(tmp_path: Path) -> None:
    data = encode(Batch(0, 0, [Record(0, 5)], base_timestamp=5, max_timestamp=5))
    (tmp_path / f"{0:020d}.log").write_bytes(data)
    with PartitionLog.open(tmp_path) as log:
        assert [log.segments[0].is_before(timestamp) for timestamp in (4, 5, 6)] == [
            False, False, True]
    (tmp_path / f"{0:020d}.log").write_bytes(data + b"\xff" * 70)
    with PartitionLog.open(tmp_path) as log:
        assert not log.segments[0].is_before(5)
        for ask in (log.segments[0].is_before, log.segments[0].translate_offset):
            with pytest.raises(CorruptRecordError) as caught:
                ask(6)
            assert caught.value.position == len(data)


@pytest.mark.parametrize("count", [0, 2])
def test_a_segment_without_timestamps_has_none_at_its_base(tmp_path: Path, count: int) -> None:
    (tmp_path / f"{7:020d}.log").write_bytes(encode(Batch(
        7, 1, [Record(7, -1), Record(8, -1)], base_timestamp=-1, max_timestamp=-1)) * (count // 2))
    with PartitionLog.open(tmp_path) as log:
        assert log.segments[0].max_timestamp() == (-1, 7)


def test_the_ends_have_the_epochs_of_the_first_and_the_last_record(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(
        encode(Batch(offset, 0, [Record(offset, 5)], base_timestamp=5, max_timestamp=5))
        for offset in range(3)))
    (tmp_path / LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n2\n3 0\n4 2\n")
    with PartitionLog.open(tmp_path) as log:
        assert log.offset_for_timestamp(EARLIEST_TIMESTAMP) == TimestampOffset(-1, 0, 3)
        assert log.offset_for_timestamp(LATEST_TIMESTAMP) == TimestampOffset(-1, 3, 4)
    with PartitionLog.open(tmp_path, log_start_offset=1) as log:
        assert list(log.leader_epochs) == [EpochEntry(3, 1), EpochEntry(4, 2)]
        assert list(log.checkpointed_epochs) == [EpochEntry(3, 0), EpochEntry(4, 2)]
