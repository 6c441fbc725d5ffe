"""Segments that are checked at first use (KIP-263), each once, by any thread.

After a clean shutdown a broker can start before the inactive segments of a log are checked. A
background thread checks them, or the first thread that uses one. If a segment is damaged, all
segments before it are checked too, and the damaged ones are recovered before any other thread may
use the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from seglog.forks import ProcessBound, ending
from seglog.storage.segment_table import SegmentTable

__all__ = ["CHUNK_SEGMENTS", "DeferredChecks"]

#: Segments that a background thread checks at a time.
CHUNK_SEGMENTS = 1024

_UNCHECKED, _CHECKING, _DAMAGED, _CHECKED = range(4)


class DeferredChecks(ProcessBound):
    """Which segments of one log are checked. Safe from any thread.

    `check(start, stop)` checks the rows [start, stop) and returns those that need a recovery;
    `recover(rows)` recovers them, ascending. An exception of either ends the checks: this thread
    and every later one get it.
    """

    def __init__(self, base_offsets: npt.NDArray[np.int64], checked: npt.NDArray[np.bool_],
                 check: Callable[[int, int], Sequence[int]],
                 recover: Callable[[Sequence[int]], None], *,
                 holds_lock: Callable[[], bool] = lambda: False) -> None:
        """`holds_lock` says whether this thread has the lock that `check` and `recover` take."""
        self._segments = SegmentTable(base_offsets)
        self._check, self._recover, self._holds_lock = check, recover, holds_lock
        # A byte for each segment. All fields are used under the lock, except the test whether one
        # segment is done.
        self._states = bytearray(np.where(checked, _CHECKED, _UNCHECKED).astype(np.uint8))
        self._damaged: set[int] = set()
        self._repairing: int | None = None  # the repairing thread; all others wait
        self._error: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()

    # ---- questions

    @property
    def remaining(self) -> int:
        """The number of segments that are not completely checked."""
        with self._changed:
            return len(self._states) - self._states.count(_CHECKED)

    # ---- checks

    def ensure_offset(self, offset: int) -> None:
        """Called before a thread uses the segment that holds `offset`: it is sound on return."""
        self.ensure_rows(*self._row(offset))

    def ensure_range(self, start: int, end: int) -> None:
        """The same for all segments from the one that holds `start` to the one that holds `end`."""
        self.ensure_rows(self._row(start)[0], self._row(end)[1])

    def dismiss(self, base_offsets: Iterable[int]) -> None:
        """Skips segments that are gone: files that later get their names did not exist at the
        load."""
        with self._changed:
            for base in base_offsets:
                if base in self._segments:
                    row = self._segments.row(base)
                    if self._states[row] == _UNCHECKED:
                        self._states[row] = _CHECKED  # no thread waits for an unclaimed row

    def _row(self, offset: int) -> tuple[int, int]:
        row = max(self._segments.floor_row(offset), 0)
        return row, min(row + 1, len(self._states))

    def ensure_all(self) -> None:
        """Checks all segments: before a thread uses the whole log, and in the background."""
        self.ensure_rows(0, len(self._states))

    def ensure_rows(self, start: int, stop: int) -> None:
        """Checks the unchecked rows of [start, stop), and waits for those that other threads check.

        Raises the exceptions of a check or a recovery, made now or earlier.
        """
        if self._repairing is None and self._states.count(_CHECKED, start, stop) == stop - start:
            return
        if self._holds_lock():
            self._ensure_now(start, stop)
            return
        while True:
            with self._changed:
                claimed = self._next(start, stop)
                if claimed is None:
                    return
            self._check_claimed(*claimed)

    def _ensure_now(self, start: int, stop: int) -> None:
        """The same for a thread that has the log's lock. It does not wait for other threads, which
        may wait for the lock: it checks their rows too, and no recovery runs without the lock."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._stopped or self._repairing == threading.get_ident():
                return
        with self._ended_by_errors():
            rows = self._unchecked(start, stop)
            damaged = {found for row in rows for found in self._check(row, row + 1)}
            if damaged:
                earlier = self._unchecked(0, max(damaged))
                damaged |= {found for row in earlier for found in self._check(row, row + 1)}
                rows += earlier
                self._recover(sorted(damaged))
        with self._changed:
            for row in rows:
                self._states[row] = _CHECKED
            self._damaged.difference_update(rows)
            self._changed.notify_all()

    def _unchecked(self, start: int, stop: int) -> list[int]:
        with self._changed:
            return [row for row in range(start, stop) if self._states[row] != _CHECKED]

    def _next(self, start: int, stop: int) -> tuple[int, int] | None:
        """Claims rows for this thread, waiting until it may; None if all are sound."""
        while True:
            if self._error is not None:
                raise self._error
            if self._repairing == threading.get_ident():
                return None  # a recovery reads the segments that it repairs
            if self._repairing is None:
                claimed = self._claim(start, stop)
                if claimed is not None or self._stopped:
                    return claimed
                if self._states.count(_CHECKED, start, stop) == stop - start:
                    return None
            self._changed.wait()

    def _claim(self, start: int, stop: int) -> tuple[int, int] | None:
        if self._stopped:
            return None
        first = self._states.find(_UNCHECKED, start, stop)
        if first < 0:
            return None
        end = min(stop, first + CHUNK_SEGMENTS)
        if self._states.count(_UNCHECKED, first, end) < end - first:
            end = next(row for row in range(first, end) if self._states[row] != _UNCHECKED)
        self._states[first:end] = bytes([_CHECKING]) * (end - first)
        return first, end

    def _check_claimed(self, start: int, stop: int) -> None:
        """Checks claimed rows; if any is damaged, returns only after the repair."""
        self._check_rows(start, stop)
        with self._changed:
            # The repairing thread also takes the damage found here, unless it has passed these
            # rows.
            while self._damaged and self._repairing is not None and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if not self._damaged:
                return
            self._repairing = threading.get_ident()
        try:
            with self._ended_by_errors():
                self._repair()
        finally:
            with self._changed:
                self._repairing = None
                self._changed.notify_all()

    def _check_rows(self, start: int, stop: int) -> None:
        with self._ended_by_errors():
            damaged = set(self._check(start, stop))
        with self._changed:
            self._states[start:stop] = bytes([_CHECKED]) * (stop - start)
            for row in damaged:
                self._states[row] = _DAMAGED
            self._damaged |= damaged
            self._changed.notify_all()

    def _repair(self) -> None:
        """Checks everything before the last damaged segment, then repairs all damage."""
        while True:
            with self._changed:
                if not self._damaged or self._stopped:
                    return
                last = max(self._damaged)
                claimed = self._claim(0, last)
                if claimed is None and self._states.find(_CHECKING, 0, last) >= 0:
                    self._changed.wait()  # another thread is about to report its result
                    continue
                rows = sorted(self._damaged)
            if claimed is not None:
                self._check_rows(*claimed)
                continue
            self._recover(rows)
            with self._changed:
                for row in rows:
                    self._states[row] = _CHECKED
                self._damaged.difference_update(rows)

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            raise

    @ending
    def stop(self) -> None:
        """Ends the checks when the log closes: no check begins any more, and no recovery runs on
        return.

        Unchecked segments are left to the next start.
        """
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            while self._repairing not in (None, threading.get_ident()):
                self._changed.wait()
