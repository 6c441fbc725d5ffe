"""Scans logs ahead of a recovery, in parallel.

Scans (CRCs, the facts of every batch) are independent, so segments and pieces of one segment are
scanned in a pool, without the GIL. A piece counts only if the batches before it end exactly where
it begins; otherwise its bytes are scanned again from their real start. So the result is that of one
sequential scan, whatever the bytes are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from seglog._native.batch import BatchScan, find_batch, scan_file
from seglog._native.index import OffsetIndexView
from seglog._native.status import Status
from seglog.closed_by_with import ClosedByWith
from seglog.errors import SeglogError
from seglog.recovery.loader_failures import FileVanished, LoaderFailure
from seglog.recovery.next_offset import opened_log

__all__ = ["CHUNK_BYTES", "Extent", "ScanPool", "SegmentScans", "scan_chunks"]

#: Maximum bytes of a piece, and of a step of a scan without a pool: some ms, much more than the
#: handover of a result between threads (0.2 ms).
CHUNK_BYTES = 128 << 20
#: Minimum bytes of a piece at the end of the expected logs, where threads would wait for the last
#: piece.
_PIECE_BYTES_MIN = 16 << 20
#: The facts of a batch take 80 bytes, so a chunk of small batches ends sooner.
_BATCHES_PER_CHUNK = 131072
#: How many batches are sampled for their average size.
_SAMPLE_BATCHES = 64
#: Pieces per thread of the pool that are being scanned or wait to be consumed.
_AHEAD_PER_THREAD = 3


class ScanPool(Protocol):
    """An executor of scans: a WorkerPool."""

    def submit(self, job: Any, /) -> Future[Any]:
        """Runs `job()` in some thread."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes [start, end) of a log file: a segment, or the part of one after a split."""

    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.end - self.start


def scan_chunks(fd: int, start: int, end: int, *, until: int | None = None,
                chunk_bytes: int = CHUNK_BYTES) -> Iterator[BatchScan]:
    """Scans the log in [start, end) with CRCs, chunk by chunk, each where the last one ended.

    All but the last have the status FULL. With `until`, ends at the first batch that begins there
    or later.
    """
    position, stop = start, end if until is None else until
    while True:
        scan = scan_file(fd, position, end, until=min(position + chunk_bytes, stop),
                         max_batches=_BATCHES_PER_CHUNK)
        yield scan
        position = scan.position
        if scan.status != Status.FULL or position >= stop:
            return


@dataclass(slots=True)
class _Piece:
    """Batches that begin in [start, until) of an extent, and their scan in the pool."""

    extent: Extent
    start: int
    until: int
    future: Future[tuple[int, BatchScan] | None] | None = None

    def run(self) -> tuple[int, BatchScan] | None:
        """(where it begins, its scan); None if no batch begins in it."""
        start: int | None = self.start
        try:
            with opened_log(self.extent.path) as fd:
                if self.start != self.extent.start:
                    start = find_batch(fd, self.start, self.until, self.extent.end)
                if start is None:
                    return None
                return start, scan_file(fd, start, self.extent.end, until=self.until,
                                        max_batches=_BATCHES_PER_CHUNK)
        except (FileVanished, LoaderFailure):
            return None  # the consumer of the piece gets the error again

    def cancel(self) -> None:
        """Drops the result. A running scan ends with its chunk."""
        if self.future is not None:
            self.future.cancel()

    def result(self) -> tuple[int, BatchScan] | None:
        """The result. Runs the scan in this thread if no thread of the pool has begun it."""
        if self.future is None or self.future.cancel():
            return self.run()
        return self.future.result()


class SegmentScans(ClosedByWith):
    """The scans of one recovery, for one thread at a time; a context manager.

    Without an `executor` (a ScanPool) all scans run in the caller's thread. With one, up to three
    pieces for each of its `threads` are scanned ahead, whatever the log's size. The caller may be a
    task of the same executor: it never waits for a task that has not begun.
    """

    def __init__(self, executor: ScanPool | None = None, threads: int = 1, *,
                 chunk_bytes: int = CHUNK_BYTES) -> None:
        self._executor, self._threads, self._chunk_bytes = executor, threads, chunk_bytes
        self._most_ahead = _AHEAD_PER_THREAD * threads
        self._current: Extent | None = None
        self._passed: Extent | None = None  # its remaining pieces are unwanted
        self._pieces: Iterator[_Piece] = iter(())
        self._ahead: deque[_Piece] = deque()

    def close(self) -> None:
        """Drops the expected extents, and every scan that was not consumed."""
        self.expect(())

    def expect(self, extents: Iterable[Extent]) -> None:
        """Sets the extents that will be requested next, in this order; replaces earlier ones.

        They are consumed lazily, when their turn to be scanned ahead comes.
        """
        self._current = self._passed = None
        self._begin(self._split_all(extents))

    def _begin(self, pieces: Iterator[_Piece]) -> None:
        for piece in self._ahead:
            piece.cancel()
        self._ahead.clear()
        self._pieces = pieces
        self._fill()

    def chunks(self, extent: Extent, fd: int) -> Iterator[BatchScan]:
        """`scan_chunks` of the extent, whose file is also open as `fd`."""
        if self._executor is None:
            return scan_chunks(fd, extent.start, extent.end, chunk_bytes=self._chunk_bytes)
        return self._joined(extent, fd)

    def _joined(self, extent: Extent, fd: int) -> Iterator[BatchScan]:
        position = extent.start
        for piece in self._pieces_of(extent):
            if position >= piece.until:
                continue  # one batch covers all of it
            found = piece.result()
            if found is not None and found[0] == position:
                yield found[1]
                position = found[1].position
                if found[1].status != Status.FULL:
                    return
            if position < piece.until:
                for scan in scan_chunks(fd, position, extent.end, until=piece.until,
                                        chunk_bytes=self._chunk_bytes):
                    yield scan
                position = scan.position
                if scan.status != Status.FULL:
                    return

    def _pieces_of(self, extent: Extent) -> Iterator[_Piece]:
        """All pieces of an extent, while the pool continues with the next ones."""
        self._passed, self._current = self._current, extent
        if self._passed == extent:
            self._passed = None
        while self._ahead and self._ahead[0].extent == self._passed:
            self._ahead.popleft().cancel()
        self._fill()
        if all(piece.extent != extent for piece in self._ahead):
            # Another extent than expected; the expected one may still be requested later.
            self._begin(chain(self._split(extent, is_last=True), self._pieces))
        while True:
            piece = self._ahead.popleft()
            if piece.extent != extent:
                piece.cancel()
                continue
            self._fill()
            yield piece
            if piece.until == extent.end:
                return

    def _fill(self) -> None:
        """Submits enough pieces for each thread of the pool."""
        while self._executor is not None and len(self._ahead) < self._most_ahead:
            try:
                piece = next(self._pieces, None)
            except (SeglogError, OSError, LoaderFailure, FileVanished):
                # Errors of a later segment are reported when its turn comes.
                piece = None
            if piece is None:
                return
            if piece.extent != self._passed:
                piece.future = self._executor.submit(piece.run)
                self._ahead.append(piece)

    def _split_all(self, extents: Iterable[Extent]) -> Iterator[_Piece]:
        held = None
        for extent in extents:
            if held is not None:
                yield from self._split(held, is_last=False)
            held = extent
        if held is not None:
            yield from self._split(held, is_last=True)

    def _split(self, extent: Extent, *, is_last: bool) -> Iterator[_Piece]:
        """The pieces of an extent, smaller towards the end of the last one, at positions where the
        log's index names a batch.

        Any position is allowed, because a scan searches the first batch of its piece. So a wrong
        index does no harm.
        """
        least = min(self._chunk_bytes, _PIECE_BYTES_MIN)
        start, left, most = extent.start, extent.size, self._chunk_bytes
        if left > least * 3 // 2:
            most = min(most, _fitting(extent))
        index: OffsetIndexView | None = None
        while left > (min(least, most) if is_last else most) * 3 // 2:
            size = min(most, max(left // self._threads, least)) if is_last else most
            if index is None and extent.start == 0:
                index = OffsetIndexView(os.path.splitext(extent.path)[0] + ".index", 0)
            until = start + size
            if index is not None:
                until = _indexed(index, until, min(until + size // 4, extent.end))
            yield _Piece(extent, start, until)
            start, left = until, extent.end - until
        yield _Piece(extent, start, extent.end)


def _fitting(extent: Extent) -> int:
    """Bytes of the extent whose batches fit a chunk, estimated from its first batches."""
    try:
        with opened_log(extent.path) as fd:
            scan = scan_file(fd, extent.start, extent.end, check_crcs=False,
                             max_batches=_SAMPLE_BATCHES)
    except (FileVanished, LoaderFailure):
        return CHUNK_BYTES  # the consumer of its pieces gets the error again
    if not scan.batch_count:
        return CHUNK_BYTES
    return (scan.position - extent.start) // scan.batch_count * _BATCHES_PER_CHUNK * 3 // 4


def _indexed(index: OffsetIndexView, position: int, end: int) -> int:
    """The first indexed position in [position, end), or `position`."""
    try:
        found = index.upper_bound(position)
        index.close()
    except SeglogError:
        return position
    return found[1] if found is not None and position <= found[1] < end else position
