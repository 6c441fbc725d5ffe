"""Where a log ends, by what follows its last sound batch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog._native.status import Status
from seglog.errors import KafkaStorageError
from seglog.storage.log_tail import LogTail, read_tail
from seglog.storage.partition_log import PartitionLog
from tests.oracle import files
from tests.oracle.batch import Batch, Record, encode


def batch(offset: int, value: bytes = b"v") -> bytes:
    return encode(Batch(offset, 0, [Record(offset, 5, b"k", value)], base_timestamp=5,
                        max_timestamp=5))


def tail(path: Path, data: bytes, *entries: tuple[int, int]) -> LogTail:
    """The tail of a log with these bytes and entries of its offset index."""
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(data)
    (path / f"{0:020d}.index").write_bytes(files.encode_offset_index(entries, 0))
    with PartitionLog.open(path) as log:
        found = read_tail(log.segments[-1])
        assert found.log_end_offset == log.log_end_offset
        return found


THREE = b"".join(map(batch, range(3)))


@pytest.mark.parametrize(("after", "status", "lost"), [
    (b"", Status.END, 0), (batch(3)[:-1], Status.TORN_TAIL, 0), (b"\0" * 100, Status.ZERO_TAIL, 0)])
def test_what_follows_the_last_batch(tmp_path: Path, after: bytes, status: Status, lost: int
                                     ) -> None:
    assert tail(tmp_path / "t-0", THREE + after) == LogTail(3, len(THREE) - lost, status)


@pytest.mark.parametrize(("lost", "end"), [
    (0, 3), (len(batch(2)), 2), (1, None), (len(batch(2)) + 1, None)])
def test_a_preallocated_segment_that_a_broker_trims_meanwhile(tmp_path: Path, lost: int,
                                                              end: int | None) -> None:
    """Its size was 4,096 when it was opened. It may end after any batch, and not inside of one."""
    path = tmp_path / "t-0"
    path.mkdir()
    file = path / f"{0:020d}.log"
    file.write_bytes(THREE + bytes(4096 - len(THREE)))
    with PartitionLog.open(path) as log:
        segment = log.segments[-1]
        with segment.opened() as handle:
            os.truncate(file, len(THREE) - lost)
            assert handle.size == 4096
            if end is None:
                with pytest.raises(KafkaStorageError, match="were announced"):
                    read_tail(segment)
            else:
                assert read_tail(segment) == LogTail(end, len(THREE) - lost, Status.END)


def test_corrupt_bytes_end_at_the_end_of_the_file(tmp_path: Path) -> None:
    bad = bytearray(batch(3) + batch(4))
    bad[-1] ^= 1
    bad[40] ^= 1
    found = tail(tmp_path / "t-0", THREE + bad)
    assert found.status.is_error and (found.log_end_offset, found.end) == (3, len(THREE + bad))


def test_the_last_index_entry_is_where_the_walk_begins(tmp_path: Path) -> None:
    at = len(batch(0)) * 2
    assert tail(tmp_path / "t-0", THREE, (2, at)) == LogTail(3, len(THREE), Status.END)


@pytest.mark.parametrize(("after", "status"), [
    (b"", Status.END), (batch(3)[:20], Status.TORN_TAIL)])
def test_entries_inside_a_batch_are_not_believed(tmp_path: Path, after: bytes, status: Status
                                                 ) -> None:
    """Each value is two sound batches, which the entries chain, followed by bytes that are none."""
    lie, bad = batch(7), batch(8)
    whole = b"".join(batch(n, lie + bad + b"x" * 200) for n in range(3))
    entries = (7, whole.rindex(lie)), (8, whole.rindex(bad))
    assert tail(tmp_path / "t-0", whole + after, *entries) == LogTail(3, len(whole), status)


@pytest.mark.parametrize("looks", [1, 4])
def test_a_batch_that_a_broker_is_writing_is_read_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """It shows half of the batch before the zeros of a preallocated file, for a moment."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(THREE + batch(3)[:62] + bytes(1000))
    pauses: list[float] = []

    def finish(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == looks:
            path.write_bytes(THREE + batch(3) + bytes(1000))

    monkeypatch.setattr("seglog.storage.log_tail.time.sleep", finish)
    with PartitionLog.open(tmp_path) as log:
        assert log.log_end_offset == 4
    assert pauses == [.002] * looks


def test_entries_that_two_walks_agree_on_are_boundaries(tmp_path: Path) -> None:
    """An entry counts if the walk from the one before arrives at a batch that ends at its
    offset."""
    size = len(batch(0))
    (tmp_path / f"{0:020d}.log").write_bytes(THREE)
    for entries, last, behind in (
            ([(1, size), (2, 2 * size)], 2 * size, size),
            ([(2, 2 * size)], 2 * size, 2 * size),
            ([(1, size), (2, 2 * size - 1)], 0, size),
            ([(1, size), (1, 2 * size)], 0, size)):
        (tmp_path / f"{0:020d}.index").write_bytes(files.encode_offset_index(entries, 0))
        with PartitionLog.open(tmp_path) as log:
            segment = log.segments[0]
            assert (segment.locate_last(), segment.boundary_after(1)) == (last, behind)
            assert segment.boundary_after(2 * size + 1) is None


def test_a_log_without_segments_ends_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    (path / "leader-epoch-checkpoint").write_text("0\n0\n")
    with PartitionLog.open(path) as log:
        assert log._view.tail == LogTail(0, 0, Status.END)
        assert (log.log_end_offset, log.last_stable_offset, list(log.batches())) == (0, 0, [])


def test_only_headers_prove_that_a_position_is_inside_a_batch(tmp_path: Path) -> None:
    """A batch whose CRC is wrong is passed on the way, but proves nothing itself."""
    size = len(batch(0))
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0)[:-1] + b"!" + batch(1) + batch(2))
    with PartitionLog.open(tmp_path) as log:
        segment = log.segments[0]
        assert [segment.is_inside_a_batch(position) for position in (
            size - 1, size, size + 1, 2 * size, 3 * size - 1)] == [False, False, True, False, True]
