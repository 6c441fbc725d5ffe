"""Files that readers keep open, and columns that threads hand over: what is closed when, who
waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seglog.storage.handles import HandleCache
from seglog.storage.prefetch import Prefetch, _one_by_one, _Slot
from seglog.storage.ranges import LogRange
from tests.support.waiting import wait_for


class File:
    """A file that says whether it is closed."""

    def __init__(self, path: str) -> None:
        self.path, self.closed = path, 0

    def close(self) -> None:
        self.closed += 1


class Files:
    """Opens files, and remembers them in order."""

    def __init__(self) -> None:
        self.opened: list[File] = []

    def __call__(self, path: str) -> File:
        self.opened.append(File(path))
        return self.opened[-1]

    def use(self, cache: HandleCache, owner: int, *paths: str) -> None:
        for path in paths:
            with cache.pin((owner, path), self) as file:
                assert file.path == path and not file.closed

    @property
    def open(self) -> list[str]:
        """The paths of those that are not closed."""
        assert max(file.closed for file in self.opened) <= 1
        return [file.path for file in self.opened if not file.closed]


def test_the_file_whose_last_use_is_longest_ago_is_closed_first() -> None:
    cache, files = HandleCache(3), Files()
    owner = cache.new_owner()
    files.use(cache, owner, "a", "b", "c", "a", "d")
    assert files.open == ["a", "c", "d"] and len(cache) == 3
    files.use(cache, owner, "c", "e", "b")
    assert files.open == ["c", "e", "b"] and [file.path for file in files.opened] == list("abcdeb")


def test_a_file_in_use_is_closed_after_it() -> None:
    cache, files = HandleCache(1), Files()
    one, two = cache.new_owner(), cache.new_owner()
    assert one != two
    with cache.pin((one, "a"), files) as first, cache.pin((one, "a"), files) as again:
        assert first is again
        with cache.pin((two, "a"), files) as other:
            assert other is not first and len(cache) == 2
            cache.forget(one)
            assert not first.closed and len(cache) == 1
            with cache.pin((one, "a"), files) as fresh:
                assert fresh is not first
            cache.forget(two)
            assert not other.closed
        assert other.closed == 1 and not first.closed
    assert first.closed == 1
    cache.forget(one)
    assert files.open == []


def test_a_file_that_two_threads_open_is_kept_once() -> None:
    """The second to be ready closes its own."""
    cache, files = HandleCache(3), Files()

    def slowly(path: str) -> File:
        files.use(cache, 1, path)  # another thread is quicker
        return files(path)

    with cache.pin((1, "a"), slowly) as file:
        assert file is files.opened[0] and [one.closed for one in files.opened] == [0, 1]
        cache.forget(1)
        assert not file.closed
    assert files.open == [] and not len(cache)


# ---- columns that a thread hands over

def columns(*sizes: int) -> list[Any]:
    return [SimpleNamespace(nbytes=size) for size in sizes]


def test_a_thread_hands_over_no_more_than_there_is_room_for() -> None:
    slot = _Slot(None)
    assert slot.put(columns(30), 20), "the first is taken, however large it is"
    done = threading.Event()

    def put_more() -> None:
        assert slot.put(columns(5, 5), 20)
        assert slot.put(columns(10), 20), "exactly as much as there is room for"
        slot.ending.is_over = True
        assert not slot.put(columns(1), 20), "it was the last"
        done.set()

    thread = threading.Thread(target=put_more, daemon=True)
    thread.start()
    taken = slot.columns()
    assert next(taken).nbytes == 30
    assert [one.nbytes for one in taken] == [5, 5, 10, 1]
    wait_for(done.is_set)
    thread.join()
    slot.end(ValueError("too late"))
    assert slot.error is None


def test_an_error_comes_after_the_columns_before_it() -> None:
    slot = _Slot(None)
    assert slot.put(columns(1), 20)
    slot.end(ValueError("bad"))
    taken = slot.columns()
    assert next(taken).nbytes == 1
    with pytest.raises(ValueError, match="^bad$"):
        next(taken)
    assert slot.error is None


def test_a_range_that_is_dropped_keeps_no_thread_waiting() -> None:
    slot, found = _Slot(None), list[bool]()
    thread = threading.Thread(
        target=lambda: [found.append(slot.put(columns(size), 20)) for size in (5, 15, 1)],
        daemon=True)
    thread.start()
    wait_for(lambda: found == [True, True])
    slot.drop()
    thread.join(120)
    assert found == [True, True, False] and not slot.put(columns(1), 20)


def test_what_a_consumer_has_taken_is_held_by_no_list() -> None:
    given = columns(1, 2, 3)
    taken = _one_by_one(given)
    assert [next(taken).nbytes, next(taken).nbytes, len(given)] == [1, 2, 1]


def test_a_thread_leaves_a_range_that_the_consumer_skips() -> None:
    """It waits for room for the second columns of the first range."""
    two = cast(list[LogRange], ["first", "second"])
    ahead = Prefetch(iter(two), lambda *_: iter([columns(30), columns(30)]), 1, 20, lambda: None)
    taken: list[LogRange] = []
    consumer = threading.Thread(
        target=lambda: taken.extend(planned for planned, *_ in ahead.decoded()), daemon=True)
    consumer.start()
    consumer.join(60)
    assert taken == two
    ahead.join()


def test_a_thread_leaves_a_range_when_its_consumer_leaves() -> None:
    class Last:
        @property
        def nbytes(self) -> int:
            asked.set()
            return 30

    asked = threading.Event()
    planned, last = cast(list[LogRange], ["a range"]), cast(Any, Last())
    ahead = Prefetch(iter(planned), lambda *_: iter([*map(columns, (30, 30)), [last]]), 1, 20,
                     lambda: None)
    with ahead:
        next(next(ahead.decoded())[1])
        wait_for(asked.is_set)
    joined = threading.Thread(target=ahead.join, daemon=True)
    joined.start()
    joined.join(60)
    assert not joined.is_alive()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_last_thread_of_a_stream_releases_its_files(threads: int) -> None:
    released: list[int] = []
    may_end = threading.Event()

    def run(planned: Any, ending: object) -> Iterator[Any]:
        may_end.wait()
        return iter(())

    ahead = Prefetch(iter([cast(LogRange, "a range")]), run, threads, 1, lambda: released.append(1))
    decoded = ahead.decoded()
    next(decoded)
    pipeline = ahead._pipeline
    assert pipeline is not None
    wait_for(lambda: pipeline._running == 1)
    assert released == []
    may_end.set()
    ahead.join()
    assert released == [1] and list(decoded) == []
