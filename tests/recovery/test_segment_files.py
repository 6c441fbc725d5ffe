"""The files of one segment as a loader truncates them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from seglog.config import LogConfig
from seglog.model import AbortedTxn, TimestampOffset, TopicPartition
from seglog.recovery.disk import RealDisk
from seglog.recovery.index_files import OFFSET_ENTRY, TIME_ENTRY
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.recovery.next_offset import _BATCHES_PER_CHUNK
from seglog.recovery.partition_plan import LoadLevel, check_partition
from seglog.recovery.segment_files import SegmentFiles
from seglog.recovery.segment_recovery import recover_extent
from seglog.storage.producer_state import ProducerState
from seglog.storage.txn_entries import encode_entries
from tests.log.test_fast_path import batch


@pytest.mark.parametrize(("indexed", "largest"), [
    ((4, 0), (5, 1)), ((5, 0), (5, 0)), ((6, 0), (6, 0))])
def test_a_batch_is_the_largest_only_if_its_timestamp_is_above_the_indexed_one(
        tmp_path: Path, indexed: tuple[int, int], largest: tuple[int, int]) -> None:
    """LogSegment.loadLargestTimestamp, after truncateTo."""
    data = batch(2, timestamp=4)
    (tmp_path / f"{0:020d}.log").write_bytes(data + batch(2, timestamp=9))
    (tmp_path / f"{0:020d}.index").touch()
    (tmp_path / f"{0:020d}.timeindex").write_bytes(TIME_ENTRY.pack(*indexed))
    segment = SegmentFiles(RealDisk(str(tmp_path)), 0, LogConfig())
    segment.truncate_log(len(data))
    assert segment.max_timestamp() == TimestampOffset(*largest)
    assert (tmp_path / f"{0:020d}.log").read_bytes() == data


def test_of_equal_timestamps_the_first_is_the_largest(tmp_path: Path) -> None:
    """LogSegment.loadLargestTimestamp, after truncateTo; also over many batches."""
    one, count = batch(2, timestamp=4), _BATCHES_PER_CHUNK + 3
    whole = np.tile(np.frombuffer(one, np.uint8), (count, 1))
    whole[:, :8] = (2 * np.arange(count)).astype(">i8").view(np.uint8).reshape(count, 8)
    whole.tofile(tmp_path / f"{0:020d}.log")
    segment = SegmentFiles(RealDisk(str(tmp_path)), 0, LogConfig())
    segment.open_indexes()
    segment.max_seen = TimestampOffset(5, 1)
    segment.truncate_log(whole.size - len(one))
    assert segment.max_timestamp() == TimestampOffset(5, 1)


@pytest.mark.parametrize("timestamp", [-1, 0, 1])
def test_a_segment_without_timestamps_is_as_old_as_its_log(tmp_path: Path, timestamp: int) -> None:
    """LogSegment.largestTimestamp; 0 is a timestamp."""
    (tmp_path / f"{0:020d}.log").touch()
    os.utime(tmp_path / f"{0:020d}.log", (5, 5))
    (tmp_path / f"{0:020d}.timeindex").write_bytes(TIME_ENTRY.pack(timestamp, 0))
    segment = SegmentFiles(RealDisk(str(tmp_path)), 0, LogConfig())
    assert segment.largest_timestamp() == (5000 if timestamp < 0 else timestamp)


def test_positions_are_bytes_of_the_log_also_in_a_part_of_a_file(tmp_path: Path) -> None:
    """A dry run splits a segment without copying it."""
    one = batch(2)
    log, whole = f"{4:020d}.log", f"{0:020d}.log"
    (tmp_path / whole).write_bytes(b"".join(
        offset.to_bytes(8, "big") + one[8:] for offset in (0, 2, 4, 6)))
    overlay = RealDisk(str(tmp_path)).overlay()
    overlay.copy(whole, 2 * len(one), 4 * len(one), log)
    segment = SegmentFiles(overlay, 4, LogConfig())
    assert segment.extent.start == 2 * len(one)
    assert [segment.find(offset) for offset in (4, 5, 6, 7, 8)] == [
        (4, 0), (4, 0), (6, len(one)), (6, len(one)), None]
    assert segment.read_next_offset() == 8
    overlay.copy(whole, 2 * len(one), 4 * len(one) - 1, log)
    segment = SegmentFiles(overlay, 4, LogConfig())
    recovery = recover_extent(4, segment.extent, LogConfig(),
                              ProducerState(TopicPartition("t", 0), 0))
    segment.take(recovery, sync=False, index_last=False)
    assert segment.size == overlay.size(log) == len(one)


def test_a_segment_with_room_in_its_indexes_stays_an_object(tmp_path: Path) -> None:
    """Only the object knows how many entries count, also if its largest timestamp is known and in
    the time index: in the file the room looks like entries."""
    (tmp_path / f"{0:020d}.log").write_bytes(batch(2, timestamp=4))
    (tmp_path / f"{0:020d}.index").touch()
    (tmp_path / f"{0:020d}.timeindex").write_bytes(TIME_ENTRY.pack(4, 1))
    segments = LoadedSegments(RealDisk(str(tmp_path)), LogConfig(),
                              check_partition(str(tmp_path), LoadLevel.KAFKA).segments)
    segment = segments.get(0)
    segment.resize_indexes()
    assert segment.max_timestamp() == TimestampOffset(4, 1)
    segments.release(segment)
    assert segments.get(0) is segment
    segment.close()
    segments.release(segment)
    assert segments.held == [] and segments.get(0).time_index.entries == 1


def test_a_segment_that_is_an_object_again_has_the_same_indexes_open(tmp_path: Path) -> None:
    """And knows its largest timestamp only if that was asked for."""
    (tmp_path / f"{0:020d}.log").write_bytes(batch(2, timestamp=4))
    (tmp_path / f"{0:020d}.index").touch()
    (tmp_path / f"{0:020d}.timeindex").write_bytes(TIME_ENTRY.pack(4, 1))
    segments = LoadedSegments(RealDisk(str(tmp_path)), LogConfig(),
                              check_partition(str(tmp_path), LoadLevel.KAFKA).segments)
    segments.release(segments.get(0))
    segment = segments.get(0)
    assert segment.max_seen is None
    assert not segment.offset_index.is_open and not segment.time_index.is_open
    segment.offset_index.open()
    segments.release(segment)
    segment = segments.get(0)
    assert segment.offset_index.is_open and not segment.time_index.is_open
    segment.max_timestamp()
    segments.release(segment)
    segment = segments.get(0)
    assert segment.offset_index.is_open and segment.max_seen == TimestampOffset(4, 1)


def test_a_segment_that_is_added_has_the_sizes_of_its_indexes(tmp_path: Path) -> None:
    """Of which one is missing."""
    (tmp_path / f"{0:020d}.log").touch()
    segments = LoadedSegments(RealDisk(str(tmp_path)), LogConfig(),
                              check_partition(str(tmp_path), LoadLevel.KAFKA).segments)
    for base, suffix in ((0, "index"), (3, "timeindex")):
        (tmp_path / f"{base:020d}.{suffix}").write_bytes(bytes(24))
        segments.add(SegmentFiles(RealDisk(str(tmp_path)), base, LogConfig()))
    assert segments.index_size.tolist() == [24, -1]
    assert segments.time_index_size.tolist() == [-1, 24]
    assert not segments.get(0).offset_index.is_open and not segments.get(3).offset_index.is_open


def test_a_truncation_cuts_all_indexes(tmp_path: Path) -> None:
    """LogSegment.truncateTo: an aborted transaction that comes later must not stay."""
    stays, goes = AbortedTxn(7, 0, 4, 5), AbortedTxn(8, 2, 9, 10)
    for suffix, data in (
            ("log", b""), ("index", OFFSET_ENTRY.pack(4, 10) + OFFSET_ENTRY.pack(9, 20)),
            ("timeindex", TIME_ENTRY.pack(50, 4) + TIME_ENTRY.pack(60, 9)),
            ("txnindex", encode_entries([stays, goes]))):
        (tmp_path / f"{0:020d}.{suffix}").write_bytes(data)
    segment = SegmentFiles(RealDisk(str(tmp_path)), 0, LogConfig())
    segment.truncate_indexes(9)
    assert (segment.offset_index.entries, segment.time_index.entries) == (1, 1)
    assert (tmp_path / f"{0:020d}.txnindex").read_bytes() == encode_entries([stays])


@pytest.mark.parametrize(("size", "known"), [(30, 30), (10, 10), (40, 30), (None, 30)])
def test_a_log_holds_what_is_known_and_there(
        tmp_path: Path, size: int | None, known: int) -> None:
    """A preallocated file is longer than its records."""
    disk = RealDisk(str(tmp_path))
    assert SegmentFiles(disk, 0, LogConfig()).size == 0, "there is no file yet"
    disk = RealDisk(str(tmp_path))
    (tmp_path / f"{0:020d}.log").write_bytes(bytes(30))
    assert SegmentFiles(disk, 0, LogConfig(), size=size).extent.size == known
