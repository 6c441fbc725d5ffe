"""Segments that are checked when somebody needs them (KIP-263), each once, whoever comes.

After a clean shutdown the inactive segments of a log need not be looked at before a broker works.
They are checked by a background thread, or by the first thread that touches one. Where a segment
turns out damaged, all segments before it are checked too, and those that failed are recovered,
before any other thread may use the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from seglog.forks import ProcessBound, ending

__all__ = ["CHUNK_SEGMENTS", "DeferredChecks"]

#: Segments that a thread in the background takes at a time.
CHUNK_SEGMENTS = 1024

_UNCHECKED, _CHECKING, _DAMAGED, _CHECKED = range(4)


class DeferredChecks(ProcessBound):
    """What is known of the segments of one log. Safe from any thread.

    `check(start, stop)` looks at the rows [start, stop) and gives those that need a recovery;
    `recover(rows)` recovers them, ascending. What either raises ends the checks: the thread gets
    it, and so does every later one.
    """

    def __init__(self, base_offsets: npt.NDArray[np.int64], checked: npt.NDArray[np.bool_],
                 check: Callable[[int, int], Sequence[int]],
                 recover: Callable[[Sequence[int]], None], *,
                 holds_lock: Callable[[], bool] = lambda: False) -> None:
        """`holds_lock` says whether this thread has the lock that `check` and `recover` take."""
        self._bases = base_offsets
        self._check, self._recover, self._holds_lock = check, recover, holds_lock
        # A byte for each segment; all below is read and written under the lock, but for the
        # question whether one segment is done.
        self._states = bytearray(np.where(checked, _CHECKED, _UNCHECKED).astype(np.uint8))
        self._damaged: set[int] = set()
        self._repairing: int | None = None  # the thread that is at it: nobody else gets in
        self._error: BaseException | None = None
        self._stopped = False
        self._changed = threading.Condition()

    # ---- questions

    @property
    def remaining(self) -> int:
        """Segments that nobody has checked to the end yet."""
        with self._changed:
            return len(self._states) - self._states.count(_CHECKED)

    # ---- checks

    def ensure_offset(self, offset: int) -> None:
        """Before a thread uses the segment that holds `offset`: it is sound when this returns."""
        self.ensure_rows(*self._row(offset))

    def ensure_range(self, start: int, end: int) -> None:
        """The same for all segments from the one that holds `start` to the one that holds `end`."""
        self.ensure_rows(self._row(start)[0], self._row(end)[1])

    def dismiss(self, base_offsets: Iterable[int]) -> None:
        """These segments are gone: what has their names now was not there at the load."""
        with self._changed:
            for base in base_offsets:
                row = int(np.searchsorted(self._bases, base))
                if (row < len(self._states) and int(self._bases[row]) == base
                        and self._states[row] == _UNCHECKED):
                    self._states[row] = _CHECKED
            self._changed.notify_all()

    def _row(self, offset: int) -> tuple[int, int]:
        row = max(int(np.searchsorted(self._bases, offset, side="right")) - 1, 0)
        return row, min(row + 1, len(self._states))

    def ensure_all(self) -> None:
        """Before a thread uses all of the log, and what background threads do."""
        self.ensure_rows(0, len(self._states))

    def ensure_rows(self, start: int, stop: int) -> None:
        """Checks those of the rows [start, stop) that nobody has, waits for those somebody is at.

        Raises what a check or a recovery raised, here or earlier.
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
        """The same for a thread that has the log's lock. It waits for no other, which may wait for
        the lock: what others are at it checks too, and no recovery runs without the lock."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._stopped or self._repairing == threading.get_ident():
                return
        try:
            rows = self._unchecked(start, stop)
            damaged = {found for row in rows for found in self._check(row, row + 1)}
            if damaged:
                earlier = self._unchecked(0, max(damaged))
                damaged |= {found for row in earlier for found in self._check(row, row + 1)}
                rows += earlier
                self._recover(sorted(damaged))
        except BaseException as error:
            self._fail(error)
            raise
        with self._changed:
            for row in rows:
                self._states[row] = _CHECKED
            self._damaged.difference_update(rows)
            self._changed.notify_all()

    def _unchecked(self, start: int, stop: int) -> list[int]:
        with self._changed:
            return [row for row in range(start, stop) if self._states[row] != _CHECKED]

    def _next(self, start: int, stop: int) -> tuple[int, int] | None:
        """Claims rows for this thread, as soon as it may; None when all are sound."""
        while True:
            if self._error is not None:
                raise self._error
            if self._repairing == threading.get_ident():
                return None  # a recovery reads what it repairs
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
        """Checks claimed rows; with damage among them it does not return before it is repaired."""
        self._look(start, stop)
        with self._changed:
            # Whoever repairs takes what was found here along, unless it came too late.
            while self._damaged and self._repairing is not None and self._error is None:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if not self._damaged:
                return
            self._repairing = threading.get_ident()
        try:
            self._repair()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            with self._changed:
                self._repairing = None
                self._changed.notify_all()

    def _look(self, start: int, stop: int) -> None:
        try:
            damaged = set(self._check(start, stop))
        except BaseException as error:
            self._fail(error)
            raise
        with self._changed:
            self._states[start:stop] = bytes([_CHECKED]) * (stop - start)
            for row in damaged:
                self._states[row] = _DAMAGED
            self._damaged |= damaged
            self._changed.notify_all()

    def _repair(self) -> None:
        """Everything before the last damaged segment is checked, then all damage is repaired."""
        while True:
            with self._changed:
                if not self._damaged or self._stopped:
                    return
                last = max(self._damaged)
                claimed = self._claim(0, last)
                if claimed is None and self._states.find(_CHECKING, 0, last) >= 0:
                    self._changed.wait()  # another thread is about to say what it found
                    continue
                rows = sorted(self._damaged)
            if claimed is not None:
                self._look(*claimed)
                continue
            self._recover(rows)
            with self._changed:
                for row in rows:
                    self._states[row] = _CHECKED
                self._damaged.difference_update(rows)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    @ending
    def stop(self) -> None:
        """Nobody begins a check any more, and no recovery runs when this returns: the log closes.

        What nobody checked stays as it is, for the next start.
        """
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            while self._repairing not in (None, threading.get_ident()):
                self._changed.wait()
