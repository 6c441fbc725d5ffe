"""Runs tasks ahead in threads and hands their results out in order, in bounded memory."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

from seglog._native.columns import RecordColumns
from seglog.storage.ranges import LogRange

__all__ = ["Ending", "Prefetch"]


@dataclass(slots=True)
class Ending:
    """How the decoding of one range ended; filled in when its columns are through."""

    position: int = 0
    is_sound: bool = True
    kind: str = "end"


Run = Callable[[LogRange, Ending], Iterator[RecordColumns]]
Decoded = Iterator[tuple[LogRange, Iterator[RecordColumns], Ending]]


class Prefetch:
    """Inside, `decoded()` gives each range with its columns and its ending, in order.

    Nothing starts before it is asked for. Leaving cancels what is still running; `join` waits.
    """

    def __init__(self, ranges: Iterator[LogRange], run: Run, threads: int, bytes_max: int) -> None:
        self._ranges, self._run = ranges, run
        self._threads, self._bytes_max = threads, bytes_max
        self._pipeline: _Pipeline | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # No waiting here: whoever lets go of a stream may be the garbage collector, in any thread.
        if self._pipeline is not None:
            self._pipeline.cancel()

    def join(self) -> None:
        """Waits until no thread of this stream runs."""
        if self._pipeline is not None:
            self._pipeline.join()

    def decoded(self) -> Decoded:
        """Each range, its columns as they come, and its ending once they are through."""
        if self._threads == 0:
            return ((planned, self._run(planned, ending), ending)
                    for planned, ending in ((planned, Ending()) for planned in self._ranges))
        self._pipeline = _Pipeline(self._ranges, self._run, self._threads, self._bytes_max)
        return self._pipeline.decoded()


@dataclass(slots=True)
class _Slot:
    """One range on its way."""

    planned: LogRange | None
    ending: Ending = field(default_factory=Ending)
    columns: deque[RecordColumns] = field(default_factory=deque)
    nbytes: int = 0
    is_done: bool = False
    is_unwanted: bool = False
    error: BaseException | None = None


class _Pipeline:
    """Threads that take the next range, in order, as long as at most threads + 1 are not taken.

    The oldest range always has a thread, because they are handed out in order; so a thread that
    waits for room in its slot never holds up the one that the consumer waits for.
    """

    def __init__(self, ranges: Iterator[LogRange], run: Run, threads: int,
                 bytes_max: int) -> None:
        self._ranges, self._run, self._bytes_max = ranges, run, bytes_max
        self._slots_max = threads + 1
        self._plan = threading.Lock()       # guards _ranges and the order of _slots
        self._changed = threading.Condition()  # guards all that follows
        self._slots: deque[_Slot] = deque()
        self._is_planned, self._is_cancelled = False, False
        self._workers = [threading.Thread(target=self._work, name=f"seglog-decode-{n}",
                                          daemon=True) for n in range(threads)]
        _running.add(self)
        for worker in self._workers:
            worker.start()

    def decoded(self) -> Decoded:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._slots or self._is_planned)
                if not self._slots:
                    return
                slot = self._slots[0]
            if slot.planned is None:
                assert slot.error is not None
                raise slot.error
            yield slot.planned, self._columns(slot), slot.ending
            with self._changed:
                # A range that the consumer passed over is dropped, its thread too.
                slot.is_unwanted = True
                slot.columns.clear()
                self._slots.popleft()
                self._changed.notify_all()

    def _columns(self, slot: _Slot) -> Iterator[RecordColumns]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: slot.columns or slot.is_done)
                if not slot.columns:
                    break
                columns = slot.columns.popleft()
                slot.nbytes -= columns.nbytes
                self._changed.notify_all()
            yield columns
        if slot.error is not None:
            error, slot.error = slot.error, None
            raise error

    def cancel(self) -> None:
        """Tells the threads to stop: none goes on for longer than one set of columns."""
        with self._changed:
            self._is_cancelled = True
            self._slots.clear()
            self._changed.notify_all()

    def join(self) -> None:
        for worker in self._workers:
            worker.join()

    def _work(self) -> None:
        while (slot := self._next_slot()) is not None:
            assert slot.planned is not None
            self._fill(slot, slot.planned)

    def _next_slot(self) -> _Slot | None:
        with self._plan:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_cancelled or self._is_planned
                    or len(self._slots) < self._slots_max)
                if self._is_cancelled or self._is_planned:
                    return None
            try:
                slot = _Slot(next(self._ranges, None))
            except BaseException as error:
                slot = _Slot(None, error=error, is_done=True)
            with self._changed:
                if slot.planned is None:
                    self._is_planned = True
                if slot.planned is not None or slot.error is not None:
                    self._slots.append(slot)
                self._changed.notify_all()
            return slot if slot.planned is not None else None

    def _fill(self, slot: _Slot, planned: LogRange) -> None:
        try:
            for columns in self._run(planned, slot.ending):
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._is_cancelled or slot.is_unwanted
                        or slot.nbytes < self._bytes_max)
                    if self._is_cancelled or slot.is_unwanted:
                        break
                    slot.columns.append(columns)
                    slot.nbytes += columns.nbytes
                    self._changed.notify_all()
        except BaseException as error:
            slot.error = error
        with self._changed:
            slot.is_done = True
            self._changed.notify_all()


_running: weakref.WeakSet[_Pipeline] = weakref.WeakSet()


@atexit.register
def _cancel_all() -> None:
    """A thread inside native code while the interpreter goes down is nobody's wish."""
    for pipeline in list(_running):
        pipeline.cancel()
        pipeline.join()
