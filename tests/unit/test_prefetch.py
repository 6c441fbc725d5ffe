"""Threads that decode ahead: where not all of them can begin, and how they end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import seglog
from seglog._native.columns import RecordColumns
from seglog.storage import prefetch
from seglog.storage.prefetch import Ending, Prefetch
from seglog.storage.ranges import LogRange
from tests.support.held import threads_since
from tests.support.waiting import PATIENCE, wait_for


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("started", [0, 1])
def test_a_thread_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    error: type[BaseException], started: int) -> None:
    """Those that had begun stayed till the end of the process, and the exit of the interpreter
    failed to wait for the others."""
    with seglog.open(tmp_path / "t-0", config={"internal.segment.bytes": 2000}) as log:
        log.append_many([b"x" * 100] * 200)
        before, start, begun = set(threading.enumerate()), threading.Thread.start, [0]

        def limited(thread: threading.Thread) -> None:
            if begun[0] == started:
                raise error("can't start new thread")
            begun[0] += 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)
        stream = log.to_arrow(threads=2)
        with pytest.raises(error):
            next(stream)
        monkeypatch.undo()
        wait_for(lambda: set(threading.enumerate()) <= before, 10)
        prefetch._cancel_all()
        stream.close()
        assert sum(columns.num_rows for columns in log.to_arrow(threads=2)) == 200


def test_files_are_released_after_a_thread_if_the_next_cannot_start(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """By who leaves, and again by the last thread, which may have opened one meanwhile."""
    start, begun, released = threading.Thread.start, list[threading.Thread](), list[int]()
    decoding, is_left = threading.Event(), threading.Event()

    def run(planned: LogRange, ending: Ending) -> Iterator[list[RecordColumns]]:
        decoding.set()
        is_left.wait(PATIENCE)
        yield []

    def limited(thread: threading.Thread) -> None:
        if begun:
            decoding.wait(PATIENCE)
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    ranges = iter([cast("LogRange", object())])
    with (pytest.raises(RuntimeError),
          Prefetch(ranges, run, 2, 1, lambda: released.append(0)) as ahead):
        ahead.decoded()
    assert len(released) == 1
    is_left.set()
    begun[0].join(PATIENCE)
    assert len(released) == 2


def test_a_thread_of_a_stream_that_was_left_ends_at_its_next_handover() -> None:
    handed, is_left, planned = list[int](), threading.Event(), cast("LogRange", object())

    def run(planned: LogRange, ending: Ending) -> Iterator[list[RecordColumns]]:
        for number in range(9):
            handed.append(number)
            yield []
            is_left.wait(PATIENCE)

    ahead = Prefetch(iter([planned]), run, 1, 1, lambda: None)
    with ahead:
        next(ahead.decoded())
    is_left.set()
    ahead.join()
    assert len(handed) <= 2


class Columns:
    """Decoded columns of some size."""

    nbytes = 1


@pytest.mark.parametrize("count", [2, 9])
def test_what_a_stream_that_was_left_had_decoded_is_freed(count: int) -> None:
    """Also while somebody keeps the stream, and if its threads had ended before."""
    decoded: list[weakref.ref[Columns]] = []

    def run(planned: LogRange, ending: Ending) -> Iterator[list[RecordColumns]]:
        columns = Columns()
        decoded.append(weakref.ref(columns))
        yield [cast("RecordColumns", columns)]

    ahead = Prefetch(iter([cast("LogRange", object()) for _ in range(count)]), run, 2, 1,
                     lambda: None)
    with ahead:
        next(ahead.decoded())
        wait_for(lambda: len(decoded) == min(count, 3), 10)
        if count == 2:
            ahead.join()
        time.sleep(0.05)  # two threads decode no more than three ranges that nobody takes
    ahead.join()
    assert len(decoded) == min(count, 3)
    gc.collect()
    assert [one() for one in decoded if one() is not None] == []


def test_no_thread_runs_while_the_interpreter_ends(tmp_path: Path) -> None:
    """Whatever a consumer has left unread."""
    with seglog.open(tmp_path / "t-0", config={"internal.segment.bytes": 2000}) as log:
        log.append_many([b"x" * 100] * 200)
        before = set(threading.enumerate())
        stream = log.to_arrow(threads=2)
        next(stream)
        # The interpreter would wait for others before it tells them to end.
        assert {thread.daemon for thread in threads_since(before)} == {True}
        prefetch._cancel_all()
        assert not threads_since(before)
        stream.close()
