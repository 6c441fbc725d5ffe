"""Scans ahead of a recovery: what is expected and what is asked, and pools that do not work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from seglog._native.batch import find_batch
from seglog._native.status import Status
from seglog.config import LogConfig
from seglog.errors import KafkaStorageError
from seglog.model import TopicPartition
from seglog.recovery.index_files import OFFSET_ENTRY
from seglog.recovery.scans import Extent, SegmentScans, scan_chunks
from seglog.recovery.segment_recovery import recover_extent
from seglog.storage import salvage
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import ProducerState
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.held import open_files, threads_since

BATCHES, BATCH_BYTES = 40, 177


def log_of(path: Path, first: int = 0) -> Extent:
    data = b"".join(v2.encode(Batch(first + n, 0, [Record(first + n, 5, None, b"v" * 107)],
                                    base_timestamp=5, max_timestamp=5)) for n in range(BATCHES))
    path.write_bytes(data)
    assert len(data) == BATCHES * BATCH_BYTES
    return Extent(str(path), 0, len(data))


@pytest.fixture
def extents(tmp_path: Path) -> list[Extent]:
    return [log_of(tmp_path / f"{n * BATCHES:020d}.log", n * BATCHES) for n in range(6)]


def offsets(scans: SegmentScans, extent: Extent) -> list[int]:
    """The base offsets of all batches, chunk behind chunk."""
    with open(extent.path, "rb") as file:
        found, position, status = [], extent.start, Status.FULL
        for scan in scans.chunks(extent, file.fileno()):
            assert status == Status.FULL and int(scan.batches["position"][0]) == position
            found += scan.batches["base_offset"].tolist()
            position, status = scan.position, Status(scan.status)
        assert (position, status) == (extent.end, Status.END)
    return found


def all_of(number: int) -> list[int]:
    return list(range(number * BATCHES, (number + 1) * BATCHES))


class CountingPool(ThreadPoolExecutor):
    """How many jobs it got."""

    submitted = 0

    def submit(self, *job: Any, **how: Any) -> Future[Any]:
        self.submitted += 1
        return super().submit(*job, **how)


class IdlePool:
    """A pool whose threads are all busy with something else."""

    def submit(self, job: Callable[[], Any], /) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("asked", [
    [0, 1, 2, 3, 4, 5], [0, 2, 5], [3, 1, 5, 0], [1, 1, 2, 1], [5, 4, 3, 2, 1, 0]])
@pytest.mark.parametrize("expected", [[], [0, 1, 2, 3, 4, 5], [2, 4], [5, 0]])
def test_whatever_is_expected_what_is_asked_comes(extents: list[Extent], expected: list[int],
                                                  asked: list[int]) -> None:
    with ThreadPoolExecutor(2) as pool, SegmentScans(pool, 2, chunk_bytes=700) as scans:
        scans.expect(extents[number] for number in expected)
        for number in asked:
            assert offsets(scans, extents[number]) == all_of(number)


def test_one_that_ends_early_does_not_stand_in_the_way(extents: list[Extent]) -> None:
    with ThreadPoolExecutor(2) as pool, SegmentScans(pool, 2, chunk_bytes=400) as scans:
        scans.expect(extents)
        with open(extents[0].path, "rb") as file:
            chunks = scans.chunks(extents[0], file.fileno())
            next(chunks)
        for number in range(1, 6):
            assert offsets(scans, extents[number]) == all_of(number)


def test_a_busy_pool_is_not_waited_for(extents: list[Extent]) -> None:
    with SegmentScans(IdlePool(), 2, chunk_bytes=700) as scans:
        scans.expect(extents)
        assert [offsets(scans, extent) for extent in extents] == [all_of(n) for n in range(6)]


@pytest.mark.parametrize("chunk_bytes", [60, 300])
def test_a_batch_may_be_larger_than_a_piece(extents: list[Extent], chunk_bytes: int) -> None:
    with ThreadPoolExecutor(2) as pool, SegmentScans(pool, 2, chunk_bytes=chunk_bytes) as scans:
        scans.expect(extents[:2])
        assert [offsets(scans, extents[number]) for number in range(2)] == [all_of(0), all_of(1)]


def test_no_batch_is_scanned_twice(extents: list[Extent], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that were cut inside a batch begin with the next one."""
    with ThreadPoolExecutor(2) as pool, SegmentScans(pool, 2, chunk_bytes=700) as scans:
        monkeypatch.setattr("seglog.recovery.scans.scan_chunks", None)
        scans.expect(extents)
        assert [offsets(scans, extent) for extent in extents] == [all_of(n) for n in range(6)]


def test_scans_that_no_caller_consumed_are_cancelled(extents: list[Extent]) -> None:
    """Their log may be deleted next, and its disk is needed for others."""
    submitted: list[Future[Any]] = []

    class Pool(IdlePool):
        def submit(self, job: Callable[[], Any], /) -> Future[Any]:
            submitted.append(super().submit(job))
            return submitted[-1]

    with SegmentScans(Pool(), 2, chunk_bytes=10**6) as scans:
        scans.expect(extents)
        assert offsets(scans, extents[1]) == all_of(1)
    assert len(submitted) == 6 and all(one.cancelled() for one in submitted)


def test_a_caller_may_be_a_task_of_the_pool(extents: list[Extent]) -> None:
    with ThreadPoolExecutor(1) as pool:
        def job() -> list[int]:
            with SegmentScans(pool, 1, chunk_bytes=700) as scans:
                scans.expect(extents[:1])
                return offsets(scans, extents[0])

        assert pool.submit(job).result(timeout=60) == all_of(0)


def test_only_a_few_pieces_are_ahead(extents: list[Extent]) -> None:
    asked: list[int] = []

    def endless() -> Iterator[Extent]:
        for number in range(10**9):
            asked.append(number)
            yield extents[number % 6]

    with CountingPool(2) as pool, SegmentScans(pool, 2, chunk_bytes=10**6) as scans:
        scans.expect(endless())
        assert (len(asked), pool.submitted) == (7, 6)
        assert offsets(scans, extents[0]) == all_of(0)
        assert (len(asked), pool.submitted) == (8, 7)


def test_what_is_wrong_with_a_later_log_is_met_in_its_turn(extents: list[Extent]) -> None:
    def failing() -> Iterator[Extent]:
        yield extents[0]
        raise KafkaStorageError(5, "it cannot be looked at", "x")

    with ThreadPoolExecutor(2) as pool, SegmentScans(pool, 2) as scans:
        scans.expect(failing())
        assert offsets(scans, extents[0]) == all_of(0)
        scans.expect([extents[0], Extent(extents[0].path + "-gone", 0, 1000), extents[1]])
        assert offsets(scans, extents[0]) == all_of(0)
        assert offsets(scans, extents[1]) == all_of(1)


def test_without_a_pool_nothing_runs_beside_the_caller(extents: list[Extent]) -> None:
    before = set(threading.enumerate())
    with SegmentScans(chunk_bytes=700) as scans:
        scans.expect(iter([]))
        scans.expect(extents)
        assert offsets(scans, extents[2]) == all_of(2)
        assert not threads_since(before)


@pytest.mark.parametrize("chunk_bytes", [1, 176, 177, 178, 1000, 10**6])
def test_chunks_are_whole_batches(extents: list[Extent], chunk_bytes: int) -> None:
    with open(extents[0].path, "rb") as file:
        found = list(scan_chunks(file.fileno(), 0, extents[0].end, chunk_bytes=chunk_bytes))
        assert sum(scan.batch_count for scan in found) == BATCHES
        assert all(scan.status == Status.FULL for scan in found[:-1])
        for end in (400, 3 * BATCH_BYTES):
            until = list(islice(scan_chunks(file.fileno(), BATCH_BYTES, extents[0].end, until=end,
                                            chunk_bytes=chunk_bytes), BATCHES))
            assert sum(scan.batch_count for scan in until) == 2 and until[-1].batch_count
            assert (until[-1].status, until[-1].position) == (Status.FULL, 3 * BATCH_BYTES)


def test_find_batch(extents: list[Extent]) -> None:
    end = extents[0].end
    with open(extents[0].path, "rb") as file:
        for start in range(0, 3 * BATCH_BYTES):
            place = -(-start // BATCH_BYTES) * BATCH_BYTES
            assert find_batch(file.fileno(), start, end, end) == place
            assert find_batch(file.fileno(), start, place, end) is None or place == start
        assert find_batch(file.fileno(), end - 10, end, end) is None
        with pytest.raises(ValueError, match="before the file"):
            find_batch(file.fileno(), -1, end, end)


class ListeningPool(ThreadPoolExecutor):
    """The pieces that it was given."""

    def __init__(self) -> None:
        super().__init__(2)
        self.pieces: list[tuple[str, int, int]] = []

    def submit(self, job: Any, /) -> Future[Any]:  # type: ignore[override]
        piece = job.__self__
        self.pieces.append((piece.extent.path, piece.start, piece.until))
        return super().submit(job)


def pieces_of(extents: list[Extent], chunk_bytes: int) -> list[tuple[str, int, int]]:
    with ListeningPool() as pool, SegmentScans(pool, 2, chunk_bytes=chunk_bytes) as scans:
        scans.expect(extents)
        assert [offsets(scans, extent) for extent in extents] == [
            all_of(number) for number in range(len(extents))]
        return pool.pieces


def test_only_the_end_of_all_is_cut_small(extents: list[Extent],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.recovery.scans._PIECE_BYTES_MIN", 500)
    pieces = pieces_of(extents[:2], 3000)
    sizes = [[until - start for path, start, until in pieces if path == extent.path]
             for extent in extents[:2]]
    assert sizes[0] == [3000, 4080]
    assert sizes[1] == [3000, 2040, 1020, 510, 510]
    assert all(sum(found) == BATCHES * BATCH_BYTES for found in sizes)


def test_small_batches_make_small_pieces(extents: list[Extent],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no piece has more of them than one chunk takes: the rest would be scanned alone."""
    monkeypatch.setattr("seglog.recovery.scans._PIECE_BYTES_MIN", 500)
    monkeypatch.setattr("seglog.recovery.scans._BATCHES_PER_CHUNK", 12)
    pieces = pieces_of(extents[:1], 10**6)
    assert max(until - start for _, start, until in pieces) <= 12 * BATCH_BYTES
    assert sum(until - start for _, start, until in pieces) == BATCHES * BATCH_BYTES


def test_no_index_is_open_while_its_pieces_wait(extents: list[Extent]) -> None:
    index = Path(extents[0].path).with_suffix(".index")
    index.write_bytes(b"".join(OFFSET_ENTRY.pack(n, n * BATCH_BYTES) for n in range(1, 100_000)))
    with SegmentScans(IdlePool(), 2, chunk_bytes=700) as scans:
        scans.expect(extents[:1])
        assert str(index) not in open_files(index.parent)


@pytest.mark.parametrize("first", [0, 1, 20, 39])
def test_an_extent_that_begins_inside_a_file_has_no_index(
        extents: list[Extent], first: int) -> None:
    rest = Extent(extents[0].path, first * BATCH_BYTES, extents[0].end)
    with ThreadPoolExecutor(2) as pool, SegmentScans(pool, 2, chunk_bytes=700) as scans:
        scans.expect([rest])
        assert offsets(scans, rest) == all_of(0)[first:]


class OutOfMemory:
    """A scan that ended where native code got no memory."""

    status = Status.NO_MEMORY

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def raise_for_status(self, file: str) -> None:
        raise MemoryError(file)


def test_a_recovery_without_memory_cuts_nothing(extents: list[Extent]) -> None:
    class Scans(SegmentScans):
        def chunks(self, extent: Extent, fd: int) -> Iterator[Any]:
            return map(OutOfMemory, super().chunks(extent, fd))

    with pytest.raises(MemoryError), Scans() as scans:
        recover_extent(0, extents[0], LogConfig(), ProducerState(TopicPartition("t", 0), 0),
                       scans=scans)


def test_a_read_past_damage_without_memory_loses_nothing(
        extents: list[Extent], monkeypatch: pytest.MonkeyPatch) -> None:
    Path(extents[0].path).write_bytes(bytes(50))
    found = salvage.scan_file

    def scanned(*arguments: Any, **how: Any) -> Any:
        return OutOfMemory(found(*arguments, **how))

    monkeypatch.setattr(salvage, "scan_file", scanned)
    with PartitionLog.open(Path(extents[0].path).parent) as log, pytest.raises(MemoryError):
        log.end_offset(on_damage="skip")
