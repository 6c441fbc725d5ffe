"""The batches from which a load reads the producers (UnifiedLog.rebuildProducerState)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.model import TopicPartition
from seglog.recovery.disk import RealDisk
from seglog.recovery.loaded_segments import LoadedSegments
from seglog.recovery.loader_failures import LoaderFailure
from seglog.recovery.loading_producers import LoadingProducers, rebuild_producers
from seglog.recovery.open_log import load_log
from seglog.recovery.partition_plan import LoadLevel, check_partition
from seglog.recovery.snapshot_files import SnapshotNames, Snapshots
from tests.log.test_fast_path import batch
from tests.recovery.test_disks import Ears
from tests.recovery.test_log_loader import CONFIG, at, inputs, written
from tests.recovery.test_next_offset import SHORT


def sent(*offsets: int) -> bytes:
    """A batch of two records at each offset, by the producer of that number."""
    return b"".join(offset.to_bytes(8, "big") + batch(2, producer=offset, sequence=0)[8:]
                    for offset in offsets)


@pytest.mark.parametrize(("last", "found"), [
    (b"", set()), ((2).to_bytes(8, "big") + sent(0)[8:], {"snapshot-missing"})],
    ids=["without", "with a producer"])
def test_a_missing_snapshot_is_one_of_the_last_segment(
        tmp_path: Path, last: bytes, found: set[str]) -> None:
    """A clean shutdown writes none for a segment that begins without producers."""
    path = written(tmp_path / "t-0", {0: sent(0), 2: last or at(2)})
    ears = Ears()
    load_log(str(path), inputs(clean=True), listener=ears).close()
    assert {one.code for one in ears.found} == found


def producers(path: Path, start: int, end: int, limit: int | None, before: int = 0) -> list[int]:
    """The producers of a log without snapshots that begins at `start`; there were none up to
    `before`."""
    disk = RealDisk(str(path))
    segments = LoadedSegments(disk, CONFIG, check_partition(str(path), LoadLevel.KAFKA).segments)
    found = LoadingProducers(TopicPartition("t", 0), Snapshots(
        disk, SnapshotNames(), SnapshotNames(), lambda finding: None), None, lambda: 0)
    found.state.map_end_offset = before
    rebuild_producers(found, segments, start, end, limit=limit)
    assert not segments.held, "there is an object for no segment that was read"
    return sorted(one.producer_id for one in found.state.entries)


@pytest.mark.parametrize(("start", "end", "expected"), [
    (0, 8, [0, 2, 4, 6]), (0, 6, [0, 2, 4]), (0, 4, [0, 2]), (2, 8, [2, 4, 6]), (6, 8, [6]),
    (6, 7, [])])  # the batch that holds the end is not read
def test_producers_are_those_between_the_start_and_the_end(
        tmp_path: Path, start: int, end: int, expected: list[int]) -> None:
    path = written(tmp_path / "t-0", {0: sent(0, 2), 4: sent(4, 6)})
    assert producers(path, start, end, None) == expected


@pytest.mark.parametrize(("before", "expected"), [(5, [0, 2, 4]), (6, []), (8, [])])
def test_a_log_is_not_read_for_a_state_that_had_no_producers(
        tmp_path: Path, before: int, expected: list[int]) -> None:
    """UnifiedLog.rebuildProducerState, of a truncation: expired ones do not come back."""
    path = written(tmp_path / "t-0", {0: sent(0, 2), 4: sent(4, 6)})
    assert producers(path, 0, 6, None, before) == expected


def test_a_header_that_ends_after_the_log_is_read_in_a_slice(tmp_path: Path) -> None:
    """UnifiedLog.rebuildProducerState reads the segment from the state's end on."""
    path = written(tmp_path / "t-0", {0: sent(0) + SHORT, 4: sent(4)})
    size = (path / f"{0:020d}.log").stat().st_size
    with pytest.raises(LoaderFailure, match=f"size={size}, file=.*, start=0, end={size}"):
        producers(path, 0, 8, None)


def test_producers_before_a_segment_are_those_below_its_base(tmp_path: Path) -> None:
    """Also if the segment before it has later offsets."""
    path = written(tmp_path / "t-0", {0: sent(0, 2, 4), 4: sent(6)})
    assert producers(path, 0, 4, 4) == [0, 2]


def test_an_end_that_a_wrong_index_finds_before_the_start_ends_the_load(tmp_path: Path) -> None:
    """FileRecords.slice, from UnifiedLog.rebuildProducerState."""
    path = written(tmp_path / "t-0", {0: sent(0, 2, 4, 6)})
    size = len(sent(0))
    (path / f"{0:020d}.index").write_bytes(struct.pack(">4i", 4, 3 * size, 5, 0))
    with pytest.raises(LoaderFailure, match=f"Invalid size: {-size} in read from"):
        producers(path, 4, 5, None)
