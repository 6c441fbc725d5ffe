"""Runs tasks ahead in threads and yields their results in order, in bounded memory."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Self

from seglog._native.columns import ColumnPool, RecordColumns
from seglog._native.records import RecordDecoder
from seglog.forks import ProcessBound, ending
from seglog.storage.log_store import Source
from seglog.storage.ranges import LogGap, LogRange

__all__ = ["Decoders", "Ending", "Prefetch"]

#: A forked child has none of the threads, so it cannot continue their work.
_CALLED = "stream that decodes ahead"
#: Bytes of columns that a thread hands over at a time: half a range of uncompressed records.
_HAND_OVER_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Ending:
    """How the decoding of one range ended; filled in with the last columns, or after them."""

    is_over: bool = False
    position: int = 0
    is_sound: bool = True
    kind: str = "end"
    gaps: list[LogGap] = field(default_factory=list)


class Decoders:
    """The decoders of one stream, each used by one thread at a time, for one range after another.

    With threads they hand over some MiB at once, because taking the GIL back is expensive.
    """

    def __init__(self, make: Callable[[Source, LogRange, ColumnPool], RecordDecoder],
                 batch_bytes: int, threads: int) -> None:
        self._make = make
        # Enough for the ranges in flight: fresh memory costs more than decoding into it.
        self._pool = ColumnPool(keep=6 * (threads + 1))
        self._idle: list[RecordDecoder] = []
        self.hand_over_bytes = max(1, min(_HAND_OVER_BYTES, batch_bytes // 2) if threads else 1)

    def take(self, source: Source, planned: LogRange) -> RecordDecoder:
        """A decoder, preferably one that has memory."""
        try:
            decoder = self._idle.pop()
        except IndexError:
            return self._make(source, planned, self._pool)
        decoder.restart(
            source, planned.start, planned.end, start_offset=planned.start_offset,
            end_offset=planned.end_offset, base_offset=planned.base_offset,
            aborted=planned.aborted or None, file=planned.file)
        return decoder

    def release(self, decoder: RecordDecoder) -> None:
        """Returns a decoder for the next range."""
        self._idle.append(decoder)


#: Decodes a range: yields lists of column sets.
Run = Callable[[LogRange, Ending], Iterator[list[RecordColumns]]]
Decoded = Iterator[tuple[LogRange, Iterator[RecordColumns], Ending]]


def _one_by_one(taken: list[RecordColumns]) -> Iterator[RecordColumns]:
    """Empties the list, so that only the consumer holds references to the columns it got."""
    taken.reverse()
    while taken:
        yield taken.pop()


class Prefetch:
    """Inside, `decoded()` yields each range with its columns and its ending, in order.

    Nothing starts before it is asked for. Leaving cancels what is still running; `join` waits.
    `release` is called when no thread will open a file any more.
    """

    def __init__(self, ranges: Iterator[LogRange], run: Run, threads: int, bytes_max: int,
                 release: Callable[[], None]) -> None:
        self._ranges, self._run, self._release = ranges, run, release
        self._threads, self._bytes_max = threads, bytes_max
        self._pipeline: _Pipeline | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # Does not wait: the garbage collector may be closing the stream, in any thread.
        if self._pipeline is not None:
            self._pipeline.cancel()
        self._release()

    def join(self) -> None:
        """Waits until no thread of this stream runs."""
        if self._pipeline is not None:
            self._pipeline.join()

    def decoded(self) -> Decoded:
        """Yields each range with its columns as they arrive, and its ending after them."""
        if self._threads == 0:
            return ((planned, chain.from_iterable(self._run(planned, ending)), ending)
                    for planned, ending in ((planned, Ending()) for planned in self._ranges))
        self._pipeline = _Pipeline(self._ranges, self._run, self._threads, self._bytes_max,
                                   self._release)
        return self._pipeline.decoded()


class _Slot(ProcessBound):
    """One range, which its thread decodes for the consumer."""

    _called = _CALLED

    def __init__(self, planned: LogRange | None) -> None:
        self.planned, self.ending = planned, Ending()
        self.error: BaseException | None = None
        self.is_unwanted, self._is_ended = False, False
        # Each list says whether it is the last: a second wake-up for that costs as much as the
        # first.
        self._taken: SimpleQueue[tuple[list[RecordColumns], bool]] = SimpleQueue()
        self._freed: SimpleQueue[int] = SimpleQueue()  # bytes that the consumer took
        self._nbytes = 0  # used by the thread: bytes it put that are not known to be taken

    def put(self, taken: list[RecordColumns], bytes_max: int) -> bool:
        """Hands columns over when there is room; False if they were the last, or no longer
        wanted."""
        nbytes = sum([columns.nbytes for columns in taken])
        while self._nbytes and self._nbytes + nbytes > bytes_max and not self.is_unwanted:
            self._nbytes -= self._freed.get()
        if self.is_unwanted:
            return False
        self._nbytes += nbytes
        self._is_ended = self.ending.is_over
        self._taken.put((taken, self._is_ended))
        return not self._is_ended

    def end(self, error: BaseException | None = None) -> None:
        """Ends the range; the consumer gets the error after the columns that were put."""
        if not self._is_ended:
            self.error = error
            self._taken.put(([], True))

    def columns(self) -> Iterator[RecordColumns]:
        """The columns in order, then the error that ended them."""
        is_last = False
        while not is_last:
            taken, is_last = self._taken.get()
            for columns in _one_by_one(taken):
                self._freed.put(columns.nbytes)
                yield columns
                del columns  # its memory is reused
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    @ending
    def drop(self) -> None:
        """Drops the columns and stops the thread. Never waits."""
        self.is_unwanted = True
        self._freed.put(0)


class _Pipeline(ProcessBound):
    """Threads that take the next range, in order, while at most threads + 1 ranges are not
    consumed.

    The oldest range always has a thread, because ranges are assigned in order. So a thread that
    waits for room in its slot never blocks the one that the consumer waits for.

    Queues replace a shared condition variable. A `put` wakes one waiter, needs no lock, and may be
    called by the garbage collector. The condition variable woke every thread for every range:
    36,000 thread switches for 4,880 sets of columns cost more CPU time than the decoding.
    """

    _called = _CALLED

    def __init__(self, ranges: Iterator[LogRange], run: Run, threads: int, bytes_max: int,
                 release: Callable[[], None]) -> None:
        self._ranges, self._run, self._release = ranges, run, release
        self._bytes_max = bytes_max
        self._is_cancelled = False
        self._slots: SimpleQueue[_Slot | None] = SimpleQueue()  # in order; None ends the list
        self._permits: SimpleQueue[None] = SimpleQueue()  # each permits a thread to begin a range
        for _ in range(threads + 1):
            self._permits.put(None)
        self._plan = threading.Lock()  # guards _ranges, the order of _slots and the fields below
        self._is_planned, self._running = False, threads
        self._at_work: list[_Slot | None] = [None] * threads
        self._workers = [threading.Thread(target=self._work, args=(n,), daemon=True,
                                          name=f"seglog-decode-{n}") for n in range(threads)]
        _running.add(self)
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:  # an interrupt, or the system has no thread left for this process
            started = [worker for worker in self._workers if worker.ident is not None]
            with self._plan:
                self._running -= threads - len(started)
            self._workers = started
            self.cancel()
            raise

    def decoded(self) -> Decoded:
        while (slot := self._slots.get()) is not None:
            if slot.planned is None:
                assert slot.error is not None
                raise slot.error
            yield slot.planned, slot.columns(), slot.ending
            slot.drop()  # the consumer skipped it
            self._permits.put(None)

    @ending
    def cancel(self) -> None:
        """Tells the threads to stop: each ends at its next handover at the latest."""
        self._is_cancelled = True
        for slot in self._at_work:
            if slot is not None:
                slot.drop()
        self._permits.put(None)
        self._clear()

    def _clear(self) -> None:
        with suppress(Empty):
            while True:
                self._slots.get_nowait()

    @ending
    def join(self) -> None:
        for worker in self._workers:
            worker.join()

    def _work(self, number: int) -> None:
        while (slot := self._next_slot(number)) is not None:
            self._fill(slot)
            self._at_work[number] = slot = None
        self._permits.put(None)  # so that the next thread ends too
        with self._plan:
            self._running -= 1
            if self._running:
                return
        if self._is_cancelled:
            self._clear()
        self._release()

    def _next_slot(self, number: int) -> _Slot | None:
        self._permits.get()
        with self._plan:
            if self._is_cancelled or self._is_planned:
                return None
            planned = None
            try:
                planned = next(self._ranges, None)
            except BaseException as error:
                failed = _Slot(None)
                failed.error = error
                self._slots.put(failed)
            self._is_planned = planned is None
            slot = None if planned is None else _Slot(planned)
            self._at_work[number] = slot
            self._slots.put(slot)
            return slot

    def _fill(self, slot: _Slot) -> None:
        assert slot.planned is not None
        try:
            for taken in self._run(slot.planned, slot.ending):
                if self._is_cancelled or not slot.put(taken, self._bytes_max):
                    break
            slot.end()
        except BaseException as error:
            slot.end(error)


_running: weakref.WeakSet[_Pipeline] = weakref.WeakSet()


@atexit.register
def _cancel_all() -> None:
    """Stops all threads at exit: none may be inside native code when the interpreter shuts down."""
    for pipeline in list(_running):
        pipeline.cancel()
        pipeline.join()
